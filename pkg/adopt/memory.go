package adopt

import (
	"bytes"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// memoryFiles are the files of a document, by their path without the first slash. It is a file system whose
// directories are those that the paths imply.
type memoryFiles map[string][]byte

// add adds a file; the last of two with one path counts, as for what writes them.
func (m memoryFiles) add(name string, text []byte) {
	if fs.ValidPath(name) && name != "." {
		m[name] = text
	}
}

// folders lists where files may start something: the usual places first, then every other directory.
func (m memoryFiles) folders() []string {
	list := slices.Clone(folders)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if folder := path.Dir(name); !slices.Contains(list, folder) && !strings.HasSuffix(folder, ".d") {
			list = append(list, folder)
		}
	}
	return list
}

// Open opens a file or an implied directory.
func (m memoryFiles) Open(name string) (fs.File, error) {
	if text, ok := m[name]; ok {
		return &memoryFile{memoryInfo{path.Base(name), int64(len(text)), false}, bytes.NewReader(text)}, nil
	}
	if _, err := m.ReadDir(name); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &memoryFile{memoryInfo{path.Base(name), 0, true}, bytes.NewReader(nil)}, nil
}

// ReadDir lists a directory by name.
func (m memoryFiles) ReadDir(name string) ([]fs.DirEntry, error) {
	found := map[string]fs.DirEntry{}
	for file, text := range m {
		rest := file
		if name != "." {
			below, ok := strings.CutPrefix(file, name+"/")
			if !ok {
				continue
			}
			rest = below
		}
		first, _, isFolder := strings.Cut(rest, "/")
		if isFolder {
			found[first] = fs.FileInfoToDirEntry(memoryInfo{first, 0, true})
		} else {
			found[first] = fs.FileInfoToDirEntry(memoryInfo{first, int64(len(text)), false})
		}
	}
	if len(found) == 0 {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	var entries []fs.DirEntry
	for _, file := range slices.Sorted(maps.Keys(found)) {
		entries = append(entries, found[file])
	}
	return entries, nil
}

type memoryFile struct {
	memoryInfo
	*bytes.Reader
}

func (f *memoryFile) Stat() (fs.FileInfo, error) { return f.memoryInfo, nil }
func (f *memoryFile) Close() error               { return nil }
func (f *memoryFile) Size() int64                { return f.memoryInfo.size }

type memoryInfo struct {
	name   string
	size   int64
	folder bool
}

func (i memoryInfo) Name() string       { return i.name }
func (i memoryInfo) Size() int64        { return i.size }
func (i memoryInfo) IsDir() bool        { return i.folder }
func (i memoryInfo) ModTime() time.Time { return time.Time{} }
func (i memoryInfo) Sys() any           { return nil }

func (i memoryInfo) Mode() fs.FileMode {
	if i.folder {
		return fs.ModeDir | 0o555
	}
	return 0o444
}
