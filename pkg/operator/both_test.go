package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// exampleWith is the example with more fields.
func exampleWith(t testing.TB, more map[string]any) *api.FusedControlPlane {
	t.Helper()
	f := example(t)
	spec := map[string]any{}
	if err := json.Unmarshal(f.Spec, &spec); err != nil {
		t.Fatal(err)
	}
	for field, value := range more {
		spec[field] = value
	}
	var err error
	if f.Spec, err = json.Marshal(spec); err != nil {
		t.Fatal(err)
	}
	return f
}

func seesBoth(t *testing.T) *api.FusedControlPlane {
	t.Helper()
	image := map[string]any{"image": "registry.example.com/fusionctl:v1"}
	return exampleWith(t, map[string]any{"controllers": image, "gateway": image})
}

// TestControllersLeaveNothingBehind: a transition that takes the controllers away takes their finalizers out after they
// have stopped, and one that brings them does so on the way back. Each is a record that the operator believes.
func TestControllersLeaveNothingBehind(t *testing.T) {
	with, without := judge(seesBoth(t)), judge(example(t))
	if err := errors.Join(with.err, without.err); err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]struct {
		from, to *plan.Plan
		want     []string
	}{
		"taken away": {with.plan, without.plan, []string{"remove fusionctl-gateway", "checks settled",
			"remove fusionctl-controllers", "release"}},
		"brought": {without.plan, with.plan, []string{"back release", "apply fusionctl-controllers", "back settled",
			"apply fusionctl-gateway"}},
	} {
		steps, err := transition.NewHosted(of.from, of.to, transition.Facts{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range steps.Steps {
			s := &steps.Steps[i]
			for _, a := range []*transition.Action{s.Do, s.Undo} {
				switch {
				case a == nil || s.Do != nil && a == s.Undo:
				case a.Kind == transition.Release && a == s.Do:
					got = append(got, "release")
				case a.Kind == transition.Release:
					got = append(got, "back release")
				case a.Kind == transition.RunChecks && a == s.Do:
					got = append(got, "checks "+string(a.Before[0].Kind))
				case a.Kind == transition.RunChecks:
					got = append(got, "back "+string(a.Before[0].Kind))
				case strings.HasPrefix(a.Workload.Name, "fusionctl-"):
					got = append(got, s.Title)
				}
			}
		}
		if !slices.Equal(got, of.want) {
			t.Errorf("%s: %q, want %q", name, got, of.want)
		}
		r := &record{Plan: of.from, Open: &open{Plan: of.to, Transition: steps}}
		if err := r.validate("hosted"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i := range r.Open.Transition.Steps {
			for _, a := range []*transition.Action{r.Open.Transition.Steps[i].Do, r.Open.Transition.Steps[i].Undo} {
				if a != nil && a.Kind == transition.Release {
					a.Marks = nil
				}
			}
		}
		if err := r.validate("hosted"); err == nil {
			t.Errorf("%s: a record of a release without marks is believed", name)
		}
		p := &plane{object: example(t), record: r, verdict: with}
		if p.waits(&steps) {
			t.Errorf("%s: an approval is wanted, and nothing of it is lost", name)
		}
	}
}

// TestMarksAreReadWithTheFilesOfThePlane: the API servers of a control plane are asked with what its Secret has, of
// which nothing is left on the disk.
func TestMarksAreReadWithTheFilesOfThePlane(t *testing.T) {
	e := newEnding(t)
	steps, err := transition.NewHosted(judge(seesBoth(t)).plan, e.verdict.plan, transition.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(steps.Steps, func(s transition.Step) bool {
		return s.Do != nil && s.Do.Kind == transition.Release
	})
	marks := steps.Steps[at].Do.Marks
	r := &runner{Reconciler: e.Reconciler, name: "hosted", plan: e.verdict.plan}
	asked := func(context.Context, *transition.Marks) error { t.Error("asked without the files"); return nil }
	if err := r.withMarks(t.Context(), marks, asked); err == nil || !strings.Contains(err.Error(), "fusionctl-pki") {
		t.Errorf("without its certificate: %v", err)
	}
	if err := e.Reconciler.secrets(t.Context(), judge(seesBoth(t)).plan, false); err != nil {
		t.Fatal(err)
	}
	var left string
	if err := r.withMarks(t.Context(), marks, func(_ context.Context, m *transition.Marks) error {
		a := m.Namespaces
		left = a.Key
		key, err := os.ReadFile(a.Key)
		if a.Server != marks.Namespaces.Server || !bytes.Contains(key, []byte("PRIVATE KEY")) {
			t.Errorf("%+v: %v", a, err)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) || left == marks.Namespaces.Key {
		t.Errorf("%s: %v", left, err)
	}
}

// TestFindingsSayWhatDoesNotRun: what the spec wants and has no pod is in the status, with what would run it; what runs
// is not.
func TestFindingsSayWhatDoesNotRun(t *testing.T) {
	of := func(f *api.FusedControlPlane) map[string]string {
		v := judge(f)
		found := map[string]string{}
		for _, f := range v.findings() {
			found[f.Rule] = f.Fix
		}
		return found
	}
	got := of(exampleWith(t, map[string]any{"gateway": map[string]any{}}))
	for rule, field := range map[string]string{"controllers": "spec.controllers.image",
		"gateway": "spec.gateway.image"} {
		if !strings.Contains(got[rule], field) {
			t.Errorf("%s: the fix is %q, want %s", rule, got[rule], field)
		}
	}
	got = of(seesBoth(t))
	if got["controllers"]+got["gateway"] != "" || !strings.Contains(got["access"], "legacy-access") {
		t.Errorf("with images: %q", got)
	}
}
