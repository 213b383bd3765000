package transition

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/render"
)

// position is the index of the first step that a function selects, which there has to be.
func position(t *testing.T, tr *Transition, what string, is func(s Step) bool) int {
	t.Helper()
	at := slices.IndexFunc(tr.Steps, is)
	if at < 0 {
		t.Fatalf("no step %s", what)
	}
	return at
}

func checks(a *Action, kind CheckKind) bool {
	return a != nil && slices.ContainsFunc(slices.Concat(a.Before, a.After), func(c Check) bool {
		return c.Kind == kind
	})
}

// TestMarksAreTakenOutWhenNoControllersAreLeft: on the way back from install, and to none, what the controllers of both
// sides put into the API is taken out after they have stopped and while the servers serve, and verified; that nothing
// waits for them is checked before they stop.
func TestMarksAreTakenOutWhenNoControllersAreLeft(t *testing.T) {
	p := planOf(t, "pods", example(t, "pods-1.10-1.36.yaml"))
	s := Setup{Plan: p, Target: render.StaticPod}
	for name, way := range map[string][2]Setup{"install": {{}, s}, "to none": {s, {}}} {
		tr, err := New(way[0], way[1], Facts{})
		if err != nil {
			t.Fatal(err)
		}
		action := func(s Step) *Action { return s.Do }
		if name == "install" {
			slices.Reverse(tr.Steps)
			action = func(s Step) *Action { return s.Undo }
		}
		removes := func(file string) func(Step) bool {
			return func(s Step) bool {
				a := action(s)
				return a != nil && a.Kind == RemoveFile && strings.HasSuffix(a.File.Path, file)
			}
		}
		settled := position(t, &tr, "settled", func(s Step) bool { return checks(action(s), Settled) })
		stopped := position(t, &tr, "that stops the controllers", removes("/fusionctl-controllers.yaml"))
		release := position(t, &tr, "release", func(s Step) bool {
			return action(s) != nil && action(s).Kind == Release
		})
		server := position(t, &tr, "that stops the server", removes("/kube-apiserver-modern.yaml"))
		if settled >= stopped || stopped >= release || release >= server {
			t.Errorf("%s: steps %d, %d, %d, %d, want them in this order", name, settled, stopped, release, server)
		}
		a := action(tr.Steps[release])
		side := p.Resource("namespaces").Route().Write
		if !checks(a, Released) || a.Marks.Namespaces == nil || a.Marks.Namespaces.Side != side ||
			a.Marks.Modern == nil || a.Marks.Modern.Cert == "" || len(a.Marks.Registrations) != len(registrations) {
			t.Errorf("%s: the release is %+v of %+v", name, a, a.Marks)
		}
		slices.SortFunc(tr.Steps, func(a, b Step) int { return strings.Compare(a.ID, b.ID) })
		if err := tr.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTheWaitForAdmissionIsNeverLeftOutSilently: where no host can ask, a person is told to.
func TestTheWaitForAdmissionIsNeverLeftOutSilently(t *testing.T) {
	p := planOf(t, "pods", example(t, "pods-1.10-1.36.yaml"))
	p.Kubeconfigs = nil
	parts, err := render.Parts(p, render.StaticPod)
	if err != nil {
		t.Fatal(err)
	}
	b := &builder{to: Setup{Plan: p, Target: render.StaticPod}}
	for i := range parts {
		if joint(parts[i].Component) {
			b.admits([]change{{is: &parts[i]}})
		}
	}
	if len(b.steps) == 0 || b.steps[0].Do.Kind != ByHand ||
		!strings.Contains(b.steps[0].Do.Text, "mutatingwebhookconfigurations/pods.kubefusion.dev") {
		t.Errorf("the steps are %+v, want one by hand", b.steps)
	}
}

// TestWhatForbidsTheWayBackIsFoundWhileServersRun: before a server stops on the way back, and once more before the
// first of the older ones starts.
func TestWhatForbidsTheWayBackIsFoundWhileServersRun(t *testing.T) {
	base := example(t, "split-1.15-1.36.yaml")
	older := Setup{Plan: planOf(t, "a", strings.Replace(base, "1.36.3", "1.24", 1)), Target: render.StaticPod}
	split := planOf(t, "b", strings.Replace(base, "  kubelet: {", "  kubelet: {modern: {}, ", 1))
	newer := Setup{Plan: split, Target: render.StaticPod}
	tr, err := New(older, newer, Facts{StoresAgree: true, Empty: Moves(older, newer)})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []CheckKind{NoKeys, StoresAgree} {
		var gates []int
		for i, s := range tr.Steps {
			if checks(s.Undo, kind) {
				gates = append(gates, i)
			}
		}
		server := func(of Kind) int {
			return position(t, &tr, "server", func(s Step) bool {
				return s.Do != nil && s.Do.Kind == of && strings.HasSuffix(s.Title, "/kube-apiserver-modern.yaml")
			})
		}
		stops, starts := server(RemoveFile), server(PutFile)
		if len(gates) != 3 || gates[0] <= stops || gates[0] >= starts || gates[1] <= starts ||
			gates[2] != len(tr.Steps)-1 {
			t.Errorf("%s on the way back: steps %v of %d; the server stops in %d and starts in %d", kind, gates,
				len(tr.Steps), stops, starts)
		}
	}
}

// TestWhatAnEarlierInstallationLeftIsNotServedAgain: the store to which a resource moves is looked at, too, before
// anything changes and while the servers are stopped; not where an API server has the resource there already.
func TestWhatAnEarlierInstallationLeftIsNotServedAgain(t *testing.T) {
	base := example(t, "split-1.15-1.36.yaml")
	from := planOf(t, "a", base)
	to := planOf(t, "b", strings.Replace(base, "  kubelet: {", "  kubelet: {modern: {}, ", 1))
	a, b := Setup{Plan: from, Target: render.StaticPod}, Setup{Plan: to, Target: render.StaticPod}
	tr, err := New(a, b, Facts{StoresAgree: true, Empty: Moves(a, b)})
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	for _, s := range tr.Steps {
		if s.Do != nil && slices.ContainsFunc(s.Do.Before, func(c Check) bool {
			return c.Kind == NoKeys && c.Stores[0].Name == "modern" && slices.Contains(c.Keys, "/registry/csinodes/")
		}) {
			looked++
		}
	}
	if looked != 2 {
		t.Errorf("the other store is looked at %d times, want before and while the servers are stopped", looked)
	}
	if back := unusedStores(to, from, Moves(b, a)); len(back) > 0 {
		t.Errorf("the legacy API server has csinodes in store core, and unusedStores = %+v", back)
	}
}
