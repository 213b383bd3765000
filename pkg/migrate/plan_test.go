package migrate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func ids(steps []Step) string {
	var names []string
	for _, s := range steps {
		names = append(names, s.ID())
	}
	return strings.Join(names, ", ")
}

// both is the CRD of pizzaBeta with v1 beside v1alpha1, served.
func both(t *testing.T) *Definition {
	d := definition(t, pizzaBeta)
	if err := d.addVersion(definition(t, pizzaNew), "v1"); err != nil {
		t.Fatal(err)
	}
	if err := d.setServed("v1", true); err != nil {
		t.Fatal(err)
	}
	return d
}

func observation(d *Definition) Observation {
	return Observation{Resource: d.Resource(), Definition: d}
}

func TestPlanSteps(t *testing.T) {
	added := definition(t, pizzaBeta)
	stored := both(t)
	if err := stored.setStorage("v1"); err != nil {
		t.Fatal(err)
	}
	stored.setStored("v1alpha1", "v1")
	finished := stored.Clone()
	finished.setStored("v1")
	late := observation(finished)
	late.Stored = &Stored{Versions: map[string]int64{"restaurant.example/v1alpha1": 1, "restaurant.example/v1": 8}}
	const storing = "settle v1, rewrite v1, prove v1, prune v1"
	for _, c := range []struct {
		what string
		o    Observation
		g    Goal
		want string
	}{
		{"storage alone", observation(both(t)), Goal{Storage: "v1"}, "switch v1, " + storing},
		{"from a file", observation(added), Goal{Storage: "v1", With: definition(t, pizzaNew)},
			"add v1, convert, serve v1, switch v1, " + storing},
		{"with retirement", observation(both(t)), Goal{Storage: "v1", Retire: []string{"v1alpha1"}},
			"switch v1, " + storing + ", unserve v1alpha1, wait v1alpha1, clean v1alpha1, prove v1, remove v1alpha1"},
		{"switched by hand", observation(stored), Goal{Storage: "v1"}, storing},
		{"no goal", observation(stored), Goal{}, storing},
		{"done", observation(finished), Goal{Storage: "v1"}, ""},
		{"done, as the server believes", late, Goal{Storage: "v1"}, storing},
		{"retirement left", observation(finished), Goal{Retire: []string{"v1alpha1"}},
			"unserve v1alpha1, wait v1alpha1, clean v1alpha1, prove v1, remove v1alpha1"},
	} {
		p, err := New(c.o, c.g)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		if got := ids(p.Steps); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var again Plan
		if err := json.Unmarshal(data, &again); err != nil {
			t.Fatal(err)
		}
		if err := again.Validate(); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if diff := cmp.Diff(decoded(t, p), decoded(t, &again)); diff != "" {
			t.Errorf("%s: written and read (-want +got):\n%s", c.what, diff)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	deleting := both(t)
	deleting.object["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	other := definition(t, strings.ReplaceAll(pizzaNew, "restaurant.example", "other.example"))
	builtIn := Observation{Resource: Resource{Name: "deployments.apps", BuiltIn: true}, Storage: "apps/v1"}
	for _, c := range []struct {
		o    Observation
		g    Goal
		want string
	}{
		{observation(both(t)), Goal{Storage: "v2"}, `no version "v2"; its versions are v1alpha1, v1`},
		{observation(both(t)), Goal{Storage: "v1", Retire: []string{"v1"}}, "cannot be retired"},
		{observation(both(t)), Goal{Storage: "v1", Retire: []string{"v0"}}, `no version "v0"`},
		{observation(both(t)), Goal{Storage: "v1", With: other}, "the file defines pizzas.other.example"},
		{observation(definition(t, pizzaBeta)), Goal{Storage: "v2", With: definition(t, pizzaNew)}, "the file: "},
		{observation(deleting), Goal{Storage: "v1"}, "is being deleted"},
		{builtIn, Goal{Storage: "apps/v1beta2"}, "stores it as apps/v1 and not as apps/v1beta2"},
		{builtIn, Goal{Retire: []string{"x"}}, "built into the server"},
		{Observation{Resource: builtIn.Resource}, Goal{}, "does not tell"},
	} {
		if _, err := New(c.o, c.g); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New(%+v) = %v, want %q", c.g, err, c.want)
		}
	}
}

// With the conversion None, rewriting an object prunes what the other schema does not have.
func TestPlanWarnsOfFieldsThatAreLost(t *testing.T) {
	p, err := New(observation(definition(t, pizzaBeta)), Goal{Storage: "v1", With: definition(t, pizzaNew)})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "does not have .spec.size, which v1alpha1 has") {
		t.Errorf("warnings %q, want .spec.size", p.Warnings)
	}
	if p, err = New(observation(both(t)), Goal{Storage: "v1"}); err != nil || len(p.Warnings) != 0 {
		t.Errorf("warnings %q (%v), want none: a webhook converts", p.Warnings, err)
	}
}

// What a schema allows without a name is pruned by one that has fewer names.
func TestWhatAnotherSchemaPrunes(t *testing.T) {
	const (
		preserve = `"x-kubernetes-preserve-unknown-fields":true`
		named    = `{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"string"}}}}}`
		rows     = `{"type":"object","properties":{"rows":{"type":"array","items":{"type":"object","properties":` +
			`{"a":{"type":"string"}}}}}}`
	)
	for _, c := range []struct{ what, from, to, want string }{
		{"the same", named, named, ""},
		{"anything at all", `{"type":"object",` + preserve + `}`, named, ".*"},
		{"anything, kept", `{"type":"object",` + preserve + `}`, `{"type":"object",` + preserve + `}`, ""},
		{"anything, kept but below a name", `{"type":"object",` + preserve + `}`,
			`{"type":"object",` + preserve + `,"properties":{"spec":{"type":"object"}}}`, ".spec.*"},
		{"anything beside names", `{"type":"object","properties":{"spec":{"type":"object",` + preserve +
			`,"properties":{"size":{"type":"string"}}}}}`, named, ".spec.*"},
		{"a map to names", `{"type":"object","properties":{"spec":{"type":"object","additionalProperties":` +
			`{"type":"string"}}}}`, named, ".spec.*"},
		{"names to a map", `{"type":"object","properties":{"spec":{"type":"object","properties":{"size":` +
			`{"type":"object","properties":{"cm":{"type":"integer"}}}}}}}`,
			`{"type":"object","properties":{"spec":{"type":"object","additionalProperties":{"type":"object"}}}}`,
			".spec.size.cm"},
		{"a map to a map", `{"type":"object","additionalProperties":{"type":"object","properties":{"a":{},"b":{}}}}`,
			`{"type":"object","additionalProperties":{"type":"object","properties":{"a":{}}}}`, ".*.b"},
		{"a map of anything", `{"type":"object","additionalProperties":true}`,
			`{"type":"object","additionalProperties":{"type":"string"}}`, ""},
		{"rows", rows, strings.Replace(rows, `"a"`, `"b"`, 1), ".rows[].a"},
		{"rows without items", rows, `{"type":"object","properties":{"rows":{"type":"array"}}}`, ".rows[].a"},
		{"anything to rows", `{"type":"object","properties":{"rows":{` + preserve + `}}}`, rows, ".rows[].*"},
		{"meta", `{"type":"object","properties":{"apiVersion":{},"kind":{},"metadata":{"type":"object"}}}`,
			`{"type":"object"}`, ""},
		{"embedded", `{"type":"object","properties":{"t":{"type":"object","x-kubernetes-embedded-resource":true,` +
			preserve + `,"properties":{"kind":{"type":"string"}}}}}`,
			`{"type":"object","properties":{"t":{"type":"object","x-kubernetes-embedded-resource":true,` +
				`"properties":{"spec":{"type":"object"}}}}}`, ".t.*"},
		{"a number to an object", `{"type":"object","properties":{"a":{"type":"integer"}}}`,
			`{"type":"object","properties":{"a":{"type":"object"}}}`, ""},
	} {
		d := definition(t, fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
			"spec":{"group":"g.example","scope":"Namespaced","names":{"plural":"as","kind":"A"},"versions":[
			{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":%s}},
			{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":%s}}]}}`, c.from, c.to))
		if got := strings.Join(prunedFields(d, "v1", "v2"), " "); got != c.want {
			t.Errorf("%s: loses %q, want %q", c.what, got, c.want)
		}
	}
}

func TestPlanOfBuiltIn(t *testing.T) {
	r := Resource{Name: "deployments.apps", Group: "apps", Plural: "deployments", Kind: "Deployment",
		Key: "deployments", BuiltIn: true, Access: "apps/v1"}
	o := Observation{Resource: r, Served: []string{"apps/v1"}, Storage: "apps/v1"}
	for _, c := range []struct {
		stored *Stored
		want   string
	}{
		{nil, "settle apps/v1, rewrite apps/v1, prove apps/v1"},
		{&Stored{Versions: map[string]int64{"extensions/v1beta1": 2}},
			"settle apps/v1, rewrite apps/v1, prove apps/v1"},
		{&Stored{Versions: map[string]int64{"apps/v1": 2}}, ""},
		{&Stored{Versions: map[string]int64{"apps/v1": 2}, Encrypted: 1},
			"settle apps/v1, rewrite apps/v1, prove apps/v1"},
	} {
		o.Stored = c.stored
		p, err := New(o, Goal{})
		if err != nil || ids(p.Steps) != c.want {
			t.Errorf("%+v: %s (%v), want %s", c.stored, ids(p.Steps), err, c.want)
		}
	}
}

func TestStatusSaysWhatBlocks(t *testing.T) {
	o := observation(both(t))
	o.WhyUnknown = "no store"
	s := NewStatus(o)
	if s.Stored != nil || s.Unknown != "no store" {
		t.Errorf("stored %+v, unknown %q", s.Stored, s.Unknown)
	}
	o.Stored = &Stored{Versions: map[string]int64{"restaurant.example/v1alpha1": 3, "restaurant.example/v0": 1}}
	got := map[string]string{}
	for _, v := range NewStatus(o).Versions {
		got[v.Name] = strings.Join(v.Blocks, "; ")
	}
	want := map[string]string{"v1alpha1": "objects are written in it; it is served", "v1": "it is served",
		"v0": "1 object is stored in it"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
