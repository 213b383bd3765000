package catalog

import (
	"fmt"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/rules"
)

// Check applies every rule about plans to the plan, and sets aside what its spec accepts. An entry of spec.accept that
// no finding uses is a finding of its own: the danger that it speaks of may have moved elsewhere.
func Check(p *plan.Plan) finding.Report {
	report, used := finding.Accept(rules.Check(p), p.Accept)
	engines := map[string][]finding.Rule{} // of the rule of an entry: there may be thousands of those
	for i, entry := range p.Accept {
		if used[i] {
			continue
		}
		if _, known := engines[entry.Rule]; !known {
			engines[entry.Rule] = ByID(entry.Rule)
		}
		report.Findings = append(report.Findings, unused(i, entry, engines[entry.Rule])...)
	}
	finding.Sort(report.Findings)
	return report
}

// unused reports an entry of spec.accept that no finding of the plan uses. What only stores, running servers or policy
// files show, no plan can tell to be unused; what a plan shows as well is an info.
func unused(i int, entry finding.Acceptance, engines []finding.Rule) []finding.Finding {
	elsewhere := slices.ContainsFunc(engines, func(r finding.Rule) bool { return r.Engine != finding.Plans })
	inPlans := slices.ContainsFunc(engines, func(r finding.Rule) bool { return r.Engine == finding.Plans })
	if elsewhere && !inPlans {
		return nil
	}
	f := finding.Finding{Rule: rules.UnusedAccept, Severity: finding.Warning,
		Subject: fmt.Sprintf("spec.accept[%d]", i),
		Message: fmt.Sprintf("accepts %s, which this plan does not have", entry.Rule),
		Fix:     "remove the entry, or correct its rule and subject"}
	if elsewhere {
		f.Severity = finding.Info
		f.Message += "; other verbs report the rule too, and may use the entry"
	}
	f.Key = finding.Key(f.Rule, entry.Rule, entry.Subject)
	return []finding.Finding{f}
}
