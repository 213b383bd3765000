package live

import (
	"cmp"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// listable are the resources to list: one version of each, one group of those that keep the same objects, and no
// events, which come in masses, own nothing and go by themselves.
func listable(served *discovery.Result) []discovery.Resource {
	var list []discovery.Resource
	at := map[string]int{}
	for _, k := range served.Resources {
		if !k.Can("list") || k.Name == "events" && (k.Group == "" || k.Group == "events.k8s.io") {
			continue
		}
		key := k.GroupResource().String()
		if fact, known := kubever.ResourceFor(k.GroupResource()); known {
			key = fact.Key
		}
		switch i, taken := at[key]; {
		case !taken:
			at[key] = len(list)
			list = append(list, k)
		case k.Group != list[i].Group && plan.PreferredGroup([]string{list[i].Group, k.Group}) == k.Group:
			list[i] = k
		}
	}
	slices.SortStableFunc(list, func(a, b discovery.Resource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Name, b.Name))
	})
	return list
}
