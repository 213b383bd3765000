package filetree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// errNoFile says that something is no regular file: a pipe or a device may have no end, and waits for another process.
var errNoFile = errors.New("is no regular file")

// Open opens a regular file for reading. What is looked at before it is opened may be exchanged in between, and opening
// a pipe would wait for its other end: so it is opened without waiting, and what was opened is looked at. Errors:
// *fs.PathError.
func Open(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, err
	}
	return regular(f, name, false)
}

// regular closes what is no file; directories may be one.
func regular(f *os.File, name string, orDirectory bool) (*os.File, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !(orDirectory && info.IsDir()) {
		err = &fs.PathError{Op: "open", Path: name, Err: errNoFile}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ReadFile reads a regular file, as Open opens it, of at most so many bytes.
func ReadFile(name string, limitBytes int64) ([]byte, error) {
	f, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limitBytes+1))
	if err == nil && int64(len(data)) > limitBytes {
		err = fmt.Errorf("%s: is larger than %d bytes", name, limitBytes)
	}
	return data, err
}

// DirFS is os.DirFS of which what is opened is a regular file or a directory, as with Open.
func DirFS(directory string) fs.FS { return dirFS{os.DirFS(directory), directory} }

type dirFS struct {
	fs.FS
	directory string
}

// Open opens a file or directory.
func (d dirFS) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, err := os.OpenFile(filepath.Join(d.directory, filepath.FromSlash(name)), os.O_RDONLY|noWait, 0)
	if err != nil {
		if reason, ok := errors.AsType[*fs.PathError](err); ok {
			err = &fs.PathError{Op: "open", Path: name, Err: reason.Err}
		}
		return nil, err
	}
	return regular(f, name, true)
}

// Stat does not open the file.
func (d dirFS) Stat(name string) (fs.FileInfo, error) { return fs.Stat(d.FS, name) }

// Lstat follows no link.
func (d dirFS) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(d.FS, name) }

// ReadLink is where a link leads.
func (d dirFS) ReadLink(name string) (string, error) { return fs.ReadLink(d.FS, name) }

// ReadDir lists a directory by name.
func (d dirFS) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(d.FS, name) }
