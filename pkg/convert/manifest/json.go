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
	text    []byte // since the last part
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
			j.take(&betweenStrings)
		}
		b, err := j.in.ReadByte()
		if errors.Is(err, io.EOF) {
			return j.syntaxError(start, errors.New("the object does not end"))
		}
		if err != nil {
			return err
		}
		j.text = append(j.text, b)
		if len(j.text) > objectLimitBytes {
			return j.syntaxError(j.line, errTooLarge)
		}
		if j.items && j.depth == 2 && strings.IndexByte(" \t\r\n,{]", b) < 0 {
			return j.syntaxError(j.scanner.line, errItem)
		}
		switch b {
		case '\n': // where items are looked for
			j.scanner.line++
		case '"':
			content, err := j.stringEnd()
			if err != nil {
				return err
			}
			if j.depth == 1 {
				if expectKey {
					j.key, expectKey = content, false
				} else {
					j.named(content)
				}
			}
		case '{':
			j.depth++
			if j.depth == 1 {
				expectKey = true
			}
			if j.items && j.depth == 3 {
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
			switch {
			case j.items && j.depth == 2:
				j.item++
				if err := j.flush(Part{Object: true, Format: JSON, Item: j.item, ListVersion: j.version,
					ListKind: j.kind}, len(j.text)); err != nil {
					return err
				}
			case j.depth == 0 && j.item > 0:
				return j.flush(Part{ListVersion: j.version, ListKind: j.kind}, len(j.text))
			case j.depth == 0:
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

// take reads what is buffered up to the first byte that counts, and the lines of that.
func (j *jsonScanner) take(count *[256]bool) {
	buffered, _ := j.in.Peek(j.in.Buffered())
	end := 0
	for end < len(buffered) && !count[buffered[end]] {
		end++
	}
	j.text = append(j.text, buffered[:end]...)
	j.scanner.line += bytes.Count(buffered[:end], []byte("\n"))
	_, _ = j.in.Discard(end)
}

// stringEnd reads the rest of a string and returns what it holds, as written.
func (j *jsonScanner) stringEnd() ([]byte, error) {
	from := len(j.text)
	for {
		j.take(&inStrings)
		b, err := j.in.ReadByte()
		if err != nil {
			return nil, j.syntaxError(j.scanner.line, errors.New("the string does not end"))
		}
		j.text = append(j.text, b)
		switch b {
		case '\\':
			b, err = j.in.ReadByte()
			if err != nil {
				return nil, j.syntaxError(j.scanner.line, errors.New("the string does not end"))
			}
			j.text = append(j.text, b)
		case '\n':
			return nil, j.syntaxError(j.scanner.line, errors.New("the string does not end on its line"))
		case '"':
			return j.text[from : len(j.text)-1], nil
		}
		if len(j.text) > objectLimitBytes {
			return nil, j.syntaxError(j.line, errTooLarge)
		}
	}
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
