package hub

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/internal/cputest"
)

func restoreElements(list []any, elements []*keptElement) []any {
	restored, _ := (&restorer{}).elements(&kept{Elements: elements}, list, &place{depth: 1})
	return restored
}

// TestKeptElementsAreFoundInTime: a client writes the annotation, and with 256 KiB of it had each of thousands of
// elements looked for among all of a list, by the digest of each.
func TestKeptElementsAreFoundInTime(t *testing.T) {
	const many = 5000
	small := make([]any, 100_000)
	for i := range small {
		small[i] = map[string]any{"a": int64(i)}
	}
	large := []any{map[string]any{"a": strings.Repeat("x", 1<<20)}}
	kept := func(each string) (elements []*keptElement) {
		if err := json.Unmarshal([]byte("["+strings.Repeat(each+",", many-1)+each+"]"), &elements); err != nil {
			t.Fatal(err)
		}
		return elements
	}
	keys := func(names int) (elements []*keptElement) {
		for i := range many {
			e := &keptElement{Index: -1, Keys: map[string]any{}}
			for n := range names {
				e.Keys[fmt.Sprint("a", (i+n)%many)] = "b"
			}
			elements = append(elements, e)
		}
		return elements
	}
	for name, test := range map[string]struct {
		list     []any
		elements []*keptElement
	}{
		"none of a long list":  {small, kept(`{"base":"x","index":-1}`)},
		"of a large element":   {large, kept(`{"base":"x","index":0}`)},
		"by keys":              {small, kept(`{"keys":{"a":"b"},"index":-1}`)},
		"by other keys each":   {small, keys(1)},
		"by several keys each": {small, keys(3)},
		"by no keys":           {small, kept(`{"keys":{},"index":-1}`)},
	} {
		if took := cputest.Thread(t, func() { restoreElements(test.list, test.elements) }); took > 2*time.Second {
			t.Errorf("%s: %v", name, took)
		}
	}
}

// TestKeptElementsAreFoundWhereTheyMoved, by their keys and by what they were, each once.
func TestKeptElementsAreFoundWhereTheyMoved(t *testing.T) {
	list := []any{map[string]any{"n": int64(1)}, map[string]any{"n": int64(2)}, map[string]any{"n": int64(2)}, "text"}
	put := func(value string) *kept {
		return &kept{Fields: map[string]*kept{"v": {Value: json.RawMessage(value)}}}
	}
	for name, elements := range map[string][]*keptElement{
		"by keys": {{Keys: map[string]any{"n": 2.0}, Index: 0, Kept: put("1")},
			{Keys: map[string]any{"n": int64(1)}, Index: 7, Kept: put("2")},
			{Keys: map[string]any{"n": int64(2)}, Index: 3, Kept: put("3")}},
		"by digests": {{Base: digest(list[1]), Index: 0, Kept: put("1")},
			{Base: digest(list[0]), Index: 7, Kept: put("2")},
			{Base: digest(list[2]), Index: 3, Kept: put("3")}},
	} {
		got := digest(restoreElements(list, elements))
		want := digest([]any{map[string]any{"n": 1, "v": 2}, map[string]any{"n": 2, "v": 1},
			map[string]any{"n": 2, "v": 3}, "text"})
		if got != want {
			t.Errorf("%s: %v", name, restoreElements(list, elements))
		}
	}
}

// TestObjectsStayObjects: what is kept of a whole object is an object, whatever a client says.
func TestObjectsStayObjects(t *testing.T) {
	c := converter(t, read(t, pizza+"rules.yaml"), read(t, pizza+"crd.yaml"))
	alpha := object(
		t, `{apiVersion: restaurant.example.com/v1alpha1, kind: Pizza, metadata: {name: p}, spec: {size: S}}`)
	out, err := c.Convert(alpha, "v1")
	if err != nil {
		t.Fatal(err)
	}
	out["apiVersion"] = alpha["apiVersion"] // as it is when what is kept is put back
	for _, value := range []string{`[1]`, `"text"`, `null`} {
		alpha["metadata"].(map[string]any)["annotations"] = map[string]any{KeptAnnotation: `{"v1":{"value":` + value +
			`,"base":"` + digest(out) + `"}}`}
		if got, err := c.Convert(alpha, "v1"); err != nil || got["kind"] != "Pizza" {
			t.Errorf("%s: %v, %v", value, got, err)
		}
	}
}

// TestKeptListsInListsTakeNotLong: a client writes lists in lists, where the schema takes anything, and an annotation
// for each of them. A digest of each had the object read a thousand times.
func TestKeptListsInListsTakeNotLong(t *testing.T) {
	const deep = 1000
	version := `name: %s, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object,
		x-kubernetes-preserve-unknown-fields: true}}}}`
	c := converter(t, []byte(`{apiVersion: kubefusion.dev/v1alpha1, kind: ConversionRules, spec: {crd: things.example.com,
		hub: v2, versions: [{name: v1, rules: []}]}}`), []byte(`{apiVersion: apiextensions.k8s.io/v1,
		kind: CustomResourceDefinition, metadata: {name: things.example.com}, spec: {group: example.com,
		names: {kind: Thing}, versions: [{`+fmt.Sprintf(version, "v1")+`}, {`+fmt.Sprintf(version, "v2")+`}]}}`))
	spec := map[string]any{"text": strings.Repeat("x", 300<<10)}
	kept := `{"fields":{"more":{"value":1}}}`
	for range deep {
		kept = fmt.Sprintf(`{"fields":{"list":{"elements":[{"base":%q,"kept":%s}]}}}`, digest(spec), kept)
		spec = map[string]any{"list": []any{spec}}
	}
	thing := map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "spec": spec, "metadata": map[string]any{
		"name": "a", "annotations": map[string]any{KeptAnnotation: `{"v2":{"fields":{"spec":` + kept + `}}}`}}}
	var err error
	took := cputest.Thread(t, func() { _, err = c.Convert(thing, "v2") })
	if err != nil || took > 500*time.Millisecond {
		t.Errorf("%v, %v", took, err)
	}
}
