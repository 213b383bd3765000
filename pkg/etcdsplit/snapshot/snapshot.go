// Package snapshot reads the store of an etcd member, or a snapshot of it, from a file: without a server, and whatever state
// the file is in.
package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math/bits"
	"os"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
)

// File is a db file of an etcd 3 member (member/snap/db), or what "etcdctl snapshot save" wrote.
// Errors of its methods wrap ErrDamaged when the file is not what it should be; other errors are those of reading it.
type File struct {
	file      *os.File
	name      string
	sizeBytes int64 // without the hash
	trailer   []byte
}

// Open opens the file for reading. It does not lock it: Walk notices when an etcd writes to it meanwhile.
func Open(name string) (*File, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	f := &File{file: file, name: name}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: is not a regular file", name)
	}
	if err == nil {
		f.sizeBytes = info.Size()
		err = f.readTrailer()
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return f, nil
}

// readTrailer finds the SHA-256 that a snapshot has at its end. A db file is a multiple of 512 bytes long.
// Source: etcd v3.6.8 client/v3/snapshot/v3_snapshot.go.
func (f *File) readTrailer() error {
	if f.sizeBytes%512 != sha256.Size {
		return nil
	}
	f.sizeBytes -= sha256.Size
	f.trailer = make([]byte, sha256.Size)
	if _, err := f.file.ReadAt(f.trailer, f.sizeBytes); err != nil {
		return fmt.Errorf("reading the hash of %s: %w", f.name, err)
	}
	return nil
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// HasHash reports whether the file ends with a hash of itself, as a snapshot does.
func (f *File) HasHash() bool { return f.trailer != nil }

// VerifyHash compares the file with the hash at its end; a file without one passes.
func (f *File) VerifyHash(ctx context.Context) error {
	if f.trailer == nil {
		return nil
	}
	sum := sha256.New()
	if _, err := io.CopyBuffer(struct{ io.Writer }{sum}, &contextReader{ctx, io.NewSectionReader(f.file, 0, f.sizeBytes)}, make([]byte, 1<<20)); err != nil {
		return fmt.Errorf("reading %s: %w", f.name, err)
	}
	if !bytes.Equal(sum.Sum(nil), f.trailer) {
		return fmt.Errorf("%s: %w", f.name, damaged("its contents do not match the hash at its end"))
	}
	return nil
}

type contextReader struct {
	ctx  context.Context
	from io.Reader
}

func (r *contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.from.Read(p)
}

// Walk visits every live key once, the one written last first: of each key the newest revision counts, and none if that is
// a deletion. It holds about 12 bytes per key, and the pages on the way to where it is. Beside the walk it compares a snapshot
// with the hash at its end.
func (f *File) Walk(ctx context.Context, visit func(etcdsplit.Entry) error) (etcdsplit.Walked, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hashed := make(chan error, 1)
	go func() { hashed <- f.VerifyHash(ctx) }()
	walked, err := f.walk(ctx, visit)
	if err != nil {
		cancel() // the walk's own error says more
		<-hashed
		return walked, fmt.Errorf("%s: %w", f.name, err)
	}
	if f.trailer == nil {
		walked.Note = "a member's own file: its write-ahead log may hold newer writes"
	}
	return walked, <-hashed
}

func (f *File) walk(ctx context.Context, visit func(etcdsplit.Entry) error) (etcdsplit.Walked, error) {
	var walked etcdsplit.Walked
	before, err := readMeta(f.file, f.sizeBytes)
	if err != nil {
		return walked, err
	}
	w := walker{seen: newKeySet(), visit: visit}
	if mapped, mapErr := mapFile(f.file, f.sizeBytes); mapErr == nil {
		err = w.ahead(ctx, &tree{file: mapped, meta: before})
		err = errors.Join(err, mapped.close())
	} else {
		err = (&tree{file: &readSource{file: f.file}, meta: before}).bucket(ctx, "key", w.item)
	}
	walked.Revision = w.newest
	// Between two commits of a writer the pages that were read may have become others'.
	if after, metaErr := readMeta(f.file, f.sizeBytes); metaErr != nil || after.txid != before.txid {
		return walked, damaged("an etcd writes to it: stop the member, or take a snapshot")
	}
	return walked, err
}

// walker turns items of the bucket into entries.
type walker struct {
	seen   *keySet
	visit  func(etcdsplit.Entry) error
	newest int64
	last   [revisionBytes]byte
}

const (
	revisionBytes = 17 // main 8, '_', sub 8; a deletion has a 't' behind it
	tombstone     = 't'
)

func (w *walker) item(key, value []byte, bucket bool) error {
	deleted := len(key) == revisionBytes+1 && key[revisionBytes] == tombstone
	if bucket || (len(key) != revisionBytes && !deleted) || key[8] != '_' {
		return damaged("%q is not a revision", key)
	}
	if w.newest == 0 {
		w.newest = int64(binary.BigEndian.Uint64(key))
	} else if bytes.Compare(key[:revisionBytes], w.last[:]) >= 0 {
		return damaged("its revisions are out of order")
	}
	copy(w.last[:], key)
	entry, err := parseKeyValue(value)
	if err != nil {
		return damaged("the entry at revision %d: %v", binary.BigEndian.Uint64(key), err)
	}
	if !w.seen.add(entry.Key) || deleted {
		return nil
	}
	return w.visit(entry)
}

// parseKeyValue reads an mvccpb.KeyValue without copying.
// Source: etcd v3.6.8 api/mvccpb/kv.proto.
func parseKeyValue(data []byte) (etcdsplit.Entry, error) {
	var e etcdsplit.Entry
	for len(data) > 0 {
		number, wireType, n := protowire.ConsumeTag(data)
		if n < 0 {
			return e, protowire.ParseError(n)
		}
		data = data[n:]
		switch {
		case wireType == protowire.BytesType && (number == 1 || number == 5):
			var field []byte
			if field, n = protowire.ConsumeBytes(data); number == 1 {
				e.Key = field
			} else {
				e.Value = field
			}
		case wireType == protowire.VarintType:
			var v uint64
			v, n = protowire.ConsumeVarint(data)
			switch number {
			case 2:
				e.CreateRevision = int64(v)
			case 3:
				e.ModRevision = int64(v)
			case 4:
				e.Version = int64(v)
			case 6:
				e.Lease = int64(v)
			}
		default:
			n = protowire.ConsumeFieldValue(number, wireType, data)
		}
		if n < 0 {
			return e, protowire.ParseError(n)
		}
		data = data[n:]
	}
	if len(e.Key) == 0 {
		return e, errors.New("it has no key")
	}
	return e, nil
}

// keySet remembers keys by 64 bits of hash, in tables without pointers. That two keys of a million are taken for one, so that
// the older is overlooked, has a chance of 3 in 100 million. There are many tables so that only one at a time is held twice
// while it grows.
type keySet struct {
	seed   maphash.Seed
	shards [256]keyTable
}

func newKeySet() *keySet { return &keySet{seed: maphash.MakeSeed()} }

// add reports whether the key is new to the set.
func (s *keySet) add(key []byte) bool {
	h := maphash.Bytes(s.seed, key)
	return s.shards[h>>56].add(h)
}

// keyTable is a hash table with linear probing. A slot of 0 is free, so no hash is 0.
type keyTable struct {
	slots []uint64
	used  int
}

func (t *keyTable) add(h uint64) bool {
	if t.used*6 >= len(t.slots)*5 {
		t.grow()
	}
	if !t.insert(max(h, 1)) {
		return false
	}
	t.used++
	return true
}

func (t *keyTable) insert(h uint64) bool {
	// The bits below those that chose the table choose the slot, spread over a size that is no power of two.
	high, _ := bits.Mul64(h<<8, uint64(len(t.slots)))
	for i := int(high); ; i++ {
		if i == len(t.slots) {
			i = 0
		}
		switch t.slots[i] {
		case 0:
			t.slots[i] = h
			return true
		case h:
			return false
		}
	}
}

func (t *keyTable) grow() {
	old := t.slots
	t.slots = make([]uint64, 64+len(old)*3/2)
	for _, h := range old {
		if h != 0 {
			t.insert(h)
		}
	}
}
