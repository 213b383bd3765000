package restart

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// ContainerHash is the hash of one container of an object.
type ContainerHash struct {
	Namespace string        `json:"namespace,omitempty"`
	Object    string        `json:"object,omitempty"` // Pod/web-0; "" for a bare container
	Container string        `json:"container"`
	Kind      ContainerKind `json:"kind,omitempty"` // "" for a container of the application
	Hash      Sum           `json:"hash"`
	// Defaulted: the container has what an API server would default, as IsDefaulted says.
	Defaulted bool `json:"-"`
}

// HashObject computes the hash of every container of an object, as Hashes does: the first of those that are possible.
// An object without containers has none.
// Errors: those of Hashes, with the object.
func HashObject(object Object, version kubever.Version, source Source) ([]ContainerHash, error) {
	pod := object.Pod
	if object.Container != nil {
		pod = &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{*object.Container}}}
	}
	if pod == nil {
		return nil, nil
	}
	var hashes []ContainerHash
	for kind, container := range Containers(&pod.Spec) {
		sums, err := Hashes(container, version, source)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", object, err)
		}
		h := ContainerHash{Container: container.Name, Hash: sums[0], Defaulted: IsDefaulted(container)}
		if kind != AppContainer {
			h.Kind = kind
		}
		if object.Kind != "" {
			h.Namespace, h.Object = object.Namespace, object.Kind+"/"+object.Name
		}
		hashes = append(hashes, h)
	}
	return hashes, nil
}
