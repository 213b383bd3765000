package test

import (
	"os"
	"path/filepath"
	"testing"

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
