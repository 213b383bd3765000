package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/migrate"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

type object = map[string]any

// api answers requests, "GET /path", and notes them.
type api struct {
	t       *testing.T
	mu      sync.Mutex
	answers map[string][]answer // the last one stays
	seen    []string
}

type answer struct {
	code int
	body any
}

func ok(body any) answer { return answer{200, body} }

func fails(code int, reason, next string) answer {
	return answer{code, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
		"reason": reason, "message": "said the test",
		"metadata": object{"continue": next}}}
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	key := r.Method + " " + r.URL.Path
	a.seen = append(a.seen, strings.TrimSpace(fmt.Sprintf("%s?%s %s", key, r.URL.RawQuery, body)))
	list, found := a.answers[key]
	if !found {
		list = []answer{fails(404, "NotFound", "")}
	}
	if key == "GET /apis" && !found {
		list = []answer{a.groups()}
	}
	if len(list) > 1 {
		a.answers[key] = list[1:]
	}
	if text, cut := list[0].body.(string); cut {
		fmt.Fprint(w, text)
		return
	}
	if of, whole := list[0].body.(object); whole {
		asServers(r.URL.Path, list[0].code, of)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(list[0].code)
	if err := json.NewEncoder(w).Encode(list[0].body); err != nil {
		a.t.Error(err)
	}
}

// groups lists those of which there are pages.
func (a *api) groups() answer {
	groups := []object{}
	for key := range a.answers {
		if words := strings.Split(key, "/"); strings.HasPrefix(key, "GET /apis/") && len(words) == 4 {
			groups = append(groups, object{"name": words[2], "versions": []object{{"version": words[3]}}})
		}
	}
	return ok(object{"kind": "APIGroupList", "groups": groups})
}

// kinds are those of the resources in paths.
var kinds = map[string]string{"pizzas": "Pizza", "services": "Service", "endpoints": "Endpoints",
	"customresourcedefinitions": "CustomResourceDefinition", "deployments": "Deployment"}

// asServers adds what a server says of itself in each answer.
func asServers(url string, code int, body object) {
	segments := strings.Split(strings.Trim(url, "/"), "/")
	last := segments[len(segments)-1]
	if code == http.StatusNotFound {
		body["details"] = object{"name": last}
	}
	at := slices.IndexFunc(segments, func(s string) bool { return kinds[s] != "" })
	if code != http.StatusOK || at < 0 {
		if body["resources"] != nil {
			body["kind"] = "APIResourceList"
		}
		return
	}
	body["apiVersion"] = strings.TrimPrefix(strings.Join(segments[1:min(at, 3)], "/"), "/")
	if segments[0] == "api" {
		body["apiVersion"] = "v1"
	}
	body["kind"] = kinds[segments[at]]
	if at == len(segments)-1 {
		body["kind"] = kinds[segments[at]] + "List"
		return
	}
	if body["metadata"] == nil {
		body["metadata"] = object{"name": last, "namespace": segments[at-1]}
	}
}

func serve(t *testing.T, answers map[string][]answer) (*Server, *api) {
	t.Helper()
	a := &api{t: t, answers: answers}
	listening := httptest.NewServer(a)
	t.Cleanup(listening.Close)
	quick := options
	quick.Pause = time.Millisecond
	s, err := open(&rest.Config{Host: listening.URL}, nil, quick)
	if err != nil {
		t.Fatal(err)
	}
	return s, a
}

var pizzas = migrate.Resource{Name: "pizzas.g.example", Group: "g.example", Plural: "pizzas", Kind: "Pizza",
	Namespaced: true, Key: "g.example/pizzas"}

func crd(version string) object {
	return object{"apiVersion": "apiextensions.k8s.io/" + version, "kind": "CustomResourceDefinition",
		"metadata": object{"name": pizzas.Name, "resourceVersion": "1"},
		"spec": object{"group": pizzas.Group, "scope": "Namespaced",
			"names":    object{"plural": "pizzas", "kind": "Pizza"},
			"versions": []object{{"name": "v1", "served": true, "storage": true}}}}
}

func group(versions ...string) answer {
	var list []object
	for _, v := range versions {
		list = append(list, object{"groupVersion": "apiextensions.k8s.io/" + v, "version": v})
	}
	return ok(object{"versions": list})
}

func TestDefinitionsAreReadInTheVersionThatTheServerHas(t *testing.T) {
	for want, offered := range map[string][]string{"v1": {"v1beta1", "v1"}, "v1beta1": {"v1beta1"}} {
		path := "GET /apis/apiextensions.k8s.io/" + want + "/customresourcedefinitions"
		listed := crd(want)
		delete(listed, "apiVersion")
		delete(listed, "kind")
		s, _ := serve(t, map[string][]answer{
			"GET /apis/apiextensions.k8s.io": {group(offered...)},
			path + "/" + pizzas.Name:         {fails(503, "ServiceUnavailable", ""), ok(crd(want))},
			path: {
				ok(object{"apiVersion": "apiextensions.k8s.io/" + want, "items": []object{listed}})},
		})
		if d, err := s.Definition(t.Context(), pizzas.Name); err != nil || d.Resource() != pizzas {
			t.Errorf("%s: %+v, %v", want, d, err)
		}
		if list, err := s.Definitions(t.Context()); err != nil || len(list) != 1 || list[0].Resource() != pizzas {
			t.Errorf("%s: list %+v, %v", want, list, err)
		}
		if _, err := s.Definition(t.Context(), "absent"); !errors.Is(err, ErrNoDefinition) {
			t.Errorf("%s: %v, want ErrNoDefinition", want, err)
		}
	}
	s, _ := serve(t, nil)
	if _, err := s.Definition(t.Context(), pizzas.Name); !errors.Is(err, ErrNoDefinition) {
		t.Errorf("a server without CRDs: %v, want ErrNoDefinition", err)
	}
}

// TestWhatFindsNoPageIsNoServerWithoutTheResource: a proxy, or an address that is no API server's, has none of the
// pages.
func TestWhatFindsNoPageIsNoServerWithoutTheResource(t *testing.T) {
	for name, groups := range map[string]answer{
		"no page": fails(404, "NotFound", ""), "another page": ok(object{"kind": "Welcome"}),
		"lists them": ok(object{"kind": "APIGroupList", "groups": []object{
			{"name": "apiextensions.k8s.io", "versions": []object{{"version": "v1"}}},
			{"name": "apps", "versions": []object{{"version": "v1"}}}}}),
	} {
		s, _ := serve(t, map[string][]answer{"GET /apis": {groups}})
		if _, err := s.Definition(t.Context(), pizzas.Name); err == nil || errors.Is(err, ErrNoDefinition) {
			t.Errorf("%s: Definition = %v, want another error than ErrNoDefinition", name, err)
		}
		if _, _, _, err := s.BuiltIn(t.Context(), "deployments.apps"); err == nil || errors.Is(err, ErrNoDefinition) {
			t.Errorf("%s: BuiltIn = %v, want another error than ErrNoDefinition", name, err)
		}
	}
}

func item(name, resourceVersion string) object {
	return object{"metadata": object{"namespace": "shop", "name": name, "resourceVersion": resourceVersion},
		"Metadata": object{"name": "a field of its own"}}
}

// first is the first page of pizzas, with one of them.
var first = migrate.List{APIVersion: "g.example/v1", Limit: 1}

func TestPageGoesOnWhenTheServerHasForgotten(t *testing.T) {
	path := "GET /apis/g.example/v1/pizzas"
	s, a := serve(t, map[string][]answer{path: {
		fails(406, "NotAcceptable", ""), // 1.6 does not know the form
		ok(object{"metadata": object{"resourceVersion": "9", "continue": "second", "remainingItemCount": 1},
			"items": []object{item("a", "1")}}),
		fails(410, "Expired", "second-now"),
		ok(object{"metadata": object{"resourceVersion": "12"}, "items": []object{item("b", "2")}}),
		ok(object{"metadata": object{"resourceVersion": "13"}, "items": nil}),
	}})
	o := Objects{s, pizzas}
	page, err := o.Page(t.Context(), first)
	want := migrate.Page{Objects: []migrate.Object{{Namespace: "shop", Name: "a", ResourceVersion: "1"}},
		ResourceVersion: "9", Next: "second", Remaining: 1}
	if diff := cmp.Diff(want, page); err != nil || diff != "" {
		t.Fatalf("%v (-want +got):\n%s", err, diff)
	}
	second := first
	second.Token = page.Next
	if page, err = o.Page(t.Context(), second); err != nil ||
		page.Objects[0].Name != "b" || page.Next != "" {
		t.Errorf("%+v, %v; want b", page, err)
	}
	if got := a.seen[len(a.seen)-1]; !strings.Contains(got, "continue=second-now") {
		t.Errorf("%s, want the token that the server gave", got)
	}
	if page, err = o.Page(t.Context(), first); err != nil || len(page.Objects) != 0 {
		t.Errorf("an empty list: %+v, %v", page, err)
	}
}

func TestPageRefusesAListThatIsCutOff(t *testing.T) {
	const begin = `{"kind":"PizzaList","apiVersion":"g.example/v1",`
	whole := begin + `"items":[{"metadata":{"name":"a","resourceVersion":"1"}}]}`
	path := "GET /apis/g.example/v1/pizzas"
	for _, text := range []string{whole[:len(whole)-1], `[]`, begin + `"items":[{}]}`,
		begin + `"items":[{"metadata":{"name":"a"}}]}`, `{"items":[]}`} {
		s, _ := serve(t, map[string][]answer{path: {ok(text)}})
		if page, err := (Objects{s, pizzas}).Page(t.Context(), first); err == nil {
			t.Errorf("%q: %+v, want an error", text, page)
		}
	}
	s, _ := serve(t, map[string][]answer{path: {ok(whole[:len(whole)-1]), ok(whole)}})
	if page, err := (Objects{s, pizzas}).Page(t.Context(), first); err != nil ||
		len(page.Objects) != 1 {
		t.Errorf("a page that was cut off once: %+v, %v, want it read again", page, err)
	}
}

func TestPatchSaysWhatTheServerSays(t *testing.T) {
	const path = "PATCH /apis/g.example/v1/namespaces/shop/pizzas/a"
	for _, c := range []struct {
		answers []answer
		want    error // nil: the object is written
		times   int
	}{
		{[]answer{ok(item("a", "8"))}, nil, 1},
		{[]answer{fails(429, "TooManyRequests", ""), fails(503, "ServiceUnavailable", ""), ok(item("a", "8"))}, nil, 3},
		{[]answer{fails(409, "Conflict", "")}, migrate.ErrConflict, 1},
		{[]answer{fails(404, "NotFound", "")}, migrate.ErrGone, 1},
		{[]answer{fails(422, "Invalid", "")}, errors.ErrUnsupported, 1}, // its own
		{[]answer{fails(500, "InternalError", "")}, errors.ErrUnsupported, 3},
	} {
		s, a := serve(t, map[string][]answer{path: c.answers})
		version, err := Objects{s, pizzas}.Patch(t.Context(), "g.example/v1",
			migrate.Object{Namespace: "shop", Name: "a", ResourceVersion: "7"}, nil)
		own := err != nil && !errors.Is(err, migrate.ErrConflict) && !errors.Is(err, migrate.ErrGone) &&
			!errors.Is(err, migrate.ErrUnreachable)
		if c.want == nil && (err != nil || version != "8") || c.want != nil && !errors.Is(err, c.want) &&
			!(c.want == errors.ErrUnsupported && own) {
			t.Errorf("%v: %q, %v; want %v", c.answers, version, err, c.want)
		}
		if len(a.seen) != c.times || !strings.HasSuffix(a.seen[0], `{"metadata":{"resourceVersion":"7"}}`) {
			t.Errorf("%v: requests %q, want %d", c.answers, a.seen, c.times)
		}
	}
}

func TestSightIsWhatTheStoreShows(t *testing.T) {
	const (
		system  = "GET /api/v1/namespaces/kube-system"
		groups  = "GET /apis/apiextensions.k8s.io"
		list    = "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions"
		pizzaAt = "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions/pizzas.g.example"
	)
	marked := func(name, uid, revision string) answer {
		return ok(object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": name, "uid": uid,
			"resourceVersion": revision}})
	}
	all := ok(object{"metadata": object{"resourceVersion": "77"}, "items": []object{}})
	forbidden := fails(403, "Forbidden", "")
	for name, c := range map[string]struct {
		answers map[string][]answer
		want    witness.Sight
		fails   bool
	}{
		"all": {map[string][]answer{system: {marked("kube-system", "k", "3")}, groups: {group("v1")},
			pizzaAt: {marked(pizzas.Name, "c", "70")},
			list:    {all}}, witness.Sight{Revision: 77, Objects: map[string]witness.Object{
			witness.KubeSystem:                           {UID: "k", Revision: 3},
			"customresourcedefinitions/pizzas.g.example": {UID: "c", Revision: 70}}}, false},
		"an empty store": {map[string][]answer{groups: {group("v1")}, list: {all}},
			witness.Sight{Revision: 77, Objects: map[string]witness.Object{witness.KubeSystem: {},
				"customresourcedefinitions/pizzas.g.example": {}}}, false},
		"what may not be read": {map[string][]answer{system: {forbidden}, groups: {group("v1")},
			pizzaAt: {marked(pizzas.Name, "c", "70")}, list: {forbidden}},
			witness.Sight{Objects: map[string]witness.Object{
				"customresourcedefinitions/pizzas.g.example": {UID: "c", Revision: 70}}}, false},
		"a revision that is none": {
			map[string][]answer{system: {marked("kube-system", "k", "x")}, groups: {group("v1")}},
			witness.Sight{}, true},
		"a server that fails": {map[string][]answer{system: {fails(500, "InternalError", "")}}, witness.Sight{}, true},
	} {
		s, _ := serve(t, c.answers)
		got, err := Objects{s, pizzas}.Sight(t.Context(), "")
		if (err != nil) != c.fails || (!c.fails && !reflect.DeepEqual(got, c.want)) {
			t.Errorf("%s: Sight = %+v, %v; want %+v", name, got, err, c.want)
		}
	}
}

func TestWebhookProblemLooksForEndpoints(t *testing.T) {
	service, endpoints := "GET /api/v1/namespaces/ns/services/hook", "GET /api/v1/namespaces/ns/endpoints/hook"
	ready := object{"subsets": []object{{"addresses": []object{{"ip": "10.0.0.1"}}}}}
	for _, c := range []struct {
		answers map[string][]answer
		want    string
	}{
		{nil, "does not exist"},
		{map[string][]answer{service: {ok(object{})}}, "no endpoint"},
		{map[string][]answer{service: {ok(object{})},
			endpoints: {ok(object{"subsets": []object{{"notReadyAddresses": []object{{"ip": "10.0.0.1"}}}}})}},
			"no endpoint"},
		{map[string][]answer{service: {ok(object{})}, endpoints: {ok(ready)}}, ""},
	} {
		s, _ := serve(t, c.answers)
		got, err := Objects{s, pizzas}.WebhookProblem(t.Context(), migrate.Webhook{Namespace: "ns", Name: "hook"})
		if err != nil || (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%v: %q, %v; want %q", c.answers, got, err, c.want)
		}
	}
}

func TestBuiltInIsFoundByWhatTheServerServes(t *testing.T) {
	resources := func(apiVersion, hash string) answer {
		return ok(object{"groupVersion": apiVersion,
			"resources": []object{
				{"name": "deployments", "kind": "Deployment", "namespaced": true, "storageVersionHash": hash}}})
	}
	s, _ := serve(t, map[string][]answer{
		"GET /apis/apps/v1":            {resources("apps/v1", migrate.StorageHash("apps/v1", "Deployment"))},
		"GET /apis/extensions/v1beta1": {resources("extensions/v1beta1", migrate.StorageHash("apps/v1", "Deployment"))},
	})
	r, served, storage, err := s.BuiltIn(t.Context(), "deployments.apps")
	want := migrate.Resource{Name: "deployments.apps", Group: "apps", Plural: "deployments", Kind: "Deployment",
		Namespaced: true, Key: "deployments", BuiltIn: true, Access: "apps/v1"}
	if diff := cmp.Diff(want, r); err != nil || diff != "" || storage != "apps/v1" || len(served) != 2 {
		t.Errorf("%v, %q, %v (-want +got):\n%s", served, storage, err, diff)
	}
	old, _ := serve(t, map[string][]answer{
		"GET /apis/extensions/v1beta1": {resources("extensions/v1beta1", "")},
		"GET /version":                 {ok(object{"gitVersion": "v1.6.13"})},
	})
	if r, _, storage, err := old.BuiltIn(t.Context(), "deployments.apps"); err != nil ||
		storage != "extensions/v1beta1" || r.Access != "extensions/v1beta1" || r.Group != "extensions" {
		t.Errorf("1.6: %+v, %q, %v", r, storage, err)
	}
	for _, name := range []string{"nonsense.apps", "statefulsets.apps"} {
		if _, _, _, err := s.BuiltIn(t.Context(), name); !errors.Is(err, ErrNoDefinition) {
			t.Errorf("%s: %v, want ErrNoDefinition", name, err)
		}
	}
}

// managedFields come as text, where they are asked for and name what is looked for: decoded, a page of them takes
// gigabytes.
func TestManagedFieldsComeWhereTheyAreAskedFor(t *testing.T) {
	managed := func(name, apiVersion string) object {
		o := item(name, "1")
		o["metadata"].(object)["managedFields"] = []object{{"manager": "m", "apiVersion": apiVersion}}
		return o
	}
	s, _ := serve(t, map[string][]answer{"GET /apis/g.example/v1/pizzas": {ok(object{
		"metadata": object{"resourceVersion": "9"},
		"items":    []object{managed("a", "g.example/v0"), managed("b", "g.example/v1"), item("c", "1")}})}})
	o, list := Objects{s, pizzas}, first
	page, err := o.Page(t.Context(), list)
	if err != nil || len(page.Objects) != 3 || page.ManagedFields != nil {
		t.Errorf("%+v, %v; want no managedFields", page, err)
	}
	list.Managed = "g.example/v0"
	if page, err = o.Page(t.Context(), list); err != nil || len(page.ManagedFields) != 3 {
		t.Fatalf("%+v, %v; want managedFields", page, err)
	}
	if got := string(page.ManagedFields[0]); got != `[{"apiVersion":"g.example/v0","manager":"m"}]` ||
		page.ManagedFields[1] != nil || page.ManagedFields[2] != nil {
		t.Errorf("%q, want those of a alone", page.ManagedFields)
	}
}
