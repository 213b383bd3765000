package hub

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// KeptAnnotation holds what the version of the object cannot: for each other version, what a conversion to that version
// cannot compute.
//
// It is written by comparing the object with what comes back from its conversion, so it holds what any rule lost, not
// only what the rule keep names, and nothing when everything comes back. Each entry carries a digest of what the way
// back gave for that field. It is put back only where the way back still gives the same: if a client has changed the
// field meanwhile, or in a list the element, the change wins and the entry is stale. What is kept of other fields is
// put back all the same. What the schema refuses is not put back, and stays in the annotation under the version of the
// object itself.
const KeptAnnotation = "conversion.kubefusion.dev/kept"

const (
	// limitKeptBytes bounds the annotation: API servers take 256 KiB of all annotations together.
	limitKeptBytes = 128 << 10
	// limitKeptLists is in how many lists, one in another, elements are told apart: for each, all that is in them is
	// read once more.
	limitKeptLists = 16
)

// kept is the difference between a field as it was and as the way back gives it. It is one of: a value, fields of an
// object, elements of a list.
type kept struct {
	Value    json.RawMessage  `json:"value,omitempty"`  // as it was
	Absent   bool             `json:"absent,omitempty"` // it was not there
	Base     string           `json:"base,omitempty"`   // digest of what the way back gives; "" where that is nothing
	Fields   map[string]*kept `json:"fields,omitempty"`
	Elements []*keptElement   `json:"elements,omitempty"`
}

// keptElement is of one element of a list: the one with the keys, in a list that has keys, otherwise the one that is
// what the way back gave.
type keptElement struct {
	Keys  map[string]any `json:"keys,omitempty"`
	Base  string         `json:"base,omitempty"`
	Index int            `json:"index"`
	Kept  *kept          `json:"kept"`
}

// digest of a value. Numbers count as JSON writes them, objects by their sorted names.
func digest(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic("hub: internal error: " + err.Error()) // what was decoded from JSON
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

func keepValue(was any, wasThere bool, back any, backThere bool) *kept {
	k := &kept{Absent: !wasThere}
	if wasThere {
		text, err := json.Marshal(was)
		if err != nil {
			panic("hub: internal error: " + err.Error())
		}
		k.Value = text
	}
	if backThere {
		k.Base = digest(back)
	}
	return k
}

// difference is what has to be kept of a value so that restore makes it again from what the way back gives; nil for
// nothing. The value is in so many lists.
func difference(was, back any, s *Schema, lists int) *kept {
	if identical(was, back) {
		return nil
	}
	switch was := was.(type) {
	case map[string]any:
		if back, ok := back.(map[string]any); ok {
			return differentFields(was, back, s, lists)
		}
	case []any:
		if back, ok := back.([]any); ok && len(was) == len(back) && lists < limitKeptLists {
			if k, ok := differentElements(was, back, s, lists+1); ok {
				return k
			}
		}
	}
	if equal(was, back) {
		return nil
	}
	return keepValue(was, true, back, true)
}

func differentFields(was, back map[string]any, s *Schema, lists int) *kept {
	k := &kept{Fields: map[string]*kept{}}
	for name, value := range was {
		other, ok := back[name]
		if !ok {
			k.Fields[name] = keepValue(value, true, nil, false)
			continue
		}
		var child *Schema
		if s != nil {
			child, _ = s.child(name)
		}
		if d := difference(value, other, child, lists); d != nil {
			k.Fields[name] = d
		}
	}
	for name, other := range back {
		if _, ok := was[name]; !ok {
			k.Fields[name] = keepValue(nil, false, other, true)
		}
	}
	if len(k.Fields) == 0 {
		return nil
	}
	return k
}

// differentElements compares lists of one length element by element. It gives up, with false, where an element that is
// no object differs: the list is kept as a whole then.
func differentElements(was, back []any, s *Schema, lists int) (*kept, bool) {
	k := &kept{}
	var items *Schema
	var keys []string
	if s != nil {
		items = s.Items
		if s.ListType == "map" {
			keys = s.ListMapKeys
		}
	}
	for i := range was {
		if equal(was[i], back[i]) {
			continue
		}
		a, ok := was[i].(map[string]any)
		b, isObject := back[i].(map[string]any)
		if !ok || !isObject {
			return nil, false
		}
		k.Elements = append(k.Elements, newElement(i, b, keys, differentFields(a, b, items, lists)))
	}
	if len(k.Elements) == 0 {
		return nil, true
	}
	return k, true
}

// keysOf are the fields that tell an element of a list from the others; nil when it lacks one.
func keysOf(element map[string]any, names []string) map[string]any {
	if len(names) == 0 {
		return nil
	}
	keys := make(map[string]any, len(names))
	for _, name := range names {
		value, ok := element[name]
		if !ok {
			return nil
		}
		keys[name] = value
	}
	return keys
}

// fits reports whether the way back still gives what it gave where a value is kept.
func (k *kept) fits(current any, there bool) bool {
	return there == (k.Base != "") && (!there || digest(current) == k.Base)
}

// eachKept finds for each kept element the one of the list that it is of: first where it stood, then wherever it has
// moved. A client may have written thousands of them: nothing is done of each with all of the list.
func eachKept(list []any, elements []*keptElement, found func(e *keptElement, i int)) {
	l := &elementList{list: list, digests: map[int]string{}, taken: make([]bool, len(list)), found: found}
	var moved []*keptElement
	for _, e := range elements {
		if e != nil && !l.put(e, e.Index) {
			moved = append(moved, e)
		}
	}
	var byDigest, byKeys map[string][]int
	var names []string // of the keys, which are those of the list
	for _, e := range moved {
		switch {
		case e.Keys != nil && byKeys == nil:
			names = slices.Sorted(maps.Keys(e.Keys))
			byKeys = l.by(func(i int) string { return l.keysAt(i, names) })
		case e.Keys == nil && byDigest == nil:
			byDigest = l.by(l.digestAt)
		}
		if e.Keys == nil {
			l.putFirst(e, byDigest, e.Base)
		} else if len(e.Keys) == len(names) {
			l.putFirst(e, byKeys, digest(e.Keys))
		}
	}
}

// elementList is a list of whose elements something is kept.
type elementList struct {
	list    []any
	taken   []bool
	digests map[int]string // of elements, as far as they are known
	found   func(e *keptElement, i int)
}

// by are the places of elements by what is said of them; "" for nothing.
func (l *elementList) by(what func(i int) string) map[string][]int {
	places := map[string][]int{}
	for i := range l.list {
		if text := what(i); text != "" {
			places[text] = append(places[text], i)
		}
	}
	return places
}

// putFirst puts a kept element to the first of the places that is free.
func (l *elementList) putFirst(e *keptElement, places map[string][]int, at string) {
	for len(places[at]) > 0 {
		first := places[at][0]
		places[at] = places[at][1:]
		if l.put(e, first) {
			return
		}
	}
}

func (l *elementList) put(e *keptElement, i int) bool {
	if i < 0 || i >= len(l.list) || l.taken[i] || !l.isAt(e, i) {
		return false
	}
	l.taken[i] = true
	l.found(e, i)
	return true
}

func (l *elementList) isAt(e *keptElement, i int) bool {
	if e.Keys == nil {
		return e.Base != "" && l.digestAt(i) == e.Base
	}
	object, ok := l.list[i].(map[string]any)
	for name, want := range e.Keys {
		if got, there := object[name]; !there || !equal(got, want) {
			return false
		}
	}
	return ok
}

// digestAt is the digest of an element; "" where it is no object.
func (l *elementList) digestAt(i int) string {
	object, ok := l.list[i].(map[string]any)
	if !ok {
		return ""
	}
	if _, known := l.digests[i]; !known {
		l.digests[i] = digest(object)
	}
	return l.digests[i]
}

// keysAt is the digest of the keys of an element; "" where it lacks one.
func (l *elementList) keysAt(i int, names []string) string {
	object, ok := l.list[i].(map[string]any)
	if !ok {
		return ""
	}
	keys := map[string]any{}
	for _, name := range names {
		if keys[name], ok = object[name]; !ok {
			return ""
		}
	}
	return digest(keys)
}

// takeKept separates an object from its annotation. An annotation that cannot be read is left out: another client has
// written it.
func takeKept(object map[string]any) (map[string]any, map[string]*kept) {
	at := path{"metadata", "annotations", KeptAnnotation}
	value, ok := lookup(object, at)
	if !ok {
		return object, nil
	}
	e := newEditor(object)
	e.remove(at)
	if annotations, _ := lookup(e.root, at.parent()); len(annotations.(map[string]any)) == 0 {
		e.remove(at.parent())
	}
	var all map[string]*kept
	if text, ok := value.(string); !ok || len(text) > limitKeptBytes ||
		utiljson.Unmarshal([]byte(text), &all) != nil {
		return e.root, nil
	}
	return e.root, all
}

// putKept writes the annotation, if there is something to keep.
func putKept(object map[string]any, all map[string]*kept) (map[string]any, error) {
	if len(all) == 0 {
		return object, nil
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	if len(text) > limitKeptBytes {
		return nil, fmt.Errorf("what the version cannot hold takes %d bytes; the annotation %s may have %d", len(text),
			KeptAnnotation, limitKeptBytes)
	}
	e := newEditor(object)
	if err := e.set(path{"metadata", "annotations", KeptAnnotation}, string(text)); err != nil {
		return nil, err
	}
	return e.root, nil
}
