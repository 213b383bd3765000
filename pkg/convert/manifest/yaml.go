package manifest

import (
	"bytes"
	"errors"
	"io"
	"strings"
)

// yamlDocument reads lines up to the next separator. The items of a list of objects are parts.
func (s *scanner) yamlDocument() error {
	y := &yamlScanner{scanner: s}
	if err := y.scan(); err != nil {
		return err
	}
	s.document++
	return nil
}

// yamlScanner tells the items of a list by their indentation and leaves the rest of the syntax to the decoder.
type yamlScanner struct {
	*scanner
	text    []byte // lines since the last part
	line    int    // of the first of them
	dash    int    // column of the dashes of the list's items; -1 outside of it
	item    int
	held    bool // the text is an item so far
	version string
	kind    string
	content bool // the text is more than comments
}

func (y *yamlScanner) scan() error {
	y.dash, y.line = -1, y.scanner.line
	for first := true; ; first = false {
		line, err := y.readLine()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(line) == 0 || !first && separates(line) {
			if err := y.finish(); err != nil {
				return err
			}
			if len(line) == 0 {
				return nil
			}
			return y.scanner.text(line, y.scanner.line-1)
		}
		if err := y.add(line); err != nil {
			return err
		}
		if len(y.text) > objectLimitBytes {
			return y.syntaxError(y.line, errTooLarge)
		}
		if err != nil { // the last line has no line break
			return y.finish()
		}
	}
}

func (y *yamlScanner) readLine() ([]byte, error) {
	var line []byte
	for {
		piece, err := y.in.ReadSlice('\n')
		line = append(line, piece...)
		if err == nil {
			y.scanner.line++
			return line, nil
		}
		if len(line) > objectLimitBytes {
			return nil, y.syntaxError(y.scanner.line, errTooLarge)
		}
		if err.Error() != "bufio: buffer full" {
			return line, err
		}
	}
}

// separates reports whether a line ends a document: ---, ... or either with a comment.
func separates(line []byte) bool {
	rest, found := bytes.CutPrefix(line, []byte("---"))
	if !found {
		rest, found = bytes.CutPrefix(line, []byte("..."))
	}
	rest = bytes.TrimLeft(bytes.TrimRight(rest, "\r\n"), " \t")
	return found && (len(rest) == 0 || rest[0] == '#')
}

// add takes a line, and hands over the item that it ends.
func (y *yamlScanner) add(line []byte) error {
	trimmed := bytes.TrimLeft(line, " ")
	column := len(line) - len(trimmed)
	word := strings.TrimRight(string(trimmed), "\r\n \t")
	blank := word == "" || word[0] == '#'
	switch {
	case y.dash >= 0 && !blank && column == y.dash && startsItem(word):
		if err := y.flush(); err != nil {
			return err
		}
		y.held = true
	case y.dash >= 0 && !blank && column <= y.dash && y.item+boolToInt(y.held) > 0 &&
		(column < y.dash || !startsItem(word)):
		if err := y.flush(); err != nil { // the list is over
			return err
		}
		y.dash = -1
	case y.dash < 0 && y.item == 0 && column == 0 && !blank &&
		(word == "items:" || strings.HasPrefix(word, "items: #")):
		y.text = append(y.text, line...)
		if y.listFollows() {
			return y.flush()
		}
		return nil
	}
	if column == 0 && !blank && !y.held {
		y.named(word)
	}
	y.content = y.content || !blank
	y.text = append(y.text, line...)
	return nil
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func startsItem(word string) bool { return word == "-" || strings.HasPrefix(word, "- ") }

func (y *yamlScanner) named(word string) {
	if value, ok := strings.CutPrefix(word, "apiVersion:"); ok {
		y.version = scalarOf(value)
	}
	if value, ok := strings.CutPrefix(word, "kind:"); ok {
		y.kind = scalarOf(value)
	}
}

// scalarOf is the plain or quoted word behind a key.
func scalarOf(value string) string {
	value, _, _ = strings.Cut(value, " #")
	return strings.Trim(strings.TrimSpace(value), `"'`)
}

// listFollows looks ahead from the line items: whether what follows are objects of their own: the document has named
// itself a list, or the first item names a kind. It notes the column of their dashes.
func (y *yamlScanner) listFollows() bool {
	if y.kind != "" && !strings.HasSuffix(y.kind, "List") {
		return false
	}
	ahead, _ := y.in.Peek(y.in.Size())
	dash := -1
	for line := range strings.Lines(string(ahead)) {
		trimmed := strings.TrimLeft(line, " ")
		column := len(line) - len(trimmed)
		word := strings.TrimSpace(trimmed)
		switch {
		case word == "" || word[0] == '#':
			continue
		case dash < 0 && !startsItem(word):
			return false
		case dash < 0:
			dash = column
			word = strings.TrimSpace(strings.TrimPrefix(word, "-"))
			// an object on one line, an anchor: read as a whole
			if strings.HasPrefix(word, "{") || strings.HasPrefix(word, "&") {
				return false
			}
		case column <= dash:
			return false
		}
		if y.kind != "" || strings.HasPrefix(word, "kind:") && (column == dash || column == dash+2) {
			y.dash = dash
			return true
		}
	}
	return false
}

// flush hands over the text.
func (y *yamlScanner) flush() error {
	if len(y.text) == 0 {
		return nil
	}
	p := Part{Text: bytes.Clone(y.text), Document: y.document, Line: y.line}
	if y.dash >= 0 || y.item > 0 {
		p.ListVersion, p.ListKind = y.version, y.kind
	}
	if y.held {
		y.item++
		p.Object, p.Item = true, y.item
	}
	y.line += bytes.Count(y.text, []byte("\n"))
	y.text, y.held = y.text[:0], false
	return y.part(p)
}

// finish hands over what is left at the end of a document.
func (y *yamlScanner) finish() error {
	if y.held || y.item > 0 || !y.content {
		return y.flush()
	}
	if len(y.text) == 0 {
		return nil
	}
	return y.part(Part{Text: bytes.Clone(y.text), Object: true, Document: y.document, Line: y.line})
}
