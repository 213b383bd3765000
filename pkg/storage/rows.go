// Package storage reads the format in which API servers of Kubernetes 1.6 to 1.36 store objects: the grammar of keys,
// the envelope of a value and the metadata in it, in protobuf, JSON and CBOR. It decodes no more than it is told to,
// and walks values without copying them.
//
// Its package objects knows the types of what is stored as a whole.
package storage

import (
	"strings"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// RowOf finds the row of the map for a classified key; nil when the map does not know the resource.
func RowOf(m *pair.Map, k Key) *pair.Resource {
	var wildcard *pair.Resource
	group, _, grouped := strings.Cut(k.Resource, "/")
	for i := range m.Resources {
		r := &m.Resources[i]
		if r.Key == k.Resource || (k.Resource == RangesResource && r.Key == k.Resource+"/"+k.Name) {
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
