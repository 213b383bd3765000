package kubever

import "sync"

type crdField struct {
	path   string
	minors Ranges
}

var crdFieldTable = sync.OnceValue(decodeCRDFields)

func decodeCRDFields() []crdField {
	var fields []crdField
	for _, r := range readTable("crd-fields.tsv", 2) {
		fields = append(fields, crdField{r.text(0), r.ranges(1)})
	}
	return fields
}

// CRDFields lists the fields of a CustomResourceDefinition that the minor keeps when it writes one back, as paths:
// "spec.versions", "status.storedVersions". Whatever else was there is lost. Empty for a minor without
// CustomResourceDefinitions.
func CRDFields(m Minor) []string {
	var paths []string
	for _, f := range crdFieldTable() {
		if f.minors.Has(m) {
			paths = append(paths, f.path)
		}
	}
	return paths
}
