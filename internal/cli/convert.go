package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/client"
	"github.com/kubefusion/fusionctl/pkg/convert/manifest"
	"github.com/kubefusion/fusionctl/pkg/convert/stream"
	"github.com/kubefusion/fusionctl/pkg/convert/validate"
)

// convertRequest says what is converted to what.
type convertRequest struct {
	files      []string
	to         string // a group and version
	minor      string
	server     string // a kubeconfig
	context    string
	output     string
	report     bool
	failOnLoss bool
	keepGoing  bool
	defaults   bool
}

func newConvertCmd(streams Streams) *cobra.Command {
	var req convertRequest
	cmd := &cobra.Command{
		Use:   "convert -f FILE|DIR|- {--to VERSION | --for MINOR | --for-server KUBECONFIG}",
		Short: "Convert objects from one API version to another",
		Long: `Reads objects, YAML or JSON or one as an API server stores it, and writes them in the wanted API version:
one version for the kinds that have it (--to apps/v1), or for each kind what a release (--for 1.36) or an API server
(--for-server) has. An object that needs no change is copied unchanged, with comments, order and layout. Custom
resources and kinds without the wanted version pass.

Fields that the wanted version requires and the old one defaults are written; what a server would refuse is an error.
Nothing else is defaulted. What the wanted version cannot express is a loss, named on standard error with its place and
its value. So is a field that is not set and whose default is another in the wanted version; --defaults writes those
out. Of such defaults the first 20 are named one by one, the rest at the end by kind and field; losses are always named
one by one.

Exit codes: 0 done, 1 could not finish, 2 bad usage or input that cannot be converted, 3 done, and with losses or
refused objects under --fail-on-loss or with objects left out under --keep-going.`,
		Example: `  fusionctl convert -f deployment.yaml --to apps/v1
  fusionctl convert -f manifests/ --for 1.36 --fail-on-loss > converted.yaml
  kubectl get deploy,ing,cronjob -A -o json | fusionctl convert -f - --for 1.6 --report`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := req.check(); err != nil {
				return err
			}
			return runConvert(cmd.Context(), req, streams)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&req.files, "file", "f", nil,
		"file or directory of YAML and JSON; - is standard input; repeat for more")
	flags.StringVar(&req.to, "to", "", "group and version, such as apps/v1")
	flags.StringVar(&req.minor, "for", "", "release whose versions are wanted, such as 1.36")
	flags.StringVar(&req.server, "for-server", "", "kubeconfig of the API server whose versions are wanted")
	flags.StringVar(&req.context, "context", "", "context of the kubeconfig (default its current one)")
	enumFlag(cmd, &req.output, "output", "o", "output format of objects, by default that of the input", "same", "yaml",
		"json")
	flags.BoolVar(&req.report, "report", false,
		"print the outcome and the losses of each object, instead of the objects; -o json for programs")
	flags.BoolVar(&req.failOnLoss, "fail-on-loss", false, "exit 3 when anything is lost, or refused as it is")
	flags.BoolVar(&req.keepGoing, "keep-going", false, "leave out what cannot be converted, and exit 3")
	flags.BoolVar(&req.defaults, "defaults", false, "write out the defaults that differ in the wanted version")
	cmd.AddCommand(newConvertCheckCmd(streams), newConvertNegotiateCmd(streams))
	return cmd
}

func (req *convertRequest) check() error {
	wanted := 0
	for _, s := range []string{req.to, req.minor, req.server} {
		if s != "" {
			wanted++
		}
	}
	switch {
	case len(req.files) == 0:
		return badInput(errors.New("which objects? want --file"),
			"kubectl get deploy -o yaml | fusionctl convert -f - --for 1.36")
	case wanted != 1:
		return badInput(errors.New("which version? want one of --to, --for and --for-server"),
			"--for 1.36 chooses for each kind what 1.36 serves")
	case req.context != "" && req.server == "":
		return usagef("--context chooses in the kubeconfig of --for-server")
	}
	return checkStdinOnce(req.files)
}

// options say what each kind is to become, and which release reads it.
func (req *convertRequest) options(ctx context.Context, c *convert.Converter) (stream.Options, error) {
	o := stream.Options{Defaults: req.defaults, Format: req.output}
	if req.report {
		o.Format = stream.Same
	}
	switch {
	case req.to != "":
		gv, err := schema.ParseGroupVersion(req.to)
		if err != nil || gv.Version == "" {
			return o, badInput(fmt.Errorf("--to: %q: want a group and version, such as apps/v1", req.to), "")
		}
		if why := c.MisnamedVersion(gv); why != "" {
			return o, badInput(fmt.Errorf("--to: %s: %s", req.to, why), "")
		}
		o.Choose = stream.ToVersion(c, gv)
	case req.minor != "":
		version, err := parseVersionFlag("for", req.minor)
		if err != nil {
			return o, err
		}
		o.Choose, o.Minor = stream.ForMinor(c, version.Minor), version.Minor
	default:
		config, err := kubeconfig(ctx, req.server, req.context)
		if err != nil {
			return o, err
		}
		live, err := client.NewLive(config, c)
		if err != nil {
			return o, err
		}
		server, err := live.Server(ctx)
		if err != nil {
			return o, err
		}
		o.Choose, o.Minor, o.Asked = stream.ForServer(c, server), server.Minor, true
	}
	return o, nil
}

func runConvert(ctx context.Context, req convertRequest, streams Streams) error {
	c, err := convert.New()
	if err != nil {
		return err
	}
	options, err := req.options(ctx, c)
	if err != nil {
		return err
	}
	defer collectLess()()
	read := &objectsRead{}
	streams, done := showObjects(streams, read)
	defer done()
	out := stream.NewWriter(asData(streams.Out), req.output)
	if req.report {
		out = stream.NewWriter(io.Discard, stream.Same)
	}
	k := &conversion{request: req, read: read, streams: streams, report: reportRows(req, streams)}
	err = stream.New(c, options).Files(ctx, filesOf(req.files, streams, read), out, k.result)
	if err := errors.Join(err, out.Close(), k.finish()); err != nil {
		return err
	}
	if k.left > 0 || req.failOnLoss && k.lost+k.refusals > 0 {
		return errAttention
	}
	if k.objects == 0 {
		return usagef("%s: no object", strings.Join(req.files, ", "))
	}
	return nil
}

func reportRows(req convertRequest, streams Streams) rowWriter {
	switch {
	case !req.report:
		return nil
	case req.output == "json":
		return newJSONRows(streams.Out, struct {
			Schema string `json:"schema"`
		}{"fusionctl/convert/v1"}, "objects")
	default:
		return newTableRows(streams.Out)
	}
}

// conversion prints what becomes of objects, and counts it.
type conversion struct {
	request convertRequest
	streams Streams
	report  rowWriter // nil without --report
	read    *objectsRead
	changes defaultChanges

	objects, lost, left, refusals int

	wanted int // objects that have the version of --to now
}

func (k *conversion) finish() error {
	k.changes.sumUp(k.streams.Err)
	if k.request.to != "" && k.objects > 0 && k.wanted == 0 {
		visible.Fprintf(k.streams.Err, "--to: %s: no object is of a kind that has the version; all stay as they are\n",
			k.request.to)
	}
	if k.report != nil {
		return k.report.close(nil)
	}
	return nil
}

// result prints what became of a part. Its error ends the run.
func (k *conversion) result(r stream.Result) error {
	for _, twice := range r.Duplicates {
		warnTwice(k.streams.Err, r.File, twice)
	}
	switch {
	case r.Err != nil:
		return k.refused(r.Converted, r.Err)
	case r.Object == nil:
		return nil
	}
	k.objects++
	k.read.count.Add(1)
	k.lost += len(r.Losses)
	if strings.HasPrefix(r.To, k.request.to+" ") {
		k.wanted++
	}
	if r.Refused != "" {
		k.refusals++
	}
	if k.report == nil && r.TooLargeToApply() {
		visible.Fprintf(k.streams.Err, "%s: %s: it is larger than the annotation that kubectl apply writes may be: "+
			"use kubectl create or, where the server knows it, kubectl apply --server-side\n", r.Place(), r.Converted)
	}
	return k.tell(r.Converted)
}

// becomes says what was done to an object that a server refuses.
func becomes(row stream.Converted) string {
	if row.From == row.To && len(row.Changes) == 0 {
		return "stays as it is"
	}
	return "is converted"
}

// tell reports an object: in the report, or its losses on standard error.
func (k *conversion) tell(row stream.Converted) error {
	if k.report == nil {
		for _, change := range row.Changes {
			k.changes.tell(k.streams.Err, row, k.objects, change.Path, written(change)+": "+change.Meaning)
		}
		if row.Refused != "" {
			visible.Fprintf(k.streams.Err, "%s: %s: %s, and %s\n", row.Place(), row, becomes(row), row.Refused)
		}
		for _, loss := range row.Losses {
			if loss.Value == nil { // a default
				k.changes.tell(k.streams.Err, row, k.objects, loss.Path, "changes: "+loss.Meaning)
				continue
			}
			visible.Fprintf(k.streams.Err, "%s: %s: %s is lost: %s\n", row.Place(), row, loss.Path, loss.Meaning)
		}
		return nil
	}
	header := []string{"PLACE", "FROM", "OBJECT", "TO", "LOST", "WHY"}
	name := row.Name
	if row.Namespace != "" {
		name = row.Namespace + "/" + row.Name
	}
	cells := []string{row.Place(), row.From, name, row.To, "-", cmp.Or(row.Error, row.Refused)}
	if len(row.Losses) == 0 || k.request.output == "json" {
		return k.report.row(row, header, cells)
	}
	for _, loss := range row.Losses {
		cells[4], cells[5] = loss.Path, loss.Meaning
		if err := k.report.row(row, header, cells); err != nil {
			return err
		}
	}
	return nil
}

// written says what was done to a field.
func written(change validate.Change) string {
	if change.Value == nil && !strings.Contains(change.Meaning, "requires it") {
		return "is left out"
	}
	return "is written"
}

// refused is what happens to an object that cannot be converted: the end, or with --keep-going a line on standard
// error.
func (k *conversion) refused(row stream.Converted, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	var syntax *manifest.SyntaxError
	place := row.Place()
	if errors.As(err, &syntax) {
		row.Document, row.Line = syntax.Document, syntax.Line
		place = fmt.Sprintf("%s:%d: document %d", row.File, syntax.Line, syntax.Document)
		err = syntax.Err
	}
	subject := ""
	switch {
	case errors.As(err, new(*validate.RefusedError)): // it names the server, where others name the kind
		subject = row.String() + ": "
	case row.Name != "":
		subject = strings.TrimPrefix(row.Namespace+"/"+row.Name, "/") + ": "
	}
	err = fmt.Errorf("%s: %s%w", place, subject, err)
	if !k.request.keepGoing {
		return badInput(err, "--keep-going leaves out what cannot be converted")
	}
	k.left++
	visible.Fprintln(k.streams.Err, err)
	if k.report != nil {
		row.Error = errors.Unwrap(err).Error()
		return k.tell(row)
	}
	return nil
}
