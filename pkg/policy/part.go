package policy

import (
	"maps"
	"slices"
	"strings"
)

// part is one of the two halves of a rule: it allows either resource requests or path requests. A rule is the union of
// its parts. Parts are comparable: equal parts allow the same.
//
// Every field is a condition of its own, so a part is a box, and one box covers another iff it does so field by field.
type part struct {
	user, group match
	write       bool // reads and writes; otherwise reads only
	object
}

// object is what a part says about the object of a request.
type object struct {
	apiGroup, resource, namespace match
	isPath                        bool   // the above are zero; otherwise the below are
	path                          string // the exact path, or what it begins with
	pathIsPrefix                  bool
}

// match is a condition on one word.
type match struct {
	any  bool // always holds; word is ""
	word string
}

var anything = match{any: true}

func equals(word string) match { return match{word: word} }

// star reads a field in which "*" stands for anything.
func star(word string) match {
	if word == "*" {
		return anything
	}
	return equals(word)
}

// subject reads a user or group, of which an empty one is no condition.
func subject(word string) match {
	if word == "" || word == "*" {
		return anything
	}
	return equals(word)
}

// String prints the condition as a rule would: "*" for anything.
func (m match) String() string {
	if m.any {
		return "*"
	}
	return m.word
}

func (m match) covers(n match) bool { return m.any || m == n }

// meet returns the condition that m and n hold, and whether they can.
func (m match) meet(n match) (match, bool) {
	switch {
	case m.covers(n):
		return n, true
	default:
		return m, n.any
	}
}

// parts splits the rule. A rule without user and group matches no request and has none.
func (r Rule) parts() []part {
	if r.User == "" && r.Group == "" {
		return nil
	}
	p := part{user: subject(r.User), group: subject(r.Group), write: !r.Readonly}
	resources, paths := p, p
	resources.object = object{apiGroup: star(r.APIGroup), resource: star(r.Resource), namespace: star(r.Namespace)}
	paths.object = pathObject(r.NonResourcePath)
	return []part{resources, paths}
}

// pathObject reads a NonResourcePath.
func pathObject(path string) object {
	o := object{isPath: true, path: path}
	if strings.HasSuffix(path, "*") {
		o.path, o.pathIsPrefix = strings.TrimRight(path, "*"), true
	}
	return o
}

// realParts is parts without those that only a request without a resource, with an empty path or with a word that has a
// slash can meet: the server compares such a request, too, but no client can send it. A slash ends a group, a namespace
// or a resource in a path, and a subresource is compared with nothing. What rules mean to people is computed from real
// parts alone.
func (r Rule) realParts() []part {
	return slices.DeleteFunc(r.parts(), func(p part) bool {
		if p.isPath {
			return p.path == "" && !p.pathIsPrefix
		}
		return p.resource == equals("") || strings.Contains(p.apiGroup.word+p.resource.word+p.namespace.word, "/")
	})
}

// realParts lists the real parts of all rules.
func realParts(rules []Rule) []part {
	var parts []part
	for _, rule := range rules {
		parts = append(parts, rule.realParts()...)
	}
	return parts
}

// covers reports whether every object of q is in o.
func (o object) covers(q object) bool {
	switch {
	case o.isPath != q.isPath:
		return false
	case o.isPath && o.pathIsPrefix:
		return strings.HasPrefix(q.path, o.path)
	case o.isPath:
		return o == q
	default:
		return o.apiGroup.covers(q.apiGroup) && o.resource.covers(q.resource) && o.namespace.covers(q.namespace)
	}
}

// meet returns the objects that are in both, and whether there are any.
func (o object) meet(q object) (object, bool) {
	switch {
	case o.covers(q):
		return q, true
	case q.covers(o):
		return o, true
	case o.isPath || q.isPath:
		return object{}, false
	}
	apiGroup, ok1 := o.apiGroup.meet(q.apiGroup)
	resource, ok2 := o.resource.meet(q.resource)
	namespace, ok3 := o.namespace.meet(q.namespace)
	return object{apiGroup: apiGroup, resource: resource, namespace: namespace}, ok1 && ok2 && ok3
}

// minimal returns the indices, ascending, of rules that together allow what all of them allow, and none of which the
// others cover; a rule that allows nothing is not among them. Of equal rules the first stays. Where every rule has a
// resource or a path but not both, no smaller set exists. The time grows with the number of rules, not with its square.
func minimal(rules []Rule) []int {
	held := newPartSet(realParts(rules))
	kept := make([]bool, len(rules))
	// From the last to the first, so that the first of equal rules stays.
	for i := len(rules) - 1; i >= 0; i-- {
		parts := rules[i].realParts()
		held.add(parts, -1)
		for _, p := range parts {
			kept[i] = kept[i] || !held.covers(p)
		}
		if kept[i] {
			held.add(parts, 1)
		}
	}
	var indices []int
	for i, k := range kept {
		if k {
			indices = append(indices, i)
		}
	}
	return indices
}

// partSet is a multiset of parts that knows quickly whether one of them covers a given part: there are few ways to
// generalise a part, so each is looked up.
type partSet struct {
	count         map[part]int
	shapes        map[partShape]int // how many parts of the set have which shape
	prefixLengths []int             // of all path parts that are prefixes, ascending
}

// partShape says which conditions of a part are none. A set has parts of few shapes, and need not be asked for others.
type partShape struct {
	user, group, write, apiGroup, resource, namespace, isPath, pathIsPrefix bool
}

func (p part) shape() partShape {
	return partShape{p.user.any, p.group.any, p.write, p.apiGroup.any, p.resource.any, p.namespace.any, p.isPath,
		p.pathIsPrefix}
}

func newPartSet(parts []part) *partSet {
	set := &partSet{count: map[part]int{}, shapes: map[partShape]int{}}
	set.add(parts, 1)
	lengths := map[int]bool{}
	for _, p := range parts {
		if p.pathIsPrefix {
			lengths[len(p.path)] = true
		}
	}
	set.prefixLengths = slices.Sorted(maps.Keys(lengths))
	return set
}

// add changes how often the set holds each of the parts.
func (s *partSet) add(parts []part, times int) {
	for _, p := range parts {
		s.count[p] += times
		s.shapes[p.shape()] += times
	}
}

// has reports whether the set holds exactly p.
func (s *partSet) has(p part) bool { return s.shapes[p.shape()] > 0 && s.count[p] > 0 }

// covers reports whether a part of the set covers p.
func (s *partSet) covers(p part) bool {
	_, ok := s.cover(p)
	return ok
}

// cover finds a part of the set that covers p: p itself if the set has it.
func (s *partSet) cover(p part) (part, bool) {
	for _, user := range widen(p.user) {
		for _, group := range widen(p.group) {
			for _, write := range []bool{true, false} {
				if p.write && !write {
					continue
				}
				q := p
				q.user, q.group, q.write = user, group, write
				find := s.resource
				if q.isPath {
					find = s.path
				}
				if cover, ok := find(q); ok {
					return cover, true
				}
			}
		}
	}
	return part{}, false
}

// coversAlone is covers by a part that is not equal to p.
func (s *partSet) coversAlone(p part) bool {
	times := s.count[p]
	s.count[p] = 0
	covered := s.covers(p)
	s.count[p] = times
	return covered
}

// resource looks for p with each of its object's fields as it is or as anything.
func (s *partSet) resource(p part) (part, bool) {
	for _, apiGroup := range widen(p.apiGroup) {
		for _, resource := range widen(p.resource) {
			for _, namespace := range widen(p.namespace) {
				q := p
				q.apiGroup, q.resource, q.namespace = apiGroup, resource, namespace
				if s.has(q) {
					return q, true
				}
			}
		}
	}
	return part{}, false
}

// path looks for p, and for p with each prefix of its path.
func (s *partSet) path(p part) (part, bool) {
	if s.has(p) {
		return p, true
	}
	q := p
	q.pathIsPrefix = true
	for _, length := range s.prefixLengths {
		if length > len(p.path) {
			break
		}
		q.path = p.path[:length]
		if s.has(q) {
			return q, true
		}
	}
	return part{}, false
}

// widen lists the conditions on one word that cover m.
func widen(m match) []match {
	if m.any {
		return []match{anything}
	}
	return []match{m, anything}
}

// largest leaves out the parts that another one covers, and of equal ones all but the first.
func largest(parts []part) []part {
	set := newPartSet(parts)
	seen := map[part]bool{}
	var largest []part
	for _, p := range parts {
		if !seen[p] && !set.coversAlone(p) {
			largest = append(largest, p)
		}
		seen[p] = true
	}
	return largest
}
