package operator

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// TestAGatewayThatDoesNotRunIsReported: the operator runs none, and the status of a control plane that wants one says
// so.
func TestAGatewayThatDoesNotRunIsReported(t *testing.T) {
	for _, wanted := range []*spec.Gateway{nil, {Disabled: true}, {}} {
		f := example(t)
		f.Spec.Gateway = wanted
		v := judge(f)
		if v.err != nil {
			t.Fatal(v.err)
		}
		if slices.ContainsFunc(v.plan.Components, func(c plan.Component) bool { return plan.SeesBoth(c.Kind) }) {
			t.Errorf("%+v: the plan for a cluster has a component that sees both sides", wanted)
		}
		i := slices.IndexFunc(v.findings(), func(f api.PlanFinding) bool { return f.Rule == "gateway" })
		if reported := i >= 0; reported != (wanted != nil && !wanted.Disabled) {
			t.Errorf("%+v: reported %v", wanted, reported)
		}
		if i >= 0 && !strings.Contains(v.findings()[i].Fix, "fusionctl gateway") {
			t.Errorf("the fix is %q", v.findings()[i].Fix)
		}
	}
}
