package gateway

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	openapi "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"k8s.io/apiserver/pkg/authentication/user"
	protoutil "k8s.io/kube-openapi/pkg/util/proto"
)

// swagger is a document of OpenAPI v2: definitions, and paths.
func swagger(definitions string, paths ...string) string {
	text := `{"swagger":"2.0","info":{"title":"Kubernetes","version":"v1"},"paths":{`
	for i, path := range paths {
		if i > 0 {
			text += ","
		}
		name, refers, _ := strings.Cut(path, " ")
		text += `"` + name + `":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/` + refers +
			`"}},"401":{"description":"no","schema":{"$ref":"#/definitions/m.Status"}}}}}`
	}
	return text + `},"definitions":{` + definitions + `}}`
}

func kind(group, version, kind string) string {
	return `"x-kubernetes-group-version-kind":[{"group":"` + group + `","kind":"` + kind + `","version":"` + version +
		`"}]`
}

// models reads a document as kubectl does: the names of the schemas of a kind.
func models(t *testing.T, body string) (protoutil.Models, map[string][]string) {
	t.Helper()
	document := &openapi.Document{}
	if err := proto.Unmarshal([]byte(body), document); err != nil {
		t.Fatal(err)
	}
	all, err := protoutil.NewOpenAPIData(document)
	if err != nil {
		t.Fatal(err)
	}
	of := map[string][]string{}
	for _, name := range all.ListModels() {
		kinds, _ := all.LookupModel(name).GetExtensions()[kindsExtension].([]any)
		for _, k := range kinds {
			fields := k.(map[any]any)
			id := fields["group"].(string) + "/" + fields["version"].(string) + " " + fields["kind"].(string)
			of[id] = append(of[id], name)
		}
	}
	return all, of
}

// A client reads the schemas of both sides in one document, in the form that it knows, and of each kind one.
func TestOpenAPI2IsOfBothSides(t *testing.T) {
	const (
		core  = "/api/v1/namespaces/{namespace}/pods m.Pod"
		apps  = "/apis/apps/v1/namespaces/{namespace}/deployments m.Deployment"
		older = "/apis/extensions/v1beta1/namespaces/{namespace}/deployments m.OldDeployment"
		gone  = "/apis/gone/v1/things m.Thing"
	)
	modern := swagger(`"m.Status":{"properties":{"new":{"type":"string"}},`+kind("", "v1", "Status")+`},
		"m.Template":{"properties":{"new":{"type":"string"}}},"m.Pod":{`+kind("", "v1", "Pod")+`},
		"m.Thing":{`+kind("gone", "v1", "Thing")+`},
		"m.Deployment":{"properties":{"spec":{"$ref":"#/definitions/m.Template"}},`+kind("apps", "v1", "Deployment")+`}`,
		core, apps, gone)
	// Of 1.10 are the definitions under their former names, which no path leads to.
	definitions := `"former.Pod":{"properties":{"of":{"$ref":"#/definitions/m.Pod"}}},"m.Status":{"properties":{"old":{"type":"string"}},` + kind("", "v1", "Status") + `},
		"m.Template":{"properties":{"old":{"type":"string"}}},"m.Pod":{` + kind("", "v1", "Pod") + `},
		"m.OldDeployment":{"properties":{"spec":{"$ref":"#/definitions/m.Template"}},` +
		kind("extensions", "v1beta1", "Deployment") + `}`
	legacy := swagger(definitions, core, older, strings.Replace(older, "/v1beta1/", "/v1beta1/watch/", 1))
	for _, release := range []string{"1.15", "1.6"} {
		x := newFixture(t)
		x.old()
		x.modern.say("GET /openapi/v2", http.StatusOK, modern)
		if release == "1.15" {
			x.legacy.say("GET /openapi/v2", http.StatusOK, legacy)
		} else { // whose RBAC does not know the path
			x.legacy.page("GET /openapi/v2", func(w http.ResponseWriter, _ *http.Request) {
				status(w, http.StatusForbidden, "Forbidden")
			})
			x.legacy.say("GET /swagger.json", http.StatusOK, strings.NewReplacer(`"group":`, `"Group":`, `"kind":`,
				`"Kind":`, `"version":"v1`, `"Version":"v1`).Replace(legacy))
		}
		const wanted = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
		for _, path := range []string{"/openapi/v2", "/swagger-2.0.0.pb-v1"} {
			code, header, body := x.ask("GET", path, "", "Accept: "+wanted, "Accept-Encoding: identity")
			// client-go takes no answer of a media type that is none by the rules.
			if _, _, err := mime.ParseMediaType(header.Get("Content-Type")); err != nil {
				t.Errorf("%s: content type %s: %v", path, header.Get("Content-Type"), err)
			}
			if code != http.StatusOK || header.Get("Content-Type") != openAPI2Types[1] || header.Get("Etag") == "" {
				t.Fatalf("%s: %s: %d %v %.200q", release, path, code, header, body)
			}
			all, of := models(t, body)
			for id, want := range map[string]string{"/v1 Pod": "m.Pod", "/v1 Status": "m.Status",
				"apps/v1 Deployment": "m.Deployment", "extensions/v1beta1 Deployment": "m.OldDeployment"} {
				if got := of[id]; len(got) != 1 || got[0] != want {
					t.Errorf("%s: %s is %q, want %s", release, id, got, want)
				}
			}
			for name, field := range map[string]string{"m.Deployment": "new", "m.OldDeployment": "old"} {
				spec := all.LookupModel(name).(*protoutil.Kind).Fields["spec"].(protoutil.Reference).SubSchema()
				if fields := spec.(*protoutil.Kind).Fields; len(fields) != 1 || fields[field] == nil {
					t.Errorf("%s: the spec of %s is %v", release, name, spec)
				}
			}
			if code, _, text := x.ask("GET", path, "", "Accept: "+wanted,
				"If-None-Match: "+header.Get("Etag")); code != http.StatusNotModified || text != "" {
				t.Errorf("%s: what the client has: %d %.200q", release, code, text)
			}
		}
		text := x.wants("GET", "/openapi/v2", "", http.StatusOK, `"/apis/extensions/v1beta1/namespaces/`,
			"Accept: application/json")
		if strings.Contains(text, `"/apis/gone/v1/things"`) || strings.Contains(text, "/v1beta1/watch/") {
			t.Errorf("%s: what is not served is in %s", release, text)
		}
		x.wants("GET", "/swagger.json", "", http.StatusOK, `"swagger":"2.0"`)
		x.wants("GET", "/openapi/v2", "", http.StatusNotAcceptable, "", "Accept: text/html")
		x.wants("GET", "/openapi/v2", "", http.StatusOK, `"swagger":"2.0"`, "Accept: text/html, */*;q=0.1")

		// What a side says next is what clients see next.
		x.modern.say("GET /openapi/v2", http.StatusOK, strings.ReplaceAll(modern, `"new"`, `"newer"`))
		x.wants("GET", "/openapi/v2", "", http.StatusOK, `"newer"`)
		x.modern.say("GET /openapi/v2", http.StatusOK, `{"swagger"`)
		x.wants("GET", "/openapi/v2", "", http.StatusServiceUnavailable, "modern")
		x.modern.say("GET /openapi/v2", http.StatusInternalServerError, "{}")
		x.wants("GET", "/openapi/v2", "", http.StatusInternalServerError, "")
		x.modern.server.Close()
		x.wants("GET", "/openapi/v2", "", http.StatusServiceUnavailable, "modern")
	}
}

// Documents are large: one that a side has said before is not sent again, and each client is asked for anew.
func TestOpenAPI2IsKeptByItsTag(t *testing.T) {
	x := newFixture(t)
	text := swagger(`"m.Pod":{`+kind("", "v1", "Pod")+`}`, "/api/v1/namespaces/{namespace}/pods m.Pod")
	whole := 0
	x.modern.page("GET /openapi/v2", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("X-Remote-User") == "bob":
			status(w, http.StatusForbidden, "Forbidden")
		case r.Header.Get("If-None-Match") == `"one"`:
			w.WriteHeader(http.StatusNotModified)
		default:
			whole++
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("ETag", `"one"`)
			w.Write([]byte(text))
		}
	})
	first := x.wants("GET", "/openapi/v2", "", http.StatusOK, "m.Pod")
	if second := x.wants("GET", "/openapi/v2", "", http.StatusOK, "m.Pod"); second != first || whole != 1 {
		t.Errorf("the side sent it %d times; %s, then %s", whole, first, second)
	}
	x.wants("GET", "/openapi/v2", "", http.StatusForbidden, "of the side", "Test-Certificate: bob")
	x.legacy.say("GET /openapi/v2", http.StatusOK, text)
	x.wants("GET", "/openapi/v2", "", http.StatusOK, "m.Pod", "Test-Certificate: bob")
}

// TestOpenAPI2WithoutGzipHoldsLittle: it is megabytes, which a client may read as slowly as it likes, and unpacking it
// takes a processor: a client that has it already takes none, and others take turns.
func TestOpenAPI2WithoutGzipHoldsLittle(t *testing.T) {
	x := newFixture(t)
	text := swagger(`"m.Long":{"description":"`+strings.Repeat("x", 5<<20)+`"},"m.Pod":{`+kind("", "v1", "Pod")+`}`,
		"/api/v1/namespaces/{namespace}/pods m.Pod")
	x.modern.page("GET /openapi/v2", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"one"`)
		if r.Header.Get("If-None-Match") == `"one"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		io.WriteString(w, text)
	})
	plain := "Accept-Encoding: identity"
	_, header, want := x.ask("GET", "/openapi/v2", "", plain)
	if len(want) < 5<<20 || !json.Valid([]byte(want)) {
		t.Fatalf("the document has %d bytes: %.100s", len(want), want)
	}
	own, left := x.gateway.shares.of(&user.DefaultInfo{Name: "alice"})
	defer left()
	held := own.memory.Reserve()
	defer held.Release()
	if err := held.Grow(t.Context(), limitShare-(1<<20)); err != nil {
		t.Fatal(err)
	}
	for _, headers := range [][]string{{plain}, {plain, "Range: bytes=5-9"}} {
		if got := x.wants("GET", "/openapi/v2", "", http.StatusOK, "", headers...); got != want {
			t.Errorf("%v: %d bytes, want %d", headers, len(got), len(want))
		}
	}
	_, length, _ := x.ask("HEAD", "/openapi/v2", "", plain)
	if got := length.Get("Content-Length"); got != strconv.Itoa(len(want)) {
		t.Errorf("HEAD says %s bytes, want %d", got, len(want))
	}
	var leave []func()
	for range cap(own.workers.turns) {
		l, err := own.workers.take(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, l)
	}
	x.wants("GET", "/openapi/v2", "", http.StatusNotModified, "", plain, "If-None-Match: "+header.Get("ETag"))
	read := make(chan int)
	go func() {
		_, _, body := x.ask("GET", "/openapi/v2", "", plain)
		read <- len(body)
	}()
	select {
	case <-read:
		t.Error("it is unpacked outside of the turns of its user")
	case <-time.After(50 * time.Millisecond):
	}
	for _, l := range leave {
		l()
	}
	if got := <-read; got != len(want) {
		t.Errorf("in its turn: %d bytes, want %d", got, len(want))
	}
}

// Clients of 1.6 and 1.7 validate by documents that only their servers have.
func TestSwaggerOfOldClientsIsTheLegacySides(t *testing.T) {
	x := newFixture(t)
	x.legacy.say("GET /swaggerapi/api/v1", http.StatusOK, `{"swaggerVersion":"1.2"}`)
	x.wants("GET", "/swaggerapi/api/v1", "", http.StatusOK, `"1.2"`)
	x.wants("GET", "/swaggerapi/apis/apps/v1", "", http.StatusNotFound, "of the side")
}

// A server from before OpenAPI v3 refuses the path by RBAC to those who may read its own alone.
func TestOpenAPI3OfOneSide(t *testing.T) {
	x := newFixture(t)
	x.legacy.page("GET /openapi/v3", func(w http.ResponseWriter, _ *http.Request) {
		status(w, http.StatusForbidden, "Forbidden")
	})
	x.modern.say("GET /openapi/v3", http.StatusOK, `{"paths":{"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1"}}}`)
	x.wants("GET", "/openapi/v3", "", http.StatusOK, "serverRelativeURL")
	x.modern.page("GET /openapi/v3", func(w http.ResponseWriter, _ *http.Request) {
		status(w, http.StatusForbidden, "Forbidden")
	})
	x.wants("GET", "/openapi/v3", "", http.StatusForbidden, "of the side")
}
