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

func slicesOf(value any, n int) []any {
	all := make([]any, n)
	for i := range all {
		all[i] = value
	}
	return all
}
