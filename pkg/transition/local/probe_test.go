package local

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/transition"
)

// TestProbesLeaveNamespacesOfOthers: a client creates a namespace of the probe's name between two of its requests, and
// keeps it.
func TestProbesLeaveNamespacesOfOthers(t *testing.T) {
	there := false
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := func(code int, value map[string]any) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(value)
		}
		failure := func(code int, reason string) {
			answer(code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
				"reason": reason, "message": reason, "details": map[string]any{"name": probeName}})
		}
		switch {
		case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/namespaces"):
			there = true
			failure(http.StatusConflict, "AlreadyExists")
		case r.Method == http.MethodGet && there && strings.HasSuffix(r.URL.Path, "/namespaces/"+probeName):
			answer(http.StatusOK, map[string]any{"kind": "Namespace", "apiVersion": "v1",
				"metadata": map[string]any{"name": probeName}})
		case r.Method == http.MethodDelete && there:
			t.Errorf("%s %s", r.Method, r.URL.Path)
			failure(http.StatusForbidden, "Forbidden")
		default:
			failure(http.StatusNotFound, "NotFound")
		}
	}))
	defer api.Close()
	err := new(Host).works(t.Context(), &transition.Access{Server: api.URL})
	if err == nil || !strings.Contains(err.Error(), "it is no probe's") {
		t.Errorf("works = %v, want that the namespace is another's", err)
	}
}
