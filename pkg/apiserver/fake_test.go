package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

var (
	core    = schema.GroupVersion{Version: "v1"}
	pods    = discovery.Resource{GroupVersion: core, Name: "pods", Kind: "Pod", Namespaced: true}
	nodes   = discovery.Resource{GroupVersion: core, Name: "nodes", Kind: "Node"}
	web     = pods.Object("shop", "web")
	podText = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"}}`
)

// serve starts a server and returns a client of it whose pauses are short.
func serve(t *testing.T, handler http.HandlerFunc) *Server {
	t.Helper()
	return serveWith(t, Options{}, handler)
}

func serveWith(t *testing.T, o Options, handler http.HandlerFunc) *Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	if o.Pause == 0 {
		o.Pause = time.Millisecond
	}
	o.QPS = -1
	client, err := New(&rest.Config{Host: server.URL, BearerToken: "secret"}, o)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// says answers with a text.
func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
}

// status is what a server says of a failure.
func status(code int, reason metav1.StatusReason, name string) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: "refused by the test",
		Details: &metav1.StatusDetails{Name: name, Kind: "pods"},
	}
}

func fail(w http.ResponseWriter, s metav1.Status) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(s.Code))
	_ = json.NewEncoder(w).Encode(s)
}

func refusing(code int, reason metav1.StatusReason, name string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fail(w, status(code, reason, name)) }
}

// fakeServer answers for discovery as a server of its version does.
type fakeServer struct {
	minor   kubever.Minor
	failing map[string]int // code, by path
	without map[string]bool
	custom  []string // groups, each with a resource

	mu    sync.Mutex
	asked []string
}

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked = append(f.asked, r.URL.Path)
	f.mu.Unlock()
	accept := r.Header.Get("Accept")
	if code := f.failing[r.URL.Path]; code != 0 {
		fail(w, status(code, metav1.StatusReasonUnknown, ""))
		return
	}
	switch path := r.URL.Path; {
	case path == "/version":
		answer(w, map[string]string{"major": "1", "minor": fmt.Sprint(int(f.minor)),
			"gitVersion": f.minor.String() + ".0"})
	case path == "/readyz" && f.minor >= 16, path == "/healthz":
		fmt.Fprint(w, "ok")
	case path == "/api" || path == "/apis":
		aggregated := strings.Contains(accept, "as=APIGroupDiscoveryList")
		switch {
		case f.minor == 6 && aggregated:
			fail(w, status(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, ""))
		case f.minor >= 27 && aggregated:
			answer(w, f.aggregated(path == "/api"))
		case path == "/api":
			answer(w, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
		default:
			answer(w, f.groups())
		}
	default:
		gv, err := schema.ParseGroupVersion(strings.TrimPrefix(strings.TrimPrefix(path, "/apis/"), "/api/"))
		list := f.resources(gv)
		if err != nil || list == nil {
			http.NotFound(w, r)
			return
		}
		answer(w, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: gv.String(),
			APIResources: list})
	}
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

// versions are those that the minor serves by default, by group.
func (f *fakeServer) versions() (order []string, versions map[string][]string) {
	versions = map[string][]string{}
	add := func(gv schema.GroupVersion) {
		if f.without[gv.Group] {
			return
		}
		if versions[gv.Group] == nil {
			order = append(order, gv.Group)
		}
		for _, known := range versions[gv.Group] {
			if known == gv.Version {
				return
			}
		}
		versions[gv.Group] = append(versions[gv.Group], gv.Version)
	}
	for _, api := range kubever.APIResources(f.minor) {
		if api.DefaultOn.Has(f.minor) {
			add(api.GroupVersion)
		}
	}
	for _, group := range f.custom {
		add(schema.GroupVersion{Group: group, Version: "v1"})
	}
	return order, versions
}

func (f *fakeServer) groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList"}}
	order, versions := f.versions()
	for _, name := range order {
		if name == "" {
			continue
		}
		group := metav1.APIGroup{Name: name}
		for _, version := range versions[name] {
			group.Versions = append(group.Versions,
				metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + version, Version: version})
		}
		group.PreferredVersion = group.Versions[0]
		list.Groups = append(list.Groups, group)
	}
	return list
}

func (f *fakeServer) resources(gv schema.GroupVersion) []metav1.APIResource {
	var list []metav1.APIResource
	for _, api := range kubever.APIResources(f.minor) {
		if api.GroupVersion != gv || !api.DefaultOn.Has(f.minor) || f.without[gv.Group] {
			continue
		}
		verbs := metav1.Verbs{"get", "list", "watch"}
		list = append(list, metav1.APIResource{Name: api.Name, Kind: api.Kind, Namespaced: api.Namespaced,
			Verbs: verbs})
		for _, sub := range api.Subresources(f.minor) {
			list = append(
				list, metav1.APIResource{Name: api.Name + "/" + sub, Kind: api.Kind, Namespaced: api.Namespaced})
		}
	}
	for _, group := range f.custom {
		if gv.Group == group {
			list = append(list, metav1.APIResource{Name: "widgets", Kind: "Widget", Namespaced: true,
				Verbs: metav1.Verbs{"get", "list"}})
		}
	}
	return list
}

// aggregated is the form of today's servers.
func (f *fakeServer) aggregated(legacy bool) any {
	type object = map[string]any
	var items []object
	order, versions := f.versions()
	for _, name := range order {
		if legacy != (name == "") {
			continue
		}
		group := object{"metadata": object{"name": name}}
		var list []object
		for _, v := range versions[name] {
			gv := schema.GroupVersion{Group: name, Version: v}
			version := object{"version": v, "freshness": "Current"}
			if f.failing[discovery.GroupVersionPage(gv).String()] != 0 {
				version["freshness"] = "Stale"
			}
			var resources []object
			for _, r := range resourcesOf(gv, f.resources(gv)) {
				scope := "Cluster"
				if r.Namespaced {
					scope = "Namespaced"
				}
				var subresources []object
				for _, sub := range r.Subresources {
					subresources = append(subresources, object{"subresource": sub.Name, "responseKind": object{}})
				}
				resources = append(resources, object{"resource": r.Name, "scope": scope, "verbs": r.Verbs,
					"subresources": subresources,
					"responseKind": object{"group": name, "version": v, "kind": r.Kind}})
			}
			version["resources"] = resources
			list = append(list, version)
		}
		group["versions"] = list
		items = append(items, group)
	}
	return object{"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items}
}
