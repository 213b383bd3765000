package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/strictyaml"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// access checks the rules of the modern API server's policy for what the language of ABAC can say.
func (v *validator) access() {
	rules := v.file.Spec.Access
	if len(rules) == 0 {
		v.addf("spec.access", "is empty; the policy of the modern API server would allow no request. Want rules, "+
			"such as "+
			`{subjects: [{kind: Group, name: "system:authenticated"}], apiGroups: [""], resources: [pods], readOnly: true}`)
	}
	for i := range rules {
		v.accessRule(index("spec.access", i), &rules[i])
	}
}

func (v *validator) accessRule(at string, a *Access) {
	if len(a.Subjects) == 0 {
		v.addf(at+".subjects", "is empty; the rule would have no subject")
	}
	for i := range a.Subjects {
		v.subject(index(at+".subjects", i), &a.Subjects[i])
	}
	switch {
	case len(a.Resources) == 0 && len(a.APIGroups) == 0 && len(a.NonResourcePaths) == 0:
		v.addf(at, "names neither resources nor nonResourcePaths")
	case len(a.Resources) > 0 && len(a.APIGroups) == 0:
		v.addf(at+".apiGroups", `is missing; the core group is written ""`)
	case len(a.APIGroups) > 0 && len(a.Resources) == 0:
		v.addf(at+".resources", `is missing; all of a group are written "*"`)
	}
	for i, group := range a.APIGroups {
		v.apiGroup(index(at+".apiGroups", i), group)
	}
	for i, resource := range a.Resources {
		if v.accessResource(index(at+".resources", i), resource) {
			v.servedResource(index(at+".resources", i), resource, a.APIGroups)
		}
	}
	for i, namespace := range a.Namespaces {
		if namespace != "*" && !labelPattern.MatchString(namespace) {
			v.expect(index(at+".namespaces", i), namespace,
				`want a namespace, or "*" for all of them and for cluster-scoped objects`)
		}
	}
	if len(a.Namespaces) > 0 && len(a.Resources) == 0 {
		v.addf(at+".namespaces", "has no effect without resources")
	}
	for i, path := range a.NonResourcePaths {
		at := index(at+".nonResourcePaths", i)
		if !v.word(at, path) {
			continue
		}
		if path != "*" && !strings.HasPrefix(path, "/") {
			v.expect(at, path, `want a path that starts with a slash, or "*"`)
		} else if strings.Contains(strings.TrimSuffix(path, "*"), "*") {
			v.expect(at, path, "want \"*\" only at the end: ABAC compares the beginning of a path")
		}
	}
}

// SubjectKinds lists the kinds of subjects, for validation.
var SubjectKinds = []string{"User", "Group", "ServiceAccount"}

func (v *validator) subject(at string, s *Subject) {
	v.oneOf(at+".kind", s.Kind, SubjectKinds)
	if s.Kind == "ServiceAccount" {
		if !isSubdomain(s.Name) {
			v.expect(at+".name", s.Name, "want the name of a service account")
		}
		v.label(at+".namespace", s.Namespace)
		return
	}
	switch {
	case strings.TrimSpace(s.Name) == "":
		v.addf(at+".name", "is missing; want the name of a user or group")
	case s.Name == "*":
		v.addf(at+".name", `"*": want a name; every authenticated user is in the group system:authenticated`)
	default:
		v.word(at+".name", s.Name)
	}
	if s.Namespace != "" {
		v.addf(at+".namespace", "%q: only a ServiceAccount has one", s.Namespace)
	}
}

func (v *validator) apiGroup(at, group string) {
	switch {
	case group == "" || group == "*":
	case group == "core" || group == "v1":
		v.addf(at, `%q: the core group is written ""`, group)
	case strings.Contains(group, "/"):
		name, _, _ := strings.Cut(group, "/")
		v.addf(at, "%q: want the group without its version, %q; ABAC does not distinguish versions",
			strictyaml.Shorten(group), name)
	case !isSubdomain(group):
		v.expect(at, group, `want an API group, such as "" or networking.k8s.io, or "*"`)
	case !strings.Contains(group, "."):
		v.builtInGroup(at, group)
	}
}

// builtInGroup wants a group that the modern version has: groups of custom resources have a dot in their name.
func (v *validator) builtInGroup(at, group string) {
	modern := v.file.Spec.Modern.Version
	if modern.Minor == 0 {
		return
	}
	var groups []string
	for _, r := range kubever.APIResources(modern.Minor) {
		groups = append(groups, r.Group)
	}
	slices.Sort(groups)
	if groups = slices.Compact(groups); slices.Contains(groups, group) {
		return
	}
	message := fmt.Sprintf("the modern version %s has no such group, and those of custom resources have a dot", modern)
	if near, ok := v.nearest(group, groups); ok {
		message += fmt.Sprintf("; did you mean %q?", near)
	}
	v.addf(at, "%q: %s", group, message)
}

var resourcePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// accessResource checks the form of a resource, and reports whether it is good.
func (v *validator) accessResource(at, resource string) bool {
	name, rest, found := strings.Cut(resource, "/")
	switch {
	case !v.word(at, resource):
	case resource == "*" || resourcePattern.MatchString(resource):
		return true
	case found:
		v.addf(at, "%q: ABAC does not distinguish subresources; a rule about %q is also about its %s",
			strictyaml.Shorten(resource), name, rest)
	case strings.Contains(resource, "."):
		name, group, _ := strings.Cut(resource, ".")
		v.addf(at, "%q: want the resource alone, %q; the group %q goes under apiGroups", strictyaml.Shorten(resource),
			name, group)
	case strings.Contains(resource, "*"):
		v.addf(at, `%q: ABAC knows "*" alone, not as part of a name`, strictyaml.Shorten(resource))
	default:
		v.expect(at, resource, "want a resource as in URLs, lower-case and plural, such as pods")
	}
	return false
}

// servedResource wants a resource that one of the groups has. Groups that the modern version does not build in may have
// any.
func (v *validator) servedResource(at, resource string, groups []string) {
	modern := v.file.Spec.Modern.Version
	if resource == "*" || modern.Minor == 0 {
		return
	}
	var names []string
	for _, group := range groups {
		inGroup := namesIn(group, modern.Minor)
		if len(inGroup) == 0 || slices.Contains(inGroup, resource) {
			return
		}
		names = append(names, inGroup...)
	}
	slices.Sort(names)
	if near, ok := v.nearest(resource, names); ok {
		v.addf(at, "%q: the modern version %s has none in these apiGroups; did you mean %q?", resource, modern, near)
		return
	}
	v.addf(at, "%q: the modern version %s has none in these apiGroups", resource, modern)
}

func namesIn(group string, m kubever.Minor) []string {
	var names []string
	for _, r := range kubever.APIResources(m) {
		if r.Group == group {
			names = append(names, r.Name)
		}
	}
	return names
}

var rulePattern = regexp.MustCompile(`^FUS[0-9]{3}$`)

func (v *validator) accepts() {
	known := seen[string]{}
	for i, accept := range v.file.Spec.Accept {
		at := index("spec.accept", i)
		if !rulePattern.MatchString(accept.Rule) {
			v.expect(at+".rule", accept.Rule, "want the id of a rule, such as FUS152")
		} else {
			known.once(v, at, strings.TrimSpace(accept.Rule+" "+accept.Subject))
		}
		if strings.TrimSpace(accept.Reason) == "" {
			v.addf(at+".reason", "is missing; give the reason why the finding is acceptable, for later readers")
		}
	}
}
