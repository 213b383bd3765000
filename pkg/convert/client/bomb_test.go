package client

import (
	"fmt"
	"net/http"
	"runtime"
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
