package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/manifest"
	"github.com/kubefusion/fusionctl/pkg/kube"
	"github.com/kubefusion/fusionctl/pkg/kubever"
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
		Short: "Objects from one API version to another",
		Long: `Reads objects, YAML or JSON or one as a server stores it, and writes them in the API version that is wanted: one version for
the kinds that have it (--to apps/v1), or for each kind what a release (--for 1.36) or a server (--for-server) has. What needs no
change stays as it is, comments, order and layout too. Custom resources and kinds that the wanted version does not concern pass.

Nothing is defaulted and nothing invented. What the wanted version cannot say is a loss, named on standard error with its place and
its value. So is a field that is not set and whose default is another in the wanted version; --defaults writes those out. Of such defaults
the first 20 are named one by one, the rest at the end by kind and field; losses are always named one by one.

Exit codes: 0 done, 1 could not finish, 2 bad usage or input that cannot be converted, 3 done, and with losses under --fail-on-loss or with
objects left out under --keep-going.`,
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
	flags.StringArrayVarP(&req.files, "file", "f", nil, "file or directory of YAML and JSON; - is standard input; repeat for more")
	flags.StringVar(&req.to, "to", "", "group and version, such as apps/v1")
	flags.StringVar(&req.minor, "for", "", "release whose versions are wanted, such as 1.36")
	flags.StringVar(&req.server, "for-server", "", "kubeconfig of the server whose versions are wanted")
	flags.StringVar(&req.context, "context", "", "context of the kubeconfig (default its current one)")
	enumFlag(cmd, &req.output, "output", "o", "how objects are written, as they were read by default", "same", "yaml", "json")
	flags.BoolVar(&req.report, "report", false, "print what becomes of each object, and its losses, instead of the objects; -o json for programs")
	flags.BoolVar(&req.failOnLoss, "fail-on-loss", false, "exit 3 when anything is lost")
	flags.BoolVar(&req.keepGoing, "keep-going", false, "leave out what cannot be converted, and exit 3")
	flags.BoolVar(&req.defaults, "defaults", false, "write out the defaults that the wanted version does not share")
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
		return badInput(errors.New("which objects? want --file"), "kubectl get deploy -o yaml | fusionctl convert -f - --for 1.36")
	case wanted != 1:
		return badInput(errors.New("which version? want one of --to, --for and --for-server"), "--for 1.36 chooses for each kind what 1.36 serves")
	case req.context != "" && req.server == "":
		return usagef("--context chooses in the kubeconfig of --for-server")
	}
	return checkStdinOnce(req.files)
}

func checkStdinOnce(files []string) error {
	if n := strings.Count("\x00"+strings.Join(files, "\x00")+"\x00", "\x00-\x00"); n > 1 {
		return usagef("standard input can be read once, and - is given %d times", n)
	}
	return nil
}

// chooser names the kind that an object is to become; the kind itself when it is to stay.
// Errors: *convert.UnsupportedError.
type chooser func(schema.GroupVersionKind) (schema.GroupVersionKind, error)

func (req *convertRequest) chooser(ctx context.Context, c *convert.Converter) (chooser, error) {
	switch {
	case req.to != "":
		gv, err := schema.ParseGroupVersion(req.to)
		if err != nil || gv.Version == "" {
			return nil, badInput(fmt.Errorf("--to: %q: want a group and version, such as apps/v1", req.to), "")
		}
		return chooseVersion(c, gv), nil
	case req.minor != "":
		version, err := parseVersionFlag("for", req.minor)
		if err != nil {
			return nil, err
		}
		return func(gvk schema.GroupVersionKind) (schema.GroupVersionKind, error) {
			s := c.StandingIn(gvk, version.Minor)
			if s.Target.Empty() && (s.Known || c.Knows(gvk)) {
				return gvk, &convert.UnsupportedError{From: gvk, Reason: fmt.Sprintf("nothing for it in %s: %s", version.Minor, s.Reason)}
			}
			if s.Target.Empty() {
				return gvk, nil
			}
			return s.Target, nil
		}, nil
	default:
		client, err := kube.NewClient(req.server, req.context)
		if err != nil {
			return nil, badInput(fmt.Errorf("--for-server: %w", err), "")
		}
		served, err := client.Kinds(ctx)
		if err != nil {
			return nil, err
		}
		return chooseServed(c, served), nil
	}
}

// chooseVersion turns every kind that has the version into it, and leaves the others.
func chooseVersion(c *convert.Converter, gv schema.GroupVersion) chooser {
	return func(gvk schema.GroupVersionKind) (schema.GroupVersionKind, error) {
		if gvk.GroupVersion() == gv {
			return gvk, nil
		}
		for _, equivalent := range c.Equivalents(gvk) {
			if equivalent.GroupVersion() == gv {
				return equivalent, nil
			}
		}
		if gvk.Group == gv.Group && c.Knows(gvk) {
			return gvk, c.Supports(gvk, gv.WithKind(gvk.Kind))
		}
		return gvk, nil
	}
}

// remembered asks once for each kind. Workers ask at the same time.
func remembered(choose chooser) chooser {
	type choice struct {
		kind schema.GroupVersionKind
		err  error
	}
	var choices sync.Map
	return func(gvk schema.GroupVersionKind) (schema.GroupVersionKind, error) {
		if made, ok := choices.Load(gvk); ok {
			return made.(choice).kind, made.(choice).err
		}
		kind, err := choose(gvk)
		choices.Store(gvk, choice{kind, err})
		return kind, err
	}
}

// chooseServed takes the first equivalent that a server has.
func chooseServed(c *convert.Converter, served map[schema.GroupVersionKind]bool) chooser {
	return func(gvk schema.GroupVersionKind) (schema.GroupVersionKind, error) {
		if served[gvk] {
			return gvk, nil
		}
		for _, equivalent := range c.Equivalents(gvk) {
			if served[equivalent] {
				return equivalent, nil
			}
		}
		return gvk, &convert.UnsupportedError{From: gvk, Reason: "the server serves no version of it"}
	}
}

// convertedObject is what became of one object.
type convertedObject struct {
	File      string         `json:"file,omitempty"`
	Document  int            `json:"document"`
	Line      int            `json:"line"`
	From      string         `json:"from"`
	To        string         `json:"to,omitempty"`
	Namespace string         `json:"namespace,omitempty"`
	Name      string         `json:"name,omitempty"`
	Losses    []convert.Loss `json:"losses,omitempty"`
	Error     string         `json:"error,omitempty"`
}

func (o convertedObject) place() string { return fmt.Sprintf("%s:%d", o.File, o.Line) }

func (o convertedObject) object() string {
	if o.Namespace != "" {
		return o.From + " " + o.Namespace + "/" + o.Name
	}
	return o.From + " " + o.Name
}

func runConvert(ctx context.Context, req convertRequest, streams Streams) error {
	c, err := convert.New()
	if err != nil {
		return err
	}
	choose, err := req.chooser(ctx, c)
	if err != nil {
		return err
	}
	choose = remembered(choose)
	out := newObjectWriter(streams.Out, req.output)
	if req.report {
		out = newObjectWriter(io.Discard, "same")
	}
	k := &conversion{request: req, converter: c, choose: choose, out: out, streams: streams, report: reportRows(req, streams)}
	if req.minor != "" {
		version, err := parseVersionFlag("for", req.minor)
		if err != nil {
			return err
		}
		k.minor = version.Minor
	}
	for name, err := range inputFiles(req.files) {
		if err == nil {
			err = k.file(ctx, name)
		}
		if err != nil {
			return errors.Join(err, k.finish())
		}
	}
	if err := k.finish(); err != nil {
		return err
	}
	if k.left > 0 || req.failOnLoss && k.lost > 0 {
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

// conversion is one run over all files.
type conversion struct {
	request   convertRequest
	converter *convert.Converter
	choose    chooser
	minor     kubever.Minor // that reads the objects, 0 when it is not known
	out       *objectWriter
	streams   Streams
	report    rowWriter // nil without --report
	changes   defaultChanges

	objects, lost, left int
}

func (k *conversion) finish() error {
	err := k.out.close()
	k.changes.sumUp(k.streams.Err)
	if k.report != nil {
		err = errors.Join(err, k.report.close(nil))
	}
	return err
}

// file converts a file: one reader, a worker for each processor, and what they make in the order of the file.
func (k *conversion) file(ctx context.Context, name string) error {
	in, err := openInput(k.streams, name)
	if err != nil {
		return err
	}
	defer in.Close()
	k.out.begin()
	workers := runtime.GOMAXPROCS(0)
	ordered := make(chan *job, 4*workers) // as many parts as may be ahead of the one that is written next
	work := make(chan *job)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(ordered)
		defer close(work)
		for part, err := range manifest.Parts(in) {
			j := &job{part: part, err: err, done: make(chan struct{})}
			for _, queue := range []chan<- *job{ordered, work} {
				select {
				case queue <- j:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		return nil
	})
	for range workers {
		group.Go(func() error {
			for j := range work {
				k.convert(name, j)
				close(j.done)
			}
			return nil
		})
	}
	group.Go(func() error {
		for j := range ordered {
			select {
			case <-j.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := k.emit(j); err != nil {
				return err
			}
		}
		return nil
	})
	return group.Wait()
}

// job is a part, and what becomes of it.
type job struct {
	part manifest.Part
	done chan struct{} // closed when the rest is set

	row    convertedObject
	object *unstructured.Unstructured // nil for text between objects
	text   []byte                     // in the file's own format
	err    error
}

// convert makes of a part what becomes of it. It changes nothing but the job.
func (k *conversion) convert(file string, j *job) {
	part := j.part
	j.row = convertedObject{File: file, Document: part.Document, Line: part.Line}
	if j.err != nil {
		return
	}
	if !part.Object {
		j.text, j.err = k.frame(part)
		return
	}
	source, err := decodeSource(k.converter, part)
	if err != nil || source == nil {
		j.text, j.err = part.Text, err
		return
	}
	gvk := source.GroupVersionKind()
	j.row.From = gvk.GroupVersion().String() + " " + gvk.Kind
	j.row.Namespace, j.row.Name = source.GetNamespace(), source.GetName()
	to, err := k.target(gvk)
	if err != nil {
		j.err = err
		return
	}
	j.row.To = to.GroupVersion().String() + " " + to.Kind
	result, losses, err := k.convertObject(&source.Unstructured, to)
	if err != nil {
		j.err = err
		return
	}
	if gvk.Kind != "List" {
		changed, err := k.converter.Defaults(&source.Unstructured, result, k.request.defaults)
		if err != nil {
			j.err = err
			return
		}
		losses = append(losses, changed...)
	}
	if k.minor != 0 {
		losses = append(losses, k.converter.LossesIn(result, k.minor)...)
	}
	j.object, j.row.Losses = result, losses
	switch {
	case k.out.format != "same" || source.text == nil:
	case to == gvk && gvk.Kind != "List":
		j.text = part.Text
	default:
		value := result.Object
		if source.text.Value["kind"] == nil { // as the items of lists are
			value = maps.Clone(value)
			delete(value, "apiVersion")
			delete(value, "kind")
		}
		j.text, j.err = source.text.Rewrite(value)
	}
}

// emit writes what became of a part, and tells of it.
func (k *conversion) emit(j *job) error {
	switch {
	case j.err != nil:
		return k.refused(j.row, j.err)
	case j.object == nil:
		return k.out.between(j.text)
	}
	k.objects++
	k.lost += len(j.row.Losses)
	if err := k.tell(j.row); err != nil {
		return err
	}
	return k.out.object(j.object, j.text)
}

// target names the kind that the kind, or the items of a list of it, is to become.
func (k *conversion) target(gvk schema.GroupVersionKind) (schema.GroupVersionKind, error) {
	item, list := strings.CutSuffix(gvk.Kind, "List")
	if !list || item == "" {
		return k.choose(gvk)
	}
	to, err := k.choose(gvk.GroupVersion().WithKind(item))
	return to.GroupVersion().WithKind(to.Kind + "List"), err
}

// tell reports an object: in the report, or its losses on standard error.
func (k *conversion) tell(row convertedObject) error {
	if k.report == nil {
		for _, loss := range row.Losses {
			if loss.Value == nil { // a default
				k.changes.tell(k.streams.Err, row, k.objects, loss)
				continue
			}
			fmt.Fprintf(k.streams.Err, "%s: %s: %s is lost: %s\n", row.place(), row.object(), loss.Path, loss.Meaning)
		}
		return nil
	}
	header := []string{"PLACE", "FROM", "OBJECT", "TO", "LOST", "WHY"}
	name := row.Name
	if row.Namespace != "" {
		name = row.Namespace + "/" + row.Name
	}
	cells := []string{row.place(), row.From, name, row.To, "-", row.Error}
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

// refused is what happens to an object that cannot be converted: the end, or with --keep-going a line on standard error.
func (k *conversion) refused(row convertedObject, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	var syntax *manifest.SyntaxError
	place := row.place()
	if errors.As(err, &syntax) {
		row.Document, row.Line = syntax.Document, syntax.Line
		place = fmt.Sprintf("%s:%d: document %d", row.File, syntax.Line, syntax.Document)
		err = syntax.Err
	}
	subject := ""
	if row.Name != "" {
		subject = strings.TrimPrefix(row.Namespace+"/"+row.Name, "/") + ": "
	}
	err = fmt.Errorf("%s: %s%w", place, subject, err)
	if !k.request.keepGoing {
		return badInput(err, "--keep-going leaves out what cannot be converted")
	}
	k.left++
	fmt.Fprintln(k.streams.Err, err)
	if k.report != nil {
		row.Error = errors.Unwrap(err).Error()
		return k.tell(row)
	}
	return nil
}
