package snapshot

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
)

// The pages are read here and not by bbolt, which trusts them: a checker must survive a file that is cut off, scrambled or
// circular, and hold only what it looks at.
// Source: bbolt v1.4.3 internal/common/{page,meta,bucket}.go.

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
	pages     uint64 // high-water mark
	txid      uint64
}

// readMeta reads both meta pages and takes the newer one that is whole.
func readMeta(file io.ReaderAt, sizeBytes int64) (meta, error) {
	var found []meta
	// The first page says how large pages are; when it is damaged, the second one lies at a power of two.
	first, err := metaAt(file, 0)
	if err == nil {
		found = append(found, first)
		if second, err := metaAt(file, first.pageBytes); err == nil {
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
	newest := slices.MaxFunc(found, func(a, b meta) int { return int(int64(a.txid) - int64(b.txid)) })
	if whole := int64(newest.pages) * newest.pageBytes; newest.pages > uint64(sizeBytes) || whole > sizeBytes {
		return meta{}, damaged("it holds %d bytes of the %d that its pages come to: it is cut off", sizeBytes, newest.pages*uint64(newest.pageBytes))
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
		pages:     binary.LittleEndian.Uint64(data[40:]),
		txid:      binary.LittleEndian.Uint64(data[48:]),
	}
	if m.pageBytes < minPageBytes || m.pageBytes > maxPageBytes || m.pageBytes&(m.pageBytes-1) != 0 {
		return meta{}, damaged("its page size is %d", m.pageBytes)
	}
	return m, nil
}

// tree reads one bucket, from its last key to its first.
type tree struct {
	file   pageSource
	meta   meta
	visits uint64 // pages seen; more than there are means that they form a circle
}

// pageSource gives out parts of a file.
type pageSource interface {
	// bytes returns the part. It is valid until the next call with the same or a smaller depth.
	// Errors: ErrDamaged, wrapped, when the file ends before.
	bytes(at, n int64, depth int) ([]byte, error)
}

// page is one page with its overflow, in the file's own bytes.
type page struct {
	data  []byte
	count int
	leaf  bool
}

// page reads the page and what overflows from it.
func (t *tree) page(id uint64, depth int) (page, error) {
	if id < 2 || id >= t.meta.pages {
		return page{}, damaged("page %d is outside the %d pages of the file", id, t.meta.pages)
	}
	if t.visits++; t.visits > t.meta.pages {
		return page{}, damaged("its pages form a circle")
	}
	at := int64(id) * t.meta.pageBytes
	data, err := t.file.bytes(at, t.meta.pageBytes, depth)
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
		if data, err = t.file.bytes(at, size, depth); err != nil {
			return page{}, fmt.Errorf("reading page %d: %w", id, err)
		}
	}
	return parsePage(data, id)
}

// readSource reads the file where it cannot be mapped into memory.
type readSource struct {
	file    io.ReaderAt
	buffers [][]byte // by depth: pages on the way down are used while those below are read
}

func (s *readSource) bytes(at, n int64, depth int) ([]byte, error) {
	for len(s.buffers) <= depth {
		s.buffers = append(s.buffers, nil)
	}
	s.buffers[depth] = slices.Grow(s.buffers[depth][:0], int(n))[:n]
	if _, err := s.file.ReadAt(s.buffers[depth], at); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, damaged("it ends before byte %d", at+n)
		}
		return nil, err
	}
	return s.buffers[depth], nil
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

// descend calls visit with every item of the tree below the page, the last one first.
func (t *tree) descend(ctx context.Context, id uint64, depth int, visit func(key, value []byte, bucket bool) error) error {
	if depth > maxDepth {
		return damaged("its tree is deeper than %d", maxDepth)
	}
	p, err := t.page(id, depth)
	if err != nil {
		return err
	}
	if p.leaf {
		if err := ctx.Err(); err != nil {
			return err
		}
		return p.each(visit)
	}
	for i := p.count - 1; i >= 0; i-- {
		if err := t.descend(ctx, p.child(i), depth+1, visit); err != nil {
			return err
		}
	}
	return nil
}

func (p *page) each(visit func(key, value []byte, bucket bool) error) error {
	for i := p.count - 1; i >= 0; i-- {
		key, value, bucket, err := p.item(i)
		if err != nil {
			return err
		}
		if err := visit(key, value, bucket); err != nil {
			return err
		}
	}
	return nil
}

// bucket calls visit with every item of a bucket of the root, the last one first.
func (t *tree) bucket(ctx context.Context, name string, visit func(key, value []byte, bucket bool) error) error {
	var header []byte
	err := t.descend(ctx, t.meta.root, 0, func(key, value []byte, bucket bool) error {
		if bucket && string(key) == name {
			header = slices.Clone(value)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(header) < bucketHeaderBytes {
		return damaged("it has no bucket %q", name)
	}
	if root := binary.LittleEndian.Uint64(header); root != 0 {
		return t.descend(ctx, root, 0, visit)
	}
	inline := header[bucketHeaderBytes:] // a small bucket is a page inside its own entry
	if len(inline) < pageHeaderBytes {
		return damaged("its bucket %q is cut off", name)
	}
	p, err := parsePage(inline, 0)
	if err != nil {
		return err
	}
	return p.each(visit)
}
