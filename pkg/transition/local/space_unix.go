//go:build linux || darwin

package local

import "syscall"

// space is the size of the file system of a directory, and how much of it users other than root may still fill.
func space(directory string) (size, free int64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(directory, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Blocks) * int64(s.Bsize), int64(s.Bavail) * int64(s.Bsize), nil
}
