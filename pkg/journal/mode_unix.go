//go:build unix

package journal

import "io/fs"

// othersWrite reports whether its mode lets other users change the file.
func othersWrite(info fs.FileInfo) bool { return info.Mode().Perm()&0o022 != 0 }
