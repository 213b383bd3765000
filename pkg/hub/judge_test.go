package hub

import (
	"math/rand/v2"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// TestJudgesAsAPIServersDo holds random schemas and values against the library that API servers validate with. Where
// the two differ, the library is laxer: to it a format makes a list of a text, and 1 is another element than 1.0.
func TestJudgesAsAPIServersDo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	taken := 0
	for range 6000 {
		raw := randomSchema(r, 0)
		text, err := utiljson.Marshal(raw)
		if err != nil {
			t.Fatal(err)
		}
		var s Schema
		if err := utiljson.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		if err := s.settle(false, 0); err != nil {
			t.Fatal(err)
		}
		s.compile()
		s.raw = raw
		v, err := newValidator(&s)
		if err != nil {
			t.Fatal(err)
		}
		value := randomValue(r, 0)
		var problems []string
		for _, err := range v.openapi.Validate(value).Errors {
			problems = append(problems, err.Error())
		}
		word := s.refuses(value)
		if word == "" {
			taken++
		}
		if (word == "") != (len(problems) == 0) {
			t.Fatalf("%s\n%v (%T): %q, want %q", text, value, value, word, problems)
		}
	}
	if taken < 500 {
		t.Errorf("%d values are taken; the schemas are of no use", taken)
	}
}

func randomSchema(r *rand.Rand, depth int) map[string]any {
	s := map[string]any{}
	maybe := func(ofTen int, word string, value func() any) {
		if r.IntN(10) < ofTen {
			s[word] = value()
		}
	}
	one := func(of ...any) func() any { return func() any { return of[r.IntN(len(of))] } }
	inner := func() any { return randomSchema(r, depth+1) }
	inners := func() any { return []any{inner(), inner()}[:1+r.IntN(2)] }
	maybe(8, "type", one("string", "integer", "number", "boolean", "object", "array"))
	maybe(2, "nullable", one(true))
	if s["type"] == nil {
		maybe(2, "x-kubernetes-int-or-string", one(true))
	}
	maybe(1, "enum", one([]any{"a", int64(1)}, []any{1.5, "bb"}, []any{nil, "a"},
		[]any{true, map[string]any{"a": "a"}}))
	switch s["type"] {
	case "integer":
		maybe(3, "format", one("int32", "int64"))
	case "number":
		maybe(3, "format", one("float", "double"))
	case nil:
		maybe(1, "format", one("date", "uuid"))
	case "string":
		maybe(2, "pattern", one("^a", "(", "b$", "1"))
		maybe(2, "minLength", one(int64(1), int64(2)))
		maybe(2, "maxLength", one(int64(1), int64(3)))
	}
	if s["type"] == "integer" || s["type"] == "number" {
		maybe(2, "minimum", one(int64(1), 1.5, -3.0, 1e20))
		maybe(2, "maximum", one(int64(2), 1.5, 1e20))
		maybe(1, "exclusiveMinimum", one(true))
		maybe(1, "exclusiveMaximum", one(true))
		maybe(2, "multipleOf", one(int64(2), 0.5, 1.5, 1e20))
	}
	maybe(1, "minProperties", one(int64(1), int64(2)))
	maybe(1, "maxProperties", one(int64(0), int64(1)))
	maybe(1, "minItems", one(int64(1), int64(2)))
	maybe(1, "maxItems", one(int64(0), int64(1)))
	maybe(1, "uniqueItems", one(true))
	maybe(1, "required", one([]any{"a"}, []any{"a", "b"}))
	if depth < 3 {
		maybe(3, "properties", func() any { return map[string]any{"a": inner(), "b": inner()} })
		maybe(2, "additionalProperties", func() any { return one(inner(), true, false)() })
		maybe(3, "items", inner)
		maybe(1, "allOf", inners)
		maybe(1, "anyOf", inners)
		maybe(1, "oneOf", inners)
		maybe(1, "not", inner)
	}
	return s
}

func randomValue(r *rand.Rand, depth int) any {
	of := 12
	if depth > 3 {
		of = 10
	}
	switch n := r.IntN(of); n {
	case 0:
		return nil
	case 1:
		return r.IntN(2) == 0
	case 2, 3:
		return []any{int64(1), int64(2), int64(-4), int64(1 << 40), int64(65)}[r.IntN(5)]
	case 4, 5:
		return []any{1.5, 2.25, -1e20, 1e40, 1e300}[r.IntN(5)]
	case 6, 7, 8, 9:
		return []string{"", "a", "bb", "1", "ab1", "äöü"}[r.IntN(6)]
	case 10:
		list := []any{}
		for range r.IntN(4) {
			list = append(list, randomValue(r, depth+1))
		}
		return list
	default:
		object := map[string]any{}
		for range r.IntN(4) {
			object[[]string{"a", "b", "c"}[r.IntN(3)]] = randomValue(r, depth+1)
		}
		return object
	}
}
