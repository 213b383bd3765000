package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/docs"
	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/catalog"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
	"github.com/kubefusion/fusionctl/pkg/etcd/scan"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/graph"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/report"
	"github.com/kubefusion/fusionctl/pkg/restart"
)

type reportRequest struct {
	file     string // the spec
	output   string // html, markdown or the name of a file
	target   string
	diff     string // directory of what runs today, "" for none
	host     string // whose files it has, "" for one with a subdirectory for each host
	restarts string // answer of restarts plan -o json, "" for none
	contents bool   // read the stores at the spec's endpoints
	stores   storesRequest
}

func newReportCmd(streams Streams) *cobra.Command {
	var req reportRequest
	cmd := &cobra.Command{
		Use:   "report SPEC",
		Short: "Write one page about a plan, for approvers, reviewers and on-call engineers",
		Long: `report writes one HTML page about a plan: a picture, the verdict and the findings, who owns each
resource, which controllers run, every flag with its reason, who may do what, the runbook, and what real servers of
these minors did. The page loads nothing from anywhere and can be read without scripts.

--diff DIR adds what changes against the manifests or units of DIR, --restarts FILE what new kubelets restart, by the
answer of fusionctl restarts plan -o json. --contents reads the stores at the spec's endpoints, --endpoints at others,
--snapshot from files: the page then has their contents and what fusionctl etcd check finds.

-o FILE.html and -o FILE.md write a file, -o html and -o markdown print.

Exit codes: 0 written, 1 could not write, or a store or an answer of restarts plan was not read
to its end; 2 bad usage or a bad spec, 3 written,
and there are errors; 130 interrupted.`,
		Example: `  fusionctl report spec.yaml -o report.html
  fusionctl report spec.yaml -o markdown --diff /etc/kubernetes/manifests
  fusionctl report spec.yaml -o report.html --snapshot core=core.db --snapshot modern=modern.db`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file = args[0]
			return runReport(cmd.Context(), req, streams)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&req.output, "output", "o", "html",
		"html or markdown to print one; or the file to write, *.html or *.md")
	enumFlag(cmd, &req.target, "target", "", "what runs the components, for the runbook", render.Targets...)
	flags.StringVar(&req.diff, "diff", "", "directory of manifests or units of today, to compare with")
	flags.StringVar(&req.host, "host", "", "host whose files --diff has, without a subdirectory for each host")
	flags.StringVar(&req.restarts, "restarts", "", "an answer of fusionctl restarts plan -o json")
	flags.BoolVar(&req.contents, "contents", false, "read the stores at the spec's endpoints")
	storesFlags(cmd, &req.stores)
	return cmd
}

func runReport(ctx context.Context, req reportRequest, streams Streams) error {
	write, toFile := report.HTML, false
	switch {
	case req.output == "html":
	case req.output == "markdown":
		write = report.Markdown
	case strings.HasSuffix(req.output, ".html"):
		toFile = true
	case strings.HasSuffix(req.output, ".md"):
		write, toFile = report.Markdown, true
	default:
		return usagef("-o %s: want html, markdown, or a file that ends in .html or .md", req.output)
	}
	in, err := newReport(ctx, req, streams)
	if err != nil {
		return err
	}
	if toFile {
		err = filetree.Replace(req.output, 0o600, func(w *bufio.Writer) error { return write(w, in) })
	} else {
		err = write(asData(streams.Out), in)
	}
	if err != nil {
		return err
	}
	if lines := in.Incomplete(); len(lines) > 0 {
		return fmt.Errorf("the report is incomplete:\n  %s", strings.Join(lines, "\n  "))
	}
	findings := slices.Clone(in.Check.Findings)
	if in.Contents != nil {
		findings = append(findings, in.Contents.Findings...)
	}
	if toFile {
		visible.Fprintf(streams.Err, "wrote %s\n", req.output)
	}
	return attention(findings, finding.Error.String())
}

// newReport reads what the page is made of.
func newReport(ctx context.Context, req reportRequest, streams Streams) (*report.Input, error) {
	p, err := loadPlanFor(streams, req.file, render.Target(req.target).Plan())
	if err != nil {
		return nil, err
	}
	in, err := report.New(p, req.file, render.Target(req.target), catalog.Check(p))
	if err != nil {
		return nil, badInput(err, "")
	}
	in.Rules, in.Evidence = catalog.Rules(), docs.Evidence
	if in.Picture, err = graph.SVG(ctx, report.Graph(p)); err != nil {
		return nil, err
	}
	if req.diff != "" {
		document, err := diffOf(p, renderRequest{file: req.file, target: req.target, diff: req.diff, host: req.host},
			streams)
		if err != nil {
			return nil, err
		}
		in.Differences, in.DiffOf = document.Components, req.diff
	}
	if req.restarts != "" {
		if in.Restarts, err = readRestarts(streams, req.restarts); err != nil {
			return nil, err
		}
	}
	if req.contents || len(req.stores.endpoints)+len(req.stores.snapshots) > 0 {
		if in.Contents, err = readContents(ctx, p, req.stores, streams); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// readRestarts reads an answer of restarts plan.
func readRestarts(streams Streams, file string) (*report.Restarts, error) {
	f, err := openInput(streams, file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	restarts := &report.Restarts{File: file}
	decoder := json.NewDecoder(f)
	if err := decoder.Decode(restarts); err != nil {
		return nil, badInput(fmt.Errorf("%s: %w", file, err), "fusionctl restarts plan -o json writes it")
	}
	if restarts.Schema != restart.Schema {
		return nil, badInput(fmt.Errorf("%s: schema %q: want %s", file, restarts.Schema, restart.Schema),
			"fusionctl restarts plan -o json writes it")
	}
	if err := decoder.Decode(new(json.RawMessage)); !errors.Is(err, io.EOF) {
		return nil, badInput(fmt.Errorf("%s: more than one document", file), "")
	}
	return restarts, nil
}

// readContents sums up and checks what the stores hold. What could not be read is said, and the rest is shown.
func readContents(ctx context.Context, p *plan.Plan, req storesRequest, streams Streams) (*report.Contents, error) {
	stores, err := openStores(ctx, req, p)
	if err != nil {
		return nil, err
	}
	defer closeStores(stores)
	limitMemory(ctx)
	ownership := p.Ownership()
	progress := newProgress(streams.Err)
	options := req.scanOptions(string(scan.DepthEnvelope), 2)
	options.Progress = progress.step
	scanned, err := etcdv3.Scan(ctx, &ownership, opened(stores), options)
	progress.done()
	if err != nil {
		return nil, err
	}
	contents := &report.Contents{Accepted: scanned.Accept(p.Accept), Incomplete: scanned.Incomplete}
	contents.Findings = scanned.Findings
	for _, r := range scanned.Resources {
		contents.Resources = append(contents.Resources,
			report.Stored{Store: r.Store, Resource: r.Resource, Owner: r.Owner, Keys: r.Keys, Bytes: r.Bytes})
	}
	if !scanned.Complete && len(contents.Incomplete) == 0 {
		contents.Incomplete = []string{"the stores were not read to their end"}
	}
	return contents, nil
}
