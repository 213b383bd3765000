package stream_test

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/stream"
)

// What kubectl apply annotates is what the API server counts, whatever was applied before.
func TestTooLargeToApply(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	last := ", kubectl.kubernetes.io/last-applied-configuration: '" + strings.Repeat("x", 99) + "'"
	seen := map[bool]int{}
	for _, before := range []string{"", last} {
		for _, data := range []int{1000, 200 << 10, 256<<10 - 250, 256<<10 + 100} {
			for more := 0; more < 150; more += 7 {
				text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {b: '<c>'" + before +
					"}}\ndata: {a: " + strings.Repeat("y", data+more) + "}\n"
				s := stream.New(c, stream.Options{Choose: stream.ForMinor(c, 36), Minor: 36, Format: stream.Same})
				err := s.Convert(t.Context(), "", strings.NewReader(text), func(r stream.Result) error {
					if r.Object == nil || r.Err != nil {
						return r.Err
					}
					got := r.TooLargeToApply()
					seen[got]++
					if want := applied(t, r.Object) != nil; got != want {
						t.Errorf("%d bytes of data: too large %t, want %t", data+more, got, want)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if seen[true] < 20 || seen[false] < 20 {
		t.Errorf("too large or not: %v", seen)
	}
}

// applied is what the API server says of an object that kubectl apply sends.
func applied(t *testing.T, object *unstructured.Unstructured) error {
	t.Helper()
	annotations := object.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	object.SetAnnotations(annotations)
	text, err := runtime.Encode(unstructured.UnstructuredJSONScheme, object)
	if err != nil || !bytes.HasSuffix(text, []byte("\n")) {
		t.Fatal(err, "no line of JSON")
	}
	annotations[corev1.LastAppliedConfigAnnotation] = string(text)
	return validation.ValidateAnnotationsSize(annotations)
}
