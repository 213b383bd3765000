package client

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/negotiate"
)

// Negotiation takes kinds, lists of them and resources, of servers that do not say their version, too.
func TestNegotiationByKindListAndResource(t *testing.T) {
	for _, unnamed := range []bool{false, true} {
		server := newFakeServer(t, 15)
		server.unnamed = unnamed
		converter, err := convert.New()
		if err != nil {
			t.Fatal(err)
		}
		live, err := NewLive(&rest.Config{Host: server.URL, QPS: -1}, converter)
		if err != nil {
			t.Fatal(err)
		}
		ingresses := schema.GroupVersion{Group: "networking.k8s.io", Version: "v1"}
		answer, err := live.Kind(t.Context(), ingresses.WithKind("Ingress"))
		if err != nil || answer.Verdict != negotiate.Convert || answer.As.Version != "v1beta1" {
			t.Errorf("a kind: %+v, %v", answer, err)
		}
		of, err := live.Resource(t.Context(), ingresses.WithResource("ingresses"))
		if err != nil || of.As != answer.As || of.Resource.Name != "ingresses" {
			t.Errorf("a resource: %+v, %v", of, err)
		}
		list, err := live.Kind(t.Context(), ingresses.WithKind("IngressList"))
		if err != nil || list.As.Kind != "IngressList" || list.As.Version != "v1beta1" ||
			list.Asked.Kind != "IngressList" {
			t.Errorf("a list: %+v, %v", list, err)
		}
		var unknown *NoResourceError
		if _, err := live.Resource(t.Context(), ingresses.WithResource("boats")); !errors.As(err, &unknown) {
			t.Errorf("a resource that no server has: %v", err)
		}
		seen, err := live.Server(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if seen.Minor.Known() == unnamed {
			t.Errorf("the server: minor %s", seen.Minor)
		}
	}
}
