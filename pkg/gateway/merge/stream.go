package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

const (
	// streamBytes is what is held of a list while it is read, where no object is longer.
	streamBytes = 256 << 10
	// wholeBytes is how long a merged list may be that is written as a whole, and can be refused until then.
	wholeBytes = 1 << 20
	// pieceBytes is how much of a longer one is written at a time.
	pieceBytes = 128 << 10
	// limitKindBytes bounds the kind of a list, and its version.
	limitKindBytes = 4 << 10
)

// Stream reads one side's answer to a list object by object, and holds no more of it than one object, or streamBytes.
// It is not for Tables: their rows are written when the columns of both sides are known.
type Stream struct {
	side  pair.Side
	in    io.Reader
	grow  func(moreBytes int64) error
	alone bool // metadata alone is shown of what the side answers with as whole objects

	held   []byte // all that is held, in one place
	text   []byte // the part of it that is still to be understood
	eof    bool
	within bool // an object or an array: what follows in it is behind a comma

	fields fields // kind and apiVersion of the list, as far as they were read
	meta   *listMeta
	listed bool // the objects have begun
	ended  bool // they have ended
	item   item // the next object, if they have not
}

// NewStream reads the answer up to its first object. grow is told before more memory is taken.
// Errors: those of reading and of grow; no list.
func NewStream(in io.Reader, side pair.Side, grow func(moreBytes int64) error) (*Stream, error) {
	return (&Stream{side: side, in: in, grow: grow, fields: fields{}}).begin()
}

// NewMetadataStream is NewStream of whole objects, of which it makes metadata alone.
func NewMetadataStream(in io.Reader, side pair.Side, grow func(moreBytes int64) error) (*Stream, error) {
	return (&Stream{side: side, in: in, grow: grow, fields: fields{}, alone: true}).begin()
}

func (s *Stream) begin() (*Stream, error) {
	if err := s.take('{'); err != nil {
		return nil, err
	}
	return s, s.members()
}

// members reads fields of the list, up to its objects or its end.
func (s *Stream) members() error {
	for {
		if c, err := s.peek(); err != nil {
			return err
		} else if c == '}' {
			s.text = s.text[1:]
			return s.end()
		}
		if err := s.comma(); err != nil {
			return err
		}
		quoted, err := s.value((*scanner).quoted)
		if err != nil {
			return err
		}
		var key string
		if err = json.Unmarshal(quoted, &key); err == nil {
			err = s.take(':')
		}
		if err != nil {
			return err
		}
		c, err := s.peek()
		if err != nil {
			return err
		}
		if key == "items" && c == '[' && !s.listed {
			s.listed, s.within, s.text = true, false, s.text[1:]
			return s.next()
		}
		value, err := s.value(func(at *scanner) bool { return at.value(1) })
		switch {
		case err != nil:
			return err
		case key == "kind" || key == "apiVersion":
			if len(value) > limitKindBytes {
				return fmt.Errorf("%s has more than %d bytes", key, limitKindBytes)
			}
			s.fields[key] = bytes.Clone(value)
			if s.alone {
				s.fields[key] = encode(map[string]string{"kind": "PartialObjectMetadataList",
					"apiVersion": "meta.k8s.io/v1"}[key])
			}
		case key != "items":
		case s.listed || string(value) != "null":
			return errors.New("items are no array, or there are two of them")
		default:
			s.listed, s.ended = true, true
		}
		if key == "metadata" {
			s.meta = &listMeta{}
			if err := json.Unmarshal(value, s.meta); err != nil {
				return err
			}
		}
	}
}

// next goes on to the next object.
func (s *Stream) next() error {
	if c, err := s.peek(); err != nil {
		return err
	} else if c == ']' {
		s.item, s.ended, s.within, s.text = item{}, true, true, s.text[1:]
		return s.members()
	}
	if err := s.comma(); err != nil {
		return err
	}
	var at places
	text, err := s.value(func(in *scanner) bool { return in.object(&at) })
	if err != nil {
		return err
	}
	if s.alone {
		if text, err = MetadataAlone(text); err != nil {
			return err
		}
		at = find(text)
	}
	s.item = item{text: text, side: s.side, at: at, namespace: at.namespace, name: at.name}
	if at.usual {
		return nil
	}
	var meta Meta
	if err := json.Unmarshal(text, &meta); err != nil {
		return err
	}
	s.item.namespace, s.item.name = meta.Metadata.Namespace, meta.Metadata.Name
	return nil
}

// end is that of the list, behind which there is nothing.
func (s *Stream) end() error {
	if !s.listed || s.meta == nil {
		return fmt.Errorf("a %q without items or metadata", s.fields.text("kind"))
	}
	switch _, err := s.peek(); {
	case err == nil:
		return errors.New("there is more behind the list")
	case !errors.Is(err, io.ErrUnexpectedEOF):
		return err
	}
	return nil
}

// comma goes on behind the comma before what is not the first.
func (s *Stream) comma() error {
	if s.within {
		return s.take(',')
	}
	s.within = true
	return nil
}

// peek is the next byte that is no white space.
func (s *Stream) peek() (byte, error) {
	for {
		at := scanner{text: s.text}
		if s.text = s.text[at.space():]; len(s.text) > 0 {
			return s.text[0], nil
		}
		if err := s.read(); err != nil {
			return 0, err
		}
	}
}

// take goes on behind the next byte, which is to be c.
func (s *Stream) take(c byte) error {
	got, err := s.peek()
	if err == nil && got != c {
		err = fmt.Errorf("%q, where %q was to be", got, c)
	}
	if err == nil {
		s.text = s.text[1:]
	}
	return err
}

// value is the text of the next value, until more is read. f goes on behind it.
func (s *Stream) value(f func(*scanner) bool) ([]byte, error) {
	if _, err := s.peek(); err != nil {
		return nil, err
	}
	for {
		in := scanner{text: s.text}
		ok := f(&in)
		// At the end of what was read there may be the first half of a word, an escape or a number.
		const longest = len("false")
		switch cut := in.at+longest > len(s.text) && !s.eof; {
		case ok && (!cut || in.at < len(s.text) || s.text[in.at-1] == '}'):
			value := s.text[:in.at:in.at]
			s.text = s.text[in.at:]
			return value, nil
		case !ok && !cut:
			return nil, fmt.Errorf("not JSON at %q", s.text[in.at:min(in.at+longest, len(s.text))])
		}
		// It is read again from its beginning, and so not for each byte that comes.
		enough := min(len(s.text)+len(s.text)/2, limitObjectBytes)
		for more := true; more; more = len(s.text) < enough && !s.eof {
			if err := s.read(); err != nil {
				return nil, err
			}
		}
	}
}

// read reads more. Errors: those of reading and of grow; io.ErrUnexpectedEOF where there is no more.
func (s *Stream) read() error {
	if s.eof {
		return io.ErrUnexpectedEOF
	}
	switch {
	case len(s.text) > limitObjectBytes:
		return fmt.Errorf("an object has more than %d bytes", limitObjectBytes)
	case cap(s.text)-len(s.text) >= streamBytes/4:
	case len(s.text) <= len(s.held)/2 && s.held != nil: // what was understood is not needed any more
		s.text = s.held[:copy(s.held, s.text)]
	default:
		size := max(streamBytes, 2*len(s.held))
		if err := s.grow(int64(size)); err != nil {
			return err
		}
		s.held = make([]byte, size)
		s.text = s.held[:copy(s.held, s.text)]
	}
	n, err := s.in.Read(s.text[len(s.text):cap(s.text)])
	s.text = s.text[:len(s.text)+n]
	if s.eof = errors.Is(err, io.EOF); s.eof {
		return nil
	}
	return err
}

// Streams writes one list of those of both sides, or of the one that still goes on from a token; the zero token is that
// of a list that begins. Each side's objects stay in the order in which it has them, those of an order by namespace and
// name are merged by it. Nothing is written before wholeBytes of the list are known, or all of it.
// Errors: lists of two kinds, what cannot be read, and those of writing.
func Streams(out io.Writer, lists []*Stream, token Token) error {
	first := lists[len(lists)-1] // the modern side's, where it is one of them
	w := &writer{out: out, limit: wholeBytes, grow: first.grow}
	w.text = append(w.text, '{')
	told := map[string]bool{}
	tell := func() error {
		for _, l := range lists {
			for _, name := range []string{"kind", "apiVersion"} {
				if a, b := l.fields[name], first.fields[name]; a != nil && b != nil && !bytes.Equal(a, b) {
					return fmt.Errorf("one side answers with %s %s, the other with %s", name, b, a)
				}
			}
		}
		for _, name := range []string{"kind", "apiVersion"} {
			if value := first.fields[name]; value != nil && !told[name] {
				told[name] = true
				w.text = fmt.Appendf(w.text, "%q:%s,", name, value)
			}
		}
		metas := map[pair.Side]*listMeta{}
		for _, l := range lists {
			if l.meta != nil {
				metas[l.side] = l.meta
			}
		}
		if len(metas) == len(lists) && !told["metadata"] {
			told["metadata"] = true
			w.text = fmt.Appendf(w.text, `"metadata":%s,`, encode(metaOf(metas, token)))
		}
		return nil
	}
	if err := tell(); err != nil {
		return err
	}
	w.text = append(w.text, `"items":[`...)
	for count := 0; ; count++ {
		var l *Stream
		for _, each := range lists {
			if !each.ended && (l == nil || each.item.before(&l.item)) {
				l = each
			}
		}
		if l == nil {
			break
		}
		if count > 0 {
			w.text = append(w.text, ',')
		}
		if err := w.item(l.item); err != nil {
			return err
		}
		if err := l.next(); err != nil {
			return fmt.Errorf("the list of the %s side: %w", l.side, err)
		}
	}
	w.text = append(w.text, "],"...)
	if err := tell(); err != nil {
		return err
	}
	w.text = append(bytes.TrimSuffix(w.text, []byte(",")), '}')
	return w.flush()
}

// writer writes what there is when it is more than the limit.
type writer struct {
	out   io.Writer
	text  []byte
	limit int
	grow  func(moreBytes int64) error
	told  int // how much of the text grow was told of
}

// item writes an object of a list as clients see it.
func (w *writer) item(it item) error {
	if it.at.asItStands() {
		w.text = it.at.shown(w.text, it.text, it.side, Version{})
	} else {
		shown, _, err := readDecoded(it.text, it.side, Version{})
		if err != nil {
			return fmt.Errorf("%s/%s of the %s side: %w", it.namespace, it.name, it.side, err)
		}
		w.text = append(w.text, shown...)
	}
	if more := cap(w.text) - w.told; more > 0 {
		if err := w.grow(int64(more)); err != nil {
			return err
		}
		w.told += more
	}
	if len(w.text) < w.limit {
		return nil
	}
	return w.flush()
}

func (w *writer) flush() error {
	_, err := w.out.Write(w.text)
	w.text, w.limit = w.text[:0], pieceBytes
	return err
}
