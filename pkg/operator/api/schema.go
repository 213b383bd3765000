package api

import (
	_ "embed"
	"encoding"
	"encoding/json"
	"path"
	"reflect"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/internal/strictyaml"
)

// fieldTexts are the comments of the fields and types, which the test of this package reads from the sources.
// Shape:  TYPE.FIELD<tab>text, TYPE<tab>text
//
//go:embed fields.tsv
var fieldTexts string

func texts() map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(fieldTexts) {
		if name, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok {
			found[name] = text
		}
	}
	return found
}

// schemas turns types into structural schemas.
type schemas struct {
	texts    map[string]string
	defaults map[string]any // by the path of the field: spec.network.nodePortRange
	rows     map[string]row
}

// typeName names a type in the tables: Host; one that is neither of pkg/spec nor of this package, finding.Acceptance.
func typeName(t reflect.Type) string { return qualified(path.Base(t.PkgPath()), t.Name()) }

func qualified(of, name string) string {
	if of == "spec" || of == "api" {
		return name
	}
	return of + "." + name
}

// of is the schema of a type whose value stands at a path.
func (s *schemas) of(t reflect.Type, at string) apiextensions.JSONSchemaProps {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[metav1.Time]():
		return apiextensions.JSONSchemaProps{Type: "string", Format: "date-time"}
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return s.applied(apiextensions.JSONSchemaProps{Type: "string"}, typeName(t))
	}
	switch t.Kind() {
	case reflect.String:
		return s.applied(apiextensions.JSONSchemaProps{Type: "string"}, typeName(t))
	case reflect.Bool:
		return apiextensions.JSONSchemaProps{Type: "boolean"}
	case reflect.Int:
		return apiextensions.JSONSchemaProps{Type: "integer", Format: "int32"}
	case reflect.Int64:
		return apiextensions.JSONSchemaProps{Type: "integer", Format: "int64"}
	case reflect.Slice:
		item := s.of(t.Elem(), at+"[]")
		return apiextensions.JSONSchemaProps{Type: "array",
			Items: &apiextensions.JSONSchemaPropsOrArray{Schema: &item}}
	case reflect.Struct:
		return s.structure(t, at)
	}
	panic("operator/api: internal error: no schema of " + t.String())
}

func (s *schemas) structure(t reflect.Type, within string) apiextensions.JSONSchemaProps {
	schema := apiextensions.JSONSchemaProps{Type: "object", Description: s.texts[typeName(t)],
		Properties: map[string]apiextensions.JSONSchemaProps{}}
	for _, f := range strictyaml.FieldsOf(t) {
		field := t.FieldByIndex(f.Index)
		at := strictyaml.Join(within, f.Name)
		property := s.of(field.Type, at)
		if f.AnyScalar {
			property = anyScalar()
		}
		name := fieldName(t, f.Index)
		if text := s.texts[name]; text != "" {
			property.Description = text
		}
		if value, ok := s.defaults[at]; ok {
			property.Default = &apiextensions.JSON{Raw: encoded(value)}
		}
		if r, ok := s.rows[name]; ok {
			if r.required {
				schema.Required = append(schema.Required, f.Name)
			}
			property = r.apply(property)
		}
		schema.Properties[f.Name] = property
	}
	return s.applied(schema, typeName(t))
}

func (s *schemas) applied(schema apiextensions.JSONSchemaProps, name string) apiextensions.JSONSchemaProps {
	if r, ok := s.rows[name]; ok {
		return r.apply(schema)
	}
	return schema
}

// fieldName is TYPE.FIELD with the type that declares the field, which may be embedded.
func fieldName(t reflect.Type, index []int) string {
	for _, i := range index[:len(index)-1] {
		t = t.Field(i).Type
	}
	name, _, _ := strings.Cut(t.Field(index[len(index)-1]).Tag.Get("json"), ",")
	return typeName(t) + "." + name
}

// anyScalar takes what an argument's value may be in a spec file without quotes: a text, a whole number, true or false.
// A number with a fraction is refused: 1.10 reaches the API server as 1.1. No type can say that; what each of these
// bounds says holds for values of one type alone.
func anyScalar() apiextensions.JSONSchemaProps {
	whole, none := 1.0, int64(0)
	preserve := true
	return apiextensions.JSONSchemaProps{XPreserveUnknownFields: &preserve, MultipleOf: &whole, MaxItems: &none,
		MaxProperties: &none}
}

func encoded(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		panic("operator/api: internal error: " + err.Error())
	}
	return data
}
