package operator

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/catalog"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// verdict is what a spec leads to.
type verdict struct {
	file      *spec.File
	plan      *plan.Plan // nil where it leads to none
	target    render.Target
	digest    string // of the plan
	report    finding.Report
	undone    []string // what fusionctl controllers would do, which do not run as pods
	noGateway bool     // the spec wants a gateway, which does not run as pods either
	err       error    // why there is no plan
}

// judge plans the spec of an object for what is to run it, and checks the plan.
func judge(f *api.FusedControlPlane) verdict {
	v := verdict{target: render.Hosted}
	if v.file, v.err = f.File(); v.err != nil {
		return v
	}
	if v.file.Spec.OnHosts() {
		v.target = render.Target(v.file.Spec.Target)
	}
	if v.plan, v.err = plan.New(v.file, v.target.Plan()); v.err != nil {
		return v
	}
	v.report = catalog.Check(v.plan)
	if onHosts(v.target) {
		v.digest, v.err = digestOf(v.plan, v.target)
		return v
	}
	if other, err := plan.New(v.file, plan.OnHosts); err == nil {
		if other.Joint != nil && v.plan.Joint == nil {
			v.undone = other.Joint.Why
		}
		v.noGateway = other.Gateway.Serves() && !v.plan.Gateway.Serves()
	}
	v.digest, v.err = digestOf(v.plan, v.target)
	return v
}

// digestBytes are enough to name a plan: an account that may edit the object may approve it, too.
const digestBytes = 10

// digestOf names a plan and what runs it: equal ones have one name, whatever the text of their specs.
func digestOf(p *plan.Plan, target render.Target) (string, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("printing the plan: %w", err)
	}
	if onHosts(target) { // the plan is that of every target on hosts
		data = append(data, target...)
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
		fix := "set spec.controllers.image to an image that has fusionctl in its PATH"
		if v.file.Spec.Pods != nil { // whose webhook and Service are of hosts
			fix = "run fusionctl controllers --spec FILE on the hosts of the legacy API servers"
		}
		list = append(list, api.PlanFinding{Rule: "controllers", Severity: finding.Warning.String(),
			Subject: "fusionctl controllers", Message: "they do not run as pods; without them: " +
				strings.Join(v.undone, "; "), Fix: fix})
	}
	if v.noGateway {
		list = append(list, api.PlanFinding{Rule: "gateway", Severity: finding.Warning.String(),
			Subject: "fusionctl gateway", Message: "it does not run as pods, and without it clients have two endpoints",
			Fix: "set spec.gateway.image to an image that has fusionctl in its PATH"})
	}
	list = append(list, v.permits()...)
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

// permits says what the legacy API server has to allow, by hand, to components that see both sides.
func (v *verdict) permits() []api.PlanFinding {
	if v.plan == nil || onHosts(v.target) { // a step of the transition says so
		return nil
	}
	var list []api.PlanFinding
	add := func(user string, access plan.LegacyAccess) {
		if !slices.Contains(access.Modes, "AlwaysAllow") {
			list = append(list, api.PlanFinding{Rule: "access", Severity: finding.Warning.String(),
				Subject: "user " + user,
				Message: "the legacy API server authorizes by " + strings.Join(access.Modes, ", ") + ", and has to " +
					"allow what this user does there",
				Fix: "apply the legacy-access file that fusionctl render --target hosted writes"})
		}
	}
	if v.plan.Joint != nil {
		add(v.plan.Joint.User, v.plan.Joint.Legacy)
	}
	if g := v.plan.Gateway; g.Serves() {
		add(g.Component.User, g.Component.Legacy)
	}
	return list
}
