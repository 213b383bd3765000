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

// TestWhatTheLegacySideAlsoAsksAndReports: a webhook that authorizes is not asked by the modern API server, and one
// that gets audit events gets those of the modern version, whatever the legacy one is told or does by default.
func TestWhatTheLegacySideAlsoAsksAndReports(t *testing.T) {
	const audit = "audit-webhook-config-file=/etc/kubernetes/audit.yaml"
	for name, c := range map[string]struct {
		version, mode string
		more          []string
		want          []string
	}{
		"neither": {"1.15.12", "Node,RBAC", nil, nil},
		"a webhook that authorizes": {"1.15.12", "RBAC,Webhook", nil,
			[]string{"--authorization-webhook-config-file"}},
		"a file of authorizers": {"1.31.14", "RBAC", []string{"authorization-config=/etc/kubernetes/authz.yaml"},
			[]string{"--authorization-config"}},
		"events of one version": {"1.15.12", "RBAC", []string{audit}, nil},
		"events of an older, by a flag": {"1.15.12", "RBAC",
			[]string{audit, "audit-webhook-version=audit.k8s.io/v1beta1"}, []string{"--audit-webhook-version"}},
		"events of an older by default": {"1.12.10", "RBAC", []string{audit}, []string{"--audit-webhook-version"}},
		"before there was a flag":       {"1.10.13", "RBAC", []string{audit}, []string{"--audit-webhook-version"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := args(append([]string{"etcd-servers=http://10.0.0.11:2379", "authorization-mode=" + c.mode,
				"allow-privileged=true", "client-ca-file=/etc/kubernetes/pki/ca.crt"}, c.more...)...)
			p := plantest.Of(t,
				example{legacy: c.version, legacySide: "existing: true", legacyServer: server}.String())
			var got []string
			for _, f := range slices.Concat(lostAuthorizer(p), changedEvents(p)) {
				got = append(got, f.Subject)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
