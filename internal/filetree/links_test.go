package filetree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// linked is a copy of a machine's root with links, beside a file that is not of it.
func linked(t *testing.T, links map[string]string) string {
	t.Helper()
	directory := t.TempDir()
	root := filepath.Join(directory, "root")
	for name, text := range map[string]string{"root/srv/pki/ca.crt": "ca", "root/etc/os": "host", "outside": "secret"} {
		name = filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range links {
		if err := os.Symlink(strings.ReplaceAll(target, "DIR", directory), filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestLinksLeadNowhereOutside: absolute ones start at the directory, and none leaves it.
func TestLinksLeadNowhereOutside(t *testing.T) {
	root := linked(t, map[string]string{"etc/pki": "/srv/pki", "etc/up": "../../../../srv", "etc/self": "self",
		"etc/shadow": "/run/shadow", "etc/above": "../../outside", "etc/below": "DIR/outside", "etc/a": "b",
		"etc/b": "a", "etc/chain": "pki/ca.crt"})
	files := Within(root)
	for name, want := range map[string]string{"etc/pki/ca.crt": "srv/pki/ca.crt", "etc/up/pki/ca.crt": "srv/pki/ca.crt",
		"etc/chain": "srv/pki/ca.crt", "srv/pki/ca.crt": "srv/pki/ca.crt", "etc/os": "etc/os"} {
		if got, err := Resolve(root, "/"+name); err != nil || got != filepath.Join(root, want) {
			t.Errorf("Resolve(%s) = %s, %v, want %s", name, got, err, want)
		}
		if text, err := fs.ReadFile(files, name); err != nil || string(text) == "" {
			t.Errorf("reading %s: %q, %v", name, text, err)
		}
	}
	if got, err := Resolve(root, "/etc/../../srv/pki"); err != nil || got != filepath.Join(root, "srv/pki") {
		t.Errorf("Resolve above the root = %s, %v", got, err)
	}
	if entries, err := fs.ReadDir(files, "etc/up"); err != nil || len(entries) != 1 || entries[0].Name() != "pki" {
		t.Errorf("ReadDir through a link: %v, %v", entries, err)
	}
	for _, name := range []string{"etc/self", "etc/shadow", "etc/above", "etc/below", "etc/a", "nowhere", "etc/os/x"} {
		text, err := fs.ReadFile(files, name)
		if err == nil {
			t.Errorf("reading %s: %q, want an error", name, text)
		}
		if _, err := fs.Stat(files, name); err == nil {
			t.Errorf("Stat of %s: no error", name)
		}
	}
	if _, err := files.Open("etc/a"); !errors.Is(err, ErrLinks) {
		t.Errorf("two links to each other: %v, want ErrLinks", err)
	}
	_, err := files.Open("etc/shadow")
	if link, ok := errors.AsType[*LinkError](err); !ok || link.Link != "/run/shadow" ||
		!errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a link to what is only elsewhere: %v, want the link and ErrNotExist", err)
	}
	if _, err := files.Open("../outside"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a path out of the directory: %v, want ErrInvalid", err)
	}
}

// TestWithinIsAFileSystem holds it to what Go's library wants of one.
func TestWithinIsAFileSystem(t *testing.T) {
	if err := fstest.TestFS(Within(linked(t, nil)), "srv/pki/ca.crt", "etc/os"); err != nil {
		t.Error(err)
	}
}
