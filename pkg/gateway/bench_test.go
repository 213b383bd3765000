package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// measured is a gateway behind TLS and HTTP/2, as its sides are, and a client of all three.
type measured struct {
	*fixture
	client *http.Client
	at     string
	bare   string // the modern side behind nothing but a reverse proxy: what any proxy takes
}

func newMeasured(b *testing.B) *measured {
	b.Helper()
	m := &measured{fixture: newFixture(b, func(o *Options) { o.Requests = 100 })}
	roots := x509.NewCertPool()
	serve := func(h http.HandlerFunc) string {
		server := httptest.NewUnstartedServer(h)
		server.EnableHTTP2 = true
		server.StartTLS()
		b.Cleanup(server.Close)
		roots.AddCert(server.Certificate())
		return server.URL
	}
	m.at = serve(func(w http.ResponseWriter, r *http.Request) {
		r.TLS.VerifiedChains = [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: "alice"}, Raw: []byte{1},
			NotAfter: time.Now().Add(time.Hour)}}}
		m.gateway.ServeHTTP(w, r)
	})
	for _, s := range []*fakeSide{m.legacy, m.modern} {
		roots.AddCert(s.server.Certificate())
	}
	transport := func() *http.Transport {
		t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableCompression: true,
			ForceAttemptHTTP2: true}
		b.Cleanup(t.CloseIdleConnections)
		return t
	}
	m.client = &http.Client{Transport: transport()}
	to, err := url.Parse(m.modern.server.URL)
	if err != nil {
		b.Fatal(err)
	}
	m.bare = serve((&httputil.ReverseProxy{Transport: transport(), BufferPool: wholeBuffers,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}).ServeHTTP)
	return m
}

func (m *measured) get(b *testing.B, url string) {
	b.Helper()
	response, err := m.client.Get(url)
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
		b.Fatal(response.StatusCode, err)
	}
}

// against measures one thing against others, in turns, so that what else the machine does is in all. of-NAME is the
// share of the other's throughput, p50-more-ms what the median takes longer than that of the first of them.
func against(b *testing.B, through func(), names []string, others ...func()) {
	b.Helper()
	runs := append([]func(){through}, others...)
	took, sum := make([][]float64, len(runs)), make([]float64, len(runs))
	for _, run := range runs {
		run()
	}
	for b.Loop() {
		for i, run := range runs {
			began := time.Now()
			run()
			ms := float64(time.Since(began)) / float64(time.Millisecond)
			took[i], sum[i] = append(took[i], ms), sum[i]+ms
		}
	}
	for _, list := range took {
		slices.Sort(list)
	}
	for i, name := range names {
		b.ReportMetric(sum[i+1]/sum[0], "of-"+name)
	}
	b.ReportMetric(took[0][len(took[0])/2]-took[1][len(took[1])/2], "p50-more-ms")
}

// proxied measures what is passed on against a direct connection and against a bare proxy.
func (m *measured) proxied(b *testing.B, path string) {
	b.Helper()
	against(b, func() { m.get(b, m.at+path) }, []string{"direct", "bare"},
		func() { m.get(b, m.modern.server.URL+path) }, func() { m.get(b, m.bare+path) })
}

func listOf(kind, version string, count int, item func(i int) string) string {
	items := make([]string, count)
	for i := range items {
		items[i] = item(i)
	}
	return `{"kind":"` + kind + `List","apiVersion":"` + version + `","metadata":{"resourceVersion":"7"},"items":[` +
		strings.Join(items, ",") + `]}`
}

// BenchmarkGateway compares the gateway with a direct connection.
func BenchmarkGateway(b *testing.B) {
	const pods = "/api/v1/namespaces/a/pods"
	pod := func(i int) string {
		return fmt.Sprintf(`{"metadata":{"name":"p-%d","namespace":"a","uid":"u-%d","resourceVersion":"5","labels":{
			"app":"a"}},"spec":{"containers":[{"name":"c","image":"example.test/image:1","resources":{}}],"nodeName":"n"},
			"status":{"phase":"Running","podIP":"10.0.0.1","startTime":"2026-01-01T00:00:00Z"}}`, i, i)
	}
	workload := func(prefix string) func(int) string {
		return func(i int) string {
			return strings.Replace(deployment(fmt.Sprintf("%s-%d", prefix, i), fmt.Sprint(i)), "}}", `},"spec":{"replicas":1,
				"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[
				{"name":"c","image":"example.test/image:1"}]}}},"status":{"replicas":1}}`, 1)
		}
	}
	b.Run("get", func(b *testing.B) {
		m := newMeasured(b)
		m.modern.say("GET "+pods+"/p", http.StatusOK, pod(1))
		m.proxied(b, pods+"/p")
	})
	b.Run("list 10000 pods", func(b *testing.B) {
		m := newMeasured(b)
		m.modern.say("GET "+pods, http.StatusOK, listOf("Pod", "v1", 10_000, pod))
		m.proxied(b, pods)
	})
	b.Run("merged list 2x10000", func(b *testing.B) {
		m := newMeasured(b)
		m.legacy.say("GET "+collection, http.StatusOK, listOf("Deployment", "apps/v1", 10_000, workload("l")))
		m.modern.say("GET "+collection, http.StatusOK, listOf("Deployment", "apps/v1", 10_000, workload("m")))
		against(b, func() { m.get(b, m.at+collection) }, []string{"direct"}, func() {
			m.get(b, m.legacy.server.URL+collection)
			m.get(b, m.modern.server.URL+collection)
		})
	})
	b.Run("converted list 2x1000", func(b *testing.B) {
		m := newMeasured(b)
		legacy := listOf("Deployment", "apps/v1", 1000, workload("l"))
		modern := listOf("Deployment", "apps/v1", 1000, workload("m"))
		m.legacy.say("GET "+collection, http.StatusOK, legacy)
		m.modern.say("GET "+collection, http.StatusOK, modern)
		beta := strings.Replace(collection, "/v1/", "/v1beta2/", 1)
		// What cannot be avoided: to decode and to encode what is converted.
		against(b, func() { m.get(b, m.at+beta) }, []string{"direct", "decode-and-encode"}, func() {
			m.get(b, m.legacy.server.URL+collection)
			m.get(b, m.modern.server.URL+collection)
		}, func() {
			for _, text := range []string{legacy, modern} {
				var list map[string]any
				if err := utiljson.Unmarshal([]byte(text), &list); err != nil {
					b.Fatal(err)
				}
				if _, err := json.Marshal(list); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}
