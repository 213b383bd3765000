package adopt

import "fmt"

// limitMadeBytes bounds what variables and packed files make of all that is read together: by them, as by aliases, a
// few bytes become gigabytes.
const limitMadeBytes = 64 << 20

// limitReadBytes bounds the texts of files that are held together: far above what starts a control plane.
const limitReadBytes = 64 << 20

// made is how much that is, and how much was read.
type made struct{ bytes, texts int }

// read reports whether a text of so many bytes may be held beside the others.
func (m *made) read(n int) bool {
	m.texts += n
	return m.texts <= limitReadBytes
}

// take reports whether there may be so many bytes more. After the first time that there may not, there may be none.
func (m *made) take(n int) bool {
	m.bytes += n
	return !m.over()
}

func (m *made) over() bool { return m.bytes > limitMadeBytes }

// err is why something is ignored when there is too much; nil when there is not.
func (m *made) err() error {
	if m.over() {
		return fmt.Errorf("variables and packed files make more than %d bytes", limitMadeBytes)
	}
	return nil
}

// ignored notes that something is not read since there is too much, and reports whether that is so.
func (r *reader) ignored(place string) bool {
	err := r.made.err()
	if err != nil {
		r.note(place, "is ignored: %v", err)
	}
	return err != nil
}
