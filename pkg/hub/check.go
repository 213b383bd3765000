package hub

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
)

// conflicts finds fields that two rules speak of.
func (l *level) conflicts() {
	for _, s := range l.sides {
		for i, c := range s.claims {
			for _, other := range s.claims[:i] {
				l.conflict(s, other, c)
			}
		}
		l.waysBack(s)
	}
}

func (l *level) conflict(s *side, a, b claim) {
	outer, inner := a, b
	if len(b.path) < len(a.path) {
		outer, inner = b, a
	}
	pair := a.kind + " " + b.kind
	switch {
	case !inner.path.within(outer.path):
	case len(inner.path) > len(outer.path) && outer.to != nil: // a rule for a part of what is moved
	case inner.path.equal(outer.path) && strings.Contains(pair, "cel") &&
		(strings.Contains(pair, "keep") || strings.Contains(pair, "drop")):
	default:
		l.Addf(b.at, "%s of %s has a rule already: %s", s.show(b.path), s.name, a.at)
	}
}

// waysBack wants a keep or a drop for what an expression sets and none reads back.
func (l *level) waysBack(s *side) {
	for _, c := range s.unread {
		if !slices.ContainsFunc(s.claims, func(other claim) bool {
			return other.path.equal(c.path) && (other.kind == "keep" || other.kind == "drop")
		}) {
			l.Addf(c.at, "sets %s of %s without a way back; an expression says one direction, so a rule has toHub "+
				"and fromHub, or a rule keep or drop says what becomes of the field",
				s.show(c.path), s.name)
		}
	}
}

// check compares the sides, in both directions.
func (l *level) check() {
	l.unsaid(inVersion, l.sides[inVersion].schema, nil)
	l.unsaid(inHub, l.sides[inHub].schema, nil)
	l.required(inHub, l.sides[inHub].schema, nil)
	l.required(inVersion, l.sides[inVersion].schema, nil)
}

// counterpart is the field of the other side that a field of this side is a copy of, in both directions, at the same
// place or moved.
func (l *level) counterpart(w where, p path) (path, bool) {
	if len(p) == 0 {
		return nil, true
	}
	s, other := l.sides[w], l.sides[w.other()]
	if c := s.claimed(p); c != nil {
		return c.to, c.to != nil
	}
	around, ok := l.counterpart(w, p.parent())
	if !ok {
		return nil, false
	}
	from := around.plus(p.last())
	found, known := other.schema.at(from)
	return from, known && found != nil && other.claimed(from) == nil
}

// unsaid finds the fields of a side that the other has not and no rule speaks of, and those that change their type on
// the way.
func (l *level) unsaid(w where, node *Schema, at path) {
	s, other := l.sides[w], l.sides[w.other()]
	for _, name := range node.names() {
		p := at.plus(name)
		if len(s.around) == 0 && len(at) == 0 && slices.Contains([]string{"apiVersion", "kind", "metadata"}, name) {
			continue
		}
		child := node.Properties[name]
		if c := s.claimed(p); c != nil && c.to == nil {
			continue
		}
		to, ok := l.counterpart(w, p)
		if !ok {
			l.lost(s, other, child, p)
			continue
		}
		target, _ := other.schema.at(to)
		switch {
		case target == nil:
		case child.shape() == "object" && target.shape() == "object":
			l.unsaid(w, child, p)
		case w == inVersion:
			l.same(l.place(s, p), child, target, s, other, s.show(p), other.show(to))
		}
	}
}

// place is where a problem with a field is reported: the rule that speaks of it or of what is around it, or the list of
// rules.
func (l *level) place(s *side, p path) string {
	for ; len(p) > 0; p = p.parent() {
		if c := s.claimed(p); c != nil {
			return c.at
		}
	}
	return l.at
}

// lost reports a field without a place on the other side, if nothing says what becomes of it; of an object, the parts
// that nothing speaks of.
func (l *level) lost(s, other *side, node *Schema, p path) {
	if slices.ContainsFunc(s.reads, func(read path) bool { return p.within(read) }) {
		return
	}
	c := s.claimed(p)
	if c != nil {
		return
	}
	spoken := slices.ContainsFunc(s.claims, func(c claim) bool {
		return c.path.within(p)
	}) || slices.ContainsFunc(s.reads, func(read path) bool { return read.within(p) })
	if node.shape() == "object" && spoken {
		for _, name := range node.names() {
			l.lost(s, other, node.Properties[name], p.plus(name))
		}
		return
	}
	l.Addf(l.at, "%s of %s: %s has no such field and no rule speaks of it; move it, keep it in the annotation (keep) "+
		"or say that it is lost (drop)", s.show(p), s.name, other.name)
}

// same compares the types of a field on both sides, and of all that is below it.
func (l *level) same(at string, a, b *Schema, aSide, bSide *side, aAt, bAt string) {
	if a == nil || b == nil {
		return
	}
	if a.shape() != b.shape() {
		l.Addf(at, "%s is %s in %s, and %s is %s in %s; a rule (values, wrap, split, each, cel) says how one becomes "+
			"the other",
			aAt, article(a.shape()), aSide.name, bAt, article(b.shape()), bSide.name)
		return
	}
	switch a.shape() {
	case "array":
		l.same(at, a.Items, b.Items, aSide, bSide, aAt+"[]", bAt+"[]")
	case "map":
		l.same(at, a.valueSchema(), b.valueSchema(), aSide, bSide, aAt+".*", bAt+".*")
	case "object":
		for _, name := range a.names() {
			if b.Properties[name] != nil {
				l.same(at, a.Properties[name], b.Properties[name], aSide, bSide, aAt+"."+name, bAt+"."+name)
			}
		}
		l.sameFields(at, a, b, aSide, bSide, aAt)
		l.sameFields(at, b, a, bSide, aSide, bAt)
	}
}

func (l *level) sameFields(at string, a, b *Schema, aSide, bSide *side, aAt string) {
	for _, name := range a.names() {
		if child, free := b.child(name); child == nil && !free {
			l.Addf(at, "%s.%s of %s: %s has no such field and no rule speaks of it; the rule each takes rules for "+
				"the elements of a list", aAt, name, aSide.name, bSide.name)
		}
	}
	for _, name := range a.Required {
		if b.Properties[name] != nil && !b.requires(name) {
			l.Addf(at, "%s.%s: %s requires it and %s does not; the rule each takes a default for the elements of a "+
				"list", aAt, name, aSide.name, bSide.name)
		}
	}
}

// required finds the fields that a side requires and that may be missing after a conversion.
func (l *level) required(w where, node *Schema, at path) {
	s := l.sides[w]
	writers := l.writers(w, at)
	if len(writers) == 0 {
		return
	}
	for _, name := range node.names() {
		p := at.plus(name)
		if len(s.around) == 0 && len(at) == 0 && slices.Contains([]string{"apiVersion", "kind", "metadata"}, name) {
			continue
		}
		child := node.Properties[name]
		if node.requires(name) {
			l.guaranteed(w, child, p, writers)
		}
		if c := s.claimed(p); child.shape() == "object" && (c == nil || c.to != nil) {
			l.required(w, child, p)
		}
	}
}

// condition is what must be there of the other side for something to be set: the optional fields along a path. Nil is
// an unknown condition.
type condition map[string]bool

func (c condition) implies(needed condition) bool {
	if needed == nil {
		return false
	}
	for field := range needed {
		if !c[field] {
			return false
		}
	}
	return true
}

// writer makes an object exist.
type writer struct {
	when condition
	what string
}

func (l *level) writers(w where, at path) []writer {
	s, other := l.sides[w], l.sides[w.other()]
	if len(at) == 0 {
		return []writer{{condition{}, "always"}}
	}
	var writers []writer
	if from, ok := l.counterpart(w, at); ok {
		writers = append(writers, writer{other.conditionOf(from, nil), "when there is " + other.show(from)})
	}
	for _, p := range s.providers {
		if len(p.target) > len(at) && p.target.within(at) {
			w := writer{when: condition{}, what: "when " + s.show(p.target) + " is set"}
			if p.source != nil {
				w.when = other.conditionOf(p.source, nil)
			}
			writers = append(writers, w)
		}
	}
	for _, f := range s.fills {
		if len(f.target) > len(at) && f.makes(at) {
			writers = append(writers, writer{condition{}, "when " + s.show(f.target) + " is set"})
		}
	}
	return writers
}

// conditionOf is when the path is there: its optional steps. A null that the target forbids counts as missing.
func (s *side) conditionOf(p path, target *Schema) condition {
	c := condition{}
	node := s.schema
	for i, name := range p {
		if node == nil || !node.requires(name) {
			c[p[:i+1].String()] = true
		}
		if node != nil {
			node, _ = node.child(name)
		}
	}
	if node != nil && node.Nullable && target != nil && !target.Nullable {
		c[p.String()+" is not null"] = true
	}
	return c
}

// guaranteed reports a required field that is missing in some case in which the object around it is there.
func (l *level) guaranteed(w where, node *Schema, p path, writers []writer) {
	s, other := l.sides[w], l.sides[w.other()]
	if slices.ContainsFunc(s.fills, func(f fill) bool { return f.makes(p) }) {
		return
	}
	if node.Default != nil { // what the API server would do for a new object
		s.fills = append(s.fills, fill{target: p, value: node.Default})
		return
	}
	var ways []condition
	if from, ok := l.counterpart(w, p); ok {
		ways = append(ways, other.conditionOf(from, node))
	}
	for _, provider := range s.providers {
		if !provider.target.within(p) || provider.never {
			continue
		}
		if provider.source == nil {
			ways = append(ways, condition{})
		} else {
			ways = append(ways, other.conditionOf(provider.source, node))
		}
	}
	for _, w := range writers {
		if !slices.ContainsFunc(ways, w.when.implies) {
			l.Addf(l.place(s, p), "%s: %s requires it, and no rule sets it in every case (%s); a default says what "+
				"it is then", s.show(p), s.name, w.what)
			return
		}
	}
}

// cannotBe says why an expression never gives what the schema wants, as far as its type tells.
func (e *expression) cannotBe(s *Schema) string {
	if s == nil {
		return ""
	}
	kind := e.result.Kind()
	if e.result.TypeName() == "optional_type" && len(e.result.Parameters()) == 1 {
		kind = e.result.Parameters()[0].Kind()
	}
	wants := map[string][]types.Kind{
		"string":  {types.StringKind, types.TimestampKind, types.DurationKind},
		"integer": {types.IntKind, types.UintKind, types.DoubleKind},
		"number":  {types.IntKind, types.UintKind, types.DoubleKind}, "boolean": {types.BoolKind},
		"array":  {types.ListKind},
		"object": {types.MapKind}, "map": {types.MapKind}, "integer or string": {types.IntKind, types.StringKind},
	}[s.shape()]
	if wants == nil || kind == types.DynKind || kind == types.AnyKind || kind == types.NullTypeKind && s.Nullable ||
		slices.Contains(wants, kind) {
		return ""
	}
	return fmt.Sprintf("the expression gives %s, want %s", e.result.TypeName(), article(s.shape()))
}

func celStep(e *expression, when func(*run, map[string]any) (bool, error), target path, s *Schema) func(
	*run, map[string]any) (any, bool, error) {
	return func(r *run, source map[string]any) (any, bool, error) {
		if yes, err := when(r, source); err != nil {
			return nil, false, fmt.Errorf("when for %s: %w", target, err)
		} else if !yes {
			return nil, false, nil
		}
		value, there, err := e.evaluate(r, source)
		if err != nil {
			return nil, false, fmt.Errorf("expression for %s: %w", target, err)
		}
		if there {
			if m := s.mismatch(value); m != "" {
				return nil, false, fmt.Errorf("expression for %s: the result %s", target, m)
			}
		}
		return value, there, nil
	}
}
