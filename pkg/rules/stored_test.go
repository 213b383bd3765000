package rules

import (
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/plantest"
)

// Groups of more than one word before k8s.io, and kinds without a spec, lose fields as others do.
func TestErasedFieldsOfEveryGroup(t *testing.T) {
	for _, tc := range []struct{ legacy, modern, resource, why string }{
		{"1.27", "1.29", "prioritylevelconfigurations", "spec.exempt came in 1.28"},
		{"1.8", "1.10", "clusterroles", "aggregationRule came in 1.9, and the kind has no spec"},
	} {
		p := plantest.Of(t, example{layout: "shared", legacy: tc.legacy, modern: tc.modern}.String())
		hit := of(Check(p), "FUS001")
		if len(hit) != 1 || !strings.Contains(hit[0].Message, tc.resource) {
			t.Errorf("%s + %s: FUS001 = %+v, want %s: %s", tc.legacy, tc.modern, hit, tc.resource, tc.why)
		}
	}
}

// Losses looks at no status; all other fields of a StorageVersion are known to every version that stores one.
func TestLossesKnowStorageVersions(t *testing.T) {
	found, err := Older{Minor: 27}.Losses(object(t, `
apiVersion: internal.apiserver.k8s.io/v1alpha1
kind: StorageVersion
metadata: {name: apps.deployments}
spec: {}
status: {storageVersions: [{apiServerID: a, servedVersions: [apps/v1]}]}
`))
	if err != nil || len(found) > 0 {
		t.Errorf("losses to 1.27 = %+v, %v, want none", found, err)
	}
}
