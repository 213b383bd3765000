package migrate

import "slices"

// schemaOf is the schema of a version; nil when it has none, and anything is kept.
func (d *Definition) schemaOf(version string) map[string]any {
	entry, err := d.entry(version)
	if err != nil {
		return nil
	}
	schema, _ := at(entry, "schema", "openAPIV3Schema").(map[string]any)
	return schema
}

// preserves reports whether the definition keeps unknown fields everywhere.
func (d *Definition) preserves() bool { return flag(d.spec(), "preserveUnknownFields") }

// prunedFields lists the fields that an object loses when all that is done to it is to write it in another version:
// those that the schema of one version allows, and that of the other prunes.
// Shape: ".spec.size", ".spec.rows[].name", ".spec.labels.*.value"; ".spec.*" for what a schema allows without a name.
func prunedFields(d *Definition, from, to string) []string {
	kept := d.schemaOf(to)
	if d.preserves() || kept == nil {
		return nil
	}
	var lost []string
	pruned(d.schemaOf(from), kept, "", true, &lost)
	slices.Sort(lost)
	return slices.Compact(lost)
}

// meta are the fields of the root, and of embedded resources, that no schema prunes.
var meta = []string{"apiVersion", "kind", "metadata"}

// pruned adds what a value of one schema loses by the pruning of another; nil for a schema that says nothing.
// Source: pruning in k8s.io/apiextensions-apiserver/pkg/apiserver/schema of 1.36. What a value is that is neither an
// object nor a list is for validation.
func pruned(schema, kept map[string]any, path string, resource bool, lost *[]string) {
	if isScalar(schema) || isScalar(kept) {
		return
	}
	preserves := flag(kept, "x-kubernetes-preserve-unknown-fields")
	resource = resource || flag(kept, "x-kubernetes-embedded-resource")
	known, more := properties(kept), at(kept, "additionalProperties")
	// below is the schema that prunes what is at a name, and whether the name itself stays.
	below := func(name string) (in map[string]any, stays, prunes bool) {
		if in, named := known[name]; named {
			in, _ := in.(map[string]any)
			return in, true, true
		}
		if more != nil && more != false {
			in, _ := more.(map[string]any)
			return in, true, true
		}
		return nil, preserves, false
	}
	look := func(in map[string]any, name, at string) {
		into, stays, prunes := below(name)
		switch {
		case resource && slices.Contains(meta, name):
		case !stays:
			*lost = append(*lost, at)
		case prunes:
			pruned(in, into, at, false, lost)
		}
	}
	for name, property := range properties(schema) {
		in, _ := property.(map[string]any)
		look(in, name, path+"."+name)
	}
	anything, open := openTo(schema)
	if open && schemaType(kept) != "array" {
		// Any name: one that the other schema does not have, and each that it has.
		before := len(*lost)
		look(anything, "", path+".*")
		if len(*lost) == before {
			for name := range known {
				if _, named := properties(schema)[name]; !named {
					look(anything, name, path+"."+name)
				}
			}
		}
	}
	items, listed := at(schema, "items").(map[string]any)
	into, prunes := at(kept, "items").(map[string]any)
	switch {
	case listed && (prunes || !preserves):
		pruned(items, into, path+"[]", false, lost)
	case open && anything == nil && prunes: // a list is something
		pruned(nil, into, path+"[]", false, lost)
	}
}

// openTo reports whether a schema allows fields that it does not name, and by which schema; nil for anything.
func openTo(schema map[string]any) (by map[string]any, open bool) {
	more := at(schema, "additionalProperties")
	by, named := more.(map[string]any)
	switch {
	case flag(schema, "x-kubernetes-preserve-unknown-fields"), schema == nil:
		return nil, true
	case schemaType(schema) == "array":
		return nil, false
	}
	return by, named || more == true
}

func properties(schema map[string]any) map[string]any {
	p, _ := at(schema, "properties").(map[string]any)
	return p
}

// schemaType is the type that a schema names; "" for any.
func schemaType(schema map[string]any) string { return text(schema, "type") }

func isScalar(schema map[string]any) bool {
	return !slices.Contains([]string{"", "object", "array"}, schemaType(schema)) ||
		flag(schema, "x-kubernetes-int-or-string")
}
