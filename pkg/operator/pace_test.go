package operator

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// blind looks at no store.
func blind(context.Context, *transition.Watch) (map[string]witness.Sight, error) { return nil, nil }

// edits changes fields of the spec of a control plane of a fleet.
func (f *fleet) edits(t *testing.T, name string, more map[string]any) {
	t.Helper()
	object := f.object(t, name)
	spec := map[string]any{}
	if err := json.Unmarshal(object.Spec, &spec); err != nil {
		t.Fatal(err)
	}
	for field, value := range more {
		spec[field] = value
	}
	var err error
	if object.Spec, err = json.Marshal(spec); err != nil {
		t.Fatal(err)
	}
	if err := f.Client.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

func (f *fleet) object(t *testing.T, name string) *api.FusedControlPlane {
	t.Helper()
	object := &api.FusedControlPlane{}
	if err := f.Client.Get(t.Context(), types.NamespacedName{Name: name}, object); err != nil {
		t.Fatal(err)
	}
	return object
}

// once looks at one control plane, and returns its phase, what it waits for, and when it is looked at again.
func (f *fleet) once(t *testing.T, name string) (phase api.Phase, why string, after time.Duration) {
	t.Helper()
	result, err := f.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	object := f.object(t, name)
	for _, c := range object.Status.Conditions {
		if c.Type == api.ConditionProgressing {
			why = c.Reason + ": " + c.Message
		}
	}
	return object.Status.Phase, why, result.RequeueAfter
}

// with is a change of the modern side that a transition carries out.
func with(image string) map[string]any {
	return map[string]any{"modern": map[string]any{"version": "1.36.3", "store": "modern", "image": image,
		"apiServer": map[string]any{"port": 7443}, "controllerManager": map[string]any{}}}
}

// TestATransitionBeginsInItsWindow: outside of it the control plane waits, and is looked at when it opens.
func TestATransitionBeginsInItsWindow(t *testing.T) {
	f := newFleet(t, 1) // 03:04:05 on a Friday
	f.Sights = blind
	name := f.names[0]
	f.once(t, name)
	f.edits(t, name, with("registry.example.com/other:v1.36.3"))
	f.edits(t, name, map[string]any{"windows": []any{map[string]any{"schedule": "30 3 * * *", "duration": "1h"}}})
	phase, why, after := f.once(t, name)
	if phase != api.Waiting || !strings.Contains(why, "OutsideOfWindows: ") ||
		!strings.Contains(why, "2026-01-02T03:30:00Z") || after != 25*time.Minute+55*time.Second {
		t.Errorf("before the window: %s, %s, again after %s", phase, why, after)
	}
	f.now = f.now.Add(after)
	if phase, why, _ = f.once(t, name); phase != api.Progressing {
		t.Errorf("in the window: %s, %s", phase, why)
	}
	f.now = f.now.Add(2 * time.Hour) // it goes on, or back, after the window
	if phase, why, _ = f.once(t, name); phase != api.Progressing && phase != api.GoingBack {
		t.Errorf("after the window: %s, %s", phase, why)
	}
}

// TestTransitionsGoOnOneAtATime: the next one begins when the one before has ended, or waits for something.
func TestTransitionsGoOnOneAtATime(t *testing.T) {
	f := newFleet(t, 3)
	f.MaxConcurrent, f.Sights = 1, blind
	for _, name := range f.names {
		f.once(t, name)
		f.edits(t, name, with("registry.example.com/other:v1.36.3"))
	}
	if phase, why, _ := f.once(t, f.names[0]); phase != api.Progressing {
		t.Fatalf("the first: %s, %s", phase, why)
	}
	for _, name := range f.names[1:] {
		if phase, why, _ := f.once(t, name); phase != api.Waiting || !strings.Contains(why, "OthersGoOn: ") ||
			!strings.Contains(why, f.names[0]) {
			t.Errorf("%s: %s, %s", name, phase, why)
		}
	}
	first := f.object(t, f.names[0])
	first.Status.Phase = api.Degraded // as when it waits for a store
	if err := f.Client.Status().Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	delete(f.began, f.names[0]) // as when it was looked at since
	if phase, why, _ := f.once(t, f.names[1]); phase != api.Progressing {
		t.Errorf("the second: %s, %s", phase, why)
	}
	if phase, why, _ := f.once(t, f.names[2]); phase != api.Waiting {
		t.Errorf("the third: %s, %s", phase, why)
	}
}
