package objects

import (
	"encoding/base64"
	"errors"
	"reflect"
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

// addUnknown adds the fields of a message that its type does not have to the tree that was made of it: fields of
// another version, or of a vendor.
func addUnknown(tree any, t reflect.Type, message []byte) error {
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
			if removed, ok := goneLayouts().removedFrom(t)[f.Number]; ok {
				return goneLayouts().add(object, removed, f)
			}
			addNameless(object, f)
			return nil
		}
		if f.Type != protowire.BytesType {
			return nil
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			return addUnknown(object, field.Type, f.Bytes)
		}
		i := seen[f.Number]
		seen[f.Number]++
		switch inner := object[name].(type) {
		case []any:
			if field.Type.Kind() == reflect.Slice && i < len(inner) {
				return addUnknown(inner[i], field.Type.Elem(), f.Bytes)
			}
		case map[string]any:
			if field.Type.Kind() != reflect.Map {
				return addUnknown(inner, field.Type, f.Bytes)
			}
			return eachEntry(f.Bytes, func(key string, value storage.ProtoField) error {
				return addUnknown(inner[key], field.Type.Elem(), value.Bytes)
			})
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
