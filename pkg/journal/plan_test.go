//go:build unix

package journal

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// What a plan says is done with the rights of whoever applies it.
func TestPlansAreOfWhoAppliesThem(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(at(name), []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(at(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{"own": 0o600, "readable": 0o644} {
		write(name, mode)
		file, err := OpenPlan(at(name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if text, err := io.ReadAll(file); err != nil || string(text) != "text" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		file.Close()
	}
	write("open", 0o602)
	write("group", 0o620)
	if err := os.Symlink("own", at("link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused := []string{"open", "group", "link", "pipe", "."}
	if os.Geteuid() == 0 {
		write("theirs", 0o600)
		if err := os.Chown(at("theirs"), 65534, 65534); err != nil {
			t.Fatal(err)
		}
		refused = append(refused, "theirs")
	}
	for _, name := range refused {
		if file, err := OpenPlan(at(name)); err == nil {
			t.Errorf("%s: is opened", name)
			file.Close()
		}
	}
}
