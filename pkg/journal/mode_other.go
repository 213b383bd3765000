//go:build !unix

package journal

import "io/fs"

func othersWrite(fs.FileInfo) bool { return false } // modes do not say
