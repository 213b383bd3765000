package snapshot

import "golang.org/x/sys/unix"

// populate brings a part of a mapped file into memory in one call, where each page that is looked at would cost a
// fault. Kernels before 5.14 do not know how; then it does nothing.
func populate(mapped []byte) { _ = unix.Madvise(mapped, unix.MADV_POPULATE_READ) }
