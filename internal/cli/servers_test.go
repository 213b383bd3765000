package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubefusion/fusionctl/internal/filetree"
)

// servedVerb is a verb that serves API servers, or their clients.
type servedVerb struct {
	name string
	args func(t *testing.T, dir string) []string
	path string
	body string // of a request that is served
	size int    // of a body that is too large
	ends int    // its exit code
	// The flags of its address, of the serving certificate and key, and of the clients.
	listen, cert, key, clientCA, clientName string
	ready                                   string // path that is answered 200 when it serves; "" for from the start
	users                                   bool   // its clients are users of every name

	own map[string]func(*servingTest) // proofs of claims that it keeps in another way
}

// openVerbs are the verbs that have flags for what else they serve, and whom.
func openVerbs() []servedVerb {
	return slices.DeleteFunc(servedVerbs(), func(v servedVerb) bool { return v.listen != "" || v.users })
}

func servedVerbs() []servedVerb {
	const rule = `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"alice","resource":"configmaps","namespace":"a"}}` + "\n"
	return []servedVerb{
		{
			name: "policy serve",
			args: func(t *testing.T, dir string) []string {
				file := filepath.Join(dir, "policy.jsonl")
				if err := os.WriteFile(file, []byte(rule), 0o600); err != nil {
					t.Fatal(err)
				}
				return []string{"policy", "serve", file}
			},
			path: "/authorize", size: 1<<20 + 4096,
			body: `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"alice","resourceAttributes":{"verb":"get","resource":"configmaps","namespace":"a"}}}`,
		},
		{
			name: "crd webhook",
			args: func(*testing.T, string) []string {
				return []string{"crd", "webhook", "--rules", "../../examples/pizza", "--limit-bytes", "1048576"}
			},
			path: "/convert", size: 1<<20 + 4096,
			body: `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":"x/v1","objects":[]}}`,
		},
		{
			name: "controllers",
			args: func(t *testing.T, dir string) []string {
				const nobody = `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"a","cluster":{"server":"http://127.0.0.1:1"}}],"contexts":[{"name":"a","context":{"cluster":"a"}}],"current-context":"a"}`
				file := filepath.Join(dir, "kubeconfig")
				if err := os.WriteFile(file, []byte(nobody), 0o600); err != nil {
					t.Fatal(err)
				}
				return []string{"controllers", "--spec", "../../examples/pods-1.10-1.36.yaml", "--legacy-kubeconfig",
					file,
					"--modern-kubeconfig", file, "--listen", ""}
			},
			path: "/pods", size: 16<<20 + 4096, ends: 130,
			listen: "webhook-listen", cert: "webhook-cert", key: "webhook-key", clientCA: "webhook-client-ca",
			clientName: "webhook-client-name",
			body:       `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"DELETE","namespace":"a","kind":{"group":"","version":"v1","kind":"Pod"}}}`,
		},
		{
			name: "gateway", args: gatewayArgs, ready: "/readyz", users: true,
			path: "/apis/apps/v1/namespaces/a/deployments", size: 3<<20 + 4096,
			body: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","namespace":"a"}}`,
			own: map[string]func(*servingTest){
				"client certificates": (*servingTest).knownClientsOnly,
				"slow clients":        (*servingTest).slowUserAlone,
			},
		},
	}
}

// gatewayArgs are those of a gateway over two servers that have Deployments and create whatever they are sent.
func gatewayArgs(t *testing.T, dir string) []string {
	cert, key := newTestCA(t).write(dir, "front-proxy")
	args := []string{"gateway", "../../examples/split-1.15-1.36.yaml", "--proxy-cert", cert, "--proxy-key", key}
	for side, version := range map[string]string{"legacy": "1.15.12", "modern": "1.36.3"} {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			answer := map[string]string{
				"/version": `{"gitVersion":"v` + version + `"}`, "/readyz": `"ok"`, "/healthz": `"ok"`,
				"/api": `{"kind":"APIVersions","versions":["v1"]}`,
				"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"namespaces",` +
					`"kind":"Namespace","verbs":["get","list"]}]}`,
				"/apis": `{"kind":"APIGroupList","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1",` +
					`"version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}]}`,
				"/apis/apps/v1": `{"kind":"APIResourceList","groupVersion":"apps/v1","resources":[{"name":` +
					`"deployments","kind":"Deployment","namespaced":true,"verbs":["create","get","list"]}]}`,
			}[r.URL.Path]
			w.Header().Set("Content-Type", "application/json")
			if r.Method == http.MethodPost {
				answer = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"}}`
			}
			if answer == "" {
				w.WriteHeader(http.StatusNotFound)
				answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
			}
			fmt.Fprint(w, answer)
		}))
		t.Cleanup(server.Close)
		file := filepath.Join(dir, side+".conf")
		authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		config := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"a","cluster":{"server":%q,`+
			`"certificate-authority-data":%q}}],"contexts":[{"name":"a","context":{"cluster":"a"}}],`+
			`"current-context":"a"}`, server.URL, base64.StdEncoding.EncodeToString(authority))
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--"+side+"-kubeconfig", file)
	}
	return args
}

// knownClientsOnly: a client without a certificate, or a token that a side knows, is answered 401; one of another CA
// gets no connection.
func (s *servingTest) knownClientsOnly() {
	body := func() io.Reader { return strings.NewReader(s.verb.body) }
	s.want("a client without a certificate", http.StatusUnauthorized, s.ca.config(""), body(), nil)
	s.want("a client of a name without a certificate", http.StatusUnauthorized, s.ca.config(""), body(),
		http.Header{"X-Remote-User": {"kube-apiserver"}})
	s.want("a client of a token that no side knows", http.StatusUnauthorized, s.ca.config(""), body(),
		http.Header{"Authorization": {"Bearer unknown"}})
	other := newTestCA(s.T).config("kube-apiserver")
	other.RootCAs = s.ca.config("").RootCAs
	s.wantNoConnection("a client of another CA", other)
	s.want("a client with a certificate", http.StatusOK, s.ca.config("kube-apiserver"), body(), nil)
}

// slowUserAlone: a user who sends requests slowly has some of them read, and no more; another user is served beside.
func (s *servingTest) slowUserAlone() {
	const requests = 300 // more than a user may have in flight
	config := s.ca.config("slow")
	answers, held := make(chan string), make(chan struct{})
	defer close(held)
	dialing := make(chan struct{}, 16) // each has ten seconds to shake hands, on a busy machine, too
	for range requests {
		go func() {
			dialing <- struct{}{}
			connection, err := tls.Dial("tcp", s.address, config)
			<-dialing
			if err != nil {
				answers <- err.Error()
				return
			}
			defer connection.Close()
			fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"+
				"Expect: 100-continue\r\n\r\n", s.verb.path)
			line, err := bufio.NewReader(connection).ReadString('\n')
			if err != nil {
				line = err.Error()
			}
			answers <- line
			<-held
		}()
	}
	read, refused := 0, 0
	for range requests {
		switch line := <-answers; {
		case strings.Contains(line, "100 Continue"): // it waits for the body
			read++
		case strings.Contains(line, "429"):
			refused++
		default:
			s.Errorf("a slow request: %q", line)
		}
	}
	if read == 0 || read > 100 {
		s.Errorf("%d of %d slow requests of one user are read, and %d refused", read, requests, refused)
	}
	s.want("another user beside the slow one", http.StatusOK, s.ca.config("kube-apiserver"),
		strings.NewReader(s.verb.body), nil)
}

// testCA issues certificates.
type testCA struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newTestCA(t *testing.T) *testCA {
	ca := &testCA{t: t}
	ca.cert, ca.key = ca.sign("ca", true)
	return ca
}

func (ca *testCA) sign(name string, authority bool) (*x509.Certificate, *ecdsa.PrivateKey) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: authority, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	parent, signer := ca.cert, ca.key
	if authority {
		parent, signer, template.ExtKeyUsage = template, key, nil
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		ca.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		ca.t.Fatal(err)
	}
	return cert, key
}

// write issues a certificate into files, each replaced as a whole.
func (ca *testCA) write(dir, name string) (cert, key string) {
	ca.t.Helper()
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	c, k := ca.sign(name, false)
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		ca.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: c.Raw},
		key: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := filetree.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			ca.t.Fatal(err)
		}
	}
	return cert, key
}

func (ca *testCA) config(client string) *tls.Config {
	ca.t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	config := &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}
	if client != "" {
		c, k := ca.sign(client, false)
		config.Certificates = []tls.Certificate{{Certificate: [][]byte{c.Raw}, PrivateKey: k}}
	}
	return config
}

// servingTest is a verb that serves with certificates.
type servingTest struct {
	*testing.T
	verb    servedVerb
	address string
	ca      *testCA
	dir     string
	end     func() int // ends the server, and returns its exit code
}

// servedAt finds the address in a log of either form, whatever its message.
var servedAt = regexp.MustCompile(`address(?:=|":")([0-9.]+:[0-9]+)`)

func serveVerb(t *testing.T, verb servedVerb) *servingTest {
	t.Helper()
	s := &servingTest{T: t, verb: verb, ca: newTestCA(t), dir: t.TempDir()}
	cert, key := s.ca.write(s.dir, "server")
	ca := filepath.Join(s.dir, "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.ca.cert.Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	logs, stderr := io.Pipe()
	done := make(chan int, 1)
	args := verb.args(t, s.dir)
	if !verb.users {
		args = append(args, "--"+cmp.Or(verb.clientName, "client-name"), "kube-apiserver")
	}
	go func() {
		flag := func(own, usual string) string { return "--" + cmp.Or(own, usual) }
		done <- Main(ctx, append(args, flag(verb.listen, "listen"), "127.0.0.1:0",
			flag(verb.cert, "tls-cert"),
			cert, flag(verb.key, "tls-key"), key, flag(verb.clientCA, "client-ca"), ca),
			Streams{In: strings.NewReader(""), Out: io.Discard, Err: stderr})
		stderr.Close()
	}()
	slow := time.AfterFunc(time.Minute, cancel) // a server that does not say where it serves
	defer slow.Stop()
	lines := bufio.NewScanner(logs)
	var said []string
	for lines.Scan() {
		said = append(said, lines.Text())
		if found := servedAt.FindStringSubmatch(lines.Text()); found != nil {
			s.address = found[1]
			break
		}
	}
	if s.address == "" {
		t.Fatalf("it does not serve: %s", strings.Join(said, "\n"))
	}
	go io.Copy(io.Discard, logs)
	s.end = sync.OnceValue(func() int { cancel(); return <-done })
	s.waitReady()
	return s
}

// waitReady waits for a server that has something to find out before it serves.
func (s *servingTest) waitReady() {
	s.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: s.ca.config("")}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	for began := time.Now(); s.verb.ready != ""; {
		response, err := client.Get("https://" + s.address + s.verb.ready)
		if err != nil {
			s.Fatal(err)
		}
		answer, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return
		}
		if time.Since(began) > time.Minute {
			s.Fatalf("it is not ready: %s", answer)
		}
	}
}

// send sends a request on a connection of its own.
func (s *servingTest) send(config *tls.Config, body io.Reader, header http.Header) (int, error) {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true,
		DisableCompression: true, ExpectContinueTimeout: time.Minute}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "https://"+s.address+s.verb.path,
		body)
	if err != nil {
		return 0, err
	}
	for name, values := range header {
		request.Header[name] = values
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

func (s *servingTest) want(what string, code int, config *tls.Config, body io.Reader, header http.Header) {
	s.Helper()
	if got, err := s.send(config, body, header); err != nil || got != code {
		s.Errorf("%s: %d, %v, want %d", what, got, err, code)
	}
}

func (s *servingTest) wantNoConnection(what string, config *tls.Config) {
	s.Helper()
	if got, err := s.send(config, strings.NewReader(s.verb.body), nil); err == nil {
		s.Errorf("%s is served: %d", what, got)
	}
}

// serverClaims are the rows of docs/security.md about servers, each with its proof.
var serverClaims = []struct {
	claim string
	prove func(s *servingTest)
}{
	{"TLS 1.2 or later, forward secrecy and authenticated encryption", func(s *servingTest) {
		for name, change := range map[string]func(*tls.Config){
			"TLS 1.1": func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 },
			"CBC": func(c *tls.Config) {
				c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}
			},
		} {
			config := s.ca.config("kube-apiserver")
			change(config)
			s.wantNoConnection(name, config)
		}
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			config := s.ca.config("kube-apiserver")
			config.MinVersion, config.MaxVersion = version, version
			s.want(tls.VersionName(version), http.StatusOK, config, strings.NewReader(s.verb.body), nil)
		}
	}},
	{"client certificates", func(s *servingTest) {
		s.wantNoConnection("a client without a certificate", s.ca.config(""))
		s.wantNoConnection("a client of another name", s.ca.config("eve"))
		other := newTestCA(s.T).config("kube-apiserver")
		other.RootCAs = s.ca.config("").RootCAs
		s.wantNoConnection("a client of another CA", other)
		s.want("the API server", http.StatusOK, s.ca.config("kube-apiserver"), strings.NewReader(s.verb.body), nil)
	}},
	{"no session is resumed", func(s *servingTest) {
		config := s.ca.config("kube-apiserver")
		config.ClientSessionCache = tls.NewLRUClientSessionCache(8)
		for range 3 {
			connection, err := tls.Dial("tcp", s.address, config)
			if err != nil {
				s.Fatal(err)
			}
			fmt.Fprintf(connection, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			if _, err := io.Copy(io.Discard, connection); err != nil {
				s.Error(err)
			}
			if connection.ConnectionState().DidResume {
				s.Error("a session is resumed, whatever the CA says by now")
			}
			connection.Close()
		}
	}},
	{"body limit", func(s *servingTest) {
		s.want("a large body", http.StatusRequestEntityTooLarge, s.ca.config("kube-apiserver"),
			bytes.NewReader(make([]byte, s.verb.size)),
			http.Header{"Expect": {"100-continue"}}) // it is denied by its length, before it is sent
		s.want("a large body of unknown length", http.StatusRequestEntityTooLarge, s.ca.config("kube-apiserver"),
			io.LimitReader(zeros{}, int64(s.verb.size)), nil)
	}},
	{"slow clients", func(s *servingTest) {
		const slow = 300 // more than requests that are served at a time
		var connections []net.Conn
		defer func() {
			for _, c := range connections {
				c.Close()
			}
		}()
		for range slow {
			connection, err := tls.Dial("tcp", s.address, s.ca.config("kube-apiserver"))
			if err != nil {
				s.Fatal(err)
			}
			connections = append(connections, connection)
			fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nExpect: 100-continue\r\n"+
				"\r\n",
				s.verb.path)
			if line, err := bufio.NewReader(connection).ReadString('\n'); err != nil ||
				!strings.Contains(line, "100 Continue") { // it waits for the body
				s.Fatalf("the server does not read the body: %q, %v", line, err)
			}
		}
		s.want("beside slow clients", http.StatusOK, s.ca.config("kube-apiserver"), strings.NewReader(s.verb.body), nil)
	}},
	{"no decompression", func(s *servingTest) {
		for _, coding := range []string{"gzip", "deflate", "identity, gzip"} {
			s.want(coding, http.StatusUnsupportedMediaType, s.ca.config("kube-apiserver"),
				strings.NewReader(s.verb.body), http.Header{"Content-Encoding": {coding}})
		}
	}},
	{"header limit", func(s *servingTest) {
		s.want("large headers", http.StatusRequestHeaderFieldsTooLarge, s.ca.config("kube-apiserver"),
			strings.NewReader(s.verb.body),
			http.Header{"X-Large": {strings.Repeat("x", 128<<10)}})
	}},
	{"certificates are reloaded without a gap", func(s *servingTest) {
		s.reloadUnderLoad()
	}},
	{"orderly end", func(s *servingTest) {
		connection, err := tls.Dial("tcp", s.address, s.ca.config("kube-apiserver"))
		if err != nil {
			s.Fatal(err)
		}
		defer connection.Close()
		fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
			s.verb.path, len(s.verb.body))
		answers := bufio.NewReader(connection)
		if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
			s.Fatalf("the server does not read the body: %q, %v", line, err)
		}
		if _, err := answers.ReadString('\n'); err != nil {
			s.Fatal(err)
		}
		ended := make(chan int, 1)
		go func() { ended <- s.end() }()
		for { // until it takes no connections any more
			other, err := net.Dial("tcp", s.address)
			if err != nil {
				break
			}
			other.Close()
		}
		if _, err := io.WriteString(connection, s.verb.body); err != nil {
			s.Error(err)
		}
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			s.Fatalf("a request that had begun when the server ended: %v", err)
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
			s.Errorf("a request that had begun when the server ended: %s, %v", answer.Status, err)
		}
		if code := <-ended; code != s.verb.ends {
			s.Errorf("the server ends with %d", code)
		}
	}},
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// reloadUnderLoad replaces the server's certificate again and again while 64 clients call on connections of their own.
func (s *servingTest) reloadUnderLoad() {
	const clients, calls = 64, 6
	config := s.ca.config("kube-apiserver")
	serials := sync.Map{}
	config.VerifyConnection = func(state tls.ConnectionState) error {
		serials.Store(state.PeerCertificates[0].SerialNumber.String(), true)
		return nil
	}
	s.want("the first certificate", http.StatusOK, config, strings.NewReader(s.verb.body), nil)
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			for range calls {
				s.want("a call while certificates change", http.StatusOK, config, strings.NewReader(s.verb.body), nil)
			}
		})
	}
	ended := make(chan struct{})
	go func() { group.Wait(); close(ended) }()
	for calling := true; calling; {
		s.ca.write(s.dir, "server")
		select {
		case <-ended:
			calling = false
		default:
		}
	}
	s.want("the last certificate", http.StatusOK, config, strings.NewReader(s.verb.body), nil)
	seen := 0
	serials.Range(func(any, any) bool { seen++; return true })
	if seen < 2 {
		s.Errorf("clients saw %d certificates, want several", seen)
	}
}

func TestServersKeepTheirPromises(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range serverClaims {
		if !strings.Contains(string(page), "| "+c.claim) {
			t.Errorf("docs/security.md has no row %q", c.claim)
		}
	}
	for _, verb := range servedVerbs() {
		t.Run(verb.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range serverClaims {
				t.Run(c.claim, func(t *testing.T) {
					s, prove := serveVerb(t, verb), c.prove
					if own := verb.own[c.claim]; own != nil {
						prove = own
					}
					prove(s)
					s.end()
				})
			}
		})
	}
}

// TestEveryServerIsDescribed: every verb that listens keeps the promises, or is described beside them.
func TestEveryServerIsDescribed(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Servers\n")
	section, _, _ = strings.Cut(section, "\n## ")
	proved := map[string]bool{"operator": true} // health and metrics alone: TestOperatorListensOnLoopback
	for _, verb := range servedVerbs() {
		proved[verb.name] = true
	}
	found := map[string]bool{}
	var walk func(cmd *cobra.Command, path string)
	walk = func(cmd *cobra.Command, path string) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "listen" || strings.HasSuffix(f.Name, "-listen") {
				found[path] = true
			}
		})
		for _, child := range cmd.Commands() {
			walk(child, strings.TrimSpace(path+" "+child.Name()))
		}
	}
	walk(NewRootCmd(Streams{}), "")
	for verb := range found {
		if !proved[verb] || !strings.Contains(section, "`"+verb+"`") {
			t.Errorf("%s listens: proved %v; docs/security.md has to say what it keeps to", verb, proved[verb])
		}
	}
	if len(found) != len(proved) {
		t.Errorf("verbs that listen: %v, want those of %v", found, proved)
	}
}

// TestOperatorListensOnLoopback: metrics without TLS are for this machine, or pod, alone.
func TestOperatorListensOnLoopback(t *testing.T) {
	for _, address := range []string{":10273", "0.0.0.0:10273", "[::]:10273", "192.0.2.1:10273", "example.com:1"} {
		var stderr bytes.Buffer
		code := Main(t.Context(), []string{"operator", "--metrics-listen", address, "--kubeconfig", "/nowhere"},
			Streams{In: strings.NewReader(""), Out: io.Discard, Err: &stderr})
		if code != 2 || !strings.Contains(stderr.String(), "want an address on loopback") {
			t.Errorf("--metrics-listen %s: %d, %s", address, code, stderr.String())
		}
	}
	flags := newOperatorCmd(Streams{}).Flags()
	for _, name := range []string{"metrics-listen", "health-listen"} {
		if address := flags.Lookup(name).DefValue; !loopback(address) {
			t.Errorf("--%s is %s unless it is said", name, address)
		}
	}
}

// TestServersRefuseToBeOpen: what would serve anybody has to be said.
func TestServersRefuseToBeOpen(t *testing.T) {
	ca, dir := newTestCA(t), t.TempDir()
	cert, key := ca.write(dir, "server")
	certificates := []string{"--tls-cert", cert, "--tls-key", key}
	for _, verb := range openVerbs() {
		for want, args := range map[string][]string{
			"no certificate to serve with":       nil,
			"no flag restricts the clients":      certificates,
			"--client-name name the API servers": append([]string{"--client-ca", cert}, certificates...),
			"takes neither --client-ca": append([]string{"--client-ca", cert, "--any-client"},
				certificates...),
			`"0.0.0.0:1" is not on loopback`: append([]string{"--any-client", "--metrics-listen", "0.0.0.0:1"},
				certificates...),
			`":1" is not on loopback`: append([]string{"--any-client", "--metrics-listen", ":1"},
				certificates...),
			"--metrics-listen \"0.0.0.0:1\": no flag": append(
				[]string{"--client-ca", cert, "--client-name", "a", "--metrics-listen", "0.0.0.0:1"}, certificates...),
			"is for --metrics-listen": append(
				[]string{"--any-client", "--metrics-client-name", "prometheus"}, certificates...),
			"want --listen on a loopback address":    {"--insecure-http", "--listen", "0.0.0.0:1"},
			"--insecure-http: takes no certificates": append([]string{"--insecure-http"}, certificates...),
		} {
			var stderr bytes.Buffer
			code := Main(t.Context(), append(verb.args(t, dir), args...),
				Streams{In: strings.NewReader(""), Out: io.Discard, Err: &stderr})
			if code != 2 || !strings.Contains(stderr.String(), want) {
				t.Errorf("%s %v: %d, %s, want 2 and %q", verb.name, args, code, stderr.String(), want)
			}
		}
	}
}
