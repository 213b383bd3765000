package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/manifest"
	"github.com/kubefusion/fusionctl/pkg/convert/stream"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kube"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/report"
)

// convertCheckRequest says which objects are looked at, and for which release.
type convertCheckRequest struct {
	files      []string
	kubeconfig string
	context    string
	helm       bool
	minor      string
	output     string
	failOn     string
	all        bool
	strict     bool
	keepGoing  bool
	moved      string // a file
}

func newConvertCheckCmd(streams Streams) *cobra.Command {
	var req convertCheckRequest
	cmd := &cobra.Command{
		Use:   "check {-f FILE|DIR|- | --kubeconfig FILE} [--helm] --for MINOR",
		Short: "Report objects in API versions that a release deprecates or does not have",
		Long: `Lists the objects whose API version a release deprecates, no longer has or does not have yet, since when or with
which release, what replaces it, and whether they convert to it without loss. Objects come from files, from standard
input, or from a cluster: there the versions that clients wrote count (kubectl's last applied configuration and
managedFields), since an API server returns an object in any version that it serves. What kube-apiserver,
kube-controller-manager and kube-scheduler wrote does not: they come with the release.

STATUS is removed; later, of a version that comes with a later release; deprecated; off, of one that is served only with
--runtime-config; or unknown, of one of Kubernetes' own groups that no release has.

A reference to an object in a version that the release does not have is listed like an object in that version, with its
path: what an autoscaler scales (spec.scaleTargetRef) and, in files, the owners of an object (metadata.ownerReferences).
So is what names resources by groups and versions that the release serves no more, and is silently without effect there:
rules of webhooks, admission policies and their bindings, rules of roles, count/ limits of quotas, APIServices.

Documents that are no objects of Kubernetes (charts, values, templates, kustomizations) are skipped and counted. Kinds
of other projects that moved, cert-manager's and Istio's among them, are known; --moved adds to them. The version in
which kubectl last applied an object of a file counts too.

With --helm the manifests in the deployed revision of Helm releases are checked: Secrets and ConfigMaps of Helm 3 and of
Helm 2, in files or in the cluster.

Exit codes: 0 nothing found, 1 could not finish, 2 bad usage or input that cannot be read, 3 findings were reported.`,
		Example: `  fusionctl convert check -f manifests/ --for 1.36
  fusionctl convert check --kubeconfig prod.conf --helm --for 1.25 -o csv
  kubectl get secrets -A -l owner=helm -o json | fusionctl convert check -f - --helm --for 1.36`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case len(req.files) == 0 && req.kubeconfig == "":
				return badInput(errors.New("which objects? want --file or --kubeconfig"),
					"kubectl get deploy,ing -A -o yaml shows them in the server's version, not in that of their "+
						"authors")
			case len(req.files) > 0 && req.kubeconfig != "":
				return usagef("--file and --kubeconfig: want one of them")
			case req.minor == "":
				return badInput(errors.New("for which release? want --for"), "--for 1.36")
			}
			if err := checkStdinOnce(req.files); err != nil {
				return err
			}
			return runConvertCheck(cmd.Context(), req, streams)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&req.files, "file", "f", nil,
		"file or directory of YAML and JSON; - is standard input; repeat for more")
	flags.StringVar(&req.kubeconfig, "kubeconfig", "", "check the cluster of this kubeconfig")
	flags.StringVar(&req.context, "context", "", "context of the kubeconfig (default its current one)")
	flags.BoolVar(&req.helm, "helm", false, "check the manifests in Helm releases")
	flags.StringVar(&req.minor, "for", "", "the release, such as 1.36")
	flags.BoolVar(&req.strict, "strict", false, "refuse what is no object of Kubernetes: charts, values, templates")
	flags.BoolVar(&req.keepGoing, "keep-going", false, "name what cannot be read, and exit 3 instead of 2")
	flags.StringVar(&req.moved, "moved", "", "file of further kinds that moved, in the format of pluto's versions.yaml")
	flags.BoolVar(&req.all, "all", false, "also list the objects without findings")
	enumFlag(cmd, &req.output, "output", "o", "format", "table", "json", "yaml", "csv", "markdown", "html")
	enumFlag(cmd, &req.failOn, "fail-on", "", "what makes the exit code 3", "removed", "deprecated")
	return cmd
}

func runConvertCheck(ctx context.Context, req convertCheckRequest, streams Streams) error {
	version, err := parseVersionFlag("for", req.minor)
	if err != nil {
		return err
	}
	converter, err := convert.New()
	if err != nil {
		return err
	}
	defer collectLess()()
	read := &objectsRead{}
	streams, done := showObjects(streams, read)
	defer done()
	rows := checkRows(req, streams, version.Minor)
	c := stream.NewCheck(converter, version.Minor, func(v stream.Verdict) error {
		read.count.Add(1)
		if !req.all && (v.Status == "ok" || v.Status == "custom") {
			return nil
		}
		header := []string{"PLACE", "OBJECT", "VERSION", "STATUS", "SINCE", "REPLACEMENT", "LOSSLESS", "WHY"}
		return rows.row(v, header, verdictCells(v))
	})
	c.Helm, c.Strict = req.helm, req.strict
	c.Warn = func(file string, twice manifest.Duplicate) { warnTwice(streams.Err, file, twice) }
	if c.Moved, err = readMoved(streams, req.moved); err != nil {
		return err
	}
	err = checkObjects(ctx, c, req, filesOf(req.files, streams, read))
	summary := c.Summary()
	if err != nil {
		summary.Incomplete = append(summary.Incomplete, err.Error())
	}
	if closeErr := rows.close(convertCheckTail{summary}); closeErr != nil {
		return errors.Join(err, closeErr)
	}
	if summary.Skipped > 0 {
		visible.Fprintf(streams.Err, "%s skipped: no objects of Kubernetes; --strict refuses them\n",
			prose.Counted(summary.Skipped, "document"))
	}
	var unread *usageError
	switch s := summary; {
	case req.keepGoing && errors.As(err, &unread):
		for line := range strings.Lines(err.Error()) { // one for each problem
			visible.Fprintln(streams.Err, strings.TrimSuffix(line, "\n"))
		}
		return errAttention
	case err != nil:
		return err
	case s.Unknown > 0:
		return badInput(
			fmt.Errorf("%s of Kubernetes' own groups that no release has", prose.Counted(s.Unknown, "object")),
			"")
	case s.Objects == 0 && req.kubeconfig == "":
		return usagef("%s: no object", strings.Join(req.files, ", "))
	case s.Removed+s.Later > 0 || req.failOn == "deprecated" && s.Deprecated+s.Off > 0:
		return errAttention
	}
	return nil
}

// checkObjects looks at every object of a cluster, or of the files. A text that cannot be read does not keep it from
// the others.
func checkObjects(ctx context.Context, c *stream.Check, req convertCheckRequest,
	files iter.Seq2[stream.File, error]) error {
	if req.kubeconfig == "" {
		problems, err := c.Files(ctx, files)
		if err != nil {
			return err
		}
		return badInput(errors.Join(problems...), "")
	}
	client, err := kube.NewClient(req.kubeconfig, req.context)
	if err != nil {
		return badInput(err, "")
	}
	problems, err := c.Cluster(ctx, client)
	if err != nil {
		return err
	}
	return errors.Join(problems...)
}

// readMoved reads a file of kinds that moved; none without a name.
func readMoved(streams Streams, name string) ([]kubever.Moved, error) {
	if name == "" {
		return nil, nil
	}
	text, err := readInput(streams, name, movedLimitBytes)
	if err != nil {
		return nil, err
	}
	moved, err := stream.ParseMoved(text)
	if err != nil {
		return nil, badInput(fmt.Errorf("%s: %w", name, err), "")
	}
	return moved, nil
}

// movedLimitBytes bounds a file of kinds that moved.
const movedLimitBytes = 4 << 20

// convertCheckTail ends an answer.
type convertCheckTail struct {
	Summary stream.Summary `json:"summary"`
}

// convertCheckSheet says what the objects of a page add up to.
func convertCheckSheet(sheet *report.Sheet, tail any) {
	end, ok := tail.(convertCheckTail)
	if !ok {
		return
	}
	s := end.Summary
	sheet.Verdict = report.Verdict{Severity: severityOf(s.Removed+s.Later, s.Deprecated+s.Off+s.Unknown),
		Text: fmt.Sprintf("%s: %d in a version that is gone, %d in one that comes later, %d in one that is "+
			"deprecated, %d in one that is off, %d unknown.", prose.Counted(s.Objects, "object"), s.Removed, s.Later,
			s.Deprecated, s.Off, s.Unknown)}
	if sheet.Incomplete = s.Incomplete; len(s.Incomplete) > 0 {
		sheet.Verdict.Severity = finding.Error
	}
}

func checkRows(req convertCheckRequest, streams Streams, minor kubever.Minor) rowWriter {
	switch req.output {
	case "json", "yaml":
		return newDocumentRows(streams.Out, req.output, struct {
			Schema string        `json:"schema"`
			For    kubever.Minor `json:"for"`
		}{"fusionctl/convert-check/v1", minor}, "objects")
	case "csv":
		return newCSVRows(streams.Out)
	case "markdown":
		return &markdownRows{w: streams.Out}
	case "html":
		return &htmlRows{w: streams.Out, title: "Objects for Kubernetes " + minor.String(), rows: "Objects",
			choose: "STATUS", finish: convertCheckSheet}
	default:
		return newTableRows(streams.Out)
	}
}

func verdictCells(v stream.Verdict) []string {
	lossless := "-"
	why := v.Why
	if v.Lossless != nil {
		lossless = "yes"
		switch {
		case *v.Lossless && len(v.Defaults) > 0:
			lossless = "with --defaults"
		case !*v.Lossless:
			lossless = "no"
			why = fmt.Sprintf("%s: %s", v.Losses[0].Path, v.Losses[0].Meaning)
			if more := len(v.Losses) - 1; more > 0 {
				why += fmt.Sprintf(", and %d more", more)
			}
		}
	}
	name := strings.TrimPrefix(v.Namespace+"/"+v.Name, "/")
	place := strings.TrimSuffix(v.Place+" "+v.Path, " ")
	return []string{place, v.Kind + " " + name, v.APIVersion, v.Status, cmp.Or(v.Since, "-"),
		cmp.Or(v.Replacement, "-"), lossless, cmp.Or(why, "-")}
}
