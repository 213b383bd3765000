// Package objects knows the types of built-in objects, as of the newest version: it decodes stored values whole, and finds
// fields in them without decoding.
package objects

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
)

// Finder finds fields by the numbers that the API types give them. The zero value is ready. Safe for concurrent use.
type Finder struct {
	tries sync.Map // of trieKey to *node
}

type trieKey struct {
	apiVersion, kind string
	paths            *string // the first of the list: lists come from one map and are not changed
	n                int
}

// Find calls found once with each of the paths under which the object holds something: a value that is not empty, below any
// element of the lists on the way. Paths look like "spec.containers[].startupProbe". Paths that the newest version's type
// does not have are looked for in JSON only; objects of types that it does not have are passed over.
// Errors: the object is damaged; etcdsplit.ErrUnreadable, wrapped.
func (f *Finder) Find(e *etcdsplit.Envelope, paths []string, found func(path string)) error {
	if len(paths) == 0 {
		return nil
	}
	key := trieKey{string(e.APIVersion), string(e.Kind), &paths[0], len(paths)}
	trie, ok := f.tries.Load(key)
	if !ok {
		trie, _ = f.tries.LoadOrStore(key, newTrie(key, paths))
	}
	seen := map[string]bool{}
	once := func(path string) {
		if !seen[path] {
			seen[path] = true
			found(path)
		}
	}
	switch e.Encoding {
	case etcdsplit.Protobuf:
		if err := trie.(*node).inProtobuf(e.Body, once); err != nil {
			return fmt.Errorf("%w: %w", etcdsplit.ErrUnreadable, err)
		}
	case etcdsplit.JSON:
		var object map[string]any
		if err := json.Unmarshal(e.Body, &object); err != nil {
			return fmt.Errorf("%w: %w", etcdsplit.ErrUnreadable, err)
		}
		trie.(*node).inTree(object, once)
	}
	return nil
}

// node is a field on the way to those that are looked for.
type node struct {
	name     string // in JSON
	numbers  []protowire.Number
	path     string // of a field that is looked for; "" for one on the way
	children []*node
}

// newTrie joins the paths at their common stems and gives each field its numbers.
func newTrie(key trieKey, paths []string) *node {
	root := &node{}
	t := typeOf(key.apiVersion, key.kind)
	for _, path := range paths {
		at, typ := root, t
		for part := range strings.SplitSeq(path, ".") {
			name := strings.TrimSuffix(part, "[]")
			var numbers []protowire.Number
			numbers, typ = fieldNumbers(typ, name)
			i := slices.IndexFunc(at.children, func(n *node) bool { return n.name == name })
			if i < 0 {
				i = len(at.children)
				at.children = append(at.children, &node{name: name, numbers: numbers})
			}
			at = at.children[i]
		}
		at.path = path
	}
	return root
}

func typeOf(apiVersion, kind string) reflect.Type {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil
	}
	return scheme.Scheme.AllKnownTypes()[gv.WithKind(kind)]
}

// fieldNumbers finds a field of a type: the protobuf numbers on the way to it and the type of its value, or of its elements.
// What JSON inlines is a message of its own in protobuf, so there may be more than one number.
func fieldNumbers(t reflect.Type, name string) ([]protowire.Number, reflect.Type) {
	if t == nil || t.Kind() != reflect.Struct {
		return nil, nil
	}
	for i := range t.NumField() {
		field := t.Field(i)
		number := protobufNumber(field)
		jsonName, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case number == 0:
		case jsonName == name:
			numbers := []protowire.Number{number}
			value := field.Type
			for value.Kind() == reflect.Pointer || value.Kind() == reflect.Slice || value.Kind() == reflect.Map {
				if value.Kind() == reflect.Map {
					numbers = append(numbers, 2) // an entry of a map is a message: key 1, value 2
				}
				value = value.Elem()
			}
			return numbers, value
		case jsonName == "" && options == "inline":
			inner := field.Type
			for inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if numbers, value := fieldNumbers(inner, name); numbers != nil {
				return append([]protowire.Number{number}, numbers...), value
			}
		}
	}
	return nil, nil
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

// inProtobuf looks for the children of the node in a message.
func (n *node) inProtobuf(message []byte, found func(string)) error {
	for _, child := range n.children {
		if len(child.numbers) == 0 {
			continue // the newest version does not have the field
		}
		if err := eachValue(message, child.numbers, func(value []byte, set bool) error {
			if child.path != "" && set {
				found(child.path)
			}
			if len(child.children) > 0 {
				return child.inProtobuf(value, found)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// eachValue calls visit with every value under a chain of field numbers, and whether it is more than empty or zero.
func eachValue(message []byte, numbers []protowire.Number, visit func(value []byte, set bool) error) error {
	for len(message) > 0 {
		number, wireType, n := protowire.ConsumeTag(message)
		if n < 0 {
			return errors.New("a field of it is damaged")
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(number, wireType, message); n < 0 {
			return errors.New("a field of it is damaged")
		}
		value := message[:n]
		message = message[n:]
		if number != numbers[0] {
			continue
		}
		var err error
		switch {
		case wireType != protowire.BytesType && len(numbers) == 1:
			err = visit(nil, slices.ContainsFunc(value, func(b byte) bool { return b != 0 }))
		case wireType == protowire.BytesType:
			inner, _ := protowire.ConsumeBytes(value)
			if len(numbers) > 1 {
				err = eachValue(inner, numbers[1:], visit)
			} else {
				err = visit(inner, len(inner) > 0)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inTree looks for the children of the node in decoded JSON.
func (n *node) inTree(value any, found func(string)) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			n.inTree(element, found)
		}
	case map[string]any:
		for _, child := range n.children {
			inner, ok := value[child.name]
			if !ok {
				continue
			}
			if child.path != "" && !empty(inner) {
				found(child.path)
			}
			child.inTree(inner, found)
		}
	}
}

func empty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return value == ""
	case bool:
		return !value
	case float64:
		return value == 0
	case []any:
		return len(value) == 0
	case map[string]any:
		return len(value) == 0
	}
	return false
}
