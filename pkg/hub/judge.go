package hub

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	validpath "k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// The validator of kube-openapi, by which trials judge whole objects and with which the tests of this file compare,
// keeps all that is wrong and compares each with every other: what one client has written would take minutes at each
// list.

// words are the words of a schema that judge values, made ready once.
type words struct {
	pattern   *regexp.Regexp      // nil where it does not compile: nothing matches it then, as in API servers
	enum      map[string]struct{} // by identity
	format    string              // of texts, if API servers know it
	numbers   string              // the type whose range numbers have to be in; "" for any
	unbounded bool                // a bound is out of this range: API servers refuse every number then
	every     []*Schema           // the schema, and those of allOf, and of their allOf
}

// compile makes the words ready, here and below.
func (s *Schema) compile() {
	if s == nil || s.words.every != nil {
		return
	}
	w := words{every: []*Schema{s}}
	if s.Pattern != "" {
		w.pattern, _ = regexp.Compile(s.Pattern)
	}
	if len(s.Enum) > 0 {
		w.enum = make(map[string]struct{}, len(s.Enum))
		for _, value := range s.Enum {
			w.enum[identity(value)] = struct{}{}
		}
	}
	if (s.Type == "" || s.Type == "string" || s.IntOrString) && strfmt.Default.ContainsName(s.Format) {
		w.format = s.Format
	}
	if !s.IntOrString && (s.Type == "integer" || s.Type == "number") {
		w.numbers = s.Type
	}
	s.words = w
	for _, bound := range []*float64{s.Minimum, s.Maximum, s.MultipleOf} {
		s.words.unbounded = s.words.unbounded || bound != nil && !s.inRange(*bound)
	}
	s.Items.compile()
	s.valueSchema().compile()
	for _, child := range s.Properties {
		child.compile()
	}
	for _, of := range slices.Concat(s.AllOf, s.AnyOf, s.OneOf, []*Schema{s.Not}) {
		of.compile()
	}
	for _, of := range s.AllOf {
		if of != nil {
			s.words.every = append(s.words.every, of.words.every...)
		}
	}
}

// identity is a text that two values share when they are equal as JSON.
func identity(value any) string {
	if text, ok := value.(string); ok {
		return `"` + text
	}
	text, err := json.Marshal(value)
	if err != nil {
		panic("hub: internal error: " + err.Error()) // what was decoded from JSON
	}
	return string(text)
}

// refuses says which word of the schema a value breaks, as an API server does when one is written, and where in it; ""
// for none. CEL rules are not evaluated. It stops at the first, and reads each part of the value as often as the schema
// speaks of it, however many values there are: a client has written them.
func (s *Schema) refuses(value any) string {
	switch {
	case s == nil:
		return ""
	case value == nil: // API servers judge it by the type and the enum
		return s.refusesAlone(nil)
	}
	for _, s := range s.words.every {
		if word := s.refusesAlone(value); word != "" {
			return word
		}
	}
	return ""
}

// refusesAlone leaves allOf to the caller.
func (s *Schema) refusesAlone(value any) string {
	if !s.typed(value) {
		return "type"
	}
	word := ""
	switch v := value.(type) {
	case string:
		word = s.refusesText(v)
	case int64, float64:
		word = s.refusesNumber(v)
	case []any:
		for i, item := range v {
			if word := s.Items.refuses(item); word != "" {
				return fmt.Sprintf("[%d]: %s", i, word)
			}
		}
	case map[string]any:
		for _, name := range sortedKeys(v) {
			if word := s.field(name).refuses(v[name]); word != "" {
				return shorten(name) + ": " + word
			}
		}
	}
	if word != "" {
		return word
	}
	if broken := s.broken(value, true); len(broken) > 0 {
		return broken[0]
	}
	return ""
}

// field is what the schema says of a field by its name; nil for nothing.
func (s *Schema) field(name string) *Schema {
	if child, ok := s.Properties[name]; ok {
		return child
	}
	return s.valueSchema()
}

func (s *Schema) typed(value any) bool {
	types := []string{s.Type}
	if s.IntOrString {
		types = []string{"integer", "string"}
	}
	is := ""
	switch v := value.(type) {
	case nil:
		return s.Nullable || types[0] == ""
	case string:
		is = "string"
	case bool:
		is = "boolean"
	case int64:
		return slices.Contains(types, "integer") || types[0] == "number" || types[0] == "" && s.words.format == ""
	case float64:
		const most = 1<<53 - 1 // beyond it, API servers take no float for an integer
		return types[0] == "number" || types[0] == "integer" && v == math.Trunc(v) && math.Abs(v) <= most ||
			types[0] == "" && s.words.format == ""
	case []any:
		is = "array"
	case map[string]any:
		is = "object"
	}
	if types[0] == "" { // API servers take a format for a word about types
		return s.words.format == "" || is == "string" || is == "array"
	}
	return slices.Contains(types, is)
}

func (s *Schema) refusesText(text string) string {
	switch length := int64(utf8.RuneCountInString(text)); {
	case s.MaxLength != nil && length > *s.MaxLength:
		return "maxLength"
	case s.MinLength != nil && length < *s.MinLength:
		return "minLength"
	case s.Pattern != "" && (s.words.pattern == nil || !s.words.pattern.MatchString(text)):
		return "pattern"
	case s.words.format != "" && !strfmt.Default.Validates(s.words.format, text):
		return "format"
	}
	return ""
}

// inRange asks the library of API servers, as the bounds below do: it compares integers with what is left of a bound
// without its fraction.
func (s *Schema) inRange(number any) bool {
	format := ""
	switch {
	case s.words.numbers == "integer" && (s.Format == "int32" || s.Format == "int64"),
		s.words.numbers == "number" && (s.Format == "float" || s.Format == "double"):
		format = s.Format
	}
	return validate.IsValueValidAgainstRange(number, s.words.numbers, format, "", "") == nil
}

func (s *Schema) refusesNumber(number any) string {
	switch {
	case !s.inRange(number) || s.words.unbounded:
		return "format"
	case s.MultipleOf != nil && validate.MultipleOfNativeType("", "", number, *s.MultipleOf) != nil:
		return "multipleOf"
	case s.Maximum != nil && validate.MaximumNativeType("", "", number, *s.Maximum, s.ExclusiveMaximum) != nil:
		return "maximum"
	case s.Minimum != nil && validate.MinimumNativeType("", "", number, *s.Minimum, s.ExclusiveMinimum) != nil:
		return "minimum"
	}
	return ""
}

// broken lists the words that a value breaks as a whole, which none of its parts does alone: all, or the first.
func (s *Schema) broken(value any, first bool) []string {
	var found []string
	for _, check := range []func(*Schema, any) []string{(*Schema).brokenEnum, (*Schema).brokenByObject,
		(*Schema).brokenByList, (*Schema).brokenOf} {
		if found = append(found, check(s, value)...); first && len(found) > 0 {
			break
		}
	}
	return found
}

func (s *Schema) brokenEnum(value any) []string {
	if len(s.words.enum) == 0 {
		return nil
	}
	if _, ok := s.words.enum[identity(value)]; ok && value != nil { // to API servers null is in no enum
		return nil
	}
	return []string{"enum"}
}

func (s *Schema) brokenByObject(value any) (found []string) {
	object, ok := value.(map[string]any)
	if !ok {
		return nil
	}
	for _, name := range s.Required {
		if _, ok := object[name]; !ok {
			found = append(found, "required: "+name)
		}
	}
	found = append(found, brokenCount("Properties", len(object), s.MinProperties, s.MaxProperties)...)
	if s.AdditionalProperties != nil && !s.AdditionalProperties.allows {
		for name := range object {
			if _, ok := s.Properties[name]; !ok {
				found = append(found, "additionalProperties")
				break
			}
		}
	}
	if s.Embedded {
		found = append(found, brokenResource(object)...)
	}
	return found
}

func brokenCount(of string, n int, least, most *int64) []string {
	switch {
	case least != nil && int64(n) < *least:
		return []string{"min" + of}
	case most != nil && int64(n) > *most:
		return []string{"max" + of}
	}
	return nil
}

func (s *Schema) brokenByList(value any) []string {
	list, ok := value.([]any)
	if !ok {
		return nil
	}
	found := brokenCount("Items", len(list), s.MinItems, s.MaxItems)
	if s.UniqueItems || s.ListType == "set" || s.ListType == "map" {
		seen := make(map[string]struct{}, len(list))
		for _, item := range list {
			if s.ListType == "map" {
				element, _ := item.(map[string]any)
				if item = keysOf(element, s.ListMapKeys); len(s.ListMapKeys) == 1 {
					item = element[s.ListMapKeys[0]]
				}
			}
			seen[identity(item)] = struct{}{}
		}
		if len(seen) < len(list) {
			found = append(found, "has an element twice")
		}
	}
	return found
}

func (s *Schema) brokenOf(value any) (found []string) {
	if value == nil {
		return nil
	}
	taking := func(of []*Schema, most int) (n int) {
		for _, one := range of {
			if one.refuses(value) == "" {
				if n++; n == most {
					break
				}
			}
		}
		return n
	}
	if len(s.AnyOf) > 0 && taking(s.AnyOf, 1) == 0 {
		found = append(found, "anyOf")
	}
	if len(s.OneOf) > 0 && taking(s.OneOf, 2) != 1 {
		found = append(found, "oneOf")
	}
	if s.Not != nil && s.Not.refuses(value) == "" {
		found = append(found, "not")
	}
	return found
}

// brokenResource judges an object in an object, as API servers do (apiextensions-apiserver, schema/objectmeta).
func brokenResource(object map[string]any) (found []string) {
	apiVersion, _ := object["apiVersion"].(string)
	if _, err := schema.ParseGroupVersion(apiVersion); err != nil || apiVersion == "" {
		found = append(found, "apiVersion of a resource")
	}
	kind, _ := object["kind"].(string)
	if len(utilvalidation.IsDNS1035Label(strings.ToLower(kind))) > 0 {
		found = append(found, "kind of a resource")
	}
	if metadata, ok := object["metadata"]; ok {
		var m metav1.ObjectMeta
		text, err := utiljson.Marshal(metadata)
		if err == nil {
			err = json.Unmarshal(text, &m)
		}
		if m.Name == "" {
			m.Name = "any" // none is needed
		}
		if _, isObject := metadata.(map[string]any); err != nil || !isObject ||
			len(apivalidation.ValidateObjectMeta(&m, m.Namespace != "", validpath.ValidatePathSegmentName, nil)) > 0 {
			found = append(found, "metadata of a resource")
		}
	}
	return found
}
