package routes

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// Facts is what the API servers of a plan serve by the facts about their versions and their --runtime-config: the
// built-in resources, and no custom ones. Verbs are those of most resources.
func Facts(p *plan.Runtime) Sources {
	return Sources{Legacy: facts(p, pair.Legacy), Modern: facts(p, pair.Modern)}
}

func facts(p *plan.Runtime, side pair.Side) Served {
	servers := p.Side(side)
	minor := servers.Version.Minor
	result := &discovery.Result{Announced: map[schema.GroupVersion]bool{}, Preferred: map[string]string{}}
	for _, a := range kubever.APIResources(minor) {
		gvr := a.WithResource(a.Name)
		on := a.DefaultOn.Has(minor)
		if set, given := servers.Setting(gvr); given {
			on = set
		}
		if !on {
			continue
		}
		r := discovery.Resource{GroupVersion: a.GroupVersion, Name: a.Name, Kind: a.Kind, Namespaced: a.Namespaced,
			Verbs: []string{"create"}}
		if _, stored := kubever.ResourceFor(a.GroupResource()); stored && a.Name != "bindings" {
			r.Verbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
		}
		for _, name := range a.Subresources(minor) {
			r.Subresources = append(r.Subresources, discovery.Subresource{Name: name})
		}
		result.Announced[a.GroupVersion] = true
		result.Resources = append(result.Resources, r)
	}
	slices.SortStableFunc(result.Resources, func(x, y discovery.Resource) int {
		return cmp.Or(cmp.Compare(x.Group, y.Group), version.CompareKubeAwareVersionStrings(y.Version, x.Version))
	})
	for _, r := range result.Resources {
		if result.Preferred[r.Group] == "" {
			result.Preferred[r.Group] = r.Version
		}
	}
	return Served{Result: result}
}
