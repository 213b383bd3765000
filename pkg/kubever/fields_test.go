package kubever

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestEveryKindHasItsFields holds the names of types against the tables: a kind whose name misses has no field that
// could be lost.
func TestEveryKindHasItsFields(t *testing.T) {
	// the API descriptions of these minors leave the type out, or show it without fields
	undescribed := map[string]Ranges{
		"batch.v2alpha1.ScheduledJob":                    {{6, 7}},
		"extensions.v1beta1.ReplicationControllerDummy":  {{6, 17}},
		"apiextensions.v1beta1.CustomResourceDefinition": {{7, 7}, {22, 37}},
		"storage.v1alpha1.CSIStorageCapacity":            {{19, 20}},
		"discovery.v1beta1.EndpointSlice":                {{25, 37}},
		"policy.v1beta1.PodDisruptionBudget":             {{25, 37}},
		"v1.RangeAllocation":                             {{6, 37}},
	}
	check := func(gvk schema.GroupVersionKind, m Minor) {
		name := TypeName(gvk)
		if known := len(Fields(name, m)) > 0; known == undescribed[name].Has(m) {
			t.Errorf("%s of %s in %s: has fields %v, want %v", name, gvk, m, known, !known)
		}
	}
	for _, m := range Minors() {
		for _, a := range APIResources(m) {
			check(a.GroupVersion.WithKind(a.Kind), m)
		}
		for _, r := range Resources() {
			if stored, ok := r.StoredAs(m); ok {
				check(stored, m)
			}
		}
	}
}

func TestTypeNames(t *testing.T) {
	for _, tc := range []struct{ gv, kind, want string }{
		{"v1", "Pod", "v1.Pod"},
		{"apps/v1", "Deployment", "apps.v1.Deployment"},
		{"rbac.authorization.k8s.io/v1", "Role", "rbac.v1.Role"},
		{"flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "flowcontrol.v1.FlowSchema"},
		{"internal.apiserver.k8s.io/v1alpha1", "StorageVersion", "apiserverinternal.v1alpha1.StorageVersion"},
	} {
		gv, err := schema.ParseGroupVersion(tc.gv)
		if err != nil {
			t.Fatal(err)
		}
		if got := TypeName(gv.WithKind(tc.kind)); got != tc.want {
			t.Errorf("TypeName(%s %s) = %s, want %s", tc.gv, tc.kind, got, tc.want)
		}
	}
}

// The Scale of a version is its own where there is one, whatever came since.
func TestScaleKinds(t *testing.T) {
	for gv, want := range map[schema.GroupVersion]string{
		{Group: "extensions", Version: "v1beta1"}:   "extensions/v1beta1",
		{Group: "apps", Version: "v1beta1"}:         "apps/v1beta1",
		{Group: "apps", Version: "v1beta2"}:         "apps/v1beta2",
		{Group: "apps", Version: "v1"}:              "autoscaling/v1",
		{Version: "v1"}:                             "autoscaling/v1",
		{Group: "example.org", Version: "v1alpha1"}: "autoscaling/v1",
	} {
		if got := ScaleKind(gv).GroupVersion().String(); got != want {
			t.Errorf("%s scales by %s, want %s", gv, got, want)
		}
	}
}
