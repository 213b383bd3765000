package migrate

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// Resource is what is migrated: a custom resource, or one that is built in. Shape:
// {"name":"pizzas.restaurant.example","group":"restaurant.example","plural":"pizzas","kind":"Pizza","namespaced":true,
// "key":"restaurant.example/pizzas"}
type Resource struct {
	Name       string `json:"name"`  // plural and group, as access rules have it; plural alone in the core group
	Group      string `json:"group"` // through which its objects are read and written
	Plural     string `json:"plural"`
	Kind       string `json:"kind"`
	Namespaced bool   `json:"namespaced"`
	// of its objects in the store, below the prefix: "restaurant.example/pizzas", "deployments"
	Key     string `json:"key"`
	BuiltIn bool   `json:"builtIn,omitempty"`
	// Access is the apiVersion through which the objects of one that is built in are read and written.
	Access string `json:"access,omitempty"`
}

// APIVersion is a version of the resource's group as objects have it: "restaurant.example/v1", or "v1".
func (r Resource) APIVersion(version string) string {
	if r.Group == "" {
		return version
	}
	return r.Group + "/" + version
}

// SplitName splits "pizzas.restaurant.example" into plural and group; the core group is "".
func SplitName(name string) (plural, group string) {
	plural, group, _ = strings.Cut(name, ".")
	return plural, group
}

// StorageHash is what discovery says of a resource whose objects are written in this apiVersion and kind.
// Source: k8s.io/apiserver pkg/endpoints/discovery, storageVersionHash of servers since 1.14.
func StorageHash(apiVersion, kind string) string {
	if !strings.Contains(apiVersion, "/") {
		apiVersion = "/" + apiVersion
	}
	sum := sha256.Sum256([]byte(apiVersion + "/" + kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}
