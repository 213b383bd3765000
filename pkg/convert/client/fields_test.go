package client

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/convert/negotiate"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// TestFieldsThatNoReleaseHasAreForgotten: clients name as many as they like, in what lasts as long as a process.
func TestFieldsThatNoReleaseHasAreForgotten(t *testing.T) {
	facts := &fieldFacts{}
	server := &negotiate.Server{Minor: kubever.Minor(10)}
	options := map[string]any{"propagationPolicy": "Orphan"}
	known := func() (n int) {
		facts.known.Range(func(any, any) bool { n++; return true })
		return n
	}
	gvk := schema.GroupVersionKind{Group: "meta.k8s.io", Version: "v1", Kind: "DeleteOptions"}
	facts.unknown(options, gvk, server)
	before := known()
	for n := range 1000 {
		options[fmt.Sprintf("a%d", n)] = 1
	}
	facts.unknown(options, gvk, server)
	if after := known(); before == 0 || after != before {
		t.Errorf("of %d fields %d are known, and %d before", len(options), after, before)
	}
}
