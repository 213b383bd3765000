package policy

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// ParseOneMeaning is Parse of a file that means the same to servers of every release. Errors: those of Parse, and a
// *SyntaxError for each line with a field in another case than the server's: 1.8 to 1.10 read such fields until their
// last patch releases, and all others ignore them.
// Source: kubernetes/kubernetes#64612, #65034; #65410, #65298 and #65157 for 1.8, 1.9 and 1.10.
func ParseOneMeaning(name string, r io.Reader) ([]Rule, error) { return parse(name, r, oneMeaning) }

// internalFields are those of specFields, as apiVersion __internal has them.
var internalFields = []string{"User", "Group", "Readonly", "APIGroup", "Resource", "Namespace", "NonResourcePath"}

// oneMeaning returns an error for a line with a field in another case.
func oneMeaning(text []byte) error {
	all, _, err := members(text, skip(text, " \t\r\n"))
	if err != nil { // YAML, or a byte order mark before JSON
		asJSON, err := yaml.YAMLToJSON(text)
		if err != nil {
			return nil //nolint:nilerr // of another encoding, which has no fields by name
		}
		if all, _, err = members(asJSON, 0); err != nil {
			return nil //nolint:nilerr // the same
		}
	}
	specName, fields := "spec", specFields
	if version, _ := findFold(all, "apiVersion"); strings.Contains(string(version.value), "__internal") {
		specName, fields = "Spec", internalFields
	}
	if err := sameCase(all, []string{specName}); err != nil {
		return err
	}
	spec, hasSpec := find(all, specName)
	if !hasSpec { // of version 0, perhaps, which has the fields of a spec beside its version
		return sameCase(all, fields)
	}
	inner, _, err := members(spec.value, 0)
	if err != nil {
		return nil //nolint:nilerr // null, which has no fields
	}
	return sameCase(inner, fields)
}

func sameCase(all []member, fields []string) error {
	for _, m := range all {
		at := slices.IndexFunc(fields, func(field string) bool { return strings.EqualFold(m.key, field) })
		if at >= 0 && fields[at] != m.key {
			return fmt.Errorf("field %q: servers of 1.8 to 1.10 read it as %q before their patch releases of "+
				"mid-2018, and all others ignore it; want %q", m.key, fields[at], fields[at])
		}
	}
	return nil
}
