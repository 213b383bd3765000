// Package rules knows every way in which two versions damage each other, as far as a plan can show it. A rule is a value that
// carries its own documentation, its examples and its evidence.
package rules

import (
	"fmt"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Rule is one danger.
// Shape:  ID is FUS and the number of the pitfall in three digits; rules of our own start at FUS220.
// Source: Evidence.
type Rule struct {
	ID       string           `json:"id"`
	Title    string           `json:"title"`    // what goes wrong, in under ten words
	Why      string           `json:"why"`      // mechanism and consequence, in plain words
	Legacy   kubever.Range    `json:"legacy"`   // versions of the legacy side that can be hit
	Modern   kubever.Range    `json:"modern"`   // versions of the modern side that can be hit
	Severity finding.Severity `json:"severity"` // the worst that Check reports
	Evidence Evidence         `json:"evidence"`
	Bad      string           `json:"bad"`  // a spec whose plan has the danger
	Good     string           `json:"good"` // the same spec, mended
	// Check reports the danger in a plan, once for each subject. It fills Subject, Message and Fix; Rule and, when it is left
	// zero, Severity come from the rule.
	Check func(p *plan.Plan) []finding.Finding `json:"-"`
}

// Evidence says how a danger is known.
type Evidence struct {
	Seen string `json:"seen,omitempty"` // what was done with real servers and what happened; "" when it was not run
	// Damage and Prevention name tests of test/e2e, with real servers: those that do the damage again, and those in which what the plan
	// does about it is seen to hold.
	Damage     []string `json:"damage,omitempty"`
	Prevention []string `json:"prevention,omitempty"`
	Read       string   `json:"read,omitempty"` // source files and versions that were read
}

// Every version, for rules that do not depend on it.
var anyVersion = kubever.Range{From: kubever.Oldest, To: kubever.Newest}

// Report is what the rules say of a plan.
type Report struct {
	Findings []finding.Finding `json:"findings"` // sorted, worst first
	Accepted []Accepted        `json:"accepted,omitempty"`
}

// Accepted is a finding for which the owner of the spec takes responsibility.
type Accepted struct {
	finding.Finding
	Reason string `json:"reason"`
}

// unusedAccept is the rule of our own for an accept entry that silences nothing.
const unusedAccept = "FUS220"

// Check applies every rule to the plan. Findings that the spec accepts are listed apart; an accept entry that matches nothing is a
// finding of its own, since the danger that it speaks of may have moved elsewhere.
func Check(p *plan.Plan) Report { return apply(All(), p) }

func apply(rules []Rule, p *plan.Plan) Report {
	var found []finding.Finding
	for _, rule := range rules {
		for _, f := range rule.Check(p) {
			f.Rule = rule.ID
			if f.Severity == 0 {
				f.Severity = rule.Severity
			}
			found = append(found, f)
		}
	}
	report, used := Accept(found, p.Accept)
	for i, accept := range p.Accept {
		if !used[i] && !notInPlans(accept.Rule) {
			report.Findings = append(report.Findings, finding.Finding{
				Rule: unusedAccept, Severity: finding.Warning, Subject: fmt.Sprintf("spec.accept[%d]", i),
				Message: fmt.Sprintf("accepts %s, which this plan does not have", accept.Rule),
				Fix:     "remove the entry, or correct its rule and subject",
			})
		}
	}
	finding.Sort(report.Findings)
	return report
}

// Accept sets aside the findings that are accepted, and says which entries were used.
func Accept(found []finding.Finding, accepted []spec.Accept) (report Report, used []bool) {
	used = make([]bool, len(accepted))
	for _, f := range found {
		at := slices.IndexFunc(accepted, func(a spec.Accept) bool { return a.Rule == f.Rule && (a.Subject == "" || a.Subject == f.Subject) })
		if at < 0 {
			report.Findings = append(report.Findings, f)
			continue
		}
		used[at] = true
		report.Accepted = append(report.Accepted, Accepted{Finding: f, Reason: accepted[at].Reason})
	}
	return report, used
}

// ByID finds a rule; false when there is none of the ID.
func ByID(id string) (Rule, bool) {
	all := All()
	i := slices.IndexFunc(all, func(r Rule) bool { return r.ID == id })
	if i < 0 {
		return Rule{}, false
	}
	return all[i], true
}
