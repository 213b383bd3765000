// Package quantity keeps quantities from the parser of Kubernetes for which it takes minutes and gigabytes: it
// calculates 10^n of an exponent, and is quadratic in digits. The twelve bytes of 1e-100000000 are 43 seconds.
package quantity

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A quantity of Kubernetes is at least a billionth and below 2^63 in its largest units: what is beyond these says
// nothing that is not said by less. Each is parsed within microseconds.
const (
	limitBytes    = 1024
	limitExponent = 1000
)

// Parse is resource.ParseQuantity in bounded time. Errors: those of Check; no quantity.
func Parse(text string) (resource.Quantity, error) {
	if err := Check(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}

// Check refuses what is not to be parsed: more than 1024 bytes, an exponent beyond 1000. What is no quantity passes.
func Check(text string) error {
	if len(text) > limitBytes {
		return fmt.Errorf("quantity %.20q... has %d bytes, more than %d", text, len(text), limitBytes)
	}
	at := strings.IndexAny(text, "eE")
	if at < 0 || at == len(text)-1 {
		return nil
	}
	n, err := strconv.ParseInt(text[at+1:], 10, 64)
	if errors.Is(err, strconv.ErrSyntax) {
		return nil // another suffix, or no quantity
	}
	if n < -limitExponent || n > limitExponent {
		return fmt.Errorf("quantity %q: its exponent is beyond %d", text, limitExponent)
	}
	return nil
}

// In refuses a value, as JSON decodes it, that has such a quantity where a type has one. What is not of the type
// passes. Errors: with the path of the quantity.
func In(value any, t reflect.Type) error { return in(value, t, "") }

func in(value any, t reflect.Type, path string) error {
	f := formOf(t)
	if !f.holds {
		return nil
	}
	if f.quantity {
		if err := inAny(value); err != nil {
			return fmt.Errorf("%s: %w", strings.TrimPrefix(path, "."), err)
		}
		return nil
	}
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			of := f.elem
			if of == nil {
				of = f.byName[name]
			}
			if of == nil {
				continue
			}
			if err := in(inner, of, path+"."+name); err != nil {
				return err
			}
		}
	case []any:
		for i, inner := range value {
			if f.elem == nil {
				break
			}
			if err := in(inner, f.elem, path+"["+strconv.Itoa(i)+"]"); err != nil {
				return err
			}
		}
	}
	return nil
}

// InJSON is In for a text that is decoded into the type as it stands. What is no JSON passes.
func InJSON(text []byte, t reflect.Type) error {
	if !formOf(t).holds || !mayHave(text) {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return nil //nolint:nilerr // who decodes it says so
	}
	return In(value, t)
}

// mayHave looks whether JSON may have such a quantity: most texts are not decoded twice for it.
func mayHave(text []byte) bool {
	const digits = 4 // of an exponent beyond the limit
	isDigit := func(c byte) bool { return c >= '0' && c <= '9' || c == '.' }
	for i, run := 0, 0; i < len(text); i++ {
		switch c := text[i]; {
		case isDigit(c):
			if run++; run > limitBytes/2 {
				return true
			}
			continue
		case c == '\\' && i+1 < len(text) && text[i+1] == 'u':
			return true
		case c == 'e' || c == 'E':
			at := i + 1
			if at < len(text) && (text[at] == '-' || text[at] == '+') {
				at++
			}
			n := 0
			for at+n < len(text) && n < digits && isDigit(text[at+n]) {
				n++
			}
			if n == digits {
				return true
			}
		}
		run = 0
	}
	return false
}

// InText refuses a text that is such a quantity, or JSON that has one, wherever it may have it: what becomes of the
// text is not known.
func InText(text string) error {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return Check(strings.TrimSpace(text))
	}
	return inAny(value)
}

func inAny(value any) error {
	switch value := value.(type) {
	case string:
		return Check(strings.TrimSpace(value))
	case json.Number:
		return Check(value.String())
	case map[string]any:
		for _, inner := range value {
			if err := inAny(inner); err != nil {
				return err
			}
		}
	case []any:
		for _, inner := range value {
			if err := inAny(inner); err != nil {
				return err
			}
		}
	}
	return nil
}

// InMessage is In for a message of protobuf. What is no message of the type passes.
func InMessage(message []byte, t reflect.Type) error {
	f := formOf(t)
	if !f.holds {
		return nil
	}
	for len(message) > 0 {
		number, wire, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(number, wire, message); n < 0 {
			return nil
		}
		value := message[:n]
		message = message[n:]
		if wire != protowire.BytesType {
			continue
		}
		value, _ = protowire.ConsumeBytes(value)
		if f.quantity {
			if number == 1 {
				if err := Check(string(value)); err != nil {
					return err
				}
			}
			continue
		}
		if of := f.byNumber[number]; of != nil {
			if err := InMessage(value, of); err != nil {
				return err
			}
		}
	}
	return nil
}

// form is what is to be known of a type.
type form struct {
	holds    bool // a quantity, or one below it
	quantity bool // it is one
	elem     reflect.Type
	byName   map[string]reflect.Type
	byNumber map[protowire.Number]reflect.Type
}

var forms sync.Map // reflect.Type -> *form

var quantityType = reflect.TypeFor[resource.Quantity]()

func formOf(t reflect.Type) *form {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if known, ok := forms.Load(t); ok {
		return known.(*form)
	}
	f := &form{holds: holds(t, map[reflect.Type]bool{}), quantity: t == quantityType}
	switch {
	case !f.holds || f.quantity:
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array, t.Kind() == reflect.Map:
		f.elem = t.Elem()
		if t.Kind() == reflect.Map {
			f.byNumber = map[protowire.Number]reflect.Type{2: t.Elem()}
		}
	case t.Kind() == reflect.Struct:
		f.byName, f.byNumber = map[string]reflect.Type{}, map[protowire.Number]reflect.Type{}
		f.add(t)
	}
	forms.Store(t, f)
	return f
}

// add adds the fields of a struct, and those of what JSON inlines.
func (f *form) add(t reflect.Type) {
	for i := range t.NumField() {
		field := t.Field(i)
		if !field.IsExported() || !holds(field.Type, map[reflect.Type]bool{}) {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		inner := field.Type
		for inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case name == "" && field.Anonymous && inner.Kind() == reflect.Struct:
			named := form{byName: f.byName, byNumber: map[protowire.Number]reflect.Type{}}
			named.add(inner) // by its own numbers in protobuf: it is a message there
		case name == "":
			f.byName[field.Name] = inner
		default:
			f.byName[name] = inner
		}
		if parts := strings.Split(field.Tag.Get("protobuf"), ","); len(parts) > 1 {
			if inner.Kind() == reflect.Slice {
				inner = inner.Elem()
			}
			if n, err := strconv.Atoi(parts[1]); err == nil {
				f.byNumber[protowire.Number(n)] = inner
			}
		}
	}
}

// holds reports whether a type is a quantity, or has one below it.
func holds(t reflect.Type, seen map[reflect.Type]bool) bool {
	if t == quantityType {
		return true
	}
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return holds(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if holds(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}
