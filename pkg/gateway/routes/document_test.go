package routes

import (
	"encoding/json"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

func TestEntryIsTheRowAsADocument(t *testing.T) {
	apps := schema.GroupVersion{Group: "apps", Version: "v1"}
	row := Row{
		Resource: discovery.Resource{GroupVersion: apps, Name: "deployments", Kind: "Deployment", Namespaced: true,
			Verbs: []string{"get"}, Subresources: []discovery.Subresource{{Name: "scale"}}},
		Way: Both, Stream: pair.Legacy, Why: "because",
		As: map[pair.Side]schema.GroupVersionResource{
			pair.Legacy: {Group: "extensions", Version: "v1beta1", Resource: "deployments"}},
	}
	for _, test := range []struct {
		row  Row
		want string
	}{
		{row, `{"group":"apps","version":"v1","resource":"deployments","kind":"Deployment","namespaced":true,` +
			`"way":"both","stream":"legacy","as":{"legacy":"extensions/v1beta1"},"verbs":["get"],` +
			`"subresources":["scale"],"why":"because"}`},
		{Row{Resource: discovery.Resource{GroupVersion: schema.GroupVersion{Version: "v1"}, Name: "pods"}, Way: Owner,
			Read: pair.Modern, Write: pair.Legacy},
			`{"group":"","version":"v1","resource":"pods","kind":"","namespaced":false,"way":"owner",` +
				`"read":"modern","write":"legacy","verbs":[],"why":""}`},
	} {
		if got, err := json.Marshal(test.row.Entry()); err != nil || string(got) != test.want {
			t.Errorf("Entry of %s = %s, %v; want %s", test.row.Name, got, err, test.want)
		}
	}
}

func TestGapsNameTheirSide(t *testing.T) {
	sources := Sources{Legacy: Served{Result: &discovery.Result{}}, Modern: Served{Result: &discovery.Result{}}}
	if err := sources.Gaps(); err != nil {
		t.Errorf("Gaps of sides that answered = %v", err)
	}
	sources.Modern.Unready = errors.New("starting")
	want := "not all that is served is known: the modern side: " + sources.Modern.Gaps().Error()
	if err := sources.Gaps(); err == nil || err.Error() != want {
		t.Errorf("Gaps = %v, want %s", err, want)
	}
}
