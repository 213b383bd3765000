//go:build unix

package restore

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestPipesAreNotWaitedFor: what opens one waits until another process does.
func TestPipesAreNotWaitedFor(t *testing.T) {
	m := Member{DataDir: t.TempDir(), ID: "a"}
	db, lock := filepath.Join(m.member(), "snap", "db"), filepath.Join(m.DataDir, lockFile)
	if err := errors.Join(os.MkdirAll(filepath.Dir(db), 0o700), syscall.Mkfifo(db, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := m.PutBack(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(os.Remove(lock), syscall.Mkfifo(lock, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := m.PutBack(); err == nil {
		t.Error("a pipe is a lock")
	}
}
