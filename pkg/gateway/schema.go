package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/gateway/routes"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// schemas describes built-in kinds by their Go types of Kubernetes 1.36, for versions of which no side has a
// description: types, and the texts of API servers. What is required is not said: types do not know it.
type schemas struct {
	prefix string // of references
	made   map[string]map[string]any
}

// of adds the description of a type and of what it refers to, and names it.
func (s *schemas) of(t reflect.Type) string {
	name := modelName(t)
	if s.made[name] != nil {
		return name
	}
	made := map[string]any{}
	s.made[name] = made // before its fields: some types have themselves in them
	value := reflect.Zero(t).Interface()
	if typed, ok := value.(interface{ OpenAPISchemaType() []string }); ok {
		made["type"] = typed.OpenAPISchemaType()[0]
		if f, ok := value.(interface{ OpenAPISchemaFormat() string }); ok && f.OpenAPISchemaFormat() != "" {
			made["format"] = f.OpenAPISchemaFormat()
		}
		return name
	}
	made["type"] = "object"
	if text := docOf(t)[""]; text != "" {
		made["description"] = text
	}
	properties := map[string]any{}
	s.fields(t, properties)
	if len(properties) > 0 {
		made["properties"] = properties
	}
	return name
}

// fields adds the fields of a struct, those of embedded ones among them.
func (s *schemas) fields(t reflect.Type, properties map[string]any) {
	texts := docOf(t)
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || !field.IsExported():
		case name == "" && (field.Anonymous || options == "inline") && field.Type.Kind() == reflect.Struct:
			s.fields(field.Type, properties)
		case name != "":
			property := s.property(field.Type)
			if text := texts[name]; text != "" {
				property["description"] = text
			}
			properties[name] = property
		}
	}
}

// property is what a field of the type has.
func (s *schemas) property(t reflect.Type) map[string]any {
	switch t.Kind() {
	case reflect.Pointer:
		return s.property(t.Elem())
	case reflect.Struct:
		return map[string]any{"$ref": s.prefix + s.of(t)}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return map[string]any{"type": "string", "format": "byte"}
		}
		return map[string]any{"type": "array", "items": s.property(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": s.property(t.Elem())}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number", "format": "double"}
	case reflect.Int32:
		return map[string]any{"type": "integer", "format": "int32"}
	case reflect.Int, reflect.Int64:
		return map[string]any{"type": "integer", "format": "int64"}
	}
	return map[string]any{"type": "object"}
}

func docOf(t reflect.Type) map[string]string {
	if documented, ok := reflect.Zero(t).Interface().(interface{ SwaggerDoc() map[string]string }); ok {
		return documented.SwaggerDoc()
	}
	return nil
}

// modelName is how API servers name the type: io.k8s.api.apps.v1.Deployment.
func modelName(t reflect.Type) string {
	if named, ok := reflect.Zero(t).Interface().(interface{ OpenAPIModelName() string }); ok {
		return named.OpenAPIModelName()
	}
	return "io.k8s." + strings.ReplaceAll(strings.TrimPrefix(t.PkgPath(), "k8s.io/"), "/", ".") + "." + t.Name()
}

// described is the Go type of a built-in kind.
func described(gvk schema.GroupVersionKind) (reflect.Type, bool) {
	object, err := scheme.Scheme.New(gvk)
	if err != nil {
		return nil, false
	}
	return reflect.TypeOf(object).Elem(), true
}

func kindExtension(gvk schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}
}

// rowsOf are the rows of a group version that the gateway serves of kinds that can be described.
func rowsOf(table *routes.Table, gv schema.GroupVersion) (rows []*routes.Row) {
	for _, row := range table.Within(gv) {
		if row.Way == routes.None || row.Way == routes.Unknown {
			continue
		}
		if _, ok := described(gv.WithKind(row.Kind)); ok {
			rows = append(rows, row)
		}
	}
	return rows
}

// beyond are the rows of a group version that a side does not serve: its document does not describe them.
func (v *view) beyond(name pair.Side, gv schema.GroupVersion) []*routes.Row {
	return slices.DeleteFunc(rowsOf(v.table, gv), func(row *routes.Row) bool {
		return slices.ContainsFunc(v.served[name].Named(row.GroupResource()), func(r discovery.Resource) bool {
			return r.GroupVersion == gv
		})
	})
}

// weigh is what a document of the rows takes that is made here, as values and as text, by an upper estimate.
func weigh(rows []*routes.Row) int64 {
	const (
		base     = 64 << 10
		row      = 32 << 10 // its operations
		property = 2 << 10  // two maps, with their text
		copies   = 4        // of a description: escaped, in a buffer that grows
	)
	total := int64(base)
	seen := map[reflect.Type]bool{}
	var add func(reflect.Type)
	add = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
			t = t.Elem()
			total += property // an array of arrays is a map more
		}
		if t.Kind() != reflect.Struct || seen[t] {
			return
		}
		seen[t] = true
		total += property
		for _, text := range docOf(t) {
			total += copies * int64(len(text))
		}
		for i := range t.NumField() {
			total += property
			if field := t.Field(i); field.IsExported() {
				add(field.Type)
			}
		}
	}
	for _, r := range rows {
		total += row
		if t, ok := described(r.GroupVersion.WithKind(r.Kind)); ok {
			add(t)
		}
	}
	return total
}

// tagOf is another one for another document of the rows.
func (g *Gateway) tagOf(rows []*routes.Row) string {
	of := sha256.New()
	fmt.Fprintln(of, kubever.Newest)
	for _, row := range rows {
		fmt.Fprintln(of, row.Name, row.Kind, row.Namespaced, row.Verbs, g.validates(row))
	}
	return strings.ToUpper(hex.EncodeToString(of.Sum(nil)))
}

// openAPI3Of is a document of OpenAPI v3 of rows of a group version that no side describes.
func (g *Gateway) openAPI3Of(gv schema.GroupVersion, rows []*routes.Row) map[string]any {
	s := &schemas{prefix: "#/components/schemas/", made: map[string]map[string]any{}}
	paths := map[string]any{}
	for _, row := range rows {
		gvk := gv.WithKind(row.Kind)
		t, _ := described(gvk)
		name := s.of(t)
		kinds, _ := s.made[name][kindsExtension].([]any)
		if !slices.ContainsFunc(kinds, func(kind any) bool { return reflect.DeepEqual(kind, kindExtension(gvk)) }) {
			s.made[name][kindsExtension] = append(kinds, kindExtension(gvk))
		}
		root := "/apis/" + gv.String() + "/"
		if gv.Group == "" {
			root = "/api/" + gv.Version + "/"
		}
		if row.Namespaced {
			root += "namespaces/{namespace}/"
		}
		answer := map[string]any{"200": map[string]any{"description": "OK", "content": map[string]any{
			jsonType: map[string]any{"schema": map[string]any{"$ref": s.prefix + name}}}}}
		operation := func(action string, parameters ...any) map[string]any {
			return map[string]any{"x-kubernetes-group-version-kind": kindExtension(gvk),
				"x-kubernetes-action": action, "responses": answer, "parameters": parameters}
		}
		var heeded []any
		if g.validates(row) {
			heeded = append(heeded, map[string]any{"name": "fieldValidation", "in": "query",
				"schema": map[string]any{"type": "string"}})
		}
		collection, object := map[string]any{}, map[string]any{}
		for _, verb := range row.Verbs {
			switch verb {
			case "list":
				collection["get"] = operation(verb)
			case "create":
				collection["post"] = operation("post", heeded...)
			case "get":
				object["get"] = operation(verb)
			case "update":
				object["put"] = operation("put", heeded...)
			case "patch":
				object["patch"] = operation(verb, heeded...)
			case "delete":
				object["delete"] = operation(verb)
			}
		}
		paths[root+row.Name], paths[root+row.Name+"/{name}"] = collection, object
	}
	kinds := make(map[string]any, len(s.made))
	for name, made := range s.made {
		kinds[name] = made
	}
	return map[string]any{"openapi": "3.0.0", "info": map[string]any{"title": "Kubernetes",
		"version": "v" + kubever.Newest.String()}, "paths": paths, "components": map[string]any{"schemas": kinds}}
}

// added is a JSON object with what it does not have of another one, and so are its objects of these names.
// Errors: it is none.
func added(object json.RawMessage, more map[string]any, within ...string) (map[string]any, error) {
	var has map[string]json.RawMessage
	if err := json.Unmarshal(object, &has); err != nil {
		return nil, err
	}
	if has == nil {
		return nil, errors.New("want an object, got null")
	}
	all := make(map[string]any, len(has)+len(more))
	for name, value := range has {
		all[name] = value
	}
	for name, value := range more {
		if _, ok := has[name]; !ok {
			all[name] = value
			continue
		}
		if inner, ok := value.(map[string]any); ok && slices.Contains(within, name) {
			var err error
			if all[name], err = added(has[name], inner, within...); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return all, nil
}

// validates reports whether the sides that a row is written to heed fieldValidation.
func (g *Gateway) validates(row *routes.Row) bool {
	names := []pair.Side{row.Write}
	if row.Way == routes.Both {
		names = pair.Sides()
	}
	return !slices.ContainsFunc(names, func(name pair.Side) bool {
		return name == "" || !g.at(name).behaves(kubever.BehaviourFieldsValidated)
	})
}

// describe adds to a document of OpenAPI v2 the kinds that the gateway serves and no side describes.
func describe(all *spec.Swagger, table *routes.Table) error {
	known := map[schema.GroupVersionKind]bool{}
	for _, definition := range all.Definitions {
		for _, kind := range kindsOf(&definition) {
			fields, _ := kind.(map[string]any)
			group, _ := fields["group"].(string)
			version, _ := fields["version"].(string)
			kind, _ := fields["kind"].(string)
			known[schema.GroupVersionKind{Group: group, Version: version, Kind: kind}] = true
		}
	}
	s := &schemas{prefix: "#/definitions/", made: map[string]map[string]any{}}
	kinds := map[string][]any{}
	for i := range table.Rows {
		row := &table.Rows[i]
		gvk := row.GroupVersion.WithKind(row.Kind)
		t, ok := described(gvk)
		if !ok || known[gvk] || row.Way == routes.None || row.Way == routes.Unknown {
			continue
		}
		known[gvk] = true
		name := s.of(t)
		kinds[name] = append(kinds[name], kindExtension(gvk))
	}
	if all.Definitions == nil {
		all.Definitions = spec.Definitions{}
	}
	for _, name := range slices.Sorted(maps.Keys(s.made)) {
		if existing, ok := all.Definitions[name]; ok && len(kinds[name]) > 0 { // of another kind of this type
			existing.Extensions = maps.Clone(existing.Extensions)
			existing.AddExtension(kindsExtension, append(slices.Clone(kindsOf(&existing)), kinds[name]...))
			all.Definitions[name] = existing
			continue
		} else if ok {
			continue
		}
		if len(kinds[name]) > 0 {
			s.made[name][kindsExtension] = kinds[name]
		}
		text, err := json.Marshal(s.made[name])
		if err != nil {
			return err
		}
		var definition spec.Schema
		if err := json.Unmarshal(text, &definition); err != nil {
			return err
		}
		all.Definitions[name] = definition
	}
	return nil
}
