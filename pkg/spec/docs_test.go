package spec

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
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
		for _, f := range fieldsOf(structure) {
			fields++
			forms := []string{"`" + f.name + "`", "." + f.name + "`", "`" + f.name + ".", f.name + ": "}
			if !slices.ContainsFunc(forms, func(form string) bool { return strings.Contains(string(text), form) }) {
				t.Errorf("docs/spec.md does not describe %s of %s", f.name, structure)
			}
			inner := structure.FieldByIndex(f.index).Type
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
