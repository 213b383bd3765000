package filetree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// clean removes what runs that were killed have left beside the directory. It is called with the lock on the parent, so
// none of it is in use. A run that was killed between two renames has moved the directory away: it gets its place back.
func clean(directory string) error {
	parent, base := filepath.Split(directory)
	ours := regexp.MustCompile(`^\.` + regexp.QuoteMeta(base) + `\.(new|old)-[0-9]+$`) // as os.MkdirTemp names them
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !entry.IsDir() || !ours.MatchString(entry.Name()) {
			continue
		}
		// In a directory such as /tmp another user may have put it there, to be removed, or to get the place.
		if info, err := entry.Info(); err != nil || !Ours(info) {
			continue
		}
		left := filepath.Join(parent, entry.Name())
		if _, err := os.Lstat(directory); errors.Is(err, fs.ErrNotExist) {
			if err := os.Rename(filepath.Join(left, movedAway), directory); err != nil &&
				!errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if err := os.RemoveAll(left); err != nil {
			return err
		}
	}
	return nil
}
