package storage

import "unsafe"

// Text views bytes as a string without copying. The string must not outlive the bytes: what is kept is cloned.
func Text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
