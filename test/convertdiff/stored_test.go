//go:build diff

package convertdiff

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/pkg/storage/objects"
)

// neverStored are questions, answers and parameters of requests.
var neverStored = regexp.MustCompile(`WatchEvent|Review|Options|^apidiscovery`)

// Of what k8s.io/api keeps of four releases for its own tests, as it is stored and in JSON, decoding what is stored
// yields the JSON: also of types that it does not have any more.
func TestStoredObjectsAreTheirJSON(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		t.Fatalf("finding k8s.io/api: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "testdata", "*", "*.pb"))
	if err != nil || len(files) < 500 {
		t.Fatalf("%d stored objects in k8s.io/api, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file, ".pb")
		if neverStored.MatchString(filepath.Base(name)) {
			continue
		}
		stored, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var want any
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		name = filepath.Join(filepath.Base(filepath.Dir(file)), filepath.Base(name))
		got, err := objects.Decode(stored)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, object := range []any{want, got} { // types print a status that says nothing since they have one
			if fields, ok := object.(map[string]any); ok && cmp.Equal(fields["status"], map[string]any{}) {
				delete(fields, "status")
			}
		}
		if diff := cmp.Diff(withoutNulls(want), withoutNulls(any(got))); diff != "" {
			t.Errorf("%s differs (-JSON +decoded):\n%s", name, diff)
		}
	}
}

// withoutNulls leaves out the fields that say null, which are not stored.
func withoutNulls(value any) any {
	switch value := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, inner := range value {
			if inner != nil {
				kept[name] = withoutNulls(inner)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(value))
		for i, inner := range value {
			kept[i] = withoutNulls(inner)
		}
		return kept
	}
	return value
}
