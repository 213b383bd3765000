package convert

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/internal/cputest"
)

// TestDefinitionsOfManyVersions: each with a schema of its own, all of which were compared with each other.
func TestDefinitionsOfManyVersions(t *testing.T) {
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	crd := func(version string) *unstructured.Unstructured {
		var versions []any
		for i := range 5000 {
			versions = append(versions, map[string]any{"name": fmt.Sprint("v", i), "served": true, "storage": i == 0,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object",
					"description": fmt.Sprint(i)}}})
		}
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/" + version,
			"kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "x.e.c"},
			"spec": map[string]any{"group": "e.c", "scope": "Namespaced", "versions": versions,
				"names": map[string]any{"plural": "x", "kind": "X"}}}}
	}
	for from, to := range map[string]string{"v1": "v1beta1", "v1beta1": "v1"} {
		if took := cputest.Thread(t, func() {
			_, _, err = c.Convert(crd(from), schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: to,
				Kind: "CustomResourceDefinition"})
		}); took > 5*time.Second || err != nil {
			t.Errorf("from %s to %s: %v, %v", from, to, took, err)
		}
	}
}
