package cli

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/migrate"
	"github.com/kubefusion/fusionctl/pkg/migrate/live"
)

type crdDiffRequest struct {
	old, new   string // files; old "" is the cluster
	kubeconfig string
	context    string
	failOn     string
	output     string
}

type crdDiffDocument struct {
	Schema   string            `json:"schema"`
	Findings []finding.Finding `json:"findings"`
	Summary  finding.Summary   `json:"summary"`
}

func newCRDDiffCmd(streams Streams) *cobra.Command {
	var req crdDiffRequest
	cmd := &cobra.Command{
		Use:   "diff (OLD NEW | NEW --kubeconfig FILE)",
		Short: "Report what a change of CRDs breaks, for clients and for stored objects",
		Long: `diff compares the old CRDs with the new ones and lists what breaks: versions that are removed or no
longer served, fields that would be pruned, types, limits and required fields that stored objects may not satisfy,
conversions that lose fields. Changes that allow more than before are not reported.

OLD and NEW are files in YAML or JSON with any number of CRDs of apiextensions.k8s.io/v1 and v1beta1, among other
objects; - is standard input. With --kubeconfig, NEW is compared with the CRDs of the cluster.

fusionctl explain FUS304 describes a rule.

Exit codes: 0 nothing found, 1 could not finish, 2 bad usage or a bad file, 3 findings, 130 interrupted.`,
		Example: `  fusionctl crd diff pizzas-old.yaml pizzas-new.yaml
  fusionctl crd diff pizzas-new.yaml --kubeconfig modern.conf
  git show main:crds.yaml | fusionctl crd diff - crds.yaml --fail-on warning -o json`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.new = args[len(args)-1]
			if len(args) == 2 {
				req.old = args[0]
			}
			return runCRDDiff(cmd.Context(), req, streams)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.kubeconfig, "kubeconfig", "", "compare with the CRDs of the cluster of this kubeconfig")
	flags.StringVar(&req.context, "context", "", "context of the kubeconfig (default its current one)")
	enumFlag(cmd, &req.failOn, "fail-on", "", "the lowest severity that makes the exit code 3", "error", "warning",
		"info")
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

func runCRDDiff(ctx context.Context, req crdDiffRequest, streams Streams) error {
	switch {
	case req.old == "" && req.kubeconfig == "":
		return usagef("compare with what? want OLD, or --kubeconfig")
	case req.old != "" && req.kubeconfig != "":
		return usagef("OLD and --kubeconfig: want one of them")
	}
	if err := checkStdinOnce([]string{req.old, req.new}); err != nil {
		return err
	}
	document, compared, err := req.compare(ctx, streams)
	if err != nil {
		return err
	}
	if err := printCRDDiff(streams.Out, req.output, document, compared); err != nil {
		return err
	}
	return attention(document.Findings, req.failOn)
}

// compare finds what breaks, and counts the new CRDs. A terminal shows how far it is: schemas may have megabytes.
func (r *crdDiffRequest) compare(ctx context.Context, streams Streams) (crdDiffDocument, int, error) {
	progress := &stepProgress{noun: "CRDs", between: "reading CRDs"}
	defer drawLine(streams.Err, progress.line)()
	document := crdDiffDocument{Schema: "fusionctl/crd-diff/v1", Findings: []finding.Finding{}}
	after, err := readDefinitions(streams, r.new)
	if err != nil {
		return document, 0, err
	}
	before, err := r.before(ctx, streams, after, progress)
	if err != nil {
		return document, 0, err
	}
	for i, name := range slices.Sorted(maps.Keys(before)) {
		if err := ctx.Err(); err != nil {
			return document, 0, err
		}
		if now, ok := after[name]; ok {
			document.Findings = append(document.Findings, migrate.Diff(before[name], now)...)
		} else {
			document.Findings = append(document.Findings, migrate.Removed(before[name]))
		}
		progress.reach("compared", int64(i+1), int64(len(before)))
	}
	finding.Sort(document.Findings)
	document.Summary = finding.Summarize(document.Findings)
	return document, len(after), nil
}

// before is what the new CRDs are compared with. Of a cluster it is the CRDs of the same names: what else it has is no
// matter of the file's.
func (r *crdDiffRequest) before(
	ctx context.Context, streams Streams, after map[string]*migrate.Definition, progress *stepProgress,
) (map[string]*migrate.Definition, error) {
	if r.old != "" {
		return readDefinitions(streams, r.old)
	}
	config, err := kubeconfig(ctx, r.kubeconfig, r.context)
	if err != nil {
		return nil, err
	}
	server, err := live.Open(config, nil)
	if err != nil {
		return nil, badInput(err, "")
	}
	before := map[string]*migrate.Definition{}
	for i, name := range slices.Sorted(maps.Keys(after)) {
		progress.reach("fetched", int64(i), int64(len(after)))
		switch d, err := server.Definition(ctx, name); {
		case errors.Is(err, live.ErrNoDefinition): // it is new
		case err != nil:
			return nil, err
		default:
			before[name] = d
		}
	}
	return before, nil
}

func printCRDDiff(w io.Writer, output string, d crdDiffDocument, compared int) error {
	if printed, err := printDocument(w, output, d); printed {
		return err
	}
	for _, f := range d.Findings {
		printFinding(w, f)
	}
	_, err := visible.Fprintf(w, "%s: %s, %s, %s\n", prose.Counted(compared, "CRD"),
		prose.Counted(d.Summary.Errors, "error"),
		prose.Counted(d.Summary.Warnings, "warning"), prose.Counted(d.Summary.Infos, "info"))
	return err
}
