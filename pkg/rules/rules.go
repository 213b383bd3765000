// Package rules knows every way in which two versions damage each other, as far as a plan can show it. A rule is a
// value that carries its own documentation, its examples and its evidence.
package rules

import (
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// rule is a finding.Rule with what looks for it.
type rule struct {
	finding.Rule
	// check reports the danger in a plan, once for each subject. It fills Subject, Message and Fix, and Key where a
	// subject may have several findings, with what tells them apart. The rest comes from the rule, the severity too
	// where it is left zero.
	check func(p *plan.Plan) []finding.Finding
}

// Every version, for rules that do not depend on it.
var anyVersion = kubever.Range{From: kubever.Oldest, To: kubever.Newest}

// Rules lists what Check and Older.Losses report, by ID.
func Rules() []finding.Rule {
	var list []finding.Rule
	for _, r := range all() {
		list = append(list, r.Rule)
	}
	return list
}

// Check applies every rule to the plan and returns what they find, worst first. What the spec accepts is among it.
func Check(p *plan.Plan) []finding.Finding { return apply(all(), p) }

func apply(rules []rule, p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	for _, r := range rules {
		for _, f := range r.check(p) {
			f.Rule, f.Key = r.ID, finding.Key(r.ID, f.Subject, f.Key)
			if f.Severity == 0 {
				f.Severity = r.Severity
			}
			found = append(found, f)
		}
	}
	finding.Sort(found)
	return found
}
