// Package etcdsplit answers one question about a store: whose key is this? It holds the ownership map of a fused
// control plane, the classifier of keys, the reader of what is stored under them, and the scan that compares the two.
//
// The package is pure: it reads stores through the Pager that it is given and returns findings. A live etcd stands
// behind the Pager in package etcdv3, an offline file in package snapshot.
package etcdsplit

import (
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// RowOf finds the row of the map for a classified key; nil when the map does not know the resource.
func RowOf(m *pair.Map, k Key) *pair.Resource {
	var wildcard *pair.Resource
	group, _, grouped := strings.Cut(k.Resource, "/")
	for i := range m.Resources {
		r := &m.Resources[i]
		if r.Key == k.Resource || (k.Resource == rangesResource && r.Key == k.Resource+"/"+k.Name) {
			return r
		}
		if stem, ok := strings.CutSuffix(r.Key, "/*"); ok && grouped && stem == group {
			wildcard = r
		}
	}
	if wildcard == nil && k.Form == FormGrouped {
		return &m.CustomResources
	}
	return wildcard
}

// readable reports whether every side that reads the resource from the store reads what is stored as the type.
func readable(r *pair.Resource, store string, as stored) bool {
	for _, side := range r.Readers(store) {
		s := r.View(side)
		if !slices.Contains(s.Decodes, as.APIVersion) || slices.Contains(s.WatchBreaks, as.APIVersion) {
			return false
		}
	}
	return as.Kind == r.Kind && as.Encoding != CBOR
}
