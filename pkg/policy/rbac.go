package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// RBAC is a policy as RBAC objects, and what of it RBAC cannot express.
type RBAC struct {
	ClusterRoles        []rbacv1.ClusterRole
	ClusterRoleBindings []rbacv1.ClusterRoleBinding
	Roles               []rbacv1.Role
	RoleBindings        []rbacv1.RoleBinding
	Gaps                []Gap
}

// Objects lists the roles and their bindings in the order in which they are applied.
func (r RBAC) Objects() []any {
	objects := []any{}
	for _, o := range r.ClusterRoles {
		objects = append(objects, o)
	}
	for _, o := range r.Roles {
		objects = append(objects, o)
	}
	for _, o := range r.ClusterRoleBindings {
		objects = append(objects, o)
	}
	for _, o := range r.RoleBindings {
		objects = append(objects, o)
	}
	return objects
}

// Gap is where the objects allow less than a rule.
type Gap struct {
	Line int    `json:"line"`
	Text string `json:"rule"`
	Why  string `json:"why"` // one sentence without its end
}

// ToRBAC translates a policy. The objects never allow more than the rules; where they allow less, Gaps says why:
//   - a rule for a user and a group at once is left out, since a binding's subjects are alternatives;
//   - a rule without a namespace is left out unless its resource is in no namespace: a ClusterRole would allow all
//     namespaces;
//   - subresources have to be named one by one: those that some Kubernetes version has, and status and scale of what
//     the catalog does not know or has from a CustomResourceDefinition, which has no others.
//
// There is one role per subject and namespace. A subject that is everybody becomes groups system:authenticated and
// system:unauthenticated, of which every request has one. Rules that others cover are silently left out.
func ToRBAC(rules []Rule, catalog *Catalog) RBAC {
	if catalog == nil {
		catalog = builtinCatalog()
	}
	t := &translation{catalog: catalog, subresources: map[object][]string{}, roles: map[roleKey]*[]rbacv1.PolicyRule{},
		gaps: []Gap{}}
	for _, i := range minimal(rules) {
		for _, p := range rules[i].realParts() {
			t.add(rules[i], p)
		}
	}
	return t.objects()
}

// roleKey tells the roles apart: one per subject and namespace, "" for a ClusterRole.
type roleKey struct{ user, group, namespace string }

type translation struct {
	catalog      *Catalog
	subresources map[object][]string // by a resource in no namespace
	roles        map[roleKey]*[]rbacv1.PolicyRule
	gaps         []Gap
}

func (t *translation) gap(rule Rule, format string, args ...any) {
	t.gaps = append(t.gaps, Gap{Line: rule.Line, Text: rule.String(), Why: fmt.Sprintf(format, args...)})
}

func (t *translation) add(rule Rule, p part) {
	if !p.user.any && !p.group.any {
		t.gap(rule, "a binding cannot require both user %q and group %q", p.user.word, p.group.word)
		return
	}
	if p.group == equals(GroupMasters) {
		t.gap(rule, "RBAC binds %s to cluster-admin by default", GroupMasters)
		return
	}
	verbs := []string{"get", "list", "watch"}
	if p.write {
		verbs = []string{"*"}
	}
	key := roleKey{user: p.user.word, group: p.group.word}
	if p.isPath {
		path := p.path
		if p.pathIsPrefix {
			path += "*"
		}
		t.role(key, rbacv1.PolicyRule{Verbs: verbs, NonResourceURLs: []string{path}})
		return
	}

	switch {
	case p.namespace.any:
	case p.namespace.word != "":
		key.namespace = p.namespace.word
	case p.apiGroup == equals("") && p.resource == equals("namespaces"):
		// To authorizers each namespace is in itself: no other request is in none.
		verbs = slices.DeleteFunc([]string{"create", "deletecollection", "list", "watch"}, func(verb string) bool {
			return !p.write && (verb == "create" || verb == "deletecollection")
		})
		t.role(key, rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{""}, Resources: []string{"namespaces"}})
		return
	case !t.inNoNamespace(p):
		t.gap(rule, "the rule matches requests without a namespace; a ClusterRole would allow %s in every namespace",
			p.resource)
		return
	}
	policyRule := rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{p.apiGroup.String()},
		Resources: []string{p.resource.String()}}
	if !p.resource.any {
		policyRule.Resources = append(policyRule.Resources, t.subresourcesOf(p)...)
		if len(policyRule.Resources) == 1 && !t.builtin(p) {
			policyRule.Resources = append(policyRule.Resources, p.resource.word+"/scale", p.resource.word+"/status")
		}
		if !t.knowsSubresources(p) {
			t.gap(rule, "subresources other than scale and status are left out: those of %s are not known",
				qualified(p.resource.word, p.apiGroup.String()))
		}
	}
	t.role(key, policyRule)
}

// inNoNamespace reports whether the part is about one resource that is known to be in no namespace.
func (t *translation) inNoNamespace(p part) bool {
	if p.apiGroup.any || p.resource.any {
		return false
	}
	entry, known := t.catalog.groups[p.apiGroup.word][p.resource.word]
	return known && !entry.namespaced
}

// builtin reports whether all subresources of the part's resource are known.
func (t *translation) builtin(p part) bool {
	return !p.apiGroup.any && t.catalog.groups[p.apiGroup.word][p.resource.word].builtin
}

// knowsSubresources reports whether the part's resource has no other subresources than those that the role names: a
// definition has two at most, and groups of Kubernetes have no further resources.
func (t *translation) knowsSubresources(p part) bool {
	return t.builtin(p) || !p.apiGroup.any &&
		(t.catalog.groups[p.apiGroup.word][p.resource.word].defined || t.catalog.builtin(p.apiGroup.word) &&
			!slices.Contains(openGroups, p.apiGroup.word))
}

// subresourcesOf is subresources, looked up once for each resource.
func (t *translation) subresourcesOf(p part) []string {
	key := object{apiGroup: p.apiGroup, resource: p.resource}
	names, known := t.subresources[key]
	if !known {
		names = subresources(p.apiGroup, p.resource.word)
		t.subresources[key] = names
	}
	return names
}

// subresources lists those that a resource has in any version, as RBAC names them: "pods/exec".
func subresources(apiGroup match, resource string) []string {
	names := map[string]bool{}
	for _, m := range kubever.Minors() {
		for _, a := range kubever.APIResources(m) {
			if a.Name == resource && apiGroup.covers(equals(a.Group)) {
				for _, s := range a.Subresources(m) {
					names[resource+"/"+s] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// role adds a rule to the role of the key. Rules that differ only in their resources, or only in their paths, become
// one.
func (t *translation) role(key roleKey, rule rbacv1.PolicyRule) {
	if t.roles[key] == nil {
		t.roles[key] = &[]rbacv1.PolicyRule{}
	}
	rules := t.roles[key]
	for i := range *rules {
		r := &(*rules)[i]
		if slices.Equal(r.Verbs, rule.Verbs) && slices.Equal(r.APIGroups, rule.APIGroups) &&
			(r.Resources == nil) == (rule.Resources == nil) {
			r.Resources = union(r.Resources, rule.Resources)
			r.NonResourceURLs = union(r.NonResourceURLs, rule.NonResourceURLs)
			return
		}
	}
	*rules = append(*rules, rule)
}

func union(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

func (t *translation) objects() RBAC {
	out := RBAC{Gaps: t.gaps}
	keys := slices.SortedFunc(maps.Keys(t.roles), func(a, b roleKey) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.group, b.group), cmp.Compare(a.user, b.user))
	})
	for _, key := range keys {
		rules := *t.roles[key]
		slices.SortFunc(rules, func(a, b rbacv1.PolicyRule) int {
			return cmp.Or(slices.Compare(a.NonResourceURLs, b.NonResourceURLs),
				slices.Compare(a.APIGroups, b.APIGroups), slices.Compare(a.Verbs, b.Verbs))
		})
		name := key.name()
		meta := metav1.ObjectMeta{Name: name, Namespace: key.namespace}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
		if key.namespace == "" {
			out.ClusterRoles = append(out.ClusterRoles,
				rbacv1.ClusterRole{TypeMeta: rbacType("ClusterRole"), ObjectMeta: meta, Rules: rules})
			out.ClusterRoleBindings = append(out.ClusterRoleBindings,
				rbacv1.ClusterRoleBinding{TypeMeta: rbacType("ClusterRoleBinding"), ObjectMeta: meta,
					Subjects: key.subjects(), RoleRef: ref})
			continue
		}
		ref.Kind = "Role"
		out.Roles = append(out.Roles, rbacv1.Role{TypeMeta: rbacType("Role"), ObjectMeta: meta, Rules: rules})
		out.RoleBindings = append(out.RoleBindings,
			rbacv1.RoleBinding{TypeMeta: rbacType("RoleBinding"), ObjectMeta: meta, Subjects: key.subjects(),
				RoleRef: ref})
	}
	return out
}

func rbacType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

// name is the name of the role: readable where the subject's name is one that objects may have, with a digest where
// not.
func (k roleKey) name() string {
	kind, subject := "everybody", ""
	switch {
	case k.user != "":
		kind, subject = "user", ":"+k.user
	case k.group != "":
		kind, subject = "group", ":"+k.group
	}
	readable := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(":-._@", r) {
			return r
		}
		return '-'
	}, subject)
	const limitBytes = 200
	if readable != subject || len(readable) > limitBytes {
		digest := sha256.Sum256([]byte(subject))
		readable = readable[:min(len(readable), limitBytes)] + "-" + hex.EncodeToString(digest[:4])
	}
	return "abac:" + kind + readable
}

func (k roleKey) subjects() []rbacv1.Subject {
	group := func(name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name}
	}
	switch {
	case k.group != "":
		return []rbacv1.Subject{group(k.group)}
	case k.user == "":
		return []rbacv1.Subject{group(GroupAuthenticated), group(GroupUnauthenticated)}
	}
	if namespace, name, ok := splitServiceAccount(k.user); ok && namespace != "" && name != "" {
		return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}}
	}
	return []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: k.user}}
}
