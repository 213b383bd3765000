//go:build unix

package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlansThatAreCarriedOutAreNoLinks: what a link names can be exchanged after it was confirmed.
func TestPlansThatAreCarriedOutAreNoLinks(t *testing.T) {
	dir := t.TempDir()
	plan, link := filepath.Join(dir, "plan"), filepath.Join(dir, "link")
	if err := os.WriteFile(plan, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(plan, link); err != nil {
		t.Fatal(err)
	}
	for _, verb := range [][]string{{"crd", "apply"}, {"crd", "undo"}, {"transition", "apply"}, {"transition", "undo"},
		{"transition", "status"}} {
		code, _, stderr := run(t, append(verb, link)...)
		if code != 2 || !strings.Contains(stderr, "is no regular file") {
			t.Errorf("fusionctl %s with a link: %d, %s", strings.Join(verb, " "), code, stderr)
		}
	}
}
