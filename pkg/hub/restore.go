package hub

import (
	"fmt"
	"maps"
	"slices"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Refusal is a value of the annotation that was not put back: the schema of the version does not allow it. The
// annotation still has it, unless it is too large.
type Refusal struct {
	Version string
	Why     string // the word of the schema, such as maximum

	path path
}

// String names the version, the field and the word. Parts of it are a client's.
func (r Refusal) String() string { return fmt.Sprintf("%s: %s: %s", r.Version, r.path, r.Why) }

// restorer puts back what is kept, as far as the version allows it. API servers validate what a client writes, and not
// what a conversion answers, so what a client has made up in an annotation is judged here: each value by what the
// schema says of its field, and what stands around it by what the schema says of that as a whole. What the object
// breaks without the annotation is not held against what is kept.
type restorer struct {
	refusals []Refusal
	version  string
}

func (r *restorer) refuse(at *place, why string) {
	r.refusals = append(r.refusals, Refusal{Version: r.version, Why: why, path: at.path()})
}

// place is where in an object something is put back.
type place struct {
	schema   *Schema   // what may stand there; nil for anything
	every    []*Schema // all that judges it: the schema and what its allOf says, and the same of what allOf around says
	around   *place    // nil for the whole object
	name     string
	depth    int
	lists    int  // in which it stands
	metadata bool // it is the metadata or in it
}

func rootPlace(s *Schema) *place { return &place{schema: s, every: s.words.every} }

func (p *place) path() path {
	if p.around == nil {
		return nil
	}
	return p.around.path().plus(p.name)
}

// inside is a place in this one, of which each of the schemas says so much.
func (p *place) inside(name string, s *Schema, lists int, says func(*Schema) *Schema) *place {
	in := &place{schema: s, around: p, name: name, depth: p.depth + 1, lists: lists,
		metadata: p.metadata || p.depth == 0 && name == "metadata"}
	for _, of := range p.every {
		if of = says(of); of == nil {
			continue
		}
		if in.every == nil {
			in.every = slices.Clip(of.words.every)
		} else {
			in.every = append(in.every, of.words.every...)
		}
	}
	return in
}

// field is the place of a field. Known is false where nothing is put back: the version has no such field, or the
// conversion sets it.
func (p *place) field(name string) (field *place, known bool) {
	switch {
	case p.depth == 0 && (name == "apiVersion" || name == "kind"),
		p.isMetadata() && name != "labels" && name != "annotations":
		return nil, false
	}
	child, free := p.schema.child(name)
	if child == nil && p.schema != nil && p.schema.Embedded {
		free = free || name == "apiVersion" || name == "kind" || name == "metadata"
	}
	if child == nil && !free {
		return nil, false
	}
	return p.inside(name, child, p.lists, func(s *Schema) *Schema { return s.field(name) }), true
}

// element is the place of an element of the list.
func (p *place) element() *place {
	var items *Schema
	if p.schema != nil {
		items = p.schema.Items
	}
	return p.inside(anyElement, items, p.lists+1, func(s *Schema) *Schema { return s.Items })
}

func (p *place) isMetadata() bool { return p.depth == 1 && p.metadata }

// refuses says why a value may not stand at the place; "" when it may.
func (p *place) refuses(value any) string {
	if p.schema.mismatch(value) != "" {
		return "type"
	}
	for i := 0; i < len(p.every); i += len(p.every[i].words.every) { // each with its allOf
		if word := p.every[i].refuses(value); word != "" {
			return word
		}
	}
	if p.metadata {
		e := newEditor(map[string]any{})
		if e.set(p.path(), value) != nil || labelled(e.root) != nil {
			return "is no label or annotation"
		}
	}
	return ""
}

// requires reports whether a field may not be taken from the object at the place.
func (p *place) requires(name string) bool {
	return slices.ContainsFunc(p.every, func(s *Schema) bool { return s.requires(name) })
}

// takes reports whether an object breaks no word as a whole.
func (p *place) takes(object map[string]any) bool {
	return !slices.ContainsFunc(p.every, func(s *Schema) bool { return len(s.broken(object, true)) > 0 })
}

// worse says which word an object or a list breaks as a whole that it did not break before; "" for none.
func (p *place) worse(before, after any) string {
	for _, s := range p.every {
		broken := s.broken(after, false)
		if len(broken) == 0 {
			continue
		}
		known := s.broken(before, false)
		for _, word := range broken {
			if !slices.Contains(known, word) {
				return word
			}
		}
	}
	return ""
}

// restore puts back what is kept of a place, where the way back still gives what it gave. Left is the part of it that
// the schema refuses. It does not change its input.
func (r *restorer) restore(k *kept, current any, there bool, at *place) (value any, is bool, left *kept) {
	switch {
	case k == nil:
	case k.Fields != nil:
		if object, ok := current.(map[string]any); ok {
			value, left = r.fields(k, object, at)
			return value, true, left
		}
	case k.Elements != nil:
		if list, ok := current.([]any); ok && at.lists < limitKeptLists {
			value, left = r.elements(k, list, at)
			return value, true, left
		}
	case at.depth == 0 || at.isMetadata() || !k.fits(current, there): // they are objects, or it was changed
	case k.Absent:
		return nil, false, nil
	default:
		if utiljson.Unmarshal(k.Value, &value) != nil {
			break
		}
		value = prune(at.schema, value)
		if why := at.refuses(value); why != "" {
			r.refuse(at, why)
			return current, there, k
		}
		return value, true, nil
	}
	return current, there, nil
}

func (r *restorer) fields(k *kept, object map[string]any, at *place) (map[string]any, *kept) {
	restored, left := maps.Clone(object), map[string]*kept{}
	var changed []string
	for _, name := range sortedKeys(k.Fields) {
		field, known := at.field(name)
		if !known {
			continue
		}
		before, was := object[name]
		value, is, rest := r.restore(k.Fields[name], before, was, field)
		switch {
		case was && !is && at.requires(name):
			r.refuse(field, "required")
			rest = k.Fields[name]
		case was != is || is && !identical(before, value):
			putField(restored, name, value, is)
			changed = append(changed, name)
		}
		if rest != nil {
			left[name] = rest
		}
	}
	if len(changed) > 0 && !at.takes(restored) {
		restored = r.oneByOne(k, object, restored, changed, left, at)
	}
	if len(left) == 0 {
		return restored, nil
	}
	return restored, &kept{Fields: left}
}

func putField(object map[string]any, name string, value any, is bool) {
	if is {
		object[name] = value
	} else {
		delete(object, name)
	}
}

// limitAttempts is how often an object is judged with some more of its fields: each time all that is in it is read.
const limitAttempts = 16

// oneByOne puts those of the fields back that make the object no worse after those before them, and many fields by
// groups. Where what is kept is not what breaks the object, all are put back.
func (r *restorer) oneByOne(k *kept, object, all map[string]any, changed []string, left map[string]*kept,
	at *place) map[string]any {
	out := object
	for group := range slices.Chunk(changed, (len(changed)+limitAttempts-1)/limitAttempts) {
		more := maps.Clone(out)
		for _, name := range group {
			value, is := all[name]
			putField(more, name, value, is)
		}
		why := at.worse(out, more)
		if why == "" {
			out = more
			continue
		}
		for _, name := range group {
			field, _ := at.field(name)
			r.refuse(field, why)
			left[name] = k.Fields[name]
		}
	}
	return out
}

func (r *restorer) elements(k *kept, list []any, at *place) ([]any, *kept) {
	restored, left, inner := slices.Clone(list), []*keptElement{}, at.element()
	eachKept(list, k.Elements, func(e *keptElement, i int) {
		value, is, rest := r.restore(e.Kept, list[i], true, inner)
		if !is { // what is kept takes no element away
			return
		}
		restored[i] = value
		if rest != nil {
			left = append(left, newElement(i, value, slices.Sorted(maps.Keys(e.Keys)), rest))
		}
	})
	if why := at.worse(list, restored); why != "" {
		r.refuse(at, why)
		return list, k
	}
	if len(left) == 0 {
		return restored, nil
	}
	return restored, &kept{Elements: left}
}

// remains is the part of what was left that is of use after the way to another version: nothing has changed its field,
// and the way back gives the field as it is.
func remains(k *kept, was any, wasThere bool, back any, backThere bool, lists int) *kept {
	switch {
	case k == nil:
	case k.Fields != nil:
		was, isObject := was.(map[string]any)
		back, ok := back.(map[string]any)
		if !isObject || !ok {
			return nil
		}
		fields := map[string]*kept{}
		for name, field := range k.Fields {
			wasValue, wasThere := was[name]
			backValue, backThere := back[name]
			if rest := remains(field, wasValue, wasThere, backValue, backThere, lists); rest != nil {
				fields[name] = rest
			}
		}
		if len(fields) > 0 {
			return &kept{Fields: fields}
		}
	case k.Elements != nil:
		was, isList := was.([]any)
		back, ok := back.([]any)
		if !isList || !ok || len(was) != len(back) || lists == limitKeptLists {
			return nil
		}
		var elements []*keptElement
		eachKept(was, k.Elements, func(e *keptElement, i int) {
			if rest := remains(e.Kept, was[i], true, back[i], true, lists+1); rest != nil {
				elements = append(elements, newElement(i, back[i], slices.Sorted(maps.Keys(e.Keys)), rest))
			}
		})
		if len(elements) > 0 {
			return &kept{Elements: elements}
		}
	case k.fits(was, wasThere) && wasThere == backThere && (!wasThere || equal(was, back)):
		return k
	}
	return nil
}

// newElement is what is kept of an object in a list, which is found by these keys if it has them all.
func newElement(i int, object any, keys []string, k *kept) *keptElement {
	o, _ := object.(map[string]any)
	e := &keptElement{Index: i, Keys: keysOf(o, keys), Kept: k}
	if e.Keys == nil {
		e.Base = digest(object)
	}
	return e
}

// merge joins two parts of what is kept of one place. Where both have a value, the first counts.
func merge(a, b *kept) *kept {
	switch {
	case a == nil:
		return b
	case b == nil:
	case a.Fields != nil && b.Fields != nil:
		fields := maps.Clone(a.Fields)
		for name, field := range b.Fields {
			fields[name] = merge(fields[name], field)
		}
		return &kept{Fields: fields}
	case a.Elements != nil && b.Elements != nil:
		at := map[int]int{}
		elements := slices.Clone(a.Elements)
		for i, e := range elements {
			at[e.Index] = i
		}
		for _, e := range b.Elements {
			if i, ok := at[e.Index]; ok {
				both := *elements[i]
				both.Kept = merge(both.Kept, e.Kept)
				elements[i] = &both
			} else {
				elements = append(elements, e)
			}
		}
		slices.SortStableFunc(elements, func(a, b *keptElement) int { return a.Index - b.Index })
		return &kept{Elements: elements}
	}
	return a
}
