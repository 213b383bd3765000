// Package manifest reads files of Kubernetes objects object by object, whatever their size, and writes changed objects
// back into the text that they stood in: comments, order and layout stay where nothing changes.
package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// Format is how a file spells its objects.
type Format int

// The formats are told by the first bytes.
const (
	YAML Format = iota
	JSON
	Protobuf // one object as servers store it
)

// Part is a piece of a file: an object, or the text between objects. The texts of all parts, one after the other, are
// the file, without its byte order mark, and in UTF-8 where that says UTF-16.
type Part struct {
	Text     []byte
	Object   bool   // otherwise text between objects: separators, comments, the frame of a list
	Format   Format // of the object
	Document int    // 1-based
	Item     int    // 1-based in a list, 0 outside
	Line     int    // 1-based, of the first line of the text
	// ListVersion and ListKind are what a list of one kind names: apps/v1 DeploymentList. Its items need not name their
	// own.
	ListVersion, ListKind string
}

// objectLimitBytes bounds one object. Servers take a megabyte or two.
const objectLimitBytes = 32 << 20

// SyntaxError is text that is no object, with its place.
type SyntaxError struct {
	Document, Line int
	Err            error
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("document %d, line %d: %v", e.Document, e.Line, e.Err)
}
func (e *SyntaxError) Unwrap() error { return e.Err }

// Parts reads a file. It holds one object at a time: items of a list are parts of their own as long as they name their
// kind, or the list does before them. Errors: *SyntaxError for an object that does not end or is larger than 32 MiB;
// those of the reader.
func Parts(r io.Reader) iter.Seq2[Part, error] {
	return func(yield func(Part, error) bool) {
		in := buffers.Get().(*bufio.Reader)
		defer func() {
			in.Reset(nil)
			buffers.Put(in)
		}()
		in.Reset(r)
		start, err := in.Peek(4)
		if err != nil && !errors.Is(err, io.EOF) {
			yield(Part{}, err)
			return
		}
		if bytes.Equal(start, []byte("k8s\x00")) {
			text, err := io.ReadAll(io.LimitReader(in, objectLimitBytes+1))
			if err == nil && len(text) > objectLimitBytes {
				err = &SyntaxError{1, 1, errTooLarge}
			}
			yield(Part{Text: text, Object: true, Format: Protobuf, Document: 1, Line: 1}, err)
			return
		}
		switch {
		case bytes.HasPrefix(start, []byte("\xef\xbb\xbf")):
			_, err = in.Discard(3)
		case bytes.HasPrefix(start, []byte("\xff\xfe")), bytes.HasPrefix(start, []byte("\xfe\xff")):
			utf16 := unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM)
			in.Reset(transform.NewReader(io.MultiReader(bytes.NewReader(drained(in)), r), utf16.NewDecoder()))
		}
		if err != nil && !errors.Is(err, io.EOF) {
			yield(Part{}, err)
			return
		}
		s := &scanner{in: in, line: 1, document: 1, yield: yield}
		err = s.scan()
		if err != nil && !errors.Is(err, errStopped) {
			yield(Part{}, err)
		}
	}
}

// buffers of readers. How far Parts looks ahead for the first item of a list is their size.
var buffers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 1<<16) }}

// drained is what a reader has buffered, taken out of it.
func drained(in *bufio.Reader) []byte {
	text, _ := in.Peek(in.Buffered())
	text = bytes.Clone(text)
	_, _ = in.Discard(len(text))
	return text
}

var (
	errStopped  = errors.New("the reader of the parts stopped")
	errTooLarge = fmt.Errorf("object larger than %d MiB", objectLimitBytes>>20)
)

// scanner hands parts to yield as it finds them.
type scanner struct {
	in       *bufio.Reader
	line     int // of the next byte that is read
	document int
	yield    func(Part, error) bool
	spare    []byte // memory for the text of the next object in JSON
}

// scan reads documents until the end: JSON where one starts with a brace, YAML otherwise.
func (s *scanner) scan() error {
	for {
		space, err := s.blank()
		if len(space) > 0 {
			if err := s.text(space, s.line-bytes.Count(space, []byte("\n"))); err != nil {
				return err
			}
		}
		if len(space) >= limitBlankBytes { // perhaps there is more
			continue
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		next, err := s.in.Peek(2)
		if len(next) == 0 {
			return err
		}
		if next[0] == '{' && string(next) != "{{" { // which a template starts with
			err = s.jsonDocument()
		} else {
			err = s.yamlDocument()
		}
		if err != nil {
			return err
		}
	}
}

// limitBlankBytes is how much white space is handed over at a time.
const limitBlankBytes = 1 << 20

// blank reads white space, and separators of YAML documents with nothing behind them.
func (s *scanner) blank() ([]byte, error) {
	var space []byte
	for len(space) < limitBlankBytes {
		next, err := s.in.Peek(1)
		if err != nil {
			return space, err
		}
		switch b := next[0]; b {
		case '\n':
			s.line++
			fallthrough
		case ' ', '\t', '\r':
			if b == ' ' && s.indented() {
				return space, nil
			}
			space = append(space, b)
			if _, err := s.in.Discard(1); err != nil {
				return space, err
			}
		case '-', '.':
			line, err := s.in.Peek(4)
			mark := bytes.Repeat([]byte{b}, 3)
			if !bytes.HasPrefix(line, mark) || len(line) > 3 && line[3] != '\n' && line[3] != '\r' {
				return space, nil
			}
			if err != nil && !errors.Is(err, io.EOF) {
				return space, err
			}
			space = append(space, mark...)
			if _, err := s.in.Discard(3); err != nil {
				return space, err
			}
		default:
			return space, nil
		}
	}
	return space, nil
}

// indented reports whether the line that starts here is the first of an indented YAML document.
func (s *scanner) indented() bool {
	ahead, _ := s.in.Peek(256)
	trimmed := bytes.TrimLeft(ahead, " ")
	return len(trimmed) > 0 && trimmed[0] != '\n' && trimmed[0] != '\r' && trimmed[0] != '{' && trimmed[0] != '\t'
}

// text hands over text between objects.
func (s *scanner) text(text []byte, line int) error {
	return s.part(Part{Text: text, Document: s.document, Line: line})
}

func (s *scanner) part(p Part) error {
	if !s.yield(p, nil) {
		return errStopped
	}
	return nil
}

func (s *scanner) syntaxError(line int, err error) error {
	return &SyntaxError{s.document, line, err}
}
