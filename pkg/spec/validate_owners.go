package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/strictyaml"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SplitResource takes a resource of Owning apart: ingresses.networking.k8s.io, *.apps, pods, "*." (the whole core
// group). The resource is "*" for all of a group.
func SplitResource(pattern string) schema.GroupResource {
	name, group, _ := strings.Cut(pattern, ".")
	return schema.GroupResource{Group: group, Resource: name}
}

// Names reports whether the entry is about the resource. Deployments of apps and of extensions are one resource.
func (o *Owning) Names(r kubever.Resource) bool {
	return slices.ContainsFunc(o.Resources, func(pattern string) bool {
		named := SplitResource(pattern)
		if named.Resource == "*" {
			return slices.Contains(r.Groups(), named.Group)
		}
		found, ok := kubever.ResourceFor(named)
		return ok && found.Key == r.Key
	})
}

// owners checks who is said to own what.
func (v *validator) owners() {
	s := &v.file.Spec
	for i := range s.Owners {
		at, o := index("spec.owners", i), &s.Owners[i]
		v.oneOf(at+".owner", string(o.Owner), Owners)
		if o.Owner == pair.OwnerSplit && s.Layout == LayoutShared {
			v.addf(at+".owner", "%q: layout shared has one location for every resource; only layout split can split",
				o.Owner)
		}
		if len(o.Resources) == 0 {
			v.addf(at+".resources", "is empty; want resources, such as ingresses.extensions")
		}
		for j, pattern := range o.Resources {
			v.owned(index(at+".resources", j), pattern, o.Owner)
		}
	}
}

// owned checks one resource of an entry against what the two versions have.
func (v *validator) owned(at, pattern string, owner pair.Owner) {
	named := SplitResource(pattern)
	if err := malformed(pattern, named); err != "" {
		v.addf(at, "%q: %s", strictyaml.Shorten(pattern), err)
		return
	}
	s := &v.file.Spec
	if s.Legacy.Version.Minor == 0 || s.Modern.Version.Minor == 0 {
		return // without versions nothing is known of them
	}
	if named.Resource == "*" {
		v.ownedGroup(at, pattern, named.Group)
		return
	}
	r, found := kubever.ResourceFor(named)
	switch {
	case found && r.Follows() != "":
		leader, _ := kubever.ResourceByKey(r.Follows())
		v.addf(at, "%q: always goes with %s; name those", pattern, leader.Name)
	case found && !r.Overridable():
		v.addf(at, "%q: %s", pattern, alwaysInDefaultStore)
	case found && !r.In(s.Legacy.Version.Minor) && !r.In(s.Modern.Version.Minor):
		v.addf(at, "%q: neither %s nor %s has it", pattern, s.Legacy.Version, s.Modern.Version)
	case found && owner == pair.OwnerLegacy && !r.In(s.Legacy.Version.Minor):
		v.addf(at, "%q: legacy %s does not have it, so it cannot be its owner", pattern, s.Legacy.Version)
	case found && owner == pair.OwnerModern && !r.In(s.Modern.Version.Minor):
		v.addf(at, "%q: modern %s does not have it, so it cannot be its owner", pattern, s.Modern.Version)
	case !found:
		v.addf(at, "%q: %s", pattern, v.unknownResource(named))
	}
}

const alwaysInDefaultStore = "stays in the default store of each side, whatever --etcd-servers-overrides says, so " +
	"its owner follows from the layout; leave it out"

// malformed says what is wrong with the form of a resource, "" for nothing.
func malformed(pattern string, named schema.GroupResource) string {
	switch {
	case pattern == "":
		return "want RESOURCE.GROUP, such as ingresses.extensions"
	case pattern == "*":
		return `want *.GROUP for all of a group; the core group is "*."`
	case strings.Contains(pattern, "/"):
		return "want RESOURCE.GROUP without version and subresource, such as ingresses.extensions"
	case named.Resource != "*" && strings.HasSuffix(pattern, "."):
		return fmt.Sprintf("the core group has no suffix; want %q", strings.TrimSuffix(pattern, "."))
	case named.Resource != "*" && strings.Contains(named.Resource, "*"):
		return "\"*\" stands for all resources of a group, not for a part of a name"
	case named.Group != "" && !isSubdomain(named.Group):
		return "want RESOURCE.GROUP, such as ingresses.extensions"
	}
	return ""
}

func (v *validator) ownedGroup(at, pattern, group string) {
	resources := v.resourcesOf(group)
	switch {
	case len(resources) == 0:
		v.addf(at, "%q: %s", pattern, v.unknownResource(schema.GroupResource{Group: group, Resource: "*"}))
	case !slices.ContainsFunc(resources, func(name string) bool {
		r, ok := kubever.ResourceFor(schema.GroupResource{Group: group, Resource: name})
		return ok && r.Overridable()
	}):
		v.addf(at, "%q: %s", pattern, alwaysInDefaultStore)
	}
}

// resourcesOf lists what either version has in a group, by name.
func (v *validator) resourcesOf(group string) []string {
	names := slices.Concat(namesIn(group, v.file.Spec.Legacy.Version.Minor),
		namesIn(group, v.file.Spec.Modern.Version.Minor))
	slices.Sort(names)
	return slices.Compact(names)
}

// unknownResource says why a resource cannot have an owner that has none of the names the tables know.
func (v *validator) unknownResource(named schema.GroupResource) string {
	legacy, modern := v.file.Spec.Legacy.Version, v.file.Spec.Modern.Version
	inGroup := v.resourcesOf(named.Group)
	if slices.Contains(inGroup, named.Resource) {
		return "is never stored, so it has no owner"
	}
	if near, ok := v.nearest(named.Resource, inGroup); ok && named.Resource != "*" {
		return fmt.Sprintf("neither %s nor %s has it; did you mean %q?", legacy, modern,
			schema.GroupResource{Group: named.Group, Resource: near})
	}
	var elsewhere []string
	for _, m := range []kubever.Minor{legacy.Minor, modern.Minor} {
		for _, r := range kubever.APIResources(m) {
			if r.Name == named.Resource && !slices.Contains(elsewhere, r.GroupResource().String()) {
				elsewhere = append(elsewhere, r.GroupResource().String())
			}
		}
	}
	switch {
	case len(elsewhere) > 0:
		return fmt.Sprintf("neither %s nor %s has it in this group; did you mean %s?", legacy, modern,
			strings.Join(elsewhere, " or "))
	case strings.Contains(named.Group, ".") && len(inGroup) == 0:
		return "is built into neither version, and a custom resource " + alwaysInDefaultStore
	}
	return fmt.Sprintf("neither %s nor %s has it", legacy, modern)
}
