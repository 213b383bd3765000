package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/manifest"
	"github.com/kubefusion/fusionctl/pkg/kube"
	"github.com/kubefusion/fusionctl/pkg/kubever"
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
}

func newConvertCheckCmd(streams Streams) *cobra.Command {
	var req convertCheckRequest
	cmd := &cobra.Command{
		Use:   "check {-f FILE|DIR|- | --kubeconfig FILE} [--helm] --for MINOR",
		Short: "Which objects are in API versions that a release deprecates or no longer has?",
		Long: `Lists the objects whose API version is deprecated in a release or gone, since when, what takes its place, and whether they convert to
it without loss. Objects come from files, from standard input, or from a cluster: there the versions count in which clients wrote
(kubectl's last applied configuration and the managers of fields), since a server answers in any version that it has.

With --helm the records of Helm releases are unpacked and what they applied is looked at, of the revision that is deployed: Secrets and
ConfigMaps of Helm 3 and of Helm 2, in files or in the cluster.

Exit codes: 0 nothing to do, 1 could not finish, 2 bad usage or input that cannot be read, 3 some objects need attention.`,
		Example: `  fusionctl convert check -f manifests/ --for 1.36
  fusionctl convert check --kubeconfig prod.conf --helm --for 1.25 -o csv
  kubectl get secrets -A -l owner=helm -o json | fusionctl convert check -f - --helm --for 1.36`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case len(req.files) == 0 && req.kubeconfig == "":
				return badInput(errors.New("which objects? want --file or --kubeconfig"), "kubectl get deploy,ing -A -o yaml shows them in the server's version, not in that of their authors")
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
	flags.StringArrayVarP(&req.files, "file", "f", nil, "file or directory of YAML and JSON; - is standard input; repeat for more")
	flags.StringVar(&req.kubeconfig, "kubeconfig", "", "look at the cluster that this file names")
	flags.StringVar(&req.context, "context", "", "context of the kubeconfig (default its current one)")
	flags.BoolVar(&req.helm, "helm", false, "look into the records of Helm releases")
	flags.StringVar(&req.minor, "for", "", "the release, such as 1.36")
	flags.BoolVar(&req.all, "all", false, "list the objects that may stay as they are, too")
	enumFlag(cmd, &req.output, "output", "o", "format", "table", "json", "csv", "markdown")
	enumFlag(cmd, &req.failOn, "fail-on", "", "what exits 3", "removed", "deprecated")
	return cmd
}

// verdict is what a release makes of one object.
type verdict struct {
	Place       string         `json:"place"`
	APIVersion  string         `json:"apiVersion"`
	Kind        string         `json:"kind"`
	Namespace   string         `json:"namespace,omitempty"`
	Name        string         `json:"name"`
	Status      string         `json:"status"` // removed, deprecated, off (compiled in, not served by default), unknown, ok
	Since       string         `json:"since,omitempty"`
	Replacement string         `json:"replacement,omitempty"`
	Lossless    *bool          `json:"lossless,omitempty"` // whether it converts to the replacement without loss
	Losses      []convert.Loss `json:"losses,omitempty"`
	Defaults    []convert.Loss `json:"defaults,omitempty"` // that are others there; convert --defaults writes them out
	Why         string         `json:"why,omitempty"`
}

// checkSummary counts objects by their status.
type checkSummary struct {
	Objects    int      `json:"objects"`
	Removed    int      `json:"removed"`
	Deprecated int      `json:"deprecated"`
	Off        int      `json:"off"`
	Unknown    int      `json:"unknown"`
	Incomplete []string `json:"incomplete,omitempty"` // what could not be looked at
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
	c := &convertCheck{converter: converter, minor: version.Minor, request: req, rows: checkRows(req, streams, version.Minor)}
	if req.kubeconfig != "" {
		err = c.cluster(ctx)
	} else {
		err = c.files(ctx, streams)
	}
	if err != nil {
		c.summary.Incomplete = append(c.summary.Incomplete, err.Error())
	}
	if closeErr := c.rows.close(struct {
		Summary checkSummary `json:"summary"`
	}{c.summary}); closeErr != nil {
		return errors.Join(err, closeErr)
	}
	switch s := c.summary; {
	case err != nil:
		return err
	case s.Objects == 0 && req.kubeconfig == "":
		return usagef("%s: no object", strings.Join(req.files, ", "))
	case s.Removed > 0 || req.failOn == "deprecated" && s.Deprecated > 0:
		return errAttention
	}
	return nil
}

func checkRows(req convertCheckRequest, streams Streams, minor kubever.Minor) rowWriter {
	switch req.output {
	case "json":
		return newJSONRows(streams.Out, struct {
			Schema string        `json:"schema"`
			For    kubever.Minor `json:"for"`
		}{"fusionctl/convert-check/v1", minor}, "objects")
	case "csv":
		return newCSVRows(streams.Out)
	case "markdown":
		return &markdownRows{w: streams.Out}
	default:
		return newTableRows(streams.Out)
	}
}

// convertCheck is one run.
type convertCheck struct {
	converter *convert.Converter
	minor     kubever.Minor
	request   convertCheckRequest
	rows      rowWriter
	summary   checkSummary
}

// files looks at every object of the files; a text that cannot be read does not keep it from the others.
func (c *convertCheck) files(ctx context.Context, streams Streams) error {
	var problems []error
	for name, err := range inputFiles(c.request.files) {
		if err != nil {
			return err
		}
		in, err := openInput(streams, name)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		unread, err := c.text(ctx, name, in)
		in.Close()
		if err != nil {
			return err
		}
		problems = append(problems, unread...)
	}
	return badInput(errors.Join(problems...), "")
}

// text looks at every object of a text, and returns what it could not read.
func (c *convertCheck) text(ctx context.Context, name string, in io.Reader) (problems []error, err error) {
	for part, err := range manifest.Parts(in) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return append(problems, placed(name, err)), nil
		}
		if !part.Object {
			continue
		}
		objects, err := c.objects(part)
		if err != nil {
			problems = append(problems, placed(name, err))
			continue
		}
		for _, object := range objects {
			unread, err := c.object(ctx, fmt.Sprintf("%s:%d", name, part.Line), object)
			if err != nil {
				return nil, err
			}
			problems = append(problems, unread...)
		}
	}
	return problems, nil
}

func placed(name string, err error) error {
	var syntax *manifest.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("%s:%d: document %d: %w", name, syntax.Line, syntax.Document, syntax.Err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// objects reads a part: one object, or those of a List that was read as a whole.
func (c *convertCheck) objects(part manifest.Part) ([]*unstructured.Unstructured, error) {
	source, err := decodeSource(c.converter, part)
	if err != nil || source == nil {
		return nil, err
	}
	return flatten(&source.Unstructured), nil
}

// flatten lists the objects of a list, and of the lists in it; an object that is none lists itself.
func flatten(u *unstructured.Unstructured) []*unstructured.Unstructured {
	items, ok := u.Object["items"].([]any)
	kind, list := strings.CutSuffix(u.GetKind(), "List")
	if !ok || !list {
		return []*unstructured.Unstructured{u}
	}
	var objects []*unstructured.Unstructured
	for _, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			continue
		}
		inner := &unstructured.Unstructured{Object: maps.Clone(object)}
		if inner.GetKind() == "" && kind != "" {
			inner.SetGroupVersionKind(u.GroupVersionKind().GroupVersion().WithKind(kind))
		}
		objects = append(objects, flatten(inner)...)
	}
	return objects
}

// object judges an object, or with --helm what the release applied that it records.
func (c *convertCheck) object(ctx context.Context, place string, object *unstructured.Unstructured) (problems []error, err error) {
	if c.request.helm {
		release, ok, err := manifest.HelmRelease(object.Object)
		if err != nil {
			return []error{fmt.Errorf("%s: %s/%s: %w", place, object.GetNamespace(), object.GetName(), err)}, nil
		}
		if ok {
			if !release.Deployed() {
				return nil, nil
			}
			name := fmt.Sprintf("release %s/%s v%d", release.Namespace, release.Name, release.Revision)
			return c.text(ctx, name, strings.NewReader(string(release.Manifest)))
		}
	}
	return nil, c.judge(place, object)
}

// judge prints what the release makes of an object.
func (c *convertCheck) judge(place string, object *unstructured.Unstructured) error {
	gvk := object.GroupVersionKind()
	v := c.verdictOf(gvk)
	v.Place, v.Namespace, v.Name = place, object.GetNamespace(), object.GetName()
	c.summary.Objects++
	switch v.Status {
	case "removed":
		c.summary.Removed++
	case "deprecated":
		c.summary.Deprecated++
	case "off":
		c.summary.Off++
	case "unknown":
		c.summary.Unknown++
	}
	if replacement, ok := c.converter.Replacement(gvk, c.minor); ok && v.Replacement != "" {
		result, losses, err := c.converter.Convert(object, replacement)
		if err != nil {
			v.Why = err.Error()
		} else {
			changed, err := c.converter.Defaults(object, result, false)
			if err != nil {
				v.Why = err.Error()
			}
			v.Defaults = changed
			v.Losses = append(losses, c.converter.LossesIn(result, c.minor)...)
			lossless := len(v.Losses) == 0
			v.Lossless = &lossless
		}
	}
	if !c.request.all && (v.Status == "ok" || v.Status == "unknown") {
		return nil
	}
	return c.rows.row(v, []string{"PLACE", "OBJECT", "VERSION", "STATUS", "SINCE", "REPLACEMENT", "LOSSLESS", "WHY"}, v.cells())
}

// verdictOf is what the release makes of a kind.
func (c *convertCheck) verdictOf(gvk schema.GroupVersionKind) verdict {
	v := verdict{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Status: "ok"}
	s := c.converter.StandingIn(gvk, c.minor)
	switch {
	case !s.Known:
		v.Status = "unknown"
	case s.Gone && len(s.DefaultOn) > 0 && s.DefaultOn[0].From > c.minor, s.Gone && s.Minors[0].From > c.minor:
		v.Status, v.Why = "removed", cmp.Or(s.Reason, "came after "+c.minor.String())
	case s.Gone:
		v.Status, v.Since, v.Why = "removed", s.Ended().String(), s.Reason
	case s.Deprecated != 0 && s.Deprecated <= c.minor:
		v.Status, v.Since = "deprecated", s.Deprecated.String()
	case !s.Served:
		v.Status, v.Why = "off", "served only with --runtime-config"
	}
	if v.Status == "removed" || v.Status == "deprecated" {
		if replacement, ok := c.converter.Replacement(gvk, c.minor); ok {
			v.Replacement = replacement.GroupVersion().String() + " " + replacement.Kind
		}
	}
	return v
}

func (v verdict) cells() []string {
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
	return []string{v.Place, v.Kind + " " + name, v.APIVersion, v.Status, cmp.Or(v.Since, "-"), cmp.Or(v.Replacement, "-"), lossless, cmp.Or(why, "-")}
}

// cluster looks at the versions in which the objects of a cluster were written, and with --helm at what its releases applied.
func (c *convertCheck) cluster(ctx context.Context) error {
	client, err := kube.NewClient(c.request.kubeconfig, c.request.context)
	if err != nil {
		return badInput(err, "")
	}
	resources, err := client.Listable(ctx)
	if err != nil {
		return err
	}
	if c.request.helm {
		return c.releases(ctx, client, resources)
	}
	seen := map[string]bool{}
	for _, resource := range resources {
		if !c.concerns(resource.GroupVersionKind) {
			continue
		}
		for object, err := range client.Objects(ctx, resource, "") {
			if err != nil {
				return err
			}
			if uid := string(object.GetUID()); uid != "" && seen[uid] {
				continue // listed under another version of its group, or another group
			} else if uid != "" {
				seen[uid] = true
			}
			if err := c.written(object); err != nil {
				return err
			}
		}
	}
	return nil
}

// concerns reports whether the release deprecates some version of the kind, or no longer has it.
func (c *convertCheck) concerns(gvk schema.GroupVersionKind) bool {
	for _, kind := range append(c.converter.Equivalents(gvk), gvk) {
		if status := c.verdictOf(kind).Status; status == "removed" || status == "deprecated" {
			return true
		}
	}
	return false
}

// written judges the versions in which clients wrote an object: its last applied configuration, and the managers of its fields. An
// object of a kind that the release has in no version is judged as it is.
func (c *convertCheck) written(object *unstructured.Unstructured) error {
	versions := map[string]string{}
	for _, manager := range object.GetManagedFields() {
		if manager.APIVersion != "" && manager.Subresource == "" {
			versions[manager.APIVersion] = "written by " + manager.Manager
		}
	}
	var applied struct{ APIVersion, Kind string }
	if text := object.GetAnnotations()["kubectl.kubernetes.io/last-applied-configuration"]; text != "" && json.Unmarshal([]byte(text), &applied) == nil {
		versions[applied.APIVersion] = "last applied"
	}
	gvk := object.GroupVersionKind()
	if s := c.converter.StandingIn(gvk, c.minor); s.Known && s.Target.Empty() {
		versions = map[string]string{gvk.GroupVersion().String(): "stored"}
	}
	for _, version := range slices.Sorted(maps.Keys(versions)) {
		gv, err := schema.ParseGroupVersion(version)
		if err != nil || c.converter.Supports(gvk, gv.WithKind(gvk.Kind)) != nil {
			continue // a manager of another kind's fields
		}
		as, _, err := c.converter.Convert(object, gv.WithKind(gvk.Kind))
		if err != nil {
			return err
		}
		if err := c.judge(versions[version], as); err != nil {
			return err
		}
	}
	return nil
}

// releases looks at what the Helm releases of a cluster applied.
func (c *convertCheck) releases(ctx context.Context, client *kube.Client, resources []kube.Listed) error {
	var problems []error
	for _, resource := range resources {
		if resource.Group != "" || resource.Kind != "Secret" && resource.Kind != "ConfigMap" {
			continue
		}
		for _, selector := range []string{"owner=helm", "OWNER=TILLER"} {
			for object, err := range client.Objects(ctx, resource, selector) {
				if err != nil {
					return err
				}
				unread, err := c.object(ctx, object.GetKind(), object)
				if err != nil {
					return err
				}
				problems = append(problems, unread...)
			}
		}
	}
	return errors.Join(problems...)
}

// markdownRows prints a table as Markdown does.
type markdownRows struct {
	w     io.Writer
	count int
}

func (r *markdownRows) row(_ any, header, cells []string) error {
	if r.count == 0 {
		fmt.Fprintf(r.w, "| %s |\n|%s\n", strings.Join(header, " | "), strings.Repeat("---|", len(header)))
	}
	r.count++
	escaped := make([]string, len(cells))
	for i, cell := range cells {
		escaped[i] = strings.NewReplacer("|", `\|`, "\n", " ").Replace(cell)
	}
	_, err := fmt.Fprintf(r.w, "| %s |\n", strings.Join(escaped, " | "))
	return err
}

func (r *markdownRows) close(any) error { return nil }
