package validate

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"

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
	// Doubtful: 1.36 refuses it, the object as it was before too, and the minor is another: it may be less strict.
	Doubtful bool
	// Accepted: the minor accepts the object, and refuses the pods or the claims that controllers create of it.
	Accepted bool
	// OfClient: servers of the minor accept the object, and kubectl of the minor does not send it.
	OfClient bool
}

func (e *RefusedError) Error() string {
	lines := make([]string, len(e.Errors))
	for i, err := range e.Errors {
		lines[i] = shortened(err.Error())
	}
	switch {
	case e.OfClient:
		return fmt.Sprintf("kubectl %s sends it only with --validate=false: %s", e.Minor, strings.Join(lines, "; "))
	case e.Accepted:
		return fmt.Sprintf("%s accepts it, and refuses what is created of it: %s", e.Minor, strings.Join(lines, "; "))
	case e.Doubtful:
		return fmt.Sprintf("%s may refuse it, as %s does: %s", e.Minor, kubever.Library, strings.Join(lines, "; "))
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

// Completed is what became of an object, and what is to be said of it.
type Completed struct {
	Changes []Change
	Losses  []convert.Loss // by what was changed
	Unknown []convert.Loss // what servers of the minor do not know: as convert.Converter.LossesIn
}

// Complete makes what a conversion yielded acceptable to a server of the minor, 0 for any that serves its version:
// fields that its version requires, and that the version of the input defaults, are written into its result; CRDs are
// given the schemas that apiextensions.k8s.io/v1 requires. Each such field is a Change; what is lost by it is a Loss.
//
// Versions that Kubernetes 1.36 serves are held to its validation. For other minors only that part of it counts that
// has always been: what is required, and what the version of the input allows and that of the result refuses. An object
// that is accepted is decoded and validated once, one that is completed twice.
// Errors: *RefusedError for what a server of the minor refuses still; *convert.ContentError.
func Complete(conversion *convert.Conversion, minor kubever.Minor) (Completed, error) {
	in, out := conversion.In, conversion.Out
	v := validation{
		conversion: conversion, converter: conversion.Converter(), in: in, out: out, minor: minor,
		full: fully(out.GroupVersionKind(), minor),
	}
	if minor == 0 {
		v.minor = newest(out.GroupVersionKind())
	}
	var done Completed
	if isDefinition(out.GroupVersionKind()) && in.GroupVersionKind() != out.GroupVersionKind() {
		conversion.Own()
		if out.GroupVersionKind().Version != "v1" {
			done.Changes = prunes(out.Object, v.minor)
			read := v.converter.AsRead(convert.WithoutSchemas(out), v.minor)
			done.Losses = withoutRefused(out.Object, read.Object, v.minor)
			v.wordsDropped = true
		} else {
			done.Changes, done.Losses = completeDefinition(in.Object, out.Object)
		}
	}
	written := conversion.WriteRequired(v.minor)
	judged, err := v.judge(out)
	if err != nil {
		return done, err
	}
	refused := placesOf(judged.refused)
	if withdrawn := slices.DeleteFunc(slices.Clone(written), func(path string) bool {
		return !refused.concern(path)
	}); len(withdrawn) > 0 { // a default that is refused is not written
		conversion.Withdraw(withdrawn)
		written = slices.DeleteFunc(written, refused.concern)
		if judged, err = v.judge(out); err != nil {
			return done, err
		}
	}
	done.Changes = append(done.Changes, v.writes(written)...)
	if len(judged.refused) > 0 {
		var written []Change
		if written, judged, err = v.fill(judged); err != nil {
			return Completed{}, err
		}
		done.Changes = append(done.Changes, written...)
	}
	done.Unknown = judged.reading.Losses()
	if len(judged.refused) > 0 {
		return done, v.problem(judged)
	}
	supplied, unsent := v.supply(judged.reading)
	done.Changes = append(done.Changes, supplied...)
	if err := v.problem(judged); err != nil {
		return done, err
	}
	return done, unsent
}

// supply writes what kubectl requires of an object that servers accept without it, and says what else kubectl refuses.
func (v *validation) supply(reading convert.Reading) (changes []Change, refused error) {
	written, left := v.conversion.Supply(reading)
	for _, field := range written {
		changes = append(changes, Change{field.Path, field.Value, fmt.Sprintf(
			"kubectl %s requires it, servers take its absence for this", v.minor)})
	}
	var errs field.ErrorList
	for _, path := range left {
		errs = append(errs, field.Required(field.NewPath(path), "by the API description"))
	}
	if at := reading.Misdescribed(); at != "" {
		errs = append(errs, field.Forbidden(field.NewPath(at), "the API description has no type for it"))
	}
	if at := reading.Null(); at != "" {
		errs = append(errs, field.Forbidden(field.NewPath(at), "null stands in a list or in a map"))
	}
	if len(errs) == 0 {
		return changes, nil
	}
	return changes, &RefusedError{Kind: v.out.GroupVersionKind(), Minor: v.minor, Errors: errs, OfClient: true}
}

// judgement is what servers make of an object.
type judgement struct {
	refused field.ErrorList // by the server of the minor
	created field.ErrorList // by the server of the minor, of the pods that are created of it
	doubts  field.ErrorList // by 1.36, of the object as it was, too: another minor may take it
	reading convert.Reading // of the object that was judged
}

func (v *validation) problem(j judgement) error {
	switch kind := v.out.GroupVersionKind(); {
	case len(j.refused) > 0:
		return &RefusedError{Kind: kind, Minor: v.minor, Errors: j.refused}
	case len(j.created) > 0 && !slices.ContainsFunc(j.doubts, func(err *field.Error) bool {
		return !ofPodsAlone(kind, v.minor, err)
	}):
		return &RefusedError{Kind: kind, Minor: v.minor, Errors: j.created, Accepted: true}
	case len(j.doubts) > 0:
		return &RefusedError{Kind: kind, Minor: v.minor, Errors: unique(append(j.doubts, j.created...)), Doubtful: true}
	}
	return nil
}

// fully reports whether all of 1.36's validation holds for a version on servers of the minor: of the versions of
// webhooks, of CRDs and of certificate requests that they have today it always did.
func fully(gvk schema.GroupVersionKind, minor kubever.Minor) bool {
	if minor == 0 || minor == kubever.Library {
		return kubever.ServesGVK(gvk, kubever.Library)
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
	conversion *convert.Conversion // nil for one that is judged alone
	converter  *convert.Converter
	in, out    *unstructured.Unstructured
	minor      kubever.Minor
	full       bool

	wordsDropped bool // of schemas: what servers of the minor refuse is not there any more

	before map[string]bool // what is refused of in; nil until it is needed
}

// judge validates an object: as the minor reads it, for it may lack what is left when a field is dropped.
func (v *validation) judge(object *unstructured.Unstructured) (judgement, error) {
	reading := v.reading(object)
	read := v.heeded(reading.AsRead())
	errs, err := v.errors(read)
	if v.minor >= kubever.Library && v.full || err != nil {
		return judgement{refused: errs, reading: reading}, err
	}
	gvk := object.GroupVersionKind()
	errs = slices.DeleteFunc(errs, func(err *field.Error) bool {
		return v.converter.CameLater(gvk, err.Field, v.minor)
	})
	certain := append(stricter(read, v.minor, !v.wordsDropped), v.lateValues(object)...)
	ended, doubts, err := v.ended(read)
	if err != nil {
		return judgement{}, err
	}
	later, err := v.laterExpressions(read)
	if err != nil {
		return judgement{}, err
	}
	certain = append(append(certain, ended...), later...)
	if v.full {
		return judgement{refused: append(certain, errs...), reading: reading}, nil
	}
	whole := errsOnce{of: func() (field.ErrorList, error) { return v.errors(object) }}
	before := errsOnce{of: func() (field.ErrorList, error) { return v.errors(v.in) }, found: v.before}
	for _, err := range errs {
		if err.Type == field.ErrorTypeRequired && !maybeLater(object.GetKind(), v.minor, err) {
			certain = append(certain, err)
			continue
		}
		known, unread := before.have(err)
		if unread != nil {
			return judgement{}, unread
		}
		// What 1.36 says of the rest of an object whose later fields are dropped, it may say because it knows these.
		if !known && read != object {
			also, unread := whole.have(err)
			if unread != nil {
				return judgement{}, unread
			}
			known = !also
		}
		if !known {
			certain = append(certain, err)
		}
	}
	v.before = before.found
	j := judgement{doubts: append(errs, doubts...), reading: reading}
	for _, err := range certain {
		switch {
		case unjudged(gvk, v.minor, err):
		case ofPodsAlone(gvk, v.minor, err):
			j.created = append(j.created, err)
		default:
			j.refused = append(j.refused, err)
		}
	}
	return j, nil
}

// heeded is an object without the annotations that 1.36 reads as fields and servers of the minor do not.
func (v *validation) heeded(object *unstructured.Unstructured) *unstructured.Unstructured {
	annotations := fields(fields(object.Object["metadata"])["annotations"])
	if len(annotations) == 0 {
		return object
	}
	kept := maps.Clone(annotations)
	for _, row := range kubever.AnnotationsOf(object.GetKind()) {
		if row.Field == "" && !row.Heeded.Has(v.minor) {
			delete(kept, row.Name)
		}
	}
	if len(kept) == len(annotations) {
		return object
	}
	object = &unstructured.Unstructured{Object: maps.Clone(object.Object)}
	metadata := maps.Clone(fields(object.Object["metadata"]))
	metadata["annotations"] = kept
	object.Object["metadata"] = metadata
	return object
}

// lateValues are the values that servers of the minor do not know yet.
func (v *validation) lateValues(object *unstructured.Unstructured) (errs field.ErrorList) {
	for _, late := range v.converter.RefusedValues(object, v.minor) {
		if late.Gate != "" {
			errs = append(errs, field.Forbidden(field.NewPath(late.Path),
				"the feature gate "+late.Gate+" is off by default"))
			continue
		}
		why := v.minor.String() + " does not accept the value"
		if late.Since != 0 {
			why += ", " + late.Since.String() + " does"
		}
		errs = append(errs, field.Invalid(field.NewPath(late.Path), late.Value, why))
	}
	return errs
}

// lists are fields of which servers fill in a list since they have one: an error about its first element is about the
// field.
var lists = map[string]string{"clusterIP": "clusterIPs", "podCIDR": "podCIDRs"}

// saidOnce gives errors about an element of a list that the object does not have the name of the field that it has.
func saidOnce(object *unstructured.Unstructured, errs field.ErrorList) {
	spec := fields(object.Object["spec"])
	for one, list := range lists {
		if spec[one] == nil || spec[list] != nil {
			continue
		}
		for _, err := range errs {
			if err.Field == "spec."+list+"[0]" {
				err.Field = "spec." + one
			}
		}
	}
}

// errsOnce are errors that are found when they are needed, and kept.
type errsOnce struct {
	of    func() (field.ErrorList, error)
	found map[string]bool // by their words; nil until they are needed
}

// have reports whether one of them is the same, wherever.
func (e *errsOnce) have(err *field.Error) (bool, error) {
	if e.found == nil {
		errs, unread := e.of()
		if unread != nil {
			return false, unread
		}
		e.found = map[string]bool{}
		for _, err := range errs {
			e.found[sameWherever(err)] = true
		}
	}
	return e.found[sameWherever(err)], nil
}

// sameWherever is an error in words, which are the same for a schema at any place of a CRD.
func sameWherever(err *field.Error) string {
	const schema = ".openAPIV3Schema"
	if at := strings.Index(err.Field, schema); at >= 0 {
		return err.Field[at:] + ": " + err.ErrorBody()
	}
	return err.Error()
}

func (v *validation) errors(object *unstructured.Unstructured) (field.ErrorList, error) {
	gvk := object.GroupVersionKind()
	if isDefinition(gvk) {
		structural := gvk.Version == "v1" || mustBeStructural(object.Object, v.minor)
		crd, err := v.definition(reduced(object, structural))
		switch {
		case err != nil:
			return nil, err
		case gvk.Version == "v1":
			return Created(crd, gvk.GroupVersion(), false), nil
		}
		return ofBeta(crd, structural), nil
	}
	internal, native, err := v.internal(object)
	if err == nil && !native {
		return v.equivalent(object)
	}
	if err != nil {
		return nil, err
	}
	errs := created(internal, request{gvk.GroupVersion(), v.minor}, namespaced(gvk))
	if !v.full {
		saidOnce(object, errs)
	}
	return errs, nil
}

// laterExpressions are the expressions of an object that the minor does not compile.
func (v *validation) laterExpressions(object *unstructured.Unstructured) (field.ErrorList, error) {
	gvk := object.GroupVersionKind()
	switch {
	case v.minor >= kubever.Library:
	case isDefinition(gvk) && gvk.Version == "v1":
		crd, err := v.definition(reduced(object, true))
		if err != nil {
			return nil, err
		}
		return laterExpressions(crd, v.minor), nil
	case gvk.Group == admissionregistration.GroupName:
		internal, native, err := v.internal(object)
		if err != nil || !native {
			return nil, err
		}
		return laterExpressions(internal, v.minor), nil
	}
	return nil, nil
}

// equivalent judges an object in a version that 1.36 does not have, any more or yet, by one that it has, if only with
// --runtime-config.
func (v *validation) equivalent(object *unstructured.Unstructured) (field.ErrorList, error) {
	for _, kind := range v.converter.Equivalents(object.GroupVersionKind()) {
		if !kubever.LifecycleOf(kind).Minors.Has(kubever.Library) {
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
			return created(internal, request{kind.GroupVersion(), v.minor}, namespaced(kind)), nil
		}
	}
	return nil, nil
}

// definition reads a CRD.
func (v *validation) definition(object *unstructured.Unstructured) (*apiextensions.CustomResourceDefinition, error) {
	internal, _, err := v.internal(object)
	if err != nil {
		return nil, err
	}
	return internal.(*apiextensions.CustomResourceDefinition), nil
}

func (v *validation) reading(object *unstructured.Unstructured) convert.Reading {
	if object == v.out && v.conversion != nil {
		return v.conversion.Read(v.minor)
	}
	return v.converter.Read(object, v.minor)
}

func (v *validation) internal(object *unstructured.Unstructured) (runtime.Object, bool, error) {
	if object == v.out && v.conversion != nil {
		return v.conversion.Internal()
	}
	return v.converter.Internal(object)
}

// fill writes the defaults of the old version where the new one misses something: those of the fields that are refused,
// and then, one by one, what makes an error about another field go away. A default that does not help is not written.
func (v *validation) fill(was judgement) (changes []Change, now judgement, err error) {
	var paths, others []string
	refused := placesOf(was.refused)
	for _, path := range v.conversion.Defaults.Paths() {
		switch {
		case refused.concern(path):
			paths = append(paths, path)
		case !strings.Contains(path, "["):
			others = append(others, path)
		}
	}
	now, filled := was, v.out
	if len(paths) > 0 {
		if now, filled, err = v.with(paths); err != nil {
			return nil, judgement{}, err
		}
	}
	for _, path := range others {
		if len(now.refused) == 0 {
			break
		}
		fewer, more, err := v.with(append(slices.Clone(paths), path))
		if err != nil {
			return nil, judgement{}, err
		}
		if len(fewer.refused) < len(now.refused) {
			paths, now, filled = append(paths, path), fewer, more
		}
	}
	if len(paths) == 0 {
		return nil, was, nil
	}
	refused, unknown := placesOf(now.refused), places{}
	for _, loss := range v.converter.LossesIn(filled, v.minor) {
		unknown.add(loss.Path)
	}
	helpful := slices.DeleteFunc(slices.Clone(paths), func(path string) bool {
		return refused.concern(path) || unknown.concern(path)
	})
	if len(helpful) < len(paths) {
		if now, filled, err = v.with(helpful); err != nil {
			return nil, judgement{}, err
		}
	}
	v.conversion.Replace(filled.Object)
	return v.writes(helpful), now, nil
}

// writes are the changes that defaults of the old version are written.
func (v *validation) writes(paths []string) (changes []Change) {
	if len(paths) == 0 {
		return nil
	}
	meaning := v.in.GetAPIVersion() + " defaults it, " + v.out.GetAPIVersion() + " requires it"
	changes = make([]Change, 0, len(paths))
	for _, path := range paths {
		changes = append(changes, Change{Path: path, Meaning: meaning})
	}
	return changes
}

// with is the object with the defaults of these fields, and what is refused of it.
func (v *validation) with(paths []string) (judgement, *unstructured.Unstructured, error) {
	wanted := make(map[string]bool, len(paths))
	for _, path := range paths {
		wanted[path] = true
	}
	filled := v.out.DeepCopy()
	v.conversion.Defaults.Write(filled, func(path string) bool { return wanted[path] })
	judged, err := v.judge(filled)
	return judged, filled, err
}

// places are paths of fields: true for one that is meant, false for one that leads to it.
type places map[string]bool

func placesOf(errs field.ErrorList) places {
	p := places{}
	for _, err := range errs {
		p.add(err.Field)
	}
	return p
}

func (p places) add(path string) {
	for parent := range parents(path) {
		if _, ok := p[parent]; ok {
			break
		}
		p[parent] = false
	}
	p[path] = true
}

// concern reports whether the path leads to one of the places, or one of them leads to the path.
func (p places) concern(path string) bool {
	if _, ok := p[path]; ok {
		return true
	}
	for parent := range parents(path) {
		if p[parent] {
			return true
		}
	}
	return false
}

// parents are the paths that lead to one, the longest first.
func parents(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := len(path) - 1; i > 0; i-- {
			if (path[i] == '.' || path[i] == '[') && !yield(path[:i]) {
				return
			}
		}
	}
}

func isDefinition(gvk schema.GroupVersionKind) bool {
	return gvk.Group == "apiextensions.k8s.io" && gvk.Kind == "CustomResourceDefinition"
}

// namespaced reports whether objects of a kind are in namespaces.
func namespaced(gvk schema.GroupVersionKind) bool {
	in, _ := kubever.Namespaced(gvk)
	return in
}
