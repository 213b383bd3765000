package rules

import (
	"slices"
	"testing"

	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// The manager that leads publishes its bundle, and any of them may lead: the one of each host counts.
func TestPodsTrustTheBundleOfWhicheverManagerLeads(t *testing.T) {
	p := plantest.Of(t, twoAuthorities("/etc/kubernetes/pki/ca.crt").String())
	if found := untrustedByPods(p); len(found) > 0 {
		t.Fatalf("one CA: %v", found)
	}
	other := slices.Clone(p.ComponentsOf(pair.Legacy, kubever.ControllerManager))[0]
	other.Host = "cp-2"
	other.Args = append(slices.DeleteFunc(slices.Clone(other.Args), func(a plan.Arg) bool {
		return a.Name == "root-ca-file"
	}), plan.Arg{Name: "root-ca-file", Value: "/etc/kubernetes/pki/serving-ca.crt"})
	p.Components = append(p.Components, other)
	found := untrustedByPods(p)
	if len(found) != 1 || found[0].Key != "/etc/kubernetes/pki/serving-ca.crt" {
		t.Errorf("another bundle on cp-2: %v, want one finding about it", found)
	}
}

// TestDefaultsOfTheModernSideAreNotLost: without --api-audiences a server takes its issuers for them, which is what the
// plan gives a legacy one that issues tokens for pods of both sides.
func TestDefaultsOfTheModernSideAreNotLost(t *testing.T) {
	p := plantest.Example(t, "split-1.15-1.36.yaml")
	if value, ok := sideArg(p, pair.Legacy, kubever.APIServer, "api-audiences"); !ok || value == "" {
		t.Fatal("the legacy API server has no --api-audiences: nothing is tested")
	}
	for _, f := range Check(p) {
		if f.Rule == "FUS252" && f.Subject == "--api-audiences" {
			t.Errorf("%+v", f)
		}
	}
}
