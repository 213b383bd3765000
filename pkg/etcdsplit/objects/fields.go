// Package objects knows the types of built-in objects, as of the newest version: it decodes stored values whole, and finds
// fields in them without decoding.
package objects

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
)

// Finder finds fields by the numbers that the API types give them. The zero value is ready. Safe for concurrent use.
type Finder struct {
	tries sync.Map // of trieKey to *node
}

type trieKey struct {
	apiVersion, kind string
	side             *etcdsplit.Side
}

// Find calls found with each of the paths that the side drops under which the object holds something: a value that is not empty,
// or an empty one where that says something else than none (a pointer), below any element of the lists on the way. Paths look
// like "spec.containers[].startupProbe". It says of each whether everything below it is what the side has as implied. Paths
// that the newest version's type does not have are looked for in JSON only; objects of types that it does not have are passed
// over. The side must not be changed afterwards.
// Errors: the object is damaged; etcdsplit.ErrUnreadable, wrapped.
func (f *Finder) Find(e *etcdsplit.Envelope, side *etcdsplit.Side, found func(path string, implied bool)) error {
	if len(side.Drops) == 0 {
		return nil
	}
	key := trieKey{string(e.APIVersion), string(e.Kind), side}
	trie, ok := f.tries.Load(key)
	if !ok {
		trie, _ = f.tries.LoadOrStore(key, newTrie(key))
	}
	seen := findings{}
	switch e.Encoding {
	case etcdsplit.Protobuf:
		if err := trie.(*node).inProtobuf(e.Body, seen); err != nil {
			return fmt.Errorf("%w: %w", etcdsplit.ErrUnreadable, err)
		}
	case etcdsplit.JSON:
		var object map[string]any
		if err := json.Unmarshal(e.Body, &object); err != nil {
			return fmt.Errorf("%w: %w", etcdsplit.ErrUnreadable, err)
		}
		trie.(*node).inTree(object, seen)
	}
	for path, implied := range seen {
		found(path, implied)
	}
	return nil
}

// findings are the paths that were found, and whether all of the values there are implied.
type findings map[string]bool

func (f findings) add(path string, implied bool) {
	before, ok := f[path]
	f[path] = implied && (before || !ok)
}

// node is a field on the way to those that are looked for, one of these, or below it one that has an implied value.
type node struct {
	field
	name     string // in JSON
	path     string // of a field that is looked for; "" for any other
	implied  string // its value, when hasImplied
	children []*node

	hasImplied bool
}

// field is what the type of an object says of one of its fields.
type field struct {
	numbers []protowire.Number // on the way to it; none: the type does not have it
	value   reflect.Type       // of its value, or of its elements
	present bool               // an empty value says something else than none: it is a pointer, or an element of a list or a map
	list    bool
}

// newTrie joins the paths at their common stems and gives each field its numbers.
func newTrie(key trieKey) *node {
	root := &node{field: field{value: typeOf(key.apiVersion, key.kind)}}
	for _, path := range key.side.Drops {
		root.at(path).path = path
	}
	for _, path := range slices.Sorted(maps.Keys(key.side.Implied)) {
		n := root.at(path)
		n.implied, n.hasImplied = key.side.Implied[path], true
	}
	return root
}

// at finds the node of a path, or makes it.
func (n *node) at(path string) *node {
	for part := range strings.SplitSeq(path, ".") {
		name := strings.TrimSuffix(part, "[]")
		i := slices.IndexFunc(n.children, func(child *node) bool { return child.name == name })
		if i < 0 {
			i = len(n.children)
			n.children = append(n.children, &node{name: name, field: fieldOf(n.value, name)})
		}
		n = n.children[i]
	}
	return n
}

func typeOf(apiVersion, kind string) reflect.Type {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil
	}
	return scheme.Scheme.AllKnownTypes()[gv.WithKind(kind)]
}

// fieldOf finds a field of a type by its name in JSON. What JSON inlines is a message of its own in protobuf, so there may be
// more than one number on the way.
func fieldOf(t reflect.Type, name string) field {
	if t == nil || t.Kind() != reflect.Struct {
		return field{}
	}
	for i := range t.NumField() {
		structField := t.Field(i)
		number := protobufNumber(structField)
		jsonName, options, _ := strings.Cut(structField.Tag.Get("json"), ",")
		switch {
		case number == 0:
		case jsonName == name:
			return newField(number, structField.Type)
		case jsonName == "" && options == "inline":
			inner := structField.Type
			for inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if f := fieldOf(inner, name); f.numbers != nil {
				f.numbers = append([]protowire.Number{number}, f.numbers...)
				return f
			}
		}
	}
	return field{}
}

func newField(number protowire.Number, t reflect.Type) field {
	f := field{numbers: []protowire.Number{number}, value: t}
	for {
		switch f.value.Kind() {
		case reflect.Map:
			f.numbers = append(f.numbers, 2) // an entry of a map is a message: key 1, value 2
			f.present = true
		case reflect.Slice:
			if f.value.Elem().Kind() == reflect.Uint8 {
				return f // bytes
			}
			f.present, f.list = true, true
		case reflect.Pointer:
			f.present = true
		default:
			return f
		}
		f.value = f.value.Elem()
	}
}

func protobufNumber(field reflect.StructField) protowire.Number {
	parts := strings.Split(field.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return 0
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil {
		return 0
	}
	return protowire.Number(n)
}

// wireValue is a value as protobuf has it: a number, or bytes.
type wireValue struct {
	number uint64
	bytes  []byte
}

// inProtobuf looks for the children of the node in a message.
func (n *node) inProtobuf(message []byte, seen findings) error {
	for _, child := range n.children {
		values, implied := 0, true
		if err := eachValue(message, child.numbers, func(value wireValue) error {
			if child.path == "" {
				return child.inProtobuf(value.bytes, seen)
			}
			if child.isSet(value) {
				values++
				implied = implied && child.impliedIn(value)
			}
			return nil
		}); err != nil {
			return err
		}
		if values > 0 {
			seen.add(child.path, implied && (values == 1 || child.implied != etcdsplit.OneElement))
		}
	}
	return nil
}

var errField = errors.New("a field of it is damaged")

// eachValue calls visit with every value under a chain of field numbers.
func eachValue(message []byte, numbers []protowire.Number, visit func(wireValue) error) error {
	if len(numbers) == 0 {
		return nil // the newest version does not have the field
	}
	return eachField(message, func(number protowire.Number, value wireValue) error {
		switch {
		case number != numbers[0]:
			return nil
		case len(numbers) == 1:
			return visit(value)
		}
		return eachValue(value.bytes, numbers[1:], visit)
	})
}

// eachField calls visit with every field of a message.
func eachField(message []byte, visit func(protowire.Number, wireValue) error) error {
	for len(message) > 0 {
		number, wireType, n := protowire.ConsumeTag(message)
		if n < 0 {
			return errField
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(number, wireType, message); n < 0 {
			return errField
		}
		var value wireValue
		switch wireType {
		case protowire.BytesType:
			value.bytes, _ = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			value.number, _ = protowire.ConsumeVarint(message)
		case protowire.Fixed32Type:
			number, _ := protowire.ConsumeFixed32(message)
			value.number = uint64(number)
		case protowire.Fixed64Type:
			value.number, _ = protowire.ConsumeFixed64(message)
		}
		message = message[n:]
		if err := visit(number, value); err != nil {
			return err
		}
	}
	return nil
}

// isSet reports whether a value of the field is more than none.
func (f *field) isSet(value wireValue) bool {
	return f.present || !isZero(value, f.value)
}

// isZero reports whether a value says nothing: servers write numbers, texts and structs also when they are empty.
func isZero(value wireValue, t reflect.Type) bool {
	if len(value.bytes) == 0 {
		return value.number == 0
	}
	if t == nil || t.Kind() != reflect.Struct {
		return false
	}
	zero := true
	err := eachField(value.bytes, func(number protowire.Number, inner wireValue) error {
		f, known := fieldNumbered(t, number)
		zero = zero && !(known && f.present) && isZero(inner, f.value)
		return nil
	})
	return err == nil && zero
}

// fieldNumbered finds a field of a type by its number in protobuf.
func fieldNumbered(t reflect.Type, number protowire.Number) (field, bool) {
	for i := range t.NumField() {
		if protobufNumber(t.Field(i)) == number {
			return newField(number, t.Field(i).Type), true
		}
	}
	return field{}, false
}

// impliedIn reports whether a value, or all that is set in it, is what was given as implied.
func (n *node) impliedIn(value wireValue) bool {
	if n.hasImplied {
		return n.implied == etcdsplit.OneElement || n.implied == n.print(value)
	}
	if len(n.children) == 0 || n.list {
		return false
	}
	implied := true
	err := eachField(value.bytes, func(number protowire.Number, inner wireValue) error {
		i := slices.IndexFunc(n.children, func(child *node) bool { return slices.Equal(child.numbers, []protowire.Number{number}) })
		if i < 0 {
			implied = implied && isZero(inner, nil)
		} else if n.children[i].isSet(inner) {
			implied = implied && n.children[i].impliedIn(inner)
		}
		return nil
	})
	return err == nil && implied
}

// print writes a value as fmt.Sprint writes what is in JSON.
func (f *field) print(value wireValue) string {
	if f.value == nil {
		return ""
	}
	switch f.value.Kind() {
	case reflect.Bool:
		return strconv.FormatBool(value.number != 0)
	case reflect.String:
		return string(value.bytes)
	case reflect.Int, reflect.Int32, reflect.Int64:
		return strconv.FormatInt(int64(value.number), 10)
	}
	if f.value == reflect.TypeFor[intstr.IntOrString]() { // type 1, intVal 2, strVal 3
		text := "0"
		_ = eachField(value.bytes, func(number protowire.Number, inner wireValue) error {
			switch {
			case number == 2 && inner.number != 0:
				text = strconv.FormatInt(int64(inner.number), 10)
			case number == 3 && len(inner.bytes) > 0:
				text = string(inner.bytes)
			}
			return nil
		})
		return text
	}
	return ""
}

// inTree looks for the children of the node in decoded JSON.
func (n *node) inTree(value any, seen findings) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			n.inTree(element, seen)
		}
	case map[string]any:
		for _, child := range n.children {
			inner, ok := value[child.name]
			switch {
			case !ok:
			case child.path == "":
				child.inTree(inner, seen)
			case inner != nil && !isEmpty(inner, child.present):
				seen.add(child.path, child.impliedInTree(inner))
			}
		}
	}
}

// impliedInTree is impliedIn for decoded JSON.
func (n *node) impliedInTree(value any) bool {
	object, isObject := value.(map[string]any)
	list, isList := value.([]any)
	switch {
	case n.hasImplied && n.implied == etcdsplit.OneElement:
		return isList && len(list) == 1
	case n.hasImplied:
		return n.implied == printJSON(value)
	case !isObject || len(n.children) == 0:
		return false
	}
	for name, inner := range object {
		i := slices.IndexFunc(n.children, func(child *node) bool { return child.name == name })
		if !isEmpty(inner, i >= 0 && n.children[i].present) && (i < 0 || !n.children[i].impliedInTree(inner)) {
			return false
		}
	}
	return true
}

func printJSON(value any) string {
	if number, ok := value.(float64); ok {
		return strconv.FormatFloat(number, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}

// isEmpty reports whether a value says nothing; where its presence says something, only a list of nothing does not.
func isEmpty(value any, present bool) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return value == "" && !present
	case bool:
		return !value && !present
	case float64:
		return value == 0 && !present
	case []any:
		return len(value) == 0
	case map[string]any:
		return len(value) == 0 && !present
	}
	return false
}
