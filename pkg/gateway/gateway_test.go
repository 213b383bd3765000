package gateway

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/gateway/merge"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/policy"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// fakeSide is an API server with a few resources. Pages replace what it has.
type fakeSide struct {
	server *httptest.Server
	mu     sync.Mutex
	pages  map[string]func(http.ResponseWriter, *http.Request) // by METHOD /path
	asked  []*http.Request
	bodies []string
}

const verbsJSON = `"verbs":["create","delete","deletecollection","get","list","patch","update","watch"]`

func newFakeSide(t testing.TB, version string) *fakeSide {
	_, overHTTP2 := t.(*testing.B) // as API servers; tests break connections, which HTTP/2 shares
	return startFakeSide(t, version, overHTTP2)
}

func startFakeSide(t testing.TB, version string, overHTTP2 bool) *fakeSide {
	f := &fakeSide{pages: map[string]func(http.ResponseWriter, *http.Request){}}
	for path, body := range map[string]string{
		"/version": `{"major":"1","minor":"x","gitVersion":"v` + version + `"}`,
		"/readyz":  "ok", "/healthz": "ok",
		"/api": `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis": `{"kind":"APIGroupList","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],
			"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}]}`,
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","kind":"Pod",
			"namespaced":true,` + verbsJSON + `},{"name":"pods/log","kind":"Pod","namespaced":true,"verbs":["get"]},
			{"name":"namespaces","kind":"Namespace",` + verbsJSON + `}]}`,
		"/apis/apps/v1": `{"kind":"APIResourceList","groupVersion":"apps/v1","resources":[{"name":"deployments",
			"singularName":"deployment","kind":"Deployment","namespaced":true,"shortNames":["deploy"],` + verbsJSON + `},
			{"name":"deployments/scale","kind":"Scale","group":"autoscaling","version":"v1","namespaced":true,
			"verbs":["get","patch","update"]}]}`,
	} {
		f.say("GET "+path, http.StatusOK, body)
	}
	f.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		f.mu.Lock()
		f.asked, f.bodies = append(f.asked, r), append(f.bodies, string(body))
		page := f.pages[r.Method+" "+r.URL.Path]
		f.mu.Unlock()
		if page == nil {
			status(w, http.StatusNotFound, "NotFound")
			return
		}
		page(w, r)
	}))
	f.server.EnableHTTP2 = overHTTP2
	f.server.StartTLS()
	t.Cleanup(f.server.Close)
	return f
}

func status(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":%q,"code":%d,
		"message":"of the side"}`, reason, code)
}

// say replaces what the side answers.
func (f *fakeSide) say(at string, code int, body string) {
	f.page(at, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		io.WriteString(w, body)
	})
}

func (f *fakeSide) page(at string, answer func(http.ResponseWriter, *http.Request)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pages[at] = answer
}

// last is the last request below a path, and its body.
func (f *fakeSide) last(path string) (*http.Request, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, r := range slices.Backward(f.asked) {
		if strings.HasPrefix(r.URL.Path, path) {
			return r, f.bodies[i]
		}
	}
	return nil, ""
}

func (f *fakeSide) config() *rest.Config {
	return &rest.Config{Host: f.server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(
		&pem.Block{Type: "CERTIFICATE", Bytes: f.server.Certificate().Raw})}, BearerToken: "of-the-gateway"}
}

// fixture is a gateway over two fake sides.
type fixture struct {
	t              testing.TB
	gateway        *Gateway
	legacy, modern *fakeSide
	url            string
	handler        http.Handler
	registry       *prometheus.Registry
}

func testPlan(t testing.TB) *plan.Runtime {
	t.Helper()
	f, err := spec.Load("spec.yaml", []byte(`apiVersion: kubefusion.dev/v1alpha1
kind: FusedControlPlane
metadata: {name: test}
spec:
  hosts: [{name: cp-1, address: 10.0.0.11}]
  stores:
  - {name: core, endpoints: ["http://10.0.0.11:2379"]}
  - {name: modern, endpoints: ["http://10.0.0.11:2479"], managed: {version: 3.6.8, dataDir: /var/lib/etcd-modern}}
  legacy:
    version: 1.15.12
    apiServer:
      extraArgs:
      - {name: requestheader-client-ca-file, value: /etc/kubernetes/pki/front-proxy-ca.crt}
      - {name: requestheader-username-headers, value: "X-Remote-User,X-User"}
      - {name: requestheader-group-headers, value: "X-Remote-Group,x-groups"}
      - {name: requestheader-extra-headers-prefix, value: "X-Remote-Extra-,x-more-"}
    controllerManager: {}
  modern: {version: 1.36.3, apiServer: {}, controllerManager: {}}
  access:
  - {subjects: [{kind: Group, name: developers}], apiGroups: [""], resources: [pods]}
`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(f, plan.OnHosts)
	if err != nil {
		t.Fatal(err)
	}
	return p.Runtime()
}

func newFixture(t testing.TB, more ...func(*Options)) *fixture {
	t.Helper()
	return newFixtureOf(t, testPlan(t), more...)
}

func newFixtureOf(t testing.TB, p *plan.Runtime, more ...func(*Options)) *fixture {
	t.Helper()
	return newFixtureOver(t, p, newFakeSide(t, "1.15.12"), newFakeSide(t, "1.36.3"), more...)
}

func newFixtureOver(t testing.TB, p *plan.Runtime, legacy, modern *fakeSide, more ...func(*Options)) *fixture {
	t.Helper()
	x := &fixture{t: t, legacy: legacy, modern: modern}
	cert, key := proxyCertificate(t)
	o := Options{Legacy: x.legacy.config(), Modern: x.modern.config(), ProxyCert: cert, ProxyKey: key, Requests: 3}
	for _, change := range more {
		change(&o)
	}
	x.registry = prometheus.NewRegistry()
	var err error
	x.gateway, err = New(p, o, x.registry)
	if err != nil {
		t.Fatal(err)
	}
	x.gateway.refresh(t.Context())
	if err := x.gateway.Ready(); err != nil {
		t.Fatal(err)
	}
	x.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name := r.Header.Get("Test-Certificate"); name != "" { // as TLS would have verified it
			r.Header.Del("Test-Certificate")
			r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{
				Subject: pkix.Name{CommonName: name, Organization: []string{"developers"}}, Raw: []byte{1},
				NotAfter: time.Now().Add(time.Hour)}}}}
		}
		x.gateway.ServeHTTP(w, r)
	})
	server := httptest.NewServer(x.handler)
	t.Cleanup(server.Close)
	x.url = server.URL
	return x
}

func proxyCertificate(t testing.TB) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "front-proxy-client"},
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der},
		key: {Type: "PRIVATE KEY", Bytes: encoded}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// open asks as alice for what is read in pieces.
func (x *fixture) open(ctx context.Context, path string) *http.Response {
	x.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, x.url+path, nil)
	if err != nil {
		x.t.Fatal(err)
	}
	r.Header.Set("Test-Certificate", "alice")
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		x.t.Fatal(err)
	}
	return response
}

// ask sends a request as alice; headers are "Name: value".
func (x *fixture) ask(method, path, body string, headers ...string) (int, http.Header, string) {
	x.t.Helper()
	r, err := http.NewRequestWithContext(x.t.Context(), method, x.url+path, strings.NewReader(body))
	if err != nil {
		x.t.Fatal(err)
	}
	r.Header.Set("Test-Certificate", "alice")
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if r.Header.Set(name, value); value == "" {
			r.Header.Del(name)
		}
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		x.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		x.t.Fatalf("%s %s: %v", method, path, err)
	}
	return response.StatusCode, response.Header, string(text)
}

func (x *fixture) wants(method, path, body string, code int, says string, headers ...string) string {
	x.t.Helper()
	got, _, text := x.ask(method, path, body, headers...)
	if got != code || !strings.Contains(text, says) {
		x.t.Errorf("%s %s: %d %s, want %d and %q", method, path, got, text, code, says)
	}
	return text
}

const (
	collection = "/apis/apps/v1/namespaces/a/deployments"
	emptyList  = `{"kind":"DeploymentList","apiVersion":"apps/v1","metadata":{"resourceVersion":"1"},"items":[]}`
)

func deployment(name, uid string) string {
	return fmt.Sprintf(`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":%q,"namespace":"a","uid":%q,
		"resourceVersion":"5"}}`, name, uid)
}

func TestClientsAreWhoTheyAre(t *testing.T) {
	x := newFixture(t)
	x.modern.say("GET /api/v1/namespaces/a/pods", http.StatusOK, "{}")
	// That Connection names a header which the gateway sets takes it from no side.
	x.wants("GET", "/api/v1/namespaces/a/pods", "", http.StatusOK, "{}",
		"X-Remote-Group: system:masters", "X-Remote-Extra-Scopes: all", "x-remote-uid: 1", "X-Forwarded-For: 1.2.3.4",
		"X-Real-IP: 1.2.3.4",
		"Impersonate-User: bob", "Connection: X-Remote-User, Impersonate-User2")
	r, _ := x.modern.last("/api/v1/namespaces/a/pods")
	if r.Header.Get("X-Remote-User") != "alice" || r.Header.Get("Impersonate-User") != "bob" ||
		!slices.Equal(r.Header.Values("X-Remote-Group"), []string{"developers"}) ||
		r.Header.Get("X-Remote-Extra-Scopes")+r.Header.Get("Authorization")+r.Header.Get("X-Real-Ip") != "" ||
		r.Header.Get("X-Remote-Uid") == "1" || len(r.Header.Values("X-Remote-User")) != 1 {
		t.Errorf("the side is told of %v", r.Header)
	}
	x.wants("GET", "/api/v1/namespaces/a/pods", "", http.StatusOK, "{}", "X-Remote-User: root",
		"X-Remote-Group: system:masters")
	if r, _ := x.modern.last("/api/v1/namespaces/a/pods"); !slices.Equal(r.Header.Values("X-Remote-User"),
		[]string{"alice"}) {
		t.Errorf("the side is told of %v", r.Header)
	}
	if r, _ := x.legacy.last("/api/v1/namespaces/a/pods"); r != nil {
		t.Error("the other side is asked, too")
	}
	x.wants("GET", collection, "", http.StatusUnauthorized, "Unauthorized", "Test-Certificate: ")
}

// An API server may believe further headers than the usual ones: they say who the client is as well, and are not its
// own to send, on either side.
func TestHeadersThatASideBelievesAreNotTheClients(t *testing.T) {
	x := newFixture(t)
	const pods = "/api/v1/namespaces/a/pods"
	x.legacy.vouch(map[string]string{"good": "robot"})
	x.modern.vouch(nil)
	x.legacy.say("GET "+pods, http.StatusOK, "{}")
	x.legacy.say("GET "+collection, http.StatusOK, emptyList)
	x.modern.say("GET "+collection, http.StatusOK, emptyList)
	claims := []string{"X-User: root", "X-Groups: system:masters", "X-More-Scopes: all", "Test-Certificate: ",
		"Authorization: Bearer good"}
	x.wants("GET", "/sides/legacy"+pods, "", http.StatusOK, "{}", claims...)
	r, _ := x.legacy.last(pods)
	for name, want := range map[string]string{"X-User": "robot", "X-Remote-User": "robot", "X-Groups": "robots",
		"X-Remote-Group": "robots", "X-More-Scopes": "", "X-More-A%2fb": "c"} {
		if got := strings.Join(r.Header.Values(name), ","); got != want {
			t.Errorf("the legacy side is told %s: %q, want %q", name, got, want)
		}
	}
	x.wants("GET", collection, "", http.StatusOK, "l1m1", claims[:3]...)
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		r, _ := side.last(collection)
		if r.Header.Get("X-User") != "alice" || r.Header.Get("X-Groups") != "developers" {
			t.Errorf("a side is told of %v", r.Header)
		}
	}
}

// A name is told to the sides as it is, or not at all: a header loses the spaces around it.
func TestNamesThatHeadersChangeAreRefused(t *testing.T) {
	x := newFixture(t)
	x.legacy.vouch(nil)
	names := map[string]string{"space": " admin", "behind": "admin ", "tab": "\tadmin", "inner": "a b",
		"line": "a\r\nX-Remote-Group: b"}
	x.modern.vouch(names)
	x.modern.say("GET /api/v1/namespaces/a/pods", http.StatusOK, "{}")
	for token := range names {
		code := http.StatusForbidden
		if token == "inner" {
			code = http.StatusOK
		}
		x.wants("GET", "/api/v1/namespaces/a/pods", "", code, "", "Test-Certificate: ", "Authorization: Bearer "+token)
		r, _ := x.modern.last("/api/v1/namespaces/a/pods")
		if token != "inner" && r != nil && r.Header.Get("X-Remote-User") != "a b" {
			t.Errorf("%s: the side is told of %v", token, r.Header)
		}
	}
}

// What a body is in memory is bounded, however few bytes it has.
func TestBodiesThatAreBombs(t *testing.T) {
	x := newFixture(t)
	x.legacy.say("GET "+collection+"/x", http.StatusNotFound, "{}")
	x.modern.say("POST "+collection, http.StatusCreated, deployment("x", "u"))
	const kind = "Content-Type: application/yaml"
	x.wants("POST", collection, "metadata: {name: x}\nspec:\n- {a: yes}\n", http.StatusCreated, "", kind)
	if _, body := x.modern.last(collection); body != `{"metadata":{"name":"x"},"spec":[{"a":true}]}` {
		t.Errorf("the side is sent %s", body)
	}
	bomb := "metadata: {name: x}\na: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 100_000) + "]"
	x.wants("POST", collection, bomb, http.StatusBadRequest, "line 3: aliases", kind)
	const much = http.StatusRequestEntityTooLarge
	x.wants("POST", collection, "a: ["+strings.Repeat("a,", 3<<19-9)+"]", much, "memory", kind)
	x.wants("POST", collection, `{"a":[`+strings.Repeat("{},", 1<<20-9)+`{}]}`, much, "memory")
}

// The gateway reads a request as the sides do.
func TestRequestsHaveOneMeaning(t *testing.T) {
	x := newFixture(t)
	for _, name := range []string{"..", ".", "a/b", "a%2fb"} {
		x.wants("POST", collection, `{"metadata":{"name":"`+name+`"}}`, http.StatusUnprocessableEntity, "metadata.name")
	}
	x.legacy.say("GET "+collection+"/old", http.StatusOK, deployment("old", "u1"))
	x.modern.say("POST "+collection, http.StatusCreated, deployment("old", "u"))
	x.wants("POST", collection, `{"metadata":{"name":"old","Name":"new"}}`, http.StatusConflict, "already exists")
	for _, value := range []string{"1", "TRUE", "t", "yes", ""} {
		x.wants("GET", collection+"?watch=1&sendInitialEvents="+value, "", http.StatusUnprocessableEntity,
			"sendInitialEvents")
	}
	x.wants("GET", "/sides/modern"+collection+"?a=1;watch=true", "", http.StatusBadRequest, "query")
	x.legacy.say("DELETE /api/v1/namespaces/a/pods/p", http.StatusOK, "{}")
	x.modern.say("DELETE /api/v1/namespaces/a/pods/p", http.StatusOK, "{}")
	for _, r := range x.modern.asked {
		if strings.Contains(r.URL.Path, "..") || strings.Contains(r.URL.RawQuery, "watch") {
			t.Errorf("the modern side is asked for %s", r.URL)
		}
	}
}

// A watch is one however its parameter is written, also where it is converted: as a list it would be read until the
// side ends it, and hold the memory of all.
func TestWatchesAreWatchesHoweverTheyAreWritten(t *testing.T) {
	x := newFixture(t)
	x.old()
	const older = "/apis/extensions/v1beta1/namespaces/a/deployments"
	stream := func(version string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"type":"ADDED","object":{"kind":"Deployment","apiVersion":%q,"metadata":{"name":"x",
				"resourceVersion":"5"}}}`+"\n", version)
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}
	x.legacy.page("GET "+older, stream("extensions/v1beta1"))
	x.modern.page("GET "+collection, stream("apps/v1"))
	for _, value := range []string{"true", "1", "t", "TRUE", "yes", ""} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, x.url+collection+"?watch="+value, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Test-Certificate", "alice")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(response.Body)
		for range 2 { // of each side one
			if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, `"apiVersion":"apps/v1"`) {
				t.Errorf("watch=%s: %s, %v", value, line, err)
				break
			}
		}
		cancel()
		response.Body.Close()
	}
}

// TestWhatIsHandedOverIsCreatedThere: on the modern side, which acts for it, wherever all else is created.
func TestWhatIsHandedOverIsCreatedThere(t *testing.T) {
	const away = "/apis/apps/v1/namespaces/b/deployments"
	for _, test := range []struct {
		everywhere bool
		paths      map[string]pair.Side
	}{
		{false, map[string]pair.Side{collection: pair.Legacy, away: pair.Modern}},
		{true, map[string]pair.Side{collection: pair.Modern, away: pair.Modern}},
	} {
		p := testPlan(t)
		for i := range p.Resources {
			if row := &p.Resources[i]; row.Key == "deployments" {
				row.HandedOver, row.HandedOverIn = test.everywhere, []string{"b"}
			}
		}
		x := newFixtureOf(t, p, func(o *Options) { o.Create = pair.Legacy })
		for path, side := range test.paths {
			to := map[pair.Side]*fakeSide{pair.Legacy: x.legacy, pair.Modern: x.modern}[side]
			to.say("POST "+path, http.StatusCreated, deployment("new", "u"))
			x.wants("POST", path, `{"metadata":{"name":"new"}}`, http.StatusCreated, `"new"`)
			to.say("PUT "+path+"/new", http.StatusCreated, deployment("new", "u"))
			x.wants("PUT", path+"/new", `{"metadata":{"name":"new"}}`, http.StatusCreated, `"new"`)
		}
	}
}

const reviews = "POST /apis/authentication.k8s.io/v1/tokenreviews"

// vouch lets a side know tokens, by the names of their users.
func (f *fakeSide) vouch(users map[string]string) {
	f.page(reviews, func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		body := f.bodies[slices.Index(f.asked, r)]
		f.mu.Unlock()
		var review struct{ Spec struct{ Token string } }
		_ = json.Unmarshal([]byte(body), &review)
		name, known := users[review.Spec.Token]
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":%v,
			"user":{"username":%q,"groups":["robots"],"extra":{"a/b":["c"]}}}}`, known, name)
	})
}

// A name counts on the side that vouches for it: alice of one side may be another alice on the other.
func TestTokensCountOnTheSidesThatKnowThem(t *testing.T) {
	for _, shared := range []bool{false, true} {
		x := newFixture(t, func(o *Options) { o.SharedIdentities = shared })
		x.legacy.vouch(map[string]string{"old": "admin", "both": "robot", "two": "left"})
		x.modern.vouch(map[string]string{"new": "alice", "both": "robot", "two": "right"})
		const pods = "/api/v1/namespaces/a/pods"
		x.modern.say("GET "+pods, http.StatusOK, "{}")
		x.legacy.say("GET "+pods, http.StatusOK, "{}")
		x.legacy.say("GET "+collection, http.StatusOK, emptyList)
		x.modern.say("GET "+collection, http.StatusOK, emptyList)
		asks := func(path, token string, code int, says string) {
			t.Helper()
			x.wants("GET", path, "", code, says, "Test-Certificate: ", "Authorization: Bearer "+token)
		}
		asks(pods, "both", http.StatusOK, "")
		asks(collection, "both", http.StatusOK, "l1m1")
		asks(pods, "new", http.StatusOK, "")
		r, _ := x.modern.last(pods)
		if r.Header.Get("X-Remote-User") != "alice" || r.Header.Get("X-Remote-Extra-A%2fb") != "c" ||
			r.Header.Get("Authorization") != "" {
			t.Errorf("the side is told of %v", r.Header)
		}
		asks("/sides/legacy"+pods, "old", http.StatusOK, "")
		asks(pods, "nobody's", http.StatusUnauthorized, "")
		asks(pods, "two", http.StatusUnauthorized, `"left\" on the legacy side`)
		if shared {
			asks(pods, "old", http.StatusOK, "")
			asks(collection, "old", http.StatusOK, "l1m1")
			continue
		}
		for _, path := range []string{pods, "/sides/modern" + pods, collection, collection + "?watch=1"} {
			asks(path, "old", http.StatusForbidden, "modern side does not know")
			if r, _ := x.modern.last(path); r != nil && r.Header.Get("X-Remote-User") == "admin" {
				t.Errorf("%s: the modern side is told of %v", path, r.Header)
			}
		}
		asks("/sides/legacy"+pods, "new", http.StatusForbidden, "legacy side does not know")

		// What a side that is silent would say is not known: no.
		x.legacy.say(reviews, http.StatusForbidden, `{"kind":"Status","status":"Failure","code":403}`)
		x.modern.vouch(map[string]string{"later": "alice"})
		asks(pods, "later", http.StatusOK, "")
		asks(collection, "later", http.StatusServiceUnavailable, "could not review")
		asks(pods, "unknown", http.StatusServiceUnavailable, "could not be reviewed")
	}
}

func TestTokensOfWebSocketsAreTakenAndKept(t *testing.T) {
	x := newFixture(t)
	x.modern.vouch(map[string]string{"good": "robot"})
	x.legacy.vouch(nil)
	x.modern.say("GET /api/v1/namespaces/a/pods", http.StatusOK, "{}")
	const token = "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io."
	x.wants("GET", "/api/v1/namespaces/a/pods", "", http.StatusOK, "", "Test-Certificate: ", token+"Z29vZA, v5.k8s.io")
	r, _ := x.modern.last("/api/v1/namespaces/a/pods")
	if r.Header.Get("X-Remote-User") != "robot" || r.Header.Get("Sec-WebSocket-Protocol") != "v5.k8s.io" {
		t.Errorf("the side is told of %v", r.Header)
	}
	x.wants("GET", "/api/v1/namespaces/a/pods", "", http.StatusOK, "", token+"Z29vZA")
	if r, _ := x.modern.last("/api/v1/namespaces/a/pods"); r.Header.Get("Sec-WebSocket-Protocol") != "" {
		t.Errorf("the side is sent the token of a client with a certificate: %v", r.Header)
	}
	for _, bad := range []string{"YmFk", "!", "", "Z29vZA, base64url.bearer.authorization.k8s.io.Z29vZA"} {
		x.wants("GET", "/api/v1/namespaces/a/pods", "", http.StatusUnauthorized, "", "Test-Certificate: ", token+bad)
	}
}

// Clients that are not known yet have a bound of their own, by their address. Those of that address who are known go
// on, and so does who shows a certificate: no side is asked about it.
func TestStrangersAreBounded(t *testing.T) {
	x := newFixture(t)
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		side.vouch(map[string]string{"good": "robot"})
	}
	token := []string{"Test-Certificate: ", "Authorization: Bearer good"}
	x.wants("GET", "/api", "", http.StatusOK, "", token...)
	begun, end := make(chan struct{}), make(chan struct{})
	x.modern.page(reviews, func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-end
	})
	var group sync.WaitGroup
	for i := range limitStrangers {
		group.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, x.url+"/api/v1/pods", nil)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Authorization", fmt.Sprintf("Bearer %d", i))
			if response, err := http.DefaultClient.Do(r); err == nil {
				response.Body.Close()
			}
		})
		<-begun
	}
	x.wants("GET", "/api", "", http.StatusTooManyRequests, "in flight", "Test-Certificate: ", "Authorization: Bearer x")
	x.wants("GET", "/api", "", http.StatusOK, "", "Test-Certificate: system:kube-controller-manager")
	x.wants("GET", "/api", "", http.StatusOK, "", token...)
	x.wants("GET", "/api", "", http.StatusUnauthorized, "", "Test-Certificate: ")
	close(end)
	group.Wait()
	x.wants("GET", "/api", "", http.StatusOK, "")
}

// doorPolicy lets developers read pods of a namespace.
const doorPolicy = `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":` +
	`{"group":"developers","resource":"pods","namespace":"a","readonly":true}}`

func TestTheGatewaysPolicyDecidesFirst(t *testing.T) {
	rules, err := policy.Parse("door", strings.NewReader(doorPolicy))
	if err != nil {
		t.Fatal(err)
	}
	door := policy.NewAuthorizer(rules)
	x := newFixture(t, func(o *Options) { o.Policy = func() authorizer.Authorizer { return door } })
	x.legacy.vouch(map[string]string{"good": "robot"})
	x.modern.vouch(map[string]string{"good": "robot"})
	for _, view := range []string{"", "/sides/legacy", "/sides/modern"} {
		for _, side := range []*fakeSide{x.legacy, x.modern} {
			side.say("GET /api/v1/namespaces/a/pods", http.StatusOK, "{}")
		}
		x.wants("GET", view+"/api/v1/namespaces/a/pods", "", http.StatusOK, "{}")
		x.wants("GET", view+"/api/v1/namespaces/a/pods", "", http.StatusForbidden, "policy", "Impersonate-User: bob")
		x.wants("GET", view+"/api/v1/namespaces/a/pods", "", http.StatusForbidden, "policy", "Test-Certificate: ",
			"Authorization: Bearer good")
		for _, path := range []string{"/api/v1/namespaces/b/pods", "/api/v1/namespaces/a/secrets", "/apis",
			collection} {
			x.wants("GET", view+path, "", http.StatusForbidden, "gateway's policy")
		}
		x.wants("POST", view+"/api/v1/namespaces/a/pods", "{}", http.StatusForbidden, "gateway's policy")
	}
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		for _, path := range []string{"/api/v1/namespaces/b", "/api/v1/namespaces/a/secrets", collection} {
			if r, _ := side.last(path); r != nil {
				t.Errorf("a side was asked for %s", r.URL)
			}
		}
	}
}

// An answer that a side breaks off is broken off for the client, too, and counted so.
func TestAnswersThatBreakOffAreCounted(t *testing.T) {
	x := newFixture(t)
	x.modern.page("GET /api/v1/namespaces/a/pods", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, "{")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, x.url+"/api/v1/namespaces/a/pods", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Test-Certificate", "alice")
	response, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		defer response.Body.Close()
		if text, err := io.ReadAll(response.Body); err == nil {
			t.Errorf("the client takes %q for all", text)
		}
	}
	families, err := x.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, family := range families {
		for _, metric := range family.Metric {
			if family.GetName() == "fusionctl_gateway_requests_total" {
				seen = append(seen, fmt.Sprint(metric.GetLabel()))
			}
		}
	}
	if !strings.Contains(strings.Join(seen, ""), `"aborted"`) || !strings.Contains(strings.Join(seen, ""), `"modern"`) {
		t.Errorf("counted are %q, want modern and aborted", seen)
	}
}

func TestPathTricksAreRefused(t *testing.T) {
	x := newFixture(t)
	for _, path := range []string{"//api/v1/pods", "/api//v1/pods", "/api/v1/namespaces/../../sides/legacy/api",
		"/sides/legacy/../modern/api", "/api/v1/namespaces/a%2fb/pods", "/api/v1/namespaces/%2e%2e/pods",
		"/api/v1/namespaces/a/pods/", "/api/v1/namespaces/a/pods/%00", "/api/v1/namespaces/a/pods/a%250a",
		"/api/v1/namespaces/a/pods/a%5cb", "/sides/legacy//api/v1/pods", "/sides/legacy/%2e%2e/x",
		"/api/v1/namespaces/a/services/s/proxy/../../../secrets", "/api/v1/namespaces/a/services/s/proxy/%2e%2e/x",
		"/api/v1/namespaces/a/services/s/proxy/..%2fx", "/api/v1/namespaces/a/pods/proxy//x",
		"/api/v1/namespaces/a/proxy//x", "/api/v1/proxy/namespaces//a", "/api/v1/namespac%65s/a/proxy//x"} {
		connection, err := net.Dial("tcp", strings.TrimPrefix(x.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: x\r\nTest-Certificate: alice\r\nConnection: close\r\n\r\n",
			path)
		answer, err := io.ReadAll(connection)
		connection.Close()
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") {
			t.Errorf("%s: %.100q, %v, want 400", path, answer, err)
		}
	}
	for _, ask := range []*fakeSide{x.legacy, x.modern} {
		for _, path := range []string{"/api/v1/namespaces", "/api/v1/pods", "/sides", "/secrets"} {
			if r, _ := ask.last(path); r != nil {
				t.Errorf("a side was asked for %s", r.URL)
			}
		}
	}
	x.legacy.say("GET /api/v1/pods", http.StatusOK, "its own")
	x.wants("GET", "/sides/legacy/api/v1/pods", "", http.StatusOK, "its own")
}

func FuzzPaths(f *testing.F) {
	for _, path := range []string{"/api/v1/pods", "/a/%2e%2e/b", "//", "/a/proxy/../b",
		"/api/v1/nodes/n/proxy//x", "/api/v1/proxy/nodes/proxy//",
		"/sides/legacy/apis/g/v/namespaces/a/pods/p/proxy/a%2fb", "/api/v1/namespaces/proxy/pods//",
		"/clusters/far/api/v1/namespaces/a/pods/p/proxy/a%2fb", "/%63lusters/far/api"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n")))
		if err != nil || checkPath(r) != nil {
			return
		}
		inner, side := withoutView(r)
		if side == "" {
			inner, _ = withoutCluster(r)
		}
		factory := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
			GrouplessAPIPrefixes: sets.NewString("api")}
		info, err := factory.NewRequestInfo(inner)
		if err != nil {
			return
		}
		if slices.ContainsFunc(strings.Split(r.URL.Path, "/"), func(s string) bool { return s == ".." || s == "." }) ||
			info.Subresource != "proxy" && r.URL.Path != "/" &&
				(strings.Contains(r.URL.Path, "//") ||
					strings.Count(r.URL.EscapedPath(), "/") != strings.Count(r.URL.Path, "/")) {
			t.Errorf("%q passes as %q", path, r.URL.Path)
		}
	})
}

// Whatever is wrong with one side, half of a list is never said to be all of it.
func TestHalfAListIsNoList(t *testing.T) {
	x := newFixture(t)
	for name, wrong := range map[string]func(http.ResponseWriter, *http.Request){
		"forbids it":    func(w http.ResponseWriter, _ *http.Request) { status(w, http.StatusForbidden, "Forbidden") },
		"has forgotten": func(w http.ResponseWriter, _ *http.Request) { status(w, http.StatusGone, "Expired") },
		"fails": func(w http.ResponseWriter, _ *http.Request) {
			status(w, http.StatusInternalServerError, "x")
		},
		"is garbage": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") },
		"is cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, `{"kind":"DeploymentList","metadata":{},"items":[`)
		},
		"is no list":     func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, deployment("x", "1")) },
		"does not exist": func(w http.ResponseWriter, _ *http.Request) { status(w, http.StatusNotFound, "NotFound") },
		"hangs up":       func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"does not know the proxy": func(w http.ResponseWriter, _ *http.Request) {
			status(w, http.StatusUnauthorized, "Unauthorized")
		},
	} {
		for _, bad := range []*fakeSide{x.legacy, x.modern} {
			x.legacy.say("GET "+collection, http.StatusOK, emptyList)
			x.modern.say("GET "+collection, http.StatusOK, emptyList)
			x.wants("GET", collection, "", http.StatusOK, `"resourceVersion":"l1m1"`)
			bad.page("GET "+collection, wrong)
			if code, _, text := x.ask("GET", collection, ""); code < 400 || !strings.Contains(text, `"kind":"Status"`) {
				t.Errorf("a side %s: %d %s", name, code, text)
			}
			if code, _, text := x.ask("GET", collection+"?watch=1", ""); code == http.StatusOK &&
				strings.Contains(text, "ADDED") {
				t.Errorf("a side %s: a watch says %s", name, text)
			}
		}
	}
	x.legacy.page("GET "+collection, func(w http.ResponseWriter, _ *http.Request) { // as 1.6 refuses impersonation
		http.Error(w, `User "alice" cannot impersonate "bob"`, http.StatusForbidden)
	})
	x.modern.say("GET "+collection, http.StatusOK, emptyList)
	x.wants("GET", collection, "", http.StatusForbidden,
		`"message":"fusionctl gateway: the legacy side: User \"alice\" cannot impersonate \"bob\"","reason":"Forbidden"`)
	x.legacy.server.Close()
	code, header, text := x.ask("GET", collection, "")
	if code != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
		t.Errorf("without a side: %d %s", code, text)
	}
}

// TestListsThatAreBombs: what lists take is counted by their objects and cells, not by their text.
func TestListsThatAreBombs(t *testing.T) {
	x := newFixture(t)
	items := strings.Repeat("{},", 2_200_000) + "{}"
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		side.say("GET "+collection, http.StatusOK, `{"kind":"Table","metadata":{},"rows":[`+items+`]}`)
	}
	x.wants("GET", collection, "", http.StatusServiceUnavailable, "bytes of memory",
		"Accept: application/json;as=Table;v=v1;g=meta.k8s.io")
	// Without a Table objects are held one by one.
	x.legacy.say("GET "+collection, http.StatusOK, emptyList)
	x.modern.say("GET "+collection, http.StatusOK, `{"kind":"DeploymentList","metadata":{},"items":[`+items+`]}`)
	x.gateway.shares.users = webserver.NewBudget(partsOfUsers * 4 << 20)
	if got := strings.Count(x.wants("GET", collection, "", http.StatusOK, "]}"), "{}"); got < 2_200_000 {
		t.Errorf("a list has %d objects", got)
	}

	columns := make([]string, 256)
	for i := range columns {
		columns[i] = fmt.Sprintf(`{"name":"c%d"}`, i)
	}
	const rows = 400_000
	list := `{"kind":"Table","metadata":{},"columnDefinitions":[` + strings.Join(columns, ",") + `],"rows":[` +
		strings.Repeat(`{"cells":[]},`, rows) + `{"cells":[]}]}`
	text, err := merge.ReadText([]byte(list))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := merge.ParseTable(text, pair.Modern)
	if err != nil {
		t.Fatal(err)
	}
	if got := merge.MergedBytes([]*merge.Table{parsed}); got < rows*256*10 {
		t.Errorf("%d rows of 256 columns are %d bytes", rows, got)
	}
	if _, _, err := merge.Read([]byte(list), pair.Modern, merge.Version{}); err == nil {
		t.Error("an event has any number of rows")
	}
}

func TestListsGoOnOverBothSides(t *testing.T) {
	x := newFixture(t)
	page := func(prefix, rv string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			names, next := []string{prefix + "1", prefix + "2", prefix + "3"}, ""
			if at := r.URL.Query().Get("continue"); at != "" {
				names = names[slices.Index(names, at):]
			}
			if limit := r.URL.Query().Get("limit"); limit == "1" && len(names) > 1 {
				names, next = names[:1], names[1]
			}
			var items []string
			for _, name := range names {
				items = append(items, deployment(name, name))
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"kind":"DeploymentList","metadata":{"resourceVersion":%q,"continue":%q},"items":[%s]}`, rv,
				next,
				strings.Join(items, ","))
		}
	}
	x.legacy.page("GET "+collection, page("l", "10"))
	x.modern.page("GET "+collection, page("m", "20"))
	var names []string
	query := "?limit=2"
	for range 5 {
		text := x.wants("GET", collection+query, "", http.StatusOK, `"resourceVersion":"l10m20"`)
		var list struct {
			Metadata struct{ Continue string }
			Items    []struct{ Metadata struct{ Name string } }
		}
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			t.Fatal(err)
		}
		for _, item := range list.Items {
			names = append(names, item.Metadata.Name)
		}
		if list.Metadata.Continue == "" {
			break
		}
		query = "?limit=2&continue=" + list.Metadata.Continue
	}
	if slices.Sort(names); !slices.Equal(names, []string{"l1", "l2", "l3", "m1", "m2", "m3"}) {
		t.Errorf("pages have %q", names)
	}
	x.wants("GET", collection+"?resourceVersion=7", "", http.StatusGone, `"reason":"Expired"`)
	x.wants("GET", collection+"?watch=1&resourceVersion=7", "", http.StatusGone, `"reason":"Expired"`)
	x.wants("GET", collection+"?resourceVersion=x", "", http.StatusUnprocessableEntity, "no resource version")
	const exact = "?resourceVersion=l7m9&resourceVersionMatch=Exact"
	x.wants("GET", collection+exact, "", http.StatusUnprocessableEntity, "1.15")
	newer, err := kubever.Parse("1.19.16")
	if err != nil {
		t.Fatal(err)
	}
	x.gateway.at(pair.Legacy).says(newer)
	x.wants("GET", collection+exact, "", http.StatusOK, "l1")
	x.wants("GET", collection+"?resourceVersion=l7&resourceVersionMatch=Exact", "", http.StatusUnprocessableEntity,
		"one object")
	// What is wrong with it the sides say.
	x.wants("GET", collection+"?resourceVersionMatch=Exact", "", http.StatusOK, "")
	if r, _ := x.modern.last(collection); r.URL.Query().Get("resourceVersionMatch") != "Exact" {
		t.Errorf("the modern side is asked %s", r.URL)
	}
	x.wants("GET", collection+"?resourceVersion=l7m9&resourceVersionMatch=NotOlderThan", "", http.StatusOK, "l1")
	if r, _ := x.modern.last(collection); r.URL.Query().Get("resourceVersion") != "9" {
		t.Errorf("the modern side is asked %s", r.URL)
	}
	x.wants("GET", collection, "", http.StatusNotAcceptable, "application/json alone",
		"Accept: application/vnd.kubernetes.protobuf")
	x.wants("GET", collection+"?watch=1&sendInitialEvents=true", "", http.StatusUnprocessableEntity, "list and watch")
}

func TestRequestsByNameGoToTheSideThatHasTheObject(t *testing.T) {
	x := newFixture(t)
	x.legacy.say("GET "+collection+"/old", http.StatusOK, deployment("old", "u1"))
	x.legacy.say("PUT "+collection+"/old", http.StatusOK, deployment("old", "u1"))
	x.legacy.say("PATCH "+collection+"/old", http.StatusOK, deployment("old", "u1"))
	x.legacy.say("DELETE "+collection+"/old", http.StatusOK, `{"kind":"Status","status":"Success"}`)
	x.modern.say("POST "+collection, http.StatusCreated, deployment("new", "u3"))
	x.wants("GET", collection+"/old", "", http.StatusOK, `"resourceVersion":"l5"`)
	x.wants("GET", collection+"/none", "", http.StatusNotFound, "NotFound")
	x.wants("PUT", collection+"/old",
		`{"metadata":{"resourceVersion":"l5m9","annotations":{"kubefusion.dev/side":"legacy",
		"a":"b"}}}`, http.StatusOK, `"kubefusion.dev/side":"legacy"`)
	if _, body := x.legacy.last(
		collection + "/old"); body != `{"metadata":{"annotations":{"a":"b"},"resourceVersion":"5"}}` {
		t.Errorf("the legacy side is sent %s", body)
	}
	for version, code := range map[string]int{"m5": http.StatusConflict, "5": http.StatusConflict,
		"x": http.StatusBadRequest} {
		x.wants("PATCH", collection+"/old", `{"metadata":{"resourceVersion":"`+version+`"}}`, code, "resource version",
			"Content-Type: application/merge-patch+json")
	}
	x.wants("PATCH", collection+"/old", `[{"op":"test","path":"/metadata/annotations/kubefusion.dev~1side",
		"value":"modern"}]`, http.StatusUnprocessableEntity, "test", "Content-Type: application/json-patch+json")
	x.wants("PUT", collection+"/old", "k8s\x00", http.StatusBadRequest, "",
		"Content-Type: application/vnd.kubernetes.protobuf")
	x.wants("PUT", collection+"/old", "k8s\x00\n\x16\n\x0eexample.com/v1\x12\x04Oven\x12\x00",
		http.StatusUnsupportedMediaType, "Oven", "Content-Type: application/vnd.kubernetes.protobuf")
	x.wants("PUT", collection+"/old", `{"a":"`+strings.Repeat("x", limitBodyBytes)+`"}`,
		http.StatusRequestEntityTooLarge, "")
	x.wants("DELETE", collection+"/old", "", http.StatusOK, "Success")
	x.wants("POST", collection, deployment("old", ""), http.StatusConflict, "already exists on the legacy side")
	x.wants("POST", collection, `{"metadata":{"name":"new"}}`, http.StatusCreated, `"kubefusion.dev/side":"modern"`)

	x.modern.say("GET "+collection+"/old", http.StatusOK, deployment("old", "u2"))
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		text := x.wants(method, collection+"/old", "{}", http.StatusConflict, "u1")
		if !strings.Contains(text, "u2") {
			t.Errorf("%s: %s, want both UIDs", method, text)
		}
	}
	x.wants("GET", collection+"/old?fieldSelector=metadata.uid%3Du1", "", http.StatusOK, `"side":"legacy"`[1:])
	x.wants("DELETE", collection+"/old", `{"preconditions":{"uid":"u1"}}`, http.StatusOK, "Success")
	// Whoever has deleted it meanwhile, and created another one, keeps that one.
	for _, options := range []string{"", `{"propagationPolicy":"Orphan"}`, `{"preconditions":{"uid":"u1"}}`} {
		x.wants("DELETE", collection+"/old?fieldSelector=metadata.uid%3Du1", options, http.StatusOK, "Success")
		if _, body := x.legacy.last(collection + "/old"); !strings.Contains(body, `"preconditions":{"uid":"u1"}`) ||
			strings.Contains(options, "Orphan") != strings.Contains(body, "Orphan") {
			t.Errorf("options %q: the side is sent %s", options, body)
		}
	}
	x.wants("DELETE", collection+"/old?fieldSelector=metadata.uid%3Du1", `{"preconditions":{"uid":"u2"}}`,
		http.StatusBadRequest, "two objects")
	x.wants("DELETE", collection+"/old?fieldSelector=metadata.uid%3Du1", `[]`, http.StatusBadRequest, "options")
	x.wants("DELETE", collection+"/old?uid=u1", "", http.StatusOK, "Success")

	// The object with another UID is not the one that is meant, though it is the only one of its name.
	x.modern.say("GET "+collection+"/old", http.StatusNotFound, "{}")
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		x.wants(method, collection+"/old?fieldSelector=metadata.uid%3Dgone", "{}", http.StatusNotFound, "gone")
	}
	x.wants("DELETE", collection+"/old", `{"preconditions":{"uid":"gone"}}`, http.StatusNotFound, "gone")

	// What cannot be looked at is not "not there" for a write, and is no reason not to show what was found.
	x.modern.say("GET "+collection+"/old", http.StatusInternalServerError, "{}")
	x.wants("GET", collection+"/old", "", http.StatusOK, `"uid":"u1"`)
	x.wants("DELETE", collection+"/old", "", http.StatusServiceUnavailable, "modern")
	x.wants("GET", collection+"/none", "", http.StatusNotFound, "")
	x.modern.say("GET "+collection+"/old", http.StatusForbidden, `{"kind":"Status","message":"not yours"}`)
	x.wants("GET", collection+"/old", "", http.StatusOK, `"uid":"u1"`)
	for _, method := range []string{"PUT", "DELETE"} {
		x.wants(method, collection+"/old", "{}", http.StatusForbidden, "not yours")
	}
	x.legacy.say("GET "+collection+"/new", http.StatusForbidden, `{"kind":"Status","message":"not yours"}`)
	x.wants("POST", collection, `{"metadata":{"name":"new"}}`, http.StatusForbidden, "not yours")
	x.modern.say("GET "+collection+"/none", http.StatusInternalServerError, "{}")
	x.wants("GET", collection+"/none", "", http.StatusServiceUnavailable, "")
}

func TestWatchesOfBothSidesAreOne(t *testing.T) {
	x := newFixture(t)
	stream := func(events ...string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			for _, e := range events {
				io.WriteString(w, e+"\n")
			}
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}
	event := func(kind, rv string) string {
		return `{"type":"` + kind + `","object":{"kind":"Deployment","metadata":{"name":"x","resourceVersion":"` + rv +
			`"}}}`
	}
	x.legacy.page("GET "+collection, stream(event("ADDED", "11"), event("BOOKMARK", "15")))
	x.modern.page("GET "+collection,
		stream(event("MODIFIED", "21"), `{"type":"ERROR","object":{"kind":"Status","code":410}}`))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		x.url+collection+"?watch=1&resourceVersion=l10m20", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Test-Certificate", "alice")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var seen []string
	decoder := json.NewDecoder(response.Body)
	for {
		var e struct {
			Type   string
			Object struct {
				Code     int
				Metadata struct{ ResourceVersion string }
			}
		}
		if err := decoder.Decode(&e); err != nil {
			break
		}
		seen = append(seen, fmt.Sprintf("%s %s%d", e.Type, e.Object.Metadata.ResourceVersion, e.Object.Code))
	}
	if len(seen) == 0 || seen[len(seen)-1] != "ERROR 410" {
		t.Errorf("the watch says %q, want the end of one to be the end", seen)
	}
	if r, _ := x.legacy.last(collection); r.URL.Query().Get("resourceVersion") != "10" {
		t.Errorf("the legacy side is asked %s", r.URL)
	}
}

// old lets the legacy side serve Deployments in another version, too.
func (x *fixture) old() {
	x.legacy.say("GET /apis", http.StatusOK, `{"kind":"APIGroupList","groups":[{"name":"extensions","versions":[{
		"groupVersion":"extensions/v1beta1","version":"v1beta1"}],"preferredVersion":{"groupVersion":"extensions/v1beta1",
		"version":"v1beta1"}}]}`)
	x.legacy.say("GET /apis/extensions/v1beta1", http.StatusOK, `{"kind":"APIResourceList","groupVersion":
		"extensions/v1beta1","resources":[{"name":"deployments","kind":"Deployment","namespaced":true,`+verbsJSON+`},
		{"name":"deployments/scale","kind":"Scale","namespaced":true,"verbs":["get","patch","update"]}]}`)
	x.gateway.refresh(x.t.Context())
}

// Each side is asked in its own version, and what it answers is shown in the asked one.
func TestVersionsOfOneSideAreServedForBoth(t *testing.T) {
	x := newFixture(t)
	x.old()
	const older = "/apis/extensions/v1beta1/namespaces/a/deployments"
	object := func(version, name, more string) string {
		return `{"kind":"Deployment","apiVersion":"` + version + `","metadata":{"name":"` + name + `","namespace":"a",
			"uid":"u-` + name + `","resourceVersion":"5"},"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{
			"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}` + more + `}}`
	}
	list := func(version, item string) string {
		return `{"kind":"DeploymentList","apiVersion":"` + version + `","metadata":{"resourceVersion":"7"},"items":[` + item +
			`]}`
	}
	const strange = `,"strange":{"revision":2}` // a field that no version has is lost by conversion
	x.legacy.say("GET "+older, http.StatusOK, list("extensions/v1beta1", object("extensions/v1beta1", "old", strange)))
	x.modern.say("GET "+collection, http.StatusOK, list("apps/v1", object("apps/v1", "new", "")))
	for path, version := range map[string]string{older: "extensions/v1beta1", collection: "apps/v1"} {
		code, header, text := x.ask("GET", path, "")
		var got struct {
			APIVersion string
			Items      []struct {
				APIVersion string
				Metadata   struct{ Name, ResourceVersion string }
			}
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil || code != http.StatusOK || len(got.Items) != 2 ||
			got.APIVersion != version || got.Items[0].APIVersion != version && got.Items[0].APIVersion != "" {
			t.Errorf("%s: %d %s, want both in %s", path, code, text, version)
		}
		if lost := strings.Contains(header.Get("Warning"), "strange"); lost != (path == collection) {
			t.Errorf("%s: warnings %q", path, header.Values("Warning"))
		}
	}
	x.legacy.page("GET "+older, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			t.Errorf("the legacy side is asked for %s", r.URL)
		}
		fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", object("extensions/v1beta1", "old", ""))
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	x.modern.page("GET "+collection, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			t.Errorf("the modern side is asked for %s", r.URL)
		}
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, x.url+collection+"?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Test-Certificate", "alice")
	x.modern.page("GET "+collection, func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	response.Body.Close()
	if err != nil || !strings.Contains(line, `"apiVersion":"apps/v1"`) || !strings.Contains(line, `"l5"`) {
		t.Errorf("the watch says %s, %v", line, err)
	}

	// Writes: read, changed in the asked version, converted, written with the resource version that was read.
	x.legacy.say("GET "+older+"/old", http.StatusOK, object("extensions/v1beta1", "old", strange))
	x.modern.say("GET "+collection+"/old", http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","code":404}`)
	x.legacy.say("PUT "+older+"/old", http.StatusOK, object("extensions/v1beta1", "old", ""))
	x.wants("PATCH", collection+"/old", `{"spec":{"replicas":3}}`, http.StatusOK, `"apiVersion":"apps/v1"`,
		"Content-Type: application/merge-patch+json")
	_, written := x.legacy.last(older + "/old")
	for _, want := range []string{`"replicas":3`, `"resourceVersion":"5"`, `"apiVersion":"extensions/v1beta1"`,
		`"strange"`} {
		if !strings.Contains(written, want) {
			t.Errorf("the legacy side is sent %s, want %s", written, want)
		}
	}
	x.wants("PATCH", collection+"/old", `{"spec":{"replicas":3}}`, http.StatusUnsupportedMediaType, "server-side apply",
		"Content-Type: application/apply-patch+yaml")

	// What a side cannot say is not written, unless the object says that it may be.
	x.modern.say("POST "+collection, http.StatusCreated, object("apps/v1", "third", ""))
	third := strings.Replace(object("extensions/v1beta1", "third", strange), `"resourceVersion":"5"`, `"labels":{}`, 1)
	x.wants("POST", older, third, http.StatusUnprocessableEntity, "spec.strange")
	if r, _ := x.modern.last(collection); r.Method == http.MethodPost {
		t.Error("it is written all the same")
	}
	allowed := strings.Replace(third, `"metadata":{`, `"metadata":{"annotations":{"kubefusion.dev/allow-loss":"true"},`, 1)
	code, header, text := x.ask("POST", older, allowed)
	if code != http.StatusCreated || !strings.Contains(header.Get("Warning"), "strange") ||
		!strings.Contains(text, `"apiVersion":"extensions/v1beta1"`) {
		t.Errorf("an allowed loss: %d %v %s", code, header, text)
	}
	x.wants("GET", "/apis/extensions/v1beta1", "", http.StatusOK, `"deployments/scale"`)
}

func TestDiscoveryIsOfBothSides(t *testing.T) {
	x := newFixture(t)
	const aggregated = "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
	code, header, text := x.ask("GET", "/apis", "", aggregated)
	if code != http.StatusOK || !strings.Contains(header.Get("Content-Type"), "as=APIGroupDiscoveryList") ||
		!strings.Contains(text, `"deployments"`) || !strings.Contains(text, "deletecollection") {
		t.Errorf("/apis: %d %v %s", code, header, text)
	}
	x.wants("GET", "/apis", "", http.StatusNotModified, "", aggregated, "If-None-Match: "+header.Get("Etag"))
	x.wants("GET", "/apis/apps/v1", "", http.StatusOK, `"deployments/scale"`)
	x.wants("GET", "/apis/apps", "", http.StatusOK, `"preferredVersion"`)
	x.wants("GET", "/apis/nothing/v1", "", http.StatusNotFound, "")
	x.wants("GET", "/logs", "", http.StatusNotImplemented, "/sides/modern/logs")

	x.legacy.say("GET /healthz", http.StatusInternalServerError, "starting")
	x.gateway.refresh(t.Context())
	x.wants("GET", "/apis", "", http.StatusOK, `"freshness":"Stale"`, aggregated)
	x.wants("GET", "/apis/apps/v1", "", http.StatusServiceUnavailable, "discovery of apps/v1 failed")
	x.wants("GET", "/api/v1", "", http.StatusOK, `"pods"`)
	x.legacy.say("GET /healthz", http.StatusOK, "ok")
	x.gateway.refresh(t.Context())
	x.wants("GET", "/apis", "", http.StatusOK, `"freshness":"Current"`, aggregated)
}

func TestOneUserDoesNotStarveOthers(t *testing.T) {
	x := newFixture(t)
	begun, end := make(chan struct{}), make(chan struct{})
	x.modern.page("GET /api/v1/namespaces/a/pods", func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-end
	})
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, x.url+"/api/v1/namespaces/a/pods", nil)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Test-Certificate", "alice")
			if response, err := http.DefaultClient.Do(r); err == nil {
				response.Body.Close()
			}
		})
		<-begun
	}
	x.wants("GET", "/apis", "", http.StatusTooManyRequests, "in flight")
	x.wants("GET", "/apis", "", http.StatusOK, "", "Test-Certificate: bob")
	close(end)
	group.Wait()
	x.wants("GET", "/apis", "", http.StatusOK, "")
}

// TestBodiesEndWhateverIsAskedFor: an upgrade that no answer can be, a watch that is a deletion and the like do not
// take the deadline from a body that the gateway reads itself.
func TestBodiesEndWhateverIsAskedFor(t *testing.T) {
	x := newFixture(t)
	server := httptest.NewUnstartedServer(x.handler)
	server.Config.ReadTimeout = 300 * time.Millisecond
	server.Start()
	t.Cleanup(server.Close)
	for _, line := range []string{"POST " + collection, "PUT " + collection + "/web",
		"GET " + collection + "/web/scale", "DELETE " + collection + "/web",
		"POST " + collection + "?watch=true", "DELETE /apis/apps/v1/watch/deployments",
		"PATCH " + collection + "/web/scale"} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\nTest-Certificate: alice\r\nConnection: Upgrade\r\n"+
				"Upgrade: websocket\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", line)
			if _, err := io.Copy(io.Discard, conn); err != nil {
				t.Errorf("the request has no end: %v", err)
			}
		})
	}
}

// TestBodiesOfOneUserAreBounded: one who sends many bodies slowly does not hold the memory of all.
func TestBodiesOfOneUserAreBounded(t *testing.T) {
	x := newFixture(t)
	x.legacy.say("GET "+collection+"/web", http.StatusNotFound, "{}")
	x.modern.say("POST "+collection, http.StatusCreated, deployment("web", "u"))
	own, left := x.gateway.shares.of(&user.DefaultInfo{Name: "alice"})
	defer left()
	reading := own.reading
	for range cap(reading) {
		if _, err := reading.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if most := cap(reading) * limitBytes; most > limitMemory/4 {
		t.Errorf("the bodies of one user may have %d bytes", most)
	}
	const web = `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web"}}`
	x.wants("POST", collection, web, http.StatusCreated, "web", "Test-Certificate: bob")
	x.wants("POST", collection, web, http.StatusTooManyRequests, "are being read")
}

// Clients of typed objects write them in protobuf, whoever has them, and read JSON.
func TestWritesInProtobuf(t *testing.T) {
	x := newFixture(t)
	const kind = "Content-Type: application/vnd.kubernetes.protobuf"
	const accepts = "Accept: application/vnd.kubernetes.protobuf,application/json"
	x.modern.say("POST "+collection, http.StatusCreated, deployment("web", "u"))
	x.modern.say("GET "+collection+"/web", http.StatusOK, deployment("web", "u"))
	x.modern.say("DELETE "+collection+"/web", http.StatusOK, `{"kind":"Status","metadata":{},"status":"Success"}`)
	message := func(object map[string]any) string {
		body, err := x.gateway.messages.EncodeProtobuf(&unstructured.Unstructured{Object: object})
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	web := message(map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{
		"name": "api", "annotations": map[string]any{"a": "b", merge.SideAnnotation: "modern"}},
		"spec": map[string]any{"replicas": int64(3)}})
	x.wants("POST", collection, web, http.StatusCreated, `"web"`, kind, accepts)
	r, body := x.modern.last(collection)
	var sent struct {
		Metadata struct {
			Name        string
			Annotations map[string]string
		}
		Spec struct{ Replicas int }
	}
	if err := json.Unmarshal([]byte(body), &sent); err != nil || r.Header.Get("Content-Type") != "application/json" ||
		sent.Metadata.Name != "api" || sent.Spec.Replicas != 3 || len(sent.Metadata.Annotations) != 1 {
		t.Errorf("the side is sent %s %s", r.Header, body)
	}
	// A field of a newer release holds something, or nothing: Go's clients write empty ones, too.
	for value, code := range map[string]int{"": http.StatusCreated, "x": http.StatusUnsupportedMediaType} {
		var wrapped runtime.Unknown
		if err := wrapped.Unmarshal([]byte(web[len("k8s\x00"):])); err != nil {
			t.Fatal(err)
		}
		wrapped.Raw = protowire.AppendString(protowire.AppendTag(wrapped.Raw, 99, protowire.BytesType), value)
		newer, err := wrapped.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		says := map[int]string{http.StatusUnsupportedMediaType: "#99 of the message has no name"}[code]
		x.wants("POST", collection, "k8s\x00"+string(newer), code, says, kind, accepts)
	}
	options := message(map[string]any{"apiVersion": "apps/v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan"})
	x.wants("DELETE", collection+"/web", options, http.StatusOK, "Success", kind, accepts)
	if _, body := x.modern.last(collection + "/web"); !strings.Contains(body, `"propagationPolicy":"Orphan"`) {
		t.Errorf("the side is sent %s", body)
	}
}

// Discovery has the same documents with a slash at the end; what is behind it is a name, which is not empty.
func TestSlashesAtTheEnd(t *testing.T) {
	x := newFixture(t)
	for _, path := range []string{"/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1"} {
		plain := x.wants("GET", path, "", http.StatusOK, "kind")
		for _, view := range []string{"", "/sides/modern"} {
			code := http.StatusOK
			if view != "" { // passed on as it is, and the side of the test has no such page
				code = http.StatusNotFound
			}
			got := x.wants("GET", view+path+"/", "", code, "")
			if view == "" && got != plain {
				t.Errorf("%s/ is %s, want %s", path, got, plain)
			}
		}
	}
	for _, path := range []string{"/api/v1/namespaces/", collection + "/", "/apis//", "/apis/apps//", "//", "/version/",
		"/api/v1//namespaces"} {
		x.wants("GET", path, "", http.StatusBadRequest, "empty segment")
	}
}

// kubectl get NAME --sort-by looks for the field in the object of the row.
func TestTablesOfOneObjectHaveIt(t *testing.T) {
	x := newFixture(t)
	x.modern.page("GET "+collection+"/new", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},
			"columnDefinitions":[{"name":%q,"type":"string"}],"rows":[{"cells":["new"],"object":%s}]}`,
			"include "+r.URL.Query().Get("includeObject"), deployment("new", "u"))
	})
	for include, want := range map[string]string{"Object": "include Object", "None": `"include "`, "": `"include "`} {
		x.wants("GET", collection+"/new?includeObject="+include, "", http.StatusOK, want,
			"Accept: application/json;as=Table;v=v1;g=meta.k8s.io")
	}
}
