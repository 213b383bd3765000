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

// A resource that two groups have is known by its short names in the first of them, in all of its versions.
func TestShortNamesAreOfOneGroup(t *testing.T) {
	table := &Table{}
	for _, gv := range []string{"apps/v1", "apps/v1beta1", "extensions/v1beta1"} {
		version, err := schema.ParseGroupVersion(gv)
		if err != nil {
			t.Fatal(err)
		}
		for name, kind := range map[string]string{"deployments": "Deployment", version.Group: "Other"} {
			table.Rows = append(table.Rows, Row{Way: Both, Resource: discovery.Resource{GroupVersion: version,
				Name: name, Kind: kind, ShortNames: []string{"short"}}})
		}
	}
	documents := table.Documents(nil)
	for gv, want := range map[string]int{"apps/v1": 2, "apps/v1beta1": 2, "extensions/v1beta1": 1} {
		version, err := schema.ParseGroupVersion(gv)
		if err != nil {
			t.Fatal(err)
		}
		document, _ := documents.Version(version)
		named := 0
		for _, r := range document.APIResources {
			named += len(r.ShortNames)
		}
		if named != want {
			t.Errorf("%s: %d resources with short names, want %d", gv, named, want)
		}
	}
	for _, row := range table.Rows {
		if len(row.ShortNames) != 1 {
			t.Errorf("the table has lost short names of %v", row.GroupVersionResource())
		}
	}
}
