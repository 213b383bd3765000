package local

import (
	"bytes"
	"reflect"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// TestSlicesOfZonesAreWrittenAgain: what the modern controllers know of zones, nodes and hints is in no way of an older
// legacy side: an EndpointSlice is in v1beta1 what it was, and in v1 afterwards.
func TestSlicesOfZonesAreWrittenAgain(t *testing.T) {
	zone, node, port := "zone-1", "node-1", int32(80)
	yes, no := true, false
	slice := &discoveryv1.EndpointSlice{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1",
		Kind: "EndpointSlice"}, ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b", UID: "u"},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.0.0.1"}, NodeName: &node, Zone: &zone, Conditions: discoveryv1.EndpointConditions{
				Ready: &yes, Serving: &yes, Terminating: &no}},
			{Addresses: []string{"10.0.0.2"}, Zone: &zone, Hints: &discoveryv1.EndpointHints{
				ForZones: []discoveryv1.ForZone{{Name: zone}}}}}}
	serializer := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	var stored bytes.Buffer
	if err := serializer.Encode(slice, &stored); err != nil {
		t.Fatal(err)
	}
	older, err := converted(stored.Bytes(), []string{"discovery.k8s.io/v1beta1"})
	if err != nil {
		t.Fatal(err)
	}
	newer, err := converted(older, []string{"discovery.k8s.io/v1"})
	if err != nil {
		t.Fatal(err)
	}
	var back discoveryv1.EndpointSlice
	if _, _, err := serializer.Decode(newer, nil, &back); err != nil {
		t.Fatal(err)
	}
	if slice.TypeMeta = back.TypeMeta; !reflect.DeepEqual(*slice, back) {
		t.Errorf("it comes back as %+v, want %+v", back, *slice)
	}
}
