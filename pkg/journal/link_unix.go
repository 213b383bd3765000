//go:build unix

package journal

import (
	"io/fs"
	"os"
	"syscall"
)

// noFollow opens no link, and does not wait for the other end of a pipe, which is no journal.
const noFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// ours reports whether the file belongs to the user of this process.
func ours(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// othersWrite reports whether its mode lets other users change the file.
func othersWrite(info fs.FileInfo) bool { return info.Mode().Perm()&0o022 != 0 }
