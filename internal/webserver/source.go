package webserver

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kubefusion/fusionctl/internal/filetree"
)

// File is a file as it was when it was read.
type File struct {
	Path string
	info os.FileInfo
}

// Read returns the content. Errors: no regular file, or one that is larger.
func (f File) Read(limitBytes int64) ([]byte, error) {
	if !f.info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: want a file", f.Path)
	}
	file, err := filetree.Open(f.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, limitBytes+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limitBytes {
		return nil, fmt.Errorf("%s: larger than %d bytes", f.Path, limitBytes)
	}
	return data, nil
}

// OneFile looks at a file.
func OneFile(path string) func() ([]File, error) {
	return func() ([]File, error) {
		info, err := os.Stat(path)
		return []File{{path, info}}, err
	}
}

// Directory looks at the files of a directory whose names end in one of the extensions, such as ".yaml", but for hidden
// ones; sorted by name. It follows links, as those of a mounted ConfigMap.
func Directory(path string, extensions ...string) func() ([]File, error) {
	return func() ([]File, error) {
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		files := []File{}
		for _, entry := range entries {
			if strings.HasPrefix(entry.Name(), ".") || !slices.Contains(extensions, filepath.Ext(entry.Name())) {
				continue
			}
			file := filepath.Join(path, entry.Name())
			info, err := os.Stat(file)
			if err != nil {
				return nil, err
			}
			if info.Mode().IsRegular() {
				files = append(files, File{file, info})
			}
		}
		return files, nil
	}
}

// Source holds what was last read from files and was good. Current is safe for concurrent use, Check is not.
type Source[T any] struct {
	look    func() ([]File, error)
	read    func([]File) (T, int, error)
	metrics *Metrics
	current atomic.Pointer[T]

	loaded  []File // the files that were last loaded or refused; nil when they could not be looked at
	waiting []File // changed files, until they have stayed the same for one check
}

// Open reads the files. read makes a value of them, and says how much is in it; what it refuses is not taken into use.
func Open[T any](look func() ([]File, error), read func([]File) (T, int, error), metrics *Metrics) (*Source[T], error) {
	s := &Source[T]{look: look, read: read, metrics: metrics}
	files, err := look()
	if err != nil {
		return nil, err
	}
	if err := s.load(files); err != nil {
		return nil, err
	}
	return s, nil
}

// Current is what is in use at the moment.
func (s *Source[T]) Current() T { return *s.current.Load() }

// Check looks whether the files have changed and loads them then. Files that have just changed are loaded by the next
// check that finds them the same: a writer may be in the middle. An error says why they were not loaded; it is
// reported once per change, and what was loaded before stays in use.
func (s *Source[T]) Check() (loaded bool, err error) {
	files, err := s.look()
	if err != nil {
		if s.loaded == nil {
			return false, nil // known to be gone
		}
		s.loaded, s.waiting = nil, nil
		s.metrics.kept()
		return false, err
	}
	if s.loaded != nil && same(files, s.loaded) {
		s.waiting = nil
		return false, nil
	}
	if s.waiting == nil || !same(files, s.waiting) {
		s.waiting = files
		return false, nil
	}
	s.waiting = nil
	if err := s.load(files); err != nil {
		s.metrics.kept()
		return false, err
	}
	return true, nil
}

// load takes the files into use if they are good. Either way they are not looked at again until one changes.
func (s *Source[T]) load(files []File) error {
	s.loaded = files
	value, size, err := s.read(files)
	if err != nil {
		return err
	}
	s.current.Store(&value)
	s.metrics.taken(size, time.Now())
	return nil
}

// Watch checks the files again and again until the context ends, and reports each time that they were loaded (nil) or
// were not.
func (s *Source[T]) Watch(ctx context.Context, interval time.Duration, report func(error)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if loaded, err := s.Check(); loaded || err != nil {
			report(err)
		}
	}
}

func same(a, b []File) bool {
	return slices.EqualFunc(a, b, func(x, y File) bool { return x.Path == y.Path && sameFile(x.info, y.info) })
}

// sameFile reports whether two looks at a file saw the same content, as far as its identity, time and size tell.
func sameFile(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
