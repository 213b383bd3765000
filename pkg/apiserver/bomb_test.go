package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// many is a list of JSON: text, so many times.
func many(text string, times int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(text+",", times), ",") + "]"
}

// TestDiscoveryOfBombs: an extension API server is trusted with its own group, and a further cluster with itself, and
// neither with the memory of the process that asks. A group that takes too much fails alone.
func TestDiscoveryOfBombs(t *testing.T) {
	const group = "example.test"
	for name, resources := range map[string]string{
		"that decode to gigabytes": many("{}", 10<<20),
		"that are too many":        many(`{"name":"x","kind":"X"}`, limitOfGroupVersion+1),
		"with verbs":               `[{"name":"x","kind":"X","verbs":` + many(`""`, 8<<20) + `}]`,
	} {
		t.Run("resources "+name, func(t *testing.T) {
			f := &fakeServer{minor: 15, custom: []string{group}}
			s := serveWith(t, Options{Attempts: 1}, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/apis/example.test/v1" {
					f.ServeHTTP(w, r)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"kind":"APIResourceList","groupVersion":"example.test/v1","resources":%s}`, resources)
			})
			got, err := s.Discover(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			gv := schema.GroupVersion{Group: group, Version: "v1"}
			if !errors.Is(got.Failed[gv], discovery.ErrNotKubernetes) || len(got.Failed) != 1 {
				t.Errorf("failed: %v, want %s alone", got.Failed, gv)
			}
			if len(got.Resources) < 50 || len(got.Resources) > 500 {
				t.Errorf("%d resources, want those of %s", len(got.Resources), kubever.Minor(15))
			}
		})
	}
}

// TestAggregatedDiscoveryOfBombs: a group that takes too much fails alone in the answer that has all groups, too.
func TestAggregatedDiscoveryOfBombs(t *testing.T) {
	type object = map[string]any
	gv := schema.GroupVersion{Group: "example.test", Version: "v1"}
	for name, resources := range map[string]string{
		"that decode to gigabytes": many("{}", 10<<20),
		"that are too many":        many(`{"resource":"x","responseKind":{"kind":"X"}}`, limitOfGroupVersion+1),
	} {
		t.Run("resources "+name, func(t *testing.T) {
			f := &fakeServer{minor: 36, custom: []string{gv.Group}}
			s := serveWith(t, Options{Attempts: 1}, func(w http.ResponseWriter, r *http.Request) {
				aggregated := strings.Contains(r.Header.Get("Accept"), "as=APIGroupDiscoveryList")
				switch {
				case r.URL.Path == "/apis" && aggregated:
					items := f.aggregated(false).(object)["items"].([]object)
					at := slices.IndexFunc(items, func(item object) bool {
						return item["metadata"].(object)["name"] == gv.Group
					})
					items[at]["versions"].([]object)[0]["resources"] = json.RawMessage(resources)
					answer(w, object{"kind": "APIGroupDiscoveryList", "items": items})
				case r.URL.Path == discovery.GroupVersionPage(gv).String():
					fmt.Fprintf(w, `{"kind":"APIResourceList","groupVersion":%q,"resources":%s}`, gv, resources)
				default:
					f.ServeHTTP(w, r)
				}
			})
			got, err := s.Discover(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !errors.Is(got.Failed[gv], discovery.ErrNotKubernetes) || len(got.Failed) != 1 {
				t.Errorf("failed: %v, want %s alone", got.Failed, gv)
			}
			if len(got.Resources) < 50 || len(got.Resources) > 500 {
				t.Errorf("%d resources, want those of %s", len(got.Resources), kubever.Minor(36))
			}
		})
	}
}

// TestDiscoveryEnds: a server whose groups are many and whose resources are many in each is not read to its end.
func TestDiscoveryEnds(t *testing.T) {
	var groups []metav1.APIGroup
	for i := range 20 {
		groups = append(groups, metav1.APIGroup{Name: fmt.Sprintf("g%d.test", i),
			Versions: []metav1.GroupVersionForDiscovery{{Version: "v1"}}})
	}
	page := many(`{"name":"x","kind":"X"}`, limitOfGroupVersion)
	f := &fakeServer{minor: 15}
	for name, apis := range map[string]func(http.ResponseWriter){
		"resources": func(w http.ResponseWriter) {
			answer(w, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList"}, Groups: groups})
		},
		"groups": func(w http.ResponseWriter) { fmt.Fprintf(w, `{"kind":"APIGroupList","groups":%s}`, many("{}", 10<<20)) },
	} {
		s := serveWith(t, Options{Attempts: 1}, func(w http.ResponseWriter, r *http.Request) {
			at, ok := strings.CutPrefix(r.URL.Path, "/apis/")
			switch {
			case r.URL.Path == "/apis":
				apis(w)
			case ok:
				fmt.Fprintf(w, `{"kind":"APIResourceList","groupVersion":%q,"resources":%s}`, at, page)
			default:
				f.ServeHTTP(w, r)
			}
		})
		if got, err := s.Discover(t.Context()); !errors.Is(err, discovery.ErrNotKubernetes) {
			t.Errorf("%s without end: %v, %v", name, got, err)
		}
	}
}

// TestObjectsThatAreBombs: of a list, a watch, and alone.
func TestObjectsThatAreBombs(t *testing.T) {
	bomb := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one","namespace":"demo","uid":"u","ownerReferences":` +
		many("{}", 5<<20) + `}}`
	list := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[` + bomb + `]}`
	one := pods.Object("demo", "one")
	if _, err := serve(t, says(bomb)).ReadMetadata(t.Context(), one); !errors.Is(err, discovery.ErrNotKubernetes) {
		t.Errorf("reading it alone: %v", err)
	}
	for _, err := range serve(t, says(list)).List(t.Context(), pods.Objects(""), discovery.ListOptions{}) {
		if !errors.Is(err, discovery.ErrNotKubernetes) {
			t.Errorf("listing it: %v", err)
		}
	}
	events, err := serve(t, says(`{"type":"ADDED","object":`+bomb+`}`)).Watch(t.Context(), pods.Objects(""),
		WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	if _, err := events.Next(); !errors.Is(err, discovery.ErrNotKubernetes) {
		t.Errorf("watching it: %v", err)
	}
}
