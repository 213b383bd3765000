package operator

import (
	"slices"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/transition"
)

// TestServicesStay: what is stopped to start again, in another version or after a restore, keeps its Service, on the
// way back, too: clients outside, and load balancers, have its address.
func TestServicesStay(t *testing.T) {
	newer := judge(example(t))
	older := judge(exampleWith(t, map[string]any{"modern": map[string]any{"version": "1.35.4",
		"apiServer": map[string]any{}, "controllerManager": map[string]any{}}}))
	if newer.plan == nil || older.plan == nil {
		t.Fatal(newer.err, older.err)
	}
	up, err := transition.NewHosted(older.plan, newer.plan, transition.Facts{StoresAgree: true})
	if err != nil {
		t.Fatal(err)
	}
	restore, err := transition.NewRestore(newer.plan, "20261124T013000Z", "a")
	if err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]struct {
		steps   transition.Transition
		removed int // of both ways
	}{"another minor": {up, 4}, "a restore": {restore, 14}} {
		removed := 0
		for _, s := range of.steps.Steps {
			for _, a := range []*transition.Action{s.Do, s.Undo} {
				if a == nil || a.Kind != transition.RemoveObjects {
					continue
				}
				removed++
				objects, err := objectsOf(a.Workload)
				if err != nil {
					t.Fatal(err)
				}
				var kinds []string
				for _, o := range objects {
					kinds = append(kinds, o.GetKind())
				}
				if !slices.Equal(kinds, []string{a.Workload.Kind}) || objects[0].GetName() != a.Workload.Name {
					t.Errorf("%s: of %s it removes %q", name, a.Workload.Name, kinds)
				}
			}
		}
		if removed != of.removed {
			t.Errorf("%s: %d components are removed, want %d", name, removed, of.removed)
		}
	}
	// What goes for good goes as a whole.
	ends, err := transition.NewHosted(newer.plan, nil, transition.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	services := 0
	for _, s := range ends.Steps {
		if s.Do == nil || s.Do.Kind != transition.RemoveObjects {
			continue
		}
		objects, err := objectsOf(s.Do.Workload)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			if o.GetKind() == "Service" {
				services++
			}
		}
	}
	if services != 4 {
		t.Errorf("at the end %d services are removed, want 4", services)
	}
}
