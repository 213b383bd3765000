package gateway

import (
	"encoding/json"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/gateway/routes"
)

// A version that the gateway serves and no side describes has a document of OpenAPI v3, by which kubectl explains it.
func TestVersionsThatNoSideDescribes(t *testing.T) {
	x, _ := converted(t)
	const list = `{"paths":{"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=A"}}}`
	x.modern.say("GET /openapi/v3", http.StatusOK, list)
	x.modern.say("GET /openapi/v3/apis/apps/v1", http.StatusOK, `{"openapi":"3.0.0","of":"the side"}`)
	x.wants("GET", "/openapi/v3/apis/apps/v1", "", http.StatusOK, "the side")
	x.wants("GET", "/openapi/v3/apis/nothing/v1", "", http.StatusNotFound, "nothing serves")
	var root struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal([]byte(x.wants("GET", "/openapi/v3", "", http.StatusOK, "")), &root); err != nil {
		t.Fatal(err)
	}
	if at := root.Paths["apis/apps/v1"].ServerRelativeURL; at != "/openapi/v3/apis/apps/v1?hash=A" {
		t.Errorf("apps/v1 is at %q", at)
	}
	at := root.Paths["apis/extensions/v1beta1"].ServerRelativeURL
	if !strings.HasPrefix(at, "/openapi/v3/apis/extensions/v1beta1?hash=") {
		t.Fatalf("extensions/v1beta1 is at %q", at)
	}
	var document spec3.OpenAPI
	if err := json.Unmarshal([]byte(x.wants("GET", at, "", http.StatusOK, "")), &document); err != nil {
		t.Fatal(err)
	}
	operation := document.Paths.Paths[older[:strings.Index(older, "/a/")]+"/{namespace}/deployments"].Get
	if operation == nil || operation.Extensions["x-kubernetes-group-version-kind"] == nil {
		t.Fatalf("paths %v", document.Paths.Paths)
	}
	kind := document.Components.Schemas["io.k8s.api.extensions.v1beta1.Deployment"]
	if kind == nil || kind.Extensions["x-kubernetes-group-version-kind"] == nil {
		t.Fatalf("no Deployment among %d schemas", len(document.Components.Schemas))
	}
	follow := func(of *spec.Schema, names ...string) *spec.Schema {
		t.Helper()
		for _, name := range names {
			if of.Items != nil {
				of = of.Items.Schema
			}
			if ref := of.Ref.String(); ref != "" {
				of = document.Components.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")]
			}
			field, ok := of.Properties[name]
			if !ok {
				t.Fatalf("no field %s among %v", name, of.Properties)
			}
			of = &field
		}
		return of
	}
	if got := follow(kind, "spec", "rollbackTo", "revision"); got.Format != "int64" ||
		!strings.Contains(got.Description, "revision to rollback to") {
		t.Errorf("spec.rollbackTo.revision is %+v", got)
	}
	if got := follow(kind, "spec", "template", "spec", "containers", "image"); got.Type[0] != "string" {
		t.Errorf("an image is %+v", got)
	}
	if got := follow(kind, "apiVersion"); got.Description == "" {
		t.Error("apiVersion, of an embedded struct, is not explained")
	}
	// No side has OpenAPI v3: clients look into v2.
	x.modern.say("GET /openapi/v3", http.StatusNotFound, "{}")
	x.wants("GET", "/openapi/v3", "", http.StatusNotFound, "")
}

// A group version of which a side describes some kinds is described with the others that the gateway serves of it.
func TestVersionsOfWhichASideDescribesSome(t *testing.T) {
	x, _ := converted(t)
	const at = "/openapi/v3/apis/extensions/v1beta1"
	x.modern.say("GET /openapi/v3", http.StatusOK,
		`{"paths":{"apis/extensions/v1beta1":{"serverRelativeURL":"`+at+`?hash=A"}}}`)
	x.modern.say("GET "+at, http.StatusOK, `{"openapi":"3.0.0","info":{"title":"K","version":"v1.36.3"},
		"paths":{"/apis/extensions/v1beta1/ingresses":{"get":{"description":"of the side"}}},
		"components":{"schemas":{"io.k8s.api.core.v1.PodSpec":{"description":"of the side"}}}}`)
	var root struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal([]byte(x.wants("GET", "/openapi/v3", "", http.StatusOK, "")), &root); err != nil {
		t.Fatal(err)
	}
	place := root.Paths["apis/extensions/v1beta1"].ServerRelativeURL
	if !strings.HasPrefix(place, at+"?hash=") || strings.HasSuffix(place, "=A") {
		t.Fatalf("extensions/v1beta1 is at %q: a client would keep the side's", place)
	}
	var document spec3.OpenAPI
	if err := json.Unmarshal([]byte(x.wants("GET", place, "", http.StatusOK, "")), &document); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"ingresses", "namespaces/{namespace}/deployments"} {
		if p := document.Paths.Paths["/apis/extensions/v1beta1/"+path]; p == nil || p.Get == nil {
			t.Errorf("no path of %s", path)
		}
	}
	schemas := document.Components.Schemas
	if schemas["io.k8s.api.extensions.v1beta1.Deployment"] == nil ||
		schemas["io.k8s.api.core.v1.PodSpec"].Description != "of the side" {
		t.Error("the Deployment is not explained, or what the side explains is replaced")
	}
	for _, broken := range []string{`null`, `{"paths":[]}`, `{"components":{"schemas":3}}`, `{`} {
		x.modern.say("GET "+at, http.StatusOK, broken)
		x.wants("GET", at, "", http.StatusServiceUnavailable, "modern")
	}
	x.modern.say("GET "+at, http.StatusOK, "protobuf")
	x.wants("GET", at, "", http.StatusOK, "protobuf",
		"Accept: application/com.github.proto-openapi.spec.v3.v1.0+protobuf")
}

// In OpenAPI v2 they are among the others, for kubectl before 1.27.
func TestVersionsThatNoSideDescribesInOpenAPI2(t *testing.T) {
	x, _ := converted(t)
	x.modern.say("GET /openapi/v2", http.StatusOK, `{"swagger":"2.0","info":{"title":"K","version":"v1.36.3"},"paths":{},
		"definitions":{"io.k8s.api.apps.v1.Deployment":{"description":"of the side","type":"object",
		"x-kubernetes-group-version-kind":[{"group":"apps","version":"v1","kind":"Deployment"}]},
		"io.k8s.api.core.v1.PodSpec":{"description":"of the side","type":"object"}}}`)
	var document spec.Swagger
	text := x.wants("GET", openAPI2Path, "", http.StatusOK, "", "Accept: application/json")
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	for name, side := range map[string]bool{"io.k8s.api.apps.v1.Deployment": true, "io.k8s.api.core.v1.PodSpec": true,
		"io.k8s.api.extensions.v1beta1.Deployment": false, "io.k8s.api.extensions.v1beta1.DeploymentSpec": false} {
		definition, ok := document.Definitions[name]
		if !ok || (definition.Description == "of the side") != side {
			t.Errorf("%s is %+v", name, definition)
		}
		if strings.HasSuffix(name, "Deployment") && len(kindsOf(&definition)) != 1 {
			t.Errorf("%s is of the kinds %v", name, kindsOf(&definition))
		}
	}
	x.wants("GET", openAPI2Path, "", http.StatusOK, "io.k8s.api.extensions.v1beta1.Deployment",
		"Accept: "+openAPI2Types[0])
}

// Every built-in kind is described, and every reference leads to something.
func TestEveryKindIsDescribed(t *testing.T) {
	s := &schemas{prefix: "#/definitions/", made: map[string]map[string]any{}}
	for gvk := range scheme.Scheme.AllKnownTypes() {
		if gvk.Version == "__internal" {
			continue
		}
		kind, ok := described(gvk)
		if !ok {
			t.Errorf("%s is not described", gvk)
			continue
		}
		s.of(kind)
	}
	text, err := json.Marshal(s.made)
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range reference.FindAllSubmatch(text, -1) {
		if s.made[string(match[1])] == nil {
			t.Errorf("%s is nowhere", match[1])
		}
	}
	pod, _ := described(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	if name := s.of(pod); name != "io.k8s.api.core.v1.Pod" {
		t.Errorf("a Pod is %s", name)
	}
	for name, want := range map[string]string{"io.k8s.apimachinery.pkg.apis.meta.v1.Time": "date-time",
		"io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int-or-string"} {
		if got := s.made[name]["format"]; got != want || s.made[name]["type"] != "string" {
			t.Errorf("%s is %v", name, s.made[name])
		}
	}
}

// TestDocumentsAreWeighed: what is reserved for a document is what it takes, so that a small one does not wait for the
// memory of large ones.
func TestDocumentsAreWeighed(t *testing.T) {
	g := &Gateway{}
	for _, tc := range []struct {
		gvk    schema.GroupVersionKind
		atMost int64
	}{
		{schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "IngressClass"}, 1 << 20},
		{schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, 32 << 20},
	} {
		rows := []*routes.Row{{Resource: discovery.Resource{GroupVersion: tc.gvk.GroupVersion(), Name: "things",
			Kind: tc.gvk.Kind, Namespaced: true,
			Verbs: []string{"get", "list", "create", "update", "patch", "delete"}}}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		document := g.openAPI3Of(tc.gvk.GroupVersion(), rows)
		text, err := json.Marshal(document)
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		runtime.KeepAlive(document)
		took, weight := int64(after.TotalAlloc-before.TotalAlloc), weigh(rows)
		t.Logf("%s: %d bytes of text, %d allocated, %d reserved", tc.gvk.Kind, len(text), took, weight)
		if weight < took || weight > tc.atMost {
			t.Errorf("%s: %d bytes are reserved; it took %d, and at most %d are wanted", tc.gvk.Kind, weight, took,
				tc.atMost)
		}
	}
}
