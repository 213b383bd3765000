package hub

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/spelling"
	"github.com/kubefusion/fusionctl/internal/strictyaml"
)

// New compiles rules for a CRD and checks them against the schemas of both versions: every required field is set, types
// are right, and nothing that a version has is lost without a rule that says so.
// Errors: every problem, joined, each with the line and the path of the rule. It keeps the definition. Safe for
// concurrent use.
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
		l.sides[inVersion], l.sides[inHub] = &side{name: version.Name, schema: own},
			&side{name: rules.Spec.Hub, schema: hub}
		toHub, fromHub := l.compile(version.Rules)
		c.words = append(c.words, l.words...)
		c.spokes[version.Name] = &spoke{toHub: toHub, fromHub: fromHub}
	}
	for _, version := range definition.Versions() {
		if !slices.ContainsFunc(rules.Spec.Versions, func(v Version) bool { return v.Name == version }) &&
			version != rules.Spec.Hub {
			ps.Addf("spec.versions", "has no entry for the version %s of the CRD; without rules (rules: []) it is "+
				"the hub under another name", version)
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

// where is one of the two sides that a rule is about.
type where int

const (
	inVersion where = iota
	inHub
)

func (w where) other() where { return 1 - w }

// key is what rules call a path of the side.
func (w where) key() string {
	if w == inHub {
		return "hub"
	}
	return "field"
}

// wayTo is the conversion whose result is the side.
func (w where) wayTo() string {
	if w == inHub {
		return "toHub"
	}
	return "fromHub"
}

// origin is the rule that claims and steps come from.
type origin struct {
	at    string // its path in the file
	label string // file, line and path: what errors of a conversion name
	kind  string
}

// level is the compilation of one list of rules: for objects, or for the elements of a list.
type level struct {
	*strictyaml.Problems
	file  string
	at    string   // of the list of rules in the file
	sides [2]*side // by where
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
	steps     []stepMaker
	providers []provider
	dropped   []path // of it, with the path of the element
}

// stepMaker makes a step when all rules of the level are known, from what they claim on the other side: what is moved
// is copied without that.
type stepMaker func(claims []claim) step

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
	never  bool // unknown when
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
	before := l.Count()
	var settings []func()
	for i, rule := range rules {
		if setting := l.rule(i, rule); setting != nil {
			settings = append(settings, setting)
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
	return l.program(inHub), l.program(inVersion)
}

// rule compiles one rule of the list. Settings come behind all others, and are returned.
func (l *level) rule(i int, rule Rule) (setting func()) {
	o := origin{kind: rule.kinds()[0]}
	o.at = fmt.Sprintf("%s[%d].%s", l.at, i, o.kind)
	o.label = fmt.Sprintf("%s:%d: %s", l.file, l.Lines.Line(o.at), o.at)
	switch {
	case rule.Rename != nil:
		l.rename(o, rule.Rename)
	case rule.Move != nil:
		l.move(o, l.path(inVersion, o.at+".field", rule.Move.Field), l.path(inHub, o.at+".hub", rule.Move.Hub))
	case rule.Values != nil:
		l.values(o, rule.Values)
	case rule.Split != nil:
		l.parts(o, inVersion, rule.Split.Field, list{o.at + ".hub", rule.Split.Hub}, rule.Split.Separator)
	case rule.Merge != nil:
		l.parts(o, inHub, rule.Merge.Hub, list{o.at + ".fields", rule.Merge.Fields}, rule.Merge.Separator)
	case rule.Wrap != nil:
		l.wrap(o, inVersion, rule.Wrap)
	case rule.Unwrap != nil:
		l.wrap(o, inHub, rule.Unwrap)
	case rule.Constant != nil:
		return func() { l.setting(o, rule.Constant, true) }
	case rule.Default != nil:
		return func() { l.setting(o, rule.Default, false) }
	case rule.CEL != nil:
		l.cel(o, rule.CEL)
	case rule.Each != nil:
		l.each(o, rule.Each)
	case rule.Keep != nil:
		l.aside(o, rule.Keep)
	case rule.Drop != nil:
		l.aside(o, rule.Drop)
	}
	return nil
}

// program is the conversion that makes a side from the other.
func (l *level) program(to where) *program {
	source, target := l.sides[to.other()], l.sides[to]
	p := &program{source: source.schema, target: target.schema, dropped: source.dropped, fills: target.fills}
	for _, c := range source.claims {
		p.taken = append(p.taken, c.path)
	}
	for _, make := range target.steps {
		p.steps = append(p.steps, make(source.claims))
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
func (l *level) path(w where, at, text string) path {
	s := l.sides[w]
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
		l.Addf(at, `%q: of the metadata a conversion may change labels and annotations alone, such as `+
			`metadata.labels["example.com/size"]`, p.String())
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
			return fmt.Sprintf("%q: %s is a list in %s; the rule each speaks of its elements", p.String(), p[:i],
				s.name)
		case child == nil && !free:
			if near, ok := spelling.Nearest(name, current.names()); ok {
				return fmt.Sprintf("%q: %s has no such field; did you mean %q?", p.String(), s.name,
					p[:i].plus(near).String())
			}
			return fmt.Sprintf("%q: %s has no such field", p.String(), s.name)
		}
		current = child
	}
	return ""
}

func (l *level) claim(w where, o origin, p, to path) {
	l.sides[w].claims = append(l.sides[w].claims, claim{path: p, kind: o.kind, at: o.at, to: to})
}

// produce adds a step that makes a field of the side, and says when it does.
func (l *level) produce(w where, o origin, target path, sources []path,
	run func(*run, map[string]any) (any, bool, error)) {
	l.step(w, func([]claim) step { return step{rule: o.label, target: target, run: run} })
	for _, source := range sources {
		l.provide(w, provider{target: target, source: source})
	}
}

func (l *level) step(w where, make stepMaker) { l.sides[w].steps = append(l.sides[w].steps, make) }

func (l *level) provide(w where, p provider) { l.sides[w].providers = append(l.sides[w].providers, p) }
