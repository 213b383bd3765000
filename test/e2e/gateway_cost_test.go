//go:build e2e && linux

package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

const configMaps = "/api/v1/namespaces/default/configmaps"

// resident is how many MiB the gateway's process holds.
func (g *gatewayed) resident() float64 {
	g.t.Helper()
	response, err := http.Get("http://" + g.metrics + "/metrics")
	must(g.t, err)
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "process_resident_memory_bytes "); ok {
			bytes, err := strconv.ParseFloat(text, 64)
			must(g.t, err)
			return bytes / (1 << 20)
		}
	}
	g.t.Fatal("the metrics have no process_resident_memory_bytes")
	return 0
}

// httpClient is one of a kubeconfig, with connections of its own.
func httpClient(t testing.TB, kubeconfig string) *http.Client {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(t, err)
	config.Proxy = http.ProxyURL(nil)
	transport, err := rest.TransportFor(config) // with a Proxy it is shared with no other
	must(t, err)
	return &http.Client{Transport: transport}
}

// TestGatewayIsSmall: what the gateway's whole process holds while there are two thousand watches without events, of
// one client or of as many with a connection each, when it has given back what they took to begin. docs/gateway.md has
// what was measured; 46 MiB of it are the pages of the program's file.
func TestGatewayIsSmall(t *testing.T) {
	t.Parallel()
	const watches = 2000
	limitMiB := map[string]float64{"one client" + configMaps: 200, "one client" + deployments: 250,
		"a client each" + configMaps: 300, "a client each" + deployments: 420}
	g := startGateway(t, rig.PairSpec{Layout: spec.LayoutSplit, Legacy: "1.15.12", Modern: "1.36.3",
		NoControllers: true})
	shared := httpClient(t, g.kubeconfig)
	of := map[string]func() *http.Client{"one client": func() *http.Client { return shared },
		"a client each": func() *http.Client { return httpClient(t, g.kubeconfig) }}
	for _, name := range []string{"one client", "a client each"} {
		for _, path := range []string{configMaps, deployments} {
			before := g.resident()
			ctx, cancel := context.WithCancel(t.Context())
			var mu sync.Mutex
			var bodies []io.Closer
			var group errgroup.Group
			group.SetLimit(16)
			for range watches {
				c := of[name]()
				group.Go(func() error {
					r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url+path+"?watch=1", nil)
					if err != nil {
						return err
					}
					response, err := c.Do(r)
					if err != nil {
						return err
					}
					mu.Lock()
					defer mu.Unlock()
					if bodies = append(bodies, response.Body); response.StatusCode != http.StatusOK {
						return errors.New(response.Status)
					}
					return nil
				})
			}
			must(t, group.Wait())
			begun, rested := g.resident(), 0.0
			g.Eventually(fmt.Sprintf("%d watches of %s, of %s, take no more than %.0f MiB", watches, path, name,
				limitMiB[name+path]), func(context.Context) error {
				if rested = g.resident(); rested > limitMiB[name+path] {
					return fmt.Errorf("%.0f MiB", rested)
				}
				return nil
			})
			t.Logf("%d watches of %s, of %s: %.0f MiB, %.0f when they had begun, %.0f before", watches, path, name,
				rested, begun, before)
			cancel()
			for _, body := range bodies {
				body.Close()
			}
			g.Eventually("the watches have ended", func(ctx context.Context) error {
				return g.ClientOf(g.url, "alice", "developers").Call(ctx, http.MethodGet,
					path+"?watch=1&timeoutSeconds=1", nil, nil)
			})
		}
	}
}

const bareProxyVariable = "FUSIONCTL_TEST_BARE_PROXY"

// bareProxy is a reverse proxy of net/http and nothing else, to one side, as a process of its own: what any such proxy
// takes. Every client is the administrator.
type bareProxy struct{ To, CA, Cert, Key, ProxyCert, ProxyKey, Listen string }

// TestBareProxy is that process, until its input ends.
func TestBareProxy(t *testing.T) {
	text := os.Getenv(bareProxyVariable)
	if text == "" {
		t.Skip("it is a process of a benchmark")
	}
	var p bareProxy
	must(t, json.Unmarshal([]byte(text), &p))
	to, err := url.Parse(p.To)
	must(t, err)
	config, err := rest.TLSConfigFor(&rest.Config{Host: p.To, TLSClientConfig: rest.TLSClientConfig{CAFile: p.CA,
		CertFile: p.ProxyCert, KeyFile: p.ProxyKey}})
	must(t, err)
	certificates := &webserver.Certificates{Cert: p.Cert, Key: p.Key, ClientCA: p.CA, Optional: true}
	serving, err := certificates.Config()
	must(t, err)
	listener, err := net.Listen("tcp", p.Listen)
	must(t, err)
	proxy := &httputil.ReverseProxy{Transport: &http.Transport{TLSClientConfig: config, DisableCompression: true,
		MaxIdleConnsPerHost: 256}, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Header.Set("X-Remote-User", "admin")
		r.Out.Header.Set("X-Remote-Group", "system:masters")
	}}
	go func() { _ = webserver.New(proxy, nil).Serve(tls.NewListener(listener, serving)) }()
	_, err = io.Copy(io.Discard, os.Stdin)
	must(t, err)
}

// bare starts a bare proxy to the modern side and returns where it is.
func (g *gatewayed) bare() string {
	g.t.Helper()
	cert, key, err := g.PKI.Serving("bare", "127.0.0.1")
	must(g.t, err)
	p := bareProxy{To: g.Modern.URL, CA: g.PKI.File("ca.crt"), Cert: cert, Key: key,
		ProxyCert: g.Place(g.Plan.PKI.ProxyClientCert), ProxyKey: g.Place(g.Plan.PKI.ProxyClientKey),
		Listen: fmt.Sprintf("127.0.0.1:%d", g.Port())}
	text, err := json.Marshal(p)
	must(g.t, err)
	cmd := exec.Command(os.Args[0], "-test.run", "^TestBareProxy$")
	cmd.Env = append(os.Environ(), bareProxyVariable+"="+string(text))
	in, err := cmd.StdinPipe()
	must(g.t, err)
	must(g.t, cmd.Start())
	g.t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	at := "https://" + p.Listen
	client := g.ClientOf(at, "admin", "system:masters")
	g.Eventually("the bare proxy serves", func(ctx context.Context) error {
		return client.Call(ctx, http.MethodGet, "/version", nil, nil)
	})
	return at
}

// BenchmarkGatewayOfRealServers compares the gateway with direct connections to real API servers, in turns: what it
// adds to what they take. of-direct is the share of the throughput, one request after the other or, with clients, of as
// many that ask as fast as they can; bare-of-direct is that of a reverse proxy that does nothing else.
func BenchmarkGatewayOfRealServers(b *testing.B) {
	const count = 10_000
	g := startGateway(b, rig.PairSpec{Layout: spec.LayoutSplit, Legacy: "1.15.12", Modern: "1.36.3",
		NoControllers: true})
	as := func(name, url string) measuredServer {
		kubeconfig, err := g.PKI.Kubeconfig("bench-"+name, url, "admin", "system:masters")
		must(b, err)
		return measuredServer{b, url, httpClient(b, kubeconfig)}
	}
	legacy, modern, through := as("legacy", g.Legacy.URL), as("modern", g.Modern.URL), as("gateway", g.url)
	bare := as("bare", g.bare())
	g.must(pair.Legacy, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts",
		object{"metadata": object{"name": "bench"}})
	const pods = "/api/v1/namespaces/default/pods"
	// Of pods on a node that is not there the garbage collector makes an end within a minute.
	g.must(pair.Legacy, http.MethodPost, "/api/v1/nodes", object{"metadata": object{"name": "none"}})
	fill := func(side pair.Side, path string, body func(name string) object) {
		var group errgroup.Group
		group.SetLimit(16)
		for i := range count {
			group.Go(func() error {
				return g.admin[side].Call(b.Context(), http.MethodPost, path, body(fmt.Sprintf("%s-%d", side, i)), nil)
			})
		}
		must(b, group.Wait())
	}
	container := object{"name": "c", "image": "example.test/c:1", "env": []object{{"name": "A",
		"value": strings.Repeat("x", 200)}}}
	fill(pair.Legacy, pods, func(name string) object {
		return object{"metadata": object{"name": name, "labels": object{"app": "bench"}}, "spec": object{
			"serviceAccountName": "bench", "automountServiceAccountToken": false, "nodeName": "none",
			"containers": []object{container}}}
	})
	for _, of := range []struct {
		name, path string
		requests   int
	}{{"get", pods + "/legacy-7", 400}, {"list 500 pods", pods + "?limit=500", 64},
		{"list 10000 pods", pods + "?resourceVersion=0", 8}} {
		for _, clients := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s, %d clients", of.name, clients), func(b *testing.B) {
				against(b, func(took *times) { through.ask(of.path, clients, of.requests, took) },
					func(took *times) { modern.ask(of.path, clients, of.requests, took) },
					func(took *times) { bare.ask(of.path, clients, of.requests, took) })
			})
		}
	}

	// A server in use is a machine's only work, and those who ask are elsewhere.
	b.Run("get, 32 clients, servers have a processor of their own", func(b *testing.B) {
		apart(b, "etcd", "kube-apiserver")
		against(b, func(took *times) { through.ask(pods+"/legacy-7", 32, 3200, took) },
			func(took *times) { modern.ask(pods+"/legacy-7", 32, 3200, took) },
			func(took *times) { bare.ask(pods+"/legacy-7", 32, 3200, took) })
	})

	b.Run("events of 2000 watches", func(b *testing.B) {
		const changes = 4
		var turns []func(*times)
		for i, server := range []measuredServer{through, modern, bare} { // each with an object of its own
			name := fmt.Sprintf("watched-%d", i)
			at := configMaps + "/" + name
			must(b, g.admin[pair.Modern].Call(b.Context(), http.MethodPost, configMaps, object{"metadata": object{
				"name": name}}, nil))
			seen := server.watch(configMaps+"?watch=1&fieldSelector=metadata.name%3D"+name, 2000)
			turns = append(turns, func(took *times) {
				seen.Add(2000 * changes)
				began := time.Now()
				for i := range changes {
					must(b, g.admin[pair.Modern].Call(b.Context(), http.MethodPut, at, object{"metadata": object{
						"name": name}, "data": object{"a": fmt.Sprint(began.UnixNano(), i)}}, nil))
				}
				seen.Wait()
				took.took = append(took.took, float64(time.Since(began))/float64(time.Millisecond))
			})
		}
		against(b, turns[0], turns[1], turns[2])
	})

	// No controller has a part in these.
	const revisions = "/apis/apps/v1/namespaces/default/controllerrevisions"
	for _, side := range pair.Sides() {
		fill(side, revisions, func(name string) object {
			return object{"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": object{"name": name},
				"revision": 1, "data": object{"spec": object{"template": object{"metadata": object{"labels": object{
					"app": "bench"}}, "spec": object{"containers": []object{container, container}}}}}}
		})
	}
	both := func(took *times) {
		legacy.ask(revisions, 1, 4, took)
		modern.ask(revisions, 1, 4, took)
	}
	b.Run("merged list 2x10000", func(b *testing.B) {
		against(b, func(took *times) { through.ask(revisions, 1, 4, took) }, both)
	})
	b.Run("converted list 2x10000", func(b *testing.B) {
		texts := [][]byte{legacy.text(revisions), modern.text(revisions)}
		// What cannot be avoided: to read both lists, and to decode and encode them.
		against(b, func(took *times) {
			through.ask(strings.Replace(revisions, "/v1/", "/v1beta2/", 1), 1, 4, took)
		}, func(took *times) {
			both(took)
			for range 4 {
				for _, text := range texts {
					var list map[string]any
					must(b, utiljson.Unmarshal(text, &list))
					_, err := json.Marshal(list)
					must(b, err)
				}
			}
		})
	})
}

// apart gives children of this process that run these programs a processor, and this process and all others another
// one, until the benchmark ends.
func apart(b *testing.B, programs ...string) {
	b.Helper()
	if runtime.NumCPU() < 2 {
		b.Skip("there is one processor")
	}
	var all unix.CPUSet
	must(b, unix.SchedGetaffinity(0, &all))
	place := func(of func(program string) unix.CPUSet) {
		lists, err := filepath.Glob("/proc/self/task/*/children")
		must(b, err)
		processes := []string{strconv.Itoa(os.Getpid())}
		for _, list := range lists {
			text, err := os.ReadFile(list)
			if err == nil || !errors.Is(err, os.ErrNotExist) {
				must(b, err)
			}
			processes = append(processes, strings.Fields(string(text))...)
		}
		for _, process := range processes {
			program, err := os.Readlink("/proc/" + process + "/exe")
			must(b, err)
			threads, err := filepath.Glob("/proc/" + process + "/task/*")
			must(b, err)
			for _, thread := range threads { // those that come later are where the thread is that starts them
				id, err := strconv.Atoi(filepath.Base(thread))
				must(b, err)
				set := of(filepath.Base(program))
				if err := unix.SchedSetaffinity(id, &set); !errors.Is(err, unix.ESRCH) {
					must(b, err)
				}
			}
		}
	}
	place(func(program string) (set unix.CPUSet) {
		set.Set(1)
		for _, p := range programs {
			if strings.HasPrefix(program, p) {
				set.Zero()
				set.Set(0)
			}
		}
		return set
	})
	b.Cleanup(func() { place(func(string) unix.CPUSet { return all }) })
}

// times are how long requests took, in milliseconds.
type times struct {
	mu   sync.Mutex
	took []float64
}

func (t *times) median() float64 {
	slices.Sort(t.took)
	return t.took[len(t.took)/2]
}

// against measures one thing against another, in turns, and against a bare proxy, where there is one.
func against(b *testing.B, through, direct func(*times), bare ...func(*times)) {
	b.Helper()
	runs := append([]func(*times){through, direct}, bare...)
	sums, took := make([]time.Duration, len(runs)), make([]times, len(runs))
	for b.Loop() {
		for i, run := range runs {
			began := time.Now()
			run(&took[i])
			sums[i] += time.Since(began)
		}
	}
	b.ReportMetric(float64(sums[1])/float64(sums[0]), "of-direct")
	if len(bare) > 0 {
		b.ReportMetric(float64(sums[1])/float64(sums[2]), "bare-of-direct")
		b.ReportMetric(took[2].median()-took[1].median(), "p50-bare-more-ms")
	}
	b.ReportMetric(took[1].median(), "p50-direct-ms")
	b.ReportMetric(took[0].median()-took[1].median(), "p50-more-ms")
}

// measuredServer is a server with a client of it.
type measuredServer struct {
	b      *testing.B
	url    string
	client *http.Client
}

func (s measuredServer) text(path string) []byte {
	s.b.Helper()
	response, err := s.client.Get(s.url + path)
	must(s.b, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(s.b, err)
	if response.StatusCode != http.StatusOK {
		s.b.Fatalf("GET %s: %s: %.200s", path, response.Status, text)
	}
	return text
}

// watch begins watches, which have one event each by now, and end with the benchmark. seen is told of further ones: of
// none while all that is awaited has come.
func (s measuredServer) watch(path string, watches int) (seen *fan) {
	s.b.Helper()
	seen = &fan{}
	ctx, cancel := context.WithCancel(s.b.Context())
	var group errgroup.Group
	group.SetLimit(16)
	for range watches {
		group.Go(func() error {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
			if err != nil {
				return err
			}
			response, err := s.client.Do(r)
			if err != nil {
				return err
			}
			lines := bufio.NewReader(response.Body)
			if _, err := lines.ReadString('\n'); err != nil || response.StatusCode != http.StatusOK {
				return errors.Join(err, errors.New(response.Status))
			}
			go func() {
				defer response.Body.Close()
				for {
					if _, err := lines.ReadString('\n'); err != nil {
						return
					}
					seen.done()
				}
			}()
			return nil
		})
	}
	must(s.b, group.Wait())
	s.b.Cleanup(cancel)
	return seen
}

// fan counts events that are awaited.
type fan struct {
	mu   sync.Mutex
	left int
	none chan bool // closed when all have come; nil while none is awaited
}

// Add awaits more.
func (f *fan) Add(count int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left, f.none = count, make(chan bool)
}

func (f *fan) done() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.none == nil { // the change is another server's turn
		return
	}
	if f.left--; f.left == 0 {
		close(f.none)
		f.none = nil
	}
}

// Wait returns when all have come.
func (f *fan) Wait() {
	f.mu.Lock()
	none := f.none
	f.mu.Unlock()
	if none != nil {
		<-none
	}
}

// ask has clients send requests, as many in all as there are requests.
func (s measuredServer) ask(path string, clients, requests int, took *times) {
	s.b.Helper()
	var group errgroup.Group
	for range clients {
		group.Go(func() error {
			for range max(1, requests/clients) {
				began := time.Now()
				response, err := s.client.Get(s.url + path)
				if err != nil {
					return err
				}
				_, err = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				if err != nil || response.StatusCode != http.StatusOK {
					return errors.Join(err, errors.New(response.Status))
				}
				took.mu.Lock()
				took.took = append(took.took, float64(time.Since(began))/float64(time.Millisecond))
				took.mu.Unlock()
			}
			return nil
		})
	}
	must(s.b, group.Wait())
}
