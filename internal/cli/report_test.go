package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestReportOfStores holds the stores on the page against etcd check of the same files.
func TestReportOfStores(t *testing.T) {
	_, checked, _ := run(t, slices.Concat([]string{"etcd", "check", splitSpec, "-o", "json"}, fromFiles)...)
	var check struct {
		Resources []struct {
			Resource, Store, Owner string
			Keys                   int
		}
	}
	if err := json.Unmarshal([]byte(checked), &check); err != nil || len(check.Resources) == 0 {
		t.Fatal(err, checked)
	}
	code, page, stderr := run(t, slices.Concat([]string{"report", splitSpec, "-o", "markdown"}, fromFiles)...)
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d, stderr %q; want 0 and nothing", code, stderr)
	}
	for _, r := range check.Resources {
		row := fmt.Sprintf("| %s | %s | %s | %d |", r.Store, r.Resource, r.Owner, r.Keys)
		if !strings.Contains(page, row) {
			t.Errorf("the page has no row %s", row)
		}
	}
}

// TestReportOfADamagedStore: what cannot be read is named, the rest is shown, and the page is not clean.
func TestReportOfADamagedStore(t *testing.T) {
	damaged := filepath.Join(t.TempDir(), "damaged.db")
	if err := os.WriteFile(damaged, bytes.Repeat([]byte("no db"), 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(t.TempDir(), "page.md")
	code, _, stderr := run(t, slices.Concat([]string{"report", splitSpec, "-o", page, "--snapshot", "core=" + damaged},
		modernFromFile)...)
	if code != 1 || strings.Count(stderr, "not a readable etcd db file") != 1 {
		t.Errorf("exit code %d, stderr %q; want 1 and the damaged store once", code, stderr)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Not decided: a store could not be read", "**Incomplete:** ", "| modern | "} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}
