// Package visible prints what others have named: objects, owners, files, servers and their errors. Control characters,
// terminal escapes and marks that turn the direction of text are shown, not sent to the terminal; and what stands in
// one line cannot begin another.
package visible

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// hidden reports whether a character is to be shown by its number: it does something other than to be seen. Line breaks
// and tabs are a matter of where they stand.
func hidden(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r == 0xfffe || r == 0xffff ||
		r <= 0xffff && unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}

// Line is the text as a part of one line: `\n` for a line break.
// Shape: characters are written as Go and JSON write them: \n, \t, \u001b, \u202e; bytes that are no text as \x9b.
func Line(text string) string { return show(text, "") }

// Text is the text with its lines and tabs.
func Text(text string) string { return show(text, "\n\t") }

// Block is the text of another machine as a part of ours: its lines after the first are indented, so that none of them
// stands where one of ours would.
func Block(text string) string { return strings.ReplaceAll(Text(text), "\n", "\n  ") }

var markdown = func() *strings.Replacer {
	pairs := []string{"&", "&amp;", "<", "&lt;"}
	for _, c := range "\\`*_[]|~#>" {
		pairs = append(pairs, string(c), `\`+string(c))
	}
	return strings.NewReplacer(pairs...)
}()

// Markdown is the text as a part of a line of Markdown, or of a cell of its tables: no markup in it, such as a picture
// that is loaded from somewhere, becomes one.
func Markdown(text string) string {
	text = strings.NewReplacer("\n", " ", "\r", " ", "\t", " ").Replace(text)
	return markdown.Replace(Line(text))
}

func show(text, keep string) string {
	clean := func(r rune) bool { return r == utf8.RuneError || hidden(r) && !strings.ContainsRune(keep, r) }
	at := strings.IndexFunc(text, clean)
	if at < 0 {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case !hidden(r) || strings.ContainsRune(keep, r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// Lines is text of our own that may have several lines, as an argument of Fprintf and Fprintln.
type Lines string

// argument is a value that is printed as a part of a line.
type argument struct {
	value any
	keep  string
}

// Format prints the value as the verb says, and then shows what must not be sent.
func (a argument) Format(f fmt.State, verb rune) {
	if lines, ok := a.value.(Lines); ok {
		_, _ = io.WriteString(f, Text(string(lines)))
		return
	}
	_, _ = io.WriteString(f, show(fmt.Sprintf(fmt.FormatString(f, verb), a.value), a.keep))
}

func arguments(values []any, keep string) []any {
	shown := make([]any, len(values))
	for i, value := range values {
		switch value.(type) {
		case int, int32, int64, float64, bool: // widths take an int as it is
			shown[i] = value
		default:
			shown[i] = argument{value, keep}
		}
	}
	return shown
}

// Fprintf is fmt.Fprintf for a format of ours with arguments that others may have named: each stays within its line,
// and within its cell of a table.
func Fprintf(w io.Writer, format string, values ...any) (int, error) {
	return fmt.Fprintf(w, format, arguments(values, "")...)
}

// Fprintln is fmt.Fprintln for one line, which may have several cells.
func Fprintln(w io.Writer, values ...any) (int, error) {
	return fmt.Fprintln(w, arguments(values, "\t")...)
}

// Writer shows what must not be sent, of whatever is written. It keeps lines and tabs, since it cannot know whose they
// are.
type Writer struct {
	w    io.Writer
	rest []byte // the beginning of a character
}

// NewWriter shows what is written to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes all of the data but for a character at the end that is not whole.
func (w *Writer) Write(data []byte) (int, error) {
	if len(w.rest) == 0 && plain(data) {
		return w.w.Write(data)
	}
	text := append(w.rest, data...)
	whole := len(text)
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		if last := text[len(text)-back:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				whole -= back
			}
			break
		}
	}
	w.rest = append([]byte(nil), text[whole:]...)
	if _, err := io.WriteString(w.w, Text(string(text[:whole]))); err != nil {
		return 0, err
	}
	return len(data), nil
}

// plain reports whether there is nothing to show, for nearly all that is written.
func plain(data []byte) bool {
	for _, c := range data {
		if c < ' ' && c != '\n' && c != '\t' || c >= 0x7f {
			return false
		}
	}
	return true
}

// Flush writes what a character would have begun with.
func (w *Writer) Flush() error {
	_, err := io.WriteString(w.w, Text(string(w.rest)))
	w.rest = nil
	return err
}

// Unwrap is the stream itself, for data that must stay what they are and do not go to a terminal.
func (w *Writer) Unwrap() io.Writer { return w.w }
