package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Schema is the OpenAPI v3 schema of a version, or of a field in it.
type Schema struct {
	Type                 string             `json:"type"`
	Format               string             `json:"format"`
	Nullable             bool               `json:"nullable"`
	Properties           map[string]*Schema `json:"properties"`
	AdditionalProperties *schemaOrBool      `json:"additionalProperties"`
	Items                *Schema            `json:"items"`
	Required             []string           `json:"required"`
	Enum                 []any              `json:"enum"`
	Default              any                `json:"default"`
	Pattern              string             `json:"pattern"`
	MinLength            *int64             `json:"minLength"`
	MaxLength            *int64             `json:"maxLength"`
	Minimum              *float64           `json:"minimum"`
	Maximum              *float64           `json:"maximum"`
	ExclusiveMinimum     bool               `json:"exclusiveMinimum"`
	ExclusiveMaximum     bool               `json:"exclusiveMaximum"`
	MultipleOf           *float64           `json:"multipleOf"`
	MinItems             *int64             `json:"minItems"`
	MaxItems             *int64             `json:"maxItems"`
	UniqueItems          bool               `json:"uniqueItems"`
	MinProperties        *int64             `json:"minProperties"`
	MaxProperties        *int64             `json:"maxProperties"`
	Ref                  string             `json:"$ref"`
	Preserve             bool               `json:"x-kubernetes-preserve-unknown-fields"`
	IntOrString          bool               `json:"x-kubernetes-int-or-string"`
	Embedded             bool               `json:"x-kubernetes-embedded-resource"`
	ListType             string             `json:"x-kubernetes-list-type"`
	ListMapKeys          []string           `json:"x-kubernetes-list-map-keys"`
	AllOf                []*Schema          `json:"allOf"`
	AnyOf                []*Schema          `json:"anyOf"`
	OneOf                []*Schema          `json:"oneOf"`
	Not                  *Schema            `json:"not"`

	raw   map[string]any // of the root only
	words words
}

type schemaOrBool struct {
	allows bool
	schema *Schema
}

func (s *schemaOrBool) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &s.allows); err == nil {
		return nil
	}
	s.allows = true
	return utiljson.Unmarshal(text, &s.schema)
}

// limitSchemaDepth bounds nesting: the schemas of the API server are trees, and people's are not this deep.
const limitSchemaDepth = 64

// newSchema reads the schema of a version. What every object has is taken out of the schema's own words: apiVersion,
// kind and metadata are the API server's, and of metadata a conversion may change labels and annotations.
func newSchema(raw map[string]any, preserve bool) (*Schema, error) {
	text, err := utiljson.Marshal(raw)
	if err != nil {
		return nil, err
	}
	s := &Schema{}
	if err := utiljson.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	if err := s.settle(preserve, 0); err != nil {
		return nil, err
	}
	texts := func() *Schema {
		return &Schema{Type: "object",
			AdditionalProperties: &schemaOrBool{allows: true, schema: &Schema{Type: "string"}}}
	}
	if s.Properties == nil {
		s.Properties = map[string]*Schema{}
	}
	s.Type, s.raw = "object", raw
	metadata := &Schema{Type: "object", Preserve: true,
		Properties: map[string]*Schema{"labels": texts(), "annotations": texts()}}
	if own := s.Properties["metadata"]; own != nil {
		metadata.AllOf = []*Schema{own}
	}
	s.Properties["apiVersion"], s.Properties["kind"] = &Schema{Type: "string"}, &Schema{Type: "string"}
	s.Properties["metadata"] = metadata
	s.Required = slices.DeleteFunc(s.Required, func(name string) bool {
		return name == "apiVersion" || name == "kind" || name == "metadata"
	})
	s.compile()
	return s, nil
}

// settle takes what all nodes inherit down the tree, and refuses what no API server accepts.
func (s *Schema) settle(preserve bool, depth int) error {
	if depth > limitSchemaDepth {
		return fmt.Errorf("the schema is deeper than %d levels", limitSchemaDepth)
	}
	if s.Ref != "" {
		return errors.New("the schema has a $ref, which no API server accepts in a CRD")
	}
	s.Preserve = s.Preserve || preserve && s.Type != "array"
	children := []*Schema{s.Items}
	if s.AdditionalProperties != nil {
		children = append(children, s.AdditionalProperties.schema)
	}
	for _, child := range s.Properties {
		if child == nil {
			return errors.New("the schema has a property without a schema")
		}
		children = append(children, child)
	}
	for _, child := range children {
		if child == nil {
			continue
		}
		if err := child.settle(preserve, depth+1); err != nil {
			return err
		}
	}
	// What these say is no place for fields: it judges values alone.
	for _, of := range slices.Concat(s.AllOf, s.AnyOf, s.OneOf, []*Schema{s.Not}) {
		if of == nil {
			continue
		}
		if err := of.settle(false, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// shape says in a word what values the schema is about.
func (s *Schema) shape() string {
	switch {
	case s.IntOrString:
		return "integer or string"
	case s.Type == "" && len(s.Properties) > 0:
		return "object"
	case s.Type == "":
		return "anything"
	case s.Type == "object" && len(s.Properties) == 0 && s.valueSchema() != nil:
		return "map"
	}
	return s.Type
}

// valueSchema is that of the values of a map, nil for none.
func (s *Schema) valueSchema() *Schema {
	if s.AdditionalProperties == nil {
		return nil
	}
	return s.AdditionalProperties.schema
}

// child is the schema of a field by its name. Free is true for a field that needs no schema: the object takes unknown
// ones.
func (s *Schema) child(name string) (child *Schema, free bool) {
	if s == nil {
		return nil, true
	}
	if c, ok := s.Properties[name]; ok {
		return c, false
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.allows {
		return s.AdditionalProperties.schema, s.AdditionalProperties.schema == nil
	}
	return nil, s.Preserve || s.shape() == "anything"
}

// at follows a path. The schema is nil for a place that takes anything; known is false for one that does not exist.
func (s *Schema) at(p path) (found *Schema, known bool) {
	for _, name := range p {
		child, free := s.child(name)
		if child == nil && !free {
			return nil, false
		}
		s = child
	}
	return s, true
}

// names lists the fields, sorted.
func (s *Schema) names() []string {
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (s *Schema) requires(name string) bool { return slices.Contains(s.Required, name) }

// mismatch says where and how a value is of another type than the schema wants, "" when it is not.
func (s *Schema) mismatch(value any) string {
	if s == nil || s.Nullable && value == nil || s.shape() == "anything" {
		return ""
	}
	switch v := value.(type) {
	case map[string]any:
		if s.shape() != "object" && s.shape() != "map" {
			break
		}
		for _, name := range sortedKeys(v) {
			if child, _ := s.child(name); child != nil {
				if m := child.mismatch(v[name]); m != "" {
					return name + ": " + m
				}
			}
		}
		return ""
	case []any:
		if s.Type != "array" {
			break
		}
		for i, item := range v {
			if m := s.Items.mismatch(item); m != "" {
				return fmt.Sprintf("[%d]: %s", i, m)
			}
		}
		return ""
	case string:
		if s.Type == "string" || s.IntOrString {
			return ""
		}
	case bool:
		if s.Type == "boolean" {
			return ""
		}
	case int64:
		if s.Type == "integer" || s.Type == "number" || s.IntOrString {
			return ""
		}
	case float64:
		if s.Type == "number" || s.Type == "integer" && v == float64(int64(v)) {
			return ""
		}
	}
	return fmt.Sprintf("is %s, want %s", describe(value), article(s.shape()))
}

func describe(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return fmt.Sprintf("the text %q", shorten(v))
	case bool:
		return fmt.Sprintf("the boolean %v", v)
	}
	return fmt.Sprintf("the number %v", value)
}

func article(noun string) string {
	switch noun {
	case "array":
		return "a list"
	case "object", "integer", "integer or string":
		return "an " + noun
	case "string":
		return "a text"
	}
	return "a " + noun
}

func shorten(s string) string {
	const limitRunes = 60
	if r := []rune(s); len(r) > limitRunes {
		return string(r[:limitRunes]) + "..."
	}
	return s
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
