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
)

// wireField is one field of a message of any type.
type wireField struct {
	number   protowire.Number
	wireType protowire.Type
	varint   uint64 // or the bits of a fixed number
	bytes    []byte // of protowire.BytesType
}

var errDamagedField = errors.New("a field of it is damaged")

// nextField reads the field at the start of a message, and says how many bytes it takes; fewer than 0 when it is
// damaged. Small numbers and lengths, which are nearly all, are read at once.
func nextField(message []byte) (f wireField, n int) {
	if len(message) > 1 && message[0] < 0x80 && message[1] < 0x80 && message[0] >= 8 {
		f.number, f.wireType = protowire.Number(message[0]>>3), protowire.Type(message[0]&7)
		switch f.wireType {
		case protowire.VarintType:
			f.varint = uint64(message[1])
			return f, 2
		case protowire.BytesType:
			if end := 2 + int(message[1]); end <= len(message) {
				f.bytes = message[2:end]
				return f, end
			}
			return f, -1
		}
	}
	var tag int
	if f.number, f.wireType, tag = protowire.ConsumeTag(message); tag < 0 {
		return f, tag
	}
	switch message = message[tag:]; f.wireType {
	case protowire.VarintType:
		f.varint, n = protowire.ConsumeVarint(message)
	case protowire.Fixed64Type:
		f.varint, n = protowire.ConsumeFixed64(message)
	case protowire.Fixed32Type:
		var bits uint32
		bits, n = protowire.ConsumeFixed32(message)
		f.varint = uint64(bits)
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(message)
	default:
		return f, -1 // groups, which no version of Kubernetes has
	}
	if n < 0 {
		return f, n
	}
	return f, tag + n
}

// eachField calls visit with every field of a message.
func eachField(message []byte, visit func(wireField) error) error {
	for len(message) > 0 {
		f, n := nextField(message)
		if n < 0 {
			return errDamagedField
		}
		message = message[n:]
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

// eachEntry calls visit with the key and the value of an entry of a map with strings for keys.
func eachEntry(entry []byte, visit func(key string, value wireField) error) error {
	var key string
	value := wireField{number: 2, wireType: protowire.BytesType}
	if err := eachField(entry, func(f wireField) error {
		switch f.number {
		case 1:
			key = string(f.bytes)
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
func addNameless(tree map[string]any, f wireField) {
	name := nameless + strconv.Itoa(int(f.number))
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
func guess(f wireField, depth int) any {
	if f.wireType != protowire.BytesType {
		return int64(f.varint)
	}
	text := isText(f.bytes)
	// A message starts with a tag, which for the first fields is no character of a text.
	if depth < maxNesting && len(f.bytes) > 0 && (!text || f.bytes[0] < ' ') {
		tree := map[string]any{}
		if eachField(f.bytes, func(inner wireField) error {
			if inner.number > 10_000 {
				return errDamagedField // it is no message
			}
			name := nameless + strconv.Itoa(int(inner.number))
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
		return string(f.bytes)
	}
	return base64Of(f.bytes)
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
	return eachField(message, func(f wireField) error {
		field, ok := fieldByNumber(t, f.number)
		if !ok {
			if removed, ok := goneLayouts().removedFrom(t)[f.number]; ok {
				return goneLayouts().add(object, removed, f)
			}
			addNameless(object, f)
			return nil
		}
		if f.wireType != protowire.BytesType {
			return nil
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			return addUnknown(object, field.Type, f.bytes)
		}
		i := seen[f.number]
		seen[f.number]++
		switch inner := object[name].(type) {
		case []any:
			if field.Type.Kind() == reflect.Slice && i < len(inner) {
				return addUnknown(inner[i], field.Type.Elem(), f.bytes)
			}
		case map[string]any:
			if field.Type.Kind() != reflect.Map {
				return addUnknown(inner, field.Type, f.bytes)
			}
			return eachEntry(f.bytes, func(key string, value wireField) error {
				return addUnknown(inner[key], field.Type.Elem(), value.bytes)
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
	err := eachField(message, func(f wireField) error {
		if f.number == 1 && f.wireType == protowire.BytesType {
			if metadata, err := goValue(goTypes["=meta/v1.ObjectMeta"], f.bytes); err == nil {
				tree["metadata"] = metadata
				return nil
			}
		}
		addNameless(tree, f)
		return nil
	})
	return tree, err
}
