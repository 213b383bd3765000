package filetree

import (
	"fmt"
	"os"
)

// Private makes a directory for what only its owner may read or change, or makes sure that no other user can write into
// the one that is there: what lies there has names that are known beforehand, and is believed when it is read.
func Private(directory string) error {
	if err := MkdirAll(directory, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(directory)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s: is no directory", directory)
	case !Ours(info):
		return fmt.Errorf("%s: belongs to another user, who can write there: chown makes it yours, or run this as "+
			"that user", directory)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s: has mode %s: other users can write there; want 0700", directory, info.Mode().Perm())
	}
	return nil
}
