package webhook

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/internal/tlsserver"
	"github.com/kubefusion/fusionctl/pkg/hub"
)

// limitFileBytes bounds the files that are read: an API server takes CRDs of at most 3 MiB.
const limitFileBytes = 16 << 20

// Source holds the last good rules of a directory: its files *.yaml, *.yml and *.json, each with rules or with CRDs, but for hidden ones.
// Converters is safe for concurrent use, Check is not.
type Source struct {
	directory string
	metrics   *Metrics
	current   atomic.Pointer[Converters]

	loaded  []entry // the files that were last loaded or refused
	waiting []entry // changed files, until they have stayed the same for one check
}

type entry struct {
	path string
	info os.FileInfo
}

// Open loads the rules of a directory. Errors: every problem with its file and line.
func Open(directory string, metrics *Metrics) (*Source, error) {
	s := &Source{directory: directory, metrics: metrics}
	files, err := list(directory)
	if err != nil {
		return nil, err
	}
	if err := s.load(files); err != nil {
		return nil, err
	}
	return s, nil
}

// Converters are those of the moment.
func (s *Source) Converters() *Converters { return s.current.Load() }

// Check looks whether the files have changed and loads them then. Files that have just changed are loaded by the next check that finds them
// the same: whoever writes them may be in the middle. An error tells why they were not loaded; it is reported once per change, and the rules
// of before stay in use.
func (s *Source) Check() (loaded bool, err error) {
	files, err := list(s.directory)
	if err != nil {
		if s.loaded == nil {
			return false, nil // known to be unreadable
		}
		s.loaded, s.waiting = nil, nil
		s.keep()
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
		s.keep()
		return false, err
	}
	return true, nil
}

func (s *Source) keep() {
	s.metrics.reloads.WithLabelValues("kept").Inc()
	s.metrics.good.Set(0)
}

func same(a, b []entry) bool {
	return slices.EqualFunc(a, b, func(x, y entry) bool { return x.path == y.path && tlsserver.SameFile(x.info, y.info) })
}

// list finds the files, sorted by name. It follows links, as those of a mounted ConfigMap.
func list(directory string) ([]entry, error) {
	names, err := os.ReadDir(directory)
	if err != nil {
		return nil, err
	}
	files := []entry{}
	for _, name := range names {
		if strings.HasPrefix(name.Name(), ".") || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name.Name())) {
			continue
		}
		path := filepath.Join(directory, name.Name())
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() {
			files = append(files, entry{path, info})
		}
	}
	return files, nil
}

// load reads the files and takes them into use if they are good. Either way they are not looked at again until one changes.
func (s *Source) load(files []entry) error {
	s.loaded = files
	texts, err := readAll(files)
	if err != nil {
		return err
	}
	found, err := hub.Load(texts)
	if err != nil {
		return err
	}
	converters := Converters{}
	for _, c := range found {
		converters[schema.GroupKind{Group: c.Definition.Group, Kind: c.Definition.Kind}] = c
	}
	s.current.Store(&converters)
	s.metrics.reloads.WithLabelValues("loaded").Inc()
	s.metrics.good.Set(1)
	s.metrics.crds.Set(float64(len(converters)))
	return nil
}

// ReadDirectory reads the files of a directory that a Source would load.
func ReadDirectory(directory string) ([]hub.File, error) {
	files, err := list(directory)
	if err != nil {
		return nil, err
	}
	return readAll(files)
}

func readAll(files []entry) ([]hub.File, error) {
	texts := make([]hub.File, len(files))
	for i, file := range files {
		data, err := readFile(file.path)
		if err != nil {
			return nil, err
		}
		texts[i] = hub.File{Name: file.path, Data: data}
	}
	return texts, nil
}

func readFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limitFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > limitFileBytes {
		return nil, fmt.Errorf("%s: larger than %d bytes", file, limitFileBytes)
	}
	return data, nil
}

// Watch checks the files at every tick until the context ends.
func (s *Source) Watch(ctx context.Context, ticks <-chan time.Time, logger *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		switch loaded, err := s.Check(); {
		case err != nil:
			logger.Error("the rules are not loaded, those of before stay in use", "directory", s.directory, "error", err)
		case loaded:
			logger.Info("loaded the rules", "directory", s.directory)
		}
	}
}
