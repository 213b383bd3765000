package roles

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Change is what a subject may do in one of two sets of objects, and not in the other.
type Change struct {
	Subject   string `json:"subject"`   // "User alice", "Group viewers"; service accounts are users
	Namespace string `json:"namespace"` // "" for all of them, and for what is in none
	Rule      string `json:"rule"`      // "get pods", "get /healthz"
}

func (c Change) String() string {
	if c.Namespace == "" {
		return c.Subject + " " + c.Rule
	}
	return c.Subject + " " + c.Rule + " in " + c.Namespace
}

// Proof is what copies change.
type Proof struct {
	// Lost is what subjects may no longer do. Of that Missing is what has nothing to do with objects that the other
	// side has by itself: nothing, where all have their copies.
	Lost    []Change `json:"lost"`
	Missing []Change `json:"missing"`
	// Gained is what subjects may do afterwards that neither set of before allowed: by a copied binding to a role that
	// is more there, and by roles that aggregate others of that side.
	Gained []Change `json:"gained"`
}

// Prove compares what subjects may do on the side from which objects are copied with what they may do on the other
// side afterwards; own is what that side had by itself. What a service account may do as a member of its groups it may
// itself. Aggregated roles are there what their controller makes of them; on the first side, what they are.
func Prove(before, own, after []Object) Proof {
	was, is := rightsOf(before), rightsOf(settled(after))
	p := Proof{Lost: is.lack(was, newBudget())}
	had, copies := byKey(before), slices.Clone(after)
	for i := range copies {
		if o := had[copies[i].Key()]; o != nil && copies[i].bootstraps() {
			copies[i] = *o
		}
	}
	p.Missing = rightsOf(settled(copies)).lack(was, newBudget())
	for subject, by := range rightsOf(settled(own)) {
		for namespace, sets := range by {
			was.add(subject, namespace, sets...)
		}
	}
	p.Gained = was.lack(is, newBudget())
	return p
}

// lack is what subjects may do by wanted, and not by these rights, sorted. Where roles name too much to be compared,
// the last one says so.
func (r rights) lack(wanted rights, left *budget) (changes []Change) {
	for _, subject := range slices.Sorted(maps.Keys(wanted)) {
		for _, namespace := range slices.Sorted(maps.Keys(wanted[subject])) {
			texts, tooMuch := uncovered(wanted[subject][namespace], r.in(subject, namespace), left)
			for _, rule := range texts {
				changes = append(changes, Change{Subject: subject, Namespace: namespace, Rule: rule})
			}
			if tooMuch != nil {
				return append(changes, Change{Subject: subject, Namespace: namespace,
					Rule: "does what " + tooMuch.of + " allows, which names too much to be compared"})
			}
		}
	}
	return changes
}

// budget bounds what is compared, and said. Who may write roles where a policy of ABAC decides writes any: a rule of a
// thousand verbs, groups, resources and names each is a million million of them. Roles that are equal on both sides
// cost nothing.
type budget struct{ words, bytes float64 }

func newBudget() *budget { return &budget{words: 1e9, bytes: 16 << 20} }

// take reports whether a rule may be compared with rules of so many words.
func (b *budget) take(w *rbacv1.PolicyRule, words int) bool {
	parts := float64(len(w.Verbs)) * (float64(len(w.NonResourceURLs)) +
		float64(len(w.APIGroups))*float64(len(w.Resources))*float64(max(1, len(w.ResourceNames))))
	b.words -= parts * float64(max(1, words))
	return !b.over()
}

// over reports whether there was too much.
func (b *budget) over() bool { return b.words < 0 || b.bytes < 0 }

// say adds a text, unless there was too much.
func (b *budget) say(texts []string, words ...string) []string {
	const header = 16
	b.bytes -= header
	for _, word := range words {
		b.bytes -= float64(len(word))
	}
	if b.over() {
		return texts
	}
	return append(texts, strings.Join(words, ""))
}

// ruleSet is what a role allows by a binding.
type ruleSet struct {
	of     string // key of the role
	rules  []rbacv1.PolicyRule
	digest [sha256.Size]byte
}

func setOf(role *Object, everywhere bool) *ruleSet {
	set := &ruleSet{of: role.Key(), rules: slices.Clone(role.Rules)}
	for k := range set.rules {
		if !everywhere { // a binding in a namespace allows no paths
			set.rules[k].NonResourceURLs = nil
		}
	}
	text, err := json.Marshal(set.rules)
	if err != nil {
		panic("roles: internal error: " + err.Error()) // they are lists of texts
	}
	set.digest = sha256.Sum256(text)
	return set
}

// rights are rules by subject and namespace, "" for what binds everywhere. Subjects of one binding share them: there
// may be many of both.
type rights map[string]map[string][]*ruleSet

// in are the rules that a subject has in a namespace, by itself and by its groups.
func (r rights) in(subject, namespace string) (sets []*ruleSet) {
	for _, s := range append([]string{subject}, groupsOf(subject)...) {
		sets = append(sets, r[s][namespace]...)
		if namespace != "" {
			sets = append(sets, r[s][""]...)
		}
	}
	return sets
}

const serviceAccount = "system:serviceaccount:"

// groupsOf are the groups that a user has in any case. Source: staging/src/k8s.io/apiserver/pkg/authentication.
func groupsOf(subject string) []string {
	if account, is := strings.CutPrefix(subject, "User "+serviceAccount); is {
		namespace, _, _ := strings.Cut(account, ":")
		return []string{"Group system:serviceaccounts", "Group system:serviceaccounts:" + namespace,
			"Group system:authenticated"}
	}
	return nil
}

func (r rights) add(subject, namespace string, sets ...*ruleSet) {
	if r[subject] == nil {
		r[subject] = map[string][]*ruleSet{}
	}
	r[subject][namespace] = append(r[subject][namespace], sets...)
}

func rightsOf(list []Object) rights {
	known, r := byKey(list), rights{}
	type use struct {
		role       string
		everywhere bool
	}
	sets := map[use]*ruleSet{}
	for i := range list {
		b := &list[i]
		if !b.isBinding() || known[b.refersTo()] == nil {
			continue
		}
		by := use{b.refersTo(), b.Namespace == ""}
		if sets[by] == nil {
			sets[by] = setOf(known[by.role], by.everywhere)
		}
		for _, subject := range subjectsOf(b) {
			r.add(subject, b.Namespace, sets[by])
		}
	}
	return r
}

// settled are objects when the controller of aggregated roles has seen them.
func settled(list []Object) []Object {
	after := slices.Clone(list)
	for i := range after {
		after[i].Rules = aggregated(&list[i], list, nil, map[string]bool{})
	}
	return after
}

// aggregated are the rules of a role as the controller of aggregated roles makes them. Source:
// pkg/controller/clusterroleaggregation of every version from 1.9 on. What was seen on another way is there already:
// roles that select each other have more ways than there are roles.
func aggregated(o *Object, list []Object, within []string, seen map[string]bool) []rbacv1.PolicyRule {
	if o.AggregationRule == nil || slices.Contains(within, o.Key()) {
		return o.Rules
	}
	within = append(slices.Clone(within), o.Key())
	seen[o.Key()] = true
	var selectors []labels.Selector
	for i := range o.AggregationRule.ClusterRoleSelectors {
		if s, err := metav1.LabelSelectorAsSelector(&o.AggregationRule.ClusterRoleSelectors[i]); err == nil {
			selectors = append(selectors, s)
		}
	}
	var rules []rbacv1.PolicyRule
	for i := range list {
		other := &list[i]
		if other.Kind != clusterRole || other.Name == o.Name ||
			seen[other.Key()] && !slices.Contains(within, other.Key()) ||
			!slices.ContainsFunc(selectors, func(s labels.Selector) bool {
				return s.Matches(labels.Set(other.Labels))
			}) {
			continue
		}
		seen[other.Key()] = true
		rules = append(rules, aggregated(other, list, within, seen)...)
	}
	return rules
}

// subjectsOf are the subjects of a binding, each as Change has it, sorted.
func subjectsOf(b *Object) (names []string) {
	for _, s := range b.Subjects {
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			names = append(names, "User "+serviceAccount+cmp.Or(s.Namespace, b.Namespace)+":"+s.Name)
		case rbacv1.UserKind, rbacv1.GroupKind:
			names = append(names, s.Kind+" "+s.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// uncovered are the rules of the first sets that the second do not allow, taken apart, sorted. tooMuch is the set that
// is not compared to its end, nil for none.
func uncovered(wanted, allowed []*ruleSet, left *budget) (texts []string, tooMuch *ruleSet) {
	there := map[[sha256.Size]byte]bool{}
	for _, set := range allowed {
		there[set.digest] = true
	}
	var rules []rbacv1.PolicyRule // of allowed, once they are needed
	words := 0
	for _, set := range wanted {
		if there[set.digest] {
			continue
		}
		there[set.digest] = true // what it lacks is said once
		if rules == nil {
			for _, set := range allowed {
				rules = append(rules, set.rules...)
			}
			for _, r := range rules {
				words += len(r.Verbs) + len(r.APIGroups) + len(r.Resources) + len(r.ResourceNames) +
					len(r.NonResourceURLs)
			}
		}
		for i := range set.rules {
			if !left.take(&set.rules[i], words) {
				return texts, set
			}
			if texts = uncoveredBy(texts, &set.rules[i], rules, left); left.over() {
				return texts, set
			}
		}
	}
	slices.Sort(texts)
	return slices.Compact(texts), nil
}

// uncoveredBy adds what one rule allows, and the others do not.
func uncoveredBy(texts []string, w *rbacv1.PolicyRule, allowed []rbacv1.PolicyRule, left *budget) []string {
	for _, verb := range w.Verbs {
		for _, path := range w.NonResourceURLs {
			if !slices.ContainsFunc(allowed, func(r rbacv1.PolicyRule) bool {
				return hasAny(r.Verbs, verb) && slices.ContainsFunc(r.NonResourceURLs, func(p string) bool {
					return coversPath(p, path)
				})
			}) {
				texts = left.say(texts, verb, " ", path)
			}
		}
		for _, group := range w.APIGroups {
			for _, resource := range w.Resources {
				if texts = uncoveredNames(texts, allowed, verb, group, resource, w.ResourceNames, left); left.over() {
					return texts
				}
			}
		}
	}
	return texts
}

func uncoveredNames(texts []string, allowed []rbacv1.PolicyRule, verb, group, resource string, names []string,
	left *budget) []string {
	covers := func(name string) bool {
		return slices.ContainsFunc(allowed, func(r rbacv1.PolicyRule) bool {
			return hasAny(r.Verbs, verb) && hasAny(r.APIGroups, group) &&
				slices.ContainsFunc(r.Resources, func(s string) bool { return coversResource(s, resource) }) &&
				(len(r.ResourceNames) == 0 || name != "" && slices.Contains(r.ResourceNames, name))
		})
	}
	what := []string{verb, " ", resource}
	if group != "" {
		what = append(what, ".", group)
	}
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		switch {
		case covers(name):
		case name == "":
			texts = left.say(texts, what...)
		default:
			texts = left.say(texts, append(slices.Clone(what), " ", name)...)
		}
	}
	return texts
}

func hasAny(list []string, word string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, word)
}

// coversResource is as the server's authorizer reads resources. Source: pkg/apis/rbac/v1/evaluation_helpers.go.
func coversResource(has, wanted string) bool {
	if has == "*" || has == wanted {
		return true
	}
	sub, is := strings.CutPrefix(has, "*/")
	_, wantedSub, isSub := strings.Cut(wanted, "/")
	return is && isSub && sub == wantedSub
}

func coversPath(has, wanted string) bool {
	prefix, is := strings.CutSuffix(has, "*")
	return has == wanted || is && strings.HasPrefix(wanted, prefix)
}
