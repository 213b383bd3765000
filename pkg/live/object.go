package live

import (
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// object is as much of an object as is looked at.
type object struct {
	Metadata struct {
		Name              string                  `json:"name"`
		Namespace         string                  `json:"namespace"`
		UID               string                  `json:"uid"`
		Labels            map[string]string       `json:"labels"`
		Annotations       map[string]string       `json:"annotations"`
		DeletionTimestamp string                  `json:"deletionTimestamp"`
		OwnerReferences   []metav1.OwnerReference `json:"ownerReferences"`
	} `json:"metadata"`
	Spec   json.RawMessage `json:"spec"`
	Status json.RawMessage `json:"status"`
}

// decode reads names as servers do, with regard to case: a custom resource may have a field "Metadata" beside its
// metadata.
func decode(data []byte) (object, error) {
	var o object
	if err := utiljson.Unmarshal(data, &o); err != nil {
		return o, fmt.Errorf("reading an object: %w", err)
	}
	if o.Metadata.Name == "" {
		return o, errors.New("reading an object: it has no name")
	}
	return o, nil
}

// title names an object for messages.
func (o *object) title() string { return title(o.Metadata.Namespace, o.Metadata.Name) }

func title(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// controller is the reference to the owner that controls the object, nil when there is none.
func (o *object) controller() *metav1.OwnerReference {
	for i := range o.Metadata.OwnerReferences {
		if r := &o.Metadata.OwnerReferences[i]; r.Controller != nil && *r.Controller {
			return r
		}
	}
	return nil
}
