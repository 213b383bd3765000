package hub

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/spelling"
	"github.com/kubefusion/fusionctl/internal/strictyaml"
)

// New compiles rules for a CRD and checks them against the schemas of both versions: every required field is set, types are right, and
// nothing that a version has is lost without a rule that says so.
// Errors: every problem, joined, each with the line and the path of the rule. It keeps the definition. Safe for concurrent use.
func New(rules *Rules, definition *Definition) (*Converter, error) {
	ps := &strictyaml.Problems{Lines: rules.lines}
	c := &Converter{Definition: definition, Hub: rules.Spec.Hub, spokes: map[string]*spoke{}}
	if definition.Name != rules.Spec.CRD {
		ps.Addf("spec.crd", "%q: the CRD that was given is %q", rules.Spec.CRD, definition.Name)
		return nil, ps.Err()
	}
	hub := schemaOf(ps, "spec.hub", rules.Spec.Hub, definition)
	for i, version := range rules.Spec.Versions {
		at := fmt.Sprintf("spec.versions[%d]", i)
		own := schemaOf(ps, at+".name", version.Name, definition)
		if hub == nil || own == nil {
			continue
		}
		l := &level{Problems: ps, file: rules.name, at: at + ".rules"}
		l.sides[0], l.sides[1] = &side{name: version.Name, schema: own}, &side{name: rules.Spec.Hub, schema: hub}
		toHub, fromHub := l.compile(version.Rules)
		c.words = append(c.words, l.words...)
		c.spokes[version.Name] = &spoke{toHub: toHub, fromHub: fromHub}
	}
	for _, version := range definition.Versions() {
		if !slices.ContainsFunc(rules.Spec.Versions, func(v Version) bool { return v.Name == version }) && version != rules.Spec.Hub {
			ps.Addf("spec.versions", "has no entry for the version %s of the CRD; without rules (rules: []) it is the hub under another name", version)
		}
	}
	if err := ps.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

func schemaOf(ps *strictyaml.Problems, at, version string, d *Definition) *Schema {
	s, ok := d.Schemas[version]
	switch {
	case !ok:
		ps.Addf(at, "%q: %s has the versions %s", version, d.Name, strings.Join(d.Versions(), ", "))
	case s == nil:
		ps.Addf(at, "%s has no schema for %s, so nothing can be checked; give it one in the CRD", d.Name, version)
	}
	return s
}

// level is the compilation of one list of rules: for objects, or for the elements of a list.
type level struct {
	*strictyaml.Problems
	file  string
	at    string   // of the list of rules in the file
	sides [2]*side // the version, the hub
	words []string // texts that rules look for

	unsaidCount int // problems that check has found, here and in elements
}

// side is what rules say of one version.
type side struct {
	name   string
	schema *Schema
	around path // of the element whose fields the paths are, for messages and for what is dropped
	claims []claim
	reads  []path  // by expressions
	unread []claim // set by expressions without a way back
	fills  []fill
	// What makes this side from the other.
	steps     []step
	providers []provider
	dropped   []path // of it, with the path of the element
}

// claim is a rule's word about a field: it is not copied.
type claim struct {
	path path
	kind string
	at   string // the rule's place
	to   path   // of a move: where it is on the other side
}

// provider sets a field of a side when the source, of the other side, is there; a nil source always is.
type provider struct {
	target path
	source path
	never  bool // nobody can tell when
}

func (s *side) claimed(p path) *claim {
	for i := range s.claims {
		if s.claims[i].path.equal(p) {
			return &s.claims[i]
		}
	}
	return nil
}

// show is a path as messages print it.
func (s *side) show(p path) string { return append(slices.Clone(s.around), p...).String() }

func (l *level) compile(rules []Rule) (toHub, fromHub *program) {
	var settings []func()
	before := l.Count()
	for i, rule := range rules {
		at := fmt.Sprintf("%s[%d].", l.at, i)
		kind := rule.kinds()[0]
		at += kind
		label := fmt.Sprintf("%s:%d: %s", l.file, l.Lines.Line(at), at)
		switch {
		case rule.Rename != nil:
			l.rename(at, label, rule.Rename)
		case rule.Move != nil:
			l.move(at, label, "move", at+".hub", l.path(0, at+".field", rule.Move.Field), l.path(1, at+".hub", rule.Move.Hub))
		case rule.Values != nil:
			l.values(at, label, rule.Values)
		case rule.Split != nil:
			l.splitMerge(at, label, "split", 0, at+".field", rule.Split.Field, at+".hub", rule.Split.Hub, rule.Split.Separator)
		case rule.Merge != nil:
			l.splitMerge(at, label, "merge", 1, at+".hub", rule.Merge.Hub, at+".fields", rule.Merge.Fields, rule.Merge.Separator)
		case rule.Wrap != nil:
			l.wrap(at, label, "wrap", 0, rule.Wrap)
		case rule.Unwrap != nil:
			l.wrap(at, label, "unwrap", 1, rule.Unwrap)
		case rule.Constant != nil:
			settings = append(settings, func() { l.setting(at, "constant", rule.Constant, true) })
		case rule.Default != nil:
			settings = append(settings, func() { l.setting(at, "default", rule.Default, false) })
		case rule.CEL != nil:
			l.cel(at, label, rule.CEL)
		case rule.Each != nil:
			l.each(at, label, rule.Each)
		case rule.Keep != nil:
			l.aside(at, "keep", rule.Keep)
		case rule.Drop != nil:
			l.aside(at, "drop", rule.Drop)
		}
	}
	for _, set := range settings { // a default for a field of another rule is no word of its own about the field
		set()
	}
	l.conflicts()
	if found := l.Count(); found-before == l.unsaidCount { // what a broken rule does not do is no news
		l.check()
		l.unsaidCount += l.Count() - found
	}
	return l.program(0, 1), l.program(1, 0)
}

func (l *level) program(from, to int) *program {
	source, target := l.sides[from], l.sides[to]
	p := &program{source: source.schema, target: target.schema, dropped: source.dropped, steps: target.steps, fills: target.fills}
	for _, c := range source.claims {
		p.taken = append(p.taken, c.path)
	}
	for i := range p.steps {
		s := &p.steps[i]
		if c := target.claimed(s.target); c != nil && c.to != nil {
			s.run = moveStep(c.to, below(source.claims, c.to))
		}
	}
	slices.SortStableFunc(p.steps, func(a, b step) int { return cmp.Compare(len(a.target), len(b.target)) })
	slices.SortStableFunc(p.fills, func(a, b fill) int { return cmp.Compare(len(a.target), len(b.target)) })
	return p
}

// below lists what rules say about fields inside the outer one, relative to it.
func below(claims []claim, outer path) []path {
	var inner []path
	for _, c := range claims {
		if len(c.path) > len(outer) && c.path.within(outer) {
			inner = append(inner, c.path[len(outer):])
		}
	}
	return inner
}

// path reads a path of a side and looks it up; nil after a problem.
func (l *level) path(side int, at, text string) path {
	s := l.sides[side]
	if text == "" {
		if l.Lines.Trusts(at) {
			l.Addf(at, "is missing")
		}
		return nil
	}
	p, err := parsePath(text)
	if err != nil {
		l.Addf(at, "%v", err)
		return nil
	}
	if len(s.around) == 0 && !l.mayChange(at, p) {
		return nil
	}
	if problem := s.unknown(p); problem != "" {
		l.Addf(at, "%s", problem)
		return nil
	}
	return p
}

// mayChange knows what a conversion may do to what every object has.
func (l *level) mayChange(at string, p path) bool {
	switch {
	case p[0] == "apiVersion" || p[0] == "kind":
		l.Addf(at, "%q: is set by the conversion itself", p.String())
	case p[0] == "metadata" && (len(p) != 3 || p[1] != "labels" && p[1] != "annotations"):
		l.Addf(at, `%q: of the metadata a conversion may change labels and annotations alone, such as metadata.labels["example.com/size"]`, p.String())
	case p[0] == "metadata" && p[2] == KeptAnnotation:
		l.Addf(at, "%q: is where the conversion keeps what a version cannot hold", p.String())
	default:
		return true
	}
	return false
}

// unknown says what is wrong with a path of the side, "" for nothing.
func (s *side) unknown(p path) string {
	current := s.schema
	for i, name := range p {
		child, free := current.child(name)
		switch {
		case child == nil && !free && current.shape() == "array":
			return fmt.Sprintf("%q: %s is a list in %s; the rule each speaks of its elements", p.String(), p[:i], s.name)
		case child == nil && !free:
			if near, ok := spelling.Nearest(name, current.names()); ok {
				return fmt.Sprintf("%q: %s has no such field; did you mean %q?", p.String(), s.name, p[:i].plus(near).String())
			}
			return fmt.Sprintf("%q: %s has no such field", p.String(), s.name)
		}
		current = child
	}
	return ""
}

func (l *level) claim(side int, p path, kind, at string, to path) {
	l.sides[side].claims = append(l.sides[side].claims, claim{path: p, kind: kind, at: at, to: to})
}

// produce adds a step that makes a field of the side, and says when it does.
func (l *level) produce(side int, label string, target path, sources []path, run func(*run, map[string]any) (any, bool, error)) {
	s := l.sides[side]
	s.steps = append(s.steps, step{rule: label, target: target, run: run})
	for _, source := range sources {
		s.providers = append(s.providers, provider{target: target, source: source})
	}
}

func (l *level) rename(at, label string, rule *Pair) {
	from := l.path(0, at+".field", rule.Field)
	if from == nil {
		return
	}
	if rule.Hub == "" || strings.ContainsAny(rule.Hub, ".[") {
		l.Addf(at+".hub", "%q: want the new name alone; the rule move takes a path", rule.Hub)
		return
	}
	to := from.parent().plus(rule.Hub)
	if problem := l.sides[1].unknown(to); problem != "" {
		l.Addf(at+".hub", "%s", problem)
		return
	}
	l.move(at, label, "rename", at+".hub", from, to)
}

func (l *level) move(at, label, kind, hubAt string, from, to path) {
	if from == nil || to == nil {
		return
	}
	if from.equal(to) {
		l.Addf(hubAt, "%q: is where it is already; a field at the same place needs no rule", to.String())
		return
	}
	l.claim(0, from, kind, at, to)
	l.claim(1, to, kind, at, from)
	l.produce(1, label, to, []path{from}, nil) // what it copies depends on the other rules
	l.produce(0, label, from, []path{to}, nil)
}

func (l *level) values(at, label string, rule *Values) {
	field := l.path(0, at+".field", rule.Field)
	hub := field
	if rule.Hub != "" {
		hub = l.path(1, at+".hub", rule.Hub)
	} else if field != nil {
		hub = l.path(1, at+".field", rule.Field)
	}
	if field == nil || hub == nil {
		return
	}
	l.valuePairs(at, rule, field, hub)
	l.claim(0, field, "values", at, nil)
	l.claim(1, hub, "values", at, nil)
	l.produce(1, label, hub, []path{field}, valuesStep(field, rule.Pairs, true, rule.Others == "keep"))
	l.produce(0, label, field, []path{hub}, valuesStep(hub, rule.Pairs, false, rule.Others == "keep"))
}

// valuePairs checks that every value has one partner in each direction, and that none is left out by oversight.
func (l *level) valuePairs(at string, rule *Values, field, hub path) {
	schemas := [2]*Schema{}
	schemas[0], _ = l.sides[0].schema.at(field)
	schemas[1], _ = l.sides[1].schema.at(hub)
	if rule.Others != "" && rule.Others != "keep" && rule.Others != "fail" {
		l.Addf(at+".others", "%q: want keep or fail", rule.Others)
		return
	}
	if len(rule.Pairs) == 0 {
		l.Addf(at+".pairs", "want at least one pair of values")
	}
	var seen [2][]any
	for i, pair := range rule.Pairs {
		at := fmt.Sprintf("%s.pairs[%d]", at, i)
		if pair.Only != "" && pair.Only != "toHub" && pair.Only != "fromHub" {
			l.Addf(at+".only", "%q: want toHub or fromHub", pair.Only)
		}
		for side, value := range []any{pair.Field, pair.Hub} {
			if text, ok := value.(string); ok {
				l.words = append(l.words, text)
			}
			name, only := at+[]string{".field", ".hub"}[side], []string{"fromHub", "toHub"}[side]
			if problem := notAllowed(schemas[side], value); problem != "" {
				l.Addf(name, "%s in %s", problem, l.sides[side].name)
			}
			if pair.Only == only {
				continue
			}
			if slices.ContainsFunc(seen[side], func(other any) bool { return equal(other, value) }) {
				l.Addf(name, "%s has a partner already; with only: %s on one of the pairs, the other speaks for both directions", describe(value), only)
			}
			seen[side] = append(seen[side], value)
		}
	}
	for side := range schemas {
		l.otherValues(at, rule.Others, side, schemas, seen[side], []path{field, hub}[side])
	}
}

// otherValues looks for values that the schema allows and no pair names.
func (l *level) otherValues(at, others string, side int, schemas [2]*Schema, seen []any, p path) {
	if others == "fail" {
		return
	}
	possible, closed := possibleValues(schemas[side])
	if !closed {
		if others == "" {
			l.Addf(at+".pairs", "%s of %s may have other values; others: keep lets them through, others: fail fails the conversion", l.sides[side].show(p), l.sides[side].name)
		}
		return
	}
	for _, value := range possible {
		if value == nil || slices.ContainsFunc(seen, func(other any) bool { return equal(other, value) }) {
			continue
		}
		if others == "" {
			l.Addf(at+".pairs", "no pair for %s, which %s allows for %s", describe(value), l.sides[side].name, l.sides[side].show(p))
		} else if problem := notAllowed(schemas[1-side], value); problem != "" {
			l.Addf(at+".others", "keep: %s in %s", problem, l.sides[1-side].name)
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

// splitMerge: the whole is on one side, the parts on the other.
func (l *level) splitMerge(at, label, kind string, wholeSide int, wholeAt, whole, partsAt string, parts []string, separator string) {
	partsSide := 1 - wholeSide
	w := l.path(wholeSide, wholeAt, whole)
	if separator == "" && l.Lines.Trusts(at+".separator") {
		l.Addf(at+".separator", "is missing")
	}
	if len(parts) < 2 && l.Lines.Trusts(partsAt) {
		l.Addf(partsAt, "want at least two fields")
	}
	var into []path
	var schemas []*Schema
	for i, part := range parts {
		partAt := fmt.Sprintf("%s[%d]", partsAt, i)
		p := l.path(partsSide, partAt, part)
		if p == nil {
			return
		}
		s, _ := l.sides[partsSide].schema.at(p)
		if s != nil && !slices.Contains([]string{"string", "integer", "boolean", "anything", "integer or string"}, s.shape()) {
			l.Addf(partAt, "%s is %s in %s; a part is a text, an integer or a boolean", p, article(s.shape()), l.sides[partsSide].name)
		}
		into, schemas = append(into, p), append(schemas, s)
	}
	if w == nil || separator == "" || len(into) < 2 {
		return
	}
	if s, _ := l.sides[wholeSide].schema.at(w); s != nil && s.shape() != "string" && s.shape() != "anything" {
		l.Addf(wholeAt, "%s is %s in %s; want a text", w, article(s.shape()), l.sides[wholeSide].name)
	}
	l.words = append(l.words, separator)
	l.claim(wholeSide, w, kind, at, nil)
	for _, p := range into {
		l.claim(partsSide, p, kind, at, nil)
	}
	l.produce(wholeSide, label, w, into, mergeStep(into, separator))
	s := l.sides[partsSide]
	s.steps = append(s.steps, step{rule: label, target: into[0], into: into, spread: splitStep(w, separator, into, schemas)})
	s.providers = append(s.providers, provider{target: into[0], source: w})
	for _, p := range into[1:] {
		s.providers = append(s.providers, provider{target: p, never: true})
	}
}

// wrap: one value on one side, a list on the other.
func (l *level) wrap(at, label, kind string, oneSide int, rule *Pair) {
	paths := [2]path{l.path(0, at+".field", rule.Field), l.path(1, at+".hub", rule.Hub)}
	if paths[0] == nil || paths[1] == nil {
		return
	}
	one, list := paths[oneSide], paths[1-oneSide]
	listAt := at + []string{".hub", ".field"}[oneSide]
	oneSchema, _ := l.sides[oneSide].schema.at(one)
	listSchema, _ := l.sides[1-oneSide].schema.at(list)
	if oneSchema == nil || listSchema == nil || listSchema.shape() != "array" || listSchema.Items == nil {
		l.Addf(listAt, "%s is no list in %s", list, l.sides[1-oneSide].name)
		return
	}
	l.same(at, oneSchema, listSchema.Items, l.sides[oneSide], l.sides[1-oneSide], one.String(), list.String()+"[]")
	l.claim(oneSide, one, kind, at, nil)
	l.claim(1-oneSide, list, kind, at, nil)
	l.produce(1-oneSide, label, list, []path{one}, wrapStep(one))
	l.produce(oneSide, label, one, nil, unwrapStep(list))
	unwraps := provider{target: one, source: list, never: listSchema.MinItems == nil || *listSchema.MinItems < 1}
	l.sides[oneSide].providers = append(l.sides[oneSide].providers, unwraps)
}

func (l *level) setting(at, kind string, rule *Setting, always bool) {
	p, side := l.oneSide(at, rule.Field, rule.Hub)
	if p == nil {
		return
	}
	s, other := l.sides[side], l.sides[1-side]
	schema, _ := s.schema.at(p)
	if problem := notAllowed(schema, rule.Value); problem != "" && l.Lines.Trusts(at+".value") {
		l.Addf(at+".value", "%s: %s", s.show(p), problem)
	}
	_, copied := l.counterpart(side, p)
	switch {
	case s.claimed(p) != nil || copied:
		if always {
			l.Addf(at, "%s has a value from %s; a constant is of a field that only one side has", s.show(p), other.name)
		}
	default:
		l.claim(side, p, kind, at, nil)
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
func (l *level) oneSide(at, field, hub string) (path, int) {
	switch {
	case (field == "") == (hub == ""):
		if l.Lines.Trusts(at) {
			l.Addf(at, "want either field or hub")
		}
		return nil, 0
	case field != "":
		return l.path(0, at+".field", field), 0
	}
	return l.path(1, at+".hub", hub), 1
}

func (l *level) aside(at, kind string, rule *Side) {
	p, side := l.oneSide(at, rule.Field, rule.Hub)
	if p == nil {
		return
	}
	l.claim(side, p, kind, at, nil)
	if kind == "drop" {
		l.sides[side].dropped = append(l.sides[side].dropped, p)
	}
}

func (l *level) cel(at, label string, rule *CEL) {
	l.expressions(at+".toHub", label, 0, 1, rule.ToHub)
	l.expressions(at+".fromHub", label, 1, 0, rule.FromHub)
	// A rule that nobody can turn round has to say both directions, or what becomes of what it sets.
	if len(rule.ToHub) == 0 && len(rule.FromHub) == 0 && l.Lines.Trusts(at) {
		l.Addf(at, "want toHub and fromHub; an expression says one direction, so a rule has both")
	}
	if len(rule.FromHub) == 0 {
		l.oneWay(1, at, rule.ToHub)
	}
	if len(rule.ToHub) == 0 {
		l.oneWay(0, at, rule.FromHub)
	}
}

// oneWay notes that what is set is not read back, for the check that a keep or a drop says what becomes of it.
func (l *level) oneWay(side int, at string, list []Expression) {
	for _, e := range list {
		if p, err := parsePath(e.Set); err == nil {
			l.sides[side].unread = append(l.sides[side].unread, claim{path: p, at: at})
		}
	}
}

func (l *level) expressions(at, label string, from, to int, list []Expression) {
	for i, e := range list {
		at := fmt.Sprintf("%s[%d]", at, i)
		target := l.path(to, at+".set", e.Set)
		compiled := l.expression(at+".expression", from, e.Expression)
		p := provider{target: target}
		holds := func(*run, map[string]any) (bool, error) { return true, nil }
		if e.When != "" {
			when := l.expression(at+".when", from, e.When)
			if when == nil {
				continue
			}
			if source, ok := hasPath(e.When); ok { // also where what is around the field is missing, which CEL has an error for
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
		l.claim(to, target, "cel", at, nil)
		l.sides[to].providers = append(l.sides[to].providers, p)
		l.sides[to].steps = append(l.sides[to].steps, step{rule: label, target: target, run: celStep(compiled, holds, target, schema)})
	}
}

func (l *level) expression(at string, from int, text string) *expression {
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

func (l *level) each(at, label string, rule *Each) {
	field := l.path(0, at+".field", rule.Field)
	hub := field
	if rule.Hub != "" {
		hub = l.path(1, at+".hub", rule.Hub)
	} else if field != nil {
		hub = l.path(1, at+".field", rule.Field)
	}
	if field == nil || hub == nil {
		return
	}
	inner := &level{Problems: l.Problems, file: l.file, at: at + ".rules"}
	for i, p := range []path{field, hub} {
		s, _ := l.sides[i].schema.at(p)
		var element *Schema
		if s != nil && s.shape() == "array" {
			element = s.Items
		} else if s != nil && s.shape() == "map" {
			element = s.valueSchema()
		}
		if element == nil || element.shape() != "object" {
			l.Addf(at, "%s is no list or map of objects in %s", p, l.sides[i].name)
			return
		}
		inner.sides[i] = &side{name: l.sides[i].name, schema: element, around: append(slices.Clone(l.sides[i].around), p.plus(anyElement)...)}
	}
	a, _ := l.sides[0].schema.at(field)
	b, _ := l.sides[1].schema.at(hub)
	if a.shape() != b.shape() {
		l.Addf(at, "%s is %s in %s, and %s is %s in %s", field, article(a.shape()), l.sides[0].name, hub, article(b.shape()), l.sides[1].name)
		return
	}
	toHub, fromHub := inner.compile(rule.Rules)
	l.words = append(l.words, inner.words...)
	l.unsaidCount += inner.unsaidCount
	for i, p := range []path{field, hub} {
		for _, d := range inner.sides[i].dropped {
			l.sides[i].dropped = append(l.sides[i].dropped, p.plus(anyElement).plus(d...))
		}
	}
	l.claim(0, field, "each", at, nil)
	l.claim(1, hub, "each", at, nil)
	l.produce(1, label, hub, []path{field}, eachStep(field, toHub))
	l.produce(0, label, field, []path{hub}, eachStep(hub, fromHub))
}
