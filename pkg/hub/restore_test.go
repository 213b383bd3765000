package hub

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubefusion/fusionctl/internal/cputest"
)

// things is a converter of Things whose hub v2 has a spec that v1 lacks, but for some fields.
func things(t testing.TB, v1, v2, rules string) *Converter {
	t.Helper()
	version := `{name: %s, schema: {openAPIV3Schema: {type: object, properties: {spec: %s}}}}`
	return converter(t, fmt.Appendf(nil, `{apiVersion: kubefusion.dev/v1alpha1, kind: ConversionRules,
  spec: {crd: things.example.com, hub: v2, versions: [{name: v1, rules: %s}]}}`, rules), fmt.Appendf(nil,
		`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.example.com},
  spec: {group: example.com, names: {kind: Thing}, versions: [`+version+`, `+version+`]}}`, "v1", v1, "v2", v2))
}

const named = `{type: object, properties: {name: {type: string}}}`

// forge is a Thing of v1 with what a client says that v2 has in its spec.
func forge(kept string) map[string]any {
	return map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "spec": map[string]any{"name": "a"},
		"metadata": map[string]any{"name": "a", "annotations": map[string]any{
			KeptAnnotation: `{"v2":{"fields":{"spec":{"fields":` + kept + `}}}}`}}}
}

// manyParts is a Thing of v1 with what is kept of three fields of each of many parts.
func manyParts(t testing.TB) (*Converter, map[string]any) {
	t.Helper()
	const list = `{type: object, properties: {parts: {type: array, x-kubernetes-list-type: map,
  x-kubernetes-list-map-keys: [k], items: {type: object, required: [k], properties: {k: {type: string}%s}}}}}`
	c := things(t, fmt.Sprintf(list, ""), fmt.Sprintf(list, `, a: {type: string, pattern: "^[a-z]+$"}, b: {type: integer,
  minimum: 1}, c: {type: array, items: {type: string, enum: [u, v, w]}}`), `[{each: {hub: spec.parts,
  field: spec.parts, rules: [{keep: {hub: a}}, {keep: {hub: b}}, {keep: {hub: c}}]}}]`)
	var parts []any
	for i := range 100 {
		parts = append(parts, map[string]any{"k": fmt.Sprint("part-", i), "a": "text", "b": int64(i + 1),
			"c": []any{"u", "v"}})
	}
	v1, err := c.Convert(map[string]any{"apiVersion": "example.com/v2", "kind": "Thing",
		"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"parts": parts}}, "v1")
	if err != nil {
		t.Fatal(err)
	}
	return c, v1
}

// BenchmarkWayBack measures what it costs to put back what is kept, and to read the annotation alone, beside the same
// conversion without one: in time on a processor, the least of many.
func BenchmarkWayBack(b *testing.B) {
	c, v1 := manyParts(b)
	plain, _ := takeKept(v1)
	least := [3]time.Duration{time.Hour, time.Hour, time.Hour}
	for b.Loop() {
		for i, call := range []func(){
			func() { _, _ = c.Convert(v1, "v2") }, func() { takeKept(v1) }, func() { _, _ = c.Convert(plain, "v2") },
		} {
			least[i] = min(least[i], cputest.Thread(b, call))
		}
	}
	times := float64(least[0]) / float64(least[2])
	if times > 30 {
		b.Errorf("%.1f times the conversion without an annotation, want about 11, and at most 30", times)
	}
	b.ReportMetric(times, "times")
	b.ReportMetric(float64(least[1])/float64(least[2]), "times-read")
	b.ReportMetric(float64(least[0].Microseconds()), "back-µs")
}

func specOf(t testing.TB, c *Converter, object map[string]any, version string) map[string]any {
	t.Helper()
	out, err := c.Convert(object, version)
	if err != nil {
		t.Fatal(err)
	}
	spec, _ := out["spec"].(map[string]any)
	return spec
}

// TestForgedValuesAreRefusedByEachWord of a schema, and only by it.
func TestForgedValuesAreRefusedByEachWord(t *testing.T) {
	for schema, test := range map[string]struct{ good, bad string }{
		`type: string`:  {`"a"`, `1`},
		`type: integer`: {`1`, `1.5`},
		`type: number`:  {`1.5`, `"1"`},
		`type: boolean`: {`true`, `"true"`},
		`type: object, additionalProperties: {type: string}`:              {`{"a":"b"}`, `{"a":1}`},
		`type: array, items: {type: integer}`:                             {`[1]`, `[1,"2"]`},
		`type: string, nullable: true`:                                    {`null`, `{}`},
		`type: string, minLength: 0`:                                      {`""`, `null`},
		`x-kubernetes-int-or-string: true`:                                {`"50%"`, `true`},
		`x-kubernetes-int-or-string: true, maximum: 5`:                    {`5`, `6`},
		`type: string, enum: [a, b]`:                                      {`"b"`, `"c"`},
		`type: integer, enum: [1, 2]`:                                     {`2`, `3`},
		`type: string, pattern: "^a+$"`:                                   {`"aa"`, `"ab"`},
		`type: string, minLength: 2`:                                      {`"äö"`, `"ä"`},
		`type: string, maxLength: 2`:                                      {`"äö"`, `"äöü"`},
		`type: integer, minimum: 3`:                                       {`3`, `2`},
		`type: integer, maximum: 3`:                                       {`3`, `4`},
		`type: number, minimum: 3, exclusiveMinimum: true`:                {`3.1`, `3`},
		`type: number, maximum: 3, exclusiveMaximum: true`:                {`2.9`, `3`},
		`type: integer, multipleOf: 3`:                                    {`6`, `7`},
		`type: integer, format: int32`:                                    {`2147483647`, `2147483648`},
		`type: number, format: float`:                                     {`1e38`, `1e39`},
		`type: string, format: date-time`:                                 {`"2020-01-02T03:04:05Z"`, `"today"`},
		`type: string, format: ipv4`:                                      {`"10.0.0.1"`, `"10.0.0"`},
		`type: string, format: k8s-short-name`:                            {`"a-b"`, `"A"`},
		`type: string, format: of-nobody, maxLength: 3`:                   {`"any"`, `"text"`},
		`type: array, minItems: 1, items: {type: string}`:                 {`["a"]`, `[]`},
		`type: array, maxItems: 1, items: {type: string}`:                 {`["a"]`, `["a","b"]`},
		`type: array, uniqueItems: true, items: {type: string}`:           {`["a","b"]`, `["a","a"]`},
		`type: array, x-kubernetes-list-type: set, items: {type: string}`: {`["a","b"]`, `["a","a"]`},
		`type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k], items: ` + elementsWithKey: {`[{"k":"a"},{"k":"b"}]`, `[{"k":"a"},{"k":"a"}]`},
		`type: object, minProperties: 1, additionalProperties: {type: string}`:                                 {`{"a":"b"}`, `{}`},
		`type: object, maxProperties: 1, additionalProperties: {type: string}`:                                 {`{"a":"b"}`, `{"a":"b","c":"d"}`},
		`type: object, required: [a], properties: {a: {type: string}, b: {type: string}}`:                      {`{"a":"b"}`, `{"b":"a"}`},
		`type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: string}}`:            {`{"a":"b","c":{"d":1}}`, `{"a":1}`},
		`type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true`:       {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`, `{"apiVersion":"v1","kind":"no kind"}`},
		`type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true, nullable: true`: {`null`,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":"no\nlabel"}}}`},
		`type: string, allOf: [{minLength: 1}, {maxLength: 2}]`:                                                  {`"ab"`, `"abc"`},
		`type: string, anyOf: [{pattern: ^a}, {pattern: b$}]`:                                                    {`"ac"`, `"ca"`},
		`type: string, oneOf: [{pattern: ^a}, {pattern: b$}]`:                                                    {`"ac"`, `"ab"`},
		`type: string, not: {pattern: ^a}`:                                                                       {`"b"`, `"a"`},
		`type: string, pattern: "("`:                                                                             {``, `"a"`},
		`type: array, items: {type: object, properties: {a: {type: array, items: {type: integer, maximum: 3}}}}`: {`[{"a":[1,2]}]`, `[{"a":[1,4]}]`},
	} {
		c := things(t, named, `{type: object, properties: {name: {type: string}, x: {`+schema+`}}}`,
			`[{keep: {hub: spec.x}}]`)
		if test.good != "" {
			got := specOf(t, c, forge(`{"x":{"value":`+test.good+`}}`), "v2")
			text, err := json.Marshal(got["x"])
			if _, ok := got["x"]; !ok || err != nil || !sameJSON(t, string(text), test.good) {
				t.Errorf("%s: %s became %s", schema, test.good, text)
			}
		}
		got := specOf(t, c, forge(`{"x":{"value":`+test.bad+`}}`), "v2")
		if x, ok := got["x"]; ok {
			t.Errorf("%s: %s became %v", schema, test.bad, x)
		}
	}
}

const elementsWithKey = `{type: object, required: [k], properties: {k: {type: string}}}`

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal([]byte(a), &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(b), &y); err != nil {
		t.Fatal(err)
	}
	return cmp.Equal(x, y)
}

// TestWhatSurroundsForgedValuesIsJudged: a value that the schema allows by itself may be one that the object around it
// must not have beside the others.
func TestWhatSurroundsForgedValuesIsJudged(t *testing.T) {
	const fields = `properties: {name: {type: string, default: d}, x: {type: integer}, z: {type: integer},
  list: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k], items: ` + elementsWithKey + `}}`
	base := digest("a")
	for name, test := range map[string]struct{ words, kept, want string }{
		"required":      {`required: [name]`, `{"name":{"absent":true,"base":"` + base + `"},"x":{"value":1}}`, `{name: a, x: 1}`},
		"maxProperties": {`maxProperties: 2`, `{"x":{"value":1},"z":{"value":1}}`, `{name: a, x: 1}`},
		"oneOf":         {`oneOf: [{required: [x]}, {required: [z]}]`, `{"x":{"value":1},"z":{"value":1}}`, `{name: a, x: 1}`},
		"broken before": {`anyOf: [{properties: {name: {pattern: b}}}]`, `{"x":{"value":1},"z":{"value":1}}`, `{name: a, x: 1, z: 1}`},
		"not":           {`not: {required: [z]}`, `{"x":{"value":1},"z":{"value":1}}`, `{name: a, x: 1}`},
		"allOf":         {`allOf: [{properties: {z: {maximum: 0}}}, {properties: {name: {maxLength: 0}}}]`, `{"x":{"value":1},"z":{"value":1}}`, `{name: a, x: 1}`},
	} {
		c := things(t, named, `{type: object, `+fields+`, `+test.words+`}`,
			`[{keep: {hub: spec.x}}, {keep: {hub: spec.z}}, {keep: {hub: spec.list}}, {default: {hub: spec.name, value: d}}]`)
		if diff := cmp.Diff(object(t, test.want), specOf(t, c, forge(test.kept), "v2")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	// The keys of elements.
	list := `{type: object, properties: {list: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k],
  items: {type: object, required: [k], properties: {k: {type: string}}}}}}`
	c := things(t, list, list, `[]`)
	spec := object(t, `{list: [{k: a}, {k: b}]}`)
	for _, kept := range []string{`{"fields":{"k":{"value":"b","base":"` + base + `"}}}`,
		`{"absent":true,"base":"` + digest(map[string]any{"k": "a"}) + `"}`,
		`{"value":"text","base":"` + digest(map[string]any{"k": "a"}) + `"}`} {
		v1 := forge(`{"list":{"elements":[{"keys":{"k":"a"},"index":0,"kept":` + kept + `}]}}`)
		v1["spec"] = spec
		if diff := cmp.Diff(spec, specOf(t, c, v1, "v2")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kept, diff)
		}
	}
}

// TestTightenedSchemaCostsOneValue: when the CRD gets a bound, a value that was kept before and is beyond it is not put
// back, all others are; and it is kept on whatever becomes of the object, until the field is changed or the bound goes.
func TestTightenedSchemaCostsOneValue(t *testing.T) {
	const v1 = `{type: object, properties: {name: {type: string}, parts: {type: array, x-kubernetes-list-type: map,
  x-kubernetes-list-map-keys: [k], items: {type: object, required: [k], properties: {k: {type: string}}}},
  steps: {type: array, items: {type: object, properties: {do: {type: string}}}}}}`
	const v2 = `{type: object, properties: {name: {type: string}, size: {type: integer%[1]s}, note: {type: string},
  more: {type: object, properties: {a: {type: integer}}}, parts: {type: array, x-kubernetes-list-type: map,
  x-kubernetes-list-map-keys: [k], items: {type: object, required: [k], properties: {k: {type: string},
  size: {type: integer%[1]s}, note: {type: string}}}}, steps: {type: array, items: {type: object,
  properties: {do: {type: string}, size: {type: integer%[1]s}, note: {type: string}}}}}}`
	const rules = `[{keep: {hub: spec.size}}, {keep: {hub: spec.note}}, {keep: {hub: spec.more}}, {each: {hub: spec.parts,
  field: spec.parts, rules: [{keep: {hub: size}}, {keep: {hub: note}}]}}, {each: {hub: spec.steps, field: spec.steps,
  rules: [{keep: {hub: size}}, {keep: {hub: note}}]}}]`
	loose := things(t, v1, fmt.Sprintf(v2, ""), rules)
	tight := things(t, v1, fmt.Sprintf(v2, ", maximum: 10"), rules)
	was := object(t, `{apiVersion: example.com/v2, kind: Thing, metadata: {name: a}, spec: {name: a, size: 20, note: yes it is,
  more: {a: 1}, parts: [{k: x, size: 20, note: yes it is}, {k: z, size: 5}], steps: [{do: it, size: 20, note: yes it is}, {do: it}]}}`)
	convert := func(c *Converter, object map[string]any, version string) map[string]any {
		t.Helper()
		out, err := c.Convert(object, version)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	stored := convert(loose, was, "v1")

	var refused []string
	seen, err := tight.ConvertNoting(stored, "v2", func(r Refusal) { refused = append(refused, r.String()) })
	if err != nil {
		t.Fatal(err)
	}
	want := object(t, `{name: a, note: yes it is, more: {a: 1}, parts: [{k: x, note: yes it is}, {k: z, size: 5}], steps: [{do: it, note: yes it is}, {do: it}]}`)
	if diff := cmp.Diff(any(want), seen["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"v2: spec.parts[*].size: maximum", "v2: spec.size: maximum",
		"v2: spec.steps[*].size: maximum"}, refused); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}

	again := convert(tight, seen, "v1")
	if diff := cmp.Diff(stored, again); diff != "" {
		t.Errorf("written again (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(was, convert(loose, again, "v2")); diff != "" {
		t.Errorf("without the bound (-want +got):\n%s", diff)
	}

	e := newEditor(seen)
	if err := e.set(path{"spec", "size"}, int64(7)); err != nil {
		t.Fatal(err)
	}
	changed := convert(tight, e.root, "v1")
	if spec := convert(loose, changed, "v2")["spec"].(map[string]any); spec["size"] != int64(7) ||
		!equal(spec["parts"], was["spec"].(map[string]any)["parts"]) {
		t.Errorf("after a change of the field: %v", spec)
	}
}

// TestForgedLabelsCostNoOtherValues: a label that no API server takes is refused alone.
func TestForgedLabelsCostNoOtherValues(t *testing.T) {
	c := things(t, named, `{type: object, properties: {name: {type: string}, x: {type: integer}}}`,
		`[{keep: {hub: spec.x}}]`)
	v1 := forge(`{}`)
	v1["metadata"].(map[string]any)["annotations"] = map[string]any{KeptAnnotation: `{"v2":{"fields":{
  "metadata":{"fields":{"labels":{"value":{"a":"no label"}},"annotations":{"value":{"b":"c"}}}},
  "spec":{"fields":{"x":{"value":1}}}}}}`}
	out, err := c.Convert(v1, "v2")
	if err != nil {
		t.Fatal(err)
	}
	annotations, _ := lookup(out, path{"metadata", "annotations", "b"})
	if x, _ := lookup(out, path{"spec", "x"}); x != int64(1) || annotations != "c" {
		t.Errorf("%v", out)
	}
	if labels, ok := lookup(out, path{"metadata", "labels"}); ok {
		t.Errorf("labels: %v", labels)
	}
}

// TestForgedValuesAreJudgedInTime: four times as many values take about four times as long, whatever the schema says.
// Whoever may write one object would make every list of them fail.
func TestForgedValuesAreJudgedInTime(t *testing.T) {
	many := func(n int, of string) string { return strings.Repeat(of+",", n-1) + of }
	fields := func(n int, of string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"f%d":%s`, i, of)
		}
		return "{" + b.String()[1:] + "}"
	}
	texts := func(schema string, of func(n int) string) func(n int) (string, string, string) {
		return func(n int) (string, string, string) {
			text, err := json.Marshal(of(n))
			if err != nil {
				t.Fatal(err)
			}
			return `x: {type: string, ` + schema + `}`, `{"x":{"value":` + string(text) + `}}`, ""
		}
	}
	repeat := func(of string) func(n int) string {
		return func(n int) string { return strings.Repeat(of, 8*n/len(of)) }
	}
	cases := map[string]func(n int) (schema, kept, name string){
		"a list of values below the bound": func(n int) (string, string, string) {
			return `x: {type: array, items: {type: integer, minimum: 10}}`, `{"x":{"value":[` + many(n, "1") + `]}}`, ""
		},
		"a list of values above the bound": func(n int) (string, string, string) {
			return `x: {type: array, items: {type: integer, minimum: 10}}`, `{"x":{"value":[` + many(n, "10") + `]}}`, ""
		},
		"as many values of the other version": func(n int) (string, string, string) {
			return `x: {type: integer}`, `{"x":{"value":1}}`, many(n, "A")
		},
		"a set": func(n int) (string, string, string) {
			return `x: {type: array, x-kubernetes-list-type: set, items: {type: object}}`, `{"x":{"value":[` + many(n, "{}") + `]}}`, ""
		},
		"unique elements": func(n int) (string, string, string) {
			return `x: {type: array, uniqueItems: true, items: {type: string}}`, `{"x":{"value":[` + many(n, `"a"`) + `]}}`, ""
		},
		"choices of lists in lists": func(n int) (string, string, string) {
			one := `{type: array, items: {type: array, items: {type: integer, maximum: %d}}}`
			return `x: {anyOf: [` + fmt.Sprintf(one, 1) + `, ` + fmt.Sprintf(one, 2) + `, {oneOf: [` + fmt.Sprintf(one, 3) +
				`, {not: ` + fmt.Sprintf(one, 4) + `}]}]}`, `{"x":{"value":[[` + many(n-1, "1") + `],[5]]}}`, ""
		},
		"a refused value in each field": func(n int) (string, string, string) {
			return `x: {type: object, additionalProperties: {type: integer, maximum: 1}}`,
				`{"x":{"fields":` + fields(n/8, `{"value":2}`) + `}}`, ""
		},
		"fields that the object does not take": func(n int) (string, string, string) {
			return `x: {type: object, maxProperties: 2, oneOf: [{maxProperties: 3}, {minProperties: 5, maxProperties: 3}],
  additionalProperties: {type: integer}}`, `{"x":{"fields":` + fields(n/8, `{"value":2}`) + `}}`, ""
		},
		"a pattern":       texts(`pattern: "^(a+)+$"`, func(n int) string { return strings.Repeat("a", 8*n) + "b" }),
		"a far pattern":   texts(`pattern: "(a|b)*c(a|b)*d"`, repeat("abab")),
		"a text too long": texts(`maxLength: 3`, repeat("ä")),
	}
	for _, format := range []string{"bsonobjectid", "uri", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uuid",
		"isbn", "isbn10", "isbn13", "creditcard", "ssn", "hexcolor", "rgbcolor", "byte", "date", "duration", "datetime",
		"k8s-short-name", "k8s-long-name"} {
		for _, of := range []string{"a", "a.", "1 ns ", "("} {
			cases[format+" of "+of] = texts(`format: `+format, repeat(of))
		}
		cases[format+" in brackets"] = texts(`format: `+format, func(n int) string {
			return "a@[" + strings.Repeat("a.", 4*n) + "]"
		})
	}
	took := func(n int, of func(n int) (string, string, string)) time.Duration {
		schema, kept, names := of(n)
		c := things(t, `{type: object, properties: {name: {type: string}, names: {type: array, items: {type: string}}}}`,
			`{type: object, properties: {name: {type: string}, names: {type: array, items: {type: string, pattern: "^[a-z]"}}, `+
				schema+`}}`, `[{keep: {hub: spec.x}}]`)
		v1 := forge(kept)
		if names != "" {
			list := []any{}
			for _, name := range strings.Split(names, ",") {
				list = append(list, name)
			}
			v1["spec"].(map[string]any)["names"] = list
		}
		var err error
		took := cputest.Thread(t, func() { _, err = c.Convert(v1, "v2") })
		if err != nil {
			t.Fatal(err)
		}
		return took
	}
	for name, of := range cases {
		few, more := took(3500, of), took(14_000, of)
		if more > 12*few && more > 20*time.Millisecond || more > 500*time.Millisecond {
			t.Errorf("%s: %v, and %v of four times as much", name, few, more)
		}
	}
}
