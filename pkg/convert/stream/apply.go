package stream

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
)

// TooLargeToApply reports whether kubectl apply does not send an object that servers accept: without --server-side it
// writes the object into an annotation, and all of an object's annotations may have 256 KiB.
func (r Result) TooLargeToApply() bool {
	const small = validation.TotalAnnotationSizeLimitB / 4 // as text, whatever its format is
	if r.Object == nil || r.Text != nil && len(r.Text) < small {
		return false
	}
	annotations := r.Object.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	object := r.Object.DeepCopy()
	object.SetAnnotations(annotations)
	text, err := json.Marshal(object.Object)
	if err != nil { // it is written nowhere
		return false
	}
	size := len(corev1.LastAppliedConfigAnnotation) + len(text) + len("\n")
	for name, value := range annotations {
		size += len(name) + len(value)
	}
	return size > validation.TotalAnnotationSizeLimitB
}
