package yamltext

import (
	"slices"
	"strconv"
	"strings"
)

// plainDepth bounds what is nested.
const plainDepth = 60

// appendPlain writes what most fields say as the library does, at a fraction of what that costs: objects, lists, whole
// numbers, and words that mean nothing else. It returns false for everything that it leaves to the library.
// FuzzPlain holds it against the library.
func appendPlain(out []byte, value any, column int) ([]byte, bool) {
	if column > 2*plainDepth {
		return nil, false
	}
	switch value := value.(type) {
	case map[string]any:
		return appendObject(out, value, column)
	case []any:
		return appendList(out, value, column)
	case string:
		return append(out, value...), isWord(value)
	case int64:
		return strconv.AppendInt(out, value, 10), true
	case bool:
		return strconv.AppendBool(out, value), true
	case nil:
		return append(out, "null"...), true
	default:
		return nil, false
	}
}

// appendObject writes fields at a column, where the text stands.
func appendObject(out []byte, object map[string]any, column int) ([]byte, bool) {
	if len(object) == 0 {
		return append(out, "{}"...), object != nil
	}
	names := make([]string, 0, len(object))
	for name := range object {
		if !isWord(name) || len(object) > 1 && !isOfLetters(name) { // the library sorts others by the numbers in them
			return nil, false
		}
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		if i > 0 {
			out = startLine(out, column)
		}
		out = append(append(out, name...), ':')
		below := column
		switch value := object[name].(type) {
		case map[string]any:
			if len(value) > 0 {
				below += 2
				out = startLine(out, below)
			} else {
				out = append(out, ' ')
			}
		case []any:
			if len(value) > 0 {
				out = startLine(out, below)
			} else {
				out = append(out, ' ')
			}
		default:
			out = append(out, ' ')
		}
		var ok bool
		if out, ok = appendPlain(out, object[name], below); !ok {
			return nil, false
		}
	}
	return out, true
}

// appendList writes elements at a column, where the text stands.
func appendList(out []byte, list []any, column int) ([]byte, bool) {
	if len(list) == 0 {
		return append(out, "[]"...), list != nil
	}
	for i, element := range list {
		if i > 0 {
			out = startLine(out, column)
		}
		var ok bool
		if out, ok = appendPlain(append(out, "- "...), element, column+2); !ok {
			return nil, false
		}
	}
	return out, true
}

func startLine(out []byte, column int) []byte {
	out = append(out, '\n')
	for range column {
		out = append(out, ' ')
	}
	return out
}

// isWord reports whether a string is one to YAML without quotes: it starts with a letter or a slash, has no spaces to
// be broken at, and is none of the words for true, false and null.
func isWord(text string) bool {
	const limit = 100 // behind 128 a name is written in another way
	if text == "" || len(text) > limit || !isLetter(text[0]) && text[0] != '/' {
		return false
	}
	for i := range len(text) {
		if b := text[i]; !isLetter(b) && (b < '0' || b > '9') && strings.IndexByte("_./-", b) < 0 {
			return false
		}
	}
	if len(text) > len("false") {
		return true
	}
	return !slices.Contains(otherWords, strings.ToLower(text))
}

var otherWords = []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}

func isOfLetters(text string) bool {
	for i := range len(text) {
		if !isLetter(text[i]) {
			return false
		}
	}
	return true
}

func isLetter(b byte) bool { return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' }
