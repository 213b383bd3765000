package migrate

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const pizzaBeta = `{
  "apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "CustomResourceDefinition",
  "metadata": {"name": "pizzas.restaurant.example", "uid": "u1", "generation": 3, "resourceVersion": "7"},
  "spec": {
    "group": "restaurant.example", "scope": "Namespaced", "version": "v1alpha1", "preserveUnknownFields": false,
    "names": {"plural": "pizzas", "kind": "Pizza"},
    "versions": [{"name": "v1alpha1", "served": true, "storage": true}],
    "validation": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"toppings": {"type": "array", "items": {"type": "string"}}, "size": {"type": "integer"}}}}}},
    "subresources": {"status": {}},
    "additionalPrinterColumns": [{"name": "Size", "type": "integer", "JSONPath": ".spec.size"}],
    "conversion": {"strategy": "Webhook", "webhookClientConfig": {"url": "https://127.0.0.1:1/convert"}, "conversionReviewVersions": ["v1beta1"]}
  },
  "status": {"storedVersions": ["v1alpha1"], "conditions": [{"type": "Established", "status": "True"}]}
}`

const pizzaNew = `{
  "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "pizzas.restaurant.example"},
  "spec": {
    "group": "restaurant.example", "scope": "Namespaced", "names": {"plural": "pizzas", "kind": "Pizza"},
    "versions": [
      {"name": "v1alpha1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
      {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
       "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"toppings": {"type": "array", "items": {"type": "object"}}}}}}}}
    ],
    "conversion": {"strategy": "None"}
  }
}`

func definition(t *testing.T, text string) *Definition {
	t.Helper()
	d, err := ParseDefinition([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func decoded(t *testing.T, value any) map[string]any {
	t.Helper()
	data, ok := value.(string)
	if !ok {
		encoded, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		data = string(encoded)
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(data), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestDefinitionKeepsTheVersionThatItWasReadIn(t *testing.T) {
	for name, text := range map[string]string{"v1beta1": pizzaBeta, "v1": pizzaNew} {
		if diff := cmp.Diff(decoded(t, text), decoded(t, definition(t, text))); diff != "" {
			t.Errorf("%s: read and written (-want +got):\n%s", name, diff)
		}
	}
}

// Servers of v1beta1 refuse what all versions have alike in each version, and want spec.version to be the first.
func TestDefinitionOfBetaSaysOnceWhatIsAlike(t *testing.T) {
	d := definition(t, pizzaBeta)
	if err := d.addVersion(definition(t, pizzaNew), "v1"); err != nil {
		t.Fatal(err)
	}
	two := decoded(t, d)
	if at(two, "spec", "validation") != nil {
		t.Error("validation is said once although the versions differ")
	}
	for i, version := range list(two, "spec", "versions") {
		if at(version, "schema") == nil {
			t.Errorf("version %d has no schema of its own", i)
		}
	}
	if at(two, "spec", "subresources") == nil || at(list(two, "spec", "versions")[0], "subresources") != nil {
		t.Error("subresources are alike and not said once")
	}
	if err := d.setStorage("v1"); err != nil {
		t.Fatal(err)
	}
	d.removeVersion("v1alpha1")
	one := decoded(t, d)
	if got := text(one, "spec", "version"); got != "v1" {
		t.Errorf("spec.version = %q, want v1", got)
	}
	if at(one, "spec", "validation", "openAPIV3Schema") == nil ||
		at(list(one, "spec", "versions")[0], "schema") != nil {
		t.Errorf("the schema of the only version is not said once: %v", one["spec"])
	}
}

func TestDefinitionReads(t *testing.T) {
	d := definition(t, pizzaBeta)
	strategy, webhook := d.Conversion()
	got := []any{d.Name(), d.UID(), d.Generation(), d.Storage(), d.StoredVersions(), d.Condition("Established"),
		strategy, webhook.String(), d.Resource()}
	want := []any{"pizzas.restaurant.example", "u1", int64(3), "v1alpha1", []string{"v1alpha1"}, "True", "Webhook",
		"https://127.0.0.1:1/convert",
		Resource{Name: "pizzas.restaurant.example", Group: "restaurant.example", Plural: "pizzas", Kind: "Pizza",
			Namespaced: true, Key: "restaurant.example/pizzas"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	single := definition(t,
		`{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"CustomResourceDefinition","spec":{"group":"a.b","version":"v1","scope":"Cluster","names":{"plural":"xs","kind":"X"}}}`)
	if diff := cmp.Diff([]Version{{"v1", true, true}}, single.Versions()); diff != "" {
		t.Errorf("spec.version alone (-want +got):\n%s", diff)
	}
}

func TestParseDefinitionRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:             "cannot unmarshal",
		`{"kind":"Pod"}`: `kind "Pod"`,
		`{"kind":"CustomResourceDefinition","apiVersion":"v1"}`:                                                                                                        `apiVersion "v1"`,
		`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1"}`:                                                                                   "spec: is missing",
		`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":{"group":"a"}}`:                                                              "spec.scope: is missing",
		`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":{"group":"a","scope":"Cluster","names":{"plural":"x"}}}`:                     "spec.names.kind: is missing",
		`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":{"group":"a","scope":"Cluster","names":{"plural":"x","kind":"X"}}}`:          "want one",
		`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":{"group":"a","scope":"C","names":{"plural":"x","kind":"X"},"versions":[1]}}`: "spec.versions[0].name",
	} {
		if _, err := ParseDefinition([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseDefinition(%s) = %v, want %q", text, err, want)
		}
	}
}

func FuzzParseDefinition(f *testing.F) {
	f.Add(pizzaBeta)
	f.Add(pizzaNew)
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDefinition([]byte(text))
		if err != nil {
			return
		}
		first, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseDefinition(first)
		if err != nil {
			t.Fatalf("%s: %v", first, err)
		}
		second, err := json.Marshal(again)
		if err != nil || string(first) != string(second) {
			t.Errorf("not stable: %s, then %s (%v)", first, second, err)
		}
	})
}

// The values are those of discovery of 1.15.12 and 1.36.3 for kind Pizza.
func TestStorageHashIsTheServers(t *testing.T) {
	for apiVersion, want := range map[string]string{"x.test/v1alpha1": "BURAVG/ms2E=", "x.test/v1": "niV6HC5PTzw="} {
		if got := StorageHash(apiVersion, "Pizza"); got != want {
			t.Errorf("StorageHash(%s) = %s, want %s", apiVersion, got, want)
		}
	}
}
