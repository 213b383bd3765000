package restart

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Matches reports whether a kubelet of one of the accepted minors would have recorded this hash for the container. A
// kubelet that keeps a container when Matches says so takes over what older kubelets started. Shape: recorded is the
// value of the annotation io.kubernetes.container.hash: "48c72f38". The container is that of the pod which the kubelet
// holds, as it holds it, and also as it comes from the API server. Errors: a hash that cannot be parsed, a nil
// container and a minor without facts match nothing. Source: [Hash]. It keeps and changes nothing. Safe for concurrent
// use.
//
// A match means that the container was started from this definition, seen with the fields that the accepted minor has.
// A field which that minor does not know may have been set since: from 1.31 on only the name and the image are hashed
// at all.
func Matches(recorded string, container *v1.Container, accept ...kubever.Minor) bool {
	sum, ok := ParseSum(recorded)
	if !ok {
		return false
	}
	for _, minor := range accept {
		for _, source := range []Source{File, API} {
			sums, err := Hashes(container, kubever.Version{Minor: minor}, source)
			if err == nil && slices.Contains(sums, sum) {
				return true
			}
		}
	}
	return false
}
