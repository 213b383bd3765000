package kubever

import "testing"

// A gate is that of the release: some .0 releases have another state than the later ones of their minor.
func TestGatesOfFirstReleases(t *testing.T) {
	for _, test := range []struct {
		gate, version string
		want          GateState
		known         bool
	}{
		{"EventedPLEG", "1.27.0", GateState{Stage: "BETA"}, true},
		{"EventedPLEG", "1.27", GateState{Stage: "ALPHA"}, true},
		{"EventedPLEG", "1.27.16", GateState{Stage: "ALPHA"}, true},
		{"JobTrackingWithFinalizers", "v1.23.0", GateState{Stage: "BETA", Default: true}, true},
		{"JobTrackingWithFinalizers", "v1.23.17", GateState{Stage: "BETA"}, true},
		{"CSIMigrationvSphere", "1.26.0", GateState{Stage: "GA", Default: true, Locked: true}, true},
		{"CSIMigrationvSphere", "1.26.15", GateState{Stage: "GA", Default: true}, true},
		{"AttachVolumeLimit", "1.12.0-acme.1", GateState{Stage: "BETA"}, true},
		{"OrderedNamespaceDeletion", "1.30.0", GateState{}, false},
		{"SchedulerAsyncAPICalls", "1.35.0", GateState{Stage: "BETA", Default: true}, true},
		{"SchedulerAsyncAPICalls", "1.36.0", GateState{Stage: "BETA"}, true},
	} {
		v, err := Parse(test.version)
		if err != nil {
			t.Fatal(err)
		}
		if got, known := Gate(test.gate).In(v); got != test.want || known != test.known {
			t.Errorf("%s in %s: %+v, %v, want %+v, %v", test.gate, test.version, got, known, test.want, test.known)
		}
	}
	changed := 0
	for _, gate := range gateTable() {
		for _, first := range gate.first {
			for _, m := range Minors() {
				if !first.minors.Has(m) {
					continue
				}
				changed++
				if last, ok := gate.At(m); !ok || last == first.value || gate.lateIn.Has(m) {
					t.Errorf("%s in %s.0: %+v, and %+v afterwards", gate.Name, m, first.value, last)
				}
			}
		}
	}
	if changed != 16 {
		t.Errorf("%d states of first releases, want 16", changed)
	}
}
