package transition

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/render"
)

// TestGatewayServesLast: the gateway starts when all that it speaks to serves, and the controllers of both sides run,
// and stops before any of them. Of what runs beside it, only the modern API servers start again, which read a policy
// that has the gateway's user.
func TestGatewayServesLast(t *testing.T) {
	text := example(t, "gateway-1.15-1.36.yaml")
	for _, target := range []render.Target{render.StaticPod, render.Systemd} {
		with := Setup{Plan: planOf(t, "gateway", text), Target: target}
		disabled := strings.Replace(text, "  gateway:\n", "  gateway:\n    disabled: true\n", 1)
		without := Setup{Plan: planOf(t, "gateway", disabled), Target: target}
		for name, way := range map[string][2]Setup{"install": {{}, with}, "to none": {with, {}}, "add": {without, with},
			"take out": {with, without}} {
			tr, err := New(way[0], way[1], Facts{})
			if err != nil {
				t.Fatal(err)
			}
			if err := tr.Validate(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			starts := name == "install" || name == "add"
			var order []string
			for _, s := range tr.Steps {
				if what := moved(s.Do, starts); what != "" {
					order = append(order, s.Host+" "+what)
				}
			}
			if !starts {
				slices.Reverse(order)
			}
			gateways := slices.IndexFunc(order, func(s string) bool {
				return strings.HasSuffix(s, "fusionctl-gateway")
			})
			if gateways < 0 || len(order)-gateways != 2 {
				t.Errorf("%s, %s: the gateways of two hosts are not the last to start and the first to stop:\n%s", name,
					target, strings.Join(order, "\n"))
			}
			if name != "add" && name != "take out" {
				continue
			}
			for _, what := range order[:len(order)-2] {
				if !strings.HasSuffix(what, " kube-apiserver-modern") {
					t.Errorf("%s, %s: %s starts or stops, too", name, target, what)
				}
			}
		}
	}
}

// moved is the component that an action starts, or stops.
func moved(a *Action, starts bool) string {
	switch {
	case a == nil:
	case a.Kind == StartUnit && starts, a.Kind == StopUnit && !starts:
		return strings.TrimSuffix(a.Unit, ".service")
	case a.Kind == PutFile && starts, a.Kind == RemoveFile && !starts:
		if name, ok := strings.CutPrefix(a.File.Path, render.ManifestDirectory+"/"); ok {
			return strings.TrimSuffix(name, ".yaml")
		}
	}
	return ""
}

func TestGatewayIsWaitedForUntilItServes(t *testing.T) {
	p := planOf(t, "gateway", example(t, "gateway-1.15-1.36.yaml"))
	tr, err := New(Setup{}, Setup{Plan: p, Target: render.Systemd}, Facts{})
	if err != nil {
		t.Fatal(err)
	}
	start := position(t, &tr, "that starts the gateway", func(s Step) bool {
		return s.Do != nil && s.Do.Kind == StartUnit && s.Do.Unit == "fusionctl-gateway.service"
	})
	after := tr.Steps[start].Do.After
	if len(after) != 1 || after[0].Kind != Ready || after[0].Probe.Path != "/readyz" || after[0].CA != p.PKI.CA {
		t.Errorf("it is started when %+v, want its /readyz, verified by the cluster's CA", after)
	}
	allow := position(t, &tr, "by hand", func(s Step) bool { return s.Do != nil && s.Do.Kind == ByHand })
	if text := tr.Steps[allow].Do.Text; allow >= start || !strings.Contains(text, "user fusionctl-gateway") {
		t.Errorf("step %d of %d: %q; want the permissions of the gateway's user before it starts", allow, start, text)
	}
}
