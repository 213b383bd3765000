package hub

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// compiled are rules between two versions whose specs have these properties.
func compiled(t *testing.T, version, hub, rules string) (*Converter, error) {
	t.Helper()
	schema := func(properties string) string {
		return `schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {` + properties +
			`}}}}}`
	}
	crd := `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  names: {kind: Thing, plural: things}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, ` + schema(version) + `}
  - {name: v2, served: true, storage: false, ` + schema(hub) + `}
`
	r, err := Parse("rules.yaml", []byte(`
apiVersion: kubefusion.dev/v1alpha1
kind: ConversionRules
spec: {crd: things.example.com, hub: v2, versions: [{name: v1, rules: [`+rules+`]}]}
`))
	if err != nil {
		return nil, err
	}
	return New(r, definition(t, []byte(crd)))
}

// TestEachKindOfRuleGoesBothWays compiles one rule at a time and converts an object to the hub and back.
func TestEachKindOfRuleGoesBothWays(t *testing.T) {
	const text, number = `{type: string}`, `{type: integer}`
	for name, tc := range map[string]struct{ version, hub, rules, object, want string }{
		"no rule": {
			`a: ` + text,
			`a: ` + text,
			``,
			`{a: x}`,
			`{a: x}`,
		},
		"rename": {
			`a: ` + text,
			`b: ` + text,
			`{rename: {field: spec.a, hub: b}}`,
			`{a: x}`,
			`{b: x}`,
		},
		"move": {
			`a: ` + text,
			`o: {type: object, properties: {b: ` + text + `}}`,
			`{move: {field: spec.a, hub: spec.o.b}}`,
			`{a: x}`,
			`{o: {b: x}}`,
		},
		"move and a part": {
			`o: {type: object, properties: {a: ` + text + `, count: ` + number + `}}`,
			`p: {type: object, properties: {b: ` + text + `, count: ` + number + `}}`,
			`{move: {field: spec.o, hub: spec.p}}, {move: {field: spec.o.a, hub: spec.p.b}}`,
			`{o: {a: x, count: 1}}`,
			`{p: {b: x, count: 1}}`,
		},
		"part before move": {
			`o: {type: object, properties: {a: ` + text + `, count: ` + number + `}}`,
			`p: {type: object, properties: {b: ` + text + `, count: ` + number + `}}`,
			`{move: {field: spec.o.a, hub: spec.p.b}}, {move: {field: spec.o, hub: spec.p}}`,
			`{o: {a: x, count: 1}}`,
			`{p: {b: x, count: 1}}`,
		},
		"values": {
			`a: {type: string, enum: [S, L]}`,
			`a: {type: string, enum: [small, large]}`,
			`{values: {field: spec.a, pairs: [{field: S, hub: small}, {field: L, hub: large}]}}`,
			`{a: L}`,
			`{a: large}`,
		},
		"values of a boolean": {
			`a: {type: boolean}`,
			`b: {type: string, enum: ["Yes", "No"]}`,
			`{values: {field: spec.a, hub: spec.b, pairs: [{field: true, hub: "Yes"}, {field: false, hub: "No"}]}}`,
			`{a: false}`,
			`{b: "No"}`,
		},
		"split": {
			`a: ` + text,
			`b: ` + text + `, count: ` + number,
			`{split: {field: spec.a, hub: [spec.b, spec.count], separator: ":"}}`,
			`{a: "host:80"}`,
			`{b: host, count: 80}`,
		},
		"merge": {
			`b: ` + text + `, count: ` + number,
			`a: ` + text,
			`{merge: {fields: [spec.b, spec.count], hub: spec.a, separator: ":"}}`,
			`{b: host, count: 80}`,
			`{a: "host:80"}`,
		},
		"wrap": {
			`a: ` + text,
			`l: {type: array, items: ` + text + `}`,
			`{wrap: {field: spec.a, hub: spec.l}}`,
			`{a: x}`,
			`{l: [x]}`,
		},
		"unwrap": {
			`l: {type: array, items: ` + text + `}`,
			`a: ` + text,
			`{unwrap: {field: spec.l, hub: spec.a}}`,
			`{l: [x]}`,
			`{a: x}`,
		},
		"each": {
			`l: {type: array, items: {type: object, properties: {a: ` + text + `}}}`,
			`l: {type: array, items: {type: object, properties: {b: ` + text + `}}}`,
			`{each: {field: spec.l, rules: [{rename: {field: a, hub: b}}]}}`,
			`{l: [{a: x}, {a: z}]}`,
			`{l: [{b: x}, {b: z}]}`,
		},
		"keep": {
			`a: ` + text,
			``,
			`{keep: {field: spec.a}}`,
			`{a: x}`,
			`{}`,
		},
		"cel": {
			`a: ` + number,
			`b: ` + number,
			`{cel: {toHub: [{set: spec.b, expression: "self.spec.a * 2", when: has(self.spec.a)}], fromHub: [{set: spec.a, ` +
				`expression: "self.spec.b / 2", when: has(self.spec.b)}]}}`,
			`{a: 3}`,
			`{b: 6}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := compiled(t, tc.version, tc.hub, tc.rules)
			if err != nil {
				t.Fatal(err)
			}
			given := object(t, `{apiVersion: example.com/v1, kind: Thing, metadata: {name: x}, spec: `+tc.object+`}`)
			inHub, err := c.Convert(given, "v2")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(object(t, tc.want), inHub["spec"]); diff != "" {
				t.Errorf("in the hub (-want +got):\n%s", diff)
			}
			back, err := c.Convert(inHub, "v1")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(given["spec"], back["spec"]); diff != "" {
				t.Errorf("and back (-given +got):\n%s", diff)
			}
		})
	}
}

// TestProblemsAreOnTheirSide wants each problem at the path of the side that has it, and in that version's name.
func TestProblemsAreOnTheirSide(t *testing.T) {
	const text = `{type: string}`
	for rules, tc := range map[string]struct{ version, hub, want string }{
		`{rename: {field: spec.a, hub: spec.b}}`: {
			`a: ` + text,
			`b: ` + text,
			`rename.hub: "spec.b": want the new name alone`,
		},
		`{rename: {field: spec.a, hub: c}}`: {
			`a: ` + text,
			`b: ` + text,
			`rename.hub: "spec.c": v2 has no such field`,
		},
		`{move: {field: spec.a, hub: spec.a}}`: {
			`a: ` + text,
			`a: ` + text,
			`move.hub: "spec.a": is where it is already`,
		},
		`{values: {field: spec.a, pairs: [{field: 1, hub: x}]}}`: {
			`a: ` + text,
			`a: ` + text,
			`values.pairs[0].field: `,
		},
		`{values: {field: spec.a, pairs: [{field: x, hub: 1}]}}`: {
			`a: ` + text,
			`a: ` + text,
			`values.pairs[0].hub: `,
		},
		`{values: {field: spec.a, others: keep, pairs: [{field: x, hub: v}, {field: x, hub: z}]}}`: {
			`a: ` + text,
			`a: ` + text,
			`pairs[1].field: the text "x" has a partner already; with only: fromHub`,
		},
		`{values: {field: spec.a, others: keep, pairs: [{field: x, hub: v}, {field: z, hub: v}]}}`: {
			`a: ` + text,
			`a: ` + text,
			`pairs[1].hub: the text "v" has a partner already; with only: toHub`,
		},
		`{values: {field: spec.a, others: keep, pairs: [{field: x, hub: v, only: up}]}}`: {
			`a: ` + text,
			`a: ` + text,
			`pairs[0].only: "up": want toHub or fromHub`,
		},
		`{values: {field: spec.a, others: some, pairs: [{field: x, hub: v}]}}`: {
			`a: ` + text,
			`a: ` + text,
			`values.others: "some": want keep or fail`,
		},
		`{values: {field: spec.a, pairs: [{field: x, hub: z}]}}`: {
			`a: {type: string, enum: [x, w]}`,
			`a: ` + text,
			`no pair for the text "w", which v1 allows for spec.a`,
		},
		`{values: {field: spec.a, others: keep, pairs: [{field: x, hub: z}]}}`: {
			`a: {type: string, enum: [x, w]}`,
			`a: {type: string, enum: [z]}`,
			`values.others: keep: the text "w" is none of the values that are allowed in v2`,
		},
		`{split: {field: spec.a, hub: [spec.b], separator: ":"}}`: {
			`a: ` + text,
			`b: ` + text,
			`split.hub: want at least two fields`,
		},
		`{split: {field: spec.a, hub: [spec.b, spec.c], separator: ":"}}`: {
			`a: {type: integer}`,
			`b: ` + text + `, c: ` + text,
			`split.field: spec.a is an integer in v1; want a text`,
		},
		`{merge: {fields: [spec.b, spec.c], hub: spec.a, separator: ":"}}`: {
			`b: ` + text + `, c: {type: object}`,
			`a: ` + text,
			`merge.fields[1]: spec.c is an object in v1; a part is`,
		},
		`{merge: {fields: [spec.b, spec.c], hub: spec.a}}`: {
			`b: ` + text + `, c: ` + text,
			`a: ` + text,
			`merge.separator: is missing`,
		},
		`{wrap: {field: spec.a, hub: spec.b}}`: {
			`a: ` + text,
			`b: ` + text,
			`wrap.hub: spec.b is no list in v2`,
		},
		`{unwrap: {field: spec.a, hub: spec.b}}`: {
			`a: ` + text,
			`b: ` + text,
			`unwrap.field: spec.a is no list in v1`,
		},
		`{each: {field: spec.a, hub: spec.b, rules: []}}`: {
			`a: ` + text,
			`b: ` + text,
			`each: spec.a is no list or map of objects in v1`,
		},
		`{keep: {field: spec.a, hub: spec.b}}`: {
			`a: ` + text,
			`b: ` + text,
			`keep: want either field or hub`,
		},
		`{constant: {hub: spec.a, value: x}}`: {
			`a: ` + text,
			`a: ` + text,
			`constant: spec.a has a value from v1`,
		},
		`{default: {hub: spec.a, value: 1}}`: {
			`a: ` + text,
			`a: ` + text,
			`default.value: spec.a: `,
		},
		`{cel: {toHub: [{set: spec.b, expression: self.spec.c}], fromHub: []}}`: {
			`a: ` + text,
			`b: ` + text,
			`cel.toHub[0].expression: self.spec.c: "spec.c": v1 has no such field`,
		},
		`{cel: {toHub: [], fromHub: [{set: spec.a, expression: self.spec.c}]}}`: {
			`a: ` + text,
			`b: ` + text,
			`cel.fromHub[0].expression: self.spec.c: "spec.c": v2 has no such field`,
		},
		`{keep: {field: spec.a}}, {drop: {field: spec.a}}`: {
			`a: ` + text,
			``,
			`spec.a of v1 has a rule already`,
		},
		``: {
			`a: ` + text,
			`a: {type: integer}`,
			`spec.a is a text in v1, and spec.a is an integer in v2`,
		},
	} {
		if _, err := compiled(t, tc.version, tc.hub, rules); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: New = %v\nwant %s", rules, err, tc.want)
		}
	}
}
