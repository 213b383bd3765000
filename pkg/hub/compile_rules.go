package hub

import (
	"fmt"
	"slices"
	"strings"
)

func (l *level) rename(o origin, rule *Pair) {
	from := l.path(inVersion, o.at+".field", rule.Field)
	if from == nil {
		return
	}
	if rule.Hub == "" || strings.ContainsAny(rule.Hub, ".[") {
		l.Addf(o.at+".hub", "%q: want the new name alone; the rule move takes a path", rule.Hub)
		return
	}
	to := from.parent().plus(rule.Hub)
	if problem := l.sides[inHub].unknown(to); problem != "" {
		l.Addf(o.at+".hub", "%s", problem)
		return
	}
	l.move(o, from, to)
}

// move: one field, at another place.
func (l *level) move(o origin, from, to path) {
	if from == nil || to == nil {
		return
	}
	if from.equal(to) {
		l.Addf(o.at+".hub", "%q: is where it is already; a field at the same place needs no rule", to.String())
		return
	}
	l.moved(inVersion, o, from, to)
	l.moved(inHub, o, to, from)
}

// moved claims a field of the side, and makes it from its place on the other side, without what other rules say of
// parts of it.
func (l *level) moved(w where, o origin, here, there path) {
	l.claim(w, o, here, there)
	l.step(w, func(claims []claim) step {
		return step{rule: o.label, target: here, run: moveStep(there, below(claims, there))}
	})
	l.provide(w, provider{target: here, source: there})
}

func (l *level) values(o origin, rule *Values) {
	field, hub := l.samePlaceOr(o, rule.Field, rule.Hub)
	if field == nil || hub == nil {
		return
	}
	l.valuePairs(o.at, rule, [2]path{field, hub})
	l.claim(inVersion, o, field, nil)
	l.claim(inHub, o, hub, nil)
	l.produce(inHub, o, hub, []path{field}, valuesStep(field, rule.Pairs, true, rule.Others == "keep"))
	l.produce(inVersion, o, field, []path{hub}, valuesStep(hub, rule.Pairs, false, rule.Others == "keep"))
}

// samePlaceOr reads the paths of a rule whose path in the hub is that in the version when it is left out.
func (l *level) samePlaceOr(o origin, fieldText, hubText string) (field, hub path) {
	field = l.path(inVersion, o.at+".field", fieldText)
	switch {
	case hubText != "":
		hub = l.path(inHub, o.at+".hub", hubText)
	case field != nil:
		hub = l.path(inHub, o.at+".field", fieldText)
	}
	return field, hub
}

// valuePairs checks that every value has one partner in each direction, and that none is left out by oversight.
func (l *level) valuePairs(at string, rule *Values, paths [2]path) {
	if rule.Others != "" && rule.Others != "keep" && rule.Others != "fail" {
		l.Addf(at+".others", "%q: want keep or fail", rule.Others)
		return
	}
	if len(rule.Pairs) == 0 {
		l.Addf(at+".pairs", "want at least one pair of values")
	}
	var schemas [2]*Schema
	for w, p := range paths {
		schemas[w], _ = l.sides[w].schema.at(p)
	}
	var seen [2][]any
	for i, pair := range rule.Pairs {
		at := fmt.Sprintf("%s.pairs[%d]", at, i)
		if pair.Only != "" && pair.Only != inHub.wayTo() && pair.Only != inVersion.wayTo() {
			l.Addf(at+".only", "%q: want %s or %s", pair.Only, inHub.wayTo(), inVersion.wayTo())
		}
		seen[inVersion] = l.pairValue(at, inVersion, pair, schemas[inVersion], seen[inVersion])
		seen[inHub] = l.pairValue(at, inHub, pair, schemas[inHub], seen[inHub])
	}
	for _, w := range []where{inVersion, inHub} {
		l.otherValues(at, rule.Others, w, schemas, seen[w], paths[w])
	}
}

// pairValue checks the value that a pair has for the side, and adds it to those that are looked up there.
func (l *level) pairValue(at string, w where, pair ValuePair, schema *Schema, seen []any) []any {
	value := pair.Field
	if w == inHub {
		value = pair.Hub
	}
	if text, ok := value.(string); ok {
		l.words = append(l.words, text)
	}
	at += "." + w.key()
	if problem := notAllowed(schema, value); problem != "" {
		l.Addf(at, "%s in %s", problem, l.sides[w].name)
	}
	if pair.Only == w.wayTo() {
		return seen // it is written here, and never read
	}
	if slices.ContainsFunc(seen, func(other any) bool { return equal(other, value) }) {
		l.Addf(at, "%s has a partner already; with only: %s on one of the pairs, the other speaks for both directions",
			describe(value), w.wayTo())
	}
	return append(seen, value)
}

// otherValues looks for values that the schema allows and no pair names.
func (l *level) otherValues(at, others string, w where, schemas [2]*Schema, seen []any, p path) {
	if others == "fail" {
		return
	}
	possible, closed := possibleValues(schemas[w])
	if !closed {
		if others == "" {
			l.Addf(at+".pairs", "%s of %s may have other values; others: keep lets them through, others: fail fails "+
				"the conversion", l.sides[w].show(p), l.sides[w].name)
		}
		return
	}
	for _, value := range possible {
		if value == nil || slices.ContainsFunc(seen, func(other any) bool { return equal(other, value) }) {
			continue
		}
		if others == "" {
			l.Addf(at+".pairs", "no pair for %s, which %s allows for %s", describe(value), l.sides[w].name,
				l.sides[w].show(p))
		} else if problem := notAllowed(schemas[w.other()], value); problem != "" {
			l.Addf(at+".others", "keep: %s in %s", problem, l.sides[w.other()].name)
		}
	}
}

// possibleValues lists what a schema allows, and whether that is all.
func possibleValues(s *Schema) ([]any, bool) {
	switch {
	case s == nil:
		return nil, false
	case s.Enum != nil:
		return s.Enum, true
	case s.Type == "boolean":
		return []any{false, true}, true
	}
	return nil, false
}

// notAllowed says why a value cannot stand where the schema is, "" when it can.
func notAllowed(s *Schema, value any) string {
	if s == nil {
		return ""
	}
	if m := s.mismatch(value); m != "" {
		return m
	}
	if s.Enum != nil && !slices.ContainsFunc(s.Enum, func(allowed any) bool { return equal(allowed, value) }) {
		return fmt.Sprintf("%s is none of the values that are allowed", describe(value))
	}
	return ""
}

// list is several paths of one side, and where the rule has them.
type list struct {
	at    string
	paths []string
}

// parts: one text on the side w, its parts on the other.
func (l *level) parts(o origin, w where, wholeText string, parts list, separator string) {
	whole := l.path(w, o.at+"."+w.key(), wholeText)
	if separator == "" && l.Lines.Trusts(o.at+".separator") {
		l.Addf(o.at+".separator", "is missing")
	}
	if len(parts.paths) < 2 && l.Lines.Trusts(parts.at) {
		l.Addf(parts.at, "want at least two fields")
	}
	into, schemas, ok := l.partFields(w.other(), parts)
	if !ok || whole == nil || separator == "" || len(into) < 2 {
		return
	}
	if s, _ := l.sides[w].schema.at(whole); s != nil && s.shape() != "string" && s.shape() != "anything" {
		l.Addf(o.at+"."+w.key(), "%s is %s in %s; want a text", whole, article(s.shape()), l.sides[w].name)
	}
	l.words = append(l.words, separator)
	l.claim(w, o, whole, nil)
	for _, p := range into {
		l.claim(w.other(), o, p, nil)
	}
	l.produce(w, o, whole, into, mergeStep(into, separator))
	spread := step{rule: o.label, target: into[0], into: into, spread: splitStep(whole, separator, into, schemas)}
	l.step(w.other(), func([]claim) step { return spread })
	l.provide(w.other(), provider{target: into[0], source: whole})
	for _, p := range into[1:] {
		l.provide(w.other(), provider{target: p, never: true})
	}
}

// partFields reads the fields that hold parts of a text; false after a path that is none.
func (l *level) partFields(w where, parts list) (into []path, schemas []*Schema, ok bool) {
	for i, text := range parts.paths {
		at := fmt.Sprintf("%s[%d]", parts.at, i)
		p := l.path(w, at, text)
		if p == nil {
			return nil, nil, false
		}
		s, _ := l.sides[w].schema.at(p)
		if s != nil && !slices.Contains([]string{"string", "integer", "boolean", "anything", "integer or string"},
			s.shape()) {
			l.Addf(at, "%s is %s in %s; a part is a text, an integer or a boolean", p, article(s.shape()),
				l.sides[w].name)
		}
		into, schemas = append(into, p), append(schemas, s)
	}
	return into, schemas, true
}

// wrap: one value on the side w, a list of it on the other.
func (l *level) wrap(o origin, w where, rule *Pair) {
	paths := [2]path{l.path(inVersion, o.at+".field", rule.Field), l.path(inHub, o.at+".hub", rule.Hub)}
	if paths[inVersion] == nil || paths[inHub] == nil {
		return
	}
	one, list := paths[w], paths[w.other()]
	oneSide, listSide := l.sides[w], l.sides[w.other()]
	oneSchema, _ := oneSide.schema.at(one)
	listSchema, _ := listSide.schema.at(list)
	if oneSchema == nil || listSchema == nil || listSchema.shape() != "array" || listSchema.Items == nil {
		l.Addf(o.at+"."+w.other().key(), "%s is no list in %s", list, listSide.name)
		return
	}
	l.same(o.at, oneSchema, listSchema.Items, oneSide, listSide, one.String(), list.String()+"[]")
	l.claim(w, o, one, nil)
	l.claim(w.other(), o, list, nil)
	l.produce(w.other(), o, list, []path{one}, wrapStep(one))
	l.produce(w, o, one, nil, unwrapStep(list))
	l.provide(w, provider{target: one, source: list, never: listSchema.MinItems == nil || *listSchema.MinItems < 1})
}

func (l *level) setting(o origin, rule *Setting, always bool) {
	p, w := l.oneSide(o.at, rule.Field, rule.Hub)
	if p == nil {
		return
	}
	s, other := l.sides[w], l.sides[w.other()]
	schema, _ := s.schema.at(p)
	if problem := notAllowed(schema, rule.Value); problem != "" && l.Lines.Trusts(o.at+".value") {
		l.Addf(o.at+".value", "%s: %s", s.show(p), problem)
	}
	_, copied := l.counterpart(w, p)
	switch {
	case s.claimed(p) != nil || copied:
		if always {
			l.Addf(o.at, "%s has a value from %s; a constant is of a field that only one side has", s.show(p),
				other.name)
		}
	default:
		l.claim(w, o, p, nil)
	}
	f := fill{target: p, value: rule.Value, always: always}
	for i := len(p) - 1; i > 0; i-- {
		if around, _ := s.schema.at(p[:i-1]); around == nil || !around.requires(p[i-1]) {
			break
		}
		f.must++
	}
	s.fills = append(s.fills, f)
}

// oneSide reads a path that is of the version or of the hub.
func (l *level) oneSide(at, field, hub string) (path, where) {
	switch {
	case (field == "") == (hub == ""):
		if l.Lines.Trusts(at) {
			l.Addf(at, "want either field or hub")
		}
		return nil, inVersion
	case field != "":
		return l.path(inVersion, at+".field", field), inVersion
	}
	return l.path(inHub, at+".hub", hub), inHub
}

func (l *level) aside(o origin, rule *Side) {
	p, w := l.oneSide(o.at, rule.Field, rule.Hub)
	if p == nil {
		return
	}
	l.claim(w, o, p, nil)
	if o.kind == "drop" {
		l.sides[w].dropped = append(l.sides[w].dropped, p)
	}
}

func (l *level) cel(o origin, rule *CEL) {
	l.expressions(o, inHub, rule.ToHub)
	l.expressions(o, inVersion, rule.FromHub)
	// An expression cannot be inverted: a rule has both directions, or says what becomes of what it sets.
	if len(rule.ToHub) == 0 && len(rule.FromHub) == 0 && l.Lines.Trusts(o.at) {
		l.Addf(o.at, "want toHub and fromHub; an expression says one direction, so a rule has both")
	}
	if len(rule.FromHub) == 0 {
		l.oneWay(inHub, o.at, rule.ToHub)
	}
	if len(rule.ToHub) == 0 {
		l.oneWay(inVersion, o.at, rule.FromHub)
	}
}

// oneWay notes that what is set is not read back, for the check that a keep or a drop says what becomes of it.
func (l *level) oneWay(w where, at string, list []Expression) {
	for _, e := range list {
		if p, err := parsePath(e.Set); err == nil {
			l.sides[w].unread = append(l.sides[w].unread, claim{path: p, at: at})
		}
	}
}

// expressions compiles those of which the side to is made.
func (l *level) expressions(o origin, to where, list []Expression) {
	for i, e := range list {
		at := fmt.Sprintf("%s.%s[%d]", o.at, to.wayTo(), i)
		target := l.path(to, at+".set", e.Set)
		compiled := l.expression(at+".expression", to.other(), e.Expression)
		p := provider{target: target}
		holds := func(*run, map[string]any) (bool, error) { return true, nil }
		if e.When != "" {
			when := l.expression(at+".when", to.other(), e.When)
			if when == nil {
				continue
			}
			// also where what is around the field is missing, which CEL has an error for
			if source, ok := hasPath(e.When); ok {
				p.source = source
				holds = func(_ *run, self map[string]any) (bool, error) {
					_, there := lookup(self, source)
					return there, nil
				}
			} else {
				p.never = true
				holds = when.holds
			}
		}
		if target == nil || compiled == nil {
			continue
		}
		p.never = p.never || !compiled.always
		schema, _ := l.sides[to].schema.at(target)
		if problem := compiled.cannotBe(schema); problem != "" {
			l.Addf(at+".expression", "%s: %s", l.sides[to].show(target), problem)
		}
		l.claim(to, origin{at: at, kind: o.kind}, target, nil)
		l.produce(to, o, target, nil, celStep(compiled, holds, target, schema))
		l.provide(to, p)
	}
}

func (l *level) expression(at string, from where, text string) *expression {
	if text == "" {
		if l.Lines.Trusts(at) {
			l.Addf(at, "is missing")
		}
		return nil
	}
	e, err := compileExpression(text)
	if err != nil {
		l.Addf(at, "%s", strings.ReplaceAll(err.Error(), "\n", "\n    "))
		return nil
	}
	s := l.sides[from]
	for _, read := range e.reads {
		if problem := s.unknown(read); problem != "" {
			l.Addf(at, "self.%s: %s", read, problem)
		}
		s.reads = append(s.reads, read)
	}
	return e
}

func (l *level) each(o origin, rule *Each) {
	field, hub := l.samePlaceOr(o, rule.Field, rule.Hub)
	if field == nil || hub == nil {
		return
	}
	inner := &level{Problems: l.Problems, file: l.file, at: o.at + ".rules"}
	for w, p := range [2]path{field, hub} {
		s, _ := l.sides[w].schema.at(p)
		var element *Schema
		if s != nil && s.shape() == "array" {
			element = s.Items
		} else if s != nil && s.shape() == "map" {
			element = s.valueSchema()
		}
		if element == nil || element.shape() != "object" {
			l.Addf(o.at, "%s is no list or map of objects in %s", p, l.sides[w].name)
			return
		}
		inner.sides[w] = &side{name: l.sides[w].name, schema: element,
			around: append(slices.Clone(l.sides[w].around), p.plus(anyElement)...)}
	}
	a, _ := l.sides[inVersion].schema.at(field)
	b, _ := l.sides[inHub].schema.at(hub)
	if a.shape() != b.shape() {
		l.Addf(o.at, "%s is %s in %s, and %s is %s in %s", field, article(a.shape()), l.sides[inVersion].name, hub,
			article(b.shape()), l.sides[inHub].name)
		return
	}
	toHub, fromHub := inner.compile(rule.Rules)
	l.words = append(l.words, inner.words...)
	l.unsaidCount += inner.unsaidCount
	for w, p := range [2]path{field, hub} {
		for _, d := range inner.sides[w].dropped {
			l.sides[w].dropped = append(l.sides[w].dropped, p.plus(anyElement).plus(d...))
		}
	}
	l.claim(inVersion, o, field, nil)
	l.claim(inHub, o, hub, nil)
	l.produce(inHub, o, hub, []path{field}, eachStep(field, toHub))
	l.produce(inVersion, o, field, []path{hub}, eachStep(hub, fromHub))
}
