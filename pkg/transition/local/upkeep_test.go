package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/transition"
)

// TestWhatIsKeptIsBounded: what writes a file again and again, against the upkeep, does not fill the disk; what was
// there first is kept, and other files of the directory are.
func TestWhatIsKeptIsBounded(t *testing.T) {
	root, now := t.TempDir(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	k := &Keeper{Host: &Host{Rehearsal: root}, Aside: filepath.Join(root, "replaced"), Now: func() time.Time {
		now = now.Add(time.Minute)
		return now
	}}
	fought := []transition.File{{Path: "/etc/kubernetes/a", Mode: 0o600, Data: []byte("planned")},
		{Path: "/etc/kubernetes/a.b", Mode: 0o600, Data: []byte("planned")}}
	if err := os.MkdirAll(filepath.Join(root, "cp-1/etc/kubernetes"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(k.Aside, 0o700); err != nil {
		t.Fatal(err)
	}
	const mine = "etc__kubernetes__a.mine"
	if err := os.WriteFile(filepath.Join(k.Aside, mine), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for n := range 30 {
		for _, f := range fought {
			text := fmt.Sprintf("by hand %d", n/2) // each of them twice
			if err := os.WriteFile(k.Host.place("cp-1", f.Path), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := k.replace(t.Context(), "cp-1", &f); err != nil {
				t.Fatal(err)
			}
		}
	}
	entries, err := os.ReadDir(k.Aside)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(k.Aside, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		path := "a"
		if strings.HasPrefix(e.Name(), "etc__kubernetes__a.b.") {
			path = "a.b"
		}
		texts[path] += string(data) + ","
	}
	for _, path := range []string{"a", "a.b"} {
		for _, want := range []string{"by hand 0,", "by hand 14,", "by hand 6,"} {
			if !strings.Contains(texts[path], want) {
				t.Errorf("%s: %q is not kept: %q", path, want, texts[path])
			}
		}
	}
	if len(entries) != 2*mostKept+1 || texts["a"] == "" {
		t.Errorf("%d files are kept: %v", len(entries), entries)
	}
	if _, err := os.Stat(filepath.Join(k.Aside, mine)); err != nil {
		t.Error(err)
	}
}
