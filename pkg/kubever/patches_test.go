package kubever

import "testing"

// A fault is of the releases before the patch that mended it, and of a vendor's builds of them.
func TestPatchFaults(t *testing.T) {
	for _, test := range []struct {
		component, version string
		want               int
	}{
		{ControllerManager, "1.34.0", 1},
		{ControllerManager, "1.34.1-acme.2", 1},
		{ControllerManager, "1.34.2", 0},
		{ControllerManager, "1.34", 0},
		{ControllerManager, "1.33.0", 0},
		{Scheduler, "1.34.1", 1},
		{Scheduler, "1.35.1", 0},
		{APIServer, "1.12.2", 2},
		{APIServer, "1.12.3", 1},
		{APIServer, "1.12.10", 0},
		{APIServer, "1.6.0", 0},
	} {
		v, err := Parse(test.version)
		if err != nil {
			t.Fatal(err)
		}
		if got := PatchFaults(test.component, v); len(got) != test.want {
			t.Errorf("%s %s: %+v, want %d faults", test.component, test.version, got, test.want)
		}
	}
	for _, f := range patchTable() {
		if _, ok := flagTable()[flagKey{f.Component, "v"}]; !ok && f.Component != Scheduler {
			t.Errorf("%q is no component", f.Component)
		}
		for _, m := range f.Minors() {
			// What is known of the newest release that was read is that it is mended.
			if last, err := Parse(Release(m)); err != nil || len(PatchFaults(f.Component, last)) > 0 {
				t.Errorf("%s: %s of %s still has a fault: %v", f.Source, f.Component, Release(m), err)
			}
			state, known := Gate(f.Gate).In(Version{Minor: m, HasPatch: true})
			if f.Gate != "" && (!known || !state.Default) {
				t.Errorf("%s is not on in %s.0", f.Gate, m)
			}
			if f.Controller != "" {
				if c, ok := ControllerByName(f.Controller); !ok || c.Name != f.Controller {
					t.Errorf("%q is no controller", f.Controller)
				}
			}
		}
	}
	if _, had := (PatchFault{}).MendedIn(34); had {
		t.Error("a fault without releases is mended in one")
	}
}
