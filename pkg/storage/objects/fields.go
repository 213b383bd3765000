// Package objects knows the types of built-in objects, of every version that stored them: it decodes stored values
// whole, compares them, and finds fields in them without decoding.
package objects

import (
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
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// Finder finds fields by the numbers that the API types give them. The zero value is ready. Safe for concurrent use.
type Finder struct {
	mu    sync.RWMutex
	tries map[*pair.View][]*trie
}

// Find calls found with each of the paths that the side drops under which the object holds something: a value that is
// not empty, or an empty one where that differs from none (a pointer), below any element of the lists on the way. Paths
// look like "spec.containers[].startupProbe". It also returns of each whether everything below it is what the side has
// as implied. In protobuf a path is found if some version of the object's type has it; objects of types that no version
// has are passed over. The side must not be changed afterwards. Errors: the object is damaged; storage.ErrUnreadable,
// wrapped.
func (f *Finder) Find(e *storage.Envelope, side *pair.View, found func(path string, implied bool)) error {
	if len(side.Drops) == 0 {
		return nil
	}
	t := f.trie(e, side)
	s := t.searches.Get().(*search)
	defer t.searches.Put(s)
	clear(s.states)
	var err error
	switch e.Encoding {
	case storage.Protobuf:
		err = s.inProtobuf(t.root, e.Body)
	case storage.JSON:
		err = s.inJSON(t.root, e.Body)
	case storage.CBOR:
		var object map[string]any
		if object, err = decodeTree(e); err == nil {
			s.inTree(t.root, object)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", storage.ErrUnreadable, err)
	}
	for i := range s.states {
		if s.states[i].found {
			found(side.Drops[i], s.states[i].implied)
		}
	}
	return nil
}

// trie is the one for objects of the value's type; it is built on first use.
func (f *Finder) trie(e *storage.Envelope, side *pair.View) *trie {
	isFor := func(t *trie) bool { return t.apiVersion == string(e.APIVersion) && t.kind == string(e.Kind) }
	f.mu.RLock()
	tries := f.tries[side]
	f.mu.RUnlock()
	if i := slices.IndexFunc(tries, isFor); i >= 0 {
		return tries[i]
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tries == nil {
		f.tries = map[*pair.View][]*trie{}
	}
	tries = f.tries[side]
	if i := slices.IndexFunc(tries, isFor); i >= 0 {
		return tries[i]
	}
	t := newTrie(string(e.APIVersion), string(e.Kind), side)
	f.tries[side] = append(slices.Clip(tries), t) // a copy: readers of the old one hold no lock
	return t
}

// trie holds the paths that a side drops, joined at their common stems, for objects of one type.
type trie struct {
	apiVersion, kind string
	root             *node
	searches         sync.Pool // of *search
}

// node is a field on the way to those that are looked for, one of these, or below it one that has an implied value.
type node struct {
	field
	name     string // in JSON; "" for a message that JSON does not have: what it inlines, the entry of a map
	path     int    // of a field that is looked for: its place among the side's paths; noPath for any other
	implied  string // its value, when hasImplied
	children []*node
	byNumber []*node // the children, and those without a name, by their numbers in protobuf

	hasImplied bool
}

const noPath = -1

// field describes one field of an object's type.
type field struct {
	numbers []protowire.Number // on the way to it; none: no version of the type has it
	value   reflect.Type       // of its value, or of its elements
	gone    string             // the type in gone.tsv, when value is nil
	// an empty value differs from none: it is a pointer, or an element of a list or a map
	present bool
	list    bool
}

// newTrie joins the paths at their common stems and gives each field its numbers.
func newTrie(apiVersion, kind string, side *pair.View) *trie {
	t := &trie{apiVersion: apiVersion, kind: kind, root: &node{field: typeOf(apiVersion, kind), path: noPath}}
	for i, path := range side.Drops {
		t.root.at(path).path = i
	}
	for _, path := range slices.Sorted(maps.Keys(side.Implied)) {
		n := t.root.at(path)
		n.implied, n.hasImplied = side.Implied[path], true
	}
	t.searches.New = func() any { return &search{states: make([]state, len(side.Drops))} }
	return t
}

// at finds the node of a path, or makes it.
func (n *node) at(path string) *node {
	for part := range strings.SplitSeq(path, ".") {
		name := strings.TrimSuffix(part, "[]")
		i := slices.IndexFunc(n.children, func(child *node) bool { return child.name == name })
		if i < 0 {
			i = len(n.children)
			n.children = append(n.children, &node{name: name, path: noPath, field: n.fieldOf(name)})
			n.number(n.children[i])
		}
		n = n.children[i]
	}
	return n
}

// number makes the child reachable through its numbers.
func (n *node) number(child *node) {
	for i, number := range child.numbers {
		for int(number) >= len(n.byNumber) {
			n.byNumber = append(n.byNumber, nil)
		}
		switch {
		case i == len(child.numbers)-1:
			n.byNumber[number] = child
		case n.byNumber[number] == nil:
			n.byNumber[number] = &node{path: noPath}
		}
		n = n.byNumber[number]
	}
}

func typeOf(apiVersion, kind string) field {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return field{}
	}
	if t, ok := scheme.Scheme.AllKnownTypes()[gv.WithKind(kind)]; ok {
		return field{value: t}
	}
	return typeNamed(goneLayouts().kinds[apiVersion+" "+kind])
}

// typeNamed is a type as gone.tsv names it.
func typeNamed(name string) field {
	if t, ok := goTypes[name]; ok {
		return field{value: t}
	}
	return field{gone: name}
}

// fieldOf finds a field of the type by its name in JSON. What JSON inlines is a message of its own in protobuf, so
// there may be more than one number on the way.
func (f *field) fieldOf(name string) field {
	if f.value == nil {
		return goneField(goneLayouts().fields[f.gone], name)
	}
	if f.value.Kind() != reflect.Struct {
		return field{}
	}
	for i := range f.value.NumField() {
		structField := f.value.Field(i)
		number := protobufNumber(structField)
		jsonName, options, _ := strings.Cut(structField.Tag.Get("json"), ",")
		switch {
		case number == 0:
		case jsonName == name:
			return newField(number, structField.Type)
		case jsonName == "" && options == "inline":
			inner := field{value: structField.Type}
			for inner.value.Kind() == reflect.Pointer {
				inner.value = inner.value.Elem()
			}
			if found := inner.fieldOf(name); found.numbers != nil {
				found.numbers = append([]protowire.Number{number}, found.numbers...)
				return found
			}
		}
	}
	return goneField(goneLayouts().removedFrom(f.value), name)
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

// goneField is fieldOf for fields of gone.tsv.
func goneField(fields map[protowire.Number]layoutField, name string) field {
	for number, layout := range fields {
		found := typeNamed(layout.typ)
		switch layout.name {
		case name:
			found.numbers = []protowire.Number{number}
			found.present, found.list = layout.list || layout.mapped, layout.list
			if layout.mapped {
				found.numbers = append(found.numbers, 2)
			}
			return found
		case "":
			if found = found.fieldOf(name); found.numbers != nil {
				found.numbers = append([]protowire.Number{number}, found.numbers...)
				return found
			}
		}
	}
	return field{}
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

// search is one search through one object.
type search struct {
	states []state // by path
}

// state is what is known of a path.
type state struct {
	found   bool
	implied bool // all of its values, so far
	// Of the message that is being read:
	values        int
	valuesImplied bool
}

func (s *search) add(path int, implied bool) {
	st := &s.states[path]
	st.implied = implied && (st.implied || !st.found)
	st.found = true
}

// inProtobuf looks for the children of the node in a message, in one pass over it.
func (s *search) inProtobuf(n *node, message []byte) error {
	if err := s.pass(n.byNumber, message); err != nil {
		return err
	}
	for _, child := range n.children {
		if child.path == noPath {
			continue
		}
		if st := &s.states[child.path]; st.values > 0 {
			s.add(child.path, st.valuesImplied && (st.values == 1 || child.implied != pair.OneElement))
			st.values = 0
		}
	}
	return nil
}

func (s *search) pass(byNumber []*node, message []byte) error {
	w := storage.WalkProto(message)
	for w.Next() {
		if int(w.Number) >= len(byNumber) || byNumber[w.Number] == nil {
			continue
		}
		var err error
		switch child := byNumber[w.Number]; {
		case w.Type == protowire.StartGroupType:
			err = errDamagedField
		case child.name == "":
			err = s.pass(child.byNumber, w.Bytes)
		case child.path == noPath:
			err = s.inProtobuf(child, w.Bytes)
		case child.isSet(w.ProtoField):
			st := &s.states[child.path]
			st.valuesImplied = (st.values == 0 || st.valuesImplied) && child.impliedIn(w.ProtoField)
			st.values++
		}
		if err != nil {
			return err
		}
	}
	if w.Err() != nil {
		return errDamagedField
	}
	return nil
}

// isSet reports whether a value of the field is more than none.
func (f *field) isSet(value storage.ProtoField) bool {
	return f.present || !isZero(value, f.value)
}

// isZero reports whether a value is the zero value: servers write numbers, texts and structs also when they are empty.
func isZero(value storage.ProtoField, t reflect.Type) bool {
	if len(value.Bytes) == 0 {
		return value.Varint == 0
	}
	if t == nil || t.Kind() != reflect.Struct {
		return false
	}
	zero := true
	err := eachField(value.Bytes, func(inner storage.ProtoField) error {
		structField, known := fieldByNumber(t, inner.Number)
		if !known {
			zero = zero && isZero(inner, nil)
			return nil
		}
		f := newField(inner.Number, structField.Type)
		zero = zero && !f.present && isZero(inner, f.value)
		return nil
	})
	return err == nil && zero
}

// impliedIn reports whether a value, or all that is set in it, is what was given as implied.
func (n *node) impliedIn(value storage.ProtoField) bool {
	if n.hasImplied {
		return n.implied == pair.OneElement || n.implied == n.print(value)
	}
	if len(n.children) == 0 || n.list {
		return false
	}
	implied := true
	err := eachField(value.Bytes, func(inner storage.ProtoField) error {
		i := slices.IndexFunc(n.children, func(child *node) bool {
			return slices.Equal(child.numbers, []protowire.Number{inner.Number})
		})
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
func (f *field) print(value storage.ProtoField) string {
	if f.value == nil {
		return ""
	}
	switch f.value.Kind() {
	case reflect.Bool:
		return strconv.FormatBool(value.Varint != 0)
	case reflect.String:
		return string(value.Bytes)
	case reflect.Int, reflect.Int32, reflect.Int64:
		return strconv.FormatInt(int64(value.Varint), 10)
	}
	if f.value == reflect.TypeFor[intstr.IntOrString]() { // type 1, intVal 2, strVal 3
		text := "0"
		_ = eachField(value.Bytes, func(inner storage.ProtoField) error {
			switch {
			case inner.Number == 2 && inner.Varint != 0:
				text = strconv.FormatInt(int64(inner.Varint), 10)
			case inner.Number == 3 && len(inner.Bytes) > 0:
				text = string(inner.Bytes)
			}
			return nil
		})
		return text
	}
	return ""
}

var errDamagedJSON = errors.New("its JSON is damaged")

// inJSON looks for the children of the node in a JSON value, an object or each element of an array, and decodes no more
// than the values that are compared.
func (s *search) inJSON(n *node, value []byte) error {
	var err, inner error
	switch firstByte(value) {
	case '{':
		err = storage.JSONMembers(value, func(key, member []byte) bool {
			i := slices.IndexFunc(n.children, func(child *node) bool { return child.name == string(key) })
			switch {
			case i < 0:
			case n.children[i].path == noPath:
				inner = s.inJSON(n.children[i], member)
			case !emptyJSON(member, n.children[i].present):
				var implied bool
				implied, inner = n.children[i].impliedInJSON(member)
				s.add(n.children[i].path, implied)
			}
			return inner == nil
		})
	case '[':
		err = storage.JSONElements(value, func(element []byte) bool {
			if firstByte(element) == '[' {
				inner = errDamagedJSON // no type has lists of lists
			} else {
				inner = s.inJSON(n, element)
			}
			return inner == nil
		})
	}
	if err != nil {
		return errDamagedJSON
	}
	return inner
}

func firstByte(value []byte) byte {
	for _, c := range value {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c
		}
	}
	return 0
}

// emptyJSON is isEmpty for JSON that is not decoded.
func emptyJSON(value []byte, present bool) bool {
	switch first := firstByte(value); first {
	case '{', '[':
		nothing := true
		visit := func() bool { nothing = false; return false }
		if first == '[' {
			_ = storage.JSONElements(value, func([]byte) bool { return visit() })
			return nothing
		}
		_ = storage.JSONMembers(value, func(_, _ []byte) bool { return visit() })
		return nothing && !present
	case 'n':
		return true
	case '"':
		return len(value) == 2 && !present
	case 'f':
		return !present
	case '0', '-':
		number, err := strconv.ParseFloat(string(value), 64)
		return err == nil && number == 0 && !present
	}
	return false
}

func (n *node) impliedInJSON(value []byte) (bool, error) {
	if !n.hasImplied && len(n.children) == 0 {
		return false, nil
	}
	var decoded any
	if err := utiljson.Unmarshal(value, &decoded); err != nil {
		return false, errDamagedJSON
	}
	return n.impliedInTree(decoded), nil
}

// inTree looks for the children of the node in what CBOR decodes to.
func (s *search) inTree(n *node, value any) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			s.inTree(n, element)
		}
	case map[string]any:
		for _, child := range n.children {
			inner, ok := value[child.name]
			switch {
			case !ok:
			case child.path == noPath:
				s.inTree(child, inner)
			case !isEmpty(inner, child.present):
				s.add(child.path, child.impliedInTree(inner))
			}
		}
	}
}

// impliedInTree is impliedIn for decoded JSON and CBOR.
func (n *node) impliedInTree(value any) bool {
	object, isObject := value.(map[string]any)
	list, isList := value.([]any)
	switch {
	case n.hasImplied && n.implied == pair.OneElement:
		return isList && len(list) == 1
	case n.hasImplied:
		return n.implied == fmt.Sprint(value)
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

// isEmpty reports whether a value is empty; where an empty value differs from none, only null and an empty list are.
func isEmpty(value any, present bool) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return value == "" && !present
	case bool:
		return !value && !present
	case int64:
		return value == 0 && !present
	case float64:
		return value == 0 && !present
	case []any:
		return len(value) == 0
	case map[string]any:
		return len(value) == 0 && !present
	}
	return false
}
