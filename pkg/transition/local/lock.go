package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/pause"
)

// Lock holds a file while steps are done on a machine: one transition at a time changes it. It waits for an agent
// before, which may still be breaking off its step. Close lets others go on.
func Lock(ctx context.Context, name string, wait time.Duration) (io.Closer, error) {
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var held io.Closer
	err := pause.Until(limited, 100*time.Millisecond, func() (bool, error) {
		file, err := fileutil.TryLockFile(name, os.O_RDWR|os.O_CREATE|filetree.NoFollow, 0o600)
		if errors.Is(err, fileutil.ErrLocked) {
			return false, nil
		}
		held = file
		return true, err
	})
	switch {
	case err == nil:
		return held, nil
	case limited.Err() != nil:
		return nil, fmt.Errorf("%s: another transition changes this machine: wait for it, or end it", name)
	}
	return nil, err
}
