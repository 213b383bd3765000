package operator

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/catalog"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// verdict is what a spec leads to.
type verdict struct {
	file      *spec.File
	plan      *plan.Plan // nil where it leads to none
	digest    string     // of the plan
	report    finding.Report
	undone    []string // what fusionctl controllers would do, which are no pods of a control plane
	noGateway bool     // the spec wants a gateway, which is no pod of one either
	err       error    // why there is no plan
}

// judge plans the spec of an object for pods of a cluster, and checks the plan.
func judge(f *api.FusedControlPlane) verdict {
	var v verdict
	if v.file, v.err = f.File(); v.err != nil {
		return v
	}
	if v.plan, v.err = plan.New(v.file, plan.Hosted); v.err != nil {
		return v
	}
	v.report = catalog.Check(v.plan)
	if onHosts, err := plan.New(v.file, plan.OnHosts); err == nil {
		if onHosts.Joint != nil {
			v.undone = onHosts.Joint.Why
		}
		v.noGateway = onHosts.Gateway.Serves()
	}
	v.digest, v.err = digestOf(v.plan)
	return v
}

// digestBytes are enough to name a plan: an account that may edit the object may approve it, too.
const digestBytes = 10

// digestOf names a plan: equal plans have one name, whatever the text of their specs.
func digestOf(p *plan.Plan) (string, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("printing the plan: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:digestBytes]), nil
}

// refusal is why a plan is not carried out, "" when nothing stands against it.
func (v *verdict) refusal() string {
	if v.err != nil {
		return v.err.Error()
	}
	var rules []string
	for _, f := range v.report.Findings {
		if f.Severity == finding.Error {
			rules = append(rules, f.Rule+" "+f.Subject)
		}
	}
	if len(rules) == 0 {
		return ""
	}
	return "the plan has errors: " + prose.First(rules, mostNamed) + "; fusionctl explain RULE says why, and " +
		"spec.accept lists accepted ones"
}

// mostNamed bounds what a sentence lists.
const mostNamed = 6

// mostFindings bounds what a status lists.
const mostFindings = 20

// findings are the worst of the report, and of a spec that leads to no plan one for each problem.
func (v *verdict) findings() []api.PlanFinding {
	var list []api.PlanFinding
	if v.err != nil {
		for line := range strings.SplitSeq(v.err.Error(), "\n") {
			list = append(list, api.PlanFinding{Rule: "spec", Severity: finding.Error.String(), Subject: "spec",
				Message: line})
		}
	}
	if len(v.undone) > 0 {
		list = append(list, api.PlanFinding{Rule: "controllers", Severity: finding.Warning.String(),
			Subject: "fusionctl controllers", Message: "the operator does not run them; without them: " +
				strings.Join(v.undone, "; "),
			Fix: "run fusionctl controllers --spec FILE beside the control plane"})
	}
	if v.noGateway {
		list = append(list, api.PlanFinding{Rule: "gateway", Severity: finding.Warning.String(),
			Subject: "fusionctl gateway", Message: "it is not run as pods, and without it clients have two endpoints",
			Fix: "run fusionctl gateway FILE beside the control plane"})
	}
	for _, f := range v.report.Findings {
		list = append(list, api.PlanFinding{Rule: f.Rule, Severity: f.Severity.String(), Subject: f.Subject,
			Message: f.Message, Fix: f.Fix})
	}
	list = list[:min(len(list), mostFindings)]
	for i := range list {
		f := &list[i]
		f.Subject, f.Message, f.Fix = brief(f.Subject), brief(f.Message), brief(f.Fix)
	}
	return list
}
