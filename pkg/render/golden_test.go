package render

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/internal/golden"
	"github.com/kubefusion/fusionctl/internal/plantest"
)

// TestGolden renders an example and compares every file: the reasons and instructions in testdata/sentences.txt, the
// rest in the case. The policy is the plan's, whose golden files hold it. The section "options" says which example and
// how. Shape: {"example": "split-1.6-1.10.yaml", "target": "systemd", "host": "cp-2"}
func TestGolden(t *testing.T) {
	golden.Cases(t, "testdata/*.txtar", func(t *testing.T, c *golden.Case) {
		var options struct {
			Example string `json:"example"`
			Target  Target `json:"target"`
			Host    string `json:"host"`
		}
		if err := yaml.UnmarshalStrict(c.Input("options"), &options); err != nil {
			t.Fatal(err)
		}
		p := plantest.ExampleFor(t, options.Example, options.Target.Plan())
		files, err := Files(p, Options{Target: options.Target, Host: options.Host, Spec: options.Example})
		if err != nil {
			t.Fatal(err)
		}
		rules, err := policyData(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if p.Joint != nil && strings.HasSuffix(f.Path, p.Joint.PlanFile) ||
				p.Gateway.Serves() && strings.HasSuffix(f.Path, p.Gateway.Component.PlanFile) {
				f.Data = []byte("what plan.Runtime.Format prints, which has tests of its own\n")
			}
			form := golden.Comments
			if strings.HasSuffix(f.Path, ".md") {
				form = golden.Markdown
			}
			c.WantText(f.Path, withoutPolicy(t, f, rules), form)
		}
	})
}

// withoutPolicy takes the policy of the plan out of a file, and requires that the file has no other rules.
func withoutPolicy(t *testing.T, f File, rules []byte) []byte {
	t.Helper()
	const indent = "    " // of a value in a ConfigMap
	value := strings.ReplaceAll("\n"+strings.TrimSpace(string(rules)), "\n", "\n"+indent)
	value = strings.ReplaceAll(value, indent+"\n", "\n")
	got := strings.NewReplacer(string(rules), "the policy of the plan\n", value, "\n"+indent+"the policy of the plan").
		Replace(string(f.Data))
	if strings.Contains(got, "abac.authorization") {
		t.Errorf("%s has rules that are not the plan's policy", f.Path)
	}
	return []byte(got)
}
