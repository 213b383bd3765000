package kubever

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ParseKind reads a kind in a version, in any of the spellings of people: apps/v1/Deployment, v1/Pod,
// Deployment.v1.apps. In place of the kind the plural name of its resource may stand: apps/v1/deployments.
// Errors: none of these. Whether some version has the kind is not checked.
func ParseKind(text string) (schema.GroupVersionKind, error) {
	kind, ok := splitKind(text)
	if !ok {
		return kind, fmt.Errorf("%q: want a group, a version and a kind, such as apps/v1/Deployment, v1/Pod or "+
			"Deployment.v1.apps", text)
	}
	if kind.Kind == strings.ToLower(kind.Kind) { // as resources are named
		if found := KindOf(kind.GroupVersion().WithResource(kind.Kind)); found != "" {
			kind.Kind = found
		}
	}
	return kind, nil
}

func splitKind(text string) (schema.GroupVersionKind, bool) {
	if i := strings.LastIndex(text, "/"); i >= 0 {
		gv, err := schema.ParseGroupVersion(text[:i])
		kind := gv.WithKind(text[i+1:])
		return kind, err == nil && isVersion(kind.Version) && kind.Kind != ""
	}
	if kind, _ := schema.ParseKindArg(text); kind != nil && isVersion(kind.Version) {
		return *kind, kind.Kind != ""
	}
	kind, version, ok := strings.Cut(text, ".")
	return schema.GroupVersionKind{Version: version, Kind: kind}, ok && kind != "" && isVersion(version)
}

// isVersion tells v1beta1 from the first part of a group's name.
func isVersion(version string) bool {
	return len(version) > 1 && version[0] == 'v' && version[1] >= '0' && version[1] <= '9' &&
		!strings.Contains(version, ".")
}
