package objects

import (
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubefusion/fusionctl/pkg/storage"
)

var errDamagedField = errors.New("a field of it is damaged")

// eachField calls visit with every field of a message. Groups are damage: no version of Kubernetes writes them.
func eachField(message []byte, visit func(storage.ProtoField) error) error {
	w := storage.WalkProto(message)
	for w.Next() {
		if w.Type == protowire.StartGroupType {
			return errDamagedField
		}
		if err := visit(w.ProtoField); err != nil {
			return err
		}
	}
	if w.Err() != nil {
		return errDamagedField
	}
	return nil
}

// eachEntry calls visit with the key and the value of an entry of a map with strings for keys.
func eachEntry(entry []byte, visit func(key string, value storage.ProtoField) error) error {
	var key string
	value := storage.ProtoField{Number: 2, Type: protowire.BytesType}
	if err := eachField(entry, func(f storage.ProtoField) error {
		switch f.Number {
		case 1:
			key = string(f.Bytes)
		case 2:
			value = f
		}
		return nil
	}); err != nil {
		return err
	}
	if !utf8.ValidString(key) {
		return errDamagedField
	}
	return visit(key, value)
}

// A field whose name is not known goes by its number.
const nameless = "#"

// addNameless adds a field to a tree by its number. What is there more than once becomes a list.
func addNameless(tree map[string]any, f storage.ProtoField) {
	name := nameless + strconv.Itoa(int(f.Number))
	value := guess(f, 0)
	switch before := tree[name].(type) {
	case nil:
		tree[name] = value
	case []any:
		tree[name] = append(before, value)
	default:
		tree[name] = []any{before, value}
	}
}

const maxNesting = 64

// guess is what a field without a type most likely holds: a number, text, a message, or else bytes.
func guess(f storage.ProtoField, depth int) any {
	if f.Type != protowire.BytesType {
		return int64(f.Varint)
	}
	text := isText(f.Bytes)
	// A message starts with a tag, which for the first fields is no character of a text.
	if depth < maxNesting && len(f.Bytes) > 0 && (!text || f.Bytes[0] < ' ') {
		tree := map[string]any{}
		if eachField(f.Bytes, func(inner storage.ProtoField) error {
			if inner.Number > 10_000 {
				return errDamagedField // it is no message
			}
			name := nameless + strconv.Itoa(int(inner.Number))
			value := guess(inner, depth+1)
			if before, ok := tree[name]; ok {
				list, ok := before.([]any)
				if !ok {
					list = []any{before}
				}
				tree[name] = append(list, value)
			} else {
				tree[name] = value
			}
			return nil
		}) == nil {
			return tree
		}
	}
	if text {
		return string(f.Bytes)
	}
	return base64Of(f.Bytes)
}

func isText(data []byte) bool {
	return utf8.Valid(data) && !strings.ContainsFunc(string(data), func(r rune) bool {
		return !unicode.IsPrint(r) && r != '\n' && r != '\t' && r != '\r'
	})
}

func base64Of(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

// NamelessError says that a message has a field that its type does not have, by whose number nothing tells its name: it
// is of a newer version, or a vendor's. Shape: {Field: spec.containers[0].#99}.
type NamelessError struct{ Field string }

func (e *NamelessError) Error() string {
	return "the field " + e.Field + " of the message has no name that is known"
}

// within is an error of a part, as one of the whole.
func within(part string, err error) error {
	if of, ok := errors.AsType[*NamelessError](err); ok {
		return &NamelessError{part + "." + of.Field}
	}
	return err
}

// Complete adds to an object, which was read from a message through the Go type of its kind, what that type does not
// have any more, by its names in JSON, and leaves out what holds nothing: Go's clients write empty values of every type
// that they know. Errors: *NamelessError for a field without a name.
func Complete(object map[string]any, t reflect.Type, message []byte) error {
	return addUnknown(object, t, message, true)
}

// isZeroGuess reports whether what guess has read holds nothing at any depth.
func isZeroGuess(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for _, inner := range value {
			if !isZeroGuess(inner) {
				return false
			}
		}
		return true
	case []any:
		return !slices.ContainsFunc(value, func(inner any) bool { return !isZeroGuess(inner) })
	case string:
		return value == ""
	case int64:
		return value == 0
	}
	return value == nil
}

// addUnknown adds the fields of a message that its type does not have to the tree that was made of it: fields of
// another version, or of a vendor. Strictly, those that hold nothing are left out, and of the others each has a name.
func addUnknown(tree any, t reflect.Type, message []byte, strict bool) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	object, ok := tree.(map[string]any)
	if !ok || t.Kind() != reflect.Struct {
		return nil // a quantity, a time
	}
	seen := map[protowire.Number]int{}
	return eachField(message, func(f storage.ProtoField) error {
		field, ok := fieldByNumber(t, f.Number)
		if !ok {
			removed, ok := goneLayouts().removedFrom(t)[f.Number]
			switch {
			case strict && isZeroGuess(guess(f, 0)):
				return nil
			case ok:
				return goneLayouts().add(object, removed, f)
			case strict:
				return &NamelessError{nameless + strconv.Itoa(int(f.Number))}
			}
			addNameless(object, f)
			return nil
		}
		if f.Type != protowire.BytesType {
			return nil
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			return addUnknown(object, field.Type, f.Bytes, strict)
		}
		i := seen[f.Number]
		seen[f.Number]++
		switch inner := object[name].(type) {
		case []any:
			if field.Type.Kind() == reflect.Slice && i < len(inner) {
				if err := addUnknown(inner[i], field.Type.Elem(), f.Bytes, strict); err != nil {
					return within(fmt.Sprintf("%s[%d]", name, i), err)
				}
				return nil
			}
		case map[string]any:
			if field.Type.Kind() != reflect.Map {
				return within(name, addUnknown(inner, field.Type, f.Bytes, strict))
			}
			return within(name, eachEntry(f.Bytes, func(key string, value storage.ProtoField) error {
				return within(key, addUnknown(inner[key], field.Type.Elem(), value.Bytes, strict))
			}))
		}
		return nil
	})
}

func fieldByNumber(t reflect.Type, number protowire.Number) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if field := t.Field(i); protobufNumber(field) == number {
			return field, true
		}
	}
	return reflect.StructField{}, false
}

// Nameless reports whether fields of an object that Decode returned go by their numbers, such as "#16".
func Nameless(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			if strings.HasPrefix(key, nameless) || Nameless(inner) {
				return true
			}
		}
	case []any:
		for _, inner := range value {
			if Nameless(inner) {
				return true
			}
		}
	}
	return false
}

// withoutType decodes an object of an unknown type: its metadata, and the rest by the numbers of the fields.
func withoutType(message []byte) (map[string]any, error) {
	tree := map[string]any{}
	err := eachField(message, func(f storage.ProtoField) error {
		if f.Number == 1 && f.Type == protowire.BytesType {
			if metadata, err := goValue(goTypes["=meta/v1.ObjectMeta"], f.Bytes); err == nil {
				tree["metadata"] = metadata
				return nil
			}
		}
		addNameless(tree, f)
		return nil
	})
	return tree, err
}
