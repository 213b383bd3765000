package convert

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// relabel changes no more than the name of the version of an object that says only what both versions say in the same
// place, and takes out the fields that neither has. It reports false when a field has to go elsewhere. TestRelabelling
// holds that Kubernetes' functions change nothing else then.
func (r *route) relabel(in map[string]any, how sharing, f *forms) (map[string]any, []difference, bool, error) {
	if f.kept && r.agrees {
		out := maps.Clone(in)
		out["apiVersion"], out["kind"] = r.to.ToAPIVersionAndKind()
		if f.target, f.known = r.converter.decodeIfKnown(out, r.to); f.known {
			return out, nil, true, nil
		}
	}
	var i inspection
	i.inspect(in, r.source, r.target)
	switch {
	case i.moved:
		return nil, nil, false, nil
	case i.wrong != nil:
		return nil, nil, false, &ContentError{r.from, i.wrong}
	}
	out := in
	switch {
	case how == apart || how == shared && len(i.unknown) > 0:
		out = runtime.DeepCopyJSON(in)
	case how == shared:
		out = maps.Clone(in)
	}
	remove(out, i.unknown)
	out["apiVersion"], out["kind"] = r.to.ToAPIVersionAndKind()
	return out, i.unknown, true, nil
}

// agrees reports whether the fields that two shapes share are of one kind in both.
func (s *shape) agrees(other *shape, seen map[[2]*shape]bool) bool {
	if s == other || s == nil || other == nil || seen[[2]*shape{s, other}] {
		return true
	}
	seen[[2]*shape{s, other}] = true
	if s.value() != other.value() || s.list != other.list || !s.element.agrees(other.element, seen) {
		return false
	}
	for name, field := range s.fields {
		if !field.agrees(other.at(name), seen) {
			return false
		}
	}
	return true
}

// inspection finds what of a value has no place in a shape.
type inspection struct {
	at      trail // of the value
	unknown []difference
	moved   bool  // the source has a field for it; otherwise it is unknown
	wrong   error // the first value that is not of the kind that its place takes

	lacking      []difference // fields that the target requires and that are not there
	misdescribed bool         // some value is of a type of which the target takes none
	null         bool         // there is null in some list or map
}

// trail is where a walk stands. It costs nothing until a path is made of it.
type trail []trailPart

type trailPart struct {
	field string
	index int // of an element; -1 for a field
}

func trailOf(p path) trail {
	t := make(trail, 0, len(p)+8)
	for _, part := range p {
		switch part := part.(type) {
		case string:
			t = append(t, trailPart{part, -1})
		case int:
			t = append(t, trailPart{"", part})
		}
	}
	return t
}

func (t trail) path() path {
	p := make(path, len(t))
	for i, part := range t {
		if p[i] = part.field; part.index >= 0 {
			p[i] = part.index
		}
	}
	return p
}

func (n *inspection) inspect(value any, source, target *shape) {
	if target == nil || n.moved {
		return
	}
	if want := target.refuses(value); want != "" && n.wrong == nil {
		n.wrong = fmt.Errorf("%s: want %s", n.at.path(), want)
	}
	n.misdescribed = n.misdescribed || target.misdescribed && value != nil
	switch value := value.(type) {
	case map[string]any:
		if target.value() || target.list {
			return
		}
		for key, v := range value {
			n.null = n.null || v == nil && target.fields == nil
			n.at = append(n.at, trailPart{key, -1})
			n.field(key, v, value, source, target)
			n.at = n.at[:len(n.at)-1]
		}
		for _, name := range target.required {
			if value[name] == nil {
				n.lacking = append(n.lacking, difference{at: append(n.at.path(), name), in: target})
			}
		}
	case []any:
		from, to := source.ofElements(), target.ofElements()
		for i, v := range value {
			n.null = n.null || v == nil
			n.at = append(n.at, trailPart{"", i})
			n.inspect(v, from, to)
			n.at = n.at[:len(n.at)-1]
		}
	}
}

func (n *inspection) field(key string, v any, of map[string]any, source, target *shape) {
	to := target.at(key)
	from := to
	if source != target {
		from = source.at(key)
	}
	switch {
	case from != nil && (to == nil || from.value() != to.value() || from.list != to.list):
		n.moved = true
		return
	case to == nil:
		n.unknown = append(n.unknown, difference{at: n.at.path(), value: v, in: target})
		return
	}
	if drops := target.drops[key]; drops != nil {
		if why := drops(of, n.at); why != "" {
			n.unknown = append(n.unknown, difference{at: n.at.path(), value: v, in: target, why: why})
			return
		}
	}
	n.inspect(v, from, to)
}

// remove takes fields out of an object.
func remove(object map[string]any, fields []difference) {
	for _, field := range fields {
		var value any = object
		last := len(field.at) - 1
		for _, part := range field.at[:last] {
			switch part := part.(type) {
			case string:
				value = value.(map[string]any)[part]
			case int:
				value = value.([]any)[part]
			}
		}
		delete(value.(map[string]any), field.at[last].(string))
	}
}

// refuses names what a place takes when it does not take the value, "" when it does. Null is taken everywhere.
func (s *shape) refuses(value any) string {
	switch {
	case value == nil || s.either || s.free || s.goType == nil && s.value():
		return ""
	case s.fields != nil || s.element != nil && !s.list:
		if _, ok := value.(map[string]any); !ok {
			return "an object"
		}
	case s.list:
		if _, ok := value.([]any); !ok {
			return "a list"
		}
	default:
		return refuses(s.goType, value)
	}
	return ""
}

func refuses(t reflect.Type, value any) string {
	switch kind := t.Kind(); kind {
	case reflect.String:
		if _, ok := value.(string); !ok {
			return "a string"
		}
	case reflect.Bool:
		if _, ok := value.(bool); !ok {
			return "true or false"
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64:
		number, ok := value.(int64)
		if f, isFloat := value.(float64); isFloat {
			number, ok = int64(f), f == math.Trunc(f)
			if ok && (f < math.MinInt64 || f >= math.MaxInt64) {
				return fmt.Sprintf("a whole number of %d bits", t.Bits())
			}
		}
		switch unsigned := kind >= reflect.Uint; {
		case !ok:
			return "a whole number"
		case unsigned && (number < 0 || t.OverflowUint(uint64(number))), !unsigned && t.OverflowInt(number):
			return fmt.Sprintf("a whole number of %d bits", t.Bits())
		}
	}
	return ""
}

// reconcile finishes what the steps made of an object. Go types say more than their input did: replicas that were not
// set are 0, and status is {}; and they say some things otherwise, 1Gi for 1024Mi. What the input did not say and what
// carries nothing of it is taken out again, and what only looks otherwise is put back as it was.
func (r *route) reconcile(in, out map[string]any) (map[string]any, []difference, error) {
	var i inspection // a Func may leave what its version does not have
	if i.inspect(out, nil, r.target); i.wrong != nil {
		return nil, nil, &ContentError{r.to, i.wrong}
	}
	remove(out, i.unknown)
	w := &walk{}
	w.compare(in, out, r.source, r.target)
	if !r.typed { // Kubernetes' types had no part in it: each Func said what it meant
		*w = walk{displaced: w.displaced}
	}
	switch {
	case !w.displaced && len(w.derived) == 0:
		w.take()
		return out, nil, nil
	case r.back == nil:
		w.take()
		m := missing{}
		m.compare(in, out, r.source)
		return out, m.found, nil
	default:
		return r.trim(in, out, w)
	}
}

// trim takes out additions as long as the way back yields the same without them, and reports what it does not yield.
func (r *route) trim(in, out map[string]any, w *walk) (map[string]any, []difference, error) {
	w.void.take()
	full, err := follow(r.back, out)
	if err != nil {
		return nil, nil, fmt.Errorf("converting back to %s: %w", kindName(r.from), err)
	}
	tries := trimTries
	for _, group := range []additions{w.empty, w.derived} {
		r.thin(out, full, group, &tries)
	}
	m := missing{}
	m.compare(in, full, r.source)
	return out, m.found, nil
}

// trimTries bounds how often an object is converted back to find what it can do without: of very many additions that it
// needs, some that it does not need stay with them.
const trimTries = 128

// thin takes out a group of additions, or those of its halves, as long as the way back yields the same.
func (r *route) thin(out, full map[string]any, group additions, tries *int) {
	if len(group) == 0 || *tries == 0 {
		return
	}
	*tries--
	if group.take(); r.yields(out, full) {
		return
	}
	group.put()
	if half := len(group) / 2; half > 0 {
		r.thin(out, full, group[:half], tries)
		r.thin(out, full, group[half:], tries)
	}
}

// yields reports whether the way back leads from out to the object.
func (r *route) yields(out, object map[string]any) bool {
	again, err := follow(r.back, out)
	return err == nil && reflect.DeepEqual(again, object)
}

// addition is a field of the output that the input does not name.
type addition struct {
	object map[string]any
	key    string
	value  any
}

func (a addition) take() { delete(a.object, a.key) }
func (a addition) put()  { a.object[a.key] = a.value }

type additions []addition

func (as additions) take() {
	for _, a := range as {
		a.take()
	}
}

func (as additions) put() {
	for _, a := range as {
		a.put()
	}
}

// walk compares an output with its input.
type walk struct {
	depth     int
	displaced bool // something of the input is not in its place
	// and a list or a map in it is empty: Go has them in memory and leaves them out of what it writes
	hollow    bool
	respelled bool      // an empty value of the input was put where Go wrote nothing
	void      additions // say nothing: Go cannot tell them from nothing there
	empty     additions // say little: Go can
	derived   additions // in a part that both versions write the same way: repeat what stands elsewhere
}

func (w *walk) compare(in, out any, source, target *shape) {
	switch in := in.(type) {
	case map[string]any:
		if other, ok := out.(map[string]any); ok && !source.value() {
			w.depth++
			w.objects(in, other, source, target)
			w.depth--
			return
		}
	case []any:
		if other, ok := out.([]any); ok && len(other) == len(in) {
			for i := range in {
				if w.leaf(in[i], other[i], source.ofElements(), target.ofElements()) {
					other[i] = runtime.DeepCopyJSONValue(in[i])
				}
			}
			return
		}
	}
	if !same(in, out) {
		w.displaced = true
	}
}

// same is reflect.DeepEqual, and faster for what most values are.
func same(a, b any) bool { return sameSingle(a, b) || reflect.DeepEqual(a, b) }

// sameSingle reports whether two values are the same string, whole number, or truth.
func sameSingle(a, b any) bool {
	switch a := a.(type) {
	case string:
		other, ok := b.(string)
		return ok && a == other
	case int64:
		other, ok := b.(int64)
		return ok && a == other
	case bool:
		other, ok := b.(bool)
		return ok && a == other
	}
	return false
}

// leaf compares, and reports whether the output only spells the same value otherwise.
func (w *walk) leaf(in, out any, source, target *shape) bool {
	if source.value() && target.value() && source.goType == target.goType {
		if same(in, out) {
			return false
		}
		if sameValue(in, out, source) {
			return true
		}
	}
	w.compare(in, out, source, target)
	return false
}

func (w *walk) objects(in, out map[string]any, source, target *shape) {
	shared := 0
	for key, value := range in {
		if w.depth == 1 && (key == "apiVersion" || key == "kind") {
			continue
		}
		other, ok := out[key]
		if ok {
			if shared++; sameSingle(value, other) {
				continue
			}
		}
		switch {
		case ok && w.leaf(value, other, source.at(key), target.at(key)):
			out[key] = runtime.DeepCopyJSONValue(value)
		case !ok:
			w.missing(key, value, out, target)
		}
	}
	if shared == len(out) {
		return
	}
	for key, value := range out {
		if _, ok := in[key]; ok || w.depth == 1 && (key == "apiVersion" || key == "kind") {
			continue
		}
		switch {
		case value == nil:
			delete(out, key)
		case isEmpty(value):
			w.addEmpty(out, key, value, target)
			continue
		}
		switch {
		case value == nil:
		case source == target:
			w.addDerived(out, key, value, target)
		default:
			w.addEmpties(value, target.at(key))
		}
	}
}

// missing looks at what the input says and the output does not.
func (w *walk) missing(key string, value any, out map[string]any, target *shape) {
	field := target.at(key)
	switch {
	case isEmpty(value) && field != nil && field.fields == nil: // left out by Go's encoding, but the input says it
		out[key] = runtime.DeepCopyJSONValue(value)
		w.respelled = true
	case value != nil:
		w.displaced = true
		w.hollow = w.hollow || isHollow(value)
	}
}

// isHollow reports whether a value holds an empty list or map.
func isHollow(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for _, v := range value {
			if isHollow(v) {
				return true
			}
		}
		return len(value) == 0
	case []any:
		return len(value) == 0 || slices.ContainsFunc(value, isHollow)
	default:
		return false
	}
}

// take removes all additions.
func (w *walk) take() {
	w.void.take()
	w.empty.take()
	w.derived.take()
}

// put undoes take.
func (w *walk) put() {
	w.void.put()
	w.empty.put()
	w.derived.put()
}

func (w *walk) addEmpty(object map[string]any, key string, value any, s *shape) {
	if s.alwaysThere(key, value) {
		w.void = append(w.void, addition{object, key, value})
	} else {
		w.empty = append(w.empty, addition{object, key, value})
	}
}

// alwaysThere reports whether Go's encoding writes the field with this empty value when nothing is there.
func (s *shape) alwaysThere(key string, value any) bool {
	if s == nil || s.fields == nil || s.optional[key] {
		return false
	}
	children, _ := value.(map[string]any)
	for name, child := range children {
		if !s.at(key).alwaysThere(name, child) {
			return false
		}
	}
	return true
}

// addEmpties notes what says nothing inside of an addition that does.
func (w *walk) addEmpties(value any, s *shape) {
	switch value := value.(type) {
	case map[string]any:
		for key, v := range value {
			switch {
			case v == nil:
				delete(value, key)
			case isEmpty(v):
				w.addEmpty(value, key, v, s)
			default:
				w.addEmpties(v, s.at(key))
			}
		}
	case []any:
		for _, v := range value {
			w.addEmpties(v, s.ofElements())
		}
	}
}

// addDerived notes each entry of a map for itself: of annotations, one may carry something and another not.
func (w *walk) addDerived(out map[string]any, key string, value any, s *shape) {
	entries, ok := value.(map[string]any)
	if field := s.at(key); ok && field != nil && field.fields == nil && field.element != nil {
		for name, entry := range entries {
			w.derived = append(w.derived, addition{entries, name, entry})
		}
		return
	}
	w.derived = append(w.derived, addition{out, key, value})
}

// losses words the differences.
func (r *route) losses(found []difference) []Loss {
	var losses []Loss
	for _, d := range found {
		losses = append(losses, Loss{Path: d.at.String(), Value: runtime.DeepCopyJSONValue(d.value),
			Meaning: r.meaning(d)})
	}
	slices.SortFunc(losses, func(a, b Loss) int { return strings.Compare(a.Path, b.Path) })
	return losses
}

// meaning says why something is lost.
func (r *route) meaning(d difference) string {
	switch {
	case !d.known:
		return "no field of " + kindName(r.from)
	case !r.target.has(d.at):
		return kindName(r.to) + " has no such field"
	case d.now != nil:
		return fmt.Sprintf("%s cannot say this; it comes back as %v", kindName(r.to), d.now)
	default:
		return kindName(r.to) + " cannot say this"
	}
}

// under returns the shape of what stands at the path of fields.
func (s *shape) under(p path) *shape {
	for _, name := range p {
		s = s.at(name.(string))
	}
	return s
}

// to returns the shape of what stands at a path, nil where nothing does.
func (s *shape) to(p path) *shape {
	for _, part := range p {
		if name, ok := part.(string); ok {
			s = s.at(name)
		} else {
			s = s.ofElements()
		}
	}
	return s
}

// has reports whether the shape has a place for the path.
func (s *shape) has(p path) bool {
	for _, part := range p {
		switch part := part.(type) {
		case string:
			s = s.at(part)
		case int:
			s = s.ofElements()
		}
		if s == nil {
			return false
		}
		if s.value() {
			return true
		}
	}
	return true
}
