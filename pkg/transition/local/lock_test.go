package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestLocksAreNoLinks: in a directory that others write to, root would create the file to which one leads.
func TestLocksAreNoLinks(t *testing.T) {
	lock, elsewhere := filepath.Join(t.TempDir(), "lock"), filepath.Join(t.TempDir(), "made")
	if err := os.Symlink(elsewhere, lock); err != nil {
		t.Fatal(err)
	}
	if held, err := Lock(t.Context(), lock, time.Second); err == nil {
		held.Close()
		t.Error("Lock by a link = nil")
	}
	if _, err := os.Lstat(elsewhere); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a link was followed: %v", err)
	}
}
