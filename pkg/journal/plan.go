package journal

import (
	"errors"
	"io/fs"
	"os"

	"github.com/kubefusion/fusionctl/internal/filetree"
)

// OpenPlan opens a plan for reading. What it says is done with the rights of the user of this process: it is a regular
// file of that user and no link, and no other user can change it. Errors: *fs.PathError.
func OpenPlan(name string) (*os.File, error) {
	refuse := func(why string) error { return &fs.PathError{Op: "open", Path: name, Err: errors.New(why)} }
	if info, err := os.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return nil, refuse("is no regular file: a plan is no link, and is read more than once")
	}
	file, err := os.OpenFile(name, os.O_RDONLY|filetree.NoFollow, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = refuse("is no regular file")
	case !filetree.Ours(info):
		err = refuse("belongs to another user, who can change it: read it, and copy it to a file of your own")
	case othersWrite(info):
		err = refuse("other users can change it: read it, and take their permission away")
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
