//go:build linux

package filetree

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// disk is what would be left after a power failure: of a file what it had when it was brought there, of a directory the
// names.
type disk struct {
	t     *testing.T
	mu    sync.Mutex
	files map[uint64]string
	names map[uint64][]string
}

// watchDisk sees what is brought to the disk until the test ends.
func watchDisk(t *testing.T) *disk {
	d := &disk{t: t, files: map[uint64]string{}, names: map[uint64][]string{}}
	real := syncFile
	syncFile = func(f *os.File) error {
		d.synced(f)
		return real(f)
	}
	t.Cleanup(func() { syncFile = real })
	return d
}

func inode(t *testing.T, name string) uint64 {
	t.Helper()
	info, err := os.Lstat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

func (d *disk) synced(f *os.File) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	at := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	info, err := f.Stat()
	if err != nil {
		d.t.Fatal(err)
	}
	number := info.Sys().(*syscall.Stat_t).Ino
	if !info.IsDir() {
		data, err := os.ReadFile(at)
		if err != nil {
			d.t.Fatal(err)
		}
		d.files[number] = string(data)
		return
	}
	entries, err := os.ReadDir(at)
	if err != nil {
		d.t.Fatal(err)
	}
	d.names[number] = nil
	for _, e := range entries {
		d.names[number] = append(d.names[number], e.Name())
	}
}

// has checks that everything below a directory, and the directory itself in those above it up to a root, is on the
// disk as it is.
func (d *disk) has(root, directory string) {
	d.t.Helper()
	named := func(name string) {
		d.t.Helper()
		if !slices.Contains(d.names[inode(d.t, filepath.Dir(name))], filepath.Base(name)) {
			d.t.Errorf("after a power failure %s has no %s", filepath.Dir(name), filepath.Base(name))
		}
	}
	for at := directory; at != root; at = filepath.Dir(at) {
		named(at)
	}
	err := filepath.WalkDir(directory, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == directory {
			return err
		}
		named(name)
		if entry.IsDir() {
			return nil
		}
		data, err := os.ReadFile(name)
		if got, there := d.files[inode(d.t, name)]; !there || got != string(data) {
			d.t.Errorf("after a power failure %s has not what was written", name)
		}
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

// What is written here is on the disk, with every directory above it, when the function returns: keys, plans, records
// and snapshots are relied upon from then on.
func TestWhatIsWrittenOutlivesAPowerFailure(t *testing.T) {
	files := []File{{"a/b/key", 0o600, []byte("1")}, {"a/crt", 0o644, []byte("2")}, {"c", 0o644, []byte("3")}}
	for name, write := range map[string]func(directory string) error{
		"Write": func(directory string) error {
			if err := os.Mkdir(filepath.Dir(directory), 0o700); err != nil { // which is the caller's
				return err
			}
			if err := Sync(filepath.Dir(filepath.Dir(directory))); err != nil {
				return err
			}
			return Write(t.Context(), directory, "spec", "", files)
		},
		"Write again": func(directory string) error {
			if err := MkdirAll(filepath.Dir(directory), 0o700); err != nil {
				return err
			}
			if err := Write(t.Context(), directory, "spec", "", files[:1]); err != nil {
				return err
			}
			return Write(t.Context(), directory, "spec", "", files)
		},
		"Add": func(directory string) error { return Add(t.Context(), directory, files) },
		"Private, WriteFile": func(directory string) error {
			if err := Private(directory); err != nil {
				return err
			}
			file := filepath.Join(directory, "record")
			if err := WriteFile(file, []byte("old"), 0o600); err != nil {
				return err
			}
			return WriteFile(file, []byte("new"), 0o600)
		},
		"MkdirAll": func(directory string) error { return MkdirAll(directory, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			d := watchDisk(t)
			directory := filepath.Join(root, "above", "tree")
			if err := write(directory); err != nil {
				t.Fatal(err)
			}
			d.has(root, directory)
		})
	}
}
