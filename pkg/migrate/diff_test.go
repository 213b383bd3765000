package migrate

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// crdWith is a CRD whose spec has further fields, in the version v1 with a schema of spec.
func crdWith(t *testing.T, spec, schema string) *Definition {
	t.Helper()
	return definition(t, fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","spec":{
		"group":"g.example","scope":"Namespaced","names":{"plural":"xs","kind":"X","singular":"x","shortNames":["xx"]},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":%s}}}}] %s}}`, schema, spec))
}

// changed is the CRD after fields of the spec were replaced.
func changed(t *testing.T, d *Definition, fields string) *Definition {
	t.Helper()
	d = d.Clone()
	var more map[string]any
	if err := json.Unmarshal([]byte(fields), &more); err != nil {
		t.Fatal(err)
	}
	merge(d.spec(), more)
	return definition(t, string(must(json.Marshal(d))))
}

func merge(into, from map[string]any) {
	for name, value := range from {
		if inner, ok := value.(map[string]any); ok {
			if have, ok := into[name].(map[string]any); ok {
				merge(have, inner)
				continue
			}
		}
		into[name] = value
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func found(from, to *Definition) []string {
	got := []string{}
	for _, f := range Diff(from, to) {
		got = append(got, strings.TrimSpace(f.Rule+" "+strings.TrimSpace(strings.TrimPrefix(f.Subject, to.Name()))))
	}
	return got
}

// Each change breaks something in one direction, and is silent in the other unless the way back is named.
func TestDiffOfSchemas(t *testing.T) {
	for _, c := range []struct{ what, old, new, want, back string }{
		{"same", `{"type":"object","properties":{"a":{"type":"string"}}}`,
			`{"type":"object","properties":{"a":{"type":"string"}}}`, "", ""},
		{"field", `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}}}`,
			`{"type":"object","properties":{"b":{"type":"string"}}}`, "FUS304 v1 .spec.a", ""},
		{"field that is kept", `{"type":"object","properties":{"a":{"type":"string"}}}`,
			`{"type":"object","x-kubernetes-preserve-unknown-fields":true}`, "", "FUS309 v1 .spec"},
		{"type", `{"type":"string"}`, `{"type":"integer"}`, "FUS305 v1 .spec", "FUS305 v1 .spec"},
		{"number", `{"type":"number"}`, `{"type":"integer"}`, "FUS305 v1 .spec", ""},
		{"int or string", `{"x-kubernetes-int-or-string":true}`, `{"type":"string"}`, "FUS305 v1 .spec", ""},
		{"required", `{"type":"object","properties":{"a":{"type":"string"}}}`,
			`{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}}`, "FUS306 v1 .spec.a", ""},
		{"required with a default", `{"type":"object","properties":{"a":{"type":"string","default":"x"}}}`,
			`{"type":"object","required":["a"],"properties":{"a":{"type":"string","default":"x"}}}`, "", ""},
		{"new required field", `{"type":"object"}`,
			`{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}}`, "FUS306 v1 .spec.a",
			"FUS304 v1 .spec.a"},
		{"enum", `{"type":"string","enum":["a","b"]}`, `{"type":"string","enum":["a"]}`, "FUS307 v1 .spec", ""},
		{"new enum", `{"type":"string"}`, `{"type":"string","enum":["a"]}`, "FUS307 v1 .spec", ""},
		{"maximum", `{"type":"integer","maximum":9}`, `{"type":"integer","maximum":8}`, "FUS308 v1 .spec", ""},
		{"minimum", `{"type":"integer"}`, `{"type":"integer","minimum":0}`, "FUS308 v1 .spec", ""},
		{"minLength", `{"type":"string","minLength":1}`, `{"type":"string","minLength":2}`, "FUS308 v1 .spec", ""},
		{"minLength 0", `{"type":"string"}`, `{"type":"string","minLength":0}`, "", ""},
		{"pattern", `{"type":"string"}`, `{"type":"string","pattern":"a+"}`, "FUS308 v1 .spec", ""},
		{"other pattern", `{"type":"string","pattern":"b"}`, `{"type":"string","pattern":"a+"}`, "FUS308 v1 .spec",
			"FUS308 v1 .spec"},
		{"items", `{"type":"array","items":{"type":"object","properties":{"a":{"type":"string"}}}}`,
			`{"type":"array","items":{"type":"object"}}`, "FUS304 v1 .spec[].a", ""},
		{"values", `{"type":"object","additionalProperties":{"type":"string"}}`,
			`{"type":"object","additionalProperties":{"type":"integer"}}`, "FUS305 v1 .spec{}", "FUS305 v1 .spec{}"},
		{"closed map", `{"type":"object","additionalProperties":{"type":"string"}}`, `{"type":"object"}`,
			"FUS309 v1 .spec", ""},
		{"uniqueItems", `{"type":"array"}`, `{"type":"array","uniqueItems":true}`, "FUS308 v1 .spec", ""},
		{"default", `{"type":"string","default":"a"}`, `{"type":"string","default":"b"}`, "FUS310 v1 .spec",
			"FUS310 v1 .spec"},
		{"no default", `{"type":"string","default":"a"}`, `{"type":"string"}`, "FUS310 v1 .spec", ""},
		{"list type", `{"type":"array","x-kubernetes-list-type":"atomic"}`,
			`{"type":"array","x-kubernetes-list-type":"set"}`, "FUS311 v1 .spec", "FUS311 v1 .spec"},
		{"list type as before", `{"type":"array"}`, `{"type":"array","x-kubernetes-list-type":"atomic"}`, "", ""},
		{"list keys", `{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["a"]}`,
			`{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["b"]}`, "FUS311 v1 .spec",
			"FUS311 v1 .spec"},
		{"rule", `{"type":"object"}`, `{"type":"object","x-kubernetes-validations":[{"rule":"self.a > 1"}]}`,
			"FUS313 v1 .spec", ""},
		{"nullable", `{"type":"string","nullable":true}`, `{"type":"string"}`, "FUS315 v1 .spec", ""},
		{"no object any more", `{"type":"object","additionalProperties":{"type":"string"}}`, `{"type":"string"}`,
			"FUS305 v1 .spec", "FUS305 v1 .spec"},
		{"anyOf", `{"type":"object"}`, `{"type":"object","anyOf":[{"required":["a"]}]}`, "FUS319 v1 .spec", ""},
	} {
		old, now := crdWith(t, "", c.old), crdWith(t, "", c.new)
		if got := strings.Join(found(old, now), ", "); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
		if got := strings.Join(found(now, old), ", "); got != c.back {
			t.Errorf("%s, back: %q, want %q", c.what, got, c.back)
		}
	}
}

func TestDiffOfDefinitions(t *testing.T) {
	const (
		v1   = `{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object"}}}}}`
		v2   = `{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object"}}}}}`
		hook = `"conversion":{"strategy":"Webhook","webhook":{"clientConfig":{"url":"https://a"},"conversionReviewVersions":["v1"]}}`
	)
	one := crdWith(t, "", `{"type":"object"}`)
	two := changed(t, one, `{"versions":[`+v1+`,`+v2+`]}`)
	hooked := changed(t, two, `{`+hook+`}`)
	for _, c := range []struct {
		what       string
		old, new   *Definition
		want, back string
	}{
		{"version", two, one, "FUS300 v2", ""},
		{"stored version", two,
			changed(t, two, `{"versions":[`+strings.Replace(v2, `"storage":false`, `"storage":true`, 1)+`]}`),
			"FUS300 v1, FUS301 v1, FUS316", "FUS316"},
		{"served", two,
			changed(t, two, `{"versions":[`+v1+`,`+strings.Replace(v2, `"served":true`, `"served":false`, 1)+`]}`),
			"FUS302 v2", ""},
		{"scope", one, changed(t, one, `{"scope":"Cluster"}`), "FUS303 spec.scope", "FUS303 spec.scope"},
		{"short name", one, changed(t, one, `{"names":{"shortNames":[]}}`), "FUS318 spec.names.shortNames", ""},
		{"unknown fields", changed(t, one, `{"preserveUnknownFields":true}`), one, "FUS309 " +
			"spec.preserveUnknownFields", ""},
		{"conversion", hooked, two, "FUS312 spec.conversion", "FUS312 spec.conversion"},
		{"other webhook", hooked, changed(t, hooked, `{"conversion":{"webhook":{"clientConfig":{"url":"https://b"}}}}`),
			"FUS312 spec.conversion", "FUS312 spec.conversion"},
		{"storage", two,
			changed(t, two, `{"versions":[`+strings.Replace(v1, `"storage":true`, `"storage":false`, 1)+`,`+
				strings.Replace(v2, `"storage":false`, `"storage":true`, 1)+`]}`), "FUS316", "FUS316"},
		{"status", changed(t, one, `{"versions":[`+strings.TrimSuffix(v1, "}")+`,"subresources":{"status":{}}}]}`), one,
			"FUS314 v1", "FUS314 v1"},
		{"version with other fields", one,
			changed(t, one, `{"versions":[`+v1+`,`+
				strings.Replace(v2, `"spec":{"type":"object"}`, `"more":{"type":"object"},"spec":{"type":"object"}`, 1)+
				`]}`), "FUS317 v2 as v1", "FUS300 v2"},
		{"version with other fields that is not served", one,
			changed(t, one, `{"versions":[`+v1+`,`+strings.NewReplacer(`"served":true`, `"served":false`,
				`"spec":{"type":"object"}`, `"more":{"type":"object"},"spec":{"type":"object"}`).Replace(v2)+`]}`),
			"", "FUS300 v2"},
	} {
		if got := strings.Join(found(c.old, c.new), ", "); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
		if got := strings.Join(found(c.new, c.old), ", "); got != c.back && c.back != "" {
			t.Errorf("%s, back: %q, want %q", c.what, got, c.back)
		}
	}
	// v1beta1 and v1 of the same CRD are the same.
	beta := definition(t, pizzaBeta)
	if diff := cmp.Diff([]string{}, found(beta, beta.Clone())); diff != "" {
		t.Error(diff)
	}
}

func TestRulesAreDocumented(t *testing.T) {
	page := string(must(os.ReadFile("../../docs/crd.md")))
	ids := []string{}
	for _, c := range Rules() {
		if c.Title == "" || c.Why == "" || c.Severity == 0 || c.Fix == "" {
			t.Errorf("%s: lacks a part", c.ID)
		}
		ids = append(ids, c.ID)
		if row := fmt.Sprintf("| %s | %s | %s |\n", c.ID, c.Severity, c.Title); !strings.Contains(page, row) {
			t.Errorf("docs/crd.md lacks %s", row)
		}
	}
	if !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
		t.Errorf("rules are not sorted, or are named twice: %v", ids)
	}
}

// A version without clients needs no stopping, a CRD that preserves prunes nothing, and fixes name what they are about.
func TestDiffSaysWhatIs(t *testing.T) {
	one := crdWith(t, "", `{"type":"object"}`)
	const unserved = `{"name":"v0","served":false,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}`
	const v1 = `{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}`
	two := changed(t, one, `{"versions":[`+unserved+`,`+v1+`]}`)
	for _, f := range Diff(two, changed(t, one, `{"versions":[`+v1+`]}`)) {
		if f.Rule == "FUS300" && (f.Fix != "" || !strings.Contains(f.Message, "not served")) {
			t.Errorf("a version that was not served is removed: %s, fix %q", f.Message, f.Fix)
		}
	}
	placeholder := regexp.MustCompile(`\b(NAME|OLD|VERSION)\b|--retire\s*(does|$)`)
	v2 := strings.ReplaceAll(v1, `"v1"`, `"v2"`)
	for _, f := range append(Diff(one, changed(t, one, `{"versions":[`+v2+`]}`)), Removed(one)) {
		if found := placeholder.FindString(f.Fix); found != "" {
			t.Errorf("%s: the fix %q does not say which %s", f.Message, f.Fix, found)
		}
	}
	const bare = `{"preserveUnknownFields":true,"versions":[{"name":"v1","served":true,"storage":true}]}`
	kept := changed(t, one, bare)
	for _, f := range Diff(kept, changed(t, one, `{"preserveUnknownFields":true}`)) {
		if strings.Contains(f.Message, "prune") {
			t.Errorf("a CRD that preserves unknown fields: %s", f.Message)
		}
	}
	for _, f := range append(Diff(two, one), Diff(one, kept)...) {
		if strings.Contains(f.Fix, "NAME") || strings.Contains(f.Fix, "VERSION") {
			t.Errorf("%s: fix %q", f.Rule, f.Fix)
		}
	}
}
