//go:build unix

package filetree

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubefusion/fusionctl/internal/pause"
)

// lock waits until no other process replaces a tree in the parent directory. A file system without locks has none: then
// held is false, and what others left behind must stay.
func lock(ctx context.Context, parent string) (release func(), held bool, err error) {
	d, err := os.Open(parent)
	if err != nil {
		return nil, false, err
	}
	err = pause.Until(ctx, 20*time.Millisecond, func() (bool, error) {
		err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		held = err == nil
		return !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR), nil
	})
	if err != nil {
		d.Close()
		return nil, false, err
	}
	return func() { d.Close() }, held, nil // closing it drops the lock
}
