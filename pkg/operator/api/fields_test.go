package api

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/golden"
	"github.com/kubefusion/fusionctl/internal/strictyaml"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// packageOf are the directories with the types of the schema, and their packages.
var packageOf = map[string]string{"../../spec": "spec", "../../finding": "finding", ".": "api"}

// TestTextsAreTheComments holds fields.tsv against the comments of the types.
func TestTextsAreTheComments(t *testing.T) {
	wanted := map[string]string{}
	for _, root := range []reflect.Type{reflect.TypeFor[spec.File](), reflect.TypeFor[Status](),
		reflect.TypeFor[HostSpec](), reflect.TypeFor[HostStatus]()} {
		namesOf(t, root, wanted)
	}
	var out bytes.Buffer
	lines := 0
	for _, comment := range comments(t) {
		if wanted[comment.name] != "" && comment.text != "" {
			fmt.Fprintf(&out, "%s\t%s\n", comment.name, comment.text)
			lines++
		}
	}
	if lines < 150 {
		t.Errorf("%d comments, want many more", lines)
	}
	if golden.Updating() {
		if err := os.WriteFile("fields.tsv", out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if fieldTexts != out.String() {
		t.Error("fields.tsv is not what the comments say; make golden rewrites it")
	}
}

// namesOf collects the names of a type and of all that it holds, with their packages. The tables know types by their
// names alone.
func namesOf(t *testing.T, of reflect.Type, names map[string]string) {
	t.Helper()
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	if !strings.HasPrefix(of.PkgPath(), "github.com/kubefusion/") || names[typeName(of)] == of.PkgPath() {
		return
	}
	if other := names[typeName(of)]; other != "" {
		t.Errorf("%s and %s both have a type %s", of.PkgPath(), other, of.Name())
	}
	names[typeName(of)] = of.PkgPath()
	if of.Kind() != reflect.Struct {
		return
	}
	for _, f := range strictyaml.FieldsOf(of) {
		names[fieldName(of, f.Index)] = of.PkgPath()
		namesOf(t, of.FieldByIndex(f.Index).Type, names)
	}
}

type comment struct{ name, text string }

// comments reads the comments of every struct, and of its fields by their names in JSON, sorted.
func comments(t *testing.T) []comment {
	t.Helper()
	var found []comment
	for directory := range packageOf {
		files, err := filepath.Glob(directory + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatal(directory, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				if declaration, ok := d.(*ast.GenDecl); ok && declaration.Tok == token.TYPE {
					found = append(found, commentsOf(packageOf[directory], declaration)...)
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b comment) int { return strings.Compare(a.name, b.name) })
	return found
}

func commentsOf(of string, declaration *ast.GenDecl) []comment {
	var found []comment
	for _, s := range declaration.Specs {
		declared := s.(*ast.TypeSpec)
		found = append(found, comment{qualified(of, declared.Name.Name), oneLine(declaration.Doc)})
		structure, ok := declared.Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, f := range structure.Fields.List {
			if f.Tag == nil {
				continue
			}
			tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`"))
			name, _, _ := strings.Cut(tag.Get("json"), ",")
			found = append(found, comment{qualified(of, declared.Name.Name) + "." + name,
				strings.TrimSpace(oneLine(f.Doc) + " " + oneLine(f.Comment))})
		}
	}
	return found
}

func oneLine(group *ast.CommentGroup) string {
	return strings.Join(strings.Fields(group.Text()), " ")
}
