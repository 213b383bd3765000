package finding

import (
	"fmt"
	"strings"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Engine is what looks for a rule.
type Engine string

// The engines. Two that look for one danger, each in its own place, share the ID of the rule.
const (
	Plans    Engine = "plans"    // the plan of a spec, and manifests that the legacy side would rewrite
	Policies Engine = "policies" // ABAC policy files
	Stores   Engine = "stores"   // the keys and values in etcd
	Servers  Engine = "servers"  // both API servers, while they run
	CRDs     Engine = "crds"     // a CRD before and after a change
	Hosts    Engine = "hosts"    // a host, or a copy of its files, before a plan starts on it
)

// Engines lists all of them.
func Engines() []Engine { return []Engine{Plans, Policies, Stores, Servers, CRDs, Hosts} }

// Verbs names the verbs that report the engine's findings.
func (e Engine) Verbs() string {
	switch e {
	case Plans:
		return "fusionctl check"
	case Policies:
		return "fusionctl policy validate"
	case Stores:
		return "fusionctl etcd check, fusionctl etcd watch"
	case Servers:
		return "fusionctl check --live"
	case CRDs:
		return "fusionctl crd diff"
	case Hosts:
		return "fusionctl preflight, fusionctl render --verify"
	}
	panic("finding: internal error: engine " + string(e))
}

// examples says what the bad and the good example of an engine's rules are.
func (e Engine) examples() (what, language string) {
	if e == Policies {
		return "policy", ""
	}
	return "spec", "yaml"
}

// Rule is one danger or mistake that an engine looks for, with its documentation.
// Shape:  ID is FUS and three digits; the numbers below 200 are historical.
// Source: Evidence.
type Rule struct {
	ID       string   `json:"id"`
	Engine   Engine   `json:"engine"`   // that reports it
	Title    string   `json:"title"`    // what goes wrong, in a few words
	Severity Severity `json:"severity"` // at worst
	Why      string   `json:"why"`      // mechanism and consequence
	// versions of the legacy side that can be hit; zero: it does not depend on versions
	Legacy   kubever.Range `json:"legacy,omitzero"`
	Modern   kubever.Range `json:"modern,omitzero"` // versions of the modern side
	Evidence Evidence      `json:"evidence,omitzero"`
	// an input in which the engine finds it: a spec, or lines of a policy
	Bad  string `json:"bad,omitempty"`
	Good string `json:"good,omitempty"` // the same, corrected
	Fix  string `json:"fix,omitempty"`  // the fix, for findings of the rule that name no better one
}

// Of marks rules as those of an engine, and returns them.
func Of(e Engine, rules []Rule) []Rule {
	for i := range rules {
		rules[i].Engine = e
	}
	return rules
}

// Evidence says how a danger is known.
type Evidence struct {
	Seen string `json:"seen,omitempty"` // what was done with real servers and what happened; "" when it was not run
	// Damage and Prevention name tests of test/e2e, with real servers: those that do the damage again, and those in
	// which what the plan does about it is seen to hold.
	Damage     []string `json:"damage,omitempty"`
	Prevention []string `json:"prevention,omitempty"`
	Read       string   `json:"read,omitempty"` // source files and versions that were read
}

// Versioned reports whether the rule depends on versions.
func (r Rule) Versioned() bool { return r.Legacy != kubever.Range{} }

// Text explains the rule for a terminal.
func (r Rule) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n\n", r.ID, r.Title)
	fmt.Fprintf(&b, "%s\n\n", wrap(r.Why, textWidth))
	fmt.Fprintf(&b, "severity: %s at worst\nreported by: %s\n", r.Severity, r.Engine.Verbs())
	if r.Versioned() {
		fmt.Fprintf(&b, "versions: legacy %s, modern %s\n", r.Legacy, r.Modern)
	}
	for _, line := range r.Evidence.lines() {
		fmt.Fprintf(&b, "%s\n", wrap(line, textWidth))
	}
	if r.Fix != "" {
		fmt.Fprintf(&b, "%s\n", wrap("fix: "+r.Fix, textWidth))
	}
	if r.Bad != "" {
		fmt.Fprintf(&b, "\nBad:\n%s\nGood:\n%s", indent(r.Bad), indent(r.Good))
	}
	return b.String()
}

// Markdown is the page of a rule: one section for each engine that reports it, the first under the title.
func Markdown(rules []Rule) string {
	var b strings.Builder
	for i, r := range rules {
		if i == 0 {
			fmt.Fprintf(&b, "# %s: %s\n", r.ID, r.Title)
		} else {
			fmt.Fprintf(&b, "\n## In %s: %s\n", r.Engine, r.Title)
		}
		r.section(&b)
	}
	return b.String()
}

// pageWidth is the most characters that a line of prose takes on a page of the documentation.
const pageWidth = 120

func (r Rule) section(b *strings.Builder) {
	reported := fmt.Sprintf("Reported by `%s`.", strings.ReplaceAll(r.Engine.Verbs(), ", ", "`, `"))
	fmt.Fprintf(b, "\n%s\n\n%s\n", fill(r.Why, ""), fill(reported, ""))
	if r.Versioned() {
		fmt.Fprintf(b, "\n| severity at worst | legacy | modern |\n|---|---|---|\n| %s | %s | %s |\n", r.Severity,
			r.Legacy, r.Modern)
	} else {
		fmt.Fprintf(b, "\nSeverity at worst: %s.\n", r.Severity)
	}
	if r.Fix != "" {
		fmt.Fprintf(b, "\n%s\n", fill("Fix: "+r.Fix, ""))
	}
	if lines := r.Evidence.lines(); len(lines) > 0 {
		fmt.Fprint(b, "\nEvidence:\n\n")
		for _, line := range lines {
			fmt.Fprintf(b, "- %s\n", fill(line, "  "))
		}
	}
	if r.Bad != "" {
		what, language := r.Engine.examples()
		block := func(title, text string) {
			fmt.Fprintf(b, "\n%s:\n\n```%s\n%s\n```\n", title, language, strings.TrimRight(text, "\n"))
		}
		block("A "+what+" that has it", r.Bad)
		block("The same without it", r.Good)
	}
}

// fill breaks each paragraph of a page into lines, of which all but the first begin with the indentation.
func fill(text, indentation string) string {
	var lines []string
	for paragraph := range strings.Lines(text) {
		lines = append(lines, strings.Join(prose.Wrap(strings.Fields(paragraph), pageWidth-len(indentation)),
			"\n"+indentation))
	}
	return strings.Join(lines, "\n"+indentation)
}

func (e Evidence) lines() []string {
	var lines []string
	for _, l := range []struct{ what, text string }{
		{"seen", e.Seen}, {"reproduced by", inTests(e.Damage)}, {"prevented in", inTests(e.Prevention)},
		{"read", e.Read},
	} {
		if l.text != "" {
			lines = append(lines, l.what+": "+l.text)
		}
	}
	return lines
}

// inTests names end-to-end tests.
func inTests(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return strings.Join(names, ", ") + " of test/e2e"
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ") + "\n"
}

// textWidth is where lines of prose break on a terminal.
const textWidth = 100

// wrap breaks prose at spaces into lines of at most so many characters; a longer word has a line of its own. White
// space between words is one space.
func wrap(text string, width int) string {
	return strings.Join(prose.Wrap(strings.Fields(text), width), "\n")
}
