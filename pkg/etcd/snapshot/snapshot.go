// Package snapshot reads the store of an etcd member, or a snapshot of it, from a file: without a server, and whatever
// state the file is in.
package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/kubefusion/fusionctl/internal/filetree"
)

// File is a db file of an etcd 3 member (member/snap/db), or what "etcdctl snapshot save" wrote.
// Errors of its methods wrap ErrDamaged when the file is not what it should be; other errors are those of reading it.
type File struct {
	file      *os.File
	name      string
	sizeBytes int64 // without the hash
	trailer   []byte
	trusted   bool         // the trailer is not verified
	verified  atomic.Bool  // it fits
	keys      atomic.Int64 // that the last walk saw, with those that are deleted
}

// Open opens the file for reading. It does not lock it: Walk notices when an etcd writes to it meanwhile.
func Open(name string) (*File, error) {
	file, err := filetree.Open(name)
	if err != nil {
		return nil, err
	}
	f := &File{file: file, name: name}
	info, err := file.Stat()
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

// HasHash reports whether the file ends with a hash: that of a member has none.
func (f *File) HasHash() bool { return f.trailer != nil }

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// SkipHash makes walks skip the hash at the file's end, which takes longer to compute than all the rest; they report
// that it was skipped.
func (f *File) SkipHash() { f.trusted = f.trailer != nil }

// VerifyHash compares the file with the hash at its end, once; a file without one passes.
func (f *File) VerifyHash(ctx context.Context) error {
	if f.trailer == nil || f.trusted || f.verified.Load() {
		return nil
	}
	sum := sha256.New()
	if _, err := io.CopyBuffer(struct{ io.Writer }{sum},
		&contextReader{ctx, io.NewSectionReader(f.file, 0, f.sizeBytes)}, make([]byte, 1<<20)); err != nil {
		return fmt.Errorf("reading %s: %w", f.name, err)
	}
	if !bytes.Equal(sum.Sum(nil), f.trailer) {
		return fmt.Errorf("%s: %w", f.name, damaged("its contents do not match the hash at its end"))
	}
	f.verified.Store(true)
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
