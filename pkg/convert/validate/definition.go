package validate

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

const (
	preserves   = "x-kubernetes-preserve-unknown-fields"
	intOrString = "x-kubernetes-int-or-string"
	approval    = "api-approved.kubernetes.io"
)

// completeDefinition gives a CRD of apiextensions.k8s.io/v1, converted from v1beta1, what v1 requires and v1beta1 did
// not: a structural schema for every version. Where v1beta1 preserves unknown fields, which is its default, each object
// of the schemas does.
func completeDefinition(in, out map[string]any) ([]Change, []convert.Loss) {
	spec, _ := out["spec"].(map[string]any)
	if spec == nil {
		return nil, nil
	}
	d := definition{}
	before, _ := in["spec"].(map[string]any)
	keep := before["preserveUnknownFields"] != false
	if keep {
		delete(spec, "preserveUnknownFields")
		d.change("spec.preserveUnknownFields", nil, "v1 refuses true, v1beta1's default: the schemas say it instead")
	}
	versions, _ := spec["versions"].([]any)
	for i, entry := range versions {
		version, _ := entry.(map[string]any)
		if version == nil {
			continue
		}
		at := fmt.Sprintf("spec.versions[%d].schema.openAPIV3Schema", i)
		holder, _ := version["schema"].(map[string]any)
		schema, _ := holder["openAPIV3Schema"].(map[string]any)
		if schema == nil {
			schema = map[string]any{"type": "object", preserves: true}
			version["schema"] = map[string]any{"openAPIV3Schema": schema}
			d.change(at, runtime.DeepCopyJSON(schema), "v1 requires a schema; this one allows what none allowed")
			continue
		}
		d.keep = keep
		d.root(schema, at)
	}
	d.approve(spec, out)
	return d.changes, d.losses
}

// prunes: what v1 always does, v1beta1 does where it is told to.
func prunes(out map[string]any, minor kubever.Minor) []Change {
	spec, _ := out["spec"].(map[string]any)
	if spec == nil || spec["preserveUnknownFields"] != nil || !prunesIn(minor) {
		return nil
	}
	spec["preserveUnknownFields"] = false
	return []Change{{"spec.preserveUnknownFields", false, "v1beta1 preserves unknown fields unless it is told " +
		"otherwise"}}
}

// ofBeta are the errors of a CRD of v1beta1 that servers of v1beta1 have as well. Where schemas need not be structural,
// they are what 1.36 refuses of a CRD that it has already, and that is written again as it is.
func ofBeta(crd *apiextensions.CustomResourceDefinition, structural bool) field.ErrorList {
	var errs field.ErrorList
	if structural {
		errs = Created(crd, apiextensionsv1beta1.SchemeGroupVersion, false)
	} else {
		errs = slices.DeleteFunc(Created(withoutSchemas(crd), apiextensionsv1beta1.SchemeGroupVersion, false),
			func(err *field.Error) bool { return !within(err.Field, "metadata") })
		errs = append(errs, updated(crd)...)
	}
	prunes := crd.Spec.PreserveUnknownFields != nil && !*crd.Spec.PreserveUnknownFields
	notServed := map[string]bool{} // of which v1beta1 requires no schema
	for i, version := range crd.Spec.Versions {
		if !version.Served || !prunes {
			notServed[fmt.Sprintf("spec.versions[%d].schema.openAPIV3Schema", i)] = true
		}
	}
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		return err.Field == "spec.preserveUnknownFields" ||
			strings.HasPrefix(err.Field, "metadata.annotations["+approval) ||
			err.Type == field.ErrorTypeRequired && notServed[err.Field] ||
			// of which BehaviourCRDConversionPrunes knows more:
			err.Type == field.ErrorTypeInvalid && err.Field == "spec.conversion.strategy"
	})
}

// withoutSchemas is a CRD whose schemas are left out; the CRD itself stays as it is.
func withoutSchemas(crd *apiextensions.CustomResourceDefinition) *apiextensions.CustomResourceDefinition {
	rest := *crd
	rest.Spec.Validation = nil
	rest.Spec.Versions = slices.Clone(rest.Spec.Versions)
	for i := range rest.Spec.Versions {
		rest.Spec.Versions[i].Schema = nil
	}
	return &rest
}

// mustBeStructural reports whether servers of the minor require structural schemas of a CRD of v1beta1: where it prunes
// and where a schema uses the words of Kubernetes (apiextensions validation.go@1.15.12, 1.17.17 mustBeStructural).
// Those who do not know the field never do.
func mustBeStructural(object map[string]any, minor kubever.Minor) bool {
	spec, _ := object["spec"].(map[string]any)
	return prunesIn(minor) && (spec["preserveUnknownFields"] == false || names(spec["validation"], isExtension) ||
		names(spec["versions"], isExtension))
}

func prunesIn(minor kubever.Minor) bool {
	return kubever.Field("apiextensions.v1beta1.CustomResourceDefinitionSpec", "preserveUnknownFields").Has(minor)
}

// isExtension reports whether a word of schemas is one of Kubernetes' own.
func isExtension(word string) bool { return strings.HasPrefix(word, "x-kubernetes-") }

// names reports whether a value has a field, at any depth, of such a name.
func names(value any, such func(name string) bool) bool {
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			if such(name) || names(inner, such) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, func(element any) bool { return names(element, such) })
	}
	return false
}

type definition struct {
	keep    bool // unknown fields
	kept    int  // objects whose unknown fields are kept now
	changes []Change
	losses  []convert.Loss
}

func (d *definition) change(at string, value any, meaning string) {
	d.changes = append(d.changes, Change{Path: at, Value: value, Meaning: meaning})
}

func (d *definition) set(schema map[string]any, at, field string, value any, meaning string) {
	schema[field] = value
	d.change(at+"."+field, value, meaning)
}

// drop takes away what v1 has no place for: what it refused is accepted now.
func (d *definition) drop(schema map[string]any, at, field, meaning string) {
	value, ok := schema[field]
	if !ok {
		return
	}
	delete(schema, field)
	d.losses = append(d.losses, convert.Loss{Path: at + "." + field, Value: value, Meaning: meaning})
}

// approve says that a CRD of a group of Kubernetes' own is not approved, unless it says something itself.
func (d *definition) approve(spec, out map[string]any) {
	group, _ := spec["group"].(string)
	if !strings.HasSuffix(group, ".k8s.io") && !strings.HasSuffix(group, ".kubernetes.io") &&
		group != "k8s.io" && group != "kubernetes.io" {
		return
	}
	metadata, _ := out["metadata"].(map[string]any)
	if metadata == nil {
		return
	}
	annotations, _ := metadata["annotations"].(map[string]any)
	if value, ok := annotations[approval].(string); ok && value != "" {
		return
	}
	if annotations == nil {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	annotations[approval] = "unapproved, converted from apiextensions.k8s.io/v1beta1"
	d.change(fmt.Sprintf("metadata.annotations[%q]", approval), annotations[approval],
		"v1 requires it of CRDs in groups of Kubernetes' own")
}

// root completes the schema of a version.
func (d *definition) root(schema map[string]any, at string) {
	if kind, ok := schema["type"]; ok && kind != "object" {
		d.drop(schema, at, "type", "an object is an object")
	}
	if schema["type"] == nil {
		d.set(schema, at, "type", "object", "v1 requires the type")
	}
	kept := len(d.changes)
	d.change(at+"."+preserves, true, "")
	d.kept = 0
	d.preserve(schema)
	d.inside(schema, at, true)
	switch d.changes[kept].Meaning = "v1beta1 kept unknown fields"; d.kept {
	case 0:
		d.changes = slices.Delete(d.changes, kept, kept+1)
	case 1:
	default:
		d.changes[kept].Meaning += fmt.Sprintf(": here and in %d objects below", d.kept-1)
	}
}

// preserve keeps the unknown fields of an object where v1beta1 did.
func (d *definition) preserve(schema map[string]any) {
	if d.keep && schema[preserves] != true {
		schema[preserves] = true
		d.kept++
	}
}

// schema completes a schema below the root.
func (d *definition) schema(schema map[string]any, at string) {
	d.words(schema, at)
	if schema["type"] == nil && schema[intOrString] != true && schema[preserves] != true {
		if kind := typeOf(schema); kind != "" {
			d.set(schema, at, "type", kind, "v1 requires the type")
		} else {
			d.set(schema, at, preserves, true, "v1 requires a type, and any was allowed")
		}
	}
	if schema["type"] == "object" && !isMap(schema) {
		d.preserve(schema)
	}
	d.inside(schema, at, false)
}

func isMap(schema map[string]any) bool {
	additional, ok := schema["additionalProperties"]
	return ok && additional != false && schema["properties"] == nil
}

// words makes int-or-string of the ways to say it before there was a word for it.
func (d *definition) words(schema map[string]any, at string) {
	if schema["format"] == "int-or-string" && schema[intOrString] != true {
		delete(schema, "type")
		d.set(schema, at, intOrString, true, "v1 requires a type or this")
		delete(schema, "format")
	}
	for _, field := range []string{"anyOf", "oneOf"} {
		choices, _ := schema[field].([]any)
		if len(choices) != 2 || schema["type"] != nil {
			continue
		}
		kinds := map[any]bool{}
		for _, choice := range choices {
			if only, ok := choice.(map[string]any); ok && len(only) == 1 {
				kinds[only["type"]] = true
			}
		}
		if !kinds["string"] || !kinds["integer"] {
			continue
		}
		if schema[intOrString] != true {
			d.set(schema, at, intOrString, true, "v1 requires a type or this")
		}
		delete(schema, field)
		schema["anyOf"] = []any{map[string]any{"type": "integer"}, map[string]any{"type": "string"}}
	}
	if schema[intOrString] == true && schema["type"] != nil {
		d.drop(schema, at, "type", "v1 refuses it beside "+intOrString)
	}
}

// typeOf is the type that a schema without one allows, as far as its other words tell.
func typeOf(schema map[string]any) string {
	for _, hint := range []struct {
		kind   string
		fields []string
	}{
		{"object", []string{"properties", "additionalProperties", "required", "minProperties", "maxProperties"}},
		{"array", []string{"items", "minItems", "maxItems", "uniqueItems"}},
		{"string", []string{"pattern", "minLength", "maxLength"}},
		{"number", []string{"minimum", "maximum", "multipleOf"}},
	} {
		for _, field := range hint.fields {
			if _, ok := schema[field]; ok {
				return hint.kind
			}
		}
	}
	kind := ""
	values, _ := schema["enum"].([]any)
	for _, value := range values {
		this := map[reflect.Kind]string{
			reflect.String: "string", reflect.Int64: "integer", reflect.Float64: "number", reflect.Bool: "boolean",
		}[reflect.ValueOf(value).Kind()]
		if kind != "" && kind != this {
			return ""
		}
		kind = this
	}
	return kind
}

// inside completes what a schema holds.
func (d *definition) inside(schema map[string]any, at string, root bool) {
	d.additional(schema, at)
	if items, ok := schema["items"].([]any); ok {
		if only, isOne := schema["items"].([]any); isOne && len(only) == 1 {
			schema["items"] = items[0]
		} else {
			d.drop(schema, at, "items", "v1 has one schema for all items")
		}
	}
	if schema["type"] == "array" && schema["items"] == nil {
		d.set(schema, at, "items", map[string]any{preserves: true}, "v1 requires it; any item was allowed")
	}
	d.joined(schema, at)
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		property, ok := properties[name].(map[string]any)
		switch {
		case !ok:
		case root && name == "metadata":
			d.metadata(property, at+".properties.metadata")
		case root && (name == "apiVersion" || name == "kind"):
			if property["type"] == nil {
				d.set(property, at+".properties."+name, "type", "string", "v1 requires the type")
			}
		default:
			d.schema(property, at+".properties."+name)
		}
	}
	if items, ok := schema["items"].(map[string]any); ok {
		d.schema(items, at+".items")
	}
	if values, ok := schema["additionalProperties"].(map[string]any); ok {
		d.schema(values, at+".additionalProperties")
	}
}

// additional settles additionalProperties, which v1 takes only alone and only to allow something.
func (d *definition) additional(schema map[string]any, at string) {
	additional, ok := schema["additionalProperties"]
	if !ok {
		return
	}
	_, named := schema["properties"]
	switch {
	case additional == false:
		d.drop(schema, at, "additionalProperties",
			"v1 refuses false: unknown fields are pruned or preserved, never refused")
	case named && additional == true:
		delete(schema, "additionalProperties")
		d.change(at+".additionalProperties", nil,
			"v1 refuses it beside properties: unknown fields are preserved instead")
		schema[preserves] = true
	case named:
		d.drop(schema, at, "additionalProperties",
			"v1 refuses it beside properties: unknown fields are preserved unseen")
		schema[preserves] = true
	}
}

// metadata: of an object's own metadata a schema may say what its name is like.
func (d *definition) metadata(schema map[string]any, at string) {
	if schema["type"] == nil {
		d.set(schema, at, "type", "object", "v1 requires the type")
	}
	for _, field := range slices.Sorted(maps.Keys(schema)) {
		if field != "type" && field != "properties" {
			d.drop(schema, at, field, "v1 lets a schema of metadata say nothing but what names are like")
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if name != "name" && name != "generateName" {
			d.drop(properties, at+".properties", name,
				"v1 lets a schema of metadata say nothing but what names are like")
		}
	}
	if properties != nil && len(properties) == 0 {
		delete(schema, "properties")
	}
}

// joined settles allOf, anyOf, oneOf and not: in v1 they only limit values whose structure stands outside of them.
func (d *definition) joined(schema map[string]any, at string) {
	if schema[intOrString] == true && len(schema) <= 3 {
		return // its anyOf names its types
	}
	for _, field := range []string{"allOf", "anyOf", "oneOf"} {
		choices, _ := schema[field].([]any)
		for i, choice := range choices {
			if inner, ok := choice.(map[string]any); ok {
				d.limit(inner, schema, fmt.Sprintf("%s.%s[%d]", at, field, i), at)
			}
		}
		if len(choices) > 0 && !slices.ContainsFunc(choices, func(choice any) bool {
			inner, ok := choice.(map[string]any)
			return !ok || len(inner) > 0
		}) {
			delete(schema, field) // nothing is left of it
		}
	}
	if inner, ok := schema["not"].(map[string]any); ok {
		if d.limit(inner, schema, at+".not", at); len(inner) == 0 {
			delete(schema, "not")
		}
	}
}

// structural are the words that v1 refuses in what limits values.
var structural = []string{
	"description", "type", "default", "title", "example", "nullable", "format", preserves, intOrString,
	"x-kubernetes-embedded-resource", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
}

// limit makes a schema that limits values of one that also gave them structure.
func (d *definition) limit(inner, outer map[string]any, at, outside string) {
	for _, field := range structural {
		switch value, ok := inner[field]; {
		case !ok || field == "format":
		case field == "description" || field == "title" || field == "example":
			delete(inner, field)
		case field == "type" && value == outer["type"]:
			delete(inner, field)
		default:
			d.drop(inner, at, field, "v1 refuses it here")
		}
	}
	if additional, ok := inner["additionalProperties"]; ok && additional != nil {
		d.drop(inner, at, "additionalProperties", "v1 refuses it here")
	}
	properties, _ := inner["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if property, ok := properties[name].(map[string]any); ok {
			fields, _ := outer["properties"].(map[string]any)
			if fields == nil {
				fields = map[string]any{}
				outer["properties"] = fields
			}
			d.limit(property, d.outside(fields, name, outside+".properties"), at+".properties."+name,
				outside+".properties."+name)
		}
	}
	if items, ok := inner["items"].(map[string]any); ok {
		d.limit(items, d.outside(outer, "items", outside), at+".items", outside+".items")
	}
	for _, field := range []string{"allOf", "anyOf", "oneOf"} {
		choices, _ := inner[field].([]any)
		for i, choice := range choices {
			if deeper, ok := choice.(map[string]any); ok {
				d.limit(deeper, outer, fmt.Sprintf("%s.%s[%d]", at, field, i), outside)
			}
		}
	}
	if deeper, ok := inner["not"].(map[string]any); ok {
		d.limit(deeper, outer, at+".not", outside)
	}
}

// outside is the schema that gives a field its structure.
func (d *definition) outside(fields map[string]any, name, at string) map[string]any {
	if schema, ok := fields[name].(map[string]any); ok {
		return schema
	}
	schema := map[string]any{preserves: true}
	d.set(fields, at, name, schema, "v1 requires the field outside of allOf, anyOf, oneOf and not")
	return schema
}
