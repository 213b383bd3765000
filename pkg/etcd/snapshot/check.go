package snapshot

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
)

const (
	freelistFlag = 0x10
	noFreelist   = ^uint64(0) // it is not stored: bbolt walks all pages to find the free ones
	manyFree     = 0xFFFF     // free pages are counted before their list
)

// Check reads every page that bbolt does when it opens the file to write: in the order of their keys, each once, within
// the file, and with the buckets that an etcd has. bbolt trusts them, and ends the process by what it does not expect.
func (f *File) Check(ctx context.Context) error {
	m, err := readMeta(f.file, f.sizeBytes)
	if err == nil && m.alone {
		err = damaged("one of its two meta pages is: what was written last may be missing")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	c := checker{ctx: ctx, tree: tree{file: readSource{f.file}, meta: m}, used: make([]uint64, m.pages/64+1)}
	if mapped, mapErr := mapFile(f.file, f.sizeBytes); mapErr == nil {
		defer mapped.close()
		c.file = mapped
	}
	if err := faultsAsErrors(c.check); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return nil
}

// checker goes through all pages from the root, and notes which are used.
type checker struct {
	tree
	ctx  context.Context
	used []uint64 // a bit for each page
}

// item is an element of a leaf.
type item struct {
	key, value []byte
	bucket     bool
}

func (c *checker) check() error {
	names := map[string]bool{}
	if err := c.below(c.meta.root, 0, nil, nil, func(i item) error {
		names[string(i.key)] = true
		return c.bucket(i)
	}); err != nil {
		return err
	}
	for _, name := range []string{"key", "meta"} {
		if !names[name] {
			return damaged("it has no bucket %q", name)
		}
	}
	return c.free()
}

// bucket checks what a bucket of the root holds: keys alone.
func (c *checker) bucket(i item) error {
	if !i.bucket || len(i.value) < bucketHeaderBytes {
		return damaged("%q is no bucket", i.key)
	}
	plain := func(in item) error {
		if in.bucket {
			return damaged("there is a bucket in its bucket %q", i.key)
		}
		return nil
	}
	if root := binary.LittleEndian.Uint64(i.value); root != 0 {
		return c.below(root, 0, nil, nil, plain)
	}
	data := i.value[bucketHeaderBytes:]
	if len(data) < pageHeaderBytes {
		return damaged("its bucket %q is cut off", i.key)
	}
	inline, err := parsePage(data, 0)
	if err != nil {
		return err
	}
	if end, err := inline.end(0); err != nil || !inline.leaf || end != uint64(len(data)) {
		return damaged("its bucket %q is no leaf, or does not end where its elements do", i.key)
	}
	return leafItems(&inline, 0, nil, nil, plain)
}

// below checks the pages below one, whose keys are from a key on, and before another one.
func (c *checker) below(id uint64, depth int, from, before []byte, each func(item) error) error {
	if depth > maxDepth {
		return damaged("its tree is deeper than %d", maxDepth)
	}
	if err := c.ctx.Err(); err != nil {
		return err
	}
	p, err := c.page(id)
	if err != nil {
		return err
	}
	if err := c.claim(id, uint64(int64(len(p.data))/c.meta.pageBytes)); err != nil {
		return err
	}
	if p.leaf {
		return leafItems(&p, id, from, before, each)
	}
	for i := range p.count {
		key, next := p.branchKey(i), before
		if i+1 < p.count {
			next = p.branchKey(i + 1)
		}
		if err := ordered(id, key, from, next, i == 0); err != nil {
			return err
		}
		if err := c.below(p.child(i), depth+1, key, next, each); err != nil {
			return err
		}
		from = key
	}
	return nil
}

// branchKey is the key of the i-th element of a branch.
func (p *page) branchKey(i int) []byte {
	at := pageHeaderBytes + i*elementBytes
	start := at + int(binary.LittleEndian.Uint32(p.data[at:]))
	return p.data[start : start+int(binary.LittleEndian.Uint32(p.data[at+4:]))]
}

func leafItems(p *page, id uint64, from, before []byte, each func(item) error) error {
	for i := range p.count {
		key, value, bucket, err := p.item(i)
		if err == nil {
			err = ordered(id, key, from, before, i == 0)
		}
		if err == nil {
			err = each(item{key, value, bucket})
		}
		if err != nil {
			return err
		}
		from = key
	}
	return nil
}

// ordered refuses a key that is not behind the last one, or the first one of its page before that of the branch.
func ordered(id uint64, key, last, before []byte, first bool) error {
	if order := bytes.Compare(last, key); len(key) == 0 || order > 0 || order == 0 && !first ||
		before != nil && bytes.Compare(key, before) >= 0 {
		return damaged("the keys of page %d are out of order", id)
	}
	return nil
}

// claim notes that pages are used.
func (c *checker) claim(id, span uint64) error {
	for i := id; i < id+span; i++ {
		if i < 2 || i >= c.meta.pages || c.used[i/64]&(1<<(i%64)) != 0 {
			return damaged("page %d is used twice, or is outside the %d pages of the file", i, c.meta.pages)
		}
		c.used[i/64] |= 1 << (i % 64)
	}
	return nil
}

// free checks the list of free pages, which bbolt writes to: none of them is used.
func (c *checker) free() error {
	id := c.meta.freelist
	if id == noFreelist {
		return nil
	}
	if id < 2 || id >= c.meta.pages {
		return damaged("page %d is outside the %d pages of the file", id, c.meta.pages)
	}
	at := int64(id) * c.meta.pageBytes
	data, err := c.file.bytes(at, c.meta.pageBytes)
	if err != nil {
		return err
	}
	flags, count := binary.LittleEndian.Uint16(data[8:]), uint64(binary.LittleEndian.Uint16(data[10:]))
	span := uint64(binary.LittleEndian.Uint32(data[12:])) + 1
	if flags != freelistFlag || binary.LittleEndian.Uint64(data) != id {
		return damaged("page %d is no list of free pages", id)
	}
	if err := c.claim(id, span); err != nil {
		return err
	}
	if data, err = c.file.bytes(at, int64(span)*c.meta.pageBytes); err != nil {
		return err
	}
	if data = data[pageHeaderBytes:]; count == manyFree {
		count, data = binary.LittleEndian.Uint64(data), data[8:]
	}
	if count > uint64(len(data)/8) {
		return damaged("page %d lists more free pages than it has room for", id)
	}
	for i := range count {
		if err := c.claim(binary.LittleEndian.Uint64(data[8*i:]), 1); err != nil {
			return err
		}
	}
	return nil
}
