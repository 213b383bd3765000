package restart

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// jsonWriter hashes what encoding/json gives for a v1.Container of some minor, in the form in which a kubelet hashes
// it: not the JSON, but go-spew's dump of its bytes, ([]uint8)[123 34 110 ...].
type jsonWriter struct {
	// longEscapes writes a backspace and a form feed as \u0008 and \u000c, as Go did before 1.22.
	longEscapes bool
	decimals    *decimals
	state       uint32
	buf         []byte // written and not yet hashed
	keep        bool
	kept        []byte // the JSON, if it is to be kept
	err         error
}

func newJSONWriter(longEscapes, keep bool) *jsonWriter {
	return &jsonWriter{longEscapes: longEscapes, keep: keep, decimals: byteDecimals(), buf: make([]byte, 0, 512)}
}

// open writes the brace that JSON begins with: unlike the bytes that follow, it has no space before its decimals.
func (w *jsonWriter) open() {
	w.state = fnvText(fnvOffset, "([]uint8)[123")
	if w.keep {
		w.kept = append(w.kept, '{')
	}
}

// close writes the last brace, and the bracket that ends the dump.
func (w *jsonWriter) close() (uint32, []byte, error) {
	w.buf = append(w.buf, '}')
	w.flush()
	return fnvText(w.state, "]"), w.kept, w.err
}

func (w *jsonWriter) flush() {
	w.state = w.decimals.after(w.state, w.buf)
	if w.keep {
		w.kept = append(w.kept, w.buf...)
	}
	w.buf = w.buf[:0]
}

// key writes the key of a field that is not the first.
func (w *jsonWriter) key(f *field) {
	w.flush()
	w.state = f.keyDecimals.after(w.state)
	if w.keep {
		w.kept = append(w.kept, f.key...)
	}
}

// jsonContainer hashes a container as the minor knows it. It returns the JSON only if it is to be kept.
func jsonContainer(c *v1.Container, f form, keep bool) (uint32, []byte, error) {
	t := tables()[f.minor]
	if t.err != nil {
		return 0, nil, t.err
	}
	w := newJSONWriter(f.longEscapes, keep)
	w.open()
	w.fields(t.container, reflect.ValueOf(c).Elem(), true)
	return w.close()
}

// jsonNameImage hashes the name and the image of a container as a map, which has its keys sorted.
func jsonNameImage(c *v1.Container, f form, keep bool) (uint32, []byte, error) {
	w := newJSONWriter(f.longEscapes, keep)
	w.open()
	w.text("image")
	w.buf = append(w.buf, ':')
	w.text(c.Image)
	w.buf = append(w.buf, ',')
	w.text("name")
	w.buf = append(w.buf, ':')
	w.text(c.Name)
	return w.close()
}

func (w *jsonWriter) value(n *node, v reflect.Value) {
	switch n.shape {
	case stringShape:
		w.text(v.String())
	case boolShape:
		w.buf = strconv.AppendBool(w.buf, v.Bool())
	case intShape:
		w.buf = strconv.AppendInt(w.buf, v.Int(), 10)
	case pointerShape:
		if v.IsNil() {
			w.buf = append(w.buf, "null"...)
			return
		}
		w.value(n.elem, v.Elem())
	case sliceShape:
		w.slice(n, v)
	case quantitiesShape:
		w.quantities(v.Interface().(v1.ResourceList))
	case quantityShape:
		w.quantity(v.Interface().(resource.Quantity))
	case intOrStringShape:
		w.intOrString(v.Interface().(intstr.IntOrString))
	default:
		w.buf = append(w.buf, '{')
		w.fields(n, v, true)
		w.buf = append(w.buf, '}')
	}
}

// fields writes the fields of a struct and says whether the next one would be the first.
func (w *jsonWriter) fields(n *node, v reflect.Value, first bool) bool {
	for i := range n.fields {
		f := &n.fields[i]
		value := v.Field(f.index)
		switch {
		case f.name == "":
			first = w.fields(f.node, value, first)
			continue
		case f.omitEmpty && isEmpty(value):
			continue
		case first:
			first = false
			w.buf = append(w.buf, f.key[1:]...)
		default:
			w.key(f)
		}
		w.value(f.node, value)
	}
	return first
}

// isEmpty is the rule of omitempty: a struct is never empty.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	default:
		return v.IsZero()
	}
}

func (w *jsonWriter) slice(n *node, v reflect.Value) {
	if v.IsNil() {
		w.buf = append(w.buf, "null"...)
		return
	}
	w.buf = append(w.buf, '[')
	for i := range v.Len() {
		if i > 0 {
			w.buf = append(w.buf, ',')
		}
		w.value(n.elem, v.Index(i))
	}
	w.buf = append(w.buf, ']')
}

func (w *jsonWriter) quantities(list v1.ResourceList) {
	w.buf = append(w.buf, '{')
	for i, name := range sortedNames(list) {
		if i > 0 {
			w.buf = append(w.buf, ',')
		}
		w.text(string(name))
		w.buf = append(w.buf, ':')
		w.quantity(list[name])
	}
	w.buf = append(w.buf, '}')
}

func (w *jsonWriter) quantity(q resource.Quantity) {
	w.text(q.String())
}

func (w *jsonWriter) intOrString(value intstr.IntOrString) {
	switch value.Type {
	case intstr.Int:
		w.buf = strconv.AppendInt(w.buf, int64(value.IntVal), 10)
	case intstr.String:
		w.text(value.StrVal)
	default:
		w.err = fmt.Errorf("a port of type %d, want 0 (number) or 1 (string)", value.Type)
	}
}

// isPlain holds the bytes that JSON shows as they are, which those of runes beyond ASCII do not all.
var isPlain = func() (plain [256]bool) {
	for b := ' '; b < utf8.RuneSelf; b++ {
		plain[b] = !strings.ContainsRune(`"\&<>`, b)
	}
	return plain
}()

// text writes a string as encoding/json does by default, which is safe within HTML: what is not valid UTF-8 becomes the
// replacement character, and that, &, <, > and the line separators of JavaScript are escaped.
func (w *jsonWriter) text(s string) {
	w.buf = append(w.buf, '"')
	for len(s) > 0 {
		plain := 0
		for plain < len(s) && isPlain[s[plain]] {
			plain++
		}
		w.buf = append(w.buf, s[:plain]...)
		if s = s[plain:]; s == "" {
			break
		}
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			w.buf = append(w.buf, `\ufffd`...)
		case r >= utf8.RuneSelf && r != '\u2028' && r != '\u2029':
			w.buf = append(w.buf, s[:size]...)
		default:
			w.buf = w.escape(w.buf, r)
		}
		s = s[size:]
	}
	w.buf = append(w.buf, '"')
}

// escape appends the escape of a rune that needs one.
func (w *jsonWriter) escape(buf []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(buf, '\\', byte(r))
	case '\n':
		return append(buf, `\n`...)
	case '\r':
		return append(buf, `\r`...)
	case '\t':
		return append(buf, `\t`...)
	case '\b':
		if !w.longEscapes {
			return append(buf, `\b`...)
		}
	case '\f':
		if !w.longEscapes {
			return append(buf, `\f`...)
		}
	}
	const digits = "0123456789abcdef"
	return append(buf, '\\', 'u', digits[r>>12], digits[r>>8&0xf], digits[r>>4&0xf], digits[r&0xf])
}
