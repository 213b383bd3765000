//go:build unix

package journal

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPipesAreNotWaitedFor: opening a pipe waits for its other end, and a reader of a journal would do nothing else.
func TestPipesAreNotWaitedFor(t *testing.T) {
	name := filepath.Join(t.TempDir(), "plan.journal")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	_, readErr := Read[string](name, "plan")
	_, openErr := Open[string](name, "plan")
	_, planErr := OpenPlan(name)
	for what, err := range map[string]error{"Read": readErr, "Open": openErr, "OpenPlan": planErr} {
		if err == nil || !strings.Contains(err.Error(), "is no regular file") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
