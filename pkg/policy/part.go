package policy

import (
	"maps"
	"slices"
	"strings"
)

// part is one of the two halves of a rule: it allows either resource requests or path requests. A rule is the union of its
// parts. Parts are comparable: equal parts allow the same.
//
// Every field is a condition of its own, so a part is a box, and one box covers another iff it does so field by field.
type part struct {
	user, group  match
	write        bool // reads and writes; otherwise reads only
	isPath       bool
	apiGroup     match
	resource     match
	namespace    match
	path         string // of a path part: the exact path, or what it begins with
	pathIsPrefix bool
}

// match is a condition on one word.
type match struct {
	any  bool // always holds; equal is ""
	word string
}

func (m match) covers(n match) bool { return m.any || m == n }

func equals(word string) match { return match{word: word} }

var anything = match{any: true}

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

// parts splits the rule. A rule without user and group matches nobody and has none.
func (r Rule) parts() []part {
	if r.User == "" && r.Group == "" {
		return nil
	}
	resources := part{
		user: subject(r.User), group: subject(r.Group), write: !r.Readonly,
		apiGroup: star(r.APIGroup), resource: star(r.Resource), namespace: star(r.Namespace),
	}
	paths := part{user: resources.user, group: resources.group, write: resources.write, isPath: true, path: r.NonResourcePath}
	if strings.HasSuffix(r.NonResourcePath, "*") {
		paths.path = strings.TrimRight(r.NonResourcePath, "*")
		paths.pathIsPrefix = true
	}
	return []part{resources, paths}
}

// covers reports whether p allows every request that q allows.
func (p part) covers(q part) bool {
	if p.isPath != q.isPath || !p.user.covers(q.user) || !p.group.covers(q.group) || (q.write && !p.write) {
		return false
	}
	if p.isPath {
		if p.pathIsPrefix {
			return strings.HasPrefix(q.path, p.path)
		}
		return p.path == q.path && !q.pathIsPrefix
	}
	return p.apiGroup.covers(q.apiGroup) && p.resource.covers(q.resource) && p.namespace.covers(q.namespace)
}

// minimal returns the indices, ascending, of rules that together allow what all of them allow, and none of which the others
// cover. Of equal rules the first stays. Where every rule has resources or a path but not both, no smaller set exists. The
// time grows with the number of rules, not with its square.
func minimal(rules []Rule) []int {
	held := newPartSet(rules)
	kept := make([]bool, len(rules))
	// From the last to the first, so that the first of equal rules stays.
	for i := len(rules) - 1; i >= 0; i-- {
		parts := rules[i].parts()
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

// partSet is a multiset of parts that knows quickly whether one of them covers a given part: there are few ways to generalise
// a part, so each is looked up.
type partSet struct {
	count         map[part]int
	prefixLengths []int // of all path parts that are prefixes, ascending
}

func newPartSet(rules []Rule) *partSet {
	set := &partSet{count: map[part]int{}}
	lengths := map[int]bool{}
	for _, rule := range rules {
		parts := rule.parts()
		set.add(parts, 1)
		for _, p := range parts {
			if p.pathIsPrefix {
				lengths[len(p.path)] = true
			}
		}
	}
	set.prefixLengths = slices.Sorted(maps.Keys(lengths))
	return set
}

// add changes how often the set holds each of the parts.
func (s *partSet) add(parts []part, times int) {
	for _, p := range parts {
		s.count[p] += times
	}
}

// covers reports whether a part of the set covers p.
func (s *partSet) covers(p part) bool {
	for _, user := range widen(p.user) {
		for _, group := range widen(p.group) {
			for _, write := range []bool{true, false} {
				if p.write && !write {
					continue
				}
				q := p
				q.user, q.group, q.write = user, group, write
				if q.isPath && s.hasPath(q) || !q.isPath && s.hasResource(q) {
					return true
				}
			}
		}
	}
	return false
}

// hasResource looks for p with each of its object's fields as it is or as anything.
func (s *partSet) hasResource(p part) bool {
	for _, apiGroup := range widen(p.apiGroup) {
		for _, resource := range widen(p.resource) {
			for _, namespace := range widen(p.namespace) {
				q := p
				q.apiGroup, q.resource, q.namespace = apiGroup, resource, namespace
				if s.count[q] > 0 {
					return true
				}
			}
		}
	}
	return false
}

// hasPath looks for q, and for q with each prefix of its path.
func (s *partSet) hasPath(q part) bool {
	if s.count[q] > 0 {
		return true
	}
	path := q.path
	q.pathIsPrefix = true
	for _, length := range s.prefixLengths {
		if length > len(path) {
			return false
		}
		q.path = path[:length]
		if s.count[q] > 0 {
			return true
		}
	}
	return false
}

// widen lists the conditions on one word that cover m.
func widen(m match) []match {
	if m.any {
		return []match{anything}
	}
	return []match{m, anything}
}
