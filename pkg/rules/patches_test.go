package rules

import (
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/plantest"
)

// A fault is reported of the releases that have it, of the components that run, and not where its gate is off.
func TestFaultsOfPatchReleases(t *testing.T) {
	statefulSets := args("controllers=statefulset-controller")
	for name, test := range map[string]struct {
		example
		want []string // parts of the messages
	}{
		"rolled":            {example{modern: "1.34.0", modernManager: statefulSets}, []string{"StatefulSet"}},
		"a vendor's build":  {example{modern: "1.34.1-acme.3", modernManager: statefulSets}, []string{"StatefulSet"}},
		"no such control":   {example{modern: "1.34.0", modernManager: args("controllers=deployment-controller")}, nil},
		"the last":          {example{modern: "1.34", modernManager: statefulSets}, nil},
		"the legacy server": {example{legacy: "1.12.3", legacyManager: "-"}, []string{"cohabiting"}},
		"tokens":            {example{modern: "1.32.1"}, []string{"azureFile"}},
		"the gate is off": {example{modern: "1.32.1",
			modernServer: args("feature-gates=ServiceAccountNodeAudienceRestriction=false")}, nil},
		"the gate is on again": {example{modern: "1.32.1", modernServer: args("feature-gates=" +
			"ServiceAccountNodeAudienceRestriction=false,ServiceAccountNodeAudienceRestriction=true")},
			[]string{"azureFile"}},
	} {
		found := of(Check(plantest.Of(t, test.String())), "FUS258")
		if len(found) != len(test.want) {
			t.Errorf("%s: FUS258 = %+v, want %d findings", name, found, len(test.want))
			continue
		}
		for i, want := range test.want {
			if !strings.Contains(found[i].Message, want) {
				t.Errorf("%s: %q, want %q in it", name, found[i].Message, want)
			}
		}
	}
}
