package hub

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubefusion/fusionctl/internal/golden"
)

// TestTrialThroughTheHub tries three versions, two of which become each other through the third, with maps, unknown
// fields, integers or strings, nulls, patterns, and rules in elements.
func TestTrialThroughTheHub(t *testing.T) {
	c := converter(t, read(t, "testdata/gateway-rules.yaml"), read(t, "testdata/gateway-crd.yaml"))
	report, err := c.Try(Trial{Objects: 60, Random: random(3)})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Ways) != 6 || len(report.Incomplete) > 0 {
		t.Errorf("%+v", report)
	}
	for _, f := range report.Failures {
		t.Errorf("%s to %s: %s: %s\n%v\n%v\n%v", f.From, f.To, f.What, f.Message, f.Object, f.Result, f.Back)
	}
}

// TestTrialNoticesWhatIsNotDone leaves out the defaults, and has to find objects without them.
func TestTrialNoticesWhatIsNotDone(t *testing.T) {
	c := converter(t, read(t, pizza+"rules.yaml"), read(t, pizza+"crd.yaml"))
	c.spokes["v1alpha1"].toHub.fills = nil
	report, err := c.Try(Trial{Objects: 50, Random: random(1)})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Failures) == 0 || report.Failures[0].What != failsSchema || len(report.Failures[0].Object) > 3 {
		t.Errorf("%+v, want a small object without an oven", report.Failures)
	}
}

// TestRulesAreRefused shows each bad file with its problems.
func TestRulesAreRefused(t *testing.T) {
	crd := read(t, pizza+"crd.yaml")
	golden.Cases(t, "testdata/*.txtar", func(t *testing.T, c *golden.Case) {
		r, err := Parse("rules.yaml", c.Input("rules.yaml"))
		if err == nil {
			_, err = New(r, definition(t, crd))
		}
		if err == nil {
			t.Fatal("the rules are taken")
		}
		c.Want("problems", []byte(err.Error()))
	})
}

// The object of an edited result: every change that somebody makes wins, and what is kept of other fields comes back.
func TestChangesWinOverWhatIsKept(t *testing.T) {
	c := converter(t, read(t, pizza+"rules.yaml"), read(t, pizza+"crd.yaml"))
	v1 := object(t, `
apiVersion: restaurant.example.com/v1
kind: Pizza
metadata: {name: p}
spec:
  size: Large
  oven: Electric
  allergens: [gluten]
  cheeses: [gorgonzola, brie]
  toppings: [{name: tomato, quantity: 3}, {name: basil, quantity: 2}]
`)
	for name, test := range map[string]struct {
		change func(spec map[string]any)
		want   string // spec of v1 after the way back
	}{
		"nothing": {func(map[string]any) {},
			`{size: Large, oven: Electric, allergens: [gluten], cheeses: [gorgonzola, brie], toppings: [{name: tomato, quantity: 3}, {name: basil, quantity: 2}]}`},
		"another field": {func(spec map[string]any) { spec["size"] = "S" },
			`{size: Small, oven: Electric, allergens: [gluten], cheeses: [gorgonzola, brie], toppings: [{name: tomato, quantity: 3}, {name: basil, quantity: 2}]}`},
		"the field itself": {func(spec map[string]any) { spec["cheese"] = "feta" },
			`{size: Large, oven: Electric, allergens: [gluten], cheeses: [feta], toppings: [{name: tomato, quantity: 3}, {name: basil, quantity: 2}]}`},
		"an element is added, and another goes": {func(spec map[string]any) {
			spec["toppings"] = []any{"olives", "basil"}
		},
			`{size: Large, oven: Electric, allergens: [gluten], cheeses: [gorgonzola, brie], toppings: [{name: olives, quantity: 1}, {name: basil, quantity: 2}]}`},
		"the field goes": {func(spec map[string]any) { delete(spec, "cheese") },
			`{size: Large, oven: Electric, allergens: [gluten], toppings: [{name: tomato, quantity: 3}, {name: basil, quantity: 2}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			alpha, err := c.Convert(v1, "v1alpha1")
			if err != nil {
				t.Fatal(err)
			}
			alpha = maps.Clone(alpha)
			spec := maps.Clone(alpha["spec"].(map[string]any))
			test.change(spec)
			alpha["spec"] = spec
			back, err := c.Convert(alpha, "v1")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(object(t, test.want), back["spec"]); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
}

func TestConvertDoesNotChangeItsInput(t *testing.T) {
	c := converter(t, read(t, pizza+"rules.yaml"), read(t, pizza+"crd.yaml"))
	text := string(read(t, pizza+"margherita.yaml"))
	alpha := object(t, text)
	if _, err := c.Convert(alpha, "v1"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(object(t, text), alpha); diff != "" {
		t.Errorf("the object was changed (-before +after):\n%s", diff)
	}
}

func TestConvertRefuses(t *testing.T) {
	c := converter(t, read(t, pizza+"rules.yaml"), read(t, pizza+"crd.yaml"))
	for name, test := range map[string]struct{ object, version, want string }{
		"another kind":    {`{apiVersion: restaurant.example.com/v1, kind: Pasta}`, "v1", "want a Pizza"},
		"another group":   {`{apiVersion: example.com/v1, kind: Pizza}`, "v1", "want a Pizza"},
		"no such version": {`{apiVersion: restaurant.example.com/v1, kind: Pizza}`, "v7", "no rules"},
		"from nowhere":    {`{apiVersion: restaurant.example.com/v7, kind: Pizza}`, "v1", "no rules"},
		"too much to keep": {`{apiVersion: restaurant.example.com/v1alpha1, kind: Pizza, metadata: {name: p}, spec: {size: S, remark: ` + strings.Repeat("x", limitKeptBytes) + `}}`, "v1",
			"may have 131072"},
	} {
		if _, err := c.Convert(object(t, test.object), test.version); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: Convert = %v, want %q", name, err, test.want)
		}
	}
}

// An annotation that somebody has made up changes nothing that rules and API servers forbid, and fails no conversion:
// one object that does not convert fails the lists of everybody.
func TestMadeUpAnnotationIsHarmless(t *testing.T) {
	c := converter(t, read(t, pizza+"rules.yaml"), read(t, pizza+"crd.yaml"))
	inSpec := func(field string) string { return `{"v1":{"fields":{"spec":{"fields":{` + field + `}}}}}` }
	inMeta := func(field string) string { return `{"v1":{"fields":{"metadata":{"fields":{` + field + `}}}}}` }
	for _, text := range []string{
		`{`, `[]`, `{"v1":7}`, `{"v1":null}`, `{"v1":{"value":7}}`, `{"v1":{"elements":[null,{"kept":null}]}}`,
		`{"v1":{"fields":{"spec":null,"toppings":{"elements":[{"index":-1}]}}}}`,
		`{"v1":{"fields":{"metadata":{"fields":{"uid":{"value":"other"},"name":{"value":"other"}}},"kind":{"value":"Pasta"},"unknown":{"value":1}}}}`,
		inSpec(`"size":{"value":"of no version","base":"` + digest("Small") + `"}`),
		inSpec(`"sides":{"value":"a text for a list"}`),
		inSpec(`"diet":{"value":7}`), inSpec(`"diet":{"value":"of no schema"}`),
		inSpec(`"sides":{"value":[{"name":"Salad","quantity":10}]}`),
		`{"v1":{"fields":{"status":{"value":[]}}}}`,
		inMeta(`"labels":{"value":[1]}`), inMeta(`"labels":{"value":{"a":7}}`),
		inMeta(`"labels":{"value":{"a":"no\nlabel"}}`), inMeta(`"annotations":{"value":{"No Name":""}}`),
		inMeta(`"annotations":{"value":[1]}`),
		`{"v7":{"value":"` + strings.Repeat("x", limitKeptBytes-20) + `"}}`,
		`{"v1":{"value":"` + strings.Repeat("x", limitKeptBytes+20) + `"}}`,
	} {
		alpha := object(
			t, `{apiVersion: restaurant.example.com/v1alpha1, kind: Pizza, metadata: {name: p}, spec: {size: S}}`)
		alpha["metadata"].(map[string]any)["annotations"] = map[string]any{KeptAnnotation: text}
		got, err := c.Convert(alpha, "v1")
		if err != nil {
			t.Errorf("%s: %v", shorten(text), err)
			continue
		}
		want := object(t,
			`{apiVersion: restaurant.example.com/v1, kind: Pizza, metadata: {name: p}, spec: {size: Small, oven: Stone}}`)
		plain, _ := takeKept(got) // what is refused may still be there
		if diff := cmp.Diff(want, plain); diff != "" {
			t.Errorf("%s (-want +got):\n%s", shorten(text), diff)
		}
		back, err := c.Convert(got, "v1alpha1")
		if err != nil {
			t.Errorf("%s: the way back: %v", shorten(text), err)
			continue
		}
		if diff := cmp.Diff(alpha["spec"], back["spec"]); diff != "" {
			t.Errorf("%s: comes back other (-want +got):\n%s", shorten(text), diff)
		}
		if again, err := c.Convert(back, "v1"); err != nil || !equal(again, got) {
			t.Errorf("%s: the second time: %v, %v, want %v", shorten(text), again, err, got)
		}
	}
}

// chain is a text of so many characters, and calls on it with the same text.
func chain(first string, size int, call string, calls int) string {
	text := strings.Repeat("x", size)
	out := fmt.Sprintf(first, text)
	for range calls {
		out += fmt.Sprintf(call, text)
	}
	return out
}

func TestExpressionsAreBounded(t *testing.T) {
	for name, text := range map[string]string{
		"range":               `lists.range(100000000).size()`,
		"cost":                `lists.range(9999).map(i, lists.range(9999).map(j, i * j).size())`,
		"replaced by itself":  chain("'%s'", 10_000, ".replace('', '%s')", 3), // 1 TB
		"replaced so often":   chain("'%s'", 10_000, ".replace('', '%s', 1000000000)", 3),
		"joined":              `lists.range(9999).map(i, '` + strings.Repeat("x", 90_000) + `').join('')`,
		"much of it":          `lists.range(9999).map(i, '` + strings.Repeat("x", 90_000) + `')`,
		"nested in itself":    "[[0]]" + strings.Repeat(".map(x, [x, x])", 25),
		"joined by much":      `lists.range(9999).map(i, '').join('` + strings.Repeat("x", 90_000) + `')`,
		"equal to itself":     `[[lists.range(9999).map(x, [x])]].all(big, lists.range(9999).all(i, big == big))`,
		"unequal to itself":   `[[lists.range(9999).map(x, [x])]].all(big, lists.range(9999).all(i, !(big != big)))`,
		"in itself":           `[[lists.range(9999).map(x, [x])]].all(big, lists.range(9999).all(i, big in [[], big]))`,
		"a set of itself":     `[[lists.range(9999).map(x, [x])]].all(big, lists.range(9999).all(i, sets.contains(big, big)))`,
		"precise":             `'%.1000000000f'.format([1.0])`,
		"formatted by itself": "['xxxxxxxxxx']" + strings.Repeat(".map(x, '%s%s%s%s'.format([x, x, x, x]))", 16),
		"list of itself":      "[[0]]" + strings.Repeat(".map(x, x + x)", 40),
		"size of itself":      "[[0]]" + strings.Repeat(".map(x, x + x)", 40) + ".map(x, size(x))",
		"infinite":            `1.0 / 0.0`, "not JSON": `b"x"`, "optional inside": `[optional.of(1)]`,
	} {
		e, err := compileExpression(text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		budget := limitCost
		if value, _, err := e.evaluate(&run{budget: &budget}, map[string]any{}); err == nil {
			t.Errorf("%s: evaluates to %v, want an error", name, value)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(string(read(f, pizza+"rules.yaml")))
	f.Add(string(read(f, "testdata/gateway-rules.yaml")))
	d := definition(f, read(f, pizza+"crd.yaml"))
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := Parse("rules.yaml", []byte(text)); err == nil {
			_, _ = New(r, d)
		}
	})
}

func FuzzDefinitions(f *testing.F) {
	f.Add(string(read(f, pizza+"crd.yaml")))
	f.Add(string(read(f, pizza+"v1beta1/crd.yaml")))
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = ParseDefinitions("crd.yaml", []byte(text))
	})
}

func TestPaths(t *testing.T) {
	for text, want := range map[string]string{
		"spec.size": "spec.size", ".spec.size": "spec.size",
		`metadata.labels["example.com/team"]`: `metadata.labels["example.com/team"]`, `spec["a"].b`: "spec.a.b",
		"": "error", "spec..size": "error", "spec[0]": "error", "spec.*": "error", `spec["a`: "error", "spec.": "error",
		`spec["a"]b`: "error",
	} {
		p, err := parsePath(text)
		got := "error"
		if err == nil {
			got = p.String()
			if again, err := parsePath(got); err != nil || !again.equal(p) {
				t.Errorf("parsePath(%q) = %v, %v", got, again, err)
			}
		}
		if got != want {
			t.Errorf("parsePath(%q) = %s, want %s (%v)", text, got, want, err)
		}
	}
}
