package validate

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/google/go-cmp/cmp"

	"github.com/kubefusion/fusionctl/pkg/convert"
)

// schemasByChance makes schemas of the words that CRDs have, most of them in good order.
type schemasByChance struct{ *rand.Rand }

func (c schemasByChance) rarely() bool { return c.IntN(30) == 0 }

func (c schemasByChance) schema(depth int) any {
	schema := map[string]any{}
	kind := []string{"object", "object", "array", "string", "integer", "number", "boolean"}[c.IntN(7)]
	if depth == 0 && kind != "array" {
		kind = "string"
	}
	schema["type"] = kind
	if kind == "object" && !c.rarely() {
		properties := map[string]any{}
		for _, name := range []string{"a", "b", "metadata", "kind", "apiVersion"}[:c.IntN(6)] {
			if properties[name] = c.schema(depth - 1); name == "kind" && !c.rarely() {
				properties[name] = map[string]any{"type": "string"}
			}
		}
		schema["properties"] = properties
	}
	if kind == "object" && c.IntN(4) == 0 {
		schema["additionalProperties"] = []any{c.schema(depth - 1), true, false, "x"}[c.IntN(4)]
		if !c.rarely() {
			delete(schema, "properties")
		}
	}
	if kind == "array" && !c.rarely() {
		schema["items"] = map[string]any{"type": "string"}
		if depth > 0 {
			schema["items"] = c.schema(depth - 1)
		}
		if c.rarely() {
			schema["items"] = []any{schema["items"]}
		}
	}
	for _, word := range slices.Sorted(maps.Keys(wordsByChance)) {
		if values := wordsByChance[word]; c.IntN(50) == 0 {
			schema[word] = values[c.IntN(len(values))]
		}
	}
	if c.rarely() {
		word := []string{"allOf", "anyOf", "oneOf", "not"}[c.IntN(4)]
		inner := c.schema(min(depth-1, 1))
		if schema[word] = []any{inner}; word == "not" {
			schema[word] = inner
		}
	}
	if c.rarely() {
		delete(schema, "type")
	}
	return schema
}

// wordsByChance are words with values, good ones first.
var wordsByChance = map[string][]any{
	"description":                    {"text", "", int64(1)},
	"title":                          {"text"},
	"format":                         {"int32", "date-time", "nothing", int64(1)},
	"pattern":                        {"^a+$", "", "(", int64(1)},
	"nullable":                       {true, false, "x"},
	"minimum":                        {int64(1), 1.5, "x"},
	"exclusiveMinimum":               {true, int64(1)},
	"maxLength":                      {int64(3), int64(-1), 1.5, "x"},
	"minItems":                       {int64(3), true},
	"uniqueItems":                    {false, true},
	"required":                       {[]any{"a"}, []any{int64(1)}, []any{}, "a"},
	"enum":                           {[]any{"a", "b"}, []any{nil, int64(1)}, "a", []any{}},
	"example":                        {"a", map[string]any{}},
	"default":                        {"a", int64(1), map[string]any{}, map[string]any{"a": "x"}},
	"type":                           {"null", "thing", ""},
	"id":                             {"a"},
	"$ref":                           {"#/a"},
	"patternProperties":              {map[string]any{"a": map[string]any{"type": "string"}}},
	"definitions":                    {map[string]any{"a": map[string]any{"type": "string"}}},
	"externalDocs":                   {map[string]any{"url": "a"}},
	"unknown":                        {"a"},
	preserves:                        {true, false},
	intOrString:                      {true},
	"x-kubernetes-embedded-resource": {true},
	"x-kubernetes-list-type":         {"map", "set", "atomic", "x"},
	"x-kubernetes-list-map-keys":     {[]any{"a"}, []any{"none"}},
	"x-kubernetes-map-type":          {"atomic", "granular"},
	"x-kubernetes-validations": {
		[]any{map[string]any{"rule": "self.a == 'x'"}}, []any{map[string]any{"rule": "has(self.b)"}},
		[]any{map[string]any{"rule": "!"}},
	},
}

// What is refused of a CRD without its plain schemas is what is refused of the whole CRD: the same fields, for the same
// reasons.
func TestReducedIsJudgedAlike(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	chance := schemasByChance{rand.New(rand.NewPCG(1, 2))}
	refused, accepted, less := 0, 0, 0
	for range 3000 {
		root := chance.schema(3).(map[string]any)
		if !chance.rarely() {
			root["type"] = "object"
		}
		other := root
		if chance.IntN(2) == 0 {
			other = chance.schema(2).(map[string]any)
			other["description"] = "another" // decoded, two of them might be the same
		}
		for _, version := range []string{"v1", "v1beta1"} {
			crd := ofSchemas(version, root, other)
			if version == "v1beta1" && chance.IntN(3) > 0 {
				delete(fields(crd.Object["spec"]), "preserveUnknownFields")
			}
			structural := version == "v1" || mustBeStructural(crd.Object, 15)
			part := reduced(crd, structural)
			whole, rest := refusedOf(t, c, crd, structural), refusedOf(t, c, part, structural)
			if diff := cmp.Diff(whole, rest); diff != "" {
				text, _ := json.Marshal(crd.Object)
				t.Fatalf("%s, structural %t: the whole is refused otherwise than the rest (-whole +rest):\n%s\n%s",
					version, structural, diff, text)
			}
			if len(whole) > 0 {
				refused++
			} else {
				accepted++
			}
			before, _ := json.Marshal(crd.Object)
			if after, _ := json.Marshal(part.Object); len(after) < len(before)-100 {
				less++
			}
		}
	}
	if refused < 500 || accepted < 500 || less < 50 {
		t.Errorf("%d were refused, %d accepted, %d smaller by 100 bytes; want hundreds, and dozens smaller", refused,
			accepted, less)
	}
}

// ofSchemas is a CRD with two versions.
func ofSchemas(version string, schemas ...map[string]any) *unstructured.Unstructured {
	var versions []any
	for i, schema := range schemas {
		versions = append(versions, map[string]any{"name": []string{"v1", "v2"}[i], "served": true, "storage": i == 0,
			"schema": map[string]any{"openAPIV3Schema": schema}})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/" + version, "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "xs.g.example"},
		"spec": map[string]any{"group": "g.example", "scope": "Namespaced", "preserveUnknownFields": false,
			"names":    map[string]any{"plural": "xs", "singular": "x", "kind": "X", "listKind": "XList"},
			"versions": versions},
	}}
}

// refusedOf are the fields that are refused, each with the type of its error.
func refusedOf(t *testing.T, c *convert.Converter, crd *unstructured.Unstructured, structural bool) []string {
	t.Helper()
	v := validation{converter: c, in: crd, out: crd, minor: 15}
	internal, err := v.definition(crd)
	if err != nil {
		return []string{"not decoded"}
	}
	var errs field.ErrorList
	if crd.GroupVersionKind().Version == "v1" {
		errs = Created(internal, crd.GroupVersionKind().GroupVersion(), false)
	} else {
		errs = ofBeta(internal, structural)
	}
	var found []string
	for _, err := range errs {
		found = append(found, err.Field+": "+string(err.Type))
	}
	slices.Sort(found)
	return slices.Compact(found)
}
