//go:build unix

package local

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAProgramThatIsAPipe: whoever may write where a program lies does not stop the agent by what cannot be read to an
// end.
func TestAProgramThatIsAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "kube-apiserver")
	if err := syscall.Mkfifo(pipe, 0o755); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := new(Keeper).program(pipe)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "is no regular file") {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for the other end of a pipe")
	}
}
