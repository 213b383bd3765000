package jsontext

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// Marshal writes a value as encoding/json does, without escapes for HTML and without a line feed at its end: on one
// line, or with an indent, its lines but the first after a prefix. About so many bytes are expected. FuzzMarshal holds
// it against encoding/json. Errors: those of encoding/json.
func Marshal(value any, prefix, indent string, expected int) ([]byte, error) {
	w := writers.Get().(*writer)
	defer w.giveBack()
	w.prefix, w.indent, w.out = prefix, indent, slices.Grow(w.out[:0], expected+expected/4)
	if w.value(value, 0) {
		return bytes.Clone(w.out), nil
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if prefix != "" || indent != "" {
		encoder.SetIndent(prefix, indent)
	}
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// Size is how many bytes a value takes on one line of JSON, at least: without what characters are escaped by.
func Size(value any) (bytes int) {
	switch value := value.(type) {
	case map[string]any:
		bytes = len("{}") + max(len(value)-1, 0)
		for name, inner := range value {
			bytes += len(name) + len(`"":`) + Size(inner)
		}
	case []any:
		bytes = len("[]") + max(len(value)-1, 0)
		for _, inner := range value {
			bytes += Size(inner)
		}
	case string:
		bytes = len(value) + len(`""`)
	case int64:
		bytes = len(strconv.FormatInt(value, 10))
	case nil:
		bytes = len("null")
	case bool:
		bytes = len(strconv.FormatBool(value))
	default:
		bytes = 1
	}
	return bytes
}

// writers keep the memory of texts: how long one becomes is known when it is written.
var writers = sync.Pool{New: func() any { return new(writer) }}

// How much memory a writer keeps, at most.
const (
	keptBytes  = 4 << 20
	keptFields = 256
)

// giveBack keeps the memory of a writer, and nothing of what it wrote.
func (w *writer) giveBack() {
	if cap(w.out) > keptBytes || w.most > keptFields {
		return
	}
	clear(w.fields[:w.most])
	clear(w.last)
	w.fields, w.last, w.most = w.fields[:0], w.last[:0], 0
	writers.Put(w)
}

type writer struct {
	out            []byte
	prefix, indent string
	fields         []field    // of the objects that are being written, the innermost last
	most           int        // of fields at a time
	last           [][]string // the names of the fields of the last object at each depth, in order; none of many
}

type field struct {
	name  string
	value any
}

// value writes a value; false for one that decoders do not make.
func (w *writer) value(value any, depth int) bool {
	if depth > depthLimit {
		return false
	}
	switch value := value.(type) {
	case nil:
		w.out = append(w.out, "null"...)
	case string:
		w.string(value)
	case bool:
		w.out = strconv.AppendBool(w.out, value)
	case int64:
		w.out = strconv.AppendInt(w.out, value, 10)
	case map[string]any:
		return w.object(value, depth)
	case []any:
		return w.list(value, depth)
	case float64:
		text, err := json.Marshal(value)
		w.out = append(w.out, text...)
		return err == nil
	default:
		return false
	}
	return true
}

func (w *writer) object(object map[string]any, depth int) bool {
	switch {
	case object == nil:
		w.out = append(w.out, "null"...)
		return true
	case len(object) == 0:
		w.out = append(w.out, "{}"...)
		return true
	}
	start := len(w.fields)
	if !w.alike(object, depth) {
		for name, value := range object {
			w.fields = append(w.fields, field{name, value})
		}
		sortFields(w.fields[start:])
		w.remember(w.fields[start:], depth)
	}
	end := len(w.fields)
	w.most = max(w.most, end)
	for i := start; i < end; i++ {
		w.separate(i == start, '{', depth+1)
		w.string(w.fields[i].name)
		w.out = append(w.out, ':')
		if w.prefix != "" || w.indent != "" {
			w.out = append(w.out, ' ')
		}
		if !w.value(w.fields[i].value, depth+1) {
			return false
		}
	}
	w.fields = w.fields[:start]
	w.line(depth)
	w.out = append(w.out, '}')
	return true
}

// alikeFields is how many fields objects may have that are taken for ones like others.
const alikeFields = 8

// alike lists the fields of an object with the names that the last object at its depth had, as the elements of a list
// have them: to look for these takes less than to go through a map and to sort its names. It is false for others.
func (w *writer) alike(object map[string]any, depth int) bool {
	if depth >= len(w.last) || len(w.last[depth]) != len(object) {
		return false
	}
	start := len(w.fields)
	for _, name := range w.last[depth] {
		value, ok := object[name]
		if !ok {
			w.fields = w.fields[:start]
			return false
		}
		w.fields = append(w.fields, field{name, value})
	}
	return true
}

func (w *writer) remember(fields []field, depth int) {
	for len(w.last) <= depth {
		w.last = append(w.last, nil)
	}
	names := w.last[depth][:0]
	if len(fields) <= alikeFields {
		for _, field := range fields {
			names = append(names, field.name)
		}
	}
	w.last[depth] = names
}

// sortFields sorts by name: few, as most objects have, by putting each where it belongs among those before it.
func sortFields(fields []field) {
	if len(fields) > 12 {
		slices.SortFunc(fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
		return
	}
	for i := 1; i < len(fields); i++ {
		one, at := fields[i], i
		for ; at > 0 && one.name < fields[at-1].name; at-- {
			fields[at] = fields[at-1]
		}
		fields[at] = one
	}
}

func (w *writer) list(list []any, depth int) bool {
	switch {
	case list == nil:
		w.out = append(w.out, "null"...)
		return true
	case len(list) == 0:
		w.out = append(w.out, "[]"...)
		return true
	}
	for i, value := range list {
		w.separate(i == 0, '[', depth+1)
		if !w.value(value, depth+1) {
			return false
		}
	}
	w.line(depth)
	w.out = append(w.out, ']')
	return true
}

// separate writes what stands in front of a field or an element.
func (w *writer) separate(first bool, open byte, depth int) {
	if !first {
		open = ','
	}
	w.out = append(w.out, open)
	w.line(depth)
}

// line starts one, if values have lines of their own.
func (w *writer) line(depth int) {
	if w.prefix == "" && w.indent == "" {
		return
	}
	w.out = append(append(w.out, '\n'), w.prefix...)
	for range depth {
		w.out = append(w.out, w.indent...)
	}
}

func (w *writer) string(text string) {
	w.out = append(w.out, '"')
	start := 0
	for i := 0; i < len(text); {
		b := text[i]
		if b < utf8.RuneSelf {
			if b >= ' ' && b != '"' && b != '\\' {
				i++
				continue
			}
			w.out = append(w.out, text[start:i]...)
			w.escape(b)
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && size == 1 || r == '\u2028' || r == '\u2029' {
			w.out = append(w.out, text[start:i]...)
			w.out = append(w.out, `\u`...)
			w.out = strconv.AppendInt(w.out, int64(r), 16)
			start = i + size
		}
		i += size
	}
	w.out = append(append(w.out, text[start:]...), '"')
}

// escape writes a character that stands in no string.
func (w *writer) escape(b byte) {
	const hex = "0123456789abcdef"
	w.out = append(w.out, '\\')
	switch b {
	case '\b':
		b = 'b'
	case '\f':
		b = 'f'
	case '\n':
		b = 'n'
	case '\r':
		b = 'r'
	case '\t':
		b = 't'
	case '"', '\\':
	default:
		w.out = append(w.out, 'u', '0', '0', hex[b>>4])
		b = hex[b&0xf]
	}
	w.out = append(w.out, b)
}
