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
	"strings"

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

// Open opens a directory; a file as if it were alone in one. Links of a directory are those of the machine that it
// belongs to: of a copy they lead to what they name below it, and none leads out of it. Errors: there is neither.
func Open(name string) (Dir, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return Dir{}, err
	case !info.IsDir() && !info.Mode().IsRegular():
		return Dir{}, fmt.Errorf("%s: is %s, want a directory or a file: write what is to be read into one", name,
			adopt.KindOf(info.Mode()))
	case !info.IsDir():
		return Dir{Files: oneFile{filetree.DirFS(filepath.Dir(name)), filepath.Base(name)}}, nil
	}
	if isMachines(name, append(adopt.Folders(), systemdOwn...)) {
		return Dir{Files: filetree.DirFS(name), Host: machineOf(name)}, nil
	}
	return Dir{Files: filetree.Within(name)}, nil
}

// isMachines reports whether a directory is one of some folders of this machine, by its own name.
func isMachines(directory string, folders []string) bool {
	absolute, err := filepath.Abs(directory)
	return err == nil && slices.Contains(folders, strings.TrimPrefix(filepath.ToSlash(absolute), "/"))
}

// systemdOwn are systemd's own folders, whose units refer to files elsewhere on the machine.
var systemdOwn = []string{"etc/systemd/system", "run/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"}

func machineOf(directory string) fs.FS {
	if !isMachines(directory, systemdOwn) {
		return nil
	}
	return filetree.DirFS("/")
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
	called, err := hostNames(h.Names)
	if err != nil {
		return nil, err
	}
	for i, name := range h.Names {
		dir, err := Open(name)
		if err != nil {
			return nil, err
		}
		if dir.Host != nil {
			dir.Host = strictest{dir.Host, &h.Mode}
		}
		host := adopt.Host{Name: called[i]}
		if host.Running, err = adopt.Read(strictest{dir.Files, &h.Mode}, dir.Host); err != nil {
			if errors.Is(err, adopt.ErrNone) {
				err = cmp.Or(adopt.Elsewhere(dir.Files), err)
			}
			return nil, fmt.Errorf("reading %s: %w", name, err)
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
	if startsServer(names[0]) {
		return names
	}
	var hosts []string
	for _, entry := range entries {
		directory := filepath.Join(names[0], entry.Name())
		if entry.IsDir() && startsServer(directory) { // a link may lead out of the directory
			hosts = append(hosts, directory)
		}
	}
	if len(hosts) < 2 {
		return names
	}
	return hosts
}

func startsServer(directory string) bool {
	dir, err := Open(directory)
	if err != nil {
		return false
	}
	_, err = adopt.Read(dir.Files, dir.Host)
	return err == nil
}

// hostNames are those of several hosts: the last part of their paths that differs, as in cp-1/manifests cp-2/manifests;
// none of a single one, of which its files may tell. Errors: a name that cannot be that of a host.
func hostNames(names []string) ([]string, error) {
	called := make([]string, len(names))
	if len(names) < 2 {
		return called, nil
	}
	var parts [][]string
	for _, name := range names {
		absolute, err := filepath.Abs(name)
		if err != nil {
			return nil, err
		}
		if !filetree.IsDir(name) { // what one host printed, by its name
			absolute = strings.TrimSuffix(absolute, filepath.Ext(absolute))
		}
		parts = append(parts, strings.Split(filepath.ToSlash(absolute), "/"))
	}
	at := func(fromEnd int) []string {
		list := make([]string, len(parts))
		for i, p := range parts {
			if fromEnd < len(p) {
				list[i] = p[len(p)-1-fromEnd]
			}
		}
		return list
	}
	called = at(0)
	for fromEnd := range parts[0] {
		if list := at(fromEnd); len(unique(list)) == len(list) && slices.IndexFunc(list, notLabel) < 0 {
			called = list
			break
		}
	}
	if wrong := slices.IndexFunc(called, notLabel); wrong >= 0 {
		return nil, fmt.Errorf("%s: of several directories each is called after its host; want lower-case letters, "+
			"digits and dashes, at most 63", names[wrong])
	}
	if len(unique(called)) < len(called) {
		return nil, fmt.Errorf("%s: of several directories each is called after its host, and two of these are not "+
			"told apart by a name", strings.Join(names, ", "))
	}
	return called, nil
}

func notLabel(name string) bool { return !spec.IsLabel(name) }

func unique(list []string) []string {
	sorted := slices.Clone(list)
	slices.Sort(sorted)
	return slices.Compact(sorted)
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
