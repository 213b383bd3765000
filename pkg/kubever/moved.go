package kubever

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Moved is a version of a kind that another project than Kubernetes' API has, or had. Releases are those of the
// project. Shape: {cert-manager.io/v1alpha2 Certificate cert-manager 1.4 1.6 cert-manager.io/v1}.
type Moved struct {
	schema.GroupVersion
	Kind        string // "" for every kind
	Project     string
	Deprecated  string // "" when it never was before it went
	Removed     string // "" while it is there
	Replacement string // a group and version, and the kind where that is another; "" for nothing
	Source      string
}

var movedTable = sync.OnceValue(decodeMoved)

func decodeMoved() []Moved {
	var moved []Moved
	for _, r := range readTable("moved.tsv", 7) {
		moved = append(moved, Moved{
			GroupVersion: r.groupVersion(0), Kind: r.text(1), Project: r.text(2), Deprecated: r.text(3),
			Removed:     r.text(4),
			Replacement: r.text(5), Source: r.text(6),
		})
	}
	return moved
}

// MovedKinds lists what is known of other projects.
func MovedKinds() []Moved { return slices.Clone(movedTable()) }
