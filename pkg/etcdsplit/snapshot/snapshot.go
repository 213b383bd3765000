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
// a deletion. It holds 16 to 32 bytes per key, and the pages on the way to where it is. Beside the walk it compares a snapshot
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
	seen   keySet
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

// keySet remembers keys by 128 bits of hash, in a table without pointers.
type keySet struct {
	seeds [2]maphash.Seed
	slots [][2]uint64
	used  int
}

func newKeySet() keySet {
	return keySet{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, slots: make([][2]uint64, 1<<10)}
}

// add reports whether the key is new to the set.
func (s *keySet) add(key []byte) bool {
	if s.used*8 >= len(s.slots)*7 {
		s.grow()
	}
	// A slot of two zeros is free, so no key may hash to it.
	h := [2]uint64{maphash.Bytes(s.seeds[0], key), maphash.Bytes(s.seeds[1], key) | 1}
	if !s.insert(h) {
		return false
	}
	s.used++
	return true
}

func (s *keySet) insert(h [2]uint64) bool {
	mask := uint64(len(s.slots) - 1)
	for i := h[0] & mask; ; i = (i + 1) & mask {
		switch s.slots[i] {
		case [2]uint64{}:
			s.slots[i] = h
			return true
		case h:
			return false
		}
	}
}

func (s *keySet) grow() {
	old := s.slots
	s.slots = make([][2]uint64, 2*len(old))
	for _, h := range old {
		if h != ([2]uint64{}) {
			s.insert(h)
		}
	}
}
