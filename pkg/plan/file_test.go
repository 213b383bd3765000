package plan_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubefusion/fusionctl/pkg/plan"
)

func readPlan(t *testing.T, file string) *plan.Plan {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return planOf(t, string(text))
}

// A plan in a file says what the plan says, less what has files of its own.
func TestParseReadsWhatFormatPrints(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		p := readPlan(t, file)
		data, err := plan.Format(p)
		if err != nil {
			t.Fatal(err)
		}
		got, err := plan.Parse(data)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if diff := cmp.Diff(p, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(plan.Plan{}, "Components", "Kubeconfigs", "Certificates", "Policy", "Accept")); diff != "" {
			t.Errorf("%s: -plan +read:\n%s", file, diff)
		}
		if len(got.Components) > 0 || len(got.Policy.Grants) > 0 {
			t.Errorf("%s: the file holds components or the policy", file)
		}
		// As `fusionctl plan -o json` prints it, nothing is missing.
		whole, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		whole = bytes.Replace(whole, []byte("{"), []byte(`{"schema":"`+plan.FileSchema+`",`), 1)
		if got, err = plan.Parse(whole); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if diff := cmp.Diff(p, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: -plan +read:\n%s", file, diff)
		}
	}
}

func TestParseRefusesWhatIsNoPlan(t *testing.T) {
	p := readPlan(t, "../../examples/split-1.15-1.36.yaml")
	data, err := plan.Format(p)
	if err != nil {
		t.Fatal(err)
	}
	whole := string(data)
	for name, text := range map[string]string{
		"nothing":        "",
		"a spec":         "apiVersion: kubefusion.dev/v1alpha1\n",
		"another schema": strings.Replace(whole, plan.FileSchema, "fusionctl/plan/v2", 1),
		"a newer field":  strings.Replace(whole, `"layout"`, `"fromTheFuture": 1, "layout"`, 1),
		"no end":         whole[:len(whole)/2],
		"two plans":      whole + whole,
		"no resources":   `{"schema": "fusionctl/plan/v1"}`,
	} {
		if got, err := plan.Parse([]byte(text)); err == nil {
			t.Errorf("Parse of %s = %v, want an error", name, got.Name)
		}
	}
}
