package transition

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// TestNoTransitionBeginsInAnother: one that hands workloads over is killed while its objects are on their way. Another
// one from the same spec, which changes no file that this has changed yet, would start the controllers that it has
// stopped, beside half of their objects.
func TestNoTransitionBeginsInAnother(t *testing.T) {
	noneBeginsInAnother(t, "team-a/deployments.apps", "kube-controller-manager", render.Systemd)
	noneBeginsInAnother(t, "team-a/deployments.apps", "kube-controller-manager", render.StaticPod)
	noneBeginsInAnother(t, "deployments.apps", "kube-controller-manager-modern", render.Systemd)
	noneBeginsInAnother(t, "deployments.apps", "kube-controller-manager-modern", render.StaticPod)
}

func noneBeginsInAnother(t *testing.T, resources, name string, target render.Target) {
	t.Run(name+","+string(target), func(t *testing.T) {
		from := handing(t, splitExample, "", target)
		over, err := New(from, handing(t, splitExample, resources, target), facts())
		if err != nil {
			t.Fatal(err)
		}
		flags := *from.Plan
		flags.Components = slices.Clone(flags.Components)
		for i := range flags.Components {
			if c := &flags.Components[i]; c.Name == name {
				c.Args = append(slices.Clone(c.Args), plan.Arg{Name: "v", Value: "4", Origin: plan.FromSpec})
			}
		}
		other, err := New(from, Setup{Plan: &flags, Target: target}, facts())
		if err != nil || len(other.Steps) == 0 {
			t.Fatalf("%d steps, %v", len(other.Steps), err)
		}
		c := newCluster(t, from)
		c.judged = func(kind string, _ *Objects) error {
			if kind == string(HandOver) {
				return errKilled
			}
			return nil
		}
		if err := Apply(t.Context(), &over, c, c, nil); !errors.Is(err, errKilled) {
			t.Fatalf("handing over: %v, want it killed", err)
		}
		first := c.records
		c.records, c.did = nil, nil
		err = Apply(t.Context(), &other, c, c, nil)
		if err == nil || !strings.Contains(err.Error(), name+".") || len(c.records)+len(c.did) > 0 {
			t.Errorf("another transition: %v after %v, want it refused before anything is done", err, c.did)
		}
		c.records, c.judged = first, nil
		if err := Undo(t.Context(), &over, c, c, nil); err != nil {
			t.Fatal(err)
		}
		c.records = nil
		if err := Apply(t.Context(), &other, c, c, nil); err != nil {
			t.Errorf("after the first one was undone: %v", err)
		}
	})
}
