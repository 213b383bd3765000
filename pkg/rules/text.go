package rules

import (
	"fmt"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/finding"
)

// Text explains the rule for a terminal.
func (r Rule) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n\n", r.ID, r.Title)
	fmt.Fprintf(&b, "%s\n\n", finding.Wrap(r.Why, finding.TextWidth))
	fmt.Fprintf(&b, "severity: %s at worst\nversions: legacy %s, modern %s\n", r.Severity, r.Legacy, r.Modern)
	for _, line := range r.Evidence.lines() {
		fmt.Fprintf(&b, "%s\n", finding.Wrap(line, finding.TextWidth))
	}
	if r.Bad != "" {
		fmt.Fprintf(&b, "\nBad:\n%s\nGood:\n%s", indent(r.Bad), indent(r.Good))
	}
	return b.String()
}

// Markdown is the rule's page in the documentation.
func (r Rule) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s: %s\n\n%s\n\n", r.ID, r.Title, r.Why)
	fmt.Fprintf(&b, "| severity | legacy | modern |\n|---|---|---|\n| %s | %s | %s |\n\n## How it is known\n\n", r.Severity, r.Legacy, r.Modern)
	for _, line := range r.Evidence.lines() {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	if r.Bad != "" {
		fmt.Fprintf(&b, "\n## A spec that has it\n\n```yaml\n%s```\n\n## The same without it\n\n```yaml\n%s```\n", r.Bad, r.Good)
	}
	return b.String()
}

// Index lists rules as a page that links to each one's.
func Index(rules []Rule) string {
	var b strings.Builder
	b.WriteString("# Rules\n\nEvery known way in which two versions damage each other, as far as it can be told before anything starts. " +
		"`fusionctl check` applies the rules to a spec, `fusionctl explain RULE` prints these pages.\n\n")
	b.WriteString("| rule | at worst | legacy | modern | what goes wrong |\n|---|---|---|---|---|\n")
	for _, r := range rules {
		fmt.Fprintf(&b, "| [%s](%s.md) | %s | %s | %s | %s |\n", r.ID, r.ID, r.Severity, r.Legacy, r.Modern, r.Title)
	}
	return b.String()
}

func (e Evidence) lines() []string {
	var lines []string
	for _, l := range []struct{ what, text string }{
		{"seen", e.Seen}, {"done again by", inTests(e.Damage)}, {"prevented in", inTests(e.Prevention)}, {"read", e.Read},
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
