package plan_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
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
		if diff := cmp.Diff(p, got, cmpopts.EquateEmpty(),
			cmpopts.IgnoreFields(plan.Plan{}, "Components", "Kubeconfigs", "Certificates", "Policy", "TokenKey",
				"Kubelets",
				"AuditPolicyFile", "Unprovided", "Accept")); diff != "" {
			t.Errorf("%s: -plan +read:\n%s", file, diff)
		}
		if len(got.Policy.Grants) > 0 {
			t.Errorf("%s: the file holds the policy", file)
		}
		for _, c := range got.Components {
			if c.Kind != kubever.APIServer || c.Image != "" || len(c.Env) > 0 || len(c.Args) > 2 {
				t.Errorf("%s: the file holds %s with %v", file, c.Name, c.Args)
			}
		}
		if diff := cmp.Diff(p.StaleReaders(), got.StaleReaders()); diff != "" {
			t.Errorf("%s: who may read what is stale: -plan +read:\n%s", file, diff)
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

// The controllers of both sides judge by the file what an API server serves, and whether its reads are fresh.
func TestFileHasTheArgumentsThatAnswersDependOn(t *testing.T) {
	p := readPlan(t, "../../examples/split-1.6-1.10.yaml")
	for i := range p.Components {
		if c := &p.Components[i]; c.Side == pair.Legacy && c.Kind == kubever.APIServer {
			c.Args = []plan.Arg{{Name: "runtime-config", Value: "batch/v2alpha1=true"},
				{Name: "etcd-quorum-read", Value: "false"}, {Name: "token", Value: "s3cr3t"}}
		}
	}
	data, err := plan.Format(p)
	if err != nil {
		t.Fatal(err)
	}
	got, err := plan.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	servers := got.ComponentsOf(pair.Legacy, kubever.APIServer)
	if len(servers) != 1 {
		t.Fatalf("%d legacy API servers, want 1", len(servers))
	}
	if value, ok := servers[0].Arg("runtime-config"); !ok || value != "batch/v2alpha1=true" {
		t.Errorf("--runtime-config=%q, %v", value, ok)
	}
	if stale := got.StaleReaders(); !slices.Contains(stale, pair.Legacy) {
		t.Errorf("StaleReaders = %v, want the legacy side, whose --etcd-quorum-read is false", stale)
	}
	if bytes.Contains(data, []byte("s3cr3t")) {
		t.Error("the file holds an argument that nobody needs")
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
