package stream

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/manifest"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Verdict is what a release makes of one object.
type Verdict struct {
	Place string `json:"place"`
	// Path is that of a reference: an object at the place names the object there, which is not at hand.
	Path       string `json:"path,omitempty"`
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	// Status is removed, later (the release does not have it yet), deprecated, off (not served by default), unknown,
	// custom or ok.
	Status      string         `json:"status"`
	Since       string         `json:"since,omitempty"` // of later: with which release it comes
	Replacement string         `json:"replacement,omitempty"`
	Lossless    *bool          `json:"lossless,omitempty"` // whether it converts to the replacement without loss
	Losses      []convert.Loss `json:"losses,omitempty"`
	Defaults    []convert.Loss `json:"defaults,omitempty"` // that are others there; convert --defaults writes them out
	Why         string         `json:"why,omitempty"`
}

// Summary counts objects, and references to objects, by their status.
type Summary struct {
	Objects    int      `json:"objects"`
	Removed    int      `json:"removed"`
	Later      int      `json:"later"`
	Deprecated int      `json:"deprecated"`
	Off        int      `json:"off"`
	Unknown    int      `json:"unknown"` // kinds and versions of Kubernetes' own groups that no release has
	Custom     int      `json:"custom"`
	Skipped    int      `json:"skipped"`              // documents that are no objects of Kubernetes
	Incomplete []string `json:"incomplete,omitempty"` // what could not be looked at
}

// Check judges objects by what a release makes of their versions.
type Check struct {
	Helm   bool            // check the manifests in Helm releases
	Strict bool            // what is no object of Kubernetes is an error
	Moved  []kubever.Moved // kinds of other projects, later ones before earlier ones
	Warn   func(file string, twice manifest.Duplicate)

	converter *convert.Converter
	minor     kubever.Minor
	emit      func(Verdict) error
	summary   Summary
}

// NewCheck hands the verdict about every object to emit.
func NewCheck(c *convert.Converter, minor kubever.Minor, emit func(Verdict) error) *Check {
	return &Check{converter: c, minor: minor, emit: emit}
}

// Summary counts what was judged so far.
func (c *Check) Summary() Summary { return c.summary }

// Text looks at every object of a text, and returns what it could not read. Objects are judged beside each other, and
// handed on in the order of the text.
func (c *Check) Text(ctx context.Context, name string, in io.Reader) (problems []error, err error) {
	return c.Files(ctx, func(yield func(File, error) bool) {
		yield(File{name, func() (io.ReadCloser, error) { return io.NopCloser(in), nil }}, nil)
	})
}

// File is a text with a name. It is opened when its turn comes, and closed.
type File struct {
	Name string
	Open func() (io.ReadCloser, error)
}

// Files is Text for many: the next ones are read while the objects of the last are judged.
// Errors: those of the sequence, and ctx's. A file that cannot be opened is one of the problems.
func (c *Check) Files(ctx context.Context, files iter.Seq2[File, error]) (problems []error, err error) {
	err = inOrder(ctx, partsOf(files),
		func(p filePart, err error) judged {
			switch {
			case err != nil:
				return judged{err: err}
			case p.closed:
				return judged{problems: []error{p.err}}
			case p.begins:
				return judged{}
			default:
				return c.part(ctx, p.file, p.part, p.err, false)
			}
		},
		func(j judged) error {
			problems = append(problems, j.problems...)
			return c.hand(j)
		})
	if err != nil {
		return nil, err
	}
	return problems, nil
}

// filePart is a part of a file, its begin, or what keeps it from being read.
type filePart struct {
	file   string
	begins bool
	part   manifest.Part
	err    error
	closed bool // the file cannot be opened
}

// partsOf reads files one after the other. Its errors are those of the sequence.
func partsOf(files iter.Seq2[File, error]) iter.Seq2[filePart, error] {
	return func(yield func(filePart, error) bool) {
		for file, err := range files {
			if err != nil {
				yield(filePart{}, err)
				return
			}
			in, err := file.Open()
			if err != nil {
				if !yield(filePart{file: file.Name, err: err, closed: true}, nil) {
					return
				}
				continue
			}
			if !partsOfFile(file.Name, in, yield) {
				return
			}
		}
	}
}

// partsOfFile reads a file, and reports whether more is wanted.
func partsOfFile(name string, in io.ReadCloser, yield func(filePart, error) bool) bool {
	defer in.Close()
	if !yield(filePart{file: name, begins: true}, nil) {
		return false
	}
	for part, err := range manifest.Parts(in) {
		if !yield(filePart{file: name, part: part, err: err}, nil) {
			return false
		}
	}
	return true
}

// judged is what became of a part of a text, or of an object.
type judged struct {
	verdicts []Verdict
	problems []error // what could not be read
	twice    []duplicate
	skipped  int // parts that are no objects of Kubernetes
	err      error
}

type duplicate struct {
	file string
	manifest.Duplicate
}

func (j *judged) add(other judged) {
	j.verdicts, j.problems = append(j.verdicts, other.verdicts...), append(j.problems, other.problems...)
	j.twice, j.skipped, j.err = append(j.twice, other.twice...), j.skipped+other.skipped, cmp.Or(j.err, other.err)
}

// hand counts verdicts and hands them on.
func (c *Check) hand(j judged) error {
	if j.err != nil {
		return j.err
	}
	c.summary.Skipped += j.skipped
	for _, twice := range j.twice {
		if c.Warn != nil {
			c.Warn(twice.file, twice.Duplicate)
		}
	}
	for _, v := range j.verdicts {
		if v.Path == "" {
			c.summary.Objects++
		}
		switch v.Status {
		case "removed":
			c.summary.Removed++
		case "later":
			c.summary.Later++
		case "deprecated":
			c.summary.Deprecated++
		case "off":
			c.summary.Off++
		case "unknown":
			c.summary.Unknown++
		case "custom":
			c.summary.Custom++
		}
		if err := c.emit(v); err != nil {
			return err
		}
	}
	return nil
}

// part judges the objects of a part of a text. It changes nothing of the check.
func (c *Check) part(ctx context.Context, name string, part manifest.Part, err error, within bool) (j judged) {
	switch {
	case ctx.Err() != nil:
		j.err = ctx.Err()
		return j
	case err != nil:
		j.problems = append(j.problems, placed(name, err))
		return j
	case !part.Object:
		return j
	}
	source, err := decode(c.converter, part)
	switch {
	case err != nil && (c.Strict || !foreign(part, nil, err)):
		j.problems = append(j.problems, placed(name, err))
		return j
	case err != nil || source != nil && !c.Strict && foreign(part, source.Object, nil):
		j.skipped++
		return j
	case source == nil:
		return j
	}
	if source.text != nil {
		for _, twice := range source.text.Duplicates {
			j.twice = append(j.twice, duplicate{name, twice})
		}
	}
	objects, others := flatten(&source.Unstructured)
	for _, object := range objects {
		j.add(c.object(ctx, fmt.Sprintf("%s:%d", name, part.Line), object, within))
	}
	if others > 0 {
		j.problems = append(j.problems, placed(name, syntaxError(part, "%d items of the list are no objects", others)))
	}
	return j
}

func placed(name string, err error) error {
	var syntax *manifest.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("%s:%d: document %d: %w", name, syntax.Line, syntax.Document, syntax.Err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// flatten lists the objects of a list, and of the lists in it, and counts what else it holds. Items of a list of one
// kind need not name it.
func flatten(u *unstructured.Unstructured) (objects []*unstructured.Unstructured, others int) {
	items, ok := u.Object["items"].([]any)
	kind, list := strings.CutSuffix(u.GetKind(), "List")
	if !ok || !list {
		return []*unstructured.Unstructured{u}, 0
	}
	for _, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			others++
			continue
		}
		inner := &unstructured.Unstructured{Object: maps.Clone(object)}
		if inner.GetKind() == "" && kind != "" {
			inner.SetGroupVersionKind(u.GroupVersionKind().GroupVersion().WithKind(kind))
		}
		if inner.GetKind() == "" || inner.GetAPIVersion() == "" {
			others++
			continue
		}
		more, of := flatten(inner)
		objects, others = append(objects, more...), others+of
	}
	if kind != "" && len(objects) == 0 && others > 0 { // a custom resource that is called so
		return []*unstructured.Unstructured{u}, 0
	}
	return objects, others
}

// Object judges an object, or with Helm what the release applied that it records, and returns what it could not read.
func (c *Check) Object(
	ctx context.Context, place string, object *unstructured.Unstructured,
) (problems []error, err error) {
	j := c.object(ctx, place, object, false)
	return j.problems, c.hand(j)
}

// object judges an object; within a release that is an object like others: a record of releases in a release could be
// unpacked to any size.
func (c *Check) object(ctx context.Context, place string, object *unstructured.Unstructured, within bool) (j judged) {
	if c.Helm && !within {
		release, ok, err := manifest.HelmRelease(object.Object)
		switch {
		case err != nil:
			j.problems = append(j.problems,
				fmt.Errorf("%s: %s/%s: %w", place, object.GetNamespace(), object.GetName(), err))
			return j
		case ok && !release.Deployed():
			return j
		case ok:
			name := fmt.Sprintf("release %s/%s v%d", release.Namespace, release.Name, release.Revision)
			for part, err := range manifest.Parts(bytes.NewReader([]byte(release.Manifest))) {
				j.add(c.part(ctx, name, part, err, true))
			}
			return j
		}
	}
	j.verdicts = append(j.verdicts, c.judge(place, object))
	j.verdicts = append(j.verdicts,
		c.judgeReferences(place, object, slices.Concat(c.scaleTarget(object), parameters(object), owners(object)))...)
	j.verdicts = append(j.verdicts, c.judgeNamings(place, object)...)
	if applied := c.applied(object); applied != nil {
		j.verdicts = append(j.verdicts, c.judge(place+" (last applied)", applied))
	}
	return j
}

// applied is the object as kubectl applied it, where that was in another version; nil otherwise.
func (c *Check) applied(object *unstructured.Unstructured) *unstructured.Unstructured {
	text := object.GetAnnotations()["kubectl.kubernetes.io/last-applied-configuration"]
	applied := &unstructured.Unstructured{}
	// No server stores as many objects as there may be in a file.
	if text == "" || strings.Count(text, "{") > 100_000 || json.Unmarshal([]byte(text), &applied.Object) != nil ||
		applied.GetKind() == "" || applied.GroupVersionKind() == object.GroupVersionKind() {
		return nil
	}
	return applied
}

// judge is what the release makes of an object.
func (c *Check) judge(place string, object *unstructured.Unstructured) Verdict {
	gvk := object.GroupVersionKind()
	v := c.verdictOf(gvk)
	v.Place, v.Namespace, v.Name = place, object.GetNamespace(), object.GetName()
	replacement, ok := c.converter.Replacement(gvk, c.minor)
	if !ok || v.Replacement == "" {
		return v
	}
	result, losses, err := c.converter.Convert(object, replacement)
	if err != nil {
		v.Why = err.Error()
		return v
	}
	if v.Defaults, err = c.converter.Defaults(object, result, false); err != nil {
		v.Why = err.Error()
	}
	v.Losses = append(losses, c.converter.LossesIn(result, c.minor)...)
	lossless := len(v.Losses) == 0
	v.Lossless = &lossless
	return v
}

// verdictOf is what the release makes of a kind.
func (c *Check) verdictOf(gvk schema.GroupVersionKind) Verdict {
	v := Verdict{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Status: "ok"}
	if why := c.converter.Misnamed(gvk); why != "" {
		v.Status, v.Why = "unknown", why
		return v
	}
	s := c.converter.StandingIn(gvk, c.minor)
	switch {
	case !s.Known:
		return c.moved(gvk, v)
	case s.Gone && s.Began() > c.minor:
		v.Status, v.Since, v.Why = "later", s.Began().String(), s.Reason
	case s.Gone:
		v.Status, v.Since, v.Why = "removed", s.Ended().String(), s.Reason
	case !s.Served:
		v.Status, v.Why = "off", "served only with --runtime-config"
		if s.Deprecated != 0 && s.Deprecated <= c.minor {
			v.Why += ", and deprecated since " + s.Deprecated.String()
		}
	case s.Deprecated != 0 && s.Deprecated <= c.minor:
		v.Status, v.Since = "deprecated", s.Deprecated.String()
	}
	if v.Status != "ok" {
		if replacement, ok := c.converter.Replacement(gvk, c.minor); ok {
			v.Replacement = replacement.GroupVersion().String() + " " + replacement.Kind
		}
	}
	return v
}

// moved judges a kind of another project, whose releases are not Kubernetes': one that its newest release no longer has
// is removed.
func (c *Check) moved(gvk schema.GroupVersionKind, v Verdict) Verdict {
	v.Status = "custom"
	if c.converter.Knows(gvk) {
		v.Status = "ok"
	}
	for _, m := range slices.Backward(append(kubever.MovedKinds(), c.Moved...)) {
		if m.GroupVersion != gvk.GroupVersion() || m.Kind != "" && m.Kind != gvk.Kind {
			continue
		}
		removed, deprecated := m.Removed != "", m.Deprecated != ""
		if m.Project == "kubernetes" {
			removed, deprecated = c.reached(m.Removed), c.reached(m.Deprecated)
		}
		switch {
		case removed:
			v.Status, v.Since = "removed", m.Project+" "+m.Removed
		case deprecated:
			v.Status, v.Since = "deprecated", m.Project+" "+m.Deprecated
		default:
			return v
		}
		if v.Replacement = m.Replacement; m.Replacement != "" && !strings.Contains(m.Replacement, " ") {
			v.Replacement += " " + gvk.Kind
		}
		return v
	}
	return v
}

// reached reports whether the release in question is that one, or a later one.
func (c *Check) reached(release string) bool {
	version, err := kubever.Parse(release)
	return err == nil && version.Minor <= c.minor
}

// Concerns reports whether the release deprecates some version of the kind, or does not have it, or whether objects of
// it name others that it may not have.
func (c *Check) Concerns(gvk schema.GroupVersionKind) bool {
	if c.scales(gvk) || namesResources(gvk) {
		return true
	}
	for _, kind := range append(c.converter.Equivalents(gvk), gvk) {
		deprecated := kubever.LifecycleOf(kind).Deprecated // also of what is off
		if status := c.verdictOf(kind).Status; status == "removed" || status == "later" || status == "deprecated" ||
			deprecated != 0 && deprecated <= c.minor {
			return true
		}
	}
	return false
}

// ofControlPlane are the managers of fields that come with the release: an upgrade replaces them and the versions that
// they write in, and their objects are theirs to rewrite. Kubelets stay behind, and are judged like any client.
var ofControlPlane = map[string]bool{
	kubever.APIServer: true, kubever.ControllerManager: true, kubever.Scheduler: true,
	// kube-apiserver's own, for flow schemas and priority levels: storage_flowcontrol.go and apf_filter.go since 1.20
	"api-priority-and-fairness-config-producer-v1": true,
	"api-priority-and-fairness-config-consumer-v1": true,
}

// Written judges the versions in which clients wrote an object: its last applied configuration, and the managers of its
// fields; and what it names by versions and groups, but for its owners. An object of a kind that the release has in no
// version is judged as it is. What it could not judge are problems.
func (c *Check) Written(object *unstructured.Unstructured) (problems []error, err error) {
	versions := map[string]string{}
	for _, manager := range object.GetManagedFields() {
		if manager.APIVersion != "" && manager.Subresource == "" && !ofControlPlane[manager.Manager] {
			versions[manager.APIVersion] = "written by " + manager.Manager
		}
	}
	var applied struct{ APIVersion, Kind string }
	text := object.GetAnnotations()["kubectl.kubernetes.io/last-applied-configuration"]
	if text != "" && json.Unmarshal([]byte(text), &applied) == nil {
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
			problems = append(problems,
				fmt.Errorf("%s: %s/%s: %w", gvk.Kind, object.GetNamespace(), object.GetName(), err))
			continue
		}
		if err := c.hand(judged{verdicts: []Verdict{c.judge(versions[version], as)}}); err != nil {
			return problems, err
		}
	}
	named := c.judgeReferences("stored", object, append(c.scaleTarget(object), parameters(object)...))
	return problems, c.hand(judged{verdicts: append(named, c.judgeNamings("stored", object)...)})
}
