package convert

import (
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
)

// written is unstructuredOf and walk.compare in one, for what a conversion yields is made of maps once, and walked
// through while it is. TestGuidedWritingIsWritingAndComparing holds the two against each other.
func (w *walk) written(in map[string]any, object runtime.Object, source, target *shape) (map[string]any, error) {
	of := reflect.ValueOf(object).Elem()
	value, err := guidedOf(of.Type())(w, in, of, source, target)
	if out, ok := value.(map[string]any); ok && err == nil {
		return out, nil
	}
	out, err := unstructuredOf(object)
	if err != nil {
		return nil, err
	}
	*w = walk{}
	w.compare(in, out, source, target)
	return out, nil
}

// A guided writer writes a Go value beside what the input says in its place.
type guided func(w *walk, in any, of reflect.Value, source, target *shape) (any, error)

var guides sync.Map // reflect.Type -> guided

func guidedOf(t reflect.Type) guided {
	if known, ok := guides.Load(t); ok {
		return known.(guided)
	}
	write := newGuided(t)
	guides.Store(t, write)
	return write
}

func newGuided(t reflect.Type) guided {
	leaf := guidedLeaf(lazyWriter(t))
	switch {
	case t.Kind() == reflect.Pointer:
		write := lazyGuided(t.Elem())
		return func(w *walk, in any, of reflect.Value, source, target *shape) (any, error) {
			if of.IsNil() {
				return leaf(w, in, of, source, target)
			}
			return write(w, in, of.Elem(), source, target)
		}
	case writesItself(t):
	case t.Kind() == reflect.Struct:
		if fields, ok := fieldWriters(t, nil); ok {
			return guidedStruct(fields, leaf)
		}
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return guidedSlice(t, leaf)
	}
	return leaf
}

// lazyGuided is the guided writer of a type, which may hold the type that is asked for it.
func lazyGuided(t reflect.Type) guided {
	find := sync.OnceValue(func() guided { return guidedOf(t) })
	return func(w *walk, in any, of reflect.Value, source, target *shape) (any, error) {
		return find()(w, in, of, source, target)
	}
}

// guidedLeaf writes and compares one after the other.
func guidedLeaf(write writer) guided {
	return func(w *walk, in any, of reflect.Value, source, target *shape) (any, error) {
		value, err := write(of)
		if err == nil && !sameSingle(in, value) && w.leaf(in, value, source, target) {
			value = runtime.DeepCopyJSONValue(in)
		}
		return value, err
	}
}

func guidedSlice(t reflect.Type, leaf guided) guided {
	write := lazyGuided(t.Elem())
	return func(w *walk, in any, of reflect.Value, source, target *shape) (any, error) {
		said, ok := in.([]any)
		if !ok || len(said) != of.Len() || source.value() || of.IsNil() {
			return leaf(w, in, of, source, target)
		}
		list := make([]any, len(said))
		from, to := source.ofElements(), target.ofElements()
		for i := range list {
			var err error
			if list[i], err = write(w, said[i], of.Index(i), from, to); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
}

func guidedStruct(fields []fieldWriter, leaf guided) guided {
	return func(w *walk, in any, of reflect.Value, source, target *shape) (any, error) {
		said, ok := in.(map[string]any)
		if !ok || source.value() {
			return leaf(w, in, of, source, target)
		}
		w.depth++
		defer func() { w.depth-- }()
		out := make(map[string]any, 4)
		shared := 0
		for i := range fields {
			field := &fields[i]
			place, there := field.in(of)
			if !there {
				continue
			}
			value, given := said[field.name]
			var err error
			switch ofKind := w.depth == 1 && (field.name == "apiVersion" || field.name == "kind"); {
			case given && !ofKind:
				out[field.name], err = field.guided(w, value, place, source.at(field.name), target.at(field.name))
			case given:
				out[field.name], err = field.write(place)
			case ofKind:
				out[field.name], err = field.write(place)
			case source == target:
				err = w.derive(out, field, place, target)
			default:
				_, err = w.fresh(out, field, place, target)
			}
			if err != nil {
				return nil, err
			}
			if given {
				shared++
			}
		}
		if shared < len(said) {
			w.left(said, out, target)
		}
		return out, nil
	}
}

// derive writes a field that the input does not name, within what both versions write the same way.
func (w *walk) derive(out map[string]any, field *fieldWriter, of reflect.Value, target *shape) error {
	value, err := field.write(of)
	if err == nil && value != nil {
		out[field.name] = value
		if isEmpty(value) {
			w.addEmpty(out, field.name, value, target)
		} else {
			w.addDerived(out, field.name, value, target)
		}
	}
	return err
}

// fresh writes a field that the input does not name, and notes what says nothing of it. It reports whether it says
// something.
func (w *walk) fresh(out map[string]any, field *fieldWriter, of reflect.Value, target *shape) (says bool, err error) {
	void, empty := len(w.void), len(w.empty)
	value, says, err := field.fresh(w, of, target.at(field.name))
	switch {
	case err != nil || value == nil:
		return false, err
	case !says: // as it is, as a whole
		if value, err = field.write(of); err != nil {
			return false, err
		}
		w.void, w.empty = w.void[:void], w.empty[:empty]
		w.addEmpty(out, field.name, value, target)
	}
	out[field.name] = value
	return says, nil
}

// A fresher writes a value that is new, without what is nil in it, and notes what in it says nothing. It reports
// whether the value as a whole says something.
type fresher func(w *walk, of reflect.Value, target *shape) (value any, says bool, err error)

var freshers sync.Map // reflect.Type -> fresher

func fresherOf(t reflect.Type) fresher {
	if known, ok := freshers.Load(t); ok {
		return known.(fresher)
	}
	write := newFresher(t)
	freshers.Store(t, write)
	return write
}

// lazyFresher is that of a type, which may hold the type that is asked for it.
func lazyFresher(t reflect.Type) fresher {
	find := sync.OnceValue(func() fresher { return fresherOf(t) })
	return func(w *walk, of reflect.Value, target *shape) (any, bool, error) { return find()(w, of, target) }
}

func newFresher(t reflect.Type) fresher {
	switch {
	case t.Kind() == reflect.Pointer:
		write := lazyFresher(t.Elem())
		return func(w *walk, of reflect.Value, target *shape) (any, bool, error) {
			if of.IsNil() {
				return nil, false, nil
			}
			return write(w, of.Elem(), target)
		}
	case writesItself(t):
	case t.Kind() == reflect.Struct:
		if fields, ok := fieldWriters(t, nil); ok {
			return freshStruct(fields)
		}
	}
	write := lazyWriter(t)
	return func(w *walk, of reflect.Value, target *shape) (any, bool, error) {
		value, err := write(of)
		if err != nil || isEmpty(value) {
			return value, false, err
		}
		w.addEmpties(value, target)
		return value, true, nil
	}
}

func freshStruct(fields []fieldWriter) fresher {
	return func(w *walk, of reflect.Value, target *shape) (any, bool, error) {
		out := make(map[string]any, 4)
		all := false
		for i := range fields {
			field := &fields[i]
			place, there := field.in(of)
			if !there {
				continue
			}
			says, err := w.fresh(out, field, place, target)
			if err != nil {
				return nil, false, err
			}
			all = all || says
		}
		return out, all, nil
	}
}

// left looks at what the input says and the output does not.
func (w *walk) left(in, out map[string]any, target *shape) {
	for key, value := range in {
		if _, ok := out[key]; !ok && (w.depth > 1 || key != "apiVersion" && key != "kind") {
			w.missing(key, value, out, target)
		}
	}
}
