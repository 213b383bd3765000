package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/restart"
)

// Markdown writes what the page says for places that show Markdown, the picture as Mermaid.
// Errors: what the writer says.
func Markdown(w io.Writer, in *Input) error {
	var b bytes.Buffer
	p := in.Plan
	fmt.Fprintf(&b, "# %s\n\nKubernetes %s (legacy) and %s (modern) over one set of nodes. Layout %s, kubelets %s, "+
		"%s.\n"+
		"From %s, by fusionctl; facts about versions as of %s.\n", cell(p.Name), p.Legacy.Version, p.Modern.Version,
		p.Layout, p.Kubelet, prose.Counted(len(p.Hosts), "host"), cell(in.Spec), kubever.FactsOf)
	s := finding.Summarize(in.allFindings())
	fmt.Fprintf(&b, "\n## Verdict\n\n**%s**\n\n%s, %s, %s, %d accepted.\n", in.verdict().Text,
		prose.Counted(s.Errors, "error"), prose.Counted(s.Warnings, "warning"), prose.Counted(s.Infos, "info"),
		len(in.accepted()))
	b.WriteString("\n## In short: what this plan does\n\n")
	for _, p := range in.short() {
		fmt.Fprintf(&b, "- **%s:** %s\n", p.Title, cell(p.Text))
	}
	if len(in.Mermaid) > 0 {
		fmt.Fprintf(&b, "\n## Picture\n\n```mermaid\n%s\n```\n", bytes.TrimRight(in.Mermaid, "\n"))
	}
	b.WriteString("\n## Findings\n")
	if len(in.allFindings()) == 0 {
		b.WriteString("\nNone.\n")
	}
	for _, g := range in.groups() {
		fmt.Fprintf(&b, "\n### %s\n\n", g.Title)
		row(&b, "rule", "about", "what happens", "way out")
		rule(&b, 4)
		for _, f := range g.Items {
			row(&b, f.Rule, f.Subject, f.Message, f.Fix)
		}
	}
	if accepted := in.accepted(); len(accepted) > 0 {
		b.WriteString("\n### Accepted\n\n")
		row(&b, "rule", "about", "what happens", "reason given")
		rule(&b, 4)
		for _, a := range accepted {
			row(&b, a.Rule, a.Subject, a.Message, a.Reason)
		}
	}
	if list := in.explained(); len(list) > 0 {
		b.WriteString("\n### What the rules mean\n\n")
		for _, r := range list {
			fmt.Fprintf(&b, "- **%s, %s.** %s\n", r.ID, r.Title, r.Why)
		}
	}
	b.WriteString("\n## Who owns each resource\n\n")
	row(&b, "resource", "kind", "owner", "store of legacy", "store of modern", "why")
	rule(&b, 6)
	for _, r := range p.Resources {
		row(&b, r.Key, r.Kind, r.Owner, r.Legacy.Store, r.Modern.Store, r.Why)
	}
	b.WriteString("\n## Controllers\n\n")
	row(&b, "side", "controller", "runs", "why")
	rule(&b, 4)
	for _, c := range p.Controllers {
		runs := "off"
		if c.On {
			runs = "on"
		}
		row(&b, c.Side, c.Name, runs, c.Why)
	}
	in.markdownComponents(&b)
	b.WriteString("\n## Who may do what through the modern API server\n\n")
	row(&b, "for", "who", "may", "what", "where", "why")
	rule(&b, 6)
	for _, g := range in.grants() {
		var who []string
		for _, s := range g.Subjects {
			who = append(who, strings.TrimSpace(string(s.Kind)+" "+strings.TrimPrefix(s.Namespace+"/"+s.Name, "/")))
		}
		may := "read and write"
		if g.ReadOnly {
			may = "read"
		}
		why := cell(g.Why)
		if g.Risk != "" {
			why += " **Look twice: " + cell(g.Risk) + ".**"
		}
		row(&b, g.Purpose, strings.Join(who, ", "), may, what(g.Grant), strings.Join(g.Namespaces, ", "), why)
	}
	in.markdownWorld(&b)
	_, err := w.Write(b.Bytes())
	return err
}

func (in *Input) markdownComponents(b *bytes.Buffer) {
	b.WriteString("\n## Components and their flags\n")
	for _, c := range in.processes() {
		fmt.Fprintf(b, "\n### %s on %s\n\n", cell(strings.TrimSpace(c.Name+" "+c.Version)),
			cell(strings.Join(c.Hosts, ", ")))
		row(b, "flag", "value", "from", "why")
		rule(b, 4)
		for _, a := range c.Args {
			row(b, code("--"+a.Name), a.Value, a.Origin, a.Why)
		}
	}
	if in.DiffOf == "" {
		return
	}
	fmt.Fprintf(b, "\n## What changes against today\n\nCompared with %s.\n", cell(in.DiffOf))
	for _, d := range in.Differences {
		fmt.Fprintf(b, "\n### %s on %s: %s\n\n", cell(d.Component), cell(d.Host), d.State)
		if len(d.Changes) == 0 {
			b.WriteString(unchanged(d.State) + "\n")
			continue
		}
		row(b, "what", "today", "planned", "why")
		rule(b, 4)
		for _, c := range d.Changes {
			row(b, code(c.What), set(c.Old), set(c.New), c.Why)
		}
	}
}

// set is a value of a flag, or that it has none.
func set(values []string) string {
	if len(values) == 0 {
		return "not set"
	}
	return strings.Join(values, " ")
}

// markdownWorld adds what was read of stores and pods, and the evidence.
func (in *Input) markdownWorld(b *bytes.Buffer) {
	if c := in.Contents; c != nil {
		b.WriteString("\n## What the stores hold\n\n")
		for _, line := range c.Incomplete {
			fmt.Fprintf(b, "- **Incomplete:** %s\n", cell(line))
		}
		if len(c.Incomplete) > 0 {
			b.WriteString("\n")
		}
		row(b, "store", "resource", "owner", "keys", "bytes")
		rule(b, 5)
		for _, r := range c.Resources {
			row(b, r.Store, r.Resource, r.Owner, r.Keys, size(r.Bytes))
		}
	}
	if r := in.Restarts; r != nil {
		b.WriteString("\n## What new kubelets restart\n\n")
		if r.Incomplete != "" {
			fmt.Fprintf(b, "**Incomplete:** %s. Not all pods were judged.\n", cell(r.Incomplete))
		} else {
			fmt.Fprintf(b, "From %s to %s, %s: %d containers are restarted, %d kept, %d unknown.\n", r.From, r.To,
				prose.Counted(r.Pods, "pod"), r.Summary.Restart, r.Summary.Keep, r.Summary.Unknown)
		}
		for _, of := range []groupsOf{{"node", r.Nodes}, {"namespace", r.Namespaces}, {"owner", r.Owners}} {
			markdownGroups(b, of.Title, of.Groups)
		}
		if len(r.Order) > 0 {
			b.WriteString("\n### In which order\n\n")
			for i, wave := range r.Order {
				fmt.Fprintf(b, "%d. %s\n", i+1, cell(strings.Join(append(wave.Nodes, wave.Breaks...), ", ")))
			}
		}
	}
	if len(in.Runbook) > 0 {
		b.WriteString("\n## Runbook\n\n")
		b.WriteString(belowHeading(in.Runbook))
	}
	b.WriteString("\n## Evidence by real servers\n\n")
	proofs := in.proofs()
	if len(proofs) == 0 {
		b.WriteString("No real servers of these two minors were run together.\n")
		return
	}
	row(b, "layout", "legacy", "modern", "what", "test")
	rule(b, 5)
	for _, p := range proofs {
		claim := marked(p.Claim) // docs/evidence.md is Markdown
		if p.Damage {
			claim = "**without the plan:** " + claim
		}
		row(b, p.Layout, p.Legacy, p.Modern, claim, marked(p.Test))
	}
}

// belowHeading is a page of Markdown as a part of another: without its title, its headings one level lower. What looks
// like a heading in a block of code is none.
func belowHeading(markdown []byte) string {
	var b strings.Builder
	fenced := false
	for line := range strings.Lines(string(markdown)) {
		fenced = fenced != strings.HasPrefix(line, "```")
		switch {
		case fenced || !strings.HasPrefix(line, "#"):
			b.WriteString(line)
		case !strings.HasPrefix(line, "# "):
			b.WriteString("#" + line)
		}
	}
	return strings.TrimLeft(b.String(), "\n")
}

func markdownGroups(b *bytes.Buffer, title string, groups []restart.Group) {
	if len(groups) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### By %s\n\n", title)
	row(b, title, "restart", "keep", "unknown")
	rule(b, 4)
	for _, g := range groups {
		row(b, g.Name, g.Restart, g.Keep, g.Unknown)
	}
}

func row(b *bytes.Buffer, cells ...any) {
	for _, c := range cells {
		b.WriteString("| " + string(cell(c)) + " ")
	}
	b.WriteString("|\n")
}

func rule(b *bytes.Buffer, columns int) { b.WriteString(strings.Repeat("|---", columns) + "|\n") }
