package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

const modernNodes = "  kubelet: {modern: {}}\n"

// TestNodesAtTheModernServer: what the plan has for kubelets there, in every pair, and nothing of it without them.
func TestNodesAtTheModernServer(t *testing.T) {
	pairs(t, func(legacy, modern kubever.Minor, p *plan.Plan) {
		none, _ := serverArg(p, "authorization-mode")
		if none != "ABAC" || p.ModernKubelet != nil || slices.ContainsFunc(p.Policy.Grants, isForNodes) {
			t.Errorf("%s and %s: without nodes at the modern API server: %s, %v", legacy, modern, none, p.ModernKubelet)
		}
	})
	for _, c := range []struct {
		legacy, modern string
		csinodes       pair.Owner
	}{
		{"1.15.12", "1.36.3", pair.OwnerSplit},
		{"1.10.13", "1.36.3", pair.OwnerModern},
		{"1.17.17", "1.36.3", pair.OwnerShared},
		{"1.24.17", "1.33.4", pair.OwnerShared},
		{"1.10.13", "1.15.12", pair.OwnerModern},
	} {
		p := planOf(t, splitSpec(c.legacy, c.modern, modernNodes))
		if p.ModernKubelet == nil || p.ModernKubelet.String() != c.modern {
			t.Errorf("%s and %s: kubelets at the modern API server are %v", c.legacy, c.modern, p.ModernKubelet)
		}
		if mode, _ := serverArg(p, "authorization-mode"); mode != "Node,ABAC" {
			t.Errorf("%s and %s: --authorization-mode=%s, want Node,ABAC", c.legacy, c.modern, mode)
		}
		if !slices.Contains(p.Plugins(pair.Modern), "NodeRestriction") {
			t.Errorf("%s and %s: admission is %v, want NodeRestriction", c.legacy, c.modern, p.Plugins(pair.Modern))
		}
		if row := p.Resource("csinodes"); row != nil && row.Owner != c.csinodes {
			t.Errorf("%s and %s: csinodes are %s, because %s, want %s", c.legacy, c.modern, row.Owner, row.Why,
				c.csinodes)
		}
		var given []string
		for _, g := range p.Policy.Grants {
			if !isForNodes(g) {
				continue
			}
			for _, s := range g.Subjects {
				verb := "write"
				if g.ReadOnly {
					verb = "read"
				}
				for _, r := range g.Resources {
					given = append(given, s.Name+" "+verb+" "+r)
				}
			}
		}
		for _, want := range []string{plan.KubeletClientUser + " write nodes", "system:kube-proxy read services",
			"system:kube-proxy read nodes", "system:kube-proxy read endpoints", "system:kube-proxy write events"} {
			if !slices.Contains(given, want) {
				t.Errorf("%s and %s: the policy allows %q, want %q", c.legacy, c.modern, given, want)
			}
		}
	}
}

func isForNodes(g policy.Grant) bool { return g.Purpose == policy.ForNodes }

func serverArg(p *plan.Plan, name string) (string, bool) {
	return p.ComponentsOf(pair.Modern, kubever.APIServer)[0].Arg(name)
}

func TestNodesAtAnAPIServerThatHasNothingForThem(t *testing.T) {
	_, err := tryPlan(splitSpec("1.6.13", "1.6.13", modernNodes))
	if err == nil || !strings.Contains(err.Error(), "spec.kubelet.modern") {
		t.Errorf("1.6 has no authorizer for nodes: %v", err)
	}
	_, err = tryPlan(splitSpec("1.15.12", "1.33.4", "  kubelet: {modern: {version: 1.36.3}}\n"))
	if err == nil || !strings.Contains(err.Error(), "is newer than the modern API server") {
		t.Errorf("a kubelet that is newer than its API server: %v", err)
	}
}

func TestKubeletsOfBothSides(t *testing.T) {
	p := planOf(t, splitSpec("1.15.12", "1.36.3", modernNodes))
	if got := p.KubeletMinors(); !slices.Equal(got, []kubever.Minor{15, 36}) {
		t.Errorf("KubeletMinors() = %v", got)
	}
	if _, there := planOf(t, splitSpec("1.15.12", "1.36.3", "")).KubeletAt(pair.Modern); there {
		t.Error("a kubelet is at the modern API server of a plan without one")
	}
}
