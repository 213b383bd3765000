//go:build !unix

package journal

import "io/fs"

const noFollow = 0 // there is none

func ours(fs.FileInfo) bool { return true } // what belongs to whom is not known

func othersWrite(fs.FileInfo) bool { return false } // modes do not say
