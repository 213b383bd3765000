// Package files reads how control planes run from the files of their hosts: from directories of this machine, or from
// copies of such directories.
package files

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/pkg/adopt"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Dir is where the files of one host are.
type Dir struct {
	Files fs.FS
	// Host is the root of the machine to which the directory belongs; nil for a copy, for which the files of this
	// machine would be the wrong ones.
	Host fs.FS
}

// Open opens a directory; a file as if it were alone in one. Errors: there is neither.
func Open(name string) (Dir, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return Dir{}, err
	case !info.IsDir() && !info.Mode().IsRegular():
		return Dir{}, fmt.Errorf("%s: is %s, want a directory or a file: write what is to be read into one", name,
			adopt.KindOf(info.Mode()))
	case !info.IsDir():
		return Dir{Files: oneFile{os.DirFS(filepath.Dir(name)), filepath.Base(name)}}, nil
	}
	return Dir{Files: os.DirFS(name), Host: machineOf(name)}, nil
}

// systemdOwn are systemd's own folders, whose units refer to files elsewhere on the machine.
var systemdOwn = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system",
	"/lib/systemd/system"}

func machineOf(directory string) fs.FS {
	absolute, err := filepath.Abs(directory)
	if err != nil || !slices.Contains(systemdOwn, absolute) {
		return nil
	}
	return os.DirFS("/")
}

// Hosts is the control plane of one cluster as it was read.
type Hosts struct {
	Names []string     // the directory, or file, of each host
	Hosts []adopt.Host // in the order of Names; of several each is called after its directory
	// Mode is the widest that a file may have that shows what these hold: who may not read one of them may not read
	// that. Its owner may.
	Mode fs.FileMode
}

// Read reads one directory, or file, for each host; or one directory that has those of the hosts. Errors: of
// adopt.Read, for each directory; a directory whose name cannot be that of a host.
func Read(names []string) (*Hosts, error) {
	h := &Hosts{Names: below(names), Mode: 0o644}
	for _, name := range h.Names {
		dir, err := Open(name)
		if err != nil {
			return nil, err
		}
		if dir.Host != nil {
			dir.Host = strictest{dir.Host, &h.Mode}
		}
		host := adopt.Host{}
		if host.Running, err = adopt.Read(strictest{dir.Files, &h.Mode}, dir.Host); err != nil {
			if errors.Is(err, adopt.ErrNone) {
				err = cmp.Or(adopt.Elsewhere(dir.Files), err)
			}
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		if len(h.Names) > 1 {
			if host.Name, err = hostName(name); err != nil {
				return nil, err
			}
		}
		h.Hosts = append(h.Hosts, host)
	}
	return h, nil
}

// Place is the name of a place as its reader may open it: those of several hosts start with the host's name.
func (h *Hosts) Place(place string) string {
	switch {
	case place == "" || len(h.Names) > 1:
		return place
	case filetree.IsDir(h.Names[0]):
		return filepath.Join(h.Names[0], place)
	}
	return filepath.Join(filepath.Dir(h.Names[0]), place)
}

// limitHosts is far above the hosts of a control plane.
const limitHosts = 64

// below are the directories of the hosts: those that were given, or, of one that starts no API server, the ones in it
// that do.
func below(names []string) []string {
	if len(names) > 1 {
		return names
	}
	entries, err := os.ReadDir(names[0])
	if err != nil || len(entries) > limitHosts {
		return names // a file, or an error for the reader to report
	}
	if _, err := adopt.Read(os.DirFS(names[0]), nil); err == nil {
		return names
	}
	var hosts []string
	for _, entry := range entries {
		directory := filepath.Join(names[0], entry.Name())
		if !filetree.IsDir(directory) {
			continue
		}
		if _, err := adopt.Read(os.DirFS(directory), nil); err == nil {
			hosts = append(hosts, directory)
		}
	}
	if len(hosts) < 2 {
		return names
	}
	return hosts
}

func hostName(directory string) (string, error) {
	absolute, err := filepath.Abs(directory)
	if err != nil {
		return "", err
	}
	name := filepath.Base(absolute)
	if !spec.IsLabel(name) {
		return "", fmt.Errorf("%s: of several directories each is called after its host; want lower-case letters, "+
			"digits and dashes, at most 63", directory)
	}
	return name, nil
}

// oneFile is a directory of which only one file is seen.
type oneFile struct {
	fs.FS
	name string
}

func (o oneFile) Open(name string) (fs.File, error) {
	if name != o.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return o.FS.Open(name)
}

// Stat does not open the file, which may be a pipe.
func (o oneFile) Stat(name string) (fs.FileInfo, error) {
	if name != o.name && name != "." {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return fs.Stat(o.FS, name)
}

func (o oneFile) ReadDir(name string) ([]fs.DirEntry, error) {
	if name != "." {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	info, err := fs.Stat(o.FS, o.name)
	if err != nil {
		return nil, err
	}
	return []fs.DirEntry{fs.FileInfoToDirEntry(info)}, nil
}

// strictest takes from a mode what the files that are read do not have.
type strictest struct {
	fs.FS
	mode *fs.FileMode
}

// Stat does not open the file: opening a pipe waits for its other end.
func (s strictest) Stat(name string) (fs.FileInfo, error) { return fs.Stat(s.FS, name) }

func (s strictest) Open(name string) (fs.File, error) {
	f, err := s.FS.Open(name)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		*s.mode &= info.Mode().Perm() | 0o600
	}
	return f, nil
}

// ReadDir reads what the files are read from.
func (s strictest) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(s.FS, name) }
