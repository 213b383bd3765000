package client

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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
