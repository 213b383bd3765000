package cli

import (
	"cmp"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/catalog"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

type checkRequest struct {
	file    string // the spec; "" with legacy
	output  string
	failOn  string
	objects string // manifests to judge instead of the plan, "" for none
	legacy  string // the version that would rewrite them, when there is no spec
	matrix  bool
	layout  string // of the matrix

	live                               bool // what runs, instead of the plan
	legacyKubeconfig, modernKubeconfig string
	noFlags                            bool
}

// checkDocument is the answer of check as JSON and YAML show it.
type checkDocument struct {
	Schema string `json:"schema"`
	finding.Report
	Summary finding.Summary `json:"summary"`
}

func newCheckCmd(streams Streams) *cobra.Command {
	var req checkRequest
	cmd := &cobra.Command{
		Use:   "check SPEC | check SPEC --live | check [SPEC] --objects FILE | check --matrix",
		Short: "Report how the two versions of a spec damage each other",
		Long: `check plans a spec and applies every rule to the plan. Each finding has a fix; fusionctl explain RULE
describes its rule. Findings that the spec accepts are listed and do not count.

With --objects it reads manifests instead (YAML or JSON; - is standard input) and reports every field that the legacy
version would silently drop when it writes the object back, and what the loss does to scheduling and running. Without a
spec, --legacy gives that version.

With --live it reads both API servers instead and compares what runs with the plan: selectors that match the other
side's pods, owners that a garbage collector would not find, leader-election locks with two holders, flags that differ
from the plan's. It only reads, with the permissions of the kubeconfigs. Anything that it could not read makes the check
incomplete, which is never reported as clean: give both users permission to get and list everything or, where the
components are no static pods, use --no-flags.

With --matrix it prints, for every pair of versions, whether the default plan of a layout has errors, and the rule that
forbids the pair.

Exit codes: 0 nothing at or above --fail-on, 1 --live is incomplete, 2 bad spec or manifests, 3 findings at or above
--fail-on.`,
		Example: `  fusionctl check spec.yaml
  fusionctl check spec.yaml -o sarif
  fusionctl check spec.yaml --live --legacy-kubeconfig legacy.conf --modern-kubeconfig modern.conf
  kubectl get deployments -o yaml | fusionctl check spec.yaml --objects -
  fusionctl check --objects app.yaml --legacy 1.15
  fusionctl check --matrix --layout split`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				req.file = args[0]
			}
			if err := req.validate(cmd.Flags().Changed("layout")); err != nil {
				return badInput(err, cmd.CommandPath()+" --help lists what it accepts")
			}
			switch {
			case req.matrix:
				return runMatrix(req, streams)
			case req.objects != "":
				return runCheckObjects(req, streams)
			case req.live:
				return runCheckLive(cmd.Context(), req, streams)
			}
			return runCheck(req, streams)
		},
	}
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml", "sarif",
		"html")
	enumFlag(cmd, &req.failOn, "fail-on", "", "the lowest severity of findings that makes the exit code 3", "error",
		"warning")
	cmd.Flags().StringVar(&req.objects, "objects", "", "manifests to check instead of the plan; - is standard input")
	cmd.Flags().StringVar(&req.legacy, "legacy", "",
		"with --objects and without a spec: the version that would write them back")
	cmd.Flags().BoolVar(&req.matrix, "matrix", false, "check the default plans of all pairs of versions")
	cmd.Flags().BoolVar(&req.live, "live", false, "read both API servers and compare what runs with the plan")
	cmd.Flags().StringVar(&req.legacyKubeconfig, "legacy-kubeconfig", "",
		"with --live: kubeconfig of the legacy API server")
	cmd.Flags().StringVar(&req.modernKubeconfig, "modern-kubeconfig", "",
		"with --live: kubeconfig of the modern API server")
	cmd.Flags().BoolVar(&req.noFlags, "no-flags", false, "with --live: do not compare the arguments of components")
	enumFlag(cmd, &req.layout, "layout", "", "the layout of the matrix", string(spec.LayoutSplit),
		string(spec.LayoutShared))
	return cmd
}

// validate refuses flags that contradict each other.
func (r *checkRequest) validate(layoutGiven bool) error {
	switch {
	case !r.live && r.legacyKubeconfig+r.modernKubeconfig != "":
		return errors.New("--legacy-kubeconfig and --modern-kubeconfig: only with --live")
	case !r.live && r.noFlags:
		return errors.New("--no-flags: only with --live")
	case r.live && (r.matrix || r.objects != ""):
		return errors.New("--live, --matrix and --objects: want one of them")
	case r.live && r.file == "":
		return errors.New("--live: want the spec of the pair")
	case r.live && (r.legacyKubeconfig == "" || r.modernKubeconfig == ""):
		return errors.New("--live: want --legacy-kubeconfig and --modern-kubeconfig")
	case r.matrix && (r.file != "" || r.objects != "" || r.legacy != ""):
		return errors.New("--matrix covers all pairs of versions: it takes no spec, no --objects and no --legacy")
	case r.matrix && r.output == "sarif":
		return errors.New("--matrix has no findings in files: want -o table, json or yaml")
	case r.matrix:
		return nil
	case layoutGiven:
		return errors.New("--layout: only with --matrix")
	case r.legacy != "" && r.objects == "":
		return errors.New("--legacy: only with --objects")
	case r.legacy != "" && r.file != "":
		return errors.New("the spec gives the legacy version: want it or --legacy")
	case r.file == "" && r.objects != "" && r.legacy == "":
		return errors.New("--objects: want a spec, or --legacy VERSION")
	case r.file == "" && r.objects == "":
		return errors.New("want a spec, --matrix or --objects")
	case r.file == "-" && r.objects == "-":
		return errors.New("the spec and the manifests cannot both be standard input")
	}
	return nil
}

func runCheck(req checkRequest, streams Streams) error {
	p, text, err := loadPlanAndText(streams, req.file, plan.OnHosts)
	if err != nil {
		return err
	}
	report := catalog.Check(p)
	inSpec(report.Findings, req.file, text)
	if err := printReport(streams.Out, req, report); err != nil {
		return err
	}
	return attention(report.Findings, req.failOn)
}

func printReport(w io.Writer, req checkRequest, report finding.Report) error {
	document := checkDocument{Schema: "fusionctl/check/v1", Report: report, Summary: finding.Summarize(report.Findings)}
	if printed, err := printDocument(w, req.output, document); printed {
		return err
	}
	if req.output == "sarif" {
		file := req.file
		if req.objects != "" {
			file = req.objects
		}
		return printSARIF(w, finding.Plans, file, report.Findings)
	}
	if req.output == "html" {
		return checkSheet(w, cmp.Or(req.objects, req.file), report, nil)
	}
	if req.objects == "" { // of objects there may be thousands
		report.Findings = grouped(report.Findings)
	}
	printFindings(w, report)
	_, err := visible.Fprintln(w, countsOf(document.Summary, len(report.Accepted)))
	return err
}
