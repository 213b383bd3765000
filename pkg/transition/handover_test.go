package transition

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// handing is the example of a pair that has handed resources over.
func handing(t *testing.T, name, resources string, target render.Target) Setup {
	t.Helper()
	text := example(t, name)
	if resources != "" {
		text = strings.Replace(text, "\nspec:\n", "\nspec:\n  handedOver: ["+resources+"]\n", 1)
	}
	return Setup{planOf(t, name, text), target}
}

const splitExample = "split-1.15-1.36.yaml"

// TestHandOverWhileNoControllerActs: the objects go when the controllers of both sides have stopped that act for them,
// or collect what they own, and these start afterwards; on the way back the same.
func TestHandOverWhileNoControllerActs(t *testing.T) {
	for _, target := range []render.Target{render.StaticPod, render.Systemd} {
		from := handing(t, splitExample, "", target)
		to := handing(t, splitExample, "deployments.apps", target)
		tr, err := New(from, to, Facts{})
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Validate(); err != nil {
			t.Fatal(err)
		}
		at := position(t, &tr, "that hands over", func(s Step) bool { return s.Do != nil && s.Do.Kind == HandOver })
		s := tr.Steps[at]
		if s.Undo.Kind != HandBack || s.Do.Objects.Record != s.Undo.Objects.Record ||
			s.Do.Objects.From.Name != s.Undo.Objects.To.Name || s.Do.Objects.Pods != "core" ||
			s.Undo.Objects.Pods != "core" || s.Undo.Objects.Plan.Absent != nil ||
			!slices.Equal(s.Do.Objects.Plan.Absent, []string{"horizontalpodautoscalers"}) {
			t.Errorf("the step is %+v, its inverse %+v", s.Do.Objects, s.Undo.Objects)
		}
		stopped := func(a *Action) bool { return a != nil && (a.Kind == StopUnit || a.Kind == RemoveFile) }
		started := func(a *Action) bool { return a != nil && (a.Kind == StartUnit || a.Kind == PutFile) }
		for _, name := range []string{"kube-controller-manager-modern", "fusionctl-controllers"} {
			about := func(s Step) bool { return strings.Contains(s.Title, name) && !strings.Contains(s.Title, ".conf") }
			stop := position(t, &tr, "that stops "+name, func(s Step) bool { return about(s) && stopped(s.Do) })
			start := position(t, &tr, "that starts "+name, func(s Step) bool { return about(s) && started(s.Do) })
			if stop > at || start < at || !started(tr.Steps[stop].Undo) || !stopped(tr.Steps[start].Undo) {
				t.Errorf("%s: %s stops at %d and starts at %d, handed over at %d", target, name, stop, start, at)
			}
		}
		args := func(p *plan.Plan) string {
			value, _ := p.ComponentsOf("legacy", "kube-controller-manager")[0].Arg("controllers")
			return value
		}
		if got := args(to.Plan); !strings.Contains(got, "-deployment,") || !strings.HasSuffix(got, ",-replicaset") ||
			strings.Contains(args(from.Plan), "-deployment") {
			t.Errorf("the legacy controllers are %s, before %s", got, args(from.Plan))
		}
		for kind, after := range map[CheckKind]bool{MayGo: false, Adopted: true} {
			forth := position(t, &tr, "that checks", func(s Step) bool { return checks(s.Do, kind) })
			back := position(t, &tr, "that checks on the way back", func(s Step) bool { return checks(s.Undo, kind) })
			if (forth > at) != after || (back < at) != after {
				t.Errorf("%s: %q is asked at %d, on the way back at %d", target, kind, forth, back)
			}
		}
	}
}

// TestTheLegacySideGivesUpBeforeAnythingStops: where it runs from files of its own, a person has changed its arguments
// before, and changes them back after the objects are back.
func TestTheLegacySideGivesUpBeforeAnythingStops(t *testing.T) {
	const vendor = "vendor-1.6-1.36.yaml"
	tr, err := New(handing(t, vendor, "", render.StaticPod), handing(t, vendor, "deployments.apps", render.StaticPod),
		Facts{})
	if err != nil {
		t.Fatal(err)
	}
	at := position(t, &tr, "that hands over", func(s Step) bool { return s.Do != nil && s.Do.Kind == HandOver })
	gives := position(t, &tr, "that checks the arguments", func(s Step) bool { return checks(s.Do, Runs) })
	stops := position(t, &tr, "that stops", func(s Step) bool { return s.Phase == Stop })
	if gives > stops || stops > at || !checks(tr.Steps[gives].Undo, Runs) {
		t.Errorf("the arguments are checked at %d, components stop at %d, objects go at %d: %+v", gives, stops, at,
			tr.Steps[gives])
	}
	if guard := tr.Steps[at+1]; guard.Do != nil || !checks(guard.Undo, Runs) ||
		!strings.Contains(guard.Undo.Before[0].Args[0], "-replicaset") {
		t.Errorf("before objects come back, %+v is checked", guard)
	}
}

func TestHandOverRefusals(t *testing.T) {
	none := handing(t, splitExample, "", render.StaticPod)
	handed := handing(t, splitExample, "deployments.apps", render.StaticPod)
	newer := none
	changed := *handed.Plan
	changed.Modern.Version.Minor = 33
	newer.Plan = &changed
	for name, test := range map[string]struct {
		from, to Setup
		says     string
	}{
		"with the installation": {Setup{}, handed, "install without it, then hand over"},
		"back":                  {handed, none, "replicasets, deployments: only the steps that handed them over"},
		"removed":               {handed, Setup{}, "only the steps that handed them over"},
		"with another version":  {none, newer, "the modern version changes at the same time"},
		"with another target": {none, handing(t, splitExample, "deployments.apps", render.Systemd),
			"the target changes at the same time"},
	} {
		if _, err := New(test.from, test.to, Facts{StoresAgree: true}); err == nil ||
			!strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
	if tr, err := New(handed, handed, Facts{}); err != nil || len(tr.Steps) > 0 {
		t.Errorf("to itself: %d steps, %v", len(tr.Steps), err)
	}
}

// TestOwnersGetAVersionThatIsServed: of each kind that is handed over, in either direction.
func TestOwnersGetAVersionThatIsServed(t *testing.T) {
	const pods = "pods-1.10-1.36.yaml"
	tr, err := New(handing(t, pods, "", render.StaticPod),
		handing(t, pods, "deployments.apps", render.StaticPod), Facts{})
	if err != nil {
		t.Fatal(err)
	}
	of := func(record string) (forth, back *Objects) {
		s := tr.Steps[position(t, &tr, record, func(s Step) bool {
			return s.Do != nil && s.Do.Objects != nil && s.Do.Kind == HandOver && s.Do.Objects.Record == record
		})]
		return s.Do.Objects, s.Undo.Objects
	}
	forth, back := of("hand-over-deployments")
	if forth.Plan.APIVersions["ReplicaSet"]["extensions/v1beta1"] != "apps/v1" ||
		len(back.Plan.APIVersions["ReplicaSet"]) != 0 || len(forth.Plan.Absent) != 1 ||
		!back.Plan.DropManagedFields || forth.Plan.DropManagedFields {
		t.Errorf("deployments go by %+v and %+v", forth.Plan, back.Plan)
	}
}
