// Package catalog joins the rules of all engines: what a rule ID means, wherever it is reported.
package catalog

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/etcd/scan"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/live"
	"github.com/kubefusion/fusionctl/pkg/migrate"
	"github.com/kubefusion/fusionctl/pkg/policy"
	"github.com/kubefusion/fusionctl/pkg/preflight"
	"github.com/kubefusion/fusionctl/pkg/rules"
)

// Rules lists the rules of all engines, by ID. An ID that several engines report stands once for each, in the order of
// the engines.
func Rules() []finding.Rule {
	list := slices.Concat(rules.Rules(), policy.Checks(), scan.Rules(), live.Rules(), migrate.Rules(),
		preflight.Rules())
	slices.SortStableFunc(list, func(a, b finding.Rule) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// ByID lists what the engines say of a rule; nothing when there is none of the ID. Short forms are as good: fus060, 60.
func ByID(id string) []finding.Rule {
	number := strings.TrimPrefix(strings.ToUpper(id), "FUS")
	if len(number) < 3 && number != "" {
		number = strings.Repeat("0", 3-len(number)) + number
	}
	return slices.DeleteFunc(Rules(), func(r finding.Rule) bool { return r.ID != "FUS"+number })
}

// Rule is what an engine says of a rule; false when it does not report it.
func Rule(engine finding.Engine, id string) (finding.Rule, bool) {
	for _, r := range ByID(id) {
		if r.Engine == engine {
			return r, true
		}
	}
	return finding.Rule{}, false
}

// IDs lists the IDs of all rules, each once.
func IDs() []string {
	var ids []string
	for _, r := range Rules() {
		ids = append(ids, r.ID)
	}
	return slices.Compact(ids)
}

// Index is the page that links to the page of each rule.
func Index() string {
	var b strings.Builder
	b.WriteString("# Rules\n\nEvery danger and mistake that fusionctl looks for. `fusionctl explain RULE` prints " +
		"these pages.\nEach rule is reported by the verbs " +
		"of its engines:\n\n| engine | verbs |\n|---|---|\n")
	for _, e := range finding.Engines() {
		b.WriteString("| " + string(e) + " | `" + strings.ReplaceAll(e.Verbs(), ", ", "`, `") + "` |\n")
	}
	b.WriteString("\n| rule | engine | at worst | legacy | modern | what goes wrong |\n|---|---|---|---|---|---|\n")
	for _, r := range Rules() {
		legacy, modern := "", ""
		if r.Versioned() {
			legacy, modern = r.Legacy.String(), r.Modern.String()
		}
		b.WriteString("| " +
			strings.Join([]string{"[" + r.ID + "](" + r.ID + ".md)", string(r.Engine), r.Severity.String(), legacy,
				modern, r.Title}, " | ") + " |\n")
	}
	return b.String()
}
