package filetree

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile is Replace for data that are at hand.
func WriteFile(file string, data []byte, mode fs.FileMode) error {
	return Replace(file, mode, func(w *bufio.Writer) error { _, err := w.Write(data); return err })
}

// Replace replaces a file by what is written, or leaves it as it was. It writes under a temporary name, brings that to
// the disk, and renames it, so that the file is there after a power failure. The temporary name is always the same, so
// that what a killed process leaves behind does not pile up; it begins with a dot, because a kubelet reads every other
// file of the manifests' directory; it is created anew, because in a directory that others may write to it could be
// theirs, or a link. Errors: those of write, as they are; what the file system says.
func Replace(file string, mode fs.FileMode, write func(*bufio.Writer) error) error {
	partial := partialOf(file)
	if err := RemovePartial(file); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	temp, err := os.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	defer temp.Close() // a no-op once closed
	written, err := temp.Stat()
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	defer func() {
		if still(partial, written) == nil { // not renamed, and not another process's
			os.Remove(partial)
		}
	}()
	buffered := bufio.NewWriterSize(temp, 1<<16)
	if err := write(buffered); err != nil {
		return err // about what is written, and not about the file
	}
	err = buffered.Flush()
	if err == nil {
		err = temp.Chmod(mode)
	}
	if err == nil {
		err = syncFile(temp)
	}
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = still(partial, written)
	}
	if err == nil {
		err = os.Rename(partial, file)
	}
	if err == nil {
		err = Sync(filepath.Dir(file))
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return nil
}

// partialOf is the temporary name under which a file is written.
func partialOf(file string) string {
	return filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".partial")
}

// RemovePartial removes what a process has left that was killed while it wrote the file: Replace and Add do so before
// they write, and a caller does that finds the file as it should be, or gone. Errors: what the file system says.
func RemovePartial(file string) error {
	if err := os.Remove(partialOf(file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// still makes sure that what has the temporary name is what was written: another process that replaces the same file
// has put its own there, and may be in the midst of it.
func still(partial string, written fs.FileInfo) error {
	now, err := os.Lstat(partial)
	if err == nil && !os.SameFile(now, written) {
		err = fmt.Errorf("another process writes %s", partial)
	}
	return err
}
