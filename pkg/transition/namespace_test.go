package transition

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// handOverSteps are those of a transition between two lists of what is handed over.
func handOverSteps(t *testing.T, example, from, to string, target render.Target) *Transition {
	t.Helper()
	tr, err := New(handing(t, example, from, target), handing(t, example, to, target), Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Validate(); err != nil {
		t.Fatal(err)
	}
	return &tr
}

// moves are the records of what steps hand over, in their order.
func moves(tr *Transition) (records []string) {
	for _, s := range tr.Steps {
		if s.Do != nil && s.Do.Kind == HandOver {
			records = append(records, s.Do.Objects.Record)
		}
	}
	return records
}

// TestLegacyControllersPauseForANamespace: they stop before its objects go and start afterwards as they were, for they
// act for other namespaces; on the way back the same.
func TestLegacyControllersPauseForANamespace(t *testing.T) {
	for _, target := range []render.Target{render.StaticPod, render.Systemd} {
		from := handing(t, splitExample, "", target)
		tr := handOverSteps(t, splitExample, "", "team-a/deployments.apps", target)
		at := position(t, tr, "that hands over", func(s Step) bool {
			return s.Title == "hand replicasets, deployments of namespace team-a over to the modern side"
		})
		o := tr.Steps[at].Do.Objects
		if o.Plan.Namespace != "team-a" || tr.Steps[at].Undo.Objects.Plan.Namespace != "team-a" ||
			o.Record != "hand-over-deployments.team-a" || !slices.Contains(o.Plan.Kinds, "Deployment.extensions") {
			t.Errorf("what goes is %+v", o)
		}
		stopped := func(a *Action) bool { return a != nil && (a.Kind == StopUnit || a.Kind == RemoveFile) }
		started := func(a *Action) bool { return a != nil && (a.Kind == StartUnit || a.Kind == PutFile) }
		managers := 0
		for _, c := range from.Plan.Components {
			if c.Kind != "kube-controller-manager" {
				continue
			}
			managers++
			about := func(s Step) bool {
				return s.Host == c.Host && (strings.HasSuffix(s.Title, "/"+c.Name+".yaml") ||
					strings.HasSuffix(s.Title, " "+c.Name))
			}
			stop := position(t, tr, "that stops "+c.Name, func(s Step) bool { return about(s) && stopped(s.Do) })
			start := position(t, tr, "that starts "+c.Name, func(s Step) bool { return about(s) && started(s.Do) })
			if stop > at || start < at || !started(tr.Steps[stop].Undo) || !stopped(tr.Steps[start].Undo) {
				t.Errorf("%s: %s of %s stops at %d and starts at %d, handed over at %d", target, c.Name, c.Host, stop,
					start, at)
			}
		}
		if managers < 2 {
			t.Errorf("%d controller managers", managers)
		}
		for _, s := range tr.Steps {
			if strings.Contains(s.Title, "kube-scheduler") || strings.Contains(s.Title, "kube-apiserver") {
				t.Errorf("%s: nothing else is to stop: %s", target, s.Title)
			}
		}
		if before, after := newCluster(t, from), newCluster(t, handing(t, splitExample, "team-a/deployments.apps",
			target)); differs(before, after) != "" {
			t.Errorf("what runs afterwards differs: %s", differs(before, after))
		}
	}
}

// TestAPersonPausesLegacyControllers that run from files of their own: before anything else stops, and until all else
// runs again; on the way back the same.
func TestAPersonPausesLegacyControllers(t *testing.T) {
	const vendor = "vendor-1.6-1.36.yaml"
	tr := handOverSteps(t, vendor, "", "team-a/deployments.apps, cronjobs.batch, jobs.batch", render.StaticPod)
	byHand := func(a *Action, word string, check CheckKind) bool {
		return a != nil && a.Kind == ByHand && strings.HasPrefix(a.Text, word+" kube-controller-manager on ") &&
			a.After[0].Kind == check
	}
	stop := position(t, tr, "that has a person stop it", func(s Step) bool {
		return byHand(s.Do, "stop", Gone) && byHand(s.Undo, "start", Ready)
	})
	start := position(t, tr, "that has a person start it", func(s Step) bool {
		return byHand(s.Do, "start", Ready) && byHand(s.Undo, "stop", Gone)
	})
	others := position(t, tr, "that stops others", func(s Step) bool { return s.Do != nil && s.Do.Kind == RemoveFile })
	adopted := position(t, tr, "that looks", func(s Step) bool { return checks(s.Do, Adopted) })
	for i, s := range tr.Steps {
		acts := s.Do != nil && (s.Do.Kind == HandOver || s.Do.Kind == RemoveFile || s.Do.Kind == PutFile)
		if acts && (i < stop || i > start) {
			t.Errorf("step %d, %s: want it between %d and %d", i, s.Title, stop, start)
		}
		if stop < i && i < start && (checks(s.Do, Runs) || checks(s.Undo, Runs)) {
			t.Errorf("step %d, %s: nothing of it runs", i, s.Title)
		}
	}
	again := tr.Steps[start].Do.After
	if len(again) != 2 || again[1].Kind != Runs || !strings.Contains(again[1].Args[0], "-cronjob") {
		t.Errorf("when it runs again, %+v is checked", again)
	}
	if others < stop || adopted < start {
		t.Errorf("stopped at %d, others at %d; started at %d, looked at %d", stop, others, start, adopted)
	}
	position(t, tr, "that checks the arguments, for what goes of all namespaces", func(s Step) bool {
		return checks(s.Do, Runs) && strings.Contains(s.Do.Before[0].Args[0], "-cronjob")
	})
}

// TestOnlyWhatIsNewGoes: another namespace alone; then the resource as a whole, with what remains.
func TestOnlyWhatIsNewGoes(t *testing.T) {
	const one, two = "team-a/deployments.apps", "team-a/deployments.apps, team-b/deployments.apps"
	for _, test := range []struct {
		from, to string
		want     []string
	}{
		{"", two, []string{"hand-over-deployments.team-a", "hand-over-deployments.team-b"}},
		{one, two, []string{"hand-over-deployments.team-b"}},
		{two, "deployments.apps", []string{"hand-over-deployments"}},
		{one, "team-a/*", []string{"hand-over-ingress.team-a", "hand-over-ingress.team-a",
			"hand-over-statefulsets.team-a", "hand-over-jobs.team-a", "hand-over-horizontalpodautoscalers.team-a",
			"hand-over-poddisruptionbudgets.team-a"}},
	} {
		if got := moves(handOverSteps(t, splitExample, test.from, test.to, render.Systemd)); !slices.Equal(got,
			test.want) {
			t.Errorf("from %q to %q: %q go, want %q", test.from, test.to, got, test.want)
		}
	}
	for _, test := range [][3]string{
		{one, "", "team-a/replicasets, team-a/deployments: only the steps that handed them over"},
		{two, one, "team-b/replicasets, team-b/deployments: only the steps that handed them over"},
		{"deployments.apps", one, "replicasets, deployments: only the steps that handed them over"},
	} {
		_, err := New(handing(t, splitExample, test[0], render.Systemd), handing(t, splitExample, test[1],
			render.Systemd), Facts{})
		if err == nil || !strings.Contains(err.Error(), test[2]) {
			t.Errorf("from %q to %q: %v, want %q", test[0], test[1], err, test[2])
		}
	}
}

// TestWhatANamespaceHas decides what may refer to what there: what another namespace has handed over is of no account.
func TestWhatANamespaceHas(t *testing.T) {
	tr := handOverSteps(t, splitExample, "", "team-a/deployments.apps, team-b/*", render.Systemd)
	for namespace, stays := range map[string]bool{"team-a": true, "team-b": false} {
		o := tr.Steps[position(t, tr, "of "+namespace, func(s Step) bool {
			return s.Do != nil && s.Do.Kind == HandOver && s.Do.Objects.Record == "hand-over-deployments."+namespace
		})].Do.Objects
		scalers := slices.Contains(o.Plan.Absent, "horizontalpodautoscalers")
		sets := slices.Contains(o.Plan.Kinds, "StatefulSet.apps")
		if scalers != stays || sets == stays {
			t.Errorf("%s: autoscalers are to be absent: %t, StatefulSets go: %t", namespace, scalers, sets)
		}
	}
}

// TestAnObjectsNamespaceIsInItsRecord, and nothing else is, of a transition that was read from a file.
func TestAnObjectsNamespaceIsInItsRecord(t *testing.T) {
	tr := handOverSteps(t, splitExample, "", "team-a/deployments.apps", render.Systemd)
	o := tr.Steps[position(t, tr, "that hands over", func(s Step) bool {
		return s.Do != nil && s.Do.Kind == HandOver
	})].Do.Objects
	for _, test := range [][2]string{{"team-b", o.Record}, {"", o.Record}, {"a/../b", "hand-over-deployments.a/../b"},
		{"", "hand-over."}, {"team-a", "hand/over.team-a"}} {
		changed := *o
		changed.Plan.Namespace, changed.Record = test[0], test[1]
		if err := changed.validate(); err == nil {
			t.Errorf("namespace %q, record %q: is accepted", test[0], test[1])
		}
	}
	classes := handOverSteps(t, splitExample, "", "priorityclasses.scheduling.k8s.io", render.Systemd)
	o = classes.Steps[position(t, classes, "that copies", func(s Step) bool {
		return s.Do != nil && s.Do.Kind == HandOver
	})].Do.Objects
	o.Plan.Namespace, o.Record = "team-a", o.Record+".team-a"
	if err := o.validate(); err == nil {
		t.Error("priority classes of a namespace are accepted")
	}
}

// TestHostedPlansHandNothingOver: their steps move no objects, which would be left without controllers.
func TestHostedPlansHandNothingOver(t *testing.T) {
	const name = "hosted-1.15-1.36.yaml"
	of := func(entries string) *plan.Plan {
		f, err := spec.Load(name, []byte(strings.Replace(example(t, name), "\nspec:\n",
			"\nspec:\n  handedOver: ["+entries+"]\n", 1)))
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.New(f, plan.Hosted)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for entries, says := range map[string]string{"deployments.apps": "move no objects",
		"team-a/deployments.apps": "move no objects", strings.Join(rbacResources(), ", "): "copy no roles"} {
		for _, plans := range [][2]*plan.Plan{{of(""), of(entries)}, {of(entries), of("")}} {
			if _, err := NewHosted(plans[0], plans[1], Facts{}); err == nil ||
				!strings.Contains(err.Error(), "steps of hosted plans "+says) {
				t.Errorf("%s: %v", entries, err)
			}
		}
		if _, err := NewHosted(of(entries), of(entries), Facts{}); err != nil {
			t.Error(err)
		}
	}
}
