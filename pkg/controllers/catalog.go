package controllers

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// resource is one resource of one side's API server, in one version that it serves.
type resource struct {
	side pair.Side
	schema.GroupVersionResource
	kind       string
	namespaced bool
	verbs      string // the verbs that matter here, one letter each, see verbLetters
}

// verbLetters keep a resource comparable, as a key of maps.
var verbLetters = map[string]byte{"get": 'g', "list": 'l', "watch": 'w', "delete": 'd'}

func (r resource) can(verbs ...string) bool {
	for _, verb := range verbs {
		if !slices.Contains([]byte(r.verbs), verbLetters[verb]) {
			return false
		}
	}
	return true
}

// catalog is what a side serves at one moment.
type catalog struct {
	resources []resource // one version of each group and resource, the server's preferred one where that has it
	// further are the other versions, without those that are known to have the same objects. Each may be another
	// server's: of an extension API server, and of a definition of the same name.
	further  []resource
	versions map[schema.GroupVersion]bool
	failed   map[string]error // groups whose discovery failed: they may serve any kind
	dormant  map[string]error // groups with a definition that has never been served: it may be at any time
	asked    time.Time        // before the first request of discovery
	doubt    error            // why it must not be used; nil for a complete catalog
}

// doubted is the catalog with a reason not to use it.
func (c *catalog) doubted(why error) *catalog {
	doubted := *c
	doubted.doubt = why
	return &doubted
}

// catalogOf is a catalog of what discovery found on a side. A version that the side's release builds in comes before
// those that definitions add, which the server may prefer and not even serve.
func (l layout) catalogOf(side pair.Side, result *discovery.Result, asked time.Time) *catalog {
	c := &catalog{failed: map[string]error{}, versions: map[schema.GroupVersion]bool{}, asked: asked}
	for gv, err := range result.Failed {
		c.failed[gv.Group] = err
	}
	builtIn, taken := map[schema.GroupResource]bool{}, map[schema.GroupResource]bool{}
	for _, r := range result.Resources {
		builtIn[r.GroupResource()] = builtIn[r.GroupResource()] || l.buildsIn(side, r.GroupVersionResource())
	}
	for _, r := range result.Resources { // the preferred version of each group comes first
		c.versions[r.GroupVersion] = true
		gr, own := r.GroupResource(), l.buildsIn(side, r.GroupVersionResource())
		found := resource{side: side, GroupVersionResource: r.GroupVersionResource(), kind: r.Kind,
			namespaced: r.Namespaced, verbs: letters(r.Verbs)}
		switch {
		case !taken[gr] && own == builtIn[gr]:
			taken[gr] = true
			c.resources = append(c.resources, found)
		case !own:
			c.further = append(c.further, found)
		}
	}
	for _, list := range [][]resource{c.resources, c.further} {
		slices.SortFunc(list, func(a, b resource) int {
			return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource),
				cmp.Compare(a.Version, b.Version))
		})
	}
	return c
}

func letters(verbs []string) string {
	var b []byte
	for _, verb := range verbs {
		if letter, known := verbLetters[verb]; known {
			b = append(b, letter)
		}
	}
	slices.Sort(b)
	return string(b)
}

// ofKind lists the resources that hold objects of a kind, under any of the groups: in every version that may have
// objects of its own, after those of resources.
func (c *catalog) ofKind(groups []string, kind string) []resource {
	var found []resource
	for _, list := range [][]resource{c.resources, c.further} {
		for _, r := range list {
			if r.kind == kind && slices.Contains(groups, r.Group) {
				found = append(found, r)
			}
		}
	}
	return found
}

// failure is why the kinds of some groups are not known; nil when they are.
func (c *catalog) failure(groups ...string) error {
	for _, group := range groups {
		if err := cmp.Or(c.failed[group], c.dormant[group]); err != nil {
			return fmt.Errorf("discovery of group %q: %w", group, err)
		}
	}
	return nil
}

// layout answers from the plan where the objects of a resource are seen.
type layout struct {
	plan *plan.Runtime
}

// serves reports whether the plan's version of a side serves the kind: a catalog without it is incomplete.
func (l layout) serves(side pair.Side, gk schema.GroupKind) bool {
	for i := range l.plan.Resources {
		if row := &l.plan.Resources[i]; row.ServesKind(gk.Group, gk.Kind) {
			return len(row.View(side).Serves) > 0
		}
	}
	return false
}

// known reports whether some version builds the kind in.
func (l layout) known(gk schema.GroupKind) bool {
	return slices.ContainsFunc(l.plan.Resources, func(r pair.Resource) bool {
		return r.ServesKind(gk.Group, gk.Kind)
	})
}

// buildsIn reports whether the version of a side serves a resource by itself.
func (l layout) buildsIn(side pair.Side, gvr schema.GroupVersionResource) bool {
	row := l.plan.Row(gvr.GroupResource())
	return row != nil && row.Name == gvr.Resource &&
		slices.Contains(row.View(side).Serves, gvr.GroupVersion().String())
}

// groups lists every group under which the kind's objects may be found: an object of apps is one of extensions as well.
func (l layout) groups(gk schema.GroupKind) []string {
	for i := range l.plan.Resources {
		if row := &l.plan.Resources[i]; row.ServesKind(gk.Group, gk.Kind) {
			return row.Groups
		}
	}
	return []string{gk.Group}
}

// home is the side through which the objects of a resource are watched and changed when both sides see the same ones;
// "" when each side has its own.
func (l layout) home(gr schema.GroupResource) pair.Side {
	row := l.plan.Row(gr)
	if row == nil {
		row = &l.plan.CustomResources
	}
	return row.Route().Write
}

// watched chooses what to watch of what the two sides serve.
func (l layout) watched(legacy, modern *catalog) []resource {
	return l.chosen(legacy, modern, "get", "list", "watch", "delete")
}

// everyVersion are those, and the further versions that the two sides serve: an object may be in several. What is not
// in such a list is believed to be nowhere.
func (l layout) everyVersion(legacy, modern *catalog, verbs ...string) []resource {
	list := l.chosen(legacy, modern, verbs...)
	for _, c := range []*catalog{legacy, modern} {
		for _, r := range c.further {
			if r.can(verbs...) && !isEvent(r.GroupResource()) {
				list = append(list, r)
			}
		}
	}
	return list
}

// chosen are the resources with the verbs that the two sides serve: each object through one side, under one group.
func (l layout) chosen(legacy, modern *catalog, verbs ...string) []resource {
	type place struct {
		side pair.Side
		key  string
	}
	chosen := map[place]resource{}
	for _, c := range []*catalog{legacy, modern} {
		for _, r := range c.resources {
			if !r.can(verbs...) || isEvent(r.GroupResource()) {
				continue
			}
			at := place{r.side, r.GroupResource().String()}
			if fact, known := kubever.ResourceFor(r.GroupResource()); known {
				at.key = fact.Key
			}
			if home := l.home(r.GroupResource()); home != "" {
				// The other side's is taken only where home does not serve it, and is known not to.
				if at.side = home; r.side != home &&
					slices.ContainsFunc([]*catalog{legacy, modern}, func(c *catalog) bool {
						return c != nil && c.resources[0].side == home &&
							(c.failure(r.Group) != nil ||
								len(c.ofKind(l.groups(schema.GroupKind{Group: r.Group, Kind: r.kind}), r.kind)) > 0)
					}) {
					continue
				}
			}
			if other, taken := chosen[at]; !taken || less(r, other) {
				chosen[at] = r
			}
		}
	}
	var list []resource
	for _, r := range chosen {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b resource) int {
		return cmp.Or(cmp.Compare(a.side, b.side), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return list
}

// less prefers one of the groups under which the same objects are served.
func less(a, b resource) bool {
	return a.Group != b.Group && plan.PreferredGroup([]string{a.Group, b.Group}) == a.Group
}

// isEvent: events have no owners and no dependents, are many, and expire.
func isEvent(gr schema.GroupResource) bool {
	return gr.Resource == "events" && (gr.Group == "" || gr.Group == "events.k8s.io")
}
