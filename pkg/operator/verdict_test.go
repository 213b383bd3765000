package operator

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// TestAGatewayThatDoesNotRunIsReported: the operator runs none, and the status of a control plane that wants one says
// so.
func TestAGatewayThatDoesNotRunIsReported(t *testing.T) {
	for wanted, want := range map[string]bool{"": false, `{"disabled":true}`: false, `{}`: true} {
		f := example(t)
		fields := map[string]json.RawMessage{}
		if err := json.Unmarshal(f.Spec, &fields); err != nil {
			t.Fatal(err)
		}
		if wanted != "" {
			fields["gateway"] = json.RawMessage(wanted)
		}
		var err error
		if f.Spec, err = json.Marshal(fields); err != nil {
			t.Fatal(err)
		}
		v := judge(f)
		if v.err != nil {
			t.Fatal(v.err)
		}
		if slices.ContainsFunc(v.plan.Components, func(c plan.Component) bool { return plan.SeesBoth(c.Kind) }) {
			t.Errorf("gateway %q: the plan for a cluster has a component that sees both sides", wanted)
		}
		i := slices.IndexFunc(v.findings(), func(f api.PlanFinding) bool { return f.Rule == "gateway" })
		if reported := i >= 0; reported != want {
			t.Errorf("gateway %q: reported %v, want %v", wanted, reported, want)
		}
		if i >= 0 && !strings.Contains(v.findings()[i].Fix, "spec.gateway.image") {
			t.Errorf("the fix is %q", v.findings()[i].Fix)
		}
	}
}
