package cli

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/preflight"
	"github.com/kubefusion/fusionctl/pkg/preflight/host"
	"github.com/kubefusion/fusionctl/pkg/render"
)

type preflightRequest struct {
	file    string
	host    string
	target  string
	staged  string
	runtime string
	skip    []string
	output  string
	failOn  string
	now     time.Time
}

// preflightDocument is the answer of preflight, and of render --verify, as JSON and YAML show it.
type preflightDocument struct {
	Schema     string   `json:"schema"`
	Hosts      []string `json:"hosts"`
	Complete   bool     `json:"complete"`   // false: not to be taken for clean
	Incomplete []string `json:"incomplete"` // what could not be looked at, and why
	Skipped    []string `json:"skipped,omitempty"`
	finding.Report
	Summary finding.Summary `json:"summary"`
}

// hostTargets are the targets whose components run on hosts.
var hostTargets = []string{string(render.StaticPod), string(render.Systemd)}

func newPreflightCmd(streams Streams) *cobra.Command {
	req := preflightRequest{}
	cmd := &cobra.Command{
		Use:   "preflight SPEC --host NAME",
		Short: "Report what is missing on this host before a plan starts on it",
		Long: `preflight runs on a host of the spec and compares it with what the components need that the plan starts
there. It reports every file that is missing, credentials that others can read, certificates that expired or soon will,
that are of another CA, lack a name or have another user, keys of other certificates, a front-proxy name that
--requestheader-allowed-names does not admit, service-account keys that do not match, ports of other processes, stores
that are unreachable or too old, images that are absent, and a kubelet that starts static pods from elsewhere. It
changes nothing, and reads private keys only to compare them. A legacy side that runs already needs nothing.

Anything that could not be looked at makes the answer incomplete, which is never reported as clean: run it as root, or
name what is not to be looked at with --skip. Files that render writes and that are not in their place yet are looked
for in --staged, the tree of this host.

"fusionctl render SPEC --verify ROOT" judges the files of a tree in the same way.

Exit codes: 0 nothing at or above --fail-on, 1 incomplete, 2 bad usage or a bad spec, 3 findings at or above --fail-on.`,
		Example: `  fusionctl preflight spec.yaml --host cp-1
  fusionctl preflight spec.yaml --host cp-1 --staged /root/fusion-kubeflow -o json
  fusionctl preflight spec.yaml --host cp-1 --target systemd --skip stores`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file, req.now = args[0], time.Now()
			return runPreflight(cmd.Context(), req, streams)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.host, "host", "", "name of this host in the spec; not needed where the spec has one")
	enumFlag(cmd, &req.target, "target", "", "target of the plan", hostTargets...)
	flags.StringVar(&req.staged, "staged", "", "tree of this host that render wrote, for files not in their place yet")
	flags.StringVar(&req.runtime, "runtime", "", "socket of the container runtime; default that of the kubelet")
	flags.StringSliceVar(&req.skip, "skip", nil, "what not to look at: "+strings.Join(host.Parts, ", "))
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml", "sarif", "html")
	enumFlag(cmd, &req.failOn, "fail-on", "", "the lowest severity of findings that makes the exit code 3", "error",
		"warning")
	return cmd
}

func runPreflight(ctx context.Context, req preflightRequest, streams Streams) error {
	for _, part := range req.skip {
		if !slices.Contains(host.Parts, part) {
			return usagef("--skip=%s: want one of %s", part, strings.Join(host.Parts, ", "))
		}
	}
	if req.staged != "" && !filetree.IsDir(req.staged) {
		return usagef("--staged=%s: is no directory", req.staged)
	}
	p, text, err := loadPlanAndText(streams, req.file, plan.OnHosts)
	if err != nil {
		return err
	}
	name, err := hostIn(p, req.host)
	if err != nil {
		return err
	}
	needs, err := preflight.New(p, name, render.Target(req.target))
	if err != nil {
		return badInput(err, "")
	}
	seen := host.Read(ctx, needs, host.Options{Staged: req.staged, Machine: true, Skip: req.skip, Runtime: req.runtime})
	if err := ctx.Err(); err != nil {
		return err
	}
	document := preflightDocument{Schema: "fusionctl/preflight/v1", Hosts: []string{name}, Skipped: req.skip,
		Incomplete: seen.Incomplete}
	document.Report, _ = finding.Accept(preflight.Check(needs, seen, req.now), p.Accept)
	inSpec(document.Findings, req.file, text)
	return reportPreflight(document, req.file, "Preflight of "+name, req.output, req.failOn, streams)
}

// hostIn is the host of the plan that was meant.
func hostIn(p *plan.Plan, name string) (string, error) {
	var names []string
	for _, h := range p.Hosts {
		names = append(names, h.Name)
	}
	switch {
	case name == "" && len(names) == 1:
		return names[0], nil
	case name == "":
		return "", badInput(errors.New("--host is missing"), "the plan has "+strings.Join(names, ", "))
	case !slices.Contains(names, name):
		return "", usagef("host %q: the plan has %s", name, strings.Join(names, ", "))
	}
	return name, nil
}

// reportPreflight prints the document, and says what it comes to.
func reportPreflight(document preflightDocument, file, title, output, failOn string, streams Streams) error {
	document.Complete, document.Summary = len(document.Incomplete) == 0, finding.Summarize(document.Findings)
	if document.Incomplete == nil {
		document.Incomplete = []string{}
	}
	if err := printPreflight(streams.Out, document, file, title, output); err != nil {
		return err
	}
	if !document.Complete {
		return withHint(errors.New("the check is incomplete:\n  "+strings.Join(document.Incomplete, "\n  ")), "")
	}
	return attention(document.Findings, failOn)
}

func printPreflight(w io.Writer, document preflightDocument, file, title, output string) error {
	if printed, err := printDocument(w, output, document); printed {
		return err
	}
	switch output {
	case "sarif":
		return printSARIF(w, finding.Hosts, file, document.Findings, document.Incomplete...)
	case "html":
		return preflightSheet(w, title, document)
	}
	printFindings(w, document.Report)
	verdict := "complete"
	if !document.Complete {
		verdict = "INCOMPLETE, which is not clean"
	}
	if len(document.Skipped) > 0 {
		verdict += ", without " + strings.Join(document.Skipped, ", ")
	}
	_, err := visible.Fprintf(w, "%s: %s; %s\n", strings.Join(document.Hosts, ", "),
		countsOf(document.Summary, len(document.Accepted)), verdict)
	return err
}
