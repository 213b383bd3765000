package snapshot

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
)

// The pages are read here and not by bbolt, which trusts them: a checker must survive a file that is cut off, scrambled
// or circular, and hold only what it looks at. Source: bbolt v1.4.3 internal/common/{page,meta,bucket}.go.

const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2

	pageHeaderBytes         = 16 // id 8, flags 2, count 2, overflow 4
	elementBytes            = 16 // branch: pos 4, ksize 4, pgid 8; leaf: flags 4, pos 4, ksize 4, vsize 4
	bucketHeaderBytes       = 16 // root 8, sequence 8
	metaBytes               = 64
	branchFlag              = 0x01
	leafFlag                = 0x02
	bucketLeafFlag          = 0x01
	maxDepth                = 32
	minPageBytes            = 512
	maxPageBytes            = 1 << 16
	maxSpanBytes      int64 = 256 << 20 // a page with its overflow: one value and what surrounds it
)

// ErrDamaged is wrapped by every error about a file that is not, or no longer, the store of an etcd member.
var ErrDamaged = errors.New("not a readable etcd db file")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// meta is the newest valid one of the two meta pages.
type meta struct {
	pageBytes int64
	root      uint64
	freelist  uint64
	pages     uint64 // high-water mark
	txid      uint64
	alone     bool // the other meta page is damaged
}

// readMeta reads both meta pages and takes the newer one that is whole.
func readMeta(file io.ReaderAt, sizeBytes int64) (meta, error) {
	var found []meta
	// The first page says how large pages are; when it is damaged, the second one lies at a power of two.
	first, err := metaAt(file, 0)
	if err == nil {
		found = append(found, first)
		if second, err := metaAt(file, first.pageBytes); err == nil && second.pageBytes == first.pageBytes {
			found = append(found, second)
		}
	} else {
		for at := int64(minPageBytes); at <= maxPageBytes; at *= 2 {
			if second, err := metaAt(file, at); err == nil && second.pageBytes == at {
				found = append(found, second)
			}
		}
	}
	if len(found) == 0 {
		return meta{}, err
	}
	if len(found) == 1 {
		found[0].alone = true
	}
	newest := slices.MaxFunc(found, func(a, b meta) int { return cmp.Compare(a.txid, b.txid) })
	if whole := int64(newest.pages) * newest.pageBytes; newest.pages > uint64(sizeBytes) || whole > sizeBytes {
		return meta{}, damaged("it holds %d bytes of the %d that its pages come to: it is cut off", sizeBytes,
			newest.pages*uint64(newest.pageBytes))
	}
	return newest, nil
}

func metaAt(file io.ReaderAt, at int64) (meta, error) {
	data := make([]byte, pageHeaderBytes+metaBytes)
	if _, err := file.ReadAt(data, at); err != nil {
		if errors.Is(err, io.EOF) {
			return meta{}, damaged("it is too short")
		}
		return meta{}, err
	}
	data = data[pageHeaderBytes:]
	if binary.LittleEndian.Uint32(data) != boltMagic {
		return meta{}, damaged("it does not start as one")
	}
	if v := binary.LittleEndian.Uint32(data[4:]); v != boltVersion {
		return meta{}, damaged("its format is version %d, want %d", v, boltVersion)
	}
	sum := fnv.New64a()
	sum.Write(data[:metaBytes-8])
	if sum.Sum64() != binary.LittleEndian.Uint64(data[metaBytes-8:]) {
		return meta{}, damaged("the checksum of its meta page is wrong")
	}
	m := meta{
		pageBytes: int64(binary.LittleEndian.Uint32(data[8:])),
		root:      binary.LittleEndian.Uint64(data[16:]),
		freelist:  binary.LittleEndian.Uint64(data[32:]),
		pages:     binary.LittleEndian.Uint64(data[40:]),
		txid:      binary.LittleEndian.Uint64(data[48:]),
	}
	if m.pageBytes < minPageBytes || m.pageBytes > maxPageBytes || m.pageBytes&(m.pageBytes-1) != 0 {
		return meta{}, damaged("its page size is %d", m.pageBytes)
	}
	return m, nil
}

// tree walks below a page, from the last element to the first.
type tree struct {
	file   pageSource
	meta   meta
	visits uint64   // pages seen; more than there are means that they form a circle
	inner  []branch // on the way to where it is
}

// branch is a page with children, of which those from left on have been returned.
type branch struct {
	page
	left int
}

// pageSource returns parts of a file.
type pageSource interface {
	// bytes returns the part.
	// Errors: ErrDamaged, wrapped, when the file ends before.
	bytes(at, n int64) ([]byte, error)
}

// readSource reads the file where it cannot be mapped into memory.
type readSource struct{ file io.ReaderAt }

func (s readSource) bytes(at, n int64) ([]byte, error) {
	data := make([]byte, n)
	if _, err := s.file.ReadAt(data, at); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, damaged("it ends before byte %d", at+n)
		}
		return nil, err
	}
	return data, nil
}

// page is one page with its overflow, in the file's own bytes.
type page struct {
	data  []byte
	count int
	leaf  bool
}

// page reads the page and what overflows from it.
func (t *tree) page(id uint64) (page, error) {
	if id < 2 || id >= t.meta.pages {
		return page{}, damaged("page %d is outside the %d pages of the file", id, t.meta.pages)
	}
	if t.visits++; t.visits > t.meta.pages {
		return page{}, errCircle
	}
	at := int64(id) * t.meta.pageBytes
	data, err := t.file.bytes(at, t.meta.pageBytes)
	if err != nil {
		return page{}, fmt.Errorf("reading page %d: %w", id, err)
	}
	if got := binary.LittleEndian.Uint64(data); got != id {
		return page{}, damaged("page %d calls itself %d", id, got)
	}
	if overflow := int64(binary.LittleEndian.Uint32(data[12:])); overflow > 0 {
		size := (overflow + 1) * t.meta.pageBytes
		if size > maxSpanBytes || at+size > int64(t.meta.pages)*t.meta.pageBytes {
			return page{}, damaged("page %d claims %d bytes", id, size)
		}
		if data, err = t.file.bytes(at, size); err != nil {
			return page{}, fmt.Errorf("reading page %d: %w", id, err)
		}
	}
	p, err := parsePage(data, id)
	if err == nil {
		err = p.gapless(id)
	}
	return p, err
}

// gapless reports elements that are not laid out as bbolt writes them: the first key lies behind the last element, each
// begins where the one before ends, and no page of a tree is empty. A lowered count would hide elements otherwise.
func (p *page) gapless(id uint64) error {
	if p.count == 0 {
		return damaged("page %d has no elements", id)
	}
	_, err := p.end(id)
	return err
}

// end is where the last element ends.
func (p *page) end(id uint64) (uint64, error) {
	end := uint64(pageHeaderBytes + p.count*elementBytes)
	for i := range p.count {
		at := pageHeaderBytes + i*elementBytes
		element := p.data[at : at+elementBytes]
		// of a branch
		position, size := binary.LittleEndian.Uint32(element), uint64(binary.LittleEndian.Uint32(element[4:]))
		if p.leaf {
			position = binary.LittleEndian.Uint32(element[4:])
			size = uint64(binary.LittleEndian.Uint32(element[8:])) + uint64(binary.LittleEndian.Uint32(element[12:]))
		}
		if uint64(at)+uint64(position) != end {
			return 0, damaged("page %d: element %d of %d begins at byte %d, want %d", id, i, p.count,
				uint64(at)+uint64(position), end)
		}
		if end += size; end > uint64(len(p.data)) {
			return 0, damaged("page %d: element %d of %d reaches beyond the page", id, i, p.count)
		}
	}
	return end, nil
}

func parsePage(data []byte, id uint64) (page, error) {
	p := page{data: data, count: int(binary.LittleEndian.Uint16(data[10:]))}
	switch flags := binary.LittleEndian.Uint16(data[8:]); flags {
	case branchFlag:
	case leafFlag:
		p.leaf = true
	default:
		return page{}, damaged("page %d has the flags %#x, want those of a branch or a leaf", id, flags)
	}
	if pageHeaderBytes+p.count*elementBytes > len(data) {
		return page{}, damaged("page %d claims %d elements", id, p.count)
	}
	return p, nil
}

// child is the page that the i-th element of a branch leads to.
func (p *page) child(i int) uint64 {
	return binary.LittleEndian.Uint64(p.data[pageHeaderBytes+i*elementBytes+8:])
}

// item is the i-th key and value of a leaf, and whether the value is a bucket.
func (p *page) item(i int) (key, value []byte, bucket bool, err error) {
	at := pageHeaderBytes + i*elementBytes
	element := p.data[at : at+elementBytes]
	start := uint64(at) + uint64(binary.LittleEndian.Uint32(element[4:]))
	keyEnd := start + uint64(binary.LittleEndian.Uint32(element[8:]))
	valueEnd := keyEnd + uint64(binary.LittleEndian.Uint32(element[12:]))
	if valueEnd > uint64(len(p.data)) {
		return nil, nil, false, damaged("an element reaches beyond its page")
	}
	return p.data[start:keyEnd], p.data[keyEnd:valueEnd], binary.LittleEndian.Uint32(element)&bucketLeafFlag != 0, nil
}

// start makes the walk begin below the page.
func (t *tree) start(root uint64) {
	above := page{data: make([]byte, pageHeaderBytes+elementBytes), count: 1} // a branch with one child
	binary.LittleEndian.PutUint64(above.data[pageHeaderBytes+8:], root)
	t.inner = append(t.inner[:0], branch{above, 1})
}

// next returns the next leaf, or without reading it the next page at the depth, whichever comes first; the page 0 at
// the end.
func (t *tree) next(depth int) (id uint64, leaf page, err error) {
	for n := len(t.inner); n > 0; n = len(t.inner) {
		b := &t.inner[n-1]
		if b.left == 0 {
			t.inner = t.inner[:n-1]
			continue
		}
		b.left--
		id := b.child(b.left)
		if n == depth {
			return id, page{}, nil
		}
		if n > maxDepth {
			return 0, page{}, damaged("its tree is deeper than %d", maxDepth)
		}
		p, err := t.page(id)
		if err != nil || p.leaf {
			return id, p, err
		}
		t.inner = append(t.inner, branch{p, p.count})
	}
	return 0, page{}, nil
}

// height is the number of pages from the page that the walk starts with to a leaf.
func (t *tree) height() (int, error) {
	_, _, err := t.next(maxDepth + 1)
	return len(t.inner), err
}

// bucket starts the walk below the root page of a bucket. A small bucket has none: it is the leaf.
func (t *tree) bucket(name string) (root uint64, inline page, err error) {
	var header []byte
	t.start(t.meta.root)
	for {
		id, leaf, err := t.next(maxDepth + 1)
		if err != nil {
			return 0, page{}, err
		}
		if id == 0 {
			break
		}
		for i := range leaf.count {
			key, value, bucket, err := leaf.item(i)
			if err != nil {
				return 0, page{}, err
			}
			if bucket && string(key) == name {
				header = slices.Clone(value)
			}
		}
	}
	if len(header) < bucketHeaderBytes {
		return 0, page{}, damaged("it has no bucket %q", name)
	}
	if root = binary.LittleEndian.Uint64(header); root != 0 {
		return root, page{}, nil
	}
	data := header[bucketHeaderBytes:] // a small bucket is a page inside its own entry
	if len(data) < pageHeaderBytes {
		return 0, page{}, damaged("its bucket %q is cut off", name)
	}
	inline, err = parsePage(data, 0)
	if err == nil && !inline.leaf {
		err = damaged("its bucket %q is no leaf", name)
	}
	if err != nil {
		return 0, page{}, err
	}
	if end, err := inline.end(0); err != nil {
		return 0, page{}, err
	} else if end != uint64(len(data)) {
		return 0, page{}, damaged("its bucket %q takes %d bytes, and its elements end at %d", name, len(data), end)
	}
	return 0, inline, nil
}
