package hub

import (
	"fmt"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// validator judges objects of one version as the API server does when one is written, but for the CEL rules of the
// schema (x-kubernetes-validations).
type validator struct {
	schema  *Schema
	openapi *validate.SchemaValidator
}

func newValidator(s *Schema) (*validator, error) {
	text, err := utiljson.Marshal(withIntOrString(s.raw))
	if err != nil {
		return nil, err
	}
	var openapi spec.Schema
	if err := utiljson.Unmarshal(text, &openapi); err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	return &validator{schema: s, openapi: validate.NewSchemaValidator(&openapi, nil, "", strfmt.Default)}, nil
}

// withIntOrString says in the words of OpenAPI what x-kubernetes-int-or-string means.
func withIntOrString(node any) any {
	switch node := node.(type) {
	case map[string]any:
		out := make(map[string]any, len(node)+1)
		for name, value := range node {
			out[name] = withIntOrString(value)
		}
		if either, _ := node["x-kubernetes-int-or-string"].(bool); either && node["type"] == nil {
			out["type"] = []any{"integer", "string"}
		}
		return out
	case []any:
		out := make([]any, len(node))
		for i, value := range node {
			out[i] = withIntOrString(value)
		}
		return out
	}
	return node
}

// problems says what is wrong with an object, sorted.
func (v *validator) problems(object map[string]any) []string {
	var messages []string
	for _, err := range v.openapi.Validate(object).Errors {
		messages = append(messages, err.Error())
	}
	if message := repeated(v.schema, object, nil); message != "" {
		messages = append(messages, message)
	}
	slices.Sort(messages)
	return slices.Compact(messages)
}

// sentence joins the problems of an object; "" for none.
func (v *validator) sentence(object map[string]any) string {
	return strings.Join(v.problems(object), "; ")
}

// repeated finds elements that a list may have once: in sets, and in lists with keys.
func repeated(s *Schema, value any, at path) string {
	if s == nil {
		return ""
	}
	switch v := value.(type) {
	case map[string]any:
		for _, name := range sortedKeys(v) {
			child, _ := s.child(name)
			if message := repeated(child, v[name], at.plus(name)); message != "" {
				return message
			}
		}
	case []any:
		seen := map[string]bool{}
		for _, item := range v {
			if message := repeated(s.Items, item, at.plus("[]")); message != "" {
				return message
			}
			var identity any
			switch s.ListType {
			case "set":
				identity = item
			case "map":
				element, _ := item.(map[string]any)
				identity = keysOf(element, s.ListMapKeys)
			default:
				continue
			}
			if d := digest(identity); seen[d] {
				return fmt.Sprintf("%s: has two elements that count as one", strings.Join(at, "."))
			} else {
				seen[d] = true
			}
		}
	}
	return ""
}
