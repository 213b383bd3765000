//go:build !unix

package snapshot

import (
	"errors"
	"os"
)

type mappedFile struct{ readSource }

// mapFile is left to systems on which it is tested; elsewhere the file is read.
func mapFile(*os.File, int64) (mappedFile, error) { return mappedFile{}, errors.ErrUnsupported }

func (m mappedFile) release() {}

func (m mappedFile) close() error { return nil }
