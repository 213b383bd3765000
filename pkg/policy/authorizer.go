package policy

import (
	"context"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Authorizer decides requests by a policy, exactly as the server's own ABAC authorizer does, but by lookup: the cost of
// a decision grows with the number of the request's groups, not with the number of rules, and nothing is allocated. It
// never changes; it is safe for concurrent use.
type Authorizer struct {
	rules []Rule

	// Subjects. A rule for a user, for a group, or for both at once has its own entry.
	users     map[string]userEntry
	groups    map[string]subjectEntry
	everybody subjectEntry

	// Every word of a rule has a number; the same word has one number per field.
	apiGroups, resources, namespaces, exactPaths wordIDs
	pathPrefixes                                 prefixTree

	objects map[objectKey]firstRules
	paths   map[pathKey]firstRules
}

var (
	_ authorizer.Authorizer   = (*Authorizer)(nil)
	_ authorizer.RuleResolver = (*Authorizer)(nil)
)

// subjectEntry says which kinds of lookup can succeed for a subject.
type subjectEntry struct {
	id       uint32 // 0: the policy has no such subject
	shapes   uint8  // bit s: objectKeys of shape s exist
	exact    bool   // pathKeys of whole paths exist
	prefixes bool   // pathKeys of prefixes exist
}

// userEntry is a user, alone and together with single groups.
type userEntry struct {
	alone     subjectEntry
	withGroup map[string]subjectEntry
}

// An objectKey's shape says which of its fields are given; the others are anything, and 0.
const (
	shapeAPIGroup = 1 << iota
	shapeResource
	shapeNamespace
	shapes
)

type objectKey struct{ subject, apiGroup, resource, namespace uint32 }

type pathKey struct {
	subject, path uint32
	isPrefix      bool
}

// firstRules holds the lowest indices, plus 1, of the rules that allow reads and writes; 0 is none.
type firstRules struct{ read, write uint32 }

// wordIDs numbers words from 1; 0 is a word that no rule names.
type wordIDs map[string]uint32

func (ids wordIDs) add(word string) uint32 {
	id, ok := ids[word]
	if !ok {
		id = uint32(len(ids)) + 1
		ids[word] = id
	}
	return id
}

// NewAuthorizer compiles rules. It keeps the slice, which must not change afterwards.
func NewAuthorizer(rules []Rule) *Authorizer {
	a := &Authorizer{
		rules: rules,
		users: map[string]userEntry{}, groups: map[string]subjectEntry{},
		apiGroups: wordIDs{}, resources: wordIDs{}, namespaces: wordIDs{}, exactPaths: wordIDs{},
		objects: map[objectKey]firstRules{}, paths: map[pathKey]firstRules{},
	}
	prefixes := wordIDs{}
	subjects := map[[2]match]subjectEntry{}
	for i, rule := range rules {
		for _, p := range rule.parts() {
			conditions := [2]match{p.user, p.group}
			subject, known := subjects[conditions]
			if !known {
				subject.id = uint32(len(subjects)) + 1
			}
			first := uint32(i) + 1
			if p.isPath {
				key := pathKey{subject: subject.id, isPrefix: p.pathIsPrefix}
				if p.pathIsPrefix {
					key.path = prefixes.add(p.path)
					subject.prefixes = true
				} else {
					key.path = a.exactPaths.add(p.path)
					subject.exact = true
				}
				a.paths[key] = a.paths[key].with(first, p.write)
			} else {
				key, shape := a.objectKeyOf(subject.id, p)
				subject.shapes |= 1 << shape
				a.objects[key] = a.objects[key].with(first, p.write)
			}
			subjects[conditions] = subject
		}
	}
	a.pathPrefixes = newPrefixTree(prefixes)
	a.addSubjects(subjects)
	return a
}

func (f firstRules) with(index uint32, write bool) firstRules {
	if f.read == 0 {
		f.read = index
	}
	if f.write == 0 && write {
		f.write = index
	}
	return f
}

func (a *Authorizer) objectKeyOf(subject uint32, p part) (key objectKey, shape int) {
	key.subject = subject
	if !p.apiGroup.any {
		key.apiGroup = a.apiGroups.add(p.apiGroup.word)
		shape |= shapeAPIGroup
	}
	if !p.resource.any {
		key.resource = a.resources.add(p.resource.word)
		shape |= shapeResource
	}
	if !p.namespace.any {
		key.namespace = a.namespaces.add(p.namespace.word)
		shape |= shapeNamespace
	}
	return key, shape
}

func (a *Authorizer) addSubjects(subjects map[[2]match]subjectEntry) {
	for conditions, entry := range subjects {
		user, group := conditions[0], conditions[1]
		switch {
		case user.any && group.any:
			a.everybody = entry
		case user.any:
			a.groups[group.word] = entry
		default:
			u := a.users[user.word]
			if group.any {
				u.alone = entry
			} else {
				if u.withGroup == nil {
					u.withGroup = map[string]subjectEntry{}
				}
				u.withGroup[group.word] = entry
			}
			a.users[user.word] = u
		}
	}
}

// Authorize allows what a rule allows and has no opinion about the rest; it never denies and never fails. The reasons
// are the server's own. It implements authorizer.Authorizer.
func (a *Authorizer) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string,
	error) {
	if _, ok := a.Match(attributes); ok {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "No policy matched.", nil
}

// Match returns the first rule of the policy that allows the request, and whether there is one.
func (a *Authorizer) Match(attributes authorizer.Attributes) (Rule, bool) {
	info := attributes.GetUser()
	if info == nil {
		return Rule{}, false
	}
	q := query{a: a, write: !attributes.IsReadOnly(), isPath: !attributes.IsResourceRequest()}
	if q.isPath {
		q.path = attributes.GetPath()
		q.exactPath = a.exactPaths[q.path]
	} else {
		q.key.apiGroup = a.apiGroups[attributes.GetAPIGroup()]
		q.key.resource = a.resources[attributes.GetResource()]
		q.key.namespace = a.namespaces[attributes.GetNamespace()]
	}

	groups := info.GetGroups()
	q.ask(a.everybody)
	if u, ok := a.users[info.GetName()]; ok {
		q.ask(u.alone)
		if u.withGroup != nil {
			for _, group := range groups {
				q.ask(u.withGroup[group])
			}
		}
	}
	for _, group := range groups {
		q.ask(a.groups[group])
	}
	if q.first == 0 {
		return Rule{}, false
	}
	return a.rules[q.first-1], true
}

// query is one request while it is decided: its words as numbers, and the lowest rule found so far.
type query struct {
	a         *Authorizer
	write     bool
	isPath    bool
	key       objectKey
	path      string
	exactPath uint32
	first     uint32 // index plus 1
}

func (q *query) take(f firstRules) {
	found := f.read
	if q.write {
		found = f.write
	}
	if found != 0 && (q.first == 0 || found < q.first) {
		q.first = found
	}
}

// ask looks up everything that the subject's rules could say about the request.
func (q *query) ask(subject subjectEntry) {
	if subject.id == 0 {
		return
	}
	if q.isPath {
		if subject.exact && q.exactPath != 0 {
			q.take(q.a.paths[pathKey{subject: subject.id, path: q.exactPath}])
		}
		if subject.prefixes {
			q.askPrefixes(subject.id)
		}
		return
	}
	for shape := range shapes {
		if subject.shapes&(1<<shape) == 0 {
			continue
		}
		key := objectKey{subject: subject.id}
		if shape&shapeAPIGroup != 0 {
			if key.apiGroup = q.key.apiGroup; key.apiGroup == 0 {
				continue
			}
		}
		if shape&shapeResource != 0 {
			if key.resource = q.key.resource; key.resource == 0 {
				continue
			}
		}
		if shape&shapeNamespace != 0 {
			if key.namespace = q.key.namespace; key.namespace == 0 {
				continue
			}
		}
		q.take(q.a.objects[key])
	}
}

func (q *query) askPrefixes(subject uint32) {
	walk := q.a.pathPrefixes.walk(q.path)
	for walk.next() {
		q.take(q.a.paths[pathKey{subject: subject, path: walk.id, isPrefix: true}])
	}
}

// RulesFor lists what the policy allows the user in the namespace, rule by rule in the order of the file, as the
// server's authorizer does for a SelfSubjectRulesReview: a rule for another namespace is left out, its path included.
// The list is complete and the error always nil. It implements authorizer.RuleResolver; its time grows with the number
// of rules.
func (a *Authorizer) RulesFor(_ context.Context, info user.Info, namespace string) ([]authorizer.ResourceRuleInfo,
	[]authorizer.NonResourceRuleInfo, bool, error) {
	var resources []authorizer.ResourceRuleInfo
	var paths []authorizer.NonResourceRuleInfo
	for _, rule := range a.rules {
		if !rule.matchesSubject(info) || !star(rule.Namespace).covers(equals(namespace)) {
			continue
		}
		verbs := []string{"*"}
		if rule.Readonly {
			verbs = []string{"get", "list", "watch"}
		}
		if rule.Resource != "" {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{
				Verbs: verbs, APIGroups: []string{rule.APIGroup}, Resources: []string{rule.Resource},
			})
		}
		if rule.NonResourcePath != "" {
			paths = append(paths, &authorizer.DefaultNonResourceRuleInfo{
				Verbs: verbs, NonResourceURLs: []string{rule.NonResourcePath},
			})
		}
	}
	return resources, paths, false, nil
}

// matchesSubject reports whether the rule is about the user at all.
func (r Rule) matchesSubject(info user.Info) bool {
	if info == nil || (r.User == "" && r.Group == "") {
		return false
	}
	if !subject(r.User).covers(equals(info.GetName())) {
		return false
	}
	condition := subject(r.Group)
	if condition.any {
		return true
	}
	for _, group := range info.GetGroups() {
		if group == condition.word {
			return true
		}
	}
	return false
}
