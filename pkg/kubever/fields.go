package kubever

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// fieldTable keeps the lines of each type unparsed: a lookup of pods does not pay for five thousand other fields.
var fieldTable = sync.OnceValue(decodeFields)

func decodeFields() map[string][]row {
	types := make(map[string][]row)
	for _, r := range readTable("fields.tsv", 3) {
		types[r.text(0)] = append(types[r.text(0)], r)
	}
	return types
}

// fieldSpans finds the types that a field has had.
func fieldSpans(typeName, field string) []during[string] {
	for _, f := range fieldsOf(typeName) {
		if f.name == field {
			return f.types
		}
	}
	return nil
}

// described is a field and its type in each minor.
type described struct {
	name  string
	types []during[string]
}

// fieldsOf reads the lines of a type when it is first asked about.
var fieldsOf = remembered(func(typeName string) []described {
	var fields []described
	for _, r := range fieldTable()[typeName] {
		fields = append(fields, described{r.text(1), timeline(r, 2, verbatim)})
	}
	return fields
})

// Field returns the minors whose API knows a field of a type: Field("v1.PodSpec", "topologySpreadConstraints") is
// 1.16-1.36. A server, a kubelet or a controller of another minor drops the field when it writes the object. Types are
// named as in the API descriptions: v1.PodSpec, apps.v1.DeploymentSpec, meta.v1.ObjectMeta.
func Field(typeName, field string) Ranges {
	spans := fieldSpans(typeName, field)
	return Spans(slices.DeleteFunc(Minors(), func(m Minor) bool { _, known := at(spans, m); return !known }))
}

// FieldType returns the type of a field at the minor: "v1.Probe", "[]v1.Container", "map[string]string"; "" when the
// minor does not know the field.
func FieldType(typeName, field string, m Minor) string {
	fieldType, _ := at(fieldSpans(typeName, field), m)
	return fieldType
}

// Fields lists the fields of a type that the minor knows, by name; nil when it has no such type.
func Fields(typeName string, m Minor) []string {
	var fields []string
	for _, f := range fieldsOf(typeName) {
		if _, ok := at(f.types, m); ok {
			fields = append(fields, f.name)
		}
	}
	return fields
}

// SchemaType is the type of the schema in a type that is a schema or something else: JSONSchemaPropsOrArray,
// JSONSchemaPropsOrBool. It is written as the schema itself, or as the list, the word or the list of names.
func SchemaType(typeName string) (string, bool) {
	group, _, ok := strings.Cut(typeName, "JSONSchemaPropsOr")
	return group + "JSONSchemaProps", ok
}

// Misdescribed reports whether the API description of a minor gives a type the fields that it has in Go, though it is
// written as something else: clients that validate by the description refuse whatever is written.
func Misdescribed(typeName string, m Minor) bool {
	if typeName == "runtime.RawExtension" {
		return Behaves(BehaviourKubectlRawRefused, m)
	}
	_, either := SchemaType(typeName)
	of := strings.HasPrefix(typeName, "[]") || strings.HasPrefix(typeName, "map[")
	return !of && (either || strings.HasSuffix(typeName, ".JSON")) && Behaves(BehaviourKubectlSchemasRefused, m)
}

// ScaleKind is the kind that the subresource scale of a resource speaks in a version: the Scale of the version itself,
// where the table of fields describes one, otherwise that of autoscaling/v1.
func ScaleKind(gv schema.GroupVersion) schema.GroupVersionKind {
	if own := gv.WithKind("Scale"); HasFields(TypeName(own)) {
		return own
	}
	return schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
}

// HasFields reports whether some minor describes the type by its fields: it is no string, number or the like.
func HasFields(typeName string) bool { return len(fieldTable()[typeName]) > 0 }

var impliedTable = sync.OnceValue(decodeImplied)

func decodeImplied() map[[2]string]string {
	values := make(map[[2]string]string)
	for _, r := range readTable("implied.tsv", 3) {
		values[[2]string{r.text(0), r.text(1)}] = r.text(2)
	}
	return values
}

// Implied reports whether the value of a field, printed as by fmt.Sprint, says what versions without the field do
// anyway: Implied("v1.PodSpec", "enableServiceLinks", "true"). Leaving such a field out loses nothing; servers fill
// most of them in.
func Implied(typeName, field, value string) bool {
	implied, ok := ImpliedValue(typeName, field)
	return ok && implied == value
}

// ImpliedValue is the value for which Implied is true, and whether the field has one.
func ImpliedValue(typeName, field string) (string, bool) {
	value, ok := impliedTable()[[2]string{typeName, field}]
	return value, ok
}

// ElementType strips lists and maps off a type: "[]v1.Container" is v1.Container.
func ElementType(fieldType string) string {
	for {
		element, isList := strings.CutPrefix(fieldType, "[]")
		element, isMap := strings.CutPrefix(element, "map[string]")
		if !isList && !isMap {
			return element
		}
		fieldType = element
	}
}

// TypeName is a kind as the table of fields names it: v1.Pod, apps.v1.Deployment, rbac.v1.Role. The first word of the
// group is that of its Go package, with one exception.
func TypeName(gvk schema.GroupVersionKind) string {
	name := gvk.Version + "." + gvk.Kind
	group, _, _ := strings.Cut(gvk.Group, ".")
	switch {
	case group == "":
		return name
	case gvk.Group == "internal.apiserver.k8s.io":
		group = "apiserverinternal"
	}
	return group + "." + name
}
