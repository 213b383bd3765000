package gateway

import (
	"net/http"
	"testing"
)

// TestAggregatedDiscoveryIsMadeOnce: it has a megabyte, and is the same for all clients until the next look.
func TestAggregatedDiscoveryIsMadeOnce(t *testing.T) {
	x := newFixture(t)
	for _, path := range []string{"/api", "/apis"} {
		for _, version := range []string{"v2", "v2beta1"} {
			accept := "Accept: application/json;g=apidiscovery.k8s.io;v=" + version + ";as=APIGroupDiscoveryList"
			v := x.gateway.current.Load()
			first := x.wants("GET", path, "", http.StatusOK, `"apidiscovery.k8s.io/`+version+`"`, accept)
			made, err := v.aggregatedPage(path == "/api", version)
			if err != nil {
				t.Fatal(err)
			}
			if again, _ := v.aggregatedPage(path == "/api", version); made != again || string(made.body) != first {
				t.Errorf("%s %s: it is made again", path, version)
			}
			_, header, _ := x.ask("GET", path, "", accept)
			x.wants("GET", path, "", http.StatusNotModified, "", accept, "If-None-Match: "+header.Get("ETag"))
		}
	}
}
