package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// TestPatchesThatAreSlow: elements of a list are looked for one by one, so that a megabyte of them took a core for
// minutes.
func TestPatchesThatAreSlow(t *testing.T) {
	elements := func(n int) []byte {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`{"name":"c%d"}`, i))
		}
		return []byte(`{"spec":{"template":{"spec":{"containers":[` + strings.Join(list, ",") + `]}}}}`)
	}
	gvk := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	patch, err := Patcher(types.StrategicMergePatchType, elements(1000), gvk, schema.GroupResource{}, "a")
	if err == nil {
		_, err = patch(map[string]any{})
	}
	if err != nil {
		t.Errorf("a thousand containers: %v", err)
	}
	_, err = Patcher(types.StrategicMergePatchType, elements(limitOperations), gvk, schema.GroupResource{}, "a")
	if !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("%d containers: %v", limitOperations, err)
	}
}

// TestPatchesThatAreBombs: each of a few copies is of all that the ones before made, which took all memory.
func TestPatchesThatAreBombs(t *testing.T) {
	apply := func(operations ...string) error {
		patch, err := Patcher(types.JSONPatchType, []byte("["+strings.Join(operations, ",")+"]"),
			schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, schema.GroupResource{}, "a")
		if err == nil {
			_, err = patch(map[string]any{"a": map[string]any{"text": strings.Repeat("x", 1000)}})
		}
		return err
	}
	var bomb []string
	for i := range 16 { // each doubles it: twice as many would be gigabytes
		bomb = append(bomb, `{"op":"copy","from":"/a","path":"/a/`+strings.Repeat("b", i+1)+`"}`)
	}
	if err := apply(bomb...); !apierrors.IsInvalid(err) {
		t.Errorf("copies of copies: %v", err)
	}
	if err := apply(bomb[:8]...); err != nil {
		t.Errorf("a few copies: %v", err)
	}
	many := make([]string, limitOperations+1)
	for i := range many {
		many[i] = `{"op":"test","path":"/a/none","value":null}`
	}
	if err := apply(many...); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("%d operations: %v", len(many), err)
	}
}

// The paths of the fields of an apply patch are many times what it has itself, where many fields are nested deeply.
func TestAppliesThatAreBombs(t *testing.T) {
	const deep, wide = 5000, 50_000
	var text strings.Builder
	text.WriteString(`{"apiVersion":"apps/v1beta1","kind":"Deployment","metadata":{"name":"web"},"spec":{"x":`)
	text.WriteString(strings.Repeat(`{"a":`, deep) + "{")
	for i := range wide {
		fmt.Fprintf(&text, `"%d":1,`, i)
	}
	text.WriteString(`"b":1}` + strings.Repeat("}", deep) + "}}")
	f := newFakeServer(t, 36)
	client, err := rest.HTTPClientFor(f.config(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, f.URL+oldWeb+"?fieldManager=m",
		strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/apply-patch+yaml")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	response, err := client.Do(r)
	if err == nil {
		response.Body.Close()
	}
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "names") {
		t.Errorf("%v, %v, want an error about names", response, err)
	}
	if sent := f.sent(); len(sent) > 0 {
		t.Errorf("sent %s", sent)
	}
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 1024 {
		t.Errorf("%d MiB for a patch of %d KiB", took, text.Len()>>10)
	}
}

// TestPatchesTakeNotLong: what is nested, and lists, cost the libraries that patch more than what they have. Each of
// these took a core for more than a minute.
func TestPatchesTakeNotLong(t *testing.T) {
	gvk := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	nested := func(depth, wide int) string {
		return strings.Repeat(`{"a":`, depth) + "[" + strings.Repeat("1,", wide) + "1]" + strings.Repeat("}", depth)
	}
	env := func(prefix string, n int) []any {
		var list []any
		for i := range n {
			list = append(list, map[string]any{"name": prefix + strconv.Itoa(i), "value": "x"})
		}
		return list
	}
	deployment := func(metadata map[string]any, env []any) map[string]any {
		return map[string]any{"metadata": metadata, "spec": map[string]any{"template": map[string]any{
			"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "env": env}}}}}}
	}
	text := func(object any) string {
		t.Helper()
		data, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	finalizers := func(n int) map[string]any {
		var list []any
		for i := range n {
			list = append(list, strconv.Itoa(i))
		}
		return map[string]any{"finalizers": list}
	}
	shifts := func(n, wide int) string {
		return `[{"op":"add","path":"/a","value":[` + strings.Repeat("1,", wide) + "1]}" +
			strings.Repeat(`,{"op":"add","path":"/a/0","value":1}`, n) + "]"
	}
	with := func(value string) map[string]any {
		var decoded any
		if err := json.Unmarshal([]byte(value), &decoded); err != nil {
			t.Fatal(err)
		}
		return map[string]any{"a": decoded}
	}
	for _, test := range []struct {
		what   string
		kind   types.PatchType
		patch  string
		object map[string]any
		fits   bool
	}{
		{"a deep merge patch", types.MergePatchType, nested(5000, 500_000), map[string]any{}, false},
		{"a merge patch", types.MergePatchType, nested(20, 100_000), map[string]any{}, true},
		{"a merge patch of a deep object", types.MergePatchType, nested(5000, 1), with(nested(5000, 500_000)), false},
		{"a deep JSON patch", types.JSONPatchType,
			`[{"op":"add","path":"/a` + strings.Repeat("/a", 5000) + `/b","value":1}]`, with(nested(5000, 500_000)), false},
		{"brackets in a text", types.MergePatchType, `{"a":"` + strings.Repeat(`[\"`, 100_000) + `"}`, map[string]any{},
			true},
		{"elements before a long list", types.JSONPatchType, shifts(9000, 300_000), map[string]any{}, false},
		{"elements before a list", types.JSONPatchType, shifts(9000, 1000), map[string]any{}, true},
		{"one of many variables", types.StrategicMergePatchType, text(deployment(nil, env("b", 1))),
			deployment(nil, env("a", 60_000)), false},
		{"one of some variables", types.StrategicMergePatchType, text(deployment(nil, env("b", 1))),
			deployment(nil, env("a", 1000)), true},
		{"something beside many variables", types.StrategicMergePatchType, `{"metadata":{"labels":{"a":"b"}}}`,
			deployment(nil, env("a", 60_000)), true},
		{"many finalizers", types.StrategicMergePatchType, text(deployment(finalizers(60_000), nil)),
			deployment(finalizers(10), nil), false},
		{"the order of many finalizers", types.StrategicMergePatchType,
			strings.Replace(text(deployment(finalizers(60_000), nil)), "finalizers", "$setElementOrder/finalizers", 1),
			deployment(finalizers(10), nil), false},
	} {
		patch, err := Patcher(test.kind, []byte(test.patch), gvk, schema.GroupResource{}, "a")
		if err == nil {
			_, err = patch(test.object)
		}
		if test.fits && err != nil || !test.fits && !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("%s: %.200v", test.what, err)
		}
	}
}
