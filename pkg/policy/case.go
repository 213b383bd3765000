package policy

import (
	"fmt"
	"io"
	"slices"
	"strings"
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
	all, _ := membersOf(text)
	specName, fields := "spec", specFields
	if version, _ := findFold(all, "apiVersion"); strings.Contains(string(version.value), "__internal") {
		specName, fields = "Spec", internalFields
	}
	if err := sameCase(all, []string{specName}); err != nil {
		return err
	}
	if !hasKey(all, specName) { // of version 0, perhaps, which has the fields of a spec beside its version
		return sameCase(all, fields)
	}
	return sameCase(inside(all, specName), fields)
}

func hasKey(all []member, key string) bool {
	_, ok := find(all, key)
	return ok
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
