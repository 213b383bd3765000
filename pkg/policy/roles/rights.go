package roles

import (
	"cmp"
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
	p := Proof{Lost: is.lack(was)}
	had, copies := byKey(before), slices.Clone(after)
	for i := range copies {
		if o := had[copies[i].Key()]; o != nil && copies[i].bootstraps() {
			copies[i] = *o
		}
	}
	p.Missing = rightsOf(settled(copies)).lack(was)
	for subject, by := range rightsOf(settled(own)) {
		for namespace, rules := range by {
			was.add(subject, namespace, rules...)
		}
	}
	p.Gained = was.lack(is)
	return p
}

// lack is what subjects may do by wanted, and not by these rights, sorted.
func (r rights) lack(wanted rights) (changes []Change) {
	for _, subject := range slices.Sorted(maps.Keys(wanted)) {
		for _, namespace := range slices.Sorted(maps.Keys(wanted[subject])) {
			for _, rule := range uncovered(wanted[subject][namespace], r.in(subject, namespace)) {
				changes = append(changes, Change{Subject: subject, Namespace: namespace, Rule: rule})
			}
		}
	}
	return changes
}

// rights are rules by subject and namespace, "" for what binds everywhere.
type rights map[string]map[string][]rbacv1.PolicyRule

// in are the rules that a subject has in a namespace, by itself and by its groups.
func (r rights) in(subject, namespace string) (rules []rbacv1.PolicyRule) {
	for _, s := range append([]string{subject}, groupsOf(subject)...) {
		rules = append(rules, r[s][namespace]...)
		if namespace != "" {
			rules = append(rules, r[s][""]...)
		}
	}
	return rules
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

func (r rights) add(subject, namespace string, rules ...rbacv1.PolicyRule) {
	if r[subject] == nil {
		r[subject] = map[string][]rbacv1.PolicyRule{}
	}
	r[subject][namespace] = append(r[subject][namespace], rules...)
}

func rightsOf(list []Object) rights {
	known, r := byKey(list), rights{}
	for i := range list {
		b := &list[i]
		if !b.isBinding() || known[b.refersTo()] == nil {
			continue
		}
		rules := slices.Clone(known[b.refersTo()].Rules)
		for k := range rules {
			if b.Namespace != "" { // a binding in a namespace allows no paths
				rules[k].NonResourceURLs = nil
			}
		}
		for _, subject := range subjectsOf(b) {
			r.add(subject, b.Namespace, rules...)
		}
	}
	return r
}

// settled are objects when the controller of aggregated roles has seen them.
func settled(list []Object) []Object {
	after := slices.Clone(list)
	for i := range after {
		after[i].Rules = aggregated(&list[i], list, nil)
	}
	return after
}

// aggregated are the rules of a role as the controller of aggregated roles makes them. Source:
// pkg/controller/clusterroleaggregation of every version from 1.9 on.
func aggregated(o *Object, list []Object, within []string) []rbacv1.PolicyRule {
	if o.AggregationRule == nil || slices.Contains(within, o.Key()) {
		return o.Rules
	}
	within = append(slices.Clone(within), o.Key())
	var rules []rbacv1.PolicyRule
	for i := range list {
		other := &list[i]
		selects := func(s metav1.LabelSelector) bool {
			selector, err := metav1.LabelSelectorAsSelector(&s)
			return err == nil && selector.Matches(labels.Set(other.Labels))
		}
		if other.Kind == clusterRole && other.Name != o.Name &&
			slices.ContainsFunc(o.AggregationRule.ClusterRoleSelectors, selects) {
			rules = append(rules, aggregated(other, list, within)...)
		}
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

// uncovered are the rules of the first list that the second does not allow, taken apart, sorted.
func uncovered(wanted, allowed []rbacv1.PolicyRule) (texts []string) {
	for _, w := range wanted {
		for _, verb := range w.Verbs {
			for _, path := range w.NonResourceURLs {
				if !slices.ContainsFunc(allowed, func(r rbacv1.PolicyRule) bool {
					return hasAny(r.Verbs, verb) && slices.ContainsFunc(r.NonResourceURLs, func(p string) bool {
						return coversPath(p, path)
					})
				}) {
					texts = append(texts, verb+" "+path)
				}
			}
			for _, group := range w.APIGroups {
				for _, resource := range w.Resources {
					texts = append(texts, uncoveredNames(allowed, verb, group, resource, w.ResourceNames)...)
				}
			}
		}
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

func uncoveredNames(allowed []rbacv1.PolicyRule, verb, group, resource string, names []string) (texts []string) {
	covers := func(name string) bool {
		return slices.ContainsFunc(allowed, func(r rbacv1.PolicyRule) bool {
			return hasAny(r.Verbs, verb) && hasAny(r.APIGroups, group) &&
				slices.ContainsFunc(r.Resources, func(s string) bool { return coversResource(s, resource) }) &&
				(len(r.ResourceNames) == 0 || name != "" && slices.Contains(r.ResourceNames, name))
		})
	}
	text := verb + " " + resource
	if group != "" {
		text += "." + group
	}
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		switch {
		case covers(name):
		case name == "":
			texts = append(texts, text)
		default:
			texts = append(texts, text+" "+name)
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
