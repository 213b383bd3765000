package webhook

import (
	"bytes"
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
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"

	"github.com/kubefusion/fusionctl/pkg/policy"
)

func line(spec string) string {
	return `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{` + spec + "}}\n"
}

func handler(t *testing.T, deny bool, text string) *Handler {
	t.Helper()
	rules, err := policy.Parse("p.jsonl", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiled := Policy{Name: "p.jsonl", Authorizer: policy.NewAuthorizer(rules)}
	return &Handler{Policy: func() Policy { return compiled }, Deny: deny, Metrics: NewMetrics(prometheus.NewRegistry())}
}

func post(h http.Handler, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/authorize", strings.NewReader(body)))
	return w
}

func TestHandlerAnswersInTheVersionOfTheQuestion(t *testing.T) {
	text := line(`"group":"devs","resource":"pods","namespace":"a","readonly":true`) + line(`"user":"alice","nonResourcePath":"/metrics","readonly":true`)
	const v1, v1beta1 = "authorization.k8s.io/v1", "authorization.k8s.io/v1beta1"
	resource := `"resourceAttributes":{"verb":%q,"group":"","version":"v1","resource":"pods","subresource":"log","namespace":"a","name":"x"}`
	tests := []struct {
		name, version, spec string
		deny                bool
		want                authorizationv1.SubjectAccessReviewStatus
	}{
		{"v1", v1, `"user":"bob","groups":["devs"],` + fmt.Sprintf(resource, "get"), false, authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "p.jsonl:1"}},
		{"v1beta1 has group", v1beta1, `"user":"bob","group":["devs"],` + fmt.Sprintf(resource, "list"), false, authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "p.jsonl:1"}},
		{"v1 has no group", v1, `"user":"bob","group":["devs"],` + fmt.Sprintf(resource, "get"), false, authorizationv1.SubjectAccessReviewStatus{Reason: "no rule of p.jsonl allows it"}},
		{"write", v1, `"user":"bob","groups":["devs"],` + fmt.Sprintf(resource, "delete"), false, authorizationv1.SubjectAccessReviewStatus{Reason: "no rule of p.jsonl allows it"}},
		{"denied", v1beta1, `"user":"bob","group":["devs"],` + fmt.Sprintf(resource, "delete"), true, authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "no rule of p.jsonl allows it"}},
		{"path", v1, `"user":"alice","nonResourceAttributes":{"path":"/metrics","verb":"get"}`, false, authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "p.jsonl:2"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := post(handler(t, test.deny, text), fmt.Sprintf(`{"apiVersion":%q,"kind":"SubjectAccessReview","spec":{%s}}`, test.version, test.spec))
			if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
				t.Fatalf("answer %d %s: %s", w.Code, w.Header().Get("Content-Type"), w.Body)
			}
			var got struct {
				APIVersion, Kind string
				Status           authorizationv1.SubjectAccessReviewStatus
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if got.APIVersion != test.version || got.Kind != "SubjectAccessReview" || got.Status != test.want {
				t.Errorf("answer %s, want %s %+v", w.Body, test.version, test.want)
			}
		})
	}
}

func TestHandlerNeverDecidesWhatItCannotRead(t *testing.T) {
	h := handler(t, false, line(`"group":"system:authenticated","apiGroup":"*","resource":"*","namespace":"*","nonResourcePath":"*"`))
	for name, body := range map[string]string{
		"empty":       "",
		"not JSON":    "{",
		"other kind":  `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{}}`,
		"version":     `{"apiVersion":"authorization.k8s.io/v2","kind":"SubjectAccessReview","spec":{}}`,
		"neither":     `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"a"}}`,
		"both":        `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"resourceAttributes":{},"nonResourceAttributes":{"path":"/"}}}`,
		"empty path":  `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"nonResourceAttributes":{"verb":"get"}}}`,
		"wrong type":  `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":7,"resourceAttributes":{}}}`,
		"a megabyte":  `{"apiVersion":"authorization.k8s.io/v1","kind":"` + strings.Repeat("x", reviewLimitBytes) + `"}`,
		"wrong types": `{"apiVersion":"authorization.k8s.io/v1beta1","kind":"SubjectAccessReview","spec":[]}`,
	} {
		if w := post(h, body); w.Code != http.StatusBadRequest || strings.Contains(w.Body.String(), "allowed") {
			t.Errorf("%s: answer %d %s, want 400 without a decision", name, w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/authorize", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: answer %d, want 405", w.Code)
	}
	if got := testutil.ToFloat64(h.Metrics.bad); got != 11 {
		t.Errorf("bad reviews counted: %v, want 11", got)
	}
}

// file is a policy file that a test rewrites; every write moves its time on, as a clock would.
type file struct {
	path string
	time time.Time
}

func (f *file) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(f.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f.time = f.time.Add(time.Second)
	if err := os.Chtimes(f.path, f.time, f.time); err != nil {
		t.Fatal(err)
	}
}

func TestSourceKeepsTheLastGoodPolicy(t *testing.T) {
	f := &file{filepath.Join(t.TempDir(), "policy"), time.Now()}
	f.write(t, line(`"user":"alice","resource":"configmaps","namespace":"a"`))
	metrics := NewMetrics(prometheus.NewRegistry())
	s, err := Open(f.path, false, metrics)
	if err != nil {
		t.Fatal(err)
	}
	allowed := func(user string) bool {
		q := policy.Request{User: user, Verb: "get", Resource: "configmaps", Namespace: "a"}
		_, ok := s.Policy().Authorizer.Match(q.Attributes())
		return ok
	}
	check := func(step string, wantLoaded, wantErr bool, wantUser string, wantGood float64) {
		t.Helper()
		loaded, err := s.Check()
		if loaded != wantLoaded || (err != nil) != wantErr {
			t.Fatalf("%s: Check = %v, %v, want loaded %v, error %v", step, loaded, err, wantLoaded, wantErr)
		}
		for _, user := range []string{"alice", "bob", "carol"} {
			if allowed(user) != (user == wantUser) {
				t.Fatalf("%s: %s allowed: %v, want only %s", step, user, allowed(user), wantUser)
			}
		}
		if got := testutil.ToFloat64(metrics.good); got != wantGood {
			t.Fatalf("%s: metric file_good = %v, want %v", step, got, wantGood)
		}
	}
	check("nothing changed", false, false, "alice", 1)

	f.write(t, line(`"user":"bob","resource":"configmaps","namespace":"a"`))
	check("just changed", false, false, "alice", 1)
	check("stayed the same", true, false, "bob", 1)

	f.write(t, "{\n")
	check("just broken", false, false, "bob", 1)
	check("broken", false, true, "bob", 0)
	check("still broken, reported once", false, false, "bob", 0)

	f.write(t, `{"kind":"Policy","spec":{"user":"mallory"}}`)
	check("just dangerous", false, false, "bob", 0)
	check("dangerous: it allows everything", false, true, "bob", 0)

	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	check("gone", false, true, "bob", 0)
	check("still gone", false, false, "bob", 0)

	f.write(t, line(`"user":"carol","resource":"configmaps","namespace":"a"`))
	check("back", false, false, "bob", 0)
	check("back and the same", true, false, "carol", 1)

	// Written in place, a bit more at every look: half of it is never in use.
	for i := range 4 {
		f.write(t, strings.Repeat("#\n", i))
		check("being written", false, false, "carol", 1)
	}
}

func TestOpenRefusesWhatIsNotGood(t *testing.T) {
	dir := t.TempDir()
	dangerous := filepath.Join(dir, "dangerous")
	if err := os.WriteFile(dangerous, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		file    string
		lenient bool
		want    string
	}{
		"missing":              {filepath.Join(dir, "missing"), false, "no such file"},
		"directory":            {dir, false, "want a file"},
		"allows everything":    {dangerous, false, "FUS150"},
		"allowed when lenient": {dangerous, true, ""},
	} {
		_, err := Open(test.file, test.lenient, NewMetrics(prometheus.NewRegistry()))
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: Open = %v, want %q", name, err, test.want)
		}
	}
}

// authority issues certificates for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func (a *authority) issue(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// client presents a certificate of the authority, or none for "".
func (a *authority) client(t *testing.T, trusted *authority, name string) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(trusted.cert)
	config := &tls.Config{RootCAs: pool}
	if name != "" {
		pair, err := tls.X509KeyPair(a.issue(t, name))
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, ForceAttemptHTTP2: true}}
}

func TestServeAsksForTheClientsCertificate(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	c := &Certificates{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), ClientCA: filepath.Join(dir, "ca.crt"), ClientNames: []string{"kube-apiserver"}}
	install := func(a *authority) {
		t.Helper()
		cert, key := a.issue(t, "webhook")
		for name, data := range map[string][]byte{c.Cert: cert, c.Key: key, c.ClientCA: a.pem} {
			if err := os.WriteFile(name+".new", data, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(name+".new", name); err != nil {
				t.Fatal(err)
			}
		}
	}
	install(ours)
	config, err := c.Config()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, tls.NewListener(listener, config), handler(t, false, line(`"user":"alice","resource":"configmaps","namespace":"a"`)))
	}()
	ask := func(client *http.Client) error {
		body, err := json.Marshal(authorizationv1beta1.SubjectAccessReview{
			Spec: authorizationv1beta1.SubjectAccessReviewSpec{User: "alice", ResourceAttributes: &authorizationv1beta1.ResourceAttributes{Verb: "get", Resource: "configmaps", Namespace: "a"}},
		})
		if err != nil {
			return err
		}
		body = bytes.Replace(body, []byte("{"), []byte(`{"apiVersion":"authorization.k8s.io/v1beta1","kind":"SubjectAccessReview",`), 1)
		response, err := client.Post("https://"+listener.Addr().String()+"/authorize", "application/json", bytes.NewReader(body))
		if err != nil {
			return err
		}
		defer response.Body.Close()
		var review authorizationv1beta1.SubjectAccessReview
		if err := json.NewDecoder(response.Body).Decode(&review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			return fmt.Errorf("refused: %+v", review.Status)
		}
		return nil
	}
	if err := ask(ours.client(t, ours, "kube-apiserver")); err != nil {
		t.Errorf("a client with a certificate: %v", err)
	}
	for name, client := range map[string]*http.Client{
		"without a certificate": ours.client(t, ours, ""),
		"of another name":       ours.client(t, ours, "somebody"),
		"of another authority":  theirs.client(t, ours, "kube-apiserver"),
	} {
		if err := ask(client); err == nil {
			t.Errorf("a client %s is answered", name)
		}
	}

	install(theirs) // the files are rotated, and used for the next connection
	if err := ask(theirs.client(t, theirs, "kube-apiserver")); err != nil {
		t.Errorf("after a rotation: %v", err)
	}
	if err := os.WriteFile(c.Cert, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ask(theirs.client(t, theirs, "kube-apiserver")); err != nil {
		t.Errorf("with a broken certificate file, the last good one is not used: %v", err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve = %v, want nil after its context ended", err)
	}
}

func TestConfigRefusesBadFiles(t *testing.T) {
	dir := t.TempDir()
	cert, key := newAuthority(t, "ours").issue(t, "webhook")
	write := func(name string, data []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, goodKey, empty := write("crt", cert), write("key", key), write("empty", nil)
	for name, c := range map[string]*Certificates{
		"missing": {Cert: filepath.Join(dir, "missing"), Key: goodKey}, "no key": {Cert: good, Key: empty}, "empty CA": {Cert: good, Key: goodKey, ClientCA: empty},
	} {
		if _, err := c.Config(); err == nil {
			t.Errorf("%s: Config passed, want an error", name)
		}
	}
}
