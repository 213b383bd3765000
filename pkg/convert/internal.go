package convert

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Internal reads an object as the API server of Kubernetes 1.36 reads it: with the defaults of its version, as the type
// that Kubernetes' own functions work on. It reports false for a kind that Kubernetes 1.36 does not have.
// Errors: *ContentError when the object is not what its kind requires.
func (c *Converter) Internal(object *unstructured.Unstructured) (runtime.Object, bool, error) {
	gvk := object.GroupVersionKind()
	hub, native := c.hubs[gvk]
	if !native {
		return nil, false, nil
	}
	typed, err := c.defaulted(object.Object, gvk)
	if err != nil {
		return nil, true, err
	}
	internal := reflect.New(hub).Interface().(runtime.Object)
	if err := c.scheme.Convert(typed, internal, nil); err != nil {
		return nil, true, &ContentError{gvk, err}
	}
	return internal, true, nil
}
