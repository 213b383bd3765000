package routes

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/internal/cputest"
	"github.com/kubefusion/fusionctl/pkg/discovery"
)

// TestManyVersions: one definition, or one extension API server, may have thousands, and every client asks
// for the groups.
func TestManyVersions(t *testing.T) {
	const many = 9000
	result := &discovery.Result{}
	for i := range many {
		result.Resources = append(result.Resources, discovery.Resource{GroupVersion: schema.GroupVersion{
			Group: "example.com", Version: fmt.Sprint("v", i)}, Name: "pizzas", Kind: "Pizza"})
	}
	for _, group := range []string{"b.com", "a.com"} {
		result.Resources = append(result.Resources, discovery.Resource{GroupVersion: schema.GroupVersion{
			Group: group, Version: "v1"}, Name: "pizzas", Kind: "Pizza"})
	}
	table := Alone("one", result, Conversions{})
	d := table.Documents(nil)
	if took := cputest.Thread(t, func() { d.Groups() }); took > time.Second {
		t.Errorf("the groups took %v", took)
	}
	groups := d.Groups().Groups
	if len(groups) != 3 || len(groups[0].Versions) != many || groups[0].PreferredVersion.Version != "v0" ||
		groups[1].Name != "b.com" || len(groups[2].Versions) != 1 || groups[2].Versions[0].GroupVersion != "a.com/v1" {
		t.Errorf("%d groups", len(groups))
	}
	for _, group := range groups {
		if one := d.Group(group.Name); fmt.Sprint(one.Versions, one.PreferredVersion) !=
			fmt.Sprint(group.Versions, group.PreferredVersion) {
			t.Errorf("%s by itself is another one", group.Name)
		}
	}
}
