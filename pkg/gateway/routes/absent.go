package routes

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// absent are the versions of built-in resources that no side serves, and that releases have served by default: those
// that were removed before one of the sides, or came after it. They stand behind the others.
var absent = sync.OnceValue(func() []kubever.APIResource {
	list := slices.DeleteFunc(kubever.AllAPIResources(), func(a kubever.APIResource) bool {
		return !slices.ContainsFunc(kubever.Minors(), a.DefaultOn.Has)
	})
	slices.SortStableFunc(list, func(a, b kubever.APIResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), version.CompareKubeAwareVersionStrings(b.Version, a.Version),
			cmp.Compare(a.Name, b.Name))
	})
	return list
})

// absent are the resources that have no row yet: built-in ones, and the versions of custom ones that rules convert.
// What a server announces and does not list is not among them.
func (t *Table) absent(custom []Custom) iter.Seq[*discovery.Resource] {
	return func(yield func(*discovery.Resource) bool) {
		var all []*discovery.Resource
		for _, a := range absent() {
			all = append(all, &discovery.Resource{GroupVersion: a.GroupVersion, Name: a.Name, Kind: a.Kind,
				Namespaced: a.Namespaced})
		}
		for _, c := range custom {
			for _, v := range c.Versions {
				all = append(all, &discovery.Resource{GroupVersion: schema.GroupVersion{Group: c.Group, Version: v},
					Name: c.Resource, Kind: c.Kind, Namespaced: c.Namespaced})
			}
		}
		for _, asked := range all {
			if t.Row(asked.GroupVersionResource()) != nil {
				continue
			}
			if _, err := t.Silent(asked.GroupVersion); err != nil {
				continue
			}
			if asked.Singular = strings.ToLower(asked.Kind); !yield(asked) {
				return
			}
		}
	}
}

// absent routes a resource in a version that no side serves, by conversion on every side that the request needs; nil
// where that is not possible.
func (b *builder) absent(asked *discovery.Resource) *Row {
	stored := b.stored[asked.GroupResource()]
	if stored == nil && !builtIn[asked.GroupResource()] { // of another group, each is a resource of its own
		custom := b.plan.CustomResources
		custom.Name, custom.Groups = asked.Name, []string{asked.Group}
		stored = &custom
	}
	if stored == nil || b.sources.Equivalents == nil {
		return nil
	}
	as := map[pair.Side]*discovery.Resource{}
	for _, side := range pair.Sides() {
		served := b.sources.Of(side)
		if b.failure(side, stored.Groups...) != nil {
			return nil
		}
		found, err := b.converted(side, asked)
		if err == nil && found != nil && found.Name == stored.Name && slices.Contains(stored.Groups, found.Group) &&
			!served.Extensions[found.GroupVersion] {
			as[side] = found
		}
	}
	if len(as) == 0 {
		return nil
	}
	row := &Row{Way: Converted}
	switch has := b.owners(stored); {
	case len(has) == 2 && stored.VisibleToBoth():
		route := stored.Route()
		row.Read, row.Write = route.Read, route.Write
	case len(has) == 2:
		row.Way = Both
	default:
		row.Read, row.Write = has[0], has[0]
	}
	var versions []string
	row.As = map[pair.Side]schema.GroupVersionResource{}
	for _, side := range row.Sides() {
		if as[side] == nil {
			return nil
		}
		row.As[side] = as[side].GroupVersionResource()
		versions = append(versions, fmt.Sprintf("%s on the %s side", as[side].GroupVersion, side))
	}
	row.Why = "no side serves this version: it is converted from and to " + strings.Join(versions, " and ")
	row.Resource = *asked
	read, write := cmp.Or(as[row.Read], as[pair.Modern]), cmp.Or(as[row.Write], as[pair.Legacy])
	if row.Way == Both {
		row.Verbs = shared(read.Verbs, write.Verbs)
	} else {
		for _, verb := range read.Verbs {
			if slices.Contains(reads, verb) {
				row.Verbs = append(row.Verbs, verb)
			}
		}
		for _, verb := range write.Verbs {
			if !slices.Contains(reads, verb) {
				row.Verbs = append(row.Verbs, verb)
			}
		}
		slices.Sort(row.Verbs)
	}
	row.Subresources = subresourcesOf(asked, read, write)
	return row
}

// subresourcesOf are those of a resource that is converted to what is read and written: they have the kinds of the
// asked version.
func subresourcesOf(asked, read, write *discovery.Resource) (list []discovery.Subresource) {
	for name, kind := range map[string]schema.GroupVersionKind{"status": asked.WithKind(asked.Kind),
		"scale": kubever.ScaleKind(asked.GroupVersion)} {
		named := func(s discovery.Subresource) bool { return s.Name == name }
		i, j := slices.IndexFunc(read.Subresources, named), slices.IndexFunc(write.Subresources, named)
		if i >= 0 && j >= 0 {
			list = append(list, discovery.Subresource{Name: name, Kind: kind,
				Verbs: shared(read.Subresources[i].Verbs, write.Subresources[j].Verbs)})
		}
	}
	slices.SortFunc(list, func(a, b discovery.Subresource) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// owners are the sides that have objects of a resource that is stored: at least one.
func (b *builder) owners(stored *pair.Resource) []pair.Side {
	switch {
	case stored.VisibleToBoth():
		return pair.Sides()
	case stored.Owner == pair.OwnerLegacy || stored.Owner == pair.OwnerModern:
		return []pair.Side{pair.Side(stored.Owner)}
	}
	has := slices.DeleteFunc(pair.Sides(), func(side pair.Side) bool {
		return !b.serves(side, stored.Name, stored.Groups...)
	})
	if len(has) == 0 {
		return pair.Sides()
	}
	return has
}
