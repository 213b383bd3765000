// Package jsontext reads and writes the JSON of objects: maps, lists, strings, numbers, words. It does what
// sigs.k8s.io/json and encoding/json do, at a fraction of what they cost, and leaves to these what is rare.
package jsontext

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// depthLimit is above what people nest. What is nested deeper is left to the libraries.
const depthLimit = 200

// Object reads an object of at most so many maps, itself included, as sigs.k8s.io/json does: whole numbers are int64,
// others float64. It returns false for each mistake, for a name that an object has twice, and for what is rare: the
// library tells what is wrong there. The strings of the object share memory. FuzzObject holds it against the library.
func Object(text []byte, maps int) (object map[string]any, ok bool) {
	r := reader{text: string(text), maps: maps}
	r.space()
	if !r.next('{') {
		return nil, false
	}
	object, ok = r.object(0)
	r.space()
	return object, ok && r.at == len(r.text)
}

type reader struct {
	text string
	at   int
	maps int // that may follow
}

func (r *reader) space() {
	for r.at < len(r.text) {
		switch r.text[r.at] {
		case ' ', '\n', '\r', '\t':
			r.at++
		default:
			return
		}
	}
}

// next reads a character, if it is at hand.
func (r *reader) next(b byte) bool {
	if r.at < len(r.text) && r.text[r.at] == b {
		r.at++
		return true
	}
	return false
}

func (r *reader) value(depth int) (any, bool) {
	if r.at == len(r.text) || depth > depthLimit {
		return nil, false
	}
	switch b := r.text[r.at]; b {
	case '"':
		r.at++
		return r.string()
	case '{':
		r.at++
		return r.object(depth)
	case '[':
		r.at++
		return r.list(depth)
	case 't':
		return true, r.word("true")
	case 'f':
		return false, r.word("false")
	case 'n':
		return nil, r.word("null")
	default:
		return r.number()
	}
}

func (r *reader) word(word string) bool {
	if len(r.text)-r.at < len(word) || r.text[r.at:r.at+len(word)] != word {
		return false
	}
	r.at += len(word)
	return true
}

// object reads what follows the brace of an object.
func (r *reader) object(depth int) (map[string]any, bool) {
	if r.maps--; r.maps < 0 {
		return nil, false
	}
	object := make(map[string]any)
	if r.space(); r.next('}') {
		return object, true
	}
	for {
		if r.space(); !r.next('"') {
			return nil, false
		}
		name, ok := r.string()
		if !ok {
			return nil, false
		}
		if r.space(); !r.next(':') {
			return nil, false
		}
		r.space()
		value, ok := r.value(depth + 1)
		if !ok {
			return nil, false
		}
		fields := len(object)
		object[name] = value
		if len(object) == fields {
			return nil, false
		}
		if r.space(); r.next('}') {
			return object, true
		}
		if !r.next(',') {
			return nil, false
		}
	}
}

// list reads what follows the bracket of a list.
func (r *reader) list(depth int) ([]any, bool) {
	list := []any{}
	if r.space(); r.next(']') {
		return list, true
	}
	for {
		r.space()
		value, ok := r.value(depth + 1)
		if !ok {
			return nil, false
		}
		list = append(list, value)
		if r.space(); r.next(']') {
			return list, true
		}
		if !r.next(',') {
			return nil, false
		}
	}
}

// string reads what follows the quote of a string.
func (r *reader) string() (string, bool) {
	start, wide := r.at, false
	for ; r.at < len(r.text); r.at++ {
		switch b := r.text[r.at]; {
		case b == '"':
			text := r.text[start:r.at]
			r.at++
			return text, !wide || utf8.ValidString(text)
		case b == '\\':
			return r.escaped(start)
		case b < ' ':
			return "", false
		case b >= utf8.RuneSelf:
			wide = true
		}
	}
	return "", false
}

// escaped reads a string that starts somewhere and has more in it than it shows.
func (r *reader) escaped(start int) (text string, ok bool) {
	for ; r.at < len(r.text); r.at++ {
		switch r.text[r.at] {
		case '\\':
			r.at++
		case '"':
			r.at++
			err := json.Unmarshal([]byte(r.text[start-1:r.at]), &text)
			return text, err == nil
		}
	}
	return "", false
}

func (r *reader) number() (any, bool) {
	start := r.at
	r.next('-')
	if !r.next('0') && !r.digits() {
		return nil, false
	}
	whole := true
	if r.next('.') {
		if whole = false; !r.digits() {
			return nil, false
		}
	}
	if r.next('e') || r.next('E') {
		whole = false
		if !r.next('-') {
			r.next('+')
		}
		if !r.digits() {
			return nil, false
		}
	}
	if text := r.text[start:r.at]; whole {
		number, err := strconv.ParseInt(text, 10, 64)
		return number, err == nil
	} else {
		number, err := strconv.ParseFloat(text, 64)
		return number, err == nil
	}
}

// digits reads at least one.
func (r *reader) digits() bool {
	start := r.at
	for r.at < len(r.text) && r.text[r.at] >= '0' && r.text[r.at] <= '9' {
		r.at++
	}
	return r.at > start
}
