//go:build e2e

package e2e

import (
	"bufio"
	"context"
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

// TestGatewayIsSmall: two thousand watches without events, of one client or of as many, are held in less than 200 MiB
// of the gateway's whole process, beside what real API servers hold.
func TestGatewayIsSmall(t *testing.T) {
	t.Parallel()
	const watches, limitMiB = 2000, 200
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
			if got := g.resident(); got > limitMiB {
				t.Errorf("%d watches of %s, of %s: the gateway holds %.0f MiB, want at most %d", watches, path, name, got,
					limitMiB)
			} else {
				t.Logf("%d watches of %s, of %s: %.0f MiB, %.0f before", watches, path, name, got, before)
			}
			cancel()
			for _, body := range bodies {
				body.Close()
			}
			g.Eventually("the watches have ended", func(ctx context.Context) error {
				return g.ClientOf(g.url, "alice", "developers").Call(ctx, http.MethodGet, path+"?watch=1&timeoutSeconds=1",
					nil, nil)
			})
		}
	}
}

// BenchmarkGatewayOfRealServers compares the gateway with a direct connection to a real API server, in turns: what it
// adds to what they take. of-direct is the share of the throughput, one request after the other or, with clients, of as
// many that ask as fast as they can.
func BenchmarkGatewayOfRealServers(b *testing.B) {
	g := startGateway(b, rig.PairSpec{Layout: spec.LayoutSplit, Legacy: "1.15.12", Modern: "1.36.3",
		NoControllers: true})
	kubeconfig, err := g.PKI.Kubeconfig("developer-modern", g.Modern.URL, "alice", "developers")
	must(b, err)
	direct, through := httpClient(b, kubeconfig), httpClient(b, g.kubeconfig)
	const pods = "/api/v1/namespaces/default/pods"
	const count = 10_000
	g.must(pair.Legacy, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts",
		object{"metadata": object{"name": "bench"}})
	var group errgroup.Group
	group.SetLimit(16)
	for i := range count {
		group.Go(func() error {
			return g.admin[pair.Legacy].Call(b.Context(), http.MethodPost, pods, object{"metadata": object{
				"name": fmt.Sprintf("pod-%d", i), "labels": object{"app": "bench"}}, "spec": object{
				"serviceAccountName": "bench", "automountServiceAccountToken": false, "nodeName": "none",
				"containers": []object{{"name": "c", "image": "example.test/c:1", "env": []object{
					{"name": "A", "value": strings.Repeat("x", 200)}}}}}}, nil)
		})
	}
	must(b, group.Wait())
	get := func(c *http.Client, url string) error {
		response, err := c.Get(url)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
	for _, of := range []struct {
		name, path string
		requests   int
	}{{"get", pods + "/pod-7", 400}, {"list 500 pods", pods + "?limit=500", 64},
		{"list 10000 pods", pods + "?resourceVersion=0", 8}} {
		for _, clients := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s, %d clients", of.name, clients), func(b *testing.B) {
				run := func(c *http.Client, url string, took *[]float64) float64 {
					var mu sync.Mutex
					var group errgroup.Group
					began := time.Now()
					for range clients {
						group.Go(func() error {
							for range max(1, of.requests/clients) {
								began := time.Now()
								if err := get(c, url+of.path); err != nil {
									return err
								}
								mu.Lock()
								*took = append(*took, float64(time.Since(began))/float64(time.Millisecond))
								mu.Unlock()
							}
							return nil
						})
					}
					must(b, group.Wait())
					return time.Since(began).Seconds()
				}
				var sums [2]float64
				var took [2][]float64
				for b.Loop() {
					sums[0] += run(direct, g.Modern.URL, &took[0])
					sums[1] += run(through, g.url, &took[1])
				}
				for _, list := range took {
					slices.Sort(list)
				}
				b.ReportMetric(sums[0]/sums[1], "of-direct")
				b.ReportMetric(took[0][len(took[0])/2], "p50-direct-ms")
				b.ReportMetric(took[1][len(took[1])/2]-took[0][len(took[0])/2], "p50-more-ms")
			})
		}
	}
}
