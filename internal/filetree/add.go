package filetree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// Add puts files that are not there yet below a directory, each whole or not at all, and on the disk. A directory that
// it creates is its owner's alone, and processes that add to such a one wait for each other; the directories in it have
// mode 0755 whatever the umask, for they may be copied to a host. It follows no link that leads out of the directory.
// Errors: fs.ErrExist, wrapped, for a file that is there; what the file system says. Files before that stay.
func Add(ctx context.Context, directory string, files []File) error {
	if err := MkdirAll(filepath.Dir(filepath.Clean(directory)), 0o755); err != nil {
		return fmt.Errorf("creating %s: %w", directory, err)
	}
	err := os.Mkdir(directory, private)
	if err == nil {
		err = Sync(filepath.Dir(filepath.Clean(directory)))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("creating %s: %w", directory, err)
	}
	root, err := os.OpenRoot(directory)
	if err != nil {
		return err
	}
	defer root.Close()
	if info, err := root.Stat("."); err == nil && info.Mode().Perm()&0o077 == 0 && Ours(info) {
		// Of two processes one would leave the certificate, and the other its key. What other users can open is not
		// locked: they could keep it so.
		release, _, err := lock(ctx, directory)
		if err != nil {
			return fmt.Errorf("writing %s: %w", directory, err)
		}
		defer release()
	}
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := add(root, f); err != nil {
			return fmt.Errorf("writing %s: %w", filepath.Join(directory, filepath.FromSlash(f.Path)), err)
		}
	}
	return nil
}

// add writes a file under a temporary name and links it to its own, which fails when that is taken.
func add(root *os.Root, f File) error {
	if err := directories(root, path.Dir(f.Path)); err != nil {
		return err
	}
	partial := filepath.ToSlash(partialOf(filepath.FromSlash(f.Path)))
	if err := root.Remove(partial); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // of a process that was killed
	}
	if err := create(root, partial, f.Data, f.Mode); err != nil {
		return err
	}
	err := root.Link(partial, f.Path)
	if err != nil && !errors.Is(err, fs.ErrExist) { // not every file system has links
		if _, there := root.Lstat(f.Path); errors.Is(there, fs.ErrNotExist) {
			if err = root.Rename(partial, f.Path); err == nil {
				return syncIn(root, path.Dir(f.Path))
			}
		}
	}
	if removed := root.Remove(partial); err == nil {
		err = removed
	}
	if err != nil {
		return err
	}
	return syncIn(root, path.Dir(f.Path))
}

// directories creates a directory and those above it.
func directories(root *os.Root, name string) error {
	if name == "." {
		return nil
	}
	if err := directories(root, path.Dir(name)); err != nil {
		return err
	}
	switch err := root.Mkdir(name, public); {
	case errors.Is(err, fs.ErrExist):
		return nil // if it is none, what is created in it will fail
	case err != nil:
		return err
	}
	if err := root.Chmod(name, public); err != nil { // whatever the umask
		return err
	}
	return syncIn(root, path.Dir(name))
}

// create creates a file with exactly the mode, whatever the umask, and brings it to the disk.
func create(root *os.Root, name string, data []byte, mode fs.FileMode) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = syncFile(f)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// syncIn brings a directory to the disk.
func syncIn(root *os.Root, name string) error {
	d, err := root.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return syncFile(d)
}
