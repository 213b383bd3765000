package validate

import (
	"fmt"
	"maps"
	"math"
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubefusion/fusionctl/internal/jsontext"
)

// Most of a large CRD is plain: fields that say what they are, how long and how many they may be. Kubernetes' functions
// refuse nothing of them, and take several times as long as decoding to find that out. They are given the rest: reduced
// leaves out each plain schema that nothing above it speaks about. TestReducedIsJudgedAlike holds that what they say of
// the rest is what they say of the whole.

// reduced is a CRD without the schemas that are plain; the CRD itself stays as it is. Typed says that each schema has
// to have a type; where one has a default, each has to as well.
func reduced(crd *unstructured.Unstructured, typed bool) *unstructured.Unstructured {
	spec := fields(crd.Object["spec"])
	versions, _ := spec["versions"].([]any)
	if spec == nil {
		return crd
	}
	spec = maps.Clone(spec)
	r := reduction{
		typed:    typed || names(spec, func(name string) bool { return name == "default" }),
		patterns: map[string]bool{},
	}
	r.holder(spec, "validation")
	if versions != nil {
		kept := make([]any, len(versions))
		for i, version := range versions {
			kept[i] = version
			if version := maps.Clone(fields(version)); version != nil && version["selectableFields"] == nil {
				r.holder(version, "schema")
				kept[i] = version
			}
		}
		spec["versions"] = kept
	}
	object := maps.Clone(crd.Object)
	object["spec"] = spec
	return &unstructured.Unstructured{Object: object}
}

// reduction reduces the schemas of one CRD.
type reduction struct {
	typed    bool
	whole    jsontext.Distinct // schemas, as they were
	patterns map[string]bool   // whether they compile
}

// holder reduces the schema in a field of an object that may be changed. What is left of schemas that differ differs by
// its description: servers treat those that are alike in another way.
func (r *reduction) holder(of map[string]any, field string) {
	holder := fields(of[field])
	schema := fields(holder["openAPIV3Schema"])
	if schema == nil {
		return
	}
	number := r.whole.Number(schema)
	rest, _ := r.schema(schema, true)
	if description, ok := rest["description"].(string); ok || rest["description"] == nil {
		rest["description"] = fmt.Sprintf("%d: %s", number, description)
	}
	holder = maps.Clone(holder)
	holder["openAPIV3Schema"] = rest
	of[field] = holder
}

// plainWords are the words that may stand in a plain schema, with whether the value is one that is decoded and accepted
// everywhere. Those that hold schemas are not among them.
var plainWords = map[string]func(any) bool{
	"type":             func(v any) bool { return plainTypes[v] },
	"description":      isText,
	"title":            isText,
	"format":           isText,
	"nullable":         isBool,
	"exclusiveMaximum": isBool,
	"exclusiveMinimum": isBool,
	"maximum":          isNumber,
	"minimum":          isNumber,
	"multipleOf":       isNumber,
	"maxLength":        isCount,
	"minLength":        isCount,
	"maxItems":         isCount,
	"minItems":         isCount,
	"maxProperties":    isCount,
	"minProperties":    isCount,
	"uniqueItems":      func(v any) bool { return v == false },
	"required":         isWords,
	"enum":             func(v any) bool { _, ok := v.([]any); return ok },
	"example":          func(any) bool { return true },
	preserves:          func(v any) bool { return v == true },
}

var plainTypes = map[any]bool{
	"object": true, "array": true, "string": true, "integer": true, "number": true, "boolean": true,
}

func isText(v any) bool { _, ok := v.(string); return ok }
func isBool(v any) bool { _, ok := v.(bool); return ok }

func isCount(v any) bool {
	n, ok := v.(int64)
	return ok && n >= 0 && n <= math.MaxInt32
}

func isNumber(v any) bool {
	switch v.(type) {
	case int64, float64:
		return true
	}
	return false
}

func isWords(v any) bool {
	list, ok := v.([]any)
	for _, word := range list {
		ok = ok && isText(word)
	}
	return ok
}

// compiles reports whether a value is a regular expression. Schemas have the same few again and again.
func (r *reduction) compiles(v any) bool {
	pattern, ok := v.(string)
	if !ok {
		return false
	}
	if good, known := r.patterns[pattern]; known {
		return good
	}
	_, err := regexp.Compile(pattern)
	r.patterns[pattern] = err == nil
	return err == nil
}

// schema is a schema without the plain ones inside of it, and whether it is plain itself. One with a word that is about
// what is inside of it, or that is not known here, stays whole.
func (r *reduction) schema(schema map[string]any, root bool) (rest map[string]any, plain bool) {
	_, hasProperties := schema["properties"]
	_, hasAdditional := schema["additionalProperties"]
	plain = !(hasProperties && hasAdditional)
	for word, value := range schema {
		switch word {
		case "properties", "items", "additionalProperties":
			if additional, ok := value.(bool); ok && word == "additionalProperties" {
				plain = plain && additional
			} else if fields(value) == nil {
				plain = false
			}
		case "pattern":
			plain = plain && r.compiles(value)
		default:
			known, ok := plainWords[word]
			plain = plain && ok && known(value)
		}
	}
	rest = maps.Clone(schema)
	if !plain {
		return rest, false
	}
	if schema["type"] == nil && schema[preserves] == nil {
		plain = !r.typed
	}
	if schema["type"] == "array" && schema["items"] == nil {
		plain = false
	}
	if hasProperties {
		plain = r.properties(rest, root) && plain
	}
	for _, word := range []string{"items", "additionalProperties"} {
		inner := fields(schema[word])
		if inner == nil {
			continue
		}
		less, plainInside := r.schema(inner, false)
		if plainInside {
			less = map[string]any{"type": "object"}
		}
		rest[word], plain = less, plain && plainInside
	}
	return rest, plain
}

// properties reduces those of a schema that may be changed, and reports whether they all are plain. At the root some
// are the object's own.
func (r *reduction) properties(of map[string]any, root bool) bool {
	plain, kept := true, map[string]any{}
	for name, property := range fields(of["properties"]) {
		schema := fields(property)
		if schema == nil || root && (name == "metadata" || name == "apiVersion" || name == "kind") {
			plain, kept[name] = false, property
			continue
		}
		if rest, ok := r.schema(schema, false); !ok {
			plain, kept[name] = false, rest
		}
	}
	of["properties"] = kept
	return plain
}
