package convert

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Conversion is an object in another version, with the defaults that the two versions do not share, and with what was
// read of it on the way, so that nothing is copied, read or defaulted twice. Not safe for concurrent use.
type Conversion struct {
	In       *unstructured.Unstructured
	Out      *unstructured.Unstructured // shares parts with In: Own has to come before a change
	Losses   []Loss
	Defaults *DifferingDefaults // nil for none

	converter *Converter
	forms     forms
}

// forms are what an object was on the way from one version to another.
type forms struct {
	kept   bool           // they are wanted, the target as a whole
	owned  bool           // the result has no part of what was converted
	source runtime.Object // of the type of its version, as it was; nil when it is not at hand
	target runtime.Object // the result likewise, with its defaults once these were compared
	known  bool           // the type of the result has each of its fields
}

// sharing says what becomes of the memory of what is converted.
type sharing int

const (
	apart  sharing = iota // the result has none of it
	owned                 // it may be changed, and become part of the result
	shared                // it may become part of the result, and neither is changed
)

// Begin is Convert and Differing for an object that is not changed before the conversion is done with.
// Errors: as Convert and Differing.
func (c *Converter) Begin(in *unstructured.Unstructured, to schema.GroupVersionKind) (*Conversion, error) {
	v := &Conversion{In: in, converter: c, forms: forms{kept: true}}
	if in.GroupVersionKind() == to { // Read names losses in its own version
		if err := boundPaths(in.Object, to, c.shapes.of(to)); err != nil {
			return nil, err
		}
	}
	out, losses, err := c.convert(in.Object, to, shared, &v.forms)
	if err != nil {
		return nil, err
	}
	v.Out, v.Losses = &unstructured.Unstructured{Object: out}, losses
	v.Defaults, err = c.differing(v.In, v.Out, &v.forms)
	return v, err
}

// Converter is what began the conversion.
func (v *Conversion) Converter() *Converter { return v.converter }

// Own makes Out an object that shares nothing with In. It may be changed from then on.
func (v *Conversion) Own() {
	if !v.forms.owned {
		v.Out.Object = runtime.DeepCopyJSON(v.Out.Object)
	}
	v.forms.owned, v.forms.target, v.forms.known = true, nil, false
}

// Replace makes another object the result.
func (v *Conversion) Replace(out map[string]any) {
	v.Out.Object = out
	v.forms.owned, v.forms.target, v.forms.known = true, nil, false
}

// Spell is Converter.Spell of the result.
func (v *Conversion) Spell(minor kubever.Minor) (changed bool, losses []Loss) {
	if changed, losses = v.converter.spell(v.Out, speller{minor: minor, dry: true}); !changed {
		return false, losses
	}
	v.Own()
	return v.converter.Spell(v.Out, minor)
}

// WriteDefaults writes defaults into the result as DifferingDefaults.Write does. Those that it names are left.
func (v *Conversion) WriteDefaults(wanted func(path string) bool) []Loss {
	if v.Defaults == nil {
		return nil
	}
	v.Own()
	losses := v.Defaults.Write(v.Out, wanted)
	left := *v.Defaults
	left.fields = slices.DeleteFunc(slices.Clone(left.fields), func(field *differingField) bool {
		return field.before != nil && wanted(field.text)
	})
	v.Defaults = &left
	return losses
}

// WriteRequired writes those of the defaults into the result that its version has none for and that a minor's API
// description requires, and returns their paths.
func (v *Conversion) WriteRequired(minor kubever.Minor) (paths []string) {
	known := v.converter.shapeIn(v.Out.GroupVersionKind(), minor)
	if v.Defaults == nil || known == nil {
		return nil
	}
	var required []*differingField
	for _, field := range v.Defaults.fields {
		last := len(field.at) - 1
		name, ok := field.at[last].(string)
		if !ok || field.before == nil || field.now != nil {
			continue
		}
		if of := known.to(field.at[:last]); of != nil && kubever.Required(of.typeName, name).Has(minor) {
			required = append(required, field)
		}
	}
	if len(required) == 0 {
		return nil
	}
	target, allKnown := v.forms.target, v.forms.known
	paths = make([]string, 0, len(required))
	for _, field := range required {
		v.ownAt(field.at)
		putAt(v.Out.Object, field.at, runtime.DeepCopyJSONValue(field.before))
		if target != nil && target == v.Defaults.after && field.is.IsValid() {
			field.is.Set(field.was)
		} else {
			target = nil
		}
		paths = append(paths, field.text)
	}
	if target != nil && v.converter.setDefaults(target, v.Out.GroupVersionKind()) != nil { // of what is in them
		target = nil
	}
	v.forms.target, v.forms.known = target, allKnown
	return paths
}

// KeepDefaults writes into the result what the version of In makes of absent fields and that of the result does not,
// so that a server does what one of the version of In would do. Fields that a known minor does not have are left out.
// written are the places of what was written, names and indices; left is what cannot be written: what the version of
// the result makes up for a field that the version of In requires. Where absence is allowed there and has no default, a
// default of the other version says nothing else. Labels that a version copies from the pod template are no loss: they
// take nothing from the object.
func (v *Conversion) KeepDefaults(minor kubever.Minor) (written [][]any, left []Loss, err error) {
	if v.Defaults == nil {
		return nil, nil, nil
	}
	var known *shape
	if minor.Known() {
		known = v.converter.shapeIn(v.Out.GroupVersionKind(), minor)
	}
	v.Own()
	for _, field := range v.Defaults.fields {
		if known != nil && !known.has(field.at) {
			continue
		}
		if value := known.to(field.at).having(field.before); value != nil && value != "" {
			putAt(v.Out.Object, field.at, value)
			written = append(written, field.at)
		}
	}
	// What follows from absent fields follows no longer where they are written.
	if v.Defaults, err = v.converter.Differing(v.In, v.Out); v.Defaults == nil {
		return written, nil, err
	}
	for _, field := range v.Defaults.fields {
		if known != nil && !known.has(field.at) || field.text == "metadata.labels" {
			continue
		}
		if (field.before == nil || field.before == "") && !v.converter.Requires(v.In.GroupVersionKind(), field.at, 0) {
			continue
		}
		left = append(left, v.Defaults.loss(field))
	}
	return written, left, nil
}

// demandedUndescribed are fields that servers require of a version whose API description does not.
var demandedUndescribed = []struct{ typeName, field, source string }{
	{"certificates.v1.CertificateSigningRequestSpec", "usages",
		"validateCertificateSigningRequest in pkg/apis/certificates/validation/validation.go@1.36.3"},
	{"admissionregistration.v1.ParamRef", "parameterNotFoundAction",
		"validateParamRef in pkg/apis/admissionregistration/validation/validation.go@1.36.3"},
	{"admissionregistration.v1beta1.ParamRef", "parameterNotFoundAction",
		"validateParamRef in pkg/apis/admissionregistration/validation/validation.go@1.36.3"},
}

// Requires reports whether servers of a minor require a field of what it is in; those of the last one that has the
// kind where the minor is not known. at are names and indices.
func (c *Converter) Requires(gvk schema.GroupVersionKind, at []any, minor kubever.Minor) bool {
	if !minor.Known() {
		minor, _ = lastMinor(gvk)
	}
	last := len(at) - 1
	name, ok := at[last].(string)
	of := c.shapeIn(gvk, minor).to(at[:last])
	if of == nil || !ok {
		return false
	}
	for _, row := range demandedUndescribed {
		if row.typeName == of.typeName && row.field == name {
			return true
		}
	}
	return kubever.Required(of.typeName, name).Has(minor)
}

// having is a copy of a value without the fields that the shape does not have; all of it where there is no shape.
func (s *shape) having(value any) any {
	fields, ok := value.(map[string]any)
	if !ok || s == nil {
		return runtime.DeepCopyJSONValue(value)
	}
	had := make(map[string]any, len(fields))
	for name, inner := range fields {
		if of := s.at(name); of != nil {
			had[name] = of.having(inner)
		}
	}
	return had
}

// Withdraw takes defaults out of the result again that WriteRequired has written.
func (v *Conversion) Withdraw(paths []string) {
	for _, field := range v.Defaults.fields {
		if slices.Contains(paths, field.text) {
			remove(v.Out.Object, []difference{{at: field.at}})
		}
	}
	v.forms.target = nil
}

// ownAt makes what leads to a field the result's own, or all of it where that leads through lists.
func (v *Conversion) ownAt(at path) {
	if v.forms.owned {
		return
	}
	if slices.ContainsFunc(at, func(part any) bool { _, index := part.(int); return index }) {
		v.Own()
		return
	}
	v.Out.Object = maps.Clone(v.Out.Object)
	of := v.Out.Object
	for _, part := range at[:len(at)-1] {
		name := part.(string)
		inner, ok := of[name].(map[string]any)
		if !ok {
			return
		}
		inner = maps.Clone(inner)
		of[name], of = inner, inner
	}
}

// Read is Converter.Read of the result, and cheaper: where its type has all of its fields, only parts are looked at of
// which the minor does not have all.
func (v *Conversion) Read(minor kubever.Minor) Reading {
	c, gvk := v.converter, v.Out.GroupVersionKind()
	if _, native := c.hubs[gvk]; native && v.forms.target == nil && !isDefinition(gvk) {
		typed, known, err := c.decodeKnown(v.Out.Object, gvk)
		if err == nil && c.setDefaults(typed, gvk) == nil { // otherwise Internal says what is wrong
			v.forms.target, v.forms.known = typed, known
		}
	}
	known := c.shapeIn(gvk, minor)
	if !v.forms.known {
		return c.read(v.Out, minor, known, known)
	}
	return c.read(v.Out, minor, known, c.doubtful(gvk, minor))
}

// Internal is Converter.Internal of the result, and cheaper the first time: what was read of it is used up.
func (v *Conversion) Internal() (runtime.Object, bool, error) {
	gvk := v.Out.GroupVersionKind()
	typed := v.forms.target
	hub, native := v.converter.hubs[gvk]
	if typed == nil || !native {
		return v.converter.Internal(v.Out)
	}
	v.forms.target = nil
	internal := reflect.New(hub).Interface().(runtime.Object)
	if err := v.converter.scheme.Convert(typed, internal, nil); err != nil {
		return nil, true, &ContentError{gvk, err}
	}
	return internal, true, nil
}
