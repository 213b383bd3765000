//go:build unix

package snapshot

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mappedFile is a file in memory. Its pages stay in the system's cache; workers release those that they have read.
type mappedFile struct{ data []byte }

func mapFile(file *os.File, sizeBytes int64) (mappedFile, error) {
	if int64(int(sizeBytes)) != sizeBytes {
		return mappedFile{}, fmt.Errorf("mapping %s: %d bytes are more than this machine can address", file.Name(),
			sizeBytes)
	}
	data, err := unix.Mmap(int(file.Fd()), 0, int(sizeBytes), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return mappedFile{}, fmt.Errorf("mapping %s: %w", file.Name(), err)
	}
	return mappedFile{data}, nil
}

func (m mappedFile) bytes(at, n int64) ([]byte, error) {
	if at < 0 || n < 0 || at > int64(len(m.data))-n {
		return nil, damaged("it ends before byte %d", at+n)
	}
	return m.data[at : at+n], nil
}

// release gives the memory back. What is still in use comes back: only speed is at stake.
func (m mappedFile) release() { _ = unix.Madvise(m.data, unix.MADV_DONTNEED) }

func (m mappedFile) close() error { return unix.Munmap(m.data) }
