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
type memoryFiles struct {
	files       map[string][]byte
	directories map[string]map[string]bool // the names in each
	message     bool                       // they are the parts of one message
}

// limitDepth and limitPath are above what a path of a machine has: each file implies its directories.
const (
	limitDepth = 64
	limitPath  = 4096
)

func newMemoryFiles() *memoryFiles {
	return &memoryFiles{files: map[string][]byte{}, directories: map[string]map[string]bool{}}
}

func (m *memoryFiles) empty() bool { return m == nil || len(m.files) == 0 }

// add adds a file; the last of two with one path counts, as for what writes them.
func (m *memoryFiles) add(name string, text []byte) {
	if !fs.ValidPath(name) || name == "." || len(name) > limitPath || strings.Count(name, "/") > limitDepth {
		return
	}
	m.files[name] = text
	for below := name; below != "."; below = path.Dir(below) {
		directory := path.Dir(below)
		if m.directories[directory][path.Base(below)] { // and so are those above
			break
		}
		if m.directories[directory] == nil {
			m.directories[directory] = map[string]bool{}
		}
		m.directories[directory][path.Base(below)] = true
	}
}

// folders lists where files may start something: the usual places first, then every other directory.
func (m *memoryFiles) folders() []string {
	list := slices.Clone(folders)
	listed := map[string]bool{}
	for _, folder := range list {
		listed[folder] = true
	}
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		if folder := path.Dir(name); !listed[folder] && !strings.HasSuffix(folder, ".d") {
			list, listed[folder] = append(list, folder), true
		}
	}
	return list
}

// Open opens a file or an implied directory.
func (m *memoryFiles) Open(name string) (fs.File, error) {
	if text, ok := m.files[name]; ok {
		return &memoryFile{memoryInfo{path.Base(name), int64(len(text)), false}, bytes.NewReader(text)}, nil
	}
	if _, ok := m.directories[name]; !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &memoryFile{memoryInfo{path.Base(name), 0, true}, bytes.NewReader(nil)}, nil
}

// ReadDir lists a directory by name.
func (m *memoryFiles) ReadDir(name string) ([]fs.DirEntry, error) {
	names, ok := m.directories[name]
	if !ok {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	var entries []fs.DirEntry
	for _, entry := range slices.Sorted(maps.Keys(names)) {
		text, isFile := m.files[path.Join(name, entry)]
		entries = append(entries, fs.FileInfoToDirEntry(memoryInfo{entry, int64(len(text)), !isFile}))
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
