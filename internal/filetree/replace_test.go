package filetree

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReplaceFollowsNoLink: in a folder that others may write to, somebody may have put one at the temporary name.
func TestReplaceFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	file, theirs := filepath.Join(dir, "plan"), filepath.Join(dir, "theirs")
	if err := os.WriteFile(theirs, []byte("theirs"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(theirs, filepath.Join(dir, ".plan.partial")); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(file)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is %v, %v; want a file of mode 0600", info, err)
	}
	for name, want := range map[string]string{file: "secret", theirs: "theirs"} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", filepath.Base(name), got, err, want)
		}
	}
}

// TestReplaceShowsNoHalfFile: while a file is written, no kubelet finds another one beside it, and a file that merely
// ends as temporary ones do stays.
func TestReplaceShowsNoHalfFile(t *testing.T) {
	dir := t.TempDir()
	theirs := filepath.Join(dir, "pod.yaml.partial")
	if err := os.WriteFile(theirs, []byte("theirs"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := Replace(filepath.Join(dir, "pod.yaml"), 0o600, func(*bufio.Writer) error {
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			if e.Name() != filepath.Base(theirs) && !strings.HasPrefix(e.Name(), ".") {
				t.Errorf("a kubelet would read %s", e.Name())
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(theirs); err != nil || string(got) != "theirs" {
		t.Errorf("a file of others holds %q, %v", got, err)
	}
}

// TestReplaceLeavesTheFileAsItWas when what is written cannot be told to its end.
func TestReplaceLeavesTheFileAsItWas(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan")
	if err := WriteFile(file, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the store is gone")
	err := Replace(file, 0o600, func(w *bufio.Writer) error {
		if _, err := w.Write(make([]byte, 1<<17)); err != nil {
			return err
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("Replace = %v, want %v", err, broken)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "before" {
		t.Errorf("the file holds %q, %v; want what it held before", got, err)
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("there are %v, %v; want the file alone", left, err)
	}
}

// TestReplaceTakesNoHalfOfAnother: two processes replace the same file, and the first is done while the second writes.
func TestReplaceTakesNoHalfOfAnother(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan")
	if err := WriteFile(file, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	var first error
	err := Replace(file, 0o600, func(w *bufio.Writer) error {
		first = Replace(file, 0o600, func(w *bufio.Writer) error {
			_, err := w.WriteString("inner")
			return err
		})
		_, err := w.WriteString("outer")
		return err
	})
	if first != nil || err == nil {
		t.Errorf("the one that began last: %v; the other: %v, want an error", first, err)
	}
	begun, end := make(chan struct{}), make(chan struct{})
	ended := make(chan error)
	err = Replace(file, 0o600, func(w *bufio.Writer) error {
		go func() {
			ended <- Replace(file, 0o600, func(w *bufio.Writer) error {
				w.WriteString("whole, ")
				w.Flush()
				close(begun)
				<-end
				_, err := w.WriteString("at last")
				return err
			})
		}()
		<-begun
		_, err := w.WriteString("mine")
		return err
	})
	if got, readErr := os.ReadFile(file); err == nil || readErr != nil || string(got) != "inner" {
		t.Errorf("while another writes: %v, and the file holds %q, %v; want what it held", err, got, readErr)
	}
	close(end)
	if err := <-ended; err != nil {
		t.Errorf("the other: %v", err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "whole, at last" {
		t.Errorf("the file holds %q, %v", got, err)
	}
}

// What is written is its owner's alone until it is whole, and then has the mode that was asked for, whatever the umask.
func TestReplaceHasTheModeThatIsAskedFor(t *testing.T) {
	dir := t.TempDir()
	for _, mode := range []os.FileMode{0o600, 0o644, 0o664, 0o755} {
		file := filepath.Join(dir, mode.String())
		err := Replace(file, mode, func(w *bufio.Writer) error {
			partial, err := os.Stat(filepath.Join(dir, "."+filepath.Base(file)+".partial"))
			if err == nil && partial.Mode() != 0o600 {
				t.Errorf("%s while it is written: %s", mode, partial.Mode())
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode() != mode {
			t.Errorf("%s, %v, want %s", info.Mode(), err, mode)
		}
	}
}
