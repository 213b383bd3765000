package convert

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A CRD of v1beta1 keeps unknown fields where it says nothing. Servers of v1 have no such default, leave
// spec.preserveUnknownFields out where it is false, and take true of those alone that have it.

// KeepUnknown says in the schemas of a new CRD of v1, which was converted from another version, that unknown fields are
// kept where the asked one keeps them by saying nothing. One that says true stays as it is.
func KeepUnknown(from schema.GroupVersionKind, asked, written map[string]any) {
	spec := keeping(from, written)
	if spec == nil || object(asked, "spec")["preserveUnknownFields"] != nil {
		return
	}
	delete(spec, "preserveUnknownFields")
	for _, version := range elements(spec, "versions") {
		keepUnknownOf(version)
	}
}

// KeepUnknownAs says so in what is written over a CRD of v1, as the one that the server has says it: by the field, or
// in the schemas of its versions. A schema that says it is left as it is: the program has read it. Where the CRD keeps
// none, a program that says nothing of them has read nothing.
func KeepUnknownAs(current map[string]any, from schema.GroupVersionKind, written map[string]any) {
	spec, now := keeping(from, written), object(current, "spec")
	if spec == nil || now["preserveUnknownFields"] == true {
		return
	}
	keeps, some := map[string]bool{}, false
	for _, version := range elements(now, "versions") {
		name, _ := version["name"].(string)
		keeps[name] = schemaOf(version)[keepsUnknown] == true
		some = some || keeps[name]
	}
	delete(spec, "preserveUnknownFields")
	for _, version := range elements(spec, "versions") {
		name, _ := version["name"].(string)
		does, known := keeps[name]
		if says := schemaOf(version)[keepsUnknown] == true; !says && (does || some && !known) {
			keepUnknownOf(version)
		}
	}
}

// keeping is the spec of a CRD of v1 that was converted from another version and keeps unknown fields, nil for others.
func keeping(from schema.GroupVersionKind, written map[string]any) map[string]any {
	to := (&unstructured.Unstructured{Object: written}).GroupVersionKind()
	spec := object(written, "spec")
	if !isDefinition(to) || from == to || to.Version != "v1" || spec["preserveUnknownFields"] != true {
		return nil
	}
	return spec
}

// schemaOf is the schema of a version of a CRD, nil for none.
func schemaOf(version map[string]any) map[string]any {
	return object(object(version, "schema"), "openAPIV3Schema")
}

// keepUnknownOf keeps unknown fields in a version of a CRD.
func keepUnknownOf(version map[string]any) {
	schema := schemaOf(version)
	if schema == nil { // v1 requires one, and any object was allowed
		schema = map[string]any{"type": "object"}
		version["schema"] = map[string]any{"openAPIV3Schema": schema}
	}
	keepUnknown(schema, true)
}

const keepsUnknown = "x-kubernetes-preserve-unknown-fields"

// keepUnknown keeps unknown fields in all objects of a structural schema. What v1 refuses of others stays for the
// server to refuse.
func keepUnknown(schema map[string]any, whole bool) {
	properties, values := object(schema, "properties"), object(schema, "additionalProperties")
	isMap := schema["additionalProperties"] != nil && schema["additionalProperties"] != false && properties == nil
	if schema["type"] == "object" && !isMap {
		schema[keepsUnknown] = true
	}
	whole = whole || schema["x-kubernetes-embedded-resource"] == true
	for name := range properties {
		if whole && name == "metadata" {
			continue // of which a schema says nothing but what names are like
		}
		if property := object(properties, name); property != nil {
			keepUnknown(property, false)
		}
	}
	for _, inner := range []map[string]any{object(schema, "items"), values} {
		if inner != nil {
			keepUnknown(inner, false)
		}
	}
}
