// Package report tells people what a plan does to a cluster: one page for those who decide, review and are on call. It
// computes the page from values; who reads the stores, the hosts and the pods is not its concern.
package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/graph"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/policy"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/restart"
)

// Input is what a page is made of. What is nil was not asked for, and has no section.
type Input struct {
	Spec     string // the name of the spec file
	Plan     *plan.Plan
	Check    finding.Report // of the plan
	Rules    []finding.Rule // the catalogue
	Picture  []byte         // SVG, whose links lead to Anchor
	Mermaid  []byte         // the same for Markdown
	Runbook  []byte         // Markdown, of render
	Evidence string         // docs/evidence.md
	// what differs from what runs, of each host, and in which directory that was seen
	Differences []render.Difference
	DiffOf      string
	Restarts    *Restarts
	Contents    *Contents
}

// New is what a page says of a plan alone, with the runbook of the target: no Picture, which graph.SVG draws of Graph,
// no Rules, and nothing that is read of a cluster. check is of the plan, file the name of the spec.
// Errors: those of render.Files.
func New(p *plan.Plan, file string, target render.Target, check finding.Report) (*Input, error) {
	in := &Input{Spec: file, Plan: p, Check: check, Mermaid: graph.Mermaid(graph.New(p))}
	files, err := render.Files(p, render.Options{Target: target, Spec: file, Findings: check.Findings})
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if f.Path == render.RunbookFile {
			in.Runbook = f.Data
		}
	}
	return in, nil
}

// Graph is the picture of a plan, whose nodes lead to their rows on the page.
func Graph(p *plan.Plan) graph.Graph {
	g := graph.New(p)
	for i := range g.Nodes {
		g.Nodes[i].Href = Anchor(p, g.Nodes[i].ID)
	}
	return g
}

// Restarts are the answer of fusionctl restarts plan -o json, as far as the page shows it.
type Restarts struct {
	File string `json:"-"` // that the answer was read from
	restart.Head
	restart.Totals
	// why the answer ends early, "" when it does not: what it counts is then missing
	Incomplete string `json:"incomplete"`
}

// Contents are what the stores hold, and what is wrong with it.
type Contents struct {
	Resources  []Stored
	Findings   []finding.Finding
	Accepted   []finding.Accepted
	Incomplete []string // what could not be read; such a report is not clean
}

// Stored is a resource in a store.
type Stored struct {
	Store    string
	Resource string
	Owner    pair.Owner // "" when the plan does not know the resource
	Keys     int64
	Bytes    int64 // of the values
}

// Verdict sums a page up.
type Verdict struct {
	Severity finding.Severity // the worst, 0 for none
	Text     string
}

// verdict says whether the plan can be carried out, by the findings about it and about the stores.
func (in *Input) verdict() Verdict {
	findings := in.allFindings()
	s := finding.Summarize(findings)
	switch {
	case in.Contents != nil && len(in.Contents.Incomplete) > 0:
		return Verdict{finding.Error, "Not decided: a store could not be read to its end. Nothing below says that " +
			"it is clean."}
	case in.Restarts != nil && in.Restarts.Incomplete != "":
		return Verdict{finding.Error, "Not decided: not all pods were judged for restarts. Nothing below says that " +
			"the others are kept."}
	case s.Errors > 0:
		return Verdict{finding.Error, "Do not carry this plan out: " + prose.Counted(s.Errors, "error") +
			" would lose data or availability."}
	case s.Warnings > 0:
		return Verdict{finding.Warning, "This plan can be carried out once " + prose.Counted(s.Warnings, "warning") +
			" have been read: each names what is lost, and when."}
	}
	return Verdict{finding.Info, "Nothing that is known to go wrong was found in this plan."}
}

// Incomplete lists what could not be looked at: a page with any of it is not to be taken for clean.
func (in *Input) Incomplete() []string {
	var lines []string
	if in.Contents != nil {
		lines = append(lines, in.Contents.Incomplete...)
	}
	if in.Restarts != nil && in.Restarts.Incomplete != "" {
		lines = append(lines, in.Restarts.File+" ends early: "+in.Restarts.Incomplete)
	}
	return lines
}

func (in *Input) allFindings() []finding.Finding {
	findings := slices.Clone(in.Check.Findings)
	if in.Contents != nil {
		findings = append(findings, in.Contents.Findings...)
	}
	finding.Sort(findings)
	return findings
}

func (in *Input) accepted() []finding.Accepted {
	accepted := slices.Clone(in.Check.Accepted)
	if in.Contents != nil {
		accepted = append(accepted, in.Contents.Accepted...)
	}
	return accepted
}

// explained lists the rules of the findings, each once.
func (in *Input) explained() []finding.Rule {
	named := map[string]bool{}
	for _, f := range in.allFindings() {
		named[f.Rule] = true
	}
	for _, a := range in.accepted() {
		named[a.Rule] = true
	}
	var list []finding.Rule
	seen := map[string]bool{}
	for _, r := range in.Rules {
		if named[r.ID] && !seen[r.ID] {
			seen[r.ID] = true
			list = append(list, r)
		}
	}
	return list
}

// process is a component that has the same arguments on every host.
type process struct {
	plan.Component
	ID    string // where the picture leads; of the first of its kind
	Hosts []string
}

// processes are the components, those of several hosts as one where they are the same but for the host.
func (in *Input) processes() []process {
	var list []process
	for _, c := range in.Plan.Components {
		at := slices.IndexFunc(list, func(p process) bool {
			return p.Name == c.Name && p.Image == c.Image && slices.Equal(p.Args, c.Args) &&
				slices.Equal(p.Command, c.Command)
		})
		if at < 0 {
			id := anchorOf(c.Side, c.Kind)
			if slices.ContainsFunc(list, func(p process) bool { return p.ID == id }) {
				id = ""
			}
			list = append(list, process{Component: c, ID: id, Hosts: []string{c.Host}})
		} else {
			list[at].Hosts = append(list[at].Hosts, c.Host)
		}
	}
	return list
}

// Anchor is the part of the page about a node of the picture: its rows.
func Anchor(p *plan.Plan, node string) string {
	if strings.HasPrefix(node, "store_") {
		return "#" + node
	}
	name, what, _ := strings.Cut(node, "_")
	side := pair.Side(name)
	switch {
	case node == "users" || node == "modern_pods":
		return "#policy"
	case node == "kubelets":
		return "#runbook"
	case what == "controllers" && slices.ContainsFunc(p.Controllers, func(c plan.Controller) bool {
		return c.Side == side
	}):
		return "#" + anchorOf(side, what)
	case what == "joint":
		return "#" + anchorOf("", plan.JointControllers)
	case what == "gateway":
		return "#" + anchorOf("", plan.JointGateway)
	case what == "apiserver" && len(p.ComponentsOf(side, kubever.APIServer)) > 0:
		return "#" + anchorOf(side, kubever.APIServer)
	case what == "scheduler":
		return "#" + anchorOf(side, kubever.Scheduler)
	}
	return "#components"
}

// anchorOf names the rows about what a side runs.
func anchorOf(side pair.Side, what string) string { return strings.Trim(string(side)+"-"+what, "-") }

// storeRow is what a store is for.
type storeRow struct{ ID, Name, Text string }

// stores sums up what each side keeps in each store, in the plan's order, which is that of the picture.
func (in *Input) stores() []storeRow {
	var rows []storeRow
	for i, s := range in.Plan.Stores {
		legacy, modern, shared := 0, 0, 0
		for _, r := range in.Plan.Resources {
			inLegacy, inModern := r.Legacy.Store == s.Name, r.Modern.Store == s.Name
			switch {
			case inLegacy && inModern:
				shared++
			case inLegacy:
				legacy++
			case inModern:
				modern++
			}
		}
		rows = append(rows, storeRow{fmt.Sprintf("store_%d", i), s.Name,
			fmt.Sprintf("%s that both sides keep there, %d of the legacy side alone, %d of the modern side alone.",
				prose.Counted(shared, "resource"), legacy, modern)})
	}
	return rows
}

// controllerRow is a controller; the first ones of each side have an ID.
type controllerRow struct {
	plan.Controller
	ID string
}

func (in *Input) controllers() []controllerRow {
	var rows []controllerRow
	seen := map[pair.Side]bool{}
	for _, c := range in.Plan.Controllers {
		row := controllerRow{Controller: c}
		if !seen[c.Side] {
			row.ID = anchorOf(c.Side, "controllers")
		}
		seen[c.Side] = true
		rows = append(rows, row)
	}
	return rows
}

// grant is a row of the policy.
type grant struct {
	policy.Grant
	Risk string // "" or why it deserves a second look
}

// grants lists who may do what, those of users first.
func (in *Input) grants() []grant {
	var list []grant
	for _, g := range in.Plan.Policy.Grants {
		list = append(list, grant{g, risk(g)})
	}
	slices.SortStableFunc(list, func(a, b grant) int {
		return cmp.Compare(purposeOrder(a.Purpose), purposeOrder(b.Purpose))
	})
	return list
}

func purposeOrder(p policy.Purpose) int {
	return slices.Index([]policy.Purpose{policy.ForUsers, policy.ForClients, policy.ForControllers,
		policy.ForNodes}, p)
}

// risk says why a grant of users deserves a second look; the rules about access judge it, this only marks the row.
func risk(g policy.Grant) string {
	if g.Purpose != policy.ForUsers || g.ReadOnly {
		return ""
	}
	wide := slices.Contains(g.Namespaces, "*") || slices.Contains(g.Namespaces, metav1.NamespaceSystem)
	everything := slices.Contains(g.Resources, "*")
	switch {
	case everything && slices.Contains(g.APIGroups, "*"):
		return "writes every resource of every group"
	case !wide:
		return ""
	case everything:
		return "writes every resource of these groups, in kube-system too"
	}
	named := g.ActsAsOthers()
	if len(named) == 0 {
		return ""
	}
	return "who writes " + strings.Join(named, ", ") + " can act as others"
}

// proof is a row of the evidence.
type proof struct {
	Layout, Legacy, Modern, Claim, Test string
	Damage                              bool
}

// proofs are the rows of the evidence about the pair of the plan: its two minors.
func (in *Input) proofs() []proof {
	var list []proof
	damage := false
	for line := range strings.Lines(in.Evidence) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "## ") {
			damage = !strings.Contains(line, "plans keep")
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) != 5 {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if sameMinor(cells[1], in.Plan.Legacy.Version) && sameMinor(cells[2], in.Plan.Modern.Version) {
			list = append(list, proof{cells[0], cells[1], cells[2], cells[3], cells[4], damage})
		}
	}
	return list
}

func sameMinor(text string, version kubever.Version) bool {
	parsed, err := kubever.Parse(text)
	return err == nil && parsed.Minor == version.Minor
}

// owners counts the resources of each owner.
func (in *Input) owners() []ownerCount {
	var counts []ownerCount
	for _, o := range []pair.Owner{pair.OwnerLegacy, pair.OwnerShared, pair.OwnerModern, pair.OwnerSplit} {
		n := 0
		for _, r := range in.Plan.Resources {
			if r.Owner == o {
				n++
			}
		}
		counts = append(counts, ownerCount{o, n})
	}
	return counts
}

type ownerCount struct {
	Owner pair.Owner
	Count int
}
