package filetree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// syncFile brings a file or a directory to the disk. It is a variable so that a test sees what is brought there.
var syncFile = (*os.File).Sync

// Sync brings a directory to the disk: a rename within it, or a new file.
func Sync(directory string) error {
	d, err := os.Open(directory)
	if err != nil {
		return err
	}
	defer d.Close()
	return syncFile(d)
}

// MkdirAll is os.MkdirAll, and brings the directories that it makes to the disk: what is written into one that a power
// failure takes away is not there, however well it was written.
func MkdirAll(directory string, mode fs.FileMode) error {
	directory, err := filepath.Abs(directory)
	if err != nil {
		return err
	}
	there := directory
	for {
		if _, err := os.Stat(there); !errors.Is(err, fs.ErrNotExist) || there == filepath.Dir(there) {
			break
		}
		there = filepath.Dir(there)
	}
	if err := os.MkdirAll(directory, mode); err != nil {
		return err
	}
	for made := directory; made != there; made = filepath.Dir(made) {
		if err := Sync(filepath.Dir(made)); err != nil {
			return err
		}
	}
	return nil
}
