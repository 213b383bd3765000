package spec

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/strictyaml"
)

// TestDocsDescribeEveryField holds docs/spec.md against the types.
func TestDocsDescribeEveryField(t *testing.T) {
	text, err := os.ReadFile("../../docs/spec.md")
	if err != nil {
		t.Fatal(err)
	}
	fields := 0
	var walk func(structure reflect.Type)
	walk = func(structure reflect.Type) {
		for _, f := range strictyaml.FieldsOf(structure) {
			fields++
			forms := []string{"`" + f.Name + "`", "." + f.Name + "`", "`" + f.Name + ".", f.Name + ": "}
			if !slices.ContainsFunc(forms, func(form string) bool { return strings.Contains(string(text), form) }) {
				t.Errorf("docs/spec.md does not describe %s of %s", f.Name, structure)
			}
			inner := structure.FieldByIndex(f.Index).Type
			for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct && inner.PkgPath() == structure.PkgPath() {
				walk(inner)
			}
		}
	}
	walk(reflect.TypeFor[File]())
	if fields < 80 {
		t.Errorf("the types have %d fields, want more", fields)
	}
}
