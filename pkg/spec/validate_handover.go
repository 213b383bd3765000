package spec

import (
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
	var keys []string
	for i, pattern := range s.HandedOver {
		at := index(field, i)
		key, wrong := v.handOverKey(pattern)
		switch {
		case wrong != "":
			v.addf(at, "%q: %s", strictyaml.Shorten(pattern), wrong)
		case slices.Contains(keys, key):
			v.addf(at, "%q: is named twice", pattern)
		}
		keys = append(keys, key)
	}
	for i, key := range keys {
		set, found := kubever.HandOverOf(key)
		if !found {
			continue
		}
		for _, other := range set.Subjects {
			if v.bothHave(other) && !slices.Contains(keys, other) {
				why := "their controllers share objects"
				if set.Copied {
					why = "bindings name roles"
				}
				v.addf(index(field, i), "%q: goes together with %s: %s; name both", s.HandedOver[i],
					handOverName(other), why)
			}
		}
	}
}

// handsControllersOver reports whether controllers act for anything that is handed over.
func (v *validator) handsControllersOver() bool {
	return slices.ContainsFunc(v.file.Spec.HandedOver, func(pattern string) bool {
		r, _ := kubever.ResourceFor(SplitResource(pattern))
		set, known := kubever.HandOverOf(r.Key)
		return known && len(set.Controllers) > 0
	})
}

// handOverKey is the key of what an entry names, or what is wrong with it.
func (v *validator) handOverKey(pattern string) (key, wrong string) {
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
