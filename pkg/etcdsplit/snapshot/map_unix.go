//go:build unix

package snapshot

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mappedFile is a file in memory. Its pages stay in the system's cache; the process gives them back as it goes.
type mappedFile struct {
	data   []byte
	visits int
}

// keepVisits pages are looked at before all are given back: the system may bring in 64 KiB with each.
const keepVisits = 128

func mapFile(file *os.File, sizeBytes int64) (*mappedFile, error) {
	if int64(int(sizeBytes)) != sizeBytes {
		return nil, fmt.Errorf("mapping %s: %d bytes are more than this machine can address", file.Name(), sizeBytes)
	}
	data, err := unix.Mmap(int(file.Fd()), 0, int(sizeBytes), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", file.Name(), err)
	}
	return &mappedFile{data: data}, nil
}

func (m *mappedFile) bytes(at, n int64, _ int) ([]byte, error) {
	if at+n > int64(len(m.data)) {
		return nil, damaged("it ends before byte %d", at+n)
	}
	if m.visits++; m.visits%keepVisits == 0 {
		_ = unix.Madvise(m.data, unix.MADV_DONTNEED) // only memory is at stake; what is still in use comes back
	}
	return m.data[at : at+n], nil
}

func (m *mappedFile) close() error { return unix.Munmap(m.data) }
