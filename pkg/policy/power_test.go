package policy

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// A row of a resource that no version has, or of a controller that no version runs, would judge nothing.
func TestPowersExist(t *testing.T) {
	for _, p := range Powers() {
		gr := schema.GroupResource{Group: p.Group, Resource: p.Resource}
		if _, known := kubever.ResourceFor(gr); !known {
			t.Errorf("no version has %s", gr)
		}
		runs := slices.ContainsFunc(kubever.Minors(), func(m kubever.Minor) bool {
			return slices.ContainsFunc(kubever.Controllers(m), func(c kubever.Controller) bool {
				return c.Name == p.PodsBy
			})
		})
		if p.PodsBy != "" && !runs {
			t.Errorf("%s: no version runs %s", gr, p.PodsBy)
		}
		if p.Account == "" && p.Opens == "" && !p.Acts {
			t.Errorf("%s: reaches no further than its objects", gr)
		}
	}
}

func TestActsAsOthers(t *testing.T) {
	g := Grant{Resources: []string{"services", "configmaps", "deployments", "pods", "*"}}
	if got, want := g.ActsAsOthers(), []string{"pods", "deployments"}; !slices.Equal(got, want) {
		t.Errorf("ActsAsOthers() = %v, want %v", got, want)
	}
	g.ReadOnly = true
	if got := g.ActsAsOthers(); len(got) > 0 {
		t.Errorf("ActsAsOthers() of a grant that reads = %v", got)
	}
}
