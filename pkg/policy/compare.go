package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Comparison is the difference between two policies, in both directions. Both empty: they allow the same.
type Comparison struct {
	Gained []Excess `json:"gained"` // what the new policy allows and the old one does not
	Lost   []Excess `json:"lost"`   // what the old policy allows and the new one does not
}

// Excess is a set of requests that one policy allows and the other does not: the region without its exceptions.
type Excess struct {
	Region Region   `json:"region"`
	Except []Region `json:"except,omitempty"` // what the other policy allows of it; regions within the region
	// Others are exceptions for who has the right under the other policy for another reason as well, such as one more
	// group.
	Others  []Region `json:"others,omitempty"`
	Line    int      `json:"line,omitempty"` // of the first rule that allows the region
	Example Request  `json:"example"`        // one of the requests
	// Unlikely tells that no request differs that comes through an API server's authentication: a user that it knows is
	// always in group system:authenticated, and the other policy allows the region to that group.
	Unlikely bool `json:"unlikely,omitempty"`
}

// String prints the region and its exceptions as a sentence without its end.
func (e Excess) String() string {
	if len(e.Except) == 0 {
		return e.Region.String()
	}
	what := make([]string, len(e.Except))
	for i, r := range e.Except {
		what[i] = r.What()
	}
	return e.Region.String() + ", except: " + strings.Join(what, "; ")
}

// Compare computes what is gained and lost from the rules before to the rules after. It is complete and exact: a
// request is allowed by one policy and not by the other if and only if it is in one of the regions and in none of that
// one's exceptions. Requests that name neither a resource nor a path do not count. The words of the rules must be
// UTF-8, as parsed ones are.
//
// The regions are as few and as large as possible, and sorted.
func Compare(before, after []Rule) Comparison {
	return Comparison{Gained: excesses(after, before), Lost: excesses(before, after)}
}

// excesses lists what the rules allow and the others do not.
func excesses(rules, others []Rule) []Excess {
	lines := map[part]int{}
	for i := len(rules) - 1; i >= 0; i-- {
		for _, p := range rules[i].realParts() {
			lines[p] = rules[i].Line
		}
	}
	theirs := largest(realParts(others))
	covering := newPartSet(theirs)
	meeting := newPartIndex(theirs)
	otherwise := NewAuthorizer(others)
	fresh := newNames(rules, others)

	excesses := []Excess{}
	for _, p := range largest(realParts(rules)) {
		if covering.covers(p) {
			continue
		}
		verbs := AllVerbs
		reads := p
		reads.write = false
		switch {
		case !p.write:
			verbs = ReadVerbs
		case covering.covers(reads):
			verbs = WriteVerbs
		}
		e := Excess{Region: regionOf(p, verbs), Line: lines[p]}
		e.except(p, largest(meeting.within(p, verbs)))
		e.Example = fresh.example(e.Region, otherwise)
		_, e.Unlikely = otherwise.Match(e.Example.Authenticated().Attributes())
		excesses = append(excesses, e)
	}
	slices.SortFunc(excesses, func(a, b Excess) int { return compareRegions(a.Region, b.Region) })
	return excesses
}

// except records what the other policy allows of p. The parts hold only what they ask beyond p.
func (e *Excess) except(p part, parts []part) {
	for _, q := range parts {
		r := e.Region
		r.setObject(q.object)
		if r.Verbs == AllVerbs && !q.write {
			r.Verbs = ReadVerbs
		}
		if q.user.any && q.group.any {
			e.Except = append(e.Except, r)
			continue
		}
		if !q.user.any {
			r.User = q.user.word
		}
		if !q.group.any {
			r.Groups = slices.Sorted(slices.Values(append(slices.Clone(r.Groups), q.group.word)))
		}
		e.Others = append(e.Others, r)
	}
	slices.SortFunc(e.Except, compareRegions)
	slices.SortFunc(e.Others, compareRegions)
}

// partIndex finds the parts that meet a given one without looking at all of them: for each field it knows which parts
// ask for which word, and it walks the shortest of the lists.
type partIndex struct {
	parts  []part
	fields [5]map[match][]int
}

func newPartIndex(parts []part) *partIndex {
	index := &partIndex{parts: parts}
	for i := range index.fields {
		index.fields[i] = map[match][]int{}
	}
	for at, p := range parts {
		for i, word := range p.indexed() {
			index.fields[i][word] = append(index.fields[i][word], at)
		}
	}
	return index
}

// indexed lists the fields by which parts are found. The last one tells resources from paths and is never anything.
func (p part) indexed() [5]match {
	if p.isPath {
		return [5]match{p.user, anything, anything, anything, equals("path")}
	}
	return [5]match{p.user, p.apiGroup, p.resource, p.namespace, equals("resource")}
}

// within lists, for each of the parts that meets p in some of the verbs, what they have in common. What is returned
// holds only the conditions that it adds to those of p: its user is anything when it allows all users that p allows. It
// is not to be asked for its write when the verbs are only writes.
func (x *partIndex) within(p part, verbs Verbs) []part {
	var shortest [2][]int
	found := false
	for i, word := range p.indexed() {
		lists := [2][]int{x.fields[i][word], x.fields[i][anything]}
		if !word.any && (!found || len(lists[0])+len(lists[1]) < len(shortest[0])+len(shortest[1])) {
			shortest, found = lists, true
		}
	}
	var common []part
	for _, at := range slices.Concat(shortest[0], shortest[1]) {
		q := x.parts[at]
		if verbs == WriteVerbs && !q.write {
			continue
		}
		met, ok := p.object.meet(q.object)
		if _, sameUser := p.user.meet(q.user); !ok || !sameUser {
			continue
		}
		both := part{user: anything, group: anything, write: p.write && q.write, object: met}
		if !q.user.covers(p.user) {
			both.user = q.user
		}
		if !q.group.covers(p.group) {
			both.group = q.group
		}
		common = append(common, both)
	}
	return common
}

// names makes up words that no rule names, so that only a rule for anything matches them.
type names map[string]bool

func newNames(policies ...[]Rule) names {
	taken := names{}
	for _, rules := range policies {
		for _, r := range rules {
			for _, word := range []string{r.User, r.Group, r.APIGroup, r.Resource, r.Namespace} {
				taken[word] = true
			}
		}
	}
	return taken
}

func (taken names) fresh(word string) string {
	name := word
	for i := 2; taken[name]; i++ {
		name = fmt.Sprintf("%s-%d", word, i)
	}
	return name
}

// or is the word, or a fresh one where the region allows any.
func (taken names) or(word, fresh string) string {
	if word == "*" {
		return taken.fresh(fresh)
	}
	return word
}

// example is a request of the region that is fresh wherever the region allows anything. The other policy allows it only
// if it allows the whole region.
func (taken names) example(r Region, otherwise *Authorizer) Request {
	q := Request{User: taken.or(r.User, "somebody"), Groups: r.Groups, Verb: "get"}
	if r.Path == "" {
		switch {
		case r.Verbs.writes():
			q.Verb = "create"
		case r.Namespace == "": // a get has one, but for that of what is cluster-scoped
			q.Verb = "list"
		}
		q.APIGroup, q.Resource, q.Namespace = taken.or(r.APIGroup, "some.group"), taken.or(r.Resource, "somethings"),
			taken.or(r.Namespace, "some-namespace")
		return q
	}
	if r.Verbs.writes() {
		q.Verb = "post"
	}
	q.Path = r.Path
	prefix, isPrefix := strings.CutSuffix(r.Path, "*")
	if !isPrefix {
		return q
	}
	// A rule for a longer path may allow a likely one. No rule names the byte 0xFF: files are read as UTF-8.
	likely := []string{"", "some-path", "~", "\xff"}
	if prefix == "" {
		likely = []string{"/", "/some-path", "/~", "/\xff", "\xff"}
	}
	for _, end := range likely {
		q.Path = prefix + end
		if _, allowed := otherwise.Match(q.Attributes()); !allowed {
			break
		}
	}
	return q
}
