package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
	"github.com/kubefusion/fusionctl/pkg/etcd/scan"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

type etcdCheckRequest struct {
	file     string
	output   string
	depth    string
	failOn   string
	parallel int
	stores   storesRequest
}

// etcdCheckDocument is a report as JSON and YAML show it.
type etcdCheckDocument struct {
	Schema string `json:"schema"`
	*scan.Report
	Accepted []finding.Accepted `json:"accepted,omitempty"`
	Summary  etcdCheckSummary   `json:"summary"`
}

type etcdCheckSummary struct {
	finding.Summary
	Keys  int64 `json:"keys"`
	Bytes int64 `json:"bytes"`
}

func newEtcdCheckCmd(streams Streams) *cobra.Command {
	var req etcdCheckRequest
	cmd := &cobra.Command{
		Use:   "check SPEC",
		Short: "Check that every etcd key is owned by the side that should own it",
		Long: `check reads the stores of a spec, live or from files, and compares every key with the plan: whether it is
in the store of its owner, whether every side that reads it there can decode the stored version, whether owner
references, namespaces and service accounts exist for the controllers that act on them, and whether allocators, CRDs and
APIServices agree with the objects.

It only reads. A store that could not be read to its end makes the check incomplete, which is never reported as clean.

Depth keys reads no values; envelope (the default) reads types, owner references and the objects on which others depend;
objects also looks for fields that a side would drop when it writes the object back.

Exit codes: 0 nothing found, 1 incomplete, 2 bad usage or a bad spec, 3 findings, 130 interrupted.`,
		Example: `  fusionctl etcd check fused.yaml
  fusionctl etcd check fused.yaml --endpoints core=https://10.0.0.11:2379,https://10.0.0.12:2379 --depth keys
  fusionctl etcd check fused.yaml --snapshot core=core.db --snapshot modern=modern.db -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file = args[0]
			return runEtcdCheck(cmd.Context(), req, streams)
		},
	}
	storesFlags(cmd, &req.stores)
	enumFlag(cmd, &req.depth, "depth", "", "how much to read", words(scan.Depths())...)
	enumFlag(cmd, &req.failOn, "fail-on", "", "the lowest severity that makes the exit code 3", "error", "warning",
		"info")
	cmd.Flags().IntVar(&req.parallel, "parallel", 2, "ranges of a store to read at a time")
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml", "html")
	return cmd
}

func runEtcdCheck(ctx context.Context, req etcdCheckRequest, streams Streams) error {
	if req.parallel < 1 || req.parallel > 64 {
		return usagef("--parallel %d: want 1 to 64", req.parallel)
	}
	p, err := loadPlan(streams, req.file)
	if err != nil {
		return err
	}
	stores, err := openStores(ctx, req.stores, p)
	if err != nil {
		return err
	}
	defer closeStores(stores)
	limitMemory(ctx)
	ownership := p.Ownership()
	options := req.stores.scanOptions(req.depth, req.parallel)
	progress := newProgress(streams.Err)
	options.Progress = progress.step
	report, err := etcdv3.Scan(ctx, &ownership, opened(stores), options)
	progress.done()
	if err != nil {
		return err
	}
	if err := printEtcdCheck(streams.Out, req.output, report, report.Accept(p.Accept)); err != nil {
		return err
	}
	if !report.Complete {
		return withHint(errors.New("the check is incomplete:\n  "+strings.Join(report.Incomplete, "\n  ")),
			storeHint(report.Cause))
	}
	return attention(report.Findings, req.failOn)
}

func printEtcdCheck(w io.Writer, output string, report *scan.Report, accepted []finding.Accepted) error {
	document := etcdCheckDocument{Schema: "fusionctl/etcd-check/v1", Report: report, Accepted: accepted,
		Summary: etcdCheckSummary{Summary: finding.Summarize(report.Findings)}}
	for _, s := range report.Stores {
		document.Summary.Keys += s.Keys
		document.Summary.Bytes += s.Bytes
	}
	if printed, err := printDocument(w, output, document); printed {
		return err
	}
	if output == "html" {
		return etcdSheet(w, document)
	}
	return printEtcdCheckTable(w, document)
}

func printEtcdCheckTable(w io.Writer, document etcdCheckDocument) error {
	report, summary := document.Report, document.Summary
	err := printTable(w, func(t io.Writer) {
		visible.Fprintln(t, "STORE\tREVISION\tKEYS\tBYTES\tOUTSIDE")
		for _, s := range report.Stores {
			visible.Fprintf(t, "%s\t%d\t%d\t%s\t%d\n", s.Name, s.Revision, s.Keys, size(s.Bytes, report.Depth),
				s.Outside)
		}
	})
	for _, s := range report.Stores {
		for _, note := range s.Notes {
			visible.Fprintf(w, "%s: %s\n", s.Name, note)
		}
	}
	visible.Fprintln(w)
	if err == nil {
		err = printTable(w, func(t io.Writer) { printEtcdResources(t, report) })
	}
	if len(report.Findings) > 0 {
		visible.Fprintln(w)
	}
	for _, f := range report.Findings {
		printFinding(w, f)
	}
	printAccepted(w, document.Accepted)
	verdict := "complete"
	if !report.Complete {
		verdict = "INCOMPLETE, which is not clean"
	}
	visible.Fprintf(w, "\n%d keys: %s; %s\n", summary.Keys, countsOf(summary.Summary, len(document.Accepted)), verdict)
	return err
}

func printEtcdResources(t io.Writer, report *scan.Report) {
	visible.Fprintln(t, "RESOURCE\tSTORE\tOWNER\tKEYS\tBYTES\tSTORED AS\tVERDICT")
	for _, r := range report.Resources {
		var types []string
		for _, s := range r.Types {
			types = append(types, storedType(s, r.Kind, len(r.Types) > 1))
		}
		verdict := strings.TrimSpace(r.Verdict + " " + strings.Join(r.Rules, ","))
		visible.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", r.Resource, r.Store, dash(string(r.Owner)), r.Keys,
			size(r.Bytes, report.Depth), dash(strings.Join(types, " ")), verdict)
	}
}

// storedType prints a stored type, with its kind where that is not the one that belongs there.
func storedType(s scan.StoredReport, kind string, counts bool) string {
	text := s.APIVersion
	if kind != "" && s.Kind != kind {
		text += "/" + s.Kind
	}
	if s.Encoding == storage.Encrypted {
		text = "encrypted"
	}
	if counts {
		text += fmt.Sprintf("(%d)", s.Keys)
	}
	return text
}

// size prints bytes, or a dash where values were not read.
func size(bytes int64, depth scan.Depth) string {
	if depth == scan.DepthKeys {
		return "-"
	}
	return fmt.Sprint(bytes)
}
