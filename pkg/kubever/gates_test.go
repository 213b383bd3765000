package kubever

import "testing"

// A gate is that of the release: the first patch releases of some minors have another state than the later ones.
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
		{"EventedPLEG", "1.27.9", GateState{Stage: "BETA"}, true},
		{"EventedPLEG", "1.27.10", GateState{Stage: "ALPHA"}, true},
		{"MaxUnavailableStatefulSet", "1.35.3", GateState{Stage: "BETA", Default: true}, true},
		{"MaxUnavailableStatefulSet", "1.35.4", GateState{Stage: "BETA"}, true},
		{"OrderedNamespaceDeletion", "1.31.6", GateState{}, false},
		{"OrderedNamespaceDeletion", "1.31.7", GateState{Stage: "BETA"}, true},
		{"ValidateProxyRedirects", "1.12.0", GateState{}, false},
		{"ValidateProxyRedirects", "1.12.1", GateState{}, false},
		{"ValidateProxyRedirects", "1.12.2", GateState{Stage: "ALPHA"}, true},
	} {
		v, err := Parse(test.version)
		if err != nil {
			t.Fatal(err)
		}
		if got, known := Gate(test.gate).In(v); got != test.want || known != test.known {
			t.Errorf("%s in %s: %+v, %v, want %+v, %v", test.gate, test.version, got, known, test.want, test.known)
		}
	}
	for _, test := range []struct {
		gate    string
		minor   Minor
		patch   int
		changed bool
	}{
		{"ValidateProxyRedirects", 12, 2, true},
		{"ValidateProxyRedirects", 13, 0, false},
		{"EventedPLEG", 28, 6, true},
		{"EventedPLEG", 26, 0, false},
	} {
		if patch, changed := Gate(test.gate).ChangedIn(test.minor); patch != test.patch || changed != test.changed {
			t.Errorf("%s changed in %s.%d: %t, want .%d, %t", test.gate, test.minor, patch, changed, test.patch,
				test.changed)
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
	// Which patch release brought what .0 lacks is known of every gate: .0 alone would be a guess.
	for _, gate := range gateTable() {
		for _, m := range Minors() {
			if patch, late := gate.ChangedIn(m); late && patch == 0 {
				t.Errorf("%s changed in a patch release of %s that the tables do not name", gate.Name, m)
			}
		}
	}
	// What came later than .0 is said of gates that have come or changed, and of these alone.
	for _, gate := range gateTable() {
		for m := range gate.since {
			if _, first := at(gate.first, m); !first && !gate.lateIn.Has(m) {
				t.Errorf("%s: a patch release of %s has changed nothing", gate.Name, m)
			}
		}
	}
	if changed != 16 {
		t.Errorf("%d states of first releases, want 16", changed)
	}
}
