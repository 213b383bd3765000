package test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/adopt"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// TestExamplesLoad reads every spec of examples/: each is good as it stands.
func TestExamplesLoad(t *testing.T) {
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("found %d examples, want at least 6 (%v)", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := spec.Load(file, text); err != nil {
			t.Error(err)
		}
	}
}

// TestExamplesOfControlPlanesAreAdopted reads the directories of examples/ as init --from does.
func TestExamplesOfControlPlanesAreAdopted(t *testing.T) {
	version := kubever.Version{Minor: 6, Patch: 13, HasPatch: true}
	for _, test := range []struct {
		directory string
		given     kubever.Version
		args      int // of the API server
	}{
		{"manifests-1.6", kubever.Version{}, 25},
		{"units-1.6", version, 11},
	} {
		running, err := adopt.Read(os.DirFS("../examples/"+test.directory), nil)
		if err != nil {
			t.Errorf("%s: %v", test.directory, err)
			continue
		}
		draft, err := running.Draft(
			adopt.Options{Layout: spec.LayoutSplit, Legacy: test.given,
				Modern: kubever.Version{Minor: kubever.Suggested}})
		if err != nil {
			t.Errorf("%s: %v", test.directory, err)
			continue
		}
		legacy := draft.File.Spec.Legacy
		if legacy.Version != version || len(legacy.APIServer.ExtraArgs) != test.args ||
			legacy.ControllerManager == nil || legacy.Scheduler == nil {
			t.Errorf("%s: version %s, %d arguments, controller manager %v, scheduler %v; want %s, %d arguments and "+
				"both",
				test.directory, legacy.Version, len(legacy.APIServer.ExtraArgs), legacy.ControllerManager != nil,
				legacy.Scheduler != nil, version, test.args)
		}
		for _, note := range draft.Notes {
			t.Errorf("%s: %s", test.directory, note)
		}
	}
}
