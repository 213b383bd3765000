package gateway

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"
)

// withCluster is a fixture with a further cluster "far" of version 1.9, which serves Deployments as apps/v1beta2.
func withCluster(t testing.TB, more ...func(*Options)) (*fixture, *fakeSide) {
	t.Helper()
	far := newFakeSide(t, "1.9.11")
	far.say("GET /apis", http.StatusOK, `{"kind":"APIGroupList","groups":[{"name":"apps","versions":[{
		"groupVersion":"apps/v1beta2","version":"v1beta2"}],"preferredVersion":{"groupVersion":"apps/v1beta2",
		"version":"v1beta2"}}]}`)
	far.say("GET /apis/apps/v1beta2", http.StatusOK, `{"kind":"APIResourceList","groupVersion":"apps/v1beta2",
		"resources":[{"name":"deployments","kind":"Deployment","namespaced":true,`+verbsJSON+`},{
		"name":"deployments/scale","kind":"Scale","group":"apps","version":"v1beta2","namespaced":true,
		"verbs":["get","patch","update"]}]}`)
	config := far.config()
	config.BearerToken = "of-the-kubeconfig"
	x := newFixture(t, append(more, func(o *Options) { o.Clusters = map[string]*rest.Config{"far": config} })...)
	x.gateway.refreshCluster(t.Context(), x.gateway.clusters["far"])
	return x, far
}

func TestAFurtherClusterServesWhatItHas(t *testing.T) {
	x, far := withCluster(t)
	const pods = "/api/v1/namespaces/a/pods"
	far.say("GET "+pods, http.StatusOK, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`)
	x.wants("GET", "/clusters/far"+pods, "", http.StatusOK, "PodList")
	x.wants("GET", "/clusters/far/version", "", http.StatusOK, "v1.9.11")
	x.wants("GET", "/clusters/far/apis/apps", "", http.StatusOK, `"preferredVersion":{"groupVersion":"apps/v1beta2"`)
	x.wants("GET", "/clusters/far/apis/apps/v1", "", http.StatusOK, `"name":"deployments/scale"`)
	x.wants("GET", "/clusters/far/apis", "", http.StatusOK, `"version":"v1beta2","resources"`, "Accept: application/json;"+
		"g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	x.wants("GET", "/clusters/near"+pods, "", http.StatusNotFound, "no cluster")
	x.wants("GET", "/clusters/far/apis/example.org/v1/things", "", http.StatusNotFound, "nothing serves")
	x.wants("GET", "/clusters/legacy"+pods, "", http.StatusNotFound, "no cluster")
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		if r, _ := side.last(pods); r != nil {
			t.Error("a side is asked about a further cluster")
		}
	}
}

func TestAFurtherClusterIsConverted(t *testing.T) {
	x, far := withCluster(t)
	beta := strings.Replace(collection, "/v1/", "/v1beta2/", 1)
	object := strings.Replace(deployment("d", "u"), "apps/v1", "apps/v1beta2", 1)
	far.say("GET "+beta+"/d", http.StatusOK, object)
	far.say("GET "+beta, http.StatusOK, listOf("Deployment", "apps/v1beta2", 1, func(int) string { return object }))
	far.page("POST "+beta, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, object)
	})
	text := x.wants("GET", "/clusters/far"+collection+"/d", "", http.StatusOK, `"apiVersion":"apps/v1"`)
	if strings.Contains(text, "kubefusion.dev/side") {
		t.Errorf("it says a side: %s", text)
	}
	x.wants("GET", "/clusters/far"+collection, "", http.StatusOK, `"kind":"DeploymentList"`)
	x.wants("POST", "/clusters/far"+collection, `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"d"},
		"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}}}}}`,
		http.StatusCreated, `"apiVersion":"apps/v1"`)
	if r, body := far.last(beta); r.Method != http.MethodPost || !strings.Contains(body, "apps/v1beta2") {
		t.Errorf("it is sent %s %s", r.Method, body)
	}
	// 1.9 does not know dryRun and would write.
	x.wants("POST", "/clusters/far"+collection+"?dryRun=All", "{}", http.StatusBadRequest, "1.9")
}

// What could be a client's credential, and what it says of itself, stays here; who it is goes to the cluster as the
// request of the kubeconfig's identity.
func TestAFurtherClusterIsToldOfUsersAlone(t *testing.T) {
	x, far := withCluster(t)
	const pods = "/api/v1/namespaces/a/pods"
	x.legacy.vouch(map[string]string{"both": "robot", "account": "system:serviceaccount:a:b"})
	x.modern.vouch(map[string]string{"both": "robot", "account": "system:serviceaccount:a:b", "one": "carol"})
	far.say("GET "+pods, http.StatusOK, "{}")
	token := func(name string) []string { return []string{"Test-Certificate: ", "Authorization: Bearer " + name} }
	x.wants("GET", "/clusters/far"+pods, "", http.StatusOK, "", append(token("both"), "Cookie: a=b",
		"X-Remote-User: root", "X-Forwarded-For: 1.2.3.4", "Proxy-Authorization: Basic x")...)
	r, _ := far.last(pods)
	for name, want := range map[string]string{"Authorization": "Bearer of-the-kubeconfig", "Impersonate-User": "robot",
		"Impersonate-Group": "robots,system:authenticated", "Cookie": "", "X-Remote-User": "", "X-Remote-Group": "",
		"X-Forwarded-For": "", "Proxy-Authorization": "", "Impersonate-Extra-A%2fb": "", "X-Remote-Extra-A%2fb": ""} {
		if got := strings.Join(r.Header.Values(name), ","); got != want {
			t.Errorf("the cluster is told %s: %q, want %q", name, got, want)
		}
	}
	for _, header := range r.Header {
		if slices.ContainsFunc(header, func(value string) bool { return strings.Contains(value, "both") }) {
			t.Errorf("the cluster gets the client's token: %v", r.Header)
		}
	}
	// The streams go another way.
	x.wants("GET", "/clusters/far/api/v1/namespaces/a/pods/p/proxy/", "", http.StatusNotFound, "",
		append(token("both"), "Sec-Websocket-Protocol: "+tokenProtocol+"Ym90aA", "Impersonate: x")...)
	if r, _ := far.last("/api/v1/namespaces/a/pods/p/proxy"); r == nil || r.Header.Get(protocols) != "" ||
		r.Header.Get("Impersonate-User") != "robot" || r.Header.Get("Authorization") != "Bearer of-the-kubeconfig" {
		t.Errorf("a proxied request: %+v", r)
	}
	// So do connections that are to be upgraded.
	x.wants("GET", "/clusters/far/api/v1/namespaces/a/pods/p/exec", "", http.StatusNotFound, "",
		append(token("both"), "Connection: Upgrade", "Upgrade: SPDY/3.1")...)
	if r, _ := far.last("/api/v1/namespaces/a/pods/p/exec"); r == nil || r.Header.Get("Upgrade") != "SPDY/3.1" ||
		r.Header.Get("Impersonate-User") != "robot" || r.Header.Get("Authorization") != "Bearer of-the-kubeconfig" {
		t.Errorf("a request for an upgrade: %+v", r)
	}
	before := len(far.asked)
	x.wants("GET", "/clusters/far"+pods, "", http.StatusForbidden, "this cluster alone", token("account")...)
	x.wants("GET", "/clusters/far"+pods, "", http.StatusForbidden, "whom both sides know", token("one")...)
	x.wants("GET", "/clusters/far/apis", "", http.StatusForbidden, "whom both sides know", token("one")...)
	x.wants("GET", "/clusters/far"+pods, "", http.StatusForbidden, "in the name of others",
		"Impersonate-User: system:admin")
	x.wants("GET", "/clusters/far"+collection, "", http.StatusForbidden, "in the name of others",
		"Impersonate-Group: system:masters")
	x.wants("GET", "/clusters/far/version", "", http.StatusForbidden, "in the name of others", "impersonate-uid: 1")
	if len(far.asked) != before {
		t.Error("the cluster was asked what is refused here")
	}
}

// Groups of Kubernetes itself are those of their own cluster.
func TestNobodyIsMasterOfAFurtherCluster(t *testing.T) {
	x, far := withCluster(t)
	far.say("GET /api/v1/namespaces", http.StatusOK, "{}")
	x.legacy.vouchGroups("t", "root", "system:masters", "ops", "old")
	x.modern.vouchGroups("t", "root", "system:masters", "ops", "new")
	x.wants("GET", "/clusters/far/api/v1/namespaces", "", http.StatusOK, "", "Test-Certificate: ",
		"Authorization: Bearer t")
	r, _ := far.last("/api/v1/namespaces")
	if got := strings.Join(r.Header.Values("Impersonate-Group"), ","); got != "ops,system:authenticated" {
		t.Errorf("groups %s", got)
	}
}

// vouchGroups lets the side know one token.
func (f *fakeSide) vouchGroups(token, name string, groups ...string) {
	f.page("POST /apis/authentication.k8s.io/v1/tokenreviews", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,
			"user":{"username":%q,"groups":["%s"]}}}`, name, strings.Join(groups, `","`))
	})
}

func TestAHostileClusterSpeaksForItselfAlone(t *testing.T) {
	x, far := withCluster(t)
	const page = "/api/v1/namespaces/a/pods/s/proxy/"
	for location, want := range map[string]string{
		"https://evil.example.org/x":            "",
		"//evil.example.org/x":                  "",
		"http://" + far.server.URL[8:] + "/x":   "",
		"https://a@" + far.server.URL[8:] + "/": "",
		"https:evil":                            "",
		`\\evil.example.org\x`:                  "/clusters/far" + page + "%5C%5Cevil.example.org%5Cx",
		"/a/%2e%2e/%2e%2e/sides/legacy/api":     "",
		"/api/v1/namespaces/a/pods/s/proxy/login?a=b#c": "/clusters/far/api/v1/namespaces/a/pods/s/proxy/" +
			"login?a=b#c",
		"next":                                "/clusters/far" + page + "next",
		far.server.URL + "/api/v1/namespaces": "/clusters/far/api/v1/namespaces",
	} {
		far.page("GET "+page, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", location)
			w.Header().Set("Set-Cookie", "a=b")
			w.Header().Set("Alt-Svc", `h3="evil:443"`)
			w.WriteHeader(http.StatusFound)
		})
		code, header, _ := x.ask("GET", "/clusters/far"+page, "")
		if got := header.Get("Location"); got != want || want == "" && code != http.StatusServiceUnavailable ||
			want != "" && code != http.StatusFound {
			t.Errorf("Location %s becomes %d %q, want %q", location, code, got, want)
		}
		if header.Get("Set-Cookie")+header.Get("Alt-Svc") != "" {
			t.Errorf("headers for the whole host: %v", header)
		}
	}
	// A conversion follows none either, and 401 is not about the client.
	beta := strings.Replace(collection, "/v1/", "/v1beta2/", 1)
	far.page("GET "+beta, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "https://evil.example.org/x")
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	if _, header, _ := x.ask("GET", "/clusters/far"+collection, ""); header.Get("Location") != "" {
		t.Errorf("a converted list redirects: %v", header)
	}
	far.page("GET /api/v1/namespaces", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="password?"`)
		w.WriteHeader(http.StatusUnauthorized)
	})
	code, header, text := x.ask("GET", "/clusters/far/api/v1/namespaces", "")
	if code != http.StatusServiceUnavailable || header.Get("WWW-Authenticate") != "" ||
		!strings.Contains(text, "kubeconfig") {
		t.Errorf("401 of the cluster is %d %v %s", code, header, text)
	}
	far.say("GET /openapi/v3", http.StatusOK, `{"paths":{"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=A"},
		"x":{"serverRelativeURL":"https://evil.example.org/"}}}`)
	if text := x.wants("GET", "/clusters/far/openapi/v3", "", http.StatusOK,
		`"/clusters/far/openapi/v3/api/v1?hash=A"`); strings.Contains(text, "evil") {
		t.Errorf("documents are elsewhere: %s", text)
	}
}

// TestPathsOfAnotherGatewayAreNotJudged: where the cluster is behind a gateway of its own, a path of a page to this
// one's policy is a path of Secrets to that one.
func TestPathsOfAnotherGatewayAreNotJudged(t *testing.T) {
	pages := func(o *Options) {
		o.Policy = func() authorizer.Authorizer {
			return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (
				authorizer.Decision, string, error) {
				if a.IsResourceRequest() {
					return authorizer.DecisionNoOpinion, "", nil
				}
				return authorizer.DecisionAllow, "", nil
			})
		}
	}
	for _, path := range []string{"/sides/legacy/api/v1/secrets", "/clusters/x/api/v1/secrets", "/sides/legacy"} {
		x, far := withCluster(t, pages)
		far.say("GET "+path, http.StatusOK, `{"kind":"SecretList"}`)
		x.wants("GET", "/clusters/far"+path, "", http.StatusForbidden, "policy")
		x.wants("GET", "/clusters/far/version", "", http.StatusOK, "v1.9.11")
		x, far = withCluster(t)
		far.say("GET "+path, http.StatusOK, `{"kind":"SecretList"}`)
		x.wants("GET", "/clusters/far"+path, "", http.StatusOK, "SecretList")
	}
}

// A browser with a certificate of the pair that is shown a page of the cluster runs its scripts, which would be the
// gateway's own.
func TestPagesOfAFurtherClusterAreNotTheGateways(t *testing.T) {
	x, far := withCluster(t)
	const script = `<script>fetch("/api/v1/secrets").then(r => r.text()).then(send)</script>`
	for _, path := range []string{"/version", "/api/v1/namespaces/a/pods/s/proxy/", "/api/v1/namespaces/a/pods/p"} {
		far.page("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</sides/legacy/api/v1/secrets>; rel=preload")
			w.Header().Set("Set-Cookie", "early=1")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			for name, value := range map[string]string{"Content-Type": "text/html", "Content-Security-Policy": "",
				"Nel": `{"report_to":"evil"}`, "Report-To": `{"group":"evil"}`, "Reporting-Endpoints": `e="https://evil"`} {
				w.Header().Set(name, value)
			}
			io.WriteString(w, script)
		})
		early := 0
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(int, textproto.MIMEHeader) error { early++; return nil }})
		response := x.open(ctx, "/clusters/far"+path)
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || string(text) != script || early != 0 {
			t.Errorf("%s: %q, %v, %d early answers", path, text, err, early)
		}
		for name, want := range map[string]string{"Content-Security-Policy": "sandbox", "Nel": "", "Report-To": "",
			"X-Content-Type-Options": "nosniff", "Reporting-Endpoints": "", "Set-Cookie": "", "Link": ""} {
			if got := strings.Join(response.Header.Values(name), "; "); got != want {
				t.Errorf("%s: %s: %q, want %q", path, name, got, want)
			}
		}
	}
	beta := strings.Replace(collection, "/v1/", "/v1beta2/", 1)
	far.page("GET "+beta+"/d", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, script)
	})
	_, header, _ := x.ask("GET", "/clusters/far"+collection+"/d", "")
	if header.Get("Content-Security-Policy") != "sandbox" || header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("what is converted: %v", header)
	}
}

// A cluster that does not answer is in nobody's way: sides serve, and its own clients are told.
func TestAFurtherClusterThatIsSilent(t *testing.T) {
	x, far := withCluster(t)
	far.page("GET /apis", func(w http.ResponseWriter, _ *http.Request) { status(w, 500, "InternalError") })
	k := x.gateway.clusters["far"]
	x.gateway.refreshCluster(t.Context(), k)
	x.wants("GET", "/clusters/far/apis/apps/v1beta2", "", http.StatusServiceUnavailable, "discovery")
	if got := metric(t, x.registry, `fusionctl_gateway_cluster_stale{far}`); got != 1 {
		t.Errorf("stale is %v", got)
	}
	far.server.CloseClientConnections()
	far.server.Close()
	x.wants("GET", "/clusters/far/api/v1/namespaces", "", http.StatusServiceUnavailable, `cluster \"far\"`)
	x.modern.say("GET /api/v1/namespaces/a/pods", http.StatusOK, "{}")
	x.wants("GET", "/api/v1/namespaces/a/pods", "", http.StatusOK, "{}")
	x.wants("GET", "/readyz", "", http.StatusOK, "ok")
	k.current.Store(nil)
	x.wants("GET", "/clusters/far/api/v1/namespaces", "", http.StatusServiceUnavailable, "not succeeded")
}

// metric is the value of a gauge or a counter: NAME{VALUE}, by the value of its only label, or NAME.
func metric(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			called := f.GetName()
			for _, label := range m.GetLabel() {
				called += "{" + label.GetValue() + "}"
			}
			if called == name {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return -1
}

// A user's limits are for all that the gateway serves, and so is its policy.
func TestLimitsAndPolicyCoverFurtherClusters(t *testing.T) {
	allow := true
	x, far := withCluster(t, func(o *Options) {
		o.Policy = func() authorizer.Authorizer {
			return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (
				authorizer.Decision, string, error) {
				if allow && a.GetUser().GetName() == "alice" && a.GetPath() == "/api/v1/namespaces/a/pods" {
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			})
		}
	})
	const pods = "/api/v1/namespaces/a/pods"
	held, release := make(chan struct{}), make(chan struct{})
	far.page("GET "+pods, func(w http.ResponseWriter, _ *http.Request) {
		held <- struct{}{}
		<-release
		io.WriteString(w, "{}")
	})
	done := make(chan int)
	for range 3 {
		go func() {
			code, _, _ := x.ask("GET", "/clusters/far"+pods, "")
			done <- code
		}()
		<-held
	}
	x.wants("GET", "/clusters/far"+pods, "", http.StatusTooManyRequests, "alice")
	x.wants("GET", pods, "", http.StatusTooManyRequests, "alice")
	close(release)
	for range 3 {
		if code := <-done; code != http.StatusOK {
			t.Errorf("a held request: %d", code)
		}
	}
	allow = false
	before := len(far.asked)
	x.wants("GET", "/clusters/far"+pods, "", http.StatusForbidden, "policy")
	if len(far.asked) != before {
		t.Error("the cluster was asked what the policy forbids")
	}
}

func TestKubeconfigsOfFurtherClustersThatAreRefused(t *testing.T) {
	for name, change := range map[string]func(*rest.Config){
		"insecure-skip-tls-verify": func(c *rest.Config) { c.TLSClientConfig = rest.TLSClientConfig{Insecure: true} },
		"impersonates":             func(c *rest.Config) { c.Impersonate.UserName = "root" },
		"want https":               func(c *rest.Config) { c.Host = "http://127.0.0.1:1" },
	} {
		config := &rest.Config{Host: "https://127.0.0.1:1", BearerToken: "t"}
		change(config)
		if _, err := newCluster("far", config); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"legacy", "modern", "", "a/b", "a%2fb"} {
		if _, err := newCluster(name, &rest.Config{Host: "https://127.0.0.1:1"}); err == nil {
			t.Errorf("a cluster %q", name)
		}
	}
}

// TestHeadersOfAnswersAreBounded: a server whose answers have megabytes of headers costs the gateway no memory of them.
func TestHeadersOfAnswersAreBounded(t *testing.T) {
	x, far := withCluster(t)
	const pods, name = "/api/v1/namespaces/a/pods", "X-Much"
	for _, side := range []*fakeSide{far, x.modern} {
		size := limitHeaderBytes / 2
		side.page("GET "+pods, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(name, strings.Repeat("x", size))
			io.WriteString(w, "{}")
		})
		path := pods
		if side == far {
			path = "/clusters/far" + pods
		}
		for _, query := range []string{"", "?watch=true"} {
			if code, headers, text := x.ask("GET", path+query, ""); code != http.StatusOK ||
				len(headers.Get(name)) != size {
				t.Errorf("%s: %d %s, with %d bytes of headers", path+query, code, text, len(headers.Get(name)))
			}
			size = 2 * limitHeaderBytes
			if code, headers, _ := x.ask("GET", path+query, ""); code < http.StatusInternalServerError ||
				headers.Get(name) != "" {
				t.Errorf("%s: %d, with %d bytes of headers", path+query, code, len(headers.Get(name)))
			}
			size = limitHeaderBytes / 2
		}
	}
}

// TestConnectionsLimitHeaders: those of HTTP/1.1 and HTTP/2 do, with certificates that are read again when their files
// change, too.
func TestConnectionsLimitHeaders(t *testing.T) {
	for _, second := range []bool{false, true} {
		size := 1000
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Much", strings.Repeat("x", size))
		}))
		server.EnableHTTP2 = second
		server.StartTLS()
		defer server.Close()
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		files := rest.TLSClientConfig{CAData: ca, CertFile: filepath.Join(dir, "c"), KeyFile: filepath.Join(dir, "k")}
		if err := errors.Join(os.WriteFile(files.CertFile, ca, 0o600), os.WriteFile(files.KeyFile,
			pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600)); err != nil {
			t.Fatal(err)
		}
		for _, of := range []rest.TLSClientConfig{{CAData: ca}, files} {
			transport, err := rest.TransportFor(limitHeaders(&rest.Config{Host: server.URL, TLSClientConfig: of}))
			if err != nil {
				t.Fatal(err)
			}
			for n, want := range map[int]bool{1000: true, 2 * limitHeaderBytes: false} {
				size = n
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
				if err != nil {
					t.Fatal(err)
				}
				response, err := transport.RoundTrip(request)
				if (err == nil) != want {
					t.Errorf("HTTP/2 %v, %d bytes: %v", second, n, err)
				}
				if err != nil {
					continue
				}
				response.Body.Close()
				if (response.ProtoMajor == 2) != second {
					t.Errorf("HTTP/%d, want HTTP/2: %v", response.ProtoMajor, second)
				}
			}
		}
	}
}
