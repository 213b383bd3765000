package filetree

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestPrivateDirectories: what others can write into is not believed, and one that is made is nobody else's.
func TestPrivateDirectories(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := errors.Join(Private(dir), Private(dir)); err != nil {
		t.Fatal(err)
	}
	for _, made := range []string{dir, filepath.Dir(dir)} {
		if info, err := os.Stat(made); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", made, info.Mode(), err)
		}
	}
	for mode, wrong := range map[os.FileMode]bool{0o755: false, 0o720: true, 0o702: true, 0o777: true} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if err := Private(dir); wrong != (err != nil && strings.Contains(err.Error(), "other users can write there")) {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.Chmod(dir, 0o700), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := Private(file); err == nil {
		t.Error("a file is a directory")
	}
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Skip("only root gives a directory away")
	}
	if err := Private(dir); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Errorf("a directory of another user: %v", err)
	}
}

// TestReplaceFollowsNoLinkThatComesMeanwhile: who may write to the directory puts a link in the place of the temporary
// file whenever there is none.
func TestReplaceFollowsNoLinkThatComesMeanwhile(t *testing.T) {
	dir := t.TempDir()
	file, elsewhere := filepath.Join(dir, "file"), filepath.Join(t.TempDir(), "elsewhere")
	if err := os.WriteFile(elsewhere, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var linking sync.WaitGroup
	linking.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = os.Symlink(elsewhere, partialOf(file))
			}
		}
	})
	written := 0
	for range 60 {
		if Replace(file, 0o600, func(w *bufio.Writer) error { _, err := w.WriteString("ours"); return err }) == nil {
			written++
		}
	}
	close(done)
	linking.Wait()
	if data, err := os.ReadFile(elsewhere); err != nil || string(data) != "theirs" {
		t.Errorf("of 60 files %d were written, and where a link led is %q, %v", written, data, err)
	}
}
