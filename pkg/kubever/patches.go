package kubever

import (
	"maps"
	"slices"
	"sync"
)

// PatchFault is a fault of the first releases of some minors, which a patch release mended.
type PatchFault struct {
	Component  string
	Controller string // the id of the controller that has it; "" where it is the component
	Gate       string // the feature gate without which it is not there; "" for none
	Happens    string // a clause: "every StatefulSet whose revisions an older version wrote is rolled"
	Source     string

	mended map[Minor]int
}

// MendedIn returns the first patch release of the minor without the fault; false where no release of it has the fault.
func (f PatchFault) MendedIn(m Minor) (patch int, had bool) {
	patch, had = f.mended[m]
	return patch, had
}

// Minors are those whose first releases have the fault, in order.
func (f PatchFault) Minors() []Minor { return slices.Sorted(maps.Keys(f.mended)) }

var patchTable = sync.OnceValue(decodePatches)

func decodePatches() []PatchFault {
	var faults []PatchFault
	for _, r := range readTable("patches.tsv", 6) {
		f := PatchFault{Component: r.text(0), mended: r.patches(1), Controller: r.text(2), Gate: r.text(3),
			Happens: r.text(4), Source: r.text(5)}
		if f.Component == "" || len(f.mended) == 0 || f.Happens == "" || f.Source == "" {
			r.fail("want a component, its patch releases, what happens, and a source")
		}
		faults = append(faults, f)
	}
	return faults
}

// AllPatchFaults lists the faults of a component that the first releases of any minor have.
func AllPatchFaults(component string) []PatchFault {
	var faults []PatchFault
	for _, f := range patchTable() {
		if f.Component == component {
			faults = append(faults, f)
		}
	}
	return faults
}

// PatchFaults lists the faults of a component's release that later releases of its minor do not have. A version without
// a patch counts as the last.
func PatchFaults(component string, v Version) []PatchFault {
	var faults []PatchFault
	for _, f := range AllPatchFaults(component) {
		if patch, had := f.MendedIn(v.Minor); had && v.HasPatch && v.Patch < patch {
			faults = append(faults, f)
		}
	}
	return faults
}
