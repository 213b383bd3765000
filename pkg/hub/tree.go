package hub

import (
	"fmt"
	"maps"
	"reflect"
)

// lookup follows a path through objects.
func lookup(object map[string]any, p path) (any, bool) {
	var value any = object
	for _, name := range p {
		m, ok := value.(map[string]any)
		if !ok {
			return nil, false
		}
		if value, ok = m[name]; !ok {
			return nil, false
		}
	}
	return value, true
}

// editor changes a tree whose parts others may hold: what it changes it copies first, once, and shares the rest.
type editor struct {
	root map[string]any
	mine map[uintptr]struct{} // the maps that it has copied
}

func newEditor(root map[string]any) *editor { return &editor{root: root, mine: map[uintptr]struct{}{}} }

// own returns the map, or a copy that may be changed.
func (e *editor) own(m map[string]any) map[string]any {
	if _, ok := e.mine[reflect.ValueOf(m).Pointer()]; ok {
		return m
	}
	c := make(map[string]any, len(m)+1)
	maps.Copy(c, m)
	e.mine[reflect.ValueOf(c).Pointer()] = struct{}{}
	return c
}

// set puts a value at a path, and makes the objects around it that are missing.
func (e *editor) set(p path, value any) error {
	e.root = e.own(e.root)
	m := e.root
	for i, name := range p[:len(p)-1] {
		child := map[string]any{}
		switch existing := m[name].(type) {
		case nil:
		case map[string]any:
			child = existing
		default:
			return fmt.Errorf("setting %s: %s is %s", p, p[:i+1], describe(existing))
		}
		child = e.own(child)
		m[name] = child
		m = child
	}
	m[p.last()] = value
	return nil
}

// remove takes a field away, if it is there.
func (e *editor) remove(p path) {
	if _, ok := lookup(e.root, p); !ok {
		return
	}
	e.root = e.own(e.root)
	m := e.root
	for _, name := range p[:len(p)-1] {
		child := e.own(m[name].(map[string]any))
		m[name] = child
		m = child
	}
	delete(m, p.last())
}

// without is a value without the fields at the paths below it.
func without(value any, below []path) any {
	m, ok := value.(map[string]any)
	if !ok || len(below) == 0 {
		return value
	}
	e := newEditor(m)
	for _, p := range below {
		e.remove(p)
	}
	return e.root
}

// prune takes away what the schema has no place for, as the API server does with what a webhook answers, and the nulls
// that it forbids. It shares what stays as it is.
func prune(s *Schema, value any) any {
	if s == nil || s.shape() == "anything" {
		return value
	}
	switch v := value.(type) {
	case map[string]any:
		return pruneObject(s, v)
	case []any:
		if s.Items == nil {
			return v
		}
		var changed []any
		for i, item := range v {
			kept := prune(s.Items, item)
			if changed == nil && !identical(kept, item) {
				changed = append(make([]any, 0, len(v)), v[:i]...)
			}
			if changed != nil {
				changed = append(changed, kept)
			}
		}
		if changed != nil {
			return changed
		}
	}
	return value
}

func pruneObject(s *Schema, object map[string]any) any {
	var changed map[string]any
	edit := func() map[string]any {
		if changed == nil {
			changed = maps.Clone(object)
		}
		return changed
	}
	for name, value := range object {
		child, free := s.child(name)
		if s.Embedded && child == nil {
			free = free || name == "apiVersion" || name == "kind" || name == "metadata"
		}
		switch {
		case child == nil && !free, child != nil && value == nil && !child.Nullable && child.shape() != "anything":
			delete(edit(), name)
		case child != nil:
			if kept := prune(child, value); !identical(kept, value) {
				edit()[name] = kept
			}
		}
	}
	if changed != nil {
		return changed
	}
	return object
}

// identical reports whether two values are one and the same, without looking into them: for scalars equal, for objects
// and lists shared.
func identical(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && len(a) == len(b) && reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
	case []any:
		b, ok := b.([]any)
		return ok && len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}

// equal compares values as JSON does: a number is what it counts, not how it is held.
func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		if identical(a, b) {
			return true
		}
		for name, value := range a {
			other, ok := b[name]
			if !ok || !equal(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equal(a[i], b[i]) {
				return false
			}
		}
		return true
	case int64:
		if f, ok := b.(float64); ok {
			return float64(a) == f
		}
	case float64:
		if n, ok := b.(int64); ok {
			return a == float64(n)
		}
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}
