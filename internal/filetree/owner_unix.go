//go:build unix

package filetree

import (
	"io/fs"
	"os"
	"syscall"
)

// Ours reports whether a file belongs to the user of this process.
func Ours(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// Trusted reports whether a file belongs to the user of this process, or to root.
func Trusted(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid())
}
