package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// A Table has the objects of a side that makes none, in the columns of the API servers of today.
func TestTablesOfASideThatMakesNone(t *testing.T) {
	x, _ := converted(t)
	release, err := kubever.Parse("1.6.13")
	if err != nil {
		t.Fatal(err)
	}
	x.gateway.at(pair.Legacy).says(release)
	const listed = `{"kind":"DeploymentList","apiVersion":"extensions/v1beta1","metadata":{"resourceVersion":"7"},
		"items":[%s]}`
	item := strings.Replace(strings.Replace(oldDeployment("extensions/v1beta1"), `"kind":"Deployment","apiVersion":
		"extensions/v1beta1",`, "", 1), `"uid":"u"`, `"uid":"u","resourceVersion":"5"`, 1)
	item = strings.Replace(item, `,"strange":{"revision":2}`, "", 1)
	x.legacy.page("GET "+older, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "as=") { // 1.6 refuses what it does not know
			status(w, http.StatusNotAcceptable, "NotAcceptable")
			return
		}
		items := item
		if r.URL.Query().Get("labelSelector") != "" {
			items = ""
		}
		if r.URL.Query().Get("fieldSelector") != "" { // nothing that 1.36 reads
			items = strings.Replace(item, `"replicas":1`, `"replicas":"one"`, 1)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, listed, items)
	})
	x.modern.page("GET "+collection, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},
			"columnDefinitions":[{"name":"Name","type":"string","format":"name"},{"name":"Ready","type":"string"}],
			"rows":[{"cells":["new","1/1"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",
			"metadata":{"name":"new","namespace":"a","uid":"v","resourceVersion":"6"}}}]}`)
	})
	const form = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	table := func(path string) (table metav1.Table, sides []string) {
		t.Helper()
		text := x.wants("GET", path, "", http.StatusOK, `"kind":"Table"`, form)
		if err := json.Unmarshal([]byte(text), &table); err != nil {
			t.Fatal(err)
		}
		for _, row := range table.Rows {
			var object metav1.PartialObjectMetadata
			if len(row.Object.Raw) > 0 {
				if err := json.Unmarshal(row.Object.Raw, &object); err != nil {
					t.Fatal(err)
				}
			}
			sides = append(sides, object.Kind+" "+object.Name+" "+object.Annotations["kubefusion.dev/side"]+" "+
				object.ResourceVersion)
		}
		return table, sides
	}
	cell := func(table metav1.Table, row int, column string) any {
		t.Helper()
		for i, c := range table.ColumnDefinitions {
			if c.Name == column {
				return table.Rows[row].Cells[i]
			}
		}
		t.Fatalf("no column %s in %v", column, table.ColumnDefinitions)
		return nil
	}
	for _, path := range []string{collection, older} {
		got, objects := table(path)
		if diff := cmp.Diff([]string{"PartialObjectMetadata new modern m6", "PartialObjectMetadata old legacy l5"},
			objects); diff != "" {
			t.Fatalf("GET %s (-want +got):\n%s", path, diff)
		}
		for column, want := range map[string][2]any{"Name": {"new", "old"}, "Ready": {"1/1", "0/1"},
			"Images": {"<unknown>", "i,j"}} {
			for row := range want {
				if got := cell(got, row, column); got != want[row] {
					t.Errorf("GET %s: row %d has %s %v, want %v", path, row, column, got, want[row])
				}
			}
		}
	}
	if _, objects := table(collection + "?includeObject=Object"); !strings.HasPrefix(objects[1], "Deployment old") {
		t.Errorf("with whole objects: %v", objects)
	}
	if none, _ := table(collection + "?labelSelector=a%3Db"); len(none.Rows) != 1 || len(none.ColumnDefinitions) < 3 {
		t.Errorf("of none on the legacy side: %v", none)
	}
	if odd, _ := table(older + "?fieldSelector=a%3Db"); len(odd.Rows) != 2 || cell(odd, 1, "Name") != "old" ||
		cell(odd, 1, "Up-to-date") != "<unknown>" {
		t.Errorf("of what cannot be read: %v", odd)
	}
	for _, version := range []string{"v1", "v1beta1"} {
		of := `"apiVersion":"meta.k8s.io/` + version + `"`
		text := x.wants("GET", collection+"/old", "", http.StatusOK, of,
			"Accept: application/json;as=Table;v="+version+";g=meta.k8s.io")
		if strings.Count(text, of) != 2 {
			t.Errorf("a Table of %s, and what is in it: %s", version, text)
		}
	}
	got, objects := table(collection + "/old")
	if len(objects) != 1 || objects[0] != "PartialObjectMetadata old legacy l5" || cell(got, 0, "Up-to-date") != 0.0 {
		t.Errorf("by name: %v, %v", objects, got)
	}
}

// A watch of Tables has the events of a side that makes none as rows below the columns of the others.
func TestTablesOfWatches(t *testing.T) {
	x, _ := converted(t)
	release, err := kubever.Parse("1.6.13")
	if err != nil {
		t.Fatal(err)
	}
	x.gateway.at(pair.Legacy).says(release)
	old := strings.Replace(oldDeployment("extensions/v1beta1"), `"uid":"u"`, `"uid":"u","resourceVersion":"5"`, 1)
	var gone atomic.Pointer[chan struct{}]
	x.legacy.page("GET "+older, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "as=") {
			status(w, http.StatusNotAcceptable, "NotAcceptable")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		<-*gone.Load()
		for _, version := range []string{"5", "6"} {
			fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`, strings.Join(strings.Fields(
				strings.Replace(old, `"resourceVersion":"5"`, `"resourceVersion":"`+version+`"`, 1)), " "))
		}
		fmt.Fprintf(w, `{"type":"DELETED","object":%s}`, strings.NewReplacer(`"resourceVersion":"5"`,
			`"resourceVersion":"7"`, `"name":"old"`, `"name":"gone"`).Replace(old))
		fmt.Fprint(w, `{"type":"BOOKMARK","object":{"kind":"Deployment","apiVersion":"extensions/v1beta1",
			"metadata":{"resourceVersion":"8"},"spec":{"template":{}}}}`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	x.modern.page("GET "+collection, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"type":"ADDED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{
			"resourceVersion":"6"},"columnDefinitions":[{"name":"Ready","type":"string"},{"name":"Name","type":"string"},
			{"name":"New","type":"string"}],"rows":[{"cells":["1/1","new","x"],"object":{
			"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"new","namespace":"a",
			"uid":"v","resourceVersion":"6"}}}]}}`)
		fmt.Fprint(w, `{"type":"BOOKMARK","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{
			"resourceVersion":"9"},"rows":[{"cells":["0/0","","x"],"object":{"kind":"PartialObjectMetadata",
			"apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"}}}]}}`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	for _, test := range []struct{ path, include, kind string }{{collection, "", "PartialObjectMetadata"},
		{collection, "Object", "Deployment"}, {collection, "None", ""}} {
		came := make(chan struct{})
		gone.Store(&came)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, x.url+test.path+"?watch=1&includeObject="+
			test.include, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Test-Certificate", "alice")
		r.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
		response, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := response.Header.Get("Content-Type"); !strings.Contains(got, "as=Table") {
			t.Errorf("the watch is of %q", got)
		}
		decoder := json.NewDecoder(response.Body)
		var got []string
		for i := range 6 {
			if i == 2 {
				close(came) // the columns are those of the other side
			}
			var e struct {
				Type   string
				Object metav1.Table
			}
			if err := decoder.Decode(&e); err != nil {
				t.Fatalf("after %v: %v", got, err)
			}
			if (len(e.Object.ColumnDefinitions) > 0) != (i == 0) || len(e.Object.Rows) != 1 {
				t.Fatalf("event %d has columns %v, rows %v", i, e.Object.ColumnDefinitions, e.Object.Rows)
			}
			row := e.Object.Rows[0]
			var object metav1.PartialObjectMetadata
			if len(row.Object.Raw) > 0 {
				if err := json.Unmarshal(row.Object.Raw, &object); err != nil {
					t.Fatal(err)
				}
			}
			if side := object.Annotations["kubefusion.dev/side"]; object.Name == "new" && side != "modern" ||
				object.Name == "old" && (side != "legacy" || object.Kind != test.kind) {
				t.Errorf("includeObject=%s: %s", test.include, row.Object.Raw)
			}
			if at := object.ResourceVersion; at != "" && at != e.Object.ResourceVersion {
				t.Errorf("an object has version %q, its event %q", at, e.Object.ResourceVersion)
			}
			got = append(got, fmt.Sprint(e.Type, " ", e.Object.ResourceVersion, " ", row.Cells))
		}
		response.Body.Close()
		if diff := cmp.Diff([]string{"ADDED m6 [1/1 new x]", "BOOKMARK m9 [0/0  x]",
			"MODIFIED l5m9 [0/1 old <unknown>]",
			"MODIFIED l6m9 [0/1 old <unknown>]", "DELETED l7m9 [0/1 gone <unknown>]",
			"BOOKMARK l8m9 [0/1  <unknown>]"}, got); diff != "" {
			t.Errorf("includeObject=%s (-want +got):\n%s", test.include, diff)
		}
	}
}

// A kind that Kubernetes does not have has its name and age.
func TestTablesOfCustomResources(t *testing.T) {
	x, _, _ := pizzeria(t)
	release, err := kubever.Parse("1.10.13")
	if err != nil {
		t.Fatal(err)
	}
	x.gateway.at(pair.Legacy).says(release)
	const v1 = restaurant + "/v1" + pizzas
	x.modern.say("GET "+v1+"/margherita", http.StatusNotFound, "{}")
	x.wants("GET", v1+"/margherita", "", http.StatusOK, `"cells":["margherita",`,
		"Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
}

// TestObjectsThatLookLikeLists: what a custom resource calls its kind and its fields makes no list of one object.
func TestObjectsThatLookLikeLists(t *testing.T) {
	converter, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	b := &both{Gateway: &Gateway{messages: converter}, query: url.Values{}, r: httptest.NewRequest("GET", "/", nil),
		exchange: &exchange{own: &share{workers: newWorkers()}}}
	for _, text := range []string{
		`{"apiVersion":"example.com/v1","kind":"AllowList","metadata":{"name":"one"}}`,
		`{"apiVersion":"example.com/v1","kind":"Menu","metadata":{"name":"one"},"items":["pizza",{"a":1}]}`,
		`{"apiVersion":"example.com/v1","kind":"Menu","metadata":{"name":"one"},"items":[]}`,
	} {
		kind := "AllowListList"
		if !strings.Contains(text, "AllowList") {
			kind = "MenuList"
		}
		for body, list := range map[string]bool{text: false,
			`{"apiVersion":"example.com/v1","kind":"` + kind + `","items":[` + text + `]}`: true} {
			var table metav1.Table
			made, err := b.tabled([]byte(body), list, "")
			if err == nil {
				err = json.Unmarshal(made, &table)
			}
			if err != nil || len(table.Rows) != 1 || table.Rows[0].Cells[0] != "one" {
				t.Errorf("%s: %s, %v", body, made, err)
			}
		}
	}
	if made, err := b.tabled([]byte(`{"apiVersion":"v1","kind":"PodList","items":{}}`), true, ""); err == nil {
		t.Errorf("a list without a list: %s", made)
	}
}

// TestRowsOfObjectsThatNoServerValidated: a printer that ends in a panic costs one row, not every list of the kind.
func TestRowsOfObjectsThatNoServerValidated(t *testing.T) {
	converter, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	b := &both{Gateway: &Gateway{messages: converter}, query: url.Values{}}
	for _, text := range []string{
		`{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"hostile","annotations":
			{"autoscaling.alpha.kubernetes.io/metrics":"[{\"type\":\"Object\"}]"}}}`,
		`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"hostile"},
			"spec":{"metrics":[{"type":"Pods"}]}}`,
	} {
		object := &unstructured.Unstructured{}
		if err := utiljson.Unmarshal([]byte(text), &object.Object); err != nil {
			t.Fatal(err)
		}
		gvk := object.GroupVersionKind()
		table, err := b.rowOf(gvk, &unstructured.Unstructured{Object: map[string]any{}})
		if err != nil {
			t.Fatal(err)
		}
		table.Rows = nil
		b.addRow(table, gvk, object)
		if len(table.Rows) != 1 || len(table.Rows[0].Cells) != len(table.ColumnDefinitions) ||
			table.Rows[0].Cells[0] != "hostile" {
			t.Errorf("%s: %v", text, table.Rows)
		}
	}
}
