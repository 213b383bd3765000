package hub

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// program is the rules of one direction on one level: that of the object, or that of the elements of a list.
type program struct {
	source, target *Schema
	taken          []path // fields of the source that are not copied: rules say what becomes of them
	dropped        []path // those of them that are lost
	steps          []step // by the length of the target's path: what is set last stands inside what was set before
	fills          []fill
}

// step computes a field of the target from the source.
type step struct {
	rule   string // its place in the file and what it is: what errors name
	target path
	run    func(r *run, source map[string]any) (value any, there bool, err error)
	// several fields at once; run is nil then
	spread func(source map[string]any) (map[string]any, error)
	into   []path
}

// fill sets a field that nothing has set.
type fill struct {
	target path
	value  any
	always bool // also one that is there
	must   int  // how many of the objects around it, from the inmost, are made when they are missing
}

// run is one conversion: what it may cost, and the object for the expressions of elements.
type run struct {
	object map[string]any
	budget *uint64
}

func (p *program) apply(object map[string]any, budget *uint64) (map[string]any, error) {
	return p.level(&run{object: object, budget: budget}, object)
}

func (p *program) level(r *run, source map[string]any) (map[string]any, error) {
	e := newEditor(source)
	for _, taken := range p.taken {
		e.remove(taken)
	}
	for _, s := range p.steps {
		if err := s.apply(r, source, e); err != nil {
			return nil, fmt.Errorf("%s: %w", s.rule, err)
		}
	}
	for _, f := range p.fills {
		if err := f.apply(e); err != nil {
			return nil, err
		}
	}
	return prune(p.target, e.root).(map[string]any), nil
}

func (s step) apply(r *run, source map[string]any, e *editor) error {
	if s.spread == nil {
		value, there, err := s.run(r, source)
		if err != nil || !there {
			return err
		}
		return e.set(s.target, value)
	}
	values, err := s.spread(source)
	if err != nil {
		return err
	}
	for _, p := range s.into {
		if value, ok := values[p.String()]; ok {
			if err := e.set(p, value); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f fill) apply(e *editor) error {
	if _, there := lookup(e.root, f.target); there && !f.always {
		return nil
	}
	around := f.target.parent()
	for len(around) > 0 {
		if value, ok := lookup(e.root, around); ok && value != nil {
			break
		}
		around = around.parent()
	}
	if len(f.target)-1-len(around) > f.must {
		return nil
	}
	return e.set(f.target, f.value)
}

// makes reports whether the field is there after the fill.
func (f fill) makes(p path) bool { return f.target.within(p) && f.must >= len(f.target)-len(p) }

// withoutDropped is the object without what its rules lose, here and in the elements of lists.
func (p *program) withoutDropped(object map[string]any) map[string]any {
	if len(p.dropped) == 0 {
		return object
	}
	e := newEditor(object)
	for _, d := range p.dropped {
		removeBelow(e, d)
	}
	return e.root
}

// anyElement stands in a path for every element of a list or value of a map.
const anyElement = "*"

func removeBelow(e *editor, p path) {
	i := slices.Index(p, anyElement)
	if i < 0 {
		e.remove(p)
		return
	}
	value, _ := lookup(e.root, p[:i])
	inner := func(value any) any {
		object, ok := value.(map[string]any)
		if !ok {
			return value
		}
		below := newEditor(object)
		removeBelow(below, p[i+1:])
		return below.root
	}
	switch value := value.(type) {
	case []any:
		list := make([]any, len(value))
		for j, item := range value {
			list[j] = inner(item)
		}
		_ = e.set(p[:i], list) // it is there
	case map[string]any:
		object := make(map[string]any, len(value))
		for name, item := range value {
			object[name] = inner(item)
		}
		_ = e.set(p[:i], object)
	}
}

// The steps. A null passes through those that compute something: it says nothing that could be computed with.

func moveStep(from path, inner []path) func(*run, map[string]any) (any, bool, error) {
	return func(_ *run, source map[string]any) (any, bool, error) {
		value, ok := lookup(source, from)
		return without(value, inner), ok, nil
	}
}

func valuesStep(from path, table []ValuePair, toHub, keepOthers bool) func(*run, map[string]any) (any, bool, error) {
	return func(_ *run, source map[string]any) (any, bool, error) {
		value, ok := lookup(source, from)
		if !ok || value == nil {
			return value, ok, nil
		}
		for _, pair := range table {
			have, want, only := pair.Field, pair.Hub, "fromHub"
			if !toHub {
				have, want, only = pair.Hub, pair.Field, "toHub"
			}
			if pair.Only != only && equal(have, value) {
				return want, true, nil
			}
		}
		if keepOthers {
			return value, true, nil
		}
		return nil, false, fmt.Errorf("%s: no value is given for %s", from, describe(value))
	}
}

func splitStep(from path, separator string, into []path, schemas []*Schema) func(map[string]any) (map[string]any,
	error) {
	return func(source map[string]any) (map[string]any, error) {
		value, ok := lookup(source, from)
		if !ok || value == nil {
			return nil, nil
		}
		text, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("%s: is %s, want a text to split", from, describe(value))
		}
		values := map[string]any{}
		for i, part := range strings.SplitN(text, separator, len(into)) {
			value, err := parseScalar(part, schemas[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %q: part %d: %w", from, shorten(text), i+1, err)
			}
			values[into[i].String()] = value
		}
		return values, nil
	}
}

func parseScalar(text string, s *Schema) (any, error) {
	if s == nil || s.IntOrString {
		return text, nil
	}
	switch s.Type {
	case "integer":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || strconv.FormatInt(n, 10) != text {
			return nil, fmt.Errorf("%q is no integer", shorten(text))
		}
		return n, nil
	case "boolean":
		if text != "true" && text != "false" {
			return nil, fmt.Errorf("%q is no boolean", shorten(text))
		}
		return text == "true", nil
	}
	return text, nil
}

// mergeStep joins parts. What comes after the last part that is there adds nothing; before it, a missing part is an
// empty one.
func mergeStep(from []path, separator string) func(*run, map[string]any) (any, bool, error) {
	return func(_ *run, source map[string]any) (any, bool, error) {
		parts := make([]string, len(from))
		last := -1
		for i, p := range from {
			value, ok := lookup(source, p)
			if !ok || value == nil {
				continue
			}
			switch v := value.(type) {
			case string:
				parts[i] = v
			case int64:
				parts[i] = strconv.FormatInt(v, 10)
			case bool:
				parts[i] = strconv.FormatBool(v)
			default:
				return nil, false, fmt.Errorf("%s: is %s, want a text, an integer or a boolean to merge", p,
					describe(value))
			}
			last = i
		}
		if last < 0 {
			return nil, false, nil
		}
		return strings.Join(parts[:last+1], separator), true, nil
	}
}

func wrapStep(from path) func(*run, map[string]any) (any, bool, error) {
	return func(_ *run, source map[string]any) (any, bool, error) {
		value, ok := lookup(source, from)
		if !ok || value == nil {
			return nil, false, nil
		}
		return []any{value}, true, nil
	}
}

func unwrapStep(from path) func(*run, map[string]any) (any, bool, error) {
	return func(_ *run, source map[string]any) (any, bool, error) {
		value, ok := lookup(source, from)
		if !ok || value == nil {
			return nil, false, nil
		}
		list, ok := value.([]any)
		if !ok {
			return nil, false, fmt.Errorf("%s: is %s, want a list", from, describe(value))
		}
		if len(list) == 0 {
			return nil, false, nil
		}
		return list[0], true, nil
	}
}

// eachStep converts the elements of a list or the values of a map.
func eachStep(from path, elements *program) func(*run, map[string]any) (any, bool, error) {
	convert := func(r *run, at string, value any) (any, error) {
		object, ok := value.(map[string]any)
		if !ok {
			return value, nil // a null; anything else the schema forbids
		}
		out, err := elements.level(r, object)
		if err != nil {
			return nil, fmt.Errorf("%s[%s]: %w", from, at, err)
		}
		return out, nil
	}
	return func(r *run, source map[string]any) (any, bool, error) {
		value, ok := lookup(source, from)
		var err error
		switch v := value.(type) {
		case []any:
			list := make([]any, len(v))
			for i, item := range v {
				if list[i], err = convert(r, strconv.Itoa(i), item); err != nil {
					return nil, false, err
				}
			}
			return list, true, nil
		case map[string]any:
			object := make(map[string]any, len(v))
			for name, item := range v {
				if object[name], err = convert(r, strconv.Quote(name), item); err != nil {
					return nil, false, err
				}
			}
			return object, true, nil
		}
		return value, ok, nil
	}
}
