package restore

import (
	"errors"
	"os"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/kubefusion/fusionctl/internal/filetree"
)

// unused reports an error when another process has the file of a store open: bbolt locks what it opens.
func unused(db string) error {
	// One that is a pipe is not waited for.
	file := func(name string, _ int, _ os.FileMode) (*os.File, error) { return filetree.Open(name) }
	open, err := bbolt.Open(db, 0o600, &bbolt.Options{Timeout: 100 * time.Millisecond, ReadOnly: true,
		OpenFile: file})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return err
	}
	if err != nil { // damaged, perhaps: the reason for which it is put back
		return nil //nolint:nilerr
	}
	return open.Close()
}
