package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// jsonDocument reads one JSON object. The elements of a list of objects are parts.
func (s *scanner) jsonDocument() error {
	j := &jsonScanner{scanner: s, line: s.line, text: s.spare}
	err := j.scan()
	s.spare = j.text[:0]
	if err == nil {
		s.document++
	}
	return err
}

// jsonScanner follows the braces of an object and leaves its syntax to the decoder.
type jsonScanner struct {
	*scanner
	text    []byte // since the last part, but for what was read of ahead
	ahead   []byte // what the reader has buffered; the next call of it makes this invalid
	read    int    // of ahead
	line    int    // of the first byte of text
	depth   int
	key     []byte // the last string at depth 1
	items   bool   // inside the list of items
	item    int
	version string // what the object has named so far
	kind    string
}

// errItem says that an element of a list of objects is none.
var errItem = errors.New("items: want objects")

func (j *jsonScanner) scan() error {
	start := j.line
	expectKey := false
	for {
		if !j.items || j.depth != 2 {
			j.skip(&betweenStrings)
		}
		b, err := j.next()
		if errors.Is(err, io.EOF) {
			return j.syntaxError(start, errors.New("the object does not end"))
		}
		if err != nil {
			return err
		}
		if j.size() > objectLimitBytes {
			return j.syntaxError(j.line, errTooLarge)
		}
		if j.items && j.depth == 2 && strings.IndexByte(" \t\r\n,{]", b) < 0 {
			return j.failed(errItem)
		}
		switch b {
		case '"':
			if err := j.stringEnd(); err != nil {
				return err
			}
			if j.depth == 1 {
				if expectKey {
					j.key, expectKey = j.lastString(), false
				} else {
					j.named(j.lastString())
				}
			}
		case '{':
			j.depth++
			if j.depth == 1 {
				expectKey = true
			}
			if j.items && j.depth == 3 {
				j.gather()
				if err := j.flush(Part{ListVersion: j.version, ListKind: j.kind}, len(j.text)-1); err != nil {
					return err
				}
			}
		case '[':
			j.depth++
			if j.depth == 2 && string(j.key) == "items" && j.isList() {
				j.items = true
			}
		case ',':
			if j.depth == 1 {
				expectKey = true
			}
		case ']':
			j.depth--
			if j.depth == 1 {
				j.items = false
			}
		case '}':
			j.depth--
			if !(j.items && j.depth == 2) && j.depth > 0 {
				continue
			}
			j.gather()
			switch {
			case j.depth > 0:
				j.item++
				if err := j.flush(Part{Object: true, Format: JSON, Item: j.item, ListVersion: j.version,
					ListKind: j.kind}, len(j.text)); err != nil {
					return err
				}
			case j.item > 0:
				return j.flush(Part{ListVersion: j.version, ListKind: j.kind}, len(j.text))
			default:
				return j.flush(Part{Object: true, Format: JSON}, len(j.text))
			}
		}
	}
}

// The bytes that count between strings, and in them.
var betweenStrings, inStrings = set("\"{[,]}"), set("\n\"\\")

func set(bytes string) (in [256]bool) {
	for i := range len(bytes) {
		in[bytes[i]] = true
	}
	return in
}

// next reads a byte.
func (j *jsonScanner) next() (byte, error) {
	if j.read == len(j.ahead) {
		j.gather()
		if _, err := j.in.Peek(1); err != nil {
			return 0, err
		}
		j.ahead, _ = j.in.Peek(j.in.Buffered())
	}
	j.read++
	return j.ahead[j.read-1], nil
}

// skip reads what is buffered up to the first byte that counts.
func (j *jsonScanner) skip(count *[256]bool) {
	for j.read < len(j.ahead) && !count[j.ahead[j.read]] {
		j.read++
	}
}

// gather takes what was read of the buffer into the text.
func (j *jsonScanner) gather() {
	read := j.ahead[:j.read]
	j.text = append(j.text, read...)
	j.scanner.line += bytes.Count(read, []byte("\n"))
	_, _ = j.in.Discard(len(read))
	j.ahead, j.read = nil, 0
}

// size is how much of the object was read.
func (j *jsonScanner) size() int { return len(j.text) + j.read }

// failed is a mistake at the last byte that was read.
func (j *jsonScanner) failed(err error) error {
	j.gather()
	return j.syntaxError(j.scanner.line, err)
}

// stringEnd reads the rest of a string.
func (j *jsonScanner) stringEnd() error {
	for {
		j.skip(&inStrings)
		b, err := j.next()
		if err == nil && b == '\\' {
			_, err = j.next()
		}
		switch {
		case err != nil:
			return j.failed(errors.New("the string does not end"))
		case b == '\n':
			j.gather()
			return j.syntaxError(j.scanner.line-1, errors.New("the string does not end on its line"))
		case b == '"':
			return nil
		case j.size() > objectLimitBytes:
			return j.syntaxError(j.line, errTooLarge)
		}
	}
}

// lastString is what the string holds that ends here, as written.
func (j *jsonScanner) lastString() []byte {
	j.gather()
	end := len(j.text) - 1
	start := end
	for start > 0 && (j.text[start-1] != '"' || escaped(j.text[:start-1])) {
		start--
	}
	return j.text[start:end]
}

// escaped reports whether what follows a text is escaped by its end.
func escaped(text []byte) bool {
	return (len(text)-len(bytes.TrimRight(text, `\`)))%2 == 1
}

func (j *jsonScanner) named(value []byte) {
	switch string(j.key) {
	case "apiVersion":
		j.version = string(value)
	case "kind":
		j.kind = string(value)
	}
	j.key = nil
}

// isList decides at the items of an object whether they are objects of their own: the object has named itself a list,
// or the first item names a kind.
func (j *jsonScanner) isList() bool {
	if j.kind != "" {
		return len(j.kind) >= 4 && j.kind[len(j.kind)-4:] == "List"
	}
	j.gather()
	for ahead := 1 << 10; ; ahead *= 4 {
		start, err := j.in.Peek(min(ahead, j.in.Size()))
		decoder := json.NewDecoder(bytes.NewReader(start))
		if token, tokenErr := decoder.Token(); tokenErr != nil || token != json.Delim('{') {
			return false
		}
		for decoder.More() {
			key, keyErr := decoder.Token()
			if keyErr != nil {
				break
			}
			if key == "kind" {
				return true
			}
			var skipped json.RawMessage
			if decoder.Decode(&skipped) != nil {
				break
			}
		}
		if err != nil || ahead >= j.in.Size() {
			return bytes.Contains(start, []byte(`"kind"`))
		}
	}
}

// flush hands over the first bytes of the text.
func (j *jsonScanner) flush(p Part, bytesOfText int) error {
	if bytesOfText == 0 {
		return nil
	}
	p.Text, p.Document, p.Line = bytes.Clone(j.text[:bytesOfText]), j.document, j.line
	j.line += bytes.Count(p.Text, []byte("\n"))
	j.text = append(j.text[:0], j.text[bytesOfText:]...)
	return j.part(p)
}
