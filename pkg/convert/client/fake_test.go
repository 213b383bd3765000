package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// fakeServer serves what a minor serves by default, and keeps objects as any server does: under their path, in the
// version they came in, with resource versions and conflicts. It refuses what a server refuses, and records what
// reaches it.
type fakeServer struct {
	*httptest.Server
	t testing.TB

	mu       sync.Mutex
	minor    kubever.Minor
	custom   map[string][]metav1.APIResource // further groups and versions
	failing  map[string]bool                 // versions whose discovery fails
	objects  map[string]map[string]any       // by path
	version  int
	requests []string // METHOD path?query
	bodies   []string
	before   map[string]func() // by METHOD path, once: what happens just before
	events   []string          // what a watch sends
	forbid   string            // a method
	unnamed  bool              // /version says nothing
}

func newFakeServer(t testing.TB, minor kubever.Minor) *fakeServer {
	f := &fakeServer{t: t, minor: minor, custom: map[string][]metav1.APIResource{}, failing: map[string]bool{},
		objects: map[string]map[string]any{}, before: map[string]func(){}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// config is for the programs that are to work with the server.
func (f *fakeServer) config(options Options) *rest.Config {
	f.t.Helper()
	config, err := Config(&rest.Config{Host: f.URL, QPS: -1}, options)
	if err != nil {
		f.t.Fatal(err)
	}
	return config
}

func (f *fakeServer) put(path string, object string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var value map[string]any
	if err := json.Unmarshal([]byte(object), &value); err != nil {
		f.t.Fatal(err)
	}
	f.store(path, value)
}

func (f *fakeServer) at(path string) map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.objects[path]
}

// sent lists the requests that were no discovery, and forgets them.
func (f *fakeServer) sent() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	sent := f.requests
	f.requests = nil
	return sent
}

func (f *fakeServer) store(path string, object map[string]any) {
	f.version++
	metadata, _ := object["metadata"].(map[string]any)
	metadata["resourceVersion"] = strconv.Itoa(f.version)
	f.objects[path] = object
}

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.discovery(w, r) {
		return
	}
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.requests = append(f.requests, r.Method+" "+r.URL.RequestURI())
	f.bodies = append(f.bodies, string(body))
	hook := f.before[r.Method+" "+r.URL.Path]
	delete(f.before, r.Method+" "+r.URL.Path)
	f.mu.Unlock()
	if hook != nil {
		hook()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	about, err := parseTarget("", r.URL.Path)
	if f.forbid == r.Method {
		f.fail(w, http.StatusForbidden, metav1.StatusReasonForbidden, about, "forbidden")
		return
	}
	if err == nil && about.connects() {
		w.Write(body)
		return
	}
	if err != nil || !f.serves(about) {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	path := strings.TrimSuffix(r.URL.Path, "/status")
	object := f.objects[path]
	var sent map[string]any
	if len(body) > 0 {
		if err := json.Unmarshal(body, &sent); err != nil {
			f.fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, about, err.Error())
			return
		}
		if of, gv := sent["apiVersion"], about.GroupVersion.String(); r.Method != http.MethodDelete &&
			about.subresource != "eviction" && about.subresource != "scale" && of != gv {
			f.fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, about,
				fmt.Sprintf("the API version in the data (%v) does not match the expected API version (%s)", of, gv))
			return
		}
	}
	switch {
	case r.URL.Query().Get("watch") == "true":
		w.Header().Set("Content-Type", "application/json")
		for _, event := range f.events {
			io.WriteString(w, event+"\n")
		}
	case r.Method == http.MethodPost && about.name != "":
		f.answer(w, http.StatusCreated, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	case r.Method == http.MethodPost:
		metadata, _ := sent["metadata"].(map[string]any)
		f.store(fmt.Sprintf("%s/%s", path, metadata["name"]), sent)
		f.answer(w, http.StatusCreated, sent)
	case about.name == "" && r.Method == http.MethodGet:
		f.list(w, r, about)
	case r.Method == http.MethodPatch && strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch"):
		code := http.StatusOK
		if object == nil {
			code = http.StatusCreated
		}
		f.answer(w, code, sent) // what is applied: merging it is for real servers
	case object == nil:
		f.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, about,
			fmt.Sprintf("%s %q not found", about.groupResource(), about.name))
	case r.Method == http.MethodPut:
		if version := resourceVersion(sent); version != "" && version != resourceVersion(object) {
			f.fail(w, http.StatusConflict, metav1.StatusReasonConflict, about,
				fmt.Sprintf("Operation cannot be fulfilled on %s %q: the object has been modified",
					about.groupResource(), about.name))
			return
		}
		f.store(path, sent)
		f.answer(w, http.StatusOK, sent)
	case r.Method == http.MethodDelete:
		delete(f.objects, path)
		f.answer(w, http.StatusOK, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	default:
		f.answer(w, http.StatusOK, object)
	}
}

func (f *fakeServer) list(w http.ResponseWriter, r *http.Request, about target) {
	items := []any{}
	kind := ""
	for path, object := range f.objects {
		if strings.HasPrefix(path, r.URL.Path+"/") {
			item := map[string]any{}
			for key, value := range object {
				if key != "kind" && key != "apiVersion" { // as servers do
					item[key] = value
				}
			}
			kind, _ = object["kind"].(string)
			items = append(items, item)
		}
	}
	metadata := map[string]any{"resourceVersion": strconv.Itoa(f.version)}
	if r.URL.Query().Get("limit") != "" {
		metadata["continue"] = "token-of-the-server"
	}
	f.answer(w, http.StatusOK, map[string]any{"kind": kind + "List", "apiVersion": about.GroupVersion.String(),
		"metadata": metadata, "items": items})
}

func (f *fakeServer) fail(w http.ResponseWriter, code int, reason metav1.StatusReason, about target, message string) {
	f.answer(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Message: message,
		Reason: reason, Code: int32(code),
		Details: &metav1.StatusDetails{Name: about.name, Group: about.Group, Kind: about.resource},
	})
}

func (f *fakeServer) answer(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(value)
}

func (f *fakeServer) serves(about target) bool {
	for _, resource := range f.resources(about.GroupVersion.String()) {
		if resource.Name == about.resource {
			return true
		}
	}
	return false
}

func (f *fakeServer) resources(groupVersion string) []metav1.APIResource {
	resources := f.custom[groupVersion]
	for _, api := range kubever.APIResources(f.minor) {
		if api.GroupVersion.String() != groupVersion || !api.DefaultOn.Has(f.minor) {
			continue
		}
		resources = append(resources, metav1.APIResource{Name: api.Name, Kind: api.Kind, Namespaced: api.Namespaced,
			Verbs: metav1.Verbs{"get", "list", "watch"}})
		for _, sub := range api.Subresources(f.minor) {
			resources = append(resources, metav1.APIResource{Name: api.Name + "/" + sub, Kind: api.Kind,
				Namespaced: api.Namespaced})
		}
	}
	return resources
}

func (f *fakeServer) discovery(w http.ResponseWriter, r *http.Request) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == "/version" && f.unnamed:
		f.answer(w, http.StatusOK, map[string]any{})
	case r.URL.Path == "/version":
		f.answer(w, http.StatusOK, map[string]any{"major": "1", "minor": strconv.Itoa(int(f.minor)),
			"gitVersion": "v" + f.minor.String() + ".0"})
	case r.URL.Path == "/readyz" || r.URL.Path == "/healthz":
		_, _ = io.WriteString(w, "ok")
	case f.minor == 6 && strings.Contains(r.Header.Get("Accept"), "g=apidiscovery"):
		f.answer(w, http.StatusNotAcceptable, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status: "Failure", Reason: metav1.StatusReasonNotAcceptable, Code: 406})
	case r.URL.Path == "/api":
		f.answer(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"},
			Versions: []string{"v1"}})
	case r.URL.Path == "/apis":
		f.answer(w, http.StatusOK, f.groups())
	case r.URL.Path == "/api/v1" || parts[0] == "apis" && len(parts) == 3:
		gv := strings.Join(parts[1:], "/")
		resources := f.resources(gv)
		if f.failing[gv] {
			f.fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, target{},
				"the server is currently unable to handle the request")
		} else if len(resources) == 0 {
			http.Error(w, "404 page not found", http.StatusNotFound)
		} else {
			f.answer(w, http.StatusOK,
				metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
					GroupVersion: gv, APIResources: resources})
		}
	default:
		return false
	}
	return true
}

func (f *fakeServer) groups() metav1.APIGroupList {
	versions := map[string][]string{}
	var order []string
	add := func(gv string) {
		group, version, ok := strings.Cut(gv, "/")
		if !ok {
			return
		}
		if versions[group] == nil {
			order = append(order, group)
		}
		for _, known := range versions[group] {
			if known == version {
				return
			}
		}
		versions[group] = append(versions[group], version)
	}
	for _, api := range kubever.APIResources(f.minor) {
		if api.DefaultOn.Has(f.minor) {
			add(api.GroupVersion.String())
		}
	}
	for gv := range f.custom {
		add(gv)
	}
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, name := range order {
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
