package client

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/convert"
)

// canned answers every request with one text.
type canned []byte

func (c canned) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(c)), ContentLength: int64(len(c)), Request: req}, nil
}

// What the transport itself costs, without a network: of a request that passes, and of one that converts a list of 500
// Deployments.
func BenchmarkRoundTrip(b *testing.B) {
	items := strings.Repeat(webText+",", 500)
	list := canned(`{"apiVersion":"apps/v1beta1","kind":"DeploymentList","metadata":{"resourceVersion":"1"},"items":[` +
		items[:len(items)-1] + `]}`)
	for name, path := range map[string]string{"pass": oldDeployments,
		"convert": "/apis/apps/v1/namespaces/shop/deployments"} {
		b.Run(name, func(b *testing.B) { roundTrips(b, benchTransport(b, list), path) })
	}
	b.Run("direct", func(b *testing.B) { roundTrips(b, list, oldDeployments) })
}

func benchTransport(tb testing.TB, next http.RoundTripper) http.RoundTripper {
	tb.Helper()
	f := newFakeServer(tb, 6)
	converter, err := convert.New()
	if err != nil {
		tb.Fatal(err)
	}
	live, err := NewLive(&rest.Config{Host: f.URL, QPS: -1}, converter)
	if err != nil {
		tb.Fatal(err)
	}
	return &transport{next: next, live: live, converter: converter}
}

func roundTrips(b *testing.B, transport http.RoundTripper, path string) {
	req, err := http.NewRequest(http.MethodGet, "http://server"+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		response, err := transport.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, response.Body)
		if err != nil || n < 1000 {
			b.Fatal(n, err)
		}
		b.SetBytes(n)
		response.Body.Close()
	}
}

// A request that passes costs a look into a table: no copy of what is read, whatever its size.
func TestPassCostsNothingPerByte(t *testing.T) {
	allocations := func(size int) float64 {
		transport := benchTransport(t,
			canned(fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"%s"}}`, strings.Repeat("x", size))))
		req, err := http.NewRequest(http.MethodGet, "http://server/api/v1/namespaces/shop/configmaps/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		return testing.AllocsPerRun(100, func() {
			response, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
		})
	}
	small, large := allocations(1), allocations(1<<20)
	if small != large || large > 20 {
		t.Errorf("%v allocations for a small answer, %v for one of a megabyte: want as many, and few", small, large)
	}
}
