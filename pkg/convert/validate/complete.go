package validate

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Change is a field that was written so that the object is accepted, and why it says what the object said before.
type Change struct {
	Path    string `json:"path"`
	Value   any    `json:"value,omitempty"` // nil for what was taken away
	Meaning string `json:"meaning"`
}

// RefusedError says what a server would refuse of an object.
type RefusedError struct {
	Kind   schema.GroupVersionKind
	Minor  kubever.Minor
	Errors field.ErrorList
	// Doubtful: 1.36 refuses it, the object as it was before too, and the minor is older: it may have been less strict.
	Doubtful bool
}

func (e *RefusedError) Error() string {
	lines := make([]string, len(e.Errors))
	for i, err := range e.Errors {
		lines[i] = shortened(err.Error())
	}
	if e.Doubtful {
		return fmt.Sprintf("%s may refuse it, as %s does: %s", e.Minor, kubever.Newest, strings.Join(lines, "; "))
	}
	return fmt.Sprintf("%s refuses it: %s", e.Minor, strings.Join(lines, "; "))
}

// messageLimitBytes bounds one message: some print the whole value.
const messageLimitBytes = 400

func shortened(text string) string {
	if len(text) <= messageLimitBytes {
		return text
	}
	half := messageLimitBytes / 2
	return strings.ToValidUTF8(text[:half]+" ... "+text[len(text)-half:], "")
}

// Complete makes what a conversion yielded acceptable to a server of the minor, 0 for any that serves its version:
// fields that its version requires, and that the version of in defaults, are written into out; CRDs are given the
// schemas that apiextensions.k8s.io/v1 requires. Each such field is a Change; what is lost by it is a Loss.
//
// Versions that Kubernetes 1.36 serves are held to its validation. For older minors only that part of it counts that
// has always been: what is required, and what the version of in allows and that of out refuses. Errors: *RefusedError
// for what a server of the minor refuses still; *convert.ContentError.
func Complete(
	c *convert.Converter, in, out *unstructured.Unstructured, minor kubever.Minor,
) (changes []Change, losses []convert.Loss, err error) {
	v := validation{converter: c, in: in, out: out, minor: minor, full: fully(out.GroupVersionKind(), minor)}
	if minor == 0 {
		v.minor = newest(out.GroupVersionKind())
	}
	if isDefinition(out.GroupVersionKind()) && in.GroupVersionKind() != out.GroupVersionKind() {
		if out.GroupVersionKind().Version != "v1" {
			changes = prunes(out.Object, v.minor)
		} else {
			changes, losses = completeDefinition(in.Object, out.Object)
		}
	}
	refused, err := v.refused(out)
	if err == nil && len(refused) == 0 {
		err = v.doubts()
	}
	if err != nil || len(refused) == 0 {
		return changes, losses, err
	}
	written, err := v.fill(refused)
	if err != nil {
		return nil, nil, err
	}
	if len(written) > 0 {
		if refused, err = v.refused(out); err != nil {
			return nil, nil, err
		}
	}
	for _, err := range refused { // a default that does not help is no help
		written = slices.DeleteFunc(written, func(w Change) bool { return concerns(w.Path, err.Field) })
	}
	if changes = append(changes, written...); len(refused) > 0 {
		return changes, losses, &RefusedError{Kind: out.GroupVersionKind(), Minor: v.minor, Errors: refused}
	}
	return changes, losses, v.doubts()
}

// doubts are what 1.36 refuses of the object as it was, too, and an older minor may take.
func (v *validation) doubts() error {
	if v.full {
		return nil
	}
	errs, err := v.errors(v.out)
	if errs = append(errs, stricter(v.out, v.minor)...); err != nil || len(errs) == 0 {
		return err
	}
	return &RefusedError{Kind: v.out.GroupVersionKind(), Minor: v.minor, Errors: errs, Doubtful: true}
}

// fully reports whether all of 1.36's validation holds for a version on servers of the minor: of the versions of
// webhooks, of CRDs and of certificate requests that they have today it always did.
func fully(gvk schema.GroupVersionKind, minor kubever.Minor) bool {
	if minor == 0 || minor == kubever.Newest {
		return kubever.ServesGVK(gvk, kubever.Newest)
	}
	return gvk.Version == "v1" &&
		(isDefinition(gvk) || gvk.Kind == "CertificateSigningRequest" ||
			strings.HasSuffix(gvk.Kind, "WebhookConfiguration"))
}

// newest is the last minor that serves a version, by default or at all.
func newest(gvk schema.GroupVersionKind) kubever.Minor {
	life := kubever.LifecycleOf(gvk)
	for _, minors := range []kubever.Ranges{life.DefaultOn, life.Minors} {
		if len(minors) > 0 {
			return minors[len(minors)-1].To
		}
	}
	return kubever.Newest
}

// validation is of one conversion.
type validation struct {
	converter *convert.Converter
	in, out   *unstructured.Unstructured
	minor     kubever.Minor
	full      bool
}

// refused lists what the server refuses of the result.
func (v *validation) refused(object *unstructured.Unstructured) (field.ErrorList, error) {
	errs, err := v.errors(object)
	if err != nil || v.full || len(errs) == 0 {
		return errs, err
	}
	before, err := v.errors(v.in)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, err := range before {
		known[err.Error()] = true
	}
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		return known[err.Error()] && err.Type != field.ErrorTypeRequired
	}), nil
}

func (v *validation) errors(object *unstructured.Unstructured) (field.ErrorList, error) {
	gvk := object.GroupVersionKind()
	if isDefinition(gvk) && gvk.Version != "v1" {
		return v.names(object)
	}
	internal, native, err := v.internal(object)
	if err == nil && !native {
		return v.equivalent(object)
	}
	if err != nil {
		return nil, err
	}
	return Created(internal, gvk.GroupVersion(), namespaced(gvk)), nil
}

// names are the errors of a CRD of v1beta1 in what v1 and v1beta1 require alike: group, names, versions and columns;
// and the schema, where unknown fields are pruned.
func (v *validation) names(object *unstructured.Unstructured) (field.ErrorList, error) {
	errs, err := v.equivalent(object)
	spec, _ := object.Object["spec"].(map[string]any)
	prunes := spec["preserveUnknownFields"] == false
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		ofVersion := strings.HasPrefix(err.Field, "spec.versions[")
		isSchema := ofVersion && strings.Contains(err.Field, ".schema") ||
			strings.HasPrefix(err.Field, "spec.validation")
		return err.Field != "spec.versions" && err.Field != "spec.group" && err.Field != "metadata.name" &&
			!strings.HasPrefix(err.Field, "spec.names") &&
			!strings.HasPrefix(err.Field, "spec.additionalPrinterColumns") && !(ofVersion && !isSchema) &&
			!(isSchema && prunes)
	}), err
}

// stricter are the errors of servers before the minor that let go of them.
func stricter(object *unstructured.Unstructured, minor kubever.Minor) field.ErrorList {
	switch object.GetKind() {
	case "Event": // pkg/apis/core/validation/events.go@1.15.12: the namespaces are the same; not since 1.19
		involved, _, _ := unstructured.NestedMap(object.Object, "involvedObject")
		if involved == nil {
			involved, _, _ = unstructured.NestedMap(object.Object, "regarding")
		}
		if named, _ := involved["namespace"].(string); minor < 19 && named != object.GetNamespace() {
			return field.ErrorList{
				field.Invalid(field.NewPath("involvedObject", "namespace"), named, "does not match event.namespace")}
		}
	case "Endpoints": // pkg/apis/core/validation/validation.go@1.10.13; not in 1.15
		subsets, _, _ := unstructured.NestedSlice(object.Object, "subsets")
		for i, subset := range subsets {
			if fields, ok := subset.(map[string]any); ok && minor < 15 && fields["ports"] == nil {
				return field.ErrorList{field.Required(field.NewPath("subsets").Index(i).Child("ports"), "")}
			}
		}
	}
	return nil
}

// equivalent judges an object in a version that 1.36 does not have any more by one that it serves.
func (v *validation) equivalent(object *unstructured.Unstructured) (field.ErrorList, error) {
	for _, kind := range v.converter.Equivalents(object.GroupVersionKind()) {
		if !kubever.ServesGVK(kind, kubever.Newest) {
			continue
		}
		converted, _, err := v.converter.Convert(object, kind)
		if err != nil {
			return nil, err
		}
		if internal, native, err := v.internal(converted); err != nil || native {
			if err != nil {
				return nil, err
			}
			return Created(internal, kind.GroupVersion(), namespaced(kind)), nil
		}
	}
	return nil, nil
}

func (v *validation) internal(object *unstructured.Unstructured) (internal runtime.Object, native bool, err error) {
	defer func() {
		if problem := recover(); problem != nil { // Kubernetes' defaults count on what decoders refuse
			err = &convert.ContentError{Kind: object.GroupVersionKind(),
				Err: fmt.Errorf("defaulting did not finish: %v", problem)}
		}
	}()
	return v.converter.Internal(object)
}

// fill writes the defaults of the old version where the new one misses something: those of the fields that are refused,
// and then, one by one, what makes an error about another field go away. A default that does not help is not written.
func (v *validation) fill(refused field.ErrorList) ([]Change, error) {
	differ, err := v.converter.DefaultsWhere(v.in, v.out.DeepCopy(), func(string) bool { return false })
	if err != nil {
		return nil, err
	}
	var paths, others []string
	for _, loss := range differ {
		switch {
		case slices.ContainsFunc(refused, func(err *field.Error) bool { return concerns(loss.Path, err.Field) }):
			paths = append(paths, loss.Path)
		case !strings.Contains(loss.Path, "["):
			others = append(others, loss.Path)
		}
	}
	left, err := v.with(paths)
	if err != nil {
		return nil, err
	}
	for _, path := range others {
		if len(left) == 0 {
			break
		}
		fewer, err := v.with(append(slices.Clone(paths), path))
		if err != nil {
			return nil, err
		}
		if len(fewer) < len(left) {
			paths, left = append(paths, path), fewer
		}
	}
	paths = slices.DeleteFunc(paths, func(path string) bool {
		return slices.ContainsFunc(left, func(err *field.Error) bool { return concerns(path, err.Field) })
	})
	from, to := v.in.GroupVersionKind().GroupVersion(), v.out.GroupVersionKind().GroupVersion()
	filled, err := v.filled(paths)
	if err != nil {
		return nil, err
	}
	unknown := v.converter.LossesIn(filled, v.minor)
	var changes []Change
	for _, path := range paths {
		if !slices.ContainsFunc(unknown, func(loss convert.Loss) bool { return concerns(path, loss.Path) }) {
			changes = append(
				changes, Change{Path: path, Meaning: fmt.Sprintf("%s defaults it, %s requires it", from, to)})
		}
	}
	_, err = v.converter.DefaultsWhere(v.in, v.out, func(path string) bool {
		return slices.ContainsFunc(changes, func(change Change) bool { return change.Path == path })
	})
	return changes, err
}

// with is what is refused when the defaults of these fields are written.
func (v *validation) with(paths []string) (field.ErrorList, error) {
	filled, err := v.filled(paths)
	if err != nil {
		return nil, err
	}
	return v.refused(filled)
}

func (v *validation) filled(paths []string) (*unstructured.Unstructured, error) {
	wanted := map[string]bool{}
	for _, path := range paths {
		wanted[path] = true
	}
	filled := v.out.DeepCopy()
	_, err := v.converter.DefaultsWhere(v.in, filled, func(path string) bool { return wanted[path] })
	return filled, err
}

// concerns reports whether one of two paths leads to the other.
func concerns(a, b string) bool {
	short, long := a, b
	if len(short) > len(long) {
		short, long = long, short
	}
	rest, ok := strings.CutPrefix(long, short)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func isDefinition(gvk schema.GroupVersionKind) bool {
	return gvk.Group == "apiextensions.k8s.io" && gvk.Kind == "CustomResourceDefinition"
}

// namespaced reports whether objects of a kind are in namespaces.
func namespaced(gvk schema.GroupVersionKind) bool {
	for _, minor := range slices.Backward(kubever.Minors()) {
		for _, api := range kubever.APIResources(minor) {
			if api.GroupVersion == gvk.GroupVersion() && api.Kind == gvk.Kind {
				return api.Namespaced
			}
		}
	}
	return false
}
