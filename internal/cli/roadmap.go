package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/transition/roadmap"
)

// mostNamed bounds what a line of the roadmap lists.
const mostNamed = 8

type roadmapRequest struct {
	file, to, target string
	installed        bool
	output           string
}

func newRoadmapCmd(streams Streams) *cobra.Command {
	var req roadmapRequest
	cmd := &cobra.Command{
		Use:   "roadmap SPEC --to VERSION",
		Short: "Print the recommended sequence of transitions to a modern version",
		Long: `roadmap plans the stages by which the cluster of a spec comes to a modern version: install, the modern
side up, the legacy side up, workloads handed over, nodes over, the legacy side retired. Between the modern version of
the spec and that one it takes the fewest releases such that each decodes what the one before it writes. The legacy side
goes up where more of it can be handed over from a newer minor, or where the nodes' plan has an error without that. For
each stage it prints the change of the spec, the API versions that are gained and lost, the components that start, what
has to be read before, and the findings that the stage brings. Nothing is read but the spec.

A spec that is in the middle of the way gets the stages that are left. With handedOver, kubelet.modern or
legacy.retired in it the modern side runs already; --installed says so of any other spec. The roadmap ends with what the
legacy side still owns where it cannot be retired.

Exit codes: 0 done, 2 bad usage or a bad spec, 3 done and a stage cannot be done as it stands: it is refused, brings a
finding that is an error, or wants stored objects rewritten before.`,
		Example: `  fusionctl roadmap spec.yaml --to 1.36
  fusionctl roadmap spec.yaml --to 1.36.3 -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			req.file = args[0]
			return runRoadmap(req, streams)
		},
	}
	cmd.Flags().StringVar(&req.to, "to", "", "version of the modern side at the end, such as 1.36")
	cmd.Flags().BoolVar(&req.installed, "installed", false, "the plan of the spec runs already: no stage installs it")
	enumFlag(cmd, &req.target, "target", "", "what runs the components", string(render.StaticPod),
		string(render.Systemd))
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

func runRoadmap(req roadmapRequest, streams Streams) error {
	if req.to == "" {
		return usagef("--to: want a version, such as 1.36")
	}
	to, err := parseVersionFlag("to", req.to)
	if err != nil {
		return err
	}
	data, err := readInput(streams, req.file, specLimitBytes)
	if err != nil {
		return err
	}
	m, err := roadmap.New(func() (*spec.File, error) {
		f, _, err := spec.Parse(req.file, data)
		return f, err
	}, render.Target(req.target), to, req.installed)
	if err != nil {
		return badInput(err, "fusionctl init split prints a commented spec to compare with")
	}
	document := struct {
		Schema string `json:"schema"`
		*roadmap.Roadmap
	}{"fusionctl/roadmap/v1", m}
	printed, err := printDocument(streams.Out, req.output, document)
	if !printed {
		err = printRoadmap(streams.Out, req.file, m)
	}
	for i := range m.Stages {
		if err == nil && m.Stages[i].Blocked() {
			err = errAttention
		}
	}
	return err
}

func printRoadmap(w io.Writer, file string, m *roadmap.Roadmap) error {
	visible.Fprintf(w, "%s: legacy %s, modern %s to %s\n", m.Name, m.Legacy, m.From, m.To)
	if m.Running != "" {
		visible.Fprintf(w, "the modern side runs already: %s says so\n", m.Running)
	}
	for i := range m.Stages {
		printStage(w, i, file, &m.Stages[i])
	}
	if len(m.Stages) == 0 {
		visible.Fprintf(w, "\nnothing is left to do\n")
	}
	if m.NotRetired == "" && len(m.Left) == 0 {
		_, err := visible.Fprintf(w, "\nafterwards the modern side runs alone\n")
		return err
	}
	if m.NotRetired != "" {
		visible.Fprintf(w, "\nthe legacy side cannot be retired then: %s\n", m.NotRetired)
	}
	_, err := visible.Fprintf(w, "\nafterwards the legacy side still owns %s: %s\n",
		prose.Counted(len(m.Left), "resource"), cmp.Or(prose.First(m.Left, mostNamed), "none"))
	return err
}

func printStage(w io.Writer, i int, file string, s *roadmap.Stage) {
	version := "modern " + s.Modern
	if s.Kind == roadmap.LegacyUp {
		version = "legacy " + s.Legacy
	}
	visible.Fprintf(w, "\n%d. %s: %s\n", i+1, s.Kind, version)
	line := func(name, format string, args ...any) {
		visible.Fprintf(w, "   %-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	for _, change := range s.Change {
		line("spec", "%s", change)
	}
	for _, reason := range s.Why {
		line("because", "%s", reason)
	}
	for _, other := range s.Instead {
		line("or", "%s", other)
	}
	for _, reason := range s.Refused {
		line("refused", "%s", reason)
	}
	if s.Outside != "" {
		line("by hand", "%s", s.Outside)
	} else {
		printStageSteps(line, s)
	}
	if len(s.Gained) > 0 {
		line("gains", "%s: %s", prose.Counted(len(s.Gained), "API version"), prose.First(s.Gained, mostNamed))
	}
	if len(s.Lost) > 0 {
		line("loses", "%s: %s", prose.Counted(len(s.Lost), "API version"), prose.First(s.Lost, mostNamed))
	}
	printStageObjects(line, s)
	if len(s.Brought) > 0 {
		line("risks", "%s", risks(s.Brought))
	}
	if len(s.Resolved) > 0 {
		line("resolves", "%s", strings.Join(s.Resolved, ", "))
	}
	reads := ""
	if len(s.Unread) > 0 || s.Prepare {
		reads = " --read-stores"
	}
	if s.Prepare {
		reads += " --prepare"
	}
	switch {
	case len(s.Refused) > 0 || s.Outside != "":
	case s.Kind == roadmap.Install:
		line("plan", "fusionctl transition plan none %s", file)
	default:
		line("plan", "fusionctl transition plan BEFORE AFTER%s, the spec before and after the change", reads)
	}
}

// printStageSteps prints what the steps of a stage do.
func printStageSteps(line func(name, format string, args ...any), s *roadmap.Stage) {
	line("steps", "%s, %d of them by hand; waits for %s, each at most %s (--wait)", prose.Counted(s.Steps, "step"),
		s.ByHand, prose.Counted(s.Waits, "component"), transitionWait)
	takes := "about " + time.Duration(s.Seconds*int(time.Second)).String()
	if s.ByHand > 0 {
		takes += ", and what is done by hand"
	}
	if s.EachNode > 0 {
		takes += fmt.Sprintf(", and %d s for each node", s.EachNode)
	}
	line("takes", "%s", takes)
	if len(s.Started) > 0 {
		line("starts", "%s", strings.Join(s.Started, ", "))
	}
	switch s.Kind {
	case roadmap.Nodes:
		line("restarts", "what fusionctl restarts plan --from the kubelets' version --to %s says, node by node; "+
			"transitions change those of spec.kubelet.modern.nodes, see docs/nodes.md", s.Modern)
	default:
		line("restarts", "no container of a workload")
	}
}

// printStageObjects prints what is done about stored objects before a stage.
func printStageObjects(line func(name, format string, args ...any), s *roadmap.Stage) {
	if len(s.Rewrite) > 0 {
		line("rewrite", "objects of %s, before: the next version does not decode what this one writes",
			prose.First(s.Rewrite, mostNamed))
	}
	if len(s.Migrate) > 0 {
		line("migrates", "objects of %s that were not written since the release before: write them again through the "+
			"modern API server first", prose.First(s.Migrate, mostNamed))
	}
	if len(s.Unread) > 0 {
		line("reads", "the stores are read before, with --read-stores: %s", prose.First(s.Unread, mostNamed))
	}
	if len(s.Empty) > 0 {
		line("empty", "the legacy side must have no objects of its own of %s: %s", prose.Counted(len(s.Empty),
			"resource"), prose.First(s.Empty, mostNamed))
	}
	for _, stays := range s.Stays {
		line("stays", "%s", stays)
	}
}

// risks counts findings by rule, errors first.
func risks(findings []finding.Finding) string {
	summary := finding.Summarize(findings)
	var rules []string
	seen := map[string]bool{}
	for _, f := range findings {
		if !seen[f.Rule] && f.Severity >= finding.Warning {
			seen[f.Rule] = true
			rules = append(rules, f.Rule)
		}
	}
	text := countsOf(summary, 0)
	if len(rules) > 0 {
		text += ": " + prose.First(rules, mostNamed)
	}
	return text
}
