package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

func retiredPlan(t testing.TB) *plan.Runtime {
	t.Helper()
	p := testPlan(t)
	p.Legacy.Retired = true
	return p
}

// TestOldClientsAreServedWhenTheLegacySideIsRetired: in versions that no API server has any more, by conversion, and
// without a question to a side that is gone.
func TestOldClientsAreServedWhenTheLegacySideIsRetired(t *testing.T) {
	x := newFixtureOf(t, retiredPlan(t), func(o *Options) { o.Legacy = nil })
	x.modern.vouch(map[string]string{"of-modern": "system:serviceaccount:a:b"})
	object := deployment("d", "u")
	x.modern.say("GET "+collection+"/d", http.StatusOK, object)
	list := listOf("Deployment", "apps/v1", 1, func(int) string { return object })
	x.modern.say("GET "+collection, http.StatusOK, list)
	x.modern.page("POST "+collection, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, object)
	})
	x.modern.say("GET /openapi/v3", http.StatusOK, `{"paths":{"apis/apps/v1":{"serverRelativeURL":"/x"}}}`)
	old := strings.Replace(collection, "/apps/v1/", "/extensions/v1beta1/", 1)
	x.wants("GET", old+"/d", "", http.StatusOK, `"apiVersion":"extensions/v1beta1"`)
	x.wants("GET", old, "", http.StatusOK, `"kind":"DeploymentList"`)
	x.wants("GET", old+"/d", "", http.StatusOK, `"apiVersion":"extensions/v1beta1"`, "Test-Certificate: ",
		"Authorization: Bearer of-modern")
	x.wants("POST", old, `{"kind":"Deployment","apiVersion":"extensions/v1beta1","metadata":{"name":"d"},
		"spec":{"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
		http.StatusCreated, `"apiVersion":"extensions/v1beta1"`)
	if r, body := x.modern.last(collection); r.Method != http.MethodPost || !strings.Contains(body, `"selector"`) {
		t.Errorf("the modern side is sent %s %s", r.Method, body)
	}
	x.wants("GET", collection+"/d", "", http.StatusOK, `"apiVersion":"apps/v1"`)
	x.wants("GET", "/version", "", http.StatusOK, "v1.36.3")
	x.wants("GET", "/apis/extensions/v1beta1", "", http.StatusOK, `"name":"deployments"`)
	x.wants("GET", "/sides/modern"+collection+"/d", "", http.StatusOK, `"apiVersion":"apps/v1"`)
	x.wants("GET", "/sides/legacy"+collection+"/d", "", http.StatusNotFound, "the legacy side is retired")
	// a client that goes on with a list of both sides begins anew
	x.wants("GET", collection+"?watch=true&resourceVersion=l7m8", "", http.StatusGone, "list them again")
	x.wants("GET", "/metrics", "", http.StatusNotImplemented, "/metrics is not served; /sides/modern/metrics is")
	x.wants("GET", "/swaggerapi", "", http.StatusNotFound, "")
	x.wants("GET", "/openapi/v3", "", http.StatusOK, "apis/extensions/v1beta1")
	x.legacy.mu.Lock()
	defer x.legacy.mu.Unlock()
	if len(x.legacy.asked) > 0 {
		t.Errorf("the legacy side is asked for %v", x.legacy.asked)
	}
}

// A gateway wants a kubeconfig of every side that runs.
func TestEverySideThatRunsWantsAKubeconfig(t *testing.T) {
	cert, key := proxyCertificate(t)
	for _, side := range pair.Sides() {
		o := Options{ProxyCert: cert, ProxyKey: key}
		running := newFakeSide(t, "1.36.3").config()
		if side == pair.Legacy {
			o.Modern = running
		} else {
			o.Legacy = running
		}
		_, err := New(testPlan(t), o, prometheus.NewRegistry())
		if err == nil || !strings.Contains(err.Error(), string(side)) {
			t.Errorf("without a kubeconfig of the %s side: %v", side, err)
		}
	}
}
