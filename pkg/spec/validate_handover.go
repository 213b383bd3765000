package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/strictyaml"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// handedOver checks what the modern side has taken over, or copied, of the legacy side.
func (v *validator) handedOver() {
	s := &v.file.Spec
	const field = "spec.handedOver"
	if len(s.HandedOver) == 0 {
		return
	}
	switch {
	case s.Layout == LayoutShared:
		v.addf(field, "layout shared has one location for every resource: there is nothing to hand over; spec.owners "+
			"sets who writes it")
	case v.handsControllersOver() && (s.Legacy.ControllerManager == nil || s.Modern.ControllerManager == nil):
		v.addf(field, "want the controller managers of both sides in the spec: one gives its "+
			"controllers up, the other one runs them")
	}
	named := map[string][]string{} // keys, by namespace: "" for those of all
	keys := make([]string, len(s.HandedOver))
	for i, entry := range s.HandedOver {
		namespace, _ := SplitHandOver(entry)
		key, wrong := v.handOverKey(entry)
		switch keys[i] = key; {
		case wrong != "":
			v.addf(index(field, i), "%q: %s", strictyaml.Shorten(entry), wrong)
		case slices.Contains(named[namespace], key):
			v.addf(index(field, i), "%q: is named twice", entry)
		default:
			named[namespace] = append(named[namespace], key)
		}
	}
	if len(named) > mostNamespaces {
		v.addf(field, "want at most %d namespaces, or resources without a namespace", mostNamespaces)
	}
	for i, key := range keys {
		namespace, _ := SplitHandOver(s.HandedOver[i])
		set, found := kubever.HandOverOf(key)
		switch {
		case !found:
			continue
		case namespace != "" && slices.Contains(named[""], key):
			v.addf(index(field, i), "%q: %s is handed over in all namespaces: leave one of the two out",
				s.HandedOver[i], handOverName(key))
		case slices.Contains(named[namespace], all):
			v.addf(index(field, i), "%q: %s/%s has it already: leave one of the two out", s.HandedOver[i], namespace,
				all)
		}
		for _, other := range set.Subjects {
			if v.bothHave(other) && !slices.Contains(named[namespace], other) &&
				!slices.Contains(named[namespace], all) {
				why := "their controllers share objects"
				if set.Copied {
					why = "bindings name roles"
				}
				v.addf(index(field, i), "%q: goes together with %s: %s; name both", s.HandedOver[i],
					entryOf(namespace, handOverName(other)), why)
			}
		}
	}
}

// mostNamespaces bounds the steps of a transition: each namespace has its own.
const mostNamespaces = 1000

// all stands for every resource that can be handed over of a namespace.
const all = "*"

// SplitHandOver returns the parts of an entry of handedOver: "team-a/deployments.apps" is about Deployments of team-a,
// "deployments.apps" about those of all namespaces, "team-a/*" about all that can go of team-a.
func SplitHandOver(entry string) (namespace, resource string) {
	if namespace, resource, is := strings.Cut(entry, "/"); is {
		return namespace, resource
	}
	return "", entry
}

func entryOf(namespace, resource string) string {
	if namespace == "" {
		return resource
	}
	return namespace + "/" + resource
}

// HandOverNames reports whether an entry of handedOver, without its namespace, names a set.
func HandOverNames(resource string, set kubever.HandOver) bool {
	r, found := kubever.ResourceFor(SplitResource(resource))
	return resource == all && set.ByNamespace() || found && slices.Contains(set.Subjects, r.Key)
}

// handsControllersOver reports whether controllers act for anything that is handed over.
func (v *validator) handsControllersOver() bool {
	return slices.ContainsFunc(kubever.HandOvers(), func(set kubever.HandOver) bool {
		return len(set.Controllers) > 0 && slices.ContainsFunc(v.file.Spec.HandedOver, func(entry string) bool {
			_, resource := SplitHandOver(entry)
			return HandOverNames(resource, set)
		})
	})
}

// handOverKey is the key of what an entry names, or what is wrong with it; all, where that stands for it.
func (v *validator) handOverKey(entry string) (key, wrong string) {
	namespace, pattern := SplitHandOver(entry)
	switch inOne := pattern != entry; {
	case inOne && namespace == all:
		return "", fmt.Sprintf("want %s alone for all namespaces, or the name of one", pattern)
	case inOne && !IsLabel(namespace):
		return "", "want the name of a namespace before the slash: lower-case letters, digits and dashes between " +
			"them, at most 63"
	case inOne && pattern == all:
		return all, ""
	}
	named := SplitResource(pattern)
	if wrong := malformed(pattern, named); wrong != "" {
		return "", wrong
	}
	r, found := kubever.ResourceFor(named)
	set, known := kubever.HandOverOf(r.Key)
	switch {
	case named.Resource == "*" || !found || !known:
		return "", "want one of " + strings.Join(handOverNames(), ", ")
	case !slices.Contains(set.Subjects, r.Key):
		var owners []string
		for _, subject := range set.Subjects {
			owners = append(owners, handOverName(subject))
		}
		return "", "goes with " + strings.Join(owners, " and ") + "; name those"
	case namespace != "" && !set.ByNamespace():
		why := "has no namespaces"
		if r.Namespaced { // of a set with some that have none
			why = "what subjects may do is proven for all namespaces at once"
		}
		return "", fmt.Sprintf("%s: want %s alone", why, handOverName(r.Key))
	case !v.bothHave(r.Key):
		return "", "not both versions have it"
	}
	return r.Key, ""
}

func (v *validator) bothHave(key string) bool {
	s := &v.file.Spec
	r, _ := kubever.ResourceByKey(key)
	legacy, modern := s.Legacy.Version.Minor, s.Modern.Version.Minor
	return legacy == 0 || modern == 0 || r.In(legacy) && r.In(modern)
}

// handOverNames are the resources that can be handed over, as specs name them.
func handOverNames() (names []string) {
	for _, set := range kubever.HandOvers() {
		for _, key := range set.Subjects {
			names = append(names, handOverName(key))
		}
	}
	return names
}

// handOverName is a resource by the group that newer versions keep it in.
func handOverName(key string) string {
	r, _ := kubever.ResourceByKey(key)
	stored, _ := r.StoredAs(kubever.Newest)
	return r.Name + "." + stored.Group
}
