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
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/internal/webserver"
)

// idleServer is what a process of its own serves, so that what it holds is known without its clients and sides.
type idleServer struct {
	Bare                bool // a bare reverse proxy to the modern side: what any proxy of net/http holds
	Legacy, Modern      string
	SidesCA             []byte
	Cert, Key, ClientCA string
	ProxyCert, ProxyKey string
	Trace               string // file for a profile of the processor
}

const idleServerVariable = "FUSIONCTL_TEST_IDLE_SERVER"

// TestIdleServer is the process of an idleServer. It answers each line of its input with what it holds.
func TestIdleServer(t *testing.T) {
	text := os.Getenv(idleServerVariable)
	if text == "" {
		t.Skip("it is a process of other tests")
	}
	var s idleServer
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	certificates := &webserver.Certificates{Cert: s.Cert, Key: s.Key, ClientCA: s.ClientCA, Optional: true}
	config, err := certificates.Config()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if !s.Bare {
		go webserver.PaceHeap(t.Context())
	}
	server := webserver.New(s.handler(t), nil)
	var serving net.Listener = webserver.NewHandshakes(listener, config, slog.New(slog.DiscardHandler))
	if s.Bare {
		serving = tls.NewListener(listener, config)
	}
	go func() { _ = server.Serve(serving) }()
	fmt.Println("serves https://" + listener.Addr().String())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		resident := residentMiB(t)
		switch lines.Text() {
		case "resident":
			fmt.Printf("holds 0 0 %f\n", resident)
			continue
		case "processor":
			fmt.Printf("took %f\n", processorSeconds(t))
			continue
		case "trace":
			out, err := os.Create(s.Trace)
			if err == nil {
				err = pprof.StartCPUProfile(out)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer pprof.StopCPUProfile()
			continue
		}
		for range 4 { // each halves the stacks that are too large
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if file := lines.Text(); file != "" {
			profile(t, file)
		}
		fmt.Printf("holds %f %f %f\n", float64(m.HeapInuse)/(1<<20), float64(m.StackInuse)/(1<<20), resident)
	}
}

// profile writes what the process holds, and where its goroutines are.
func profile(t *testing.T, file string) {
	t.Helper()
	for _, name := range []string{"heap", "goroutine"} {
		out, err := os.Create(file + "." + name)
		if err == nil {
			err = pprof.Lookup(name).WriteTo(out, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		out.Close()
	}
}

// residentMiB is what the process holds in the eyes of the kernel.
func residentMiB(t *testing.T) float64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err) // not on this system
	}
	var kib float64
	if _, rest, ok := strings.Cut(string(text), "VmRSS:"); !ok {
		t.Fatal("no VmRSS")
	} else if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib / (1 << 10)
}

// processorSeconds is how long the process has used a processor.
func processorSeconds(t *testing.T) float64 {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return (time.Duration(used.Utime.Nano()) + time.Duration(used.Stime.Nano())).Seconds()
}

func (s *idleServer) handler(t *testing.T) http.Handler {
	t.Helper()
	side := func(url string) *rest.Config {
		return &rest.Config{Host: url, TLSClientConfig: rest.TLSClientConfig{CAData: s.SidesCA}}
	}
	if s.Bare {
		to, err := url.Parse(s.Modern)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(s.SidesCA)
		proxy := &httputil.ReverseProxy{FlushInterval: -1, BufferPool: wholeBuffers,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true},
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) }}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
			_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
			proxy.ServeHTTP(w, r)
		})
	}
	g, err := New(testPlan(t), Options{Legacy: side(s.Legacy), Modern: side(s.Modern), ProxyCert: s.ProxyCert,
		ProxyKey: s.ProxyKey}, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	g.refresh(t.Context())
	if err := g.Ready(); err != nil {
		t.Fatal(err)
	}
	return g
}

// idle are sides of which watches have one bookmark, and then nothing, and the certificates of servers and clients.
type idle struct {
	t              testing.TB
	legacy, modern *fakeSide
	server         idleServer
	client         tls.Certificate
	roots          *x509.CertPool
}

func newIdle(t testing.TB) *idle {
	t.Helper()
	i := &idle{t: t, legacy: startFakeSide(t, "1.15.12", true), modern: startFakeSide(t, "1.36.3", true),
		roots: x509.NewCertPool()}
	for _, s := range []*fakeSide{i.legacy, i.modern} {
		for path, kind := range map[string]string{"/api/v1/namespaces/a/pods": `"v1","kind":"Pod"`,
			collection: `"apps/v1","kind":"Deployment"`} {
			s.page("GET "+path, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"apiVersion":`+kind+`,"metadata":{"resourceVersion":"5"}}}`)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})
		}
	}
	i.server = idleServer{Legacy: i.legacy.server.URL, Modern: i.modern.server.URL,
		SidesCA: i.legacy.config().CAData}
	i.server.ProxyCert, i.server.ProxyKey = proxyCertificate(t)
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true,
		BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}
	issue := func(name string, template *x509.Certificate) (cert, keyFile string) {
		template.NotAfter = time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, ca, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		private, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		cert, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
		for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der},
			keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
			if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return cert, keyFile
	}
	i.server.ClientCA, _ = issue("ca", ca)
	i.server.Cert, i.server.Key = issue("server", &x509.Certificate{SerialNumber: big.NewInt(2),
		Subject: pkix.Name{CommonName: "gateway"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	cert, private := issue("client", &x509.Certificate{SerialNumber: big.NewInt(3), Subject: pkix.Name{
		CommonName: "alice", Organization: []string{"developers"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if i.client, err = tls.LoadX509KeyPair(cert, private); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(i.server.ClientCA)
	if err != nil {
		t.Fatal(err)
	}
	i.roots.AppendCertsFromPEM(text)
	return i
}

// idleProcess is a process of an idleServer.
type idleProcess struct {
	*idle
	url string
	in  io.Writer
	out *bufio.Scanner
}

func (i *idle) start(bare bool) *idleProcess {
	i.t.Helper()
	s := i.server
	s.Bare = bare
	text, err := json.Marshal(s)
	if err != nil {
		i.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestIdleServer$")
	cmd.Env = append(os.Environ(), idleServerVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		i.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		i.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	p := &idleProcess{idle: i, in: in, out: bufio.NewScanner(out)}
	p.url = p.says("serves ")
	return p
}

// says is the rest of the next line that begins so.
func (p *idleProcess) says(prefix string) string {
	p.t.Helper()
	for p.out.Scan() {
		if rest, ok := strings.CutPrefix(p.out.Text(), prefix); ok {
			return rest
		}
	}
	p.t.Fatalf("the process ended: %v", p.out.Err())
	return ""
}

// holding is what a process holds, in MiB.
type holding struct{ heap, stacks, resident float64 }

func (h holding) live() float64 { return h.heap + h.stacks }

// holds is what the process holds. Its profiles are written to files of that name; "" for none.
func (p *idleProcess) holds(file string) (h holding) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, file); err != nil {
		p.t.Fatal(err)
	}
	if _, err := fmt.Sscan(p.says("holds "), &h.heap, &h.stacks, &h.resident); err != nil {
		p.t.Fatal(err)
	}
	return h
}

// watch begins watches and waits until each has had its bookmark. one: all of them have one connection.
func (p *idleProcess) watch(path string, watches int, one bool) (end func()) {
	p.t.Helper()
	transport := func() *http.Transport {
		config := &tls.Config{RootCAs: p.roots, Certificates: []tls.Certificate{p.client}}
		return &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true}
	}
	ctx, cancel := context.WithCancel(p.t.Context())
	shared := transport()
	transports := make(chan *http.Transport, watches)
	var group errgroup.Group
	group.SetLimit(16)
	for range watches {
		group.Go(func() error {
			by := shared
			if !one {
				by = transport()
				transports <- by
			}
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path+"?watch=1", nil)
			if err != nil {
				return err
			}
			response, err := by.RoundTrip(r)
			if err != nil {
				return err
			}
			context.AfterFunc(ctx, func() { response.Body.Close() })
			line, err := bufio.NewReaderSize(response.Body, 64).ReadString('\n')
			if err != nil || !strings.Contains(line, "BOOKMARK") {
				return fmt.Errorf("%s: %s %w", response.Status, line, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		p.t.Fatal(err)
	}
	return func() {
		cancel()
		close(transports)
		shared.CloseIdleConnections()
		for t := range transports {
			t.CloseIdleConnections()
		}
	}
}

// BenchmarkIdleWatches measures what 2,000 watches hold that have no events, of one client or of as many with a
// connection each: by a gateway, and by a bare proxy, each in a process of its own. MiB is what it holds more after a
// collection, of which MiB-stacks are stacks of goroutines; MiB-resident is what the process has of the system while
// the watches have just begun, MiB-rested half a minute later, and MiB-resident-before before. With
// GATEWAY_PROFILES=DIR profiles are written there.
func BenchmarkIdleWatches(b *testing.B) {
	const watches = 2000
	for _, tc := range []struct {
		name, path string
		bare       bool
	}{{"bare", "/api/v1/namespaces/a/pods", true}, {"passed on", "/api/v1/namespaces/a/pods", false},
		{"merged", collection, false}} {
		for _, one := range []bool{true, false} {
			name := tc.name + ", a client each"
			if one {
				name = tc.name + ", one client"
			}
			b.Run(name, func(b *testing.B) {
				for b.Loop() {
					p := newIdle(b).start(tc.bare)
					before := p.holds("")
					end := p.watch(tc.path, watches, one)
					file := ""
					if dir := os.Getenv("GATEWAY_PROFILES"); dir != "" {
						file = filepath.Join(dir, strings.NewReplacer(" ", "-", ",", "").Replace(name))
					}
					begun := p.holds("resident")
					<-time.After(30 * time.Second)
					b.ReportMetric(p.holds("resident").resident, "MiB-rested")
					after := p.holds(file)
					b.ReportMetric(after.live()-before.live(), "MiB")
					b.ReportMetric(after.stacks-before.stacks, "MiB-stacks")
					b.ReportMetric(before.resident, "MiB-resident-before")
					b.ReportMetric(begun.resident, "MiB-resident")
					end()
				}
			})
		}
	}
}

// BenchmarkProcessorOfGets measures for how long a process of its own uses a processor for a get of a pod, of 8
// clients: a gateway, and a bare proxy. With GATEWAY_PROFILES=DIR a profile is written there.
func BenchmarkProcessorOfGets(b *testing.B) {
	const path = "/api/v1/namespaces/a/pods/p"
	const clients, requests = 8, 4000
	i := newIdle(b)
	pod := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","annotations":{"a":%q}}}`,
		strings.Repeat("x", 2000))
	for _, s := range []*fakeSide{i.legacy, i.modern} {
		s.say("GET "+path, http.StatusOK, pod)
	}
	for _, bare := range []bool{true, false} {
		name := "gateway"
		if bare {
			name = "bare"
		}
		b.Run(name, func(b *testing.B) {
			dir := os.Getenv("GATEWAY_PROFILES")
			if dir != "" {
				i.server.Trace = filepath.Join(dir, "gets-"+name+".profile")
			}
			p := i.start(bare)
			transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: p.roots,
				Certificates: []tls.Certificate{p.client}}}
			defer transport.CloseIdleConnections()
			ask := func(count int) {
				var group errgroup.Group
				for range clients {
					group.Go(func() error {
						for range count / clients {
							r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, p.url+path, nil)
							if err != nil {
								return err
							}
							response, err := transport.RoundTrip(r)
							if err != nil {
								return err
							}
							_, err = io.Copy(io.Discard, response.Body)
							response.Body.Close()
							if err != nil || response.StatusCode != http.StatusOK {
								return fmt.Errorf("%s %w", response.Status, err)
							}
						}
						return nil
					})
				}
				if err := group.Wait(); err != nil {
					b.Fatal(err)
				}
			}
			used := func() (seconds float64) {
				fmt.Fprintln(p.in, "processor")
				if _, err := fmt.Sscan(p.says("took "), &seconds); err != nil {
					b.Fatal(err)
				}
				return seconds
			}
			ask(requests)
			if dir != "" {
				fmt.Fprintln(p.in, "trace")
			}
			before := used()
			for b.Loop() {
				ask(requests)
			}
			b.ReportMetric((used()-before)*1e6/float64(requests*b.N), "us-processor/get")
		})
	}
}
