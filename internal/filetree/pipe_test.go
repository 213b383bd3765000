//go:build unix

package filetree

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Opening a pipe would wait for its other end, and no signal would end that.
func TestWriteOpensNoPipe(t *testing.T) {
	directory := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(directory, RecordFile), 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- Write(t.Context(), directory, "a", "", sample) }()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "is no regular file") {
			t.Errorf("Write = %v, want that the record is no regular file", err)
		}
	case <-time.After(time.Minute):
		t.Error("Write waits for the other end of a pipe")
	}
}
