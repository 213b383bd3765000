package gateway

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/internal/cputest"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/gateway/routes"
)

// TestManyResourcesAreDescribedInTime: of one extension API server, which describes none of them, and of one definition
// with thousands of versions.
func TestManyResourcesAreDescribedInTime(t *testing.T) {
	const many = 9000
	result := &discovery.Result{}
	for i := range many {
		result.Resources = append(result.Resources,
			discovery.Resource{GroupVersion: schema.GroupVersion{Group: "example.com", Version: fmt.Sprint("v", i)},
				Name: "pizzas", Kind: "Pizza"},
			discovery.Resource{GroupVersion: schema.GroupVersion{Group: "metrics.com", Version: "v1"},
				Name: fmt.Sprint("r", i), Kind: "Metric"})
	}
	result.Resources = append(result.Resources, discovery.Resource{GroupVersion: schema.GroupVersion{Group: "apps",
		Version: "v1"}, Name: "deployments", Kind: "Deployment"})
	table := routes.Alone("one", result, routes.Conversions{})
	found := 0
	if took := cputest.Thread(t, func() {
		found = 0
		for _, gv := range table.Versions() {
			found += len(rowsOf(table, gv))
		}
	}); took > time.Second || found != 1 {
		t.Errorf("%d of them are described, which took %v to find", found, took)
	}
}
