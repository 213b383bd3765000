package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Pair is what the rules say of the default plan for two versions.
type Pair struct {
	Legacy   kubever.Minor `json:"legacy"`
	Modern   kubever.Minor `json:"modern"`
	Possible bool          `json:"possible"` // the default plan has no errors
	Proven   bool          `json:"proven"`   // real servers of both minors did what a plan promises
	// the first rule that stands in the way; "" too when it cannot be planned at all
	Rule     string            `json:"rule,omitempty"`
	Reason   string            `json:"reason,omitempty"` // its message
	Errors   []finding.Finding `json:"errors,omitempty"` // all that stands in the way
	Warnings int               `json:"warnings"`
}

// Matrix judges the default plans of a layout, those that `fusionctl init` starts from, for every pair of minors in
// which the modern one is not the older: legacy ascending, then modern. Errors: none but broken promises of the
// packages below.
func Matrix(layout spec.Layout) ([]Pair, error) {
	base, err := defaultSpec(layout, kubever.Oldest, kubever.Newest)
	if err != nil {
		return nil, err
	}
	rules := all()
	seen := proven(layout)
	var pairs []Pair
	for _, legacy := range kubever.Minors() {
		for _, modern := range kubever.Minors() {
			if modern < legacy {
				continue
			}
			f, err := between(base, legacy, modern)
			if err != nil {
				return nil, err
			}
			pair := judge(rules, f, legacy, modern)
			pair.Proven = seen[[2]kubever.Minor{legacy, modern}]
			pairs = append(pairs, pair)
		}
	}
	return pairs, nil
}

func judge(rules []rule, f *spec.File, legacy, modern kubever.Minor) Pair {
	pair := Pair{Legacy: legacy, Modern: modern}
	p, err := plan.New(f, plan.OnHosts)
	if err != nil {
		pair.Reason = err.Error()
		return pair
	}
	found := apply(rules, p)
	pair.Warnings = finding.Summarize(found).Warnings
	pair.Errors = slices.DeleteFunc(found, func(f finding.Finding) bool { return f.Severity != finding.Error })
	pair.Possible = len(pair.Errors) == 0
	if !pair.Possible {
		worst := worstOf(pair.Errors)
		pair.Rule, pair.Reason = worst.Rule, worst.Subject+": "+worst.Message
	}
	return pair
}

// layoutRules are those that no change of owners, access or arguments gets around: only another layout does.
var layoutRules = []string{"FUS030", "FUS031"}

// worstOf is what no other setting of the layout gets around, or else the first.
func worstOf(errors []finding.Finding) finding.Finding {
	if i := slices.IndexFunc(errors, func(f finding.Finding) bool {
		return slices.Contains(layoutRules, f.Rule)
	}); i >= 0 {
		return errors[i]
	}
	return errors[0]
}

// defaultSpec is the spec that `fusionctl init` writes.
func defaultSpec(layout spec.Layout, legacy, modern kubever.Minor) (*spec.File, error) {
	text, err := spec.Skeleton(layout, kubever.Version{Minor: legacy}, kubever.Version{Minor: modern})
	if err != nil {
		return nil, err
	}
	return spec.Load(string(layout), text)
}

// between is the default spec of one pair as that of another: what differs are the versions, whether the modern side
// needs a service range of its own, and whether its pods need another token. Reading the text of every pair would take
// longer than judging it.
func between(base *spec.File, legacy, modern kubever.Minor) (*spec.File, error) {
	// without lines: no file was parsed
	f := spec.File{APIVersion: base.APIVersion, Kind: base.Kind, Metadata: base.Metadata, Spec: base.Spec}
	var err error
	if f.Spec.Legacy.Version, err = kubever.Parse(kubever.Release(legacy)); err != nil {
		return nil, err
	}
	if f.Spec.Modern.Version, err = kubever.Parse(kubever.Release(modern)); err != nil {
		return nil, err
	}
	f.Spec.Kubelet.Version = f.Spec.Legacy.Version
	if !spec.NeedsOwnRange(legacy, modern) {
		f.Spec.Network.ModernServiceCIDRs = nil
	}
	if spec.NeedsPods(f.Spec.Layout, legacy, modern) {
		f.Spec.Pods = &spec.Pods{}
		f.Default()
	}
	return &f, nil
}

// Grid draws the matrix as a table for a terminal: legacy versions down, modern ones across.
func Grid(layout spec.Layout, pairs []Pair) string {
	var b strings.Builder
	fmt.Fprintf(&b, "layout %s: rows are legacy versions, columns modern ones\n\nlegacy", layout)
	for _, m := range kubever.Minors() {
		fmt.Fprintf(&b, " %4s", fmt.Sprintf(".%d", m))
	}
	last := kubever.Minor(0)
	for _, pair := range pairs {
		if pair.Legacy != last {
			last = pair.Legacy
			fmt.Fprintf(&b, "\n%-6s%s", last, strings.Repeat("     ", int(last-kubever.Oldest)))
		}
		fmt.Fprintf(&b, " %4s", pair.mark())
	}
	fmt.Fprintf(&b, "\n\n%s", legend(pairs))
	return b.String()
}

// mark is a pair's cell: run for what real servers have proven, ok for what follows from the facts, the number of the
// rule that stands in the way, or no for what cannot be planned.
func (p Pair) mark() string {
	switch {
	case p.Possible && p.Proven:
		return "run"
	case p.Possible:
		return "ok"
	case p.Rule == "":
		return "no"
	}
	return strings.TrimPrefix(p.Rule, "FUS")
}

// legend explains the marks that occur.
func legend(pairs []Pair) string {
	titles := map[string]string{}
	for _, r := range all() {
		titles[r.ID] = r.Title + ", from the facts"
		if tests := r.Evidence.Damage; len(tests) > 0 {
			titles[r.ID] = r.Title + ", seen in " + strings.Join(tests, ", ")
		}
	}
	var lines []string
	possible, ran := 0, 0
	for _, pair := range pairs {
		line := ""
		switch {
		case pair.Possible && pair.Proven:
			possible++
			ran++
		case pair.Possible:
			possible++
		case pair.Rule == "":
			line = "no   " + pair.Reason
		default:
			line = pair.mark() + "  " + titles[pair.Rule]
		}
		if line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	lines = slices.Insert(lines, 0, fmt.Sprintf("ok   the default plan has no errors: %d of %d pairs", possible,
		len(pairs)), fmt.Sprintf("run  and real servers of both versions did what it promises: %d of these", ran))
	return strings.Join(lines, "\n") + "\n"
}

// MatrixPage is the matrix of every layout as a page of the documentation.
func MatrixPage() (string, error) {
	var b strings.Builder
	b.WriteString("# Which versions can live together\n\nFor every pair of versions, whether the plan that " +
		"`fusionctl init` starts from is\nwithout errors, and if not, the rule that stands in the way " +
		"([rules](rules/README.md)).\n`fusionctl check --matrix --layout split|shared` prints it. Your spec may need " +
		"less,\nor more: `fusionctl check` reports it.\n\nThe mark says how that is known: `run`, real servers of " +
		"both versions did it; `ok`, it\nfollows from the facts about both; a number, the rule forbids it, and the " +
		"legend says which\ntests did the damage with real servers, or that it follows from the facts; `no`, it " +
		"cannot be\nplanned, from the facts. [Evidence](evidence.md) lists what each test saw of which versions.\n")
	for _, layout := range spec.Layouts {
		pairs, err := Matrix(spec.Layout(layout))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\n## Layout %s\n\n```text\n%s```\n", layout, Grid(spec.Layout(layout), pairs))
	}
	return b.String(), nil
}
