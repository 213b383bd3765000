package migrate

import (
	"maps"
	"slices"
)

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
// those that the schema of one version has and that of the other has not.
func prunedFields(d *Definition, from, to string) []string {
	kept := d.schemaOf(to)
	if d.preserves() || kept == nil {
		return nil
	}
	var lost []string
	missingFields(d.schemaOf(from), kept, "", &lost)
	slices.Sort(lost)
	return lost
}

func missingFields(schema, kept map[string]any, path string, lost *[]string) {
	if schema == nil || flag(kept, "x-kubernetes-preserve-unknown-fields") {
		return
	}
	if items, ok := at(schema, "items").(map[string]any); ok {
		in, _ := at(kept, "items").(map[string]any)
		missingFields(items, in, path+"[]", lost)
	}
	additional, _ := at(kept, "additionalProperties").(map[string]any)
	if values, ok := at(schema, "additionalProperties").(map[string]any); ok && additional != nil {
		missingFields(values, additional, path+"{}", lost)
	}
	if kept != nil && (additional != nil || at(kept, "additionalProperties") == true) {
		return
	}
	properties, _ := at(schema, "properties").(map[string]any)
	known, _ := at(kept, "properties").(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if path == "" && (name == "apiVersion" || name == "kind" || name == "metadata") {
			continue
		}
		field := path + "." + name
		property, _ := properties[name].(map[string]any)
		if in, ok := known[name].(map[string]any); ok {
			missingFields(property, in, field, lost)
		} else {
			*lost = append(*lost, field)
		}
	}
}
