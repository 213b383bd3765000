package transition

import (
	"context"
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
		begun := Record{Step: other.Steps[0].ID, Event: Begun} // a check that failed, before the other one began
		c.records = []Record{begun}
		err = Apply(t.Context(), &other, c, c, nil)
		if err == nil || !strings.Contains(err.Error(), name+".") || len(c.records) > 1 || len(c.did) > 0 {
			t.Errorf("another transition that goes on: %v after %v, want it refused before that", err, c.did)
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

// way is a way over several setups, each by a transition of its own, from nothing on.
type way struct {
	*cluster
	steps   map[string]*Transition
	records map[string][]Record // their journals
	last    Setup
}

func wayFrom(t *testing.T) *way {
	t.Helper()
	return &way{cluster: newCluster(t, Setup{}), steps: map[string]*Transition{}, records: map[string][]Record{}}
}

func (w *way) to(t *testing.T, name string, s Setup) {
	t.Helper()
	tr, err := New(w.last, s, facts())
	if err == nil {
		err = tr.Validate()
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	w.steps[name], w.last = &tr, s
	if err := w.run(t, name, Apply); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// run carries steps out, or takes them back, by their own journal.
func (w *way) run(t *testing.T, name string, run func(context.Context, *Transition, Runner, Journal, Progress) error,
) error {
	t.Helper()
	w.cluster.records, w.did = w.records[name], nil
	err := run(t.Context(), w.steps[name], w.cluster, w.cluster, nil)
	w.records[name] = w.cluster.records
	return err
}

// refuses: steps are not taken back, and nothing is done.
func (w *way) refuses(t *testing.T, name string, words ...string) {
	t.Helper()
	for range 2 { // the second one is a run that goes on
		err := w.run(t, name, Undo)
		if err == nil || len(w.did) > 0 {
			t.Errorf("undo of %s: %v after %v, want it refused before anything is done", name, err, w.did)
			return
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("undo of %s: %v, want %q", name, err, word)
			}
		}
	}
}

// TestNoUndoBeneathLaterTransitions: steps that were taken back while later ones went on from theirs would stop what
// these need, one after the other, until they come to a file that these have changed. They are compared before that.
func TestNoUndoBeneathLaterTransitions(t *testing.T) {
	for _, target := range []render.Target{render.Systemd, render.StaticPod} {
		t.Run(string(target), func(t *testing.T) {
			roles := beforeRetiring(t, "")
			setup := func(text string) Setup { return Setup{Plan: planOf(t, splitExample, text), Target: target} }
			handed := strings.Replace(roles, "handedOver: [", "handedOver: [deployments.apps, ", 1)
			w := wayFrom(t)
			w.to(t, "install", setup(strings.Replace(roles, strings.Join(rbacResources(), ", "), "", 1)))
			w.to(t, "roles", setup(roles))
			w.to(t, "hand", setup(handed))
			const hint = "undo the later transition first"
			w.refuses(t, "install", hint, "kube-controller-manager.")
			w.to(t, "retire", setup(retired(handed)))
			w.refuses(t, "hand", hint, "kube-controller-manager.")
			w.refuses(t, "install", hint, "kube-apiserver-modern.")
			for _, name := range []string{"retire", "hand", "roles", "install"} {
				if err := w.run(t, name, Undo); err != nil {
					t.Fatalf("undo of %s in its turn: %v", name, err)
				}
			}
			if d := differs(w.cluster, newCluster(t, Setup{})); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestAUndoGoesOn: what it has taken back itself is not held against it, and what another one stopped meanwhile is.
func TestAUndoGoesOn(t *testing.T) {
	from, to := handing(t, splitExample, "", render.Systemd), handing(t, splitExample, "deployments.apps",
		render.Systemd)
	tr, err := New(from, to, facts())
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, from)
	if err := Apply(t.Context(), &tr, c, c, nil); err != nil {
		t.Fatal(err)
	}
	unit := place{"cp-1", "kube-controller-manager-modern.service"}
	if !c.units[unit] {
		t.Fatalf("%v are the units", c.units)
	}
	delete(c.units, unit)
	c.did = nil
	if err := Undo(t.Context(), &tr, c, c, nil); err == nil || !strings.Contains(err.Error(), unit.path) ||
		len(c.did) > 0 {
		t.Errorf("with %s stopped: %v after %v", unit.path, err, c.did)
	}
	c.units[unit] = true
	for calls := 0; ; calls++ {
		c.left = 40
		if err = Undo(t.Context(), &tr, c, c, nil); err == nil {
			break
		}
		if !errors.Is(err, errKilled) || calls > 50 {
			t.Fatalf("after %d runs: %v", calls, err)
		}
	}
	if d := differs(c, newCluster(t, from)); d != "" {
		t.Error(d)
	}
}
