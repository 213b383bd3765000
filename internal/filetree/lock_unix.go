//go:build unix

package filetree

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lock waits until no other process replaces a tree in the parent directory. A file system without locks has none: then
// held is false, and what others left behind must stay.
func lock(ctx context.Context, parent string) (release func(), held bool, err error) {
	d, err := os.Open(parent)
	if err != nil {
		return nil, false, err
	}
	for {
		err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return func() { d.Close() }, err == nil, nil // closing it drops the lock
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			d.Close()
			return nil, false, ctx.Err()
		}
	}
}
