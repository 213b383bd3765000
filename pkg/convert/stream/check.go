package stream

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

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/manifest"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Verdict is what a release makes of one object.
type Verdict struct {
	Place       string         `json:"place"`
	APIVersion  string         `json:"apiVersion"`
	Kind        string         `json:"kind"`
	Namespace   string         `json:"namespace,omitempty"`
	Name        string         `json:"name"`
	Status      string         `json:"status"` // removed, deprecated, off (not served by default), unknown, custom, ok
	Since       string         `json:"since,omitempty"`
	Replacement string         `json:"replacement,omitempty"`
	Lossless    *bool          `json:"lossless,omitempty"` // whether it converts to the replacement without loss
	Losses      []convert.Loss `json:"losses,omitempty"`
	Defaults    []convert.Loss `json:"defaults,omitempty"` // that are others there; convert --defaults writes them out
	Why         string         `json:"why,omitempty"`
}

// Summary counts objects by their status.
type Summary struct {
	Objects    int      `json:"objects"`
	Removed    int      `json:"removed"`
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

// Text looks at every object of a text, and returns what it could not read.
func (c *Check) Text(ctx context.Context, name string, in io.Reader) (problems []error, err error) {
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
		source, err := decode(c.converter, part)
		if err != nil && (c.Strict || !foreign(part, nil, err)) {
			problems = append(problems, placed(name, err))
			continue
		}
		if err != nil || source != nil && !c.Strict && foreign(part, source.Object, nil) {
			c.summary.Skipped++
			continue
		}
		if source == nil {
			continue
		}
		if source.text != nil && c.Warn != nil {
			for _, twice := range source.text.Duplicates {
				c.Warn(name, twice)
			}
		}
		objects := flatten(&source.Unstructured)
		for _, object := range objects {
			unread, err := c.Object(ctx, fmt.Sprintf("%s:%d", name, part.Line), object)
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

// Object judges an object, or with --helm what the release applied that it records.
func (c *Check) Object(
	ctx context.Context, place string, object *unstructured.Unstructured,
) (problems []error, err error) {
	if c.Helm {
		release, ok, err := manifest.HelmRelease(object.Object)
		if err != nil {
			return []error{fmt.Errorf("%s: %s/%s: %w", place, object.GetNamespace(), object.GetName(), err)}, nil
		}
		if ok {
			if !release.Deployed() {
				return nil, nil
			}
			name := fmt.Sprintf("release %s/%s v%d", release.Namespace, release.Name, release.Revision)
			return c.Text(ctx, name, strings.NewReader(string(release.Manifest)))
		}
	}
	return nil, errors.Join(c.judge(place, object), c.applied(place, object))
}

// applied judges the version in which kubectl applied an object, where that is another one than the object's.
func (c *Check) applied(place string, object *unstructured.Unstructured) error {
	text := object.GetAnnotations()["kubectl.kubernetes.io/last-applied-configuration"]
	if text == "" {
		return nil
	}
	applied := &unstructured.Unstructured{}
	if json.Unmarshal([]byte(text), &applied.Object) != nil ||
		applied.GroupVersionKind() == object.GroupVersionKind() ||
		applied.GetKind() == "" {
		return nil
	}
	return c.judge(place+" (last applied)", applied)
}

// judge hands on what the release makes of an object.
func (c *Check) judge(place string, object *unstructured.Unstructured) error {
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
	case "custom":
		c.summary.Custom++
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
	return c.emit(v)
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
	case s.Gone && len(s.DefaultOn) > 0 && s.DefaultOn[0].From > c.minor, s.Gone && s.Minors[0].From > c.minor:
		v.Status, v.Why = "removed", cmp.Or(s.Reason, "came after "+c.minor.String())
	case s.Gone:
		v.Status, v.Since, v.Why = "removed", s.Ended().String(), s.Reason
	case s.Deprecated != 0 && s.Deprecated <= c.minor:
		v.Status, v.Since = "deprecated", s.Deprecated.String()
	case !s.Served:
		v.Status, v.Why = "off", "served only with --runtime-config"
	}
	if v.Status == "removed" || v.Status == "deprecated" || v.Status == "off" {
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
		if m.Replacement != "" {
			v.Replacement = m.Replacement + " " + gvk.Kind
		}
		return v
	}
	return v
}

// reached reports whether the release that is asked about is that one, or a later one.
func (c *Check) reached(release string) bool {
	version, err := kubever.Parse(release)
	return err == nil && version.Minor <= c.minor
}

// Concerns reports whether the release deprecates some version of the kind, or no longer has it.
func (c *Check) Concerns(gvk schema.GroupVersionKind) bool {
	for _, kind := range append(c.converter.Equivalents(gvk), gvk) {
		if status := c.verdictOf(kind).Status; status == "removed" || status == "deprecated" {
			return true
		}
	}
	return false
}

// Written judges the versions in which clients wrote an object: its last applied configuration, and the managers of its
// fields. An object of a kind that the release has in no version is judged as it is.
func (c *Check) Written(object *unstructured.Unstructured) error {
	versions := map[string]string{}
	for _, manager := range object.GetManagedFields() {
		if manager.APIVersion != "" && manager.Subresource == "" {
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
			return err
		}
		if err := c.judge(versions[version], as); err != nil {
			return err
		}
	}
	return nil
}
