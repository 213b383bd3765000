package plan

import (
	"slices"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

func TestDropsListsWhatTheOlderSideDoesNotKnow(t *testing.T) {
	core := pair.View{Store: "core", StoredAs: "v1", Decodes: []string{"v1"}}
	row := &pair.Resource{Key: "pods", Kind: "Pod", Groups: []string{""}, Legacy: core, Modern: core}
	legacy, implied := drops(row, pair.Legacy, 10, 36)
	for _, want := range []string{
		"metadata.managedFields", "spec.topologySpreadConstraints", "spec.preemptionPolicy",
		"spec.containers[].startupProbe", "spec.volumes[].ephemeral",
		// of a type that was renamed
		"spec.initContainers[].restartPolicy", "status.podIPs", "spec.containers[].lifecycle.preStop.sleep",
	} {
		if !slices.Contains(legacy, want) {
			t.Errorf("1.10 drops %d fields of a 1.36 pod, %q is not among them", len(legacy), want)
		}
	}
	for _, unwanted := range []string{"metadata.name", "spec.containers", "spec.containers[].image", "spec.priority"} {
		if slices.Contains(legacy, unwanted) {
			t.Errorf("1.10 is said to drop %q", unwanted)
		}
	}
	if implied["spec.enableServiceLinks"] != "true" ||
		implied["spec.topologySpreadConstraints[].nodeTaintsPolicy"] != "Ignore" || implied["spec.hostname"] != "" {
		t.Errorf("implied values are %v", implied)
	}
	if same, _ := drops(row, pair.Legacy, 36, 36); len(same) > 0 {
		t.Errorf("a version drops its own fields: %q", same)
	}
	if modern, _ := drops(row, pair.Modern, 36, 10); !slices.Contains(modern, "metadata.initializers") {
		t.Errorf("1.36 drops %q of a 1.10 pod, want metadata.initializers among them", modern)
	}
}

func TestDropsSaysWhichValuesMeanNothing(t *testing.T) {
	core := pair.View{Store: "core", StoredAs: "v1", Decodes: []string{"v1"}}
	row := &pair.Resource{Key: "services/specs", Kind: "Service", Groups: []string{""}, Legacy: core, Modern: core}
	_, implied := drops(row, pair.Legacy, 6, 36)
	for path, want := range map[string]string{
		"spec.internalTrafficPolicy": "Cluster", "spec.clusterIPs": pair.OneElement,
		"spec.sessionAffinityConfig.clientIP.timeoutSeconds": "10800", "spec.loadBalancerClass": "",
	} {
		if implied[path] != want {
			t.Errorf("the implied value of %s is %q, want %q", path, implied[path], want)
		}
	}
}

func TestOwnershipHoldsTheDataOfThirdPartyResources(t *testing.T) {
	p := &Plan{Prefix: "/registry",
		Resources: []Resource{{Resource: pair.Resource{Key: "thirdpartyresources", Owner: pair.OwnerLegacy,
			Legacy: pair.View{Store: "core"}}}}}
	m := p.Ownership()
	row := storage.RowOf(&m,
		storage.NewClassifier(&m).Classify("/registry/ThirdPartyResourceData/example.com/crontabs/default/nightly"))
	if row == nil || row.Legacy.Store != "core" || row.Owner != pair.OwnerLegacy {
		t.Errorf("row of third-party data = %+v, want that of the legacy side's store", row)
	}
}
