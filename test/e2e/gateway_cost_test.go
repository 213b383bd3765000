//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

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
// one client or of as many with a connection each. docs/gateway.md has what was measured; the bounds are those beyond
// which something is held for each watch that is not needed.
func TestGatewayIsSmall(t *testing.T) {
	t.Parallel()
	const watches = 2000
	limitMiB := map[string]float64{"one client": 400, "a client each": 800}
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
			if got := g.resident(); got > limitMiB[name] {
				t.Errorf("%d watches of %s, of %s: the gateway holds %.0f MiB, want at most %.0f", watches, path, name,
					got, limitMiB[name])
			} else {
				t.Logf("%d watches of %s, of %s: %.0f MiB, %.0f before", watches, path, name, got, before)
			}
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

// BenchmarkGatewayOfRealServers compares the gateway with direct connections to real API servers, in turns: what it
// adds to what they take. of-direct is the share of the throughput, one request after the other or, with clients, of as
// many that ask as fast as they can.
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
	g.must(pair.Legacy, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts",
		object{"metadata": object{"name": "bench"}})
	const pods = "/api/v1/namespaces/default/pods"
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
					func(took *times) { modern.ask(of.path, clients, of.requests, took) })
			})
		}
	}

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

// times are how long requests took, in milliseconds.
type times struct {
	mu   sync.Mutex
	took []float64
}

func (t *times) median() float64 {
	slices.Sort(t.took)
	return t.took[len(t.took)/2]
}

// against measures one thing against another, in turns.
func against(b *testing.B, through, direct func(*times)) {
	b.Helper()
	var sums [2]time.Duration
	var took [2]times
	for b.Loop() {
		for i, run := range []func(*times){through, direct} {
			began := time.Now()
			run(&took[i])
			sums[i] += time.Since(began)
		}
	}
	b.ReportMetric(float64(sums[1])/float64(sums[0]), "of-direct")
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
