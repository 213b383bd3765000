package filetree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// limitLinks is how many symbolic links are followed, as in Linux.
const limitLinks = 40

// ErrLinks says that symbolic links lead to each other, or are too many to follow.
var ErrLinks = fmt.Errorf("more than %d symbolic links", limitLinks)

// LinkError says that a symbolic link leads to nothing below the directory that it is read in.
type LinkError struct{ Link, Directory string }

func (e *LinkError) Error() string {
	return fmt.Sprintf("it links to %s, and there is none below %s", e.Link, e.Directory)
}

// Is makes it one of the errors about what does not exist.
func (e *LinkError) Is(target error) bool { return target == fs.ErrNotExist }

// Resolve is where a path of a machine lies below the directory that is a copy of its root: a symbolic link leads to
// what it names there, as it would on the machine, and none leads out of the directory.
// Errors: fs.ErrNotExist, of a link to nothing a *LinkError; ErrLinks.
func Resolve(directory, name string) (string, error) {
	links, link := 0, ""
	place := directory
	left := strings.Split(path.Clean("/" + filepath.ToSlash(name))[1:], "/")
	for len(left) > 0 {
		part := left[0]
		left = left[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if place != directory {
				place = filepath.Dir(place)
			}
			continue
		}
		next := filepath.Join(place, part)
		info, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) && link != "" {
			return "", &LinkError{Link: link, Directory: directory}
		}
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			place = next
			continue
		}
		if links++; links > limitLinks {
			return "", ErrLinks
		}
		if link, err = os.Readlink(next); err != nil {
			return "", err
		}
		if filepath.IsAbs(link) {
			place = directory
		}
		left = slices.Concat(strings.Split(strings.Trim(link, "/"), "/"), left)
	}
	return place, nil
}

// Within is a directory as a file system whose links lead where Resolve says: who wrote them decides about nothing but
// the directory.
func Within(directory string) fs.FS { return within(directory) }

type within string

// root opens the directory, and the place of a file in it, relative to it. What is exchanged for a link in between is
// refused when it leads out.
func (w within) root(op, name string) (*os.Root, string, error) {
	failed := func(err error) (*os.Root, string, error) {
		if reason, ok := errors.AsType[*fs.PathError](err); ok {
			err = reason.Err
		}
		return nil, "", &fs.PathError{Op: op, Path: name, Err: err}
	}
	if !fs.ValidPath(name) {
		return failed(fs.ErrInvalid)
	}
	place, err := Resolve(string(w), name)
	if err != nil {
		return failed(err)
	}
	relative, err := filepath.Rel(string(w), place)
	if err != nil {
		return failed(err)
	}
	root, err := os.OpenRoot(string(w))
	if err != nil {
		return failed(err)
	}
	return root, relative, nil
}

// Open opens a file or directory.
func (w within) Open(name string) (fs.File, error) {
	root, relative, err := w.root("open", name)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(relative, os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, err
	}
	return regular(f, name, true)
}

// Stat does not open the file, which may be a pipe.
func (w within) Stat(name string) (fs.FileInfo, error) {
	root, relative, err := w.root("stat", name)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.Stat(relative)
}

// ReadDir lists a directory by name.
func (w within) ReadDir(name string) ([]fs.DirEntry, error) {
	root, relative, err := w.root("readdir", name)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return fs.ReadDir(root.FS(), filepath.ToSlash(relative))
}
