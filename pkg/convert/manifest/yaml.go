package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
)

// yamlDocument reads lines up to the next separator. The items of a list of objects are parts. A separator with a
// document behind it, on its line, is the first line of another one.
func (s *scanner) yamlDocument() error {
	for next := []byte(nil); ; {
		y := &yamlScanner{scanner: s}
		var err error
		if next, err = y.scan(next); err != nil {
			return err
		}
		s.document++
		if next == nil {
			return nil
		}
	}
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

// scan reads a document whose first line may have been read. It returns the first line of the next one when that
// stands on the line of the separator.
func (y *yamlScanner) scan(line []byte) (next []byte, err error) {
	y.dash, y.line = -1, y.scanner.line
	if line != nil {
		y.line--
		if err := y.add(line); err != nil {
			return nil, err
		}
	}
	for first := line == nil; ; first = false {
		line, err := y.readLine()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		separates, empty := separator(line)
		if len(line) == 0 || !first && separates {
			line = bytes.Clone(line) // handing over what was before reads on
			if err := y.finish(); err != nil {
				return nil, err
			}
			if len(line) > 0 && !empty {
				return line, nil
			}
			if len(line) == 0 {
				return nil, nil
			}
			return nil, y.scanner.text(line, y.scanner.line-1)
		}
		if err := y.add(line); err != nil {
			return nil, err
		}
		if len(y.text) > objectLimitBytes {
			return nil, y.syntaxError(y.line, errTooLarge)
		}
		if err != nil { // the last line has no line break
			return nil, y.finish()
		}
	}
}

// readLine reads a line, which holds until something else is read.
func (y *yamlScanner) readLine() ([]byte, error) {
	line, err := y.in.ReadSlice('\n')
	if err == nil {
		y.scanner.line++
		return line, nil
	}
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	line = bytes.Clone(line)
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
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// separator reports whether a line ends a document: ---, ... or either with a comment; and whether no other document
// starts behind a ---.
func separator(line []byte) (separates, empty bool) {
	rest, begins := bytes.CutPrefix(line, []byte("---"))
	ends := false
	if !begins {
		if rest, ends = bytes.CutPrefix(line, []byte("...")); !ends {
			return false, false
		}
	}
	word := bytes.TrimLeft(bytes.TrimRight(rest, "\r\n"), " \t")
	if len(word) == 0 || word[0] == '#' {
		return true, true
	}
	return begins && (rest[0] == ' ' || rest[0] == '\t'), false
}

// add takes a line, and hands over the item that it ends.
func (y *yamlScanner) add(line []byte) error {
	column := 0
	for column < len(line) && line[column] == ' ' {
		column++
	}
	end := len(line)
	for end > column && (line[end-1] == '\n' || line[end-1] == '\r' || line[end-1] == ' ' || line[end-1] == '\t') {
		end--
	}
	word := line[column:end]
	// directives, which tell nothing of the objects
	blank := len(word) == 0 || word[0] == '#' || column == 0 && bytes.HasPrefix(word, []byte("%YAML ")) && !y.content
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
		(string(word) == "items:" || bytes.HasPrefix(word, []byte("items: #"))):
		y.text = append(y.text, line...)
		if y.listFollows() {
			return y.flush()
		}
		return nil
	}
	if column == 0 && !blank && y.dash < 0 && y.item > 0 && bytes.HasPrefix(word, []byte("items:")) {
		return y.syntaxError(y.line+bytes.Count(y.text, []byte("\n")), errItemsTwice)
	}
	if column == 0 && !blank && !y.held {
		y.named(word)
	}
	y.content = y.content || !blank
	y.text = append(y.text, line...)
	return nil
}

var errItemsTwice = errors.New("a list has items twice, of which servers read the later ones alone")

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func startsItem[T string | []byte](word T) bool {
	return len(word) > 0 && word[0] == '-' && (len(word) == 1 || word[1] == ' ')
}

func (y *yamlScanner) named(word []byte) {
	if value, ok := bytes.CutPrefix(word, []byte("apiVersion:")); ok {
		y.version = scalarOf(string(value))
	}
	if value, ok := bytes.CutPrefix(word, []byte("kind:")); ok {
		y.kind = scalarOf(string(value))
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
