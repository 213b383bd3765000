package convert

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/internal/cputest"
)

// TestPathsThatAreBombs: what is lost is named by its path, and a megabyte of names on the way to two thousand values
// was two gigabytes of paths, which were compared with each other for minutes.
func TestPathsThatAreBombs(t *testing.T) {
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	definition := func(deep, long, many int) map[string]any {
		leaves := map[string]any{}
		for i := range many {
			leaves[fmt.Sprint("p", i)] = map[string]any{"unknown": int64(1)}
		}
		s := map[string]any{"properties": leaves}
		for range deep {
			s = map[string]any{"properties": map[string]any{strings.Repeat("n", long): s}}
		}
		return map[string]any{"apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": "x.e.c"}, "spec": map[string]any{"group": "e.c", "version": "v1",
				"names":      map[string]any{"plural": "x", "kind": "X"},
				"validation": map[string]any{"openAPIV3Schema": s}}}
	}
	request := map[string]any{"apiVersion": "certificates.k8s.io/v1beta1", "kind": "CertificateSigningRequest",
		"metadata": map[string]any{"name": "x"}, "spec": map[string]any{"extra": map[string]any{
			strings.Repeat("n", 1<<20): slicesOf("x", 10_000)}}}
	for name, test := range map[string]struct {
		object map[string]any
		bomb   bool
	}{
		"deep": {definition(500, 1000, 2000), true}, "long": {definition(10, 100_000, 2000), true},
		"a map of lists": {request, true}, "usual": {definition(20, 20, 5000), false},
	} {
		object := &unstructured.Unstructured{Object: test.object}
		to := object.GroupVersionKind()
		to.Version = "v1"
		took := cputest.Thread(t, func() {
			_, _, err = c.Convert(object, schema.GroupVersionKind{Group: to.Group, Version: "v1", Kind: to.Kind})
		})
		content := (*ContentError)(nil)
		if took > 5*time.Second || test.bomb != errors.As(err, &content) {
			t.Errorf("%s: %v, %v", name, took, err)
		}
	}
}

// TestPathsOfCustomResources: what a server has stored is converted, whatever its names are like, and what it loses
// is said as far as it is read.
func TestPathsOfCustomResources(t *testing.T) {
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	gvk := func(version string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: "example.com", Version: version, Kind: "Thing"}
	}
	c.Register(gvk("v1"), gvk("v2"), func(object map[string]any) (map[string]any, error) {
		return map[string]any{"metadata": object["metadata"], "spec": withoutLost(object["spec"])}, nil
	})
	c.Register(gvk("v2"), gvk("v1"), func(object map[string]any) (map[string]any, error) { return object, nil })
	element := map[string]any{"lost": int64(1), "kept": int64(1)}
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing",
		"metadata": map[string]any{"name": "a"},
		"spec":     map[string]any{strings.Repeat("n", 500_000): slicesOf(element, 5000)}}}
	var losses []Loss
	took := cputest.Thread(t, func() { _, losses, err = c.Convert(object, gvk("v2")) })
	if took > 5*time.Second || err != nil || len(losses) == 0 || len(losses) > 1000 {
		t.Errorf("%v, %d losses, %v", took, len(losses), err)
	}
}

// withoutLost is a value without the fields of that name.
func withoutLost(value any) any {
	switch value := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, inner := range value {
			if name != "lost" {
				kept[name] = withoutLost(inner)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(value))
		for i, inner := range value {
			kept[i] = withoutLost(inner)
		}
		return kept
	}
	return value
}

func slicesOf(value any, n int) []any {
	all := make([]any, n)
	for i := range all {
		all[i] = value
	}
	return all
}

// TestPathsInOneVersion: Begin refuses an object of which nothing is converted, too, because what a server of a minor
// drops of it is named likewise. A custom resource is not looked into.
func TestPathsInOneVersion(t *testing.T) {
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	request := map[string]any{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
		"metadata": map[string]any{"name": "x"}, "spec": map[string]any{"extra": map[string]any{
			strings.Repeat("n", 1<<20): slicesOf("x", 10_000)}}}
	object := &unstructured.Unstructured{Object: request}
	content := (*ContentError)(nil)
	if _, err := c.Begin(object, object.GroupVersionKind()); !errors.As(err, &content) {
		t.Errorf("Begin: %v, want a ContentError", err)
	}
	object.SetAPIVersion("example.com/v1")
	if _, err := c.Begin(object, object.GroupVersionKind()); err != nil {
		t.Errorf("Begin of a custom resource: %v", err)
	}
}
