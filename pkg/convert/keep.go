package convert

// SayKept says in the schemas of a CRD of v1, converted from v1beta1, that unknown fields are kept where v1beta1 keeps
// them by saying nothing: servers of v1 refuse to create a CRD with spec.preserveUnknownFields. One that says true
// stays as it is: it was read of a server that has it, and takes it.
func (v *Conversion) SayKept() {
	from, to := v.In.GroupVersionKind(), v.Out.GroupVersionKind()
	before := object(v.In.Object, "spec")
	if !isDefinition(from) || from.Version == to.Version || to.Version != "v1" || before == nil ||
		before["preserveUnknownFields"] != nil {
		return
	}
	v.Own()
	spec := object(v.Out.Object, "spec")
	delete(spec, "preserveUnknownFields")
	for _, version := range elements(spec, "versions") {
		schema := object(object(version, "schema"), "openAPIV3Schema")
		if schema == nil { // v1 requires one, and any object was allowed
			schema = map[string]any{"type": "object"}
			version["schema"] = map[string]any{"openAPIV3Schema": schema}
		}
		keepUnknown(schema, true)
	}
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
