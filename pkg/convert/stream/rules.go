package stream

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// naming is a part of an object that names resources by their groups. A server looks for them among what it serves: of
// what it does not serve any more the part is without effect, and nothing says so. For admission that is so with either
// matchPolicy, for a resource is equivalent to others only as long as it is served itself
// (EquivalentResourceRegistry, apimachinery pkg/runtime/mapper.go@0.36.3, filled in by
// apiserver pkg/endpoints/installer.go with what is installed).
type naming struct {
	path      string
	groups    []string
	versions  []string // nil for all
	resources []string // with subresources
	about     []string // the verbs or operations that it is about
	effect    string   // what a release does with it: "calls no webhook for %s by it"
	instead   string   // what to write: "name %s in it"
}

// namings are those of an object.
func namings(object *unstructured.Unstructured) (found [][]naming) {
	gvk := object.GroupVersionKind()
	spec, _ := object.Object["spec"].(map[string]any)
	switch gvk.GroupKind() {
	case admissionKind("MutatingWebhookConfiguration"), admissionKind("ValidatingWebhookConfiguration"):
		webhooks, _ := object.Object["webhooks"].([]any)
		for i, webhook := range webhooks {
			webhook, _ := webhook.(map[string]any)
			found = append(found, admissionRules(webhook, "rules", fmt.Sprintf("webhooks[%d].", i),
				"calls the webhook for no %s by it"))
		}
	case admissionKind("ValidatingAdmissionPolicy"), admissionKind("MutatingAdmissionPolicy"):
		found = matchResources(spec, "matchConstraints")
	case admissionKind("ValidatingAdmissionPolicyBinding"), admissionKind("MutatingAdmissionPolicyBinding"):
		found = matchResources(spec, "matchResources")
	case schema.GroupKind{Group: rbacGroup, Kind: "Role"}, schema.GroupKind{Group: rbacGroup, Kind: "ClusterRole"}:
		if object.GetLabels()["kubernetes.io/bootstrapping"] != "rbac-defaults" { // which come with the release
			found = append(found, roleRules(object.Object))
		}
	case schema.GroupKind{Kind: "ResourceQuota"}:
		hard, _ := spec["hard"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(hard)) {
			if counted, ok := strings.CutPrefix(name, "count/"); ok {
				resource, group, _ := strings.Cut(counted, ".")
				found = append(found, []naming{{path: fmt.Sprintf("spec.hard[%q]", name), groups: []string{group},
					resources: []string{resource}, effect: "counts no %s by it",
					instead: "limit count/" + resource + ".%s"}})
			}
		}
	case schema.GroupKind{Group: "apiregistration.k8s.io", Kind: "APIService"}:
		// Of those with the label each release writes its own.
		if _, own := object.GetLabels()[kubever.LabelAutoManaged]; spec["service"] == nil && !own {
			found = append(found, []naming{{path: "spec", groups: []string{wordIn(spec, "group")},
				versions: []string{wordIn(spec, "version")}, resources: []string{"*"},
				effect: "serves no %s by it, and answers 404"}})
		}
	}
	return found
}

const rbacGroup = "rbac.authorization.k8s.io"

func admissionKind(kind string) schema.GroupKind {
	return schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: kind}
}

// matchResources are what an admission policy or its binding is for, and what is left out of that.
func matchResources(spec map[string]any, field string) [][]naming {
	of, _ := spec[field].(map[string]any)
	at := "spec." + field + "."
	return [][]naming{
		admissionRules(of, "resourceRules", at, "holds no %s to the policy by it"),
		admissionRules(of, "excludeResourceRules", at, "leaves out no %s by it"),
	}
}

// admissionRules are the rules in a field.
func admissionRules(of map[string]any, field, at, effect string) (rules []naming) {
	list, _ := of[field].([]any)
	for i, rule := range list {
		rule, _ := rule.(map[string]any)
		rules = append(rules, naming{path: fmt.Sprintf("%s%s[%d]", at, field, i), groups: wordsIn(rule, "apiGroups"),
			versions: wordsIn(rule, "apiVersions"), resources: wordsIn(rule, "resources"),
			about: wordsIn(rule, "operations"), effect: effect, instead: "name %s in it"})
	}
	return rules
}

func roleRules(role map[string]any) (rules []naming) {
	list, _ := role["rules"].([]any)
	for i, rule := range list {
		rule, _ := rule.(map[string]any)
		rules = append(rules, naming{path: fmt.Sprintf("rules[%d]", i), groups: wordsIn(rule, "apiGroups"),
			resources: wordsIn(rule, "resources"), about: wordsIn(rule, "verbs"),
			effect: "allows nothing on %s by it", instead: "name the group %s in it"})
	}
	return rules
}

func wordIn(of map[string]any, field string) string {
	word, _ := of[field].(string)
	return word
}

func wordsIn(of map[string]any, field string) []string {
	list, _ := of[field].([]any)
	words := make([]string, 0, len(list))
	for _, word := range list {
		if word, ok := word.(string); ok {
			words = append(words, word)
		}
	}
	return words
}

// namesResources reports whether objects of a kind name resources by their groups.
func namesResources(gvk schema.GroupVersionKind) bool {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"hard": map[string]any{"count/a": nil}}, "webhooks": []any{map[string]any{}}}}
	object.SetGroupVersionKind(gvk)
	return len(namings(object)) > 0
}

// has reports whether a list of words names one, by itself or by *.
func has(words []string, word string) bool {
	return slices.Contains(words, word) || slices.Contains(words, "*")
}

// of reports whether the part is about resources of a version.
func (n naming) of(gv schema.GroupVersion) bool {
	return has(n.groups, gv.Group) && (n.versions == nil || has(n.versions, gv.Version))
}

// names reports whether the part names a resource, or a subresource, of any version. For admission * is all resources,
// and */* the subresources as well; for roles * is both.
func (n naming) names(resource string) bool {
	base, _, sub := strings.Cut(resource, "/")
	all := slices.Contains(n.resources, "*") && (!sub || n.versions == nil)
	return all || slices.Contains(n.resources, resource) || slices.Contains(n.resources, "*/*") ||
		sub && slices.Contains(n.resources, base+"/*")
}

// does reports whether the part is about all that another one is about.
func (n naming) does(all []string) bool {
	return slices.Contains(n.about, "*") || !slices.ContainsFunc(all, func(one string) bool {
		return !slices.Contains(n.about, one)
	})
}

// apisOf are the resources of all releases by their names; those of "" are all.
var apisOf = sync.OnceValue(func() map[string][]kubever.APIResource {
	byName := map[string][]kubever.APIResource{}
	for _, api := range kubever.AllAPIResources() {
		byName[api.Name], byName[""] = append(byName[api.Name], api), append(byName[""], api)
	}
	return byName
})

// judgeNamings lists what an object names by groups and versions that the release serves no more, where nothing else in
// the same list names what took its place.
func (c *Check) judgeNamings(place string, object *unstructured.Unstructured) (found []Verdict) {
	for _, list := range namings(object) {
		for _, n := range list {
			if slices.Contains(n.groups, "*") || slices.ContainsFunc(n.groups, foreignGroup) {
				continue // something of another group may be meant
			}
			for _, resource := range n.resources {
				v, in := c.judgeNaming(n, list, resource)
				if v.Status != "removed" {
					continue
				}
				v.Place, v.Path, v.Namespace, v.Name = place, n.path, object.GetNamespace(), resource
				if in != "" {
					v.Path += "." + in
				}
				v.Why = fmt.Sprintf("%s %s: %s %s", object.GetKind(), object.GetName(), c.minor, v.Why)
				found = append(found, v)
			}
		}
	}
	return found
}

// foreignGroup reports whether a group is none of Kubernetes' own.
func foreignGroup(group string) bool { return !ownGroups()[group] }

var ownGroups = sync.OnceValue(func() map[string]bool {
	groups := map[string]bool{}
	for _, api := range apisOf()[""] {
		groups[api.Group] = true
	}
	return groups
})

// judgeNaming judges a resource that a part of a list names, and tells which field of the part is at fault.
func (c *Check) judgeNaming(n naming, list []naming, resource string) (v Verdict, field string) {
	base, rest, sub := strings.Cut(resource, "/")
	every := base == "*"
	if every {
		base = ""
	}
	var gone []kubever.APIResource
	grouped := false // some group of the part has it in another version
	for _, api := range apisOf()[base] {
		switch served := api.DefaultOn.Has(c.minor); {
		case served && n.of(api.GroupVersion):
			return Verdict{}, ""
		case served:
			grouped = grouped || has(n.groups, api.Group)
		case n.of(api.GroupVersion):
			gone = append(gone, api)
		}
	}
	named := func(api kubever.APIResource) string {
		if sub {
			return api.Name + "/" + rest
		}
		return api.Name
	}
	gone = slices.DeleteFunc(gone, func(api kubever.APIResource) bool {
		to, ok := c.converter.Replacement(api.GroupVersion.WithKind(api.Kind), c.minor)
		return ok && slices.ContainsFunc(list, func(other naming) bool {
			return other.of(to.GroupVersion()) && other.names(named(api)) && other.does(n.about)
		})
	})
	if len(gone) == 0 {
		return Verdict{}, ""
	}
	instead := map[string]bool{}
	for _, api := range gone {
		to, ok := c.converter.Replacement(api.GroupVersion.WithKind(api.Kind), c.minor)
		switch {
		case !ok:
		case n.versions == nil:
			instead[to.Group] = true
		default:
			instead[to.GroupVersion().String()] = true
		}
	}
	last := slices.MaxFunc(gone, func(a, b kubever.APIResource) int {
		return cmp.Compare(c.ended(a), c.ended(b))
	})
	v = c.verdictOf(last.GroupVersion.WithKind(last.Kind))
	if every {
		v.Kind, v.Replacement = "*", ""
	}
	what := resource
	if every {
		what = "resource of " + last.Group
	}
	v.Why = fmt.Sprintf(n.effect, what)
	switch words := slices.Sorted(maps.Keys(instead)); {
	case len(words) == 0 || n.instead == "":
		v.Why += "; take it away"
	default:
		v.Why += "; " + fmt.Sprintf(n.instead, strings.Join(words, " or "))
	}
	switch {
	case n.about == nil:
	case grouped && n.versions != nil:
		field = "apiVersions"
	default:
		field = "apiGroups"
	}
	return v, field
}

// ended is the release from which on a resource is served no more.
func (c *Check) ended(api kubever.APIResource) kubever.Minor {
	return c.converter.StandingIn(api.GroupVersion.WithKind(api.Kind), c.minor).Ended()
}
