package registry

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// limitHops is how many links lead to a file.
const limitHops = 16

// find looks for a file from the upmost layer downwards, and writes it.
func (s *session) find(ctx context.Context, layers []descriptor, wanted string, out io.Writer) error {
	name, top := path.Clean("/"+wanted), len(layers)-1
	for hop := 0; hop <= limitHops; hop++ {
		found, at, err := s.search(ctx, layers[:top+1], name, out)
		switch {
		case err != nil:
			return err
		case found.written:
			return nil
		case found.link == "" && found.hard == "":
			return fmt.Errorf("%s: %w", name, fs.ErrNotExist)
		case found.hard != "": // to a file of that layer, or of one below it
			name, top = found.hard, at
		default:
			name, top = found.link, len(layers)-1
		}
	}
	return fmt.Errorf("%s: more than %d links", wanted, limitHops)
}

// sought is what layers have of a file.
type sought struct {
	written bool
	link    string // where a symbolic link, of the file or of a directory above it, leads
	hard    string // the file of which it is another name
	hidden  bool   // no layer below counts
}

// search looks for a file in layers, the last of which is the upmost, and returns which one has it.
func (s *session) search(ctx context.Context, layers []descriptor, name string, out io.Writer) (sought, int, error) {
	directories := map[string]bool{} // of a layer above: no link below counts
	for at := len(layers) - 1; at >= 0; at-- {
		var found sought
		err := s.layer(ctx, &layers[at], func(archive *tar.Reader) (err error) {
			found, err = scan(archive, name, directories, out)
			return err
		})
		if err != nil {
			return found, at, fmt.Errorf("layer %s: %w", layers[at].Digest, err)
		}
		if found != (sought{}) {
			return found, at, nil
		}
	}
	return sought{}, 0, nil
}

// layer has the entries of a layer read, and then holds it against its digest and size as a whole: what was read of one
// that is another counts for nothing.
func (s *session) layer(ctx context.Context, d *descriptor, read func(*tar.Reader) error) error {
	if strings.Contains(d.MediaType, "nondistributable") || strings.Contains(d.MediaType, "foreign") ||
		len(d.URLs) > 0 {
		return errors.New("lies elsewhere than in the registry, and is not fetched from there")
	}
	body, err := s.body(ctx, "blobs", d.Digest)
	if err != nil {
		return err
	}
	defer body.Close()
	sum := sha256.New()
	counted := &counter{in: io.TeeReader(io.LimitReader(body, d.Size+1), sum)}
	err = unpacked(counted, read)
	// Errors of what is read come first where it breaks off; a layer that is another may have any content.
	if _, rest := io.Copy(io.Discard, counted); rest != nil {
		return errors.Join(rest, err)
	}
	found := "sha256:" + hex.EncodeToString(sum.Sum(nil))
	switch {
	case counted.n != d.Size:
		return fmt.Errorf("has %s bytes, want %d", sizeText(counted.n, d.Size), d.Size)
	case found != d.Digest:
		return &DigestError{What: "its content", Want: d.Digest, Found: found}
	}
	return err
}

func sizeText(n, want int64) string {
	if n > want {
		return "more"
	}
	return fmt.Sprint(n)
}

type counter struct {
	in io.Reader
	n  int64
}

func (c *counter) Read(into []byte) (int, error) {
	n, err := c.in.Read(into)
	c.n += int64(n)
	return n, err
}

// unpacked reads the archive of a layer, whatever compresses it. Source of the first bytes: RFC 1952, RFC 8878.
func unpacked(in io.Reader, read func(*tar.Reader) error) error {
	buffered := bufio.NewReaderSize(in, 1<<16)
	first, err := buffered.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var plain io.Reader = buffered
	switch {
	case bytes.HasPrefix(first, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return err
		}
		defer z.Close()
		plain = z
	case bytes.Equal(first, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return err
		}
		defer z.Close()
		plain = z
	}
	return read(tar.NewReader(&bounded{in: plain, left: limitLayerBytes}))
}

// bounded is a reader that fails instead of ending.
type bounded struct {
	in   io.Reader
	left int64
}

func (b *bounded) Read(into []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("unpacks to more than %d bytes", int64(limitLayerBytes))
	}
	n, err := b.in.Read(into[:min(int64(len(into)), b.left)])
	b.left -= int64(n)
	return n, err
}

const (
	whiteout = ".wh."         // before the name of what layers below have
	opaque   = ".wh..wh..opq" // in a directory of which layers below have nothing
)

// scan reads the entries of one layer for a file, and for what is said of the directories above it. Names that lead out
// of the layer are refused. directories gets those that the layer has.
func scan(archive *tar.Reader, name string, directories map[string]bool, out io.Writer) (sought, error) {
	var found sought
	var above string // the upmost directory that the layer has as a link
	var seen []string
	for n := 0; ; n++ {
		entry, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			for _, d := range seen {
				directories[d] = true
			}
			return found, nil
		case err != nil:
			return found, err
		case n >= limitEntries:
			return found, fmt.Errorf("has more than %d entries", limitEntries)
		case slices.Contains(strings.Split(entry.Name, "/"), ".."):
			return found, fmt.Errorf("entry %q leads out of the layer", entry.Name)
		}
		at := path.Clean("/" + entry.Name)
		if base, hides := strings.CutPrefix(path.Base(at), whiteout); hides {
			gone := path.Join(path.Dir(at), base)
			if path.Base(at) == opaque {
				gone = path.Dir(at)
				found.hidden = found.hidden || gone != name && within(name, gone)
			} else {
				found.hidden = found.hidden || within(name, gone)
			}
			continue
		}
		switch {
		case at == name:
			err = found.take(archive, entry, at, out)
		case !within(name, at):
		case entry.Typeflag == tar.TypeDir:
			seen = append(seen, at)
		case directories[at] || above != "" && len(above) < len(at) || found.written:
		default:
			found.hidden, above = true, at
			if entry.Typeflag == tar.TypeSymlink {
				found.link = path.Join(target(at, entry.Linkname), strings.TrimPrefix(name, at))
			}
		}
		if err != nil {
			return found, err
		}
	}
}

// take is about the entry of the file.
func (f *sought) take(archive io.Reader, entry *tar.Header, at string, out io.Writer) error {
	if f.written {
		return fmt.Errorf("%s: is there twice", at)
	}
	f.hidden = true
	switch entry.Typeflag {
	case tar.TypeReg:
		if entry.Size > limitFileBytes {
			return fmt.Errorf("%s: has %d bytes, want at most %d", at, entry.Size, int64(limitFileBytes))
		}
		if _, err := io.Copy(out, archive); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		*f = sought{written: true, hidden: true}
	case tar.TypeSymlink:
		f.link = target(at, entry.Linkname)
	case tar.TypeLink:
		f.hard = path.Clean("/" + entry.Linkname)
	default:
		return fmt.Errorf("%s: is no file", at)
	}
	return nil
}

// target is where a link leads, within the image.
func target(at, to string) string {
	if path.IsAbs(to) {
		return path.Clean(to)
	}
	return path.Join(path.Dir(at), to) // which does not leave the root
}

// within reports whether a path is another one or below it.
func within(name, of string) bool {
	return name == of || of == "/" || strings.HasPrefix(name, of+"/")
}
