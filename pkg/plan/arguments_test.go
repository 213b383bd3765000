package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

// withModern gives the modern side's components arguments, NAME=VALUE.
func withModern(text, server, manager string) string {
	list := func(arg string) string {
		name, value, _ := strings.Cut(arg, "=")
		if name == "" {
			return "{}"
		}
		return fmt.Sprintf("{extraArgs: [{name: %s, value: %q}]}", name, value)
	}
	head, tail, _ := strings.Cut(text, "  modern: ")
	tail = strings.Replace(tail, "apiServer: {}, controllerManager: {}",
		"apiServer: "+list(server)+", controllerManager: "+list(manager), 1)
	return head + "  modern: " + tail
}

func TestSettingsOfTheSpecJoinThoseOfThePlan(t *testing.T) {
	plain := planOf(t, splitSpec("1.15.12", "1.34.4", ""))
	kept, _ := plain.ComponentsOf(pair.Modern, kubever.APIServer)[0].Arg("feature-gates")
	if kept == "" {
		t.Fatal("the plan of 1.15 and 1.34 sets no feature gate: another pair is needed here")
	}
	gate, _, _ := strings.Cut(kept, "=")
	for given, want := range map[string]string{
		"AllBeta=false":         "AllBeta=false," + kept,
		gate + "=true":          gate + "=true",
		"AllBeta=false," + kept: "AllBeta=false," + kept,
	} {
		p := planOf(t, withModern(splitSpec("1.15.12", "1.34.4", ""), "feature-gates="+given, ""))
		if got, _ := p.ComponentsOf(pair.Modern, kubever.APIServer)[0].Arg("feature-gates"); got != want {
			t.Errorf("with --feature-gates=%s of the spec the server has %s, want %s", given, got, want)
		}
	}
}

func TestLockIsRenamedForWhoSaysThatThereIsAnElection(t *testing.T) {
	p := planOf(t, withModern(splitSpec("1.24.17", "1.36.3", ""), "", "leader-elect=true"))
	manager := p.ComponentsOf(pair.Modern, kubever.ControllerManager)[0]
	if name, _ := manager.Arg("leader-elect-resource-name"); name != "kube-controller-manager-modern" {
		t.Errorf("--leader-elect-resource-name=%s, want the modern side's own: the legacy side elects on a lease too",
			name)
	}
}

func TestCollectorFlagIsHeard(t *testing.T) {
	text := strings.Replace(splitSpec("1.15.12", "1.36.3", ""), "apiServer: {}, controllerManager: {}, scheduler: {}}",
		"apiServer: {}, controllerManager: {extraArgs: [{name: enable-garbage-collector, value: \"false\"}]}}", 1)
	p := planOf(t, withModern(text, "", "enable-garbage-collector=false"))
	for _, side := range pair.Sides() {
		c := p.Controller(side, "garbage-collector-controller")
		if c.On || c.Why != "the spec sets --enable-garbage-collector=false" {
			t.Errorf("%s collector: on %v, %s; want off by the flag", side, c.On, c.Why)
		}
	}
	if _, changed := p.ComponentsOf(pair.Legacy, kubever.ControllerManager)[0].Arg("controllers"); changed {
		t.Error("the legacy side has --controllers, want it left alone: its collector is off already")
	}
}

// The reason of a controller that a list of the spec turns off does not say that the list enables it.
func TestReasonsOfListsAgreeWithThem(t *testing.T) {
	text := strings.Replace(splitSpec("1.15.12", "1.36.3", ""), "apiServer: {}, controllerManager: {}, scheduler: {}}",
		"apiServer: {}, controllerManager: {extraArgs: [{name: controllers, value: \"*,-job\"}]}, scheduler: {}}", 1)
	p := planOf(t, withModern(text, "", "controllers=job-controller"))
	seen := 0
	for _, side := range pair.Sides() {
		for _, of := range []struct {
			name string
			on   bool
		}{{"job-controller", side == pair.Modern}, {"deployment-controller", side == pair.Legacy}} {
			want := "the spec's --controllers leaves it off"
			if of.on {
				want = "the spec's --controllers enables it"
			}
			if c := p.Controller(side, of.name); c.On != of.on || c.Why != want {
				t.Errorf("%s %s: on %v, %q; want %v, %q", side, of.name, c.On, c.Why, of.on, want)
			}
			seen++
		}
	}
	if seen != 4 {
		t.Errorf("%d controllers were compared, want 4", seen)
	}
	without := withModern(splitSpec("1.15.12", "1.36.3", "  handedOver: [deployments.apps]\n"), "",
		"controllers=*,-deployment-controller")
	if _, err := tryPlan(without); err == nil || !strings.Contains(err.Error(), "--controllers leaves it off") {
		t.Errorf("a hand-over to a controller that the list turns off: %v", err)
	}
}

func TestPolicyFileIsThePlansOwn(t *testing.T) {
	for _, arg := range []string{"authorization-policy-file=/x.jsonl", "authorization_config=/x.yaml",
		"etcd-cafile=/x"} {
		if _, err := tryPlan(withModern(splitSpec("1.15.12", "1.36.3", ""), arg, "")); err == nil ||
			!strings.Contains(err.Error(), "follows from the spec") {
			t.Errorf("--%s on the modern server: %v, want it refused", arg, err)
		}
	}
}

func TestServiceRangesMustBeTakenByBothServers(t *testing.T) {
	for _, test := range []struct{ legacy, modern, network, want string }{
		{"1.15.12", "1.36.3", "serviceCIDRs: [10.96.0.0/16, fd00::/112]", "1.15 takes one range"},
		{"1.16.15", "1.36.3", "serviceCIDRs: [10.96.0.0/16, fd00::/112]", "IPv6DualStack=true"},
		{"1.21.14", "1.36.3", "serviceCIDRs: [10.96.0.0/16, fd00::/112]", ""},
		{"1.15.12", "1.36.3", "serviceCIDRs: [10.96.0.0/16], modernServiceCIDRs: [10.97.0.0/16, fd00::/112]", ""},
		{"1.6.13", "1.36.3", "serviceCIDRs: [10.0.0.0/8]", "at least /12"},
		{"1.6.13", "1.36.3", "serviceCIDRs: [10.16.0.0/12], modernServiceCIDRs: [fd00::/64]", ""},
		{"1.6.13", "1.30.14", "serviceCIDRs: [10.16.0.0/12], modernServiceCIDRs: [fd00::/64]", "at least /108"},
	} {
		_, err := tryPlan(splitSpec(test.legacy, test.modern, "  network: {"+test.network+"}\n"))
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s with %s, %s: %v, want %q", test.legacy, test.modern, test.network, err, test.want)
		}
	}
}

func TestModernManagerReadsSecretsOnlyWhereItMust(t *testing.T) {
	for modern, want := range map[string]bool{"1.10.13": true, "1.36.3": false} {
		p := planOf(t, splitSpec("1.6.13", modern, ""))
		got := slices.ContainsFunc(p.Policy.Grants, func(g policy.Grant) bool {
			return g.Subjects[0].Name == "system:kube-controller-manager" && slices.Contains(g.Resources, "secrets")
		})
		if got != want {
			t.Errorf("%s: the controller manager may read secrets: %v, want %v", modern, got, want)
		}
	}
}
