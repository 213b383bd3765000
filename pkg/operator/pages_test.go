package operator

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestPagesOfControlPlanes: each control plane has the page of fusionctl report, and a list leads to all; another
// site's name, and what writes, get none.
func TestPagesOfControlPlanes(t *testing.T) {
	f := newFleet(t, 2)
	pages := NewPages(f.Client)
	for _, test := range []struct {
		method, host, path string
		code               int
		says               string
	}{
		{"GET", "127.0.0.1:10273", "/reports/", 200, `<a href="/reports/plane-001">plane-001</a>`},
		{"GET", "localhost:10273", "/reports/plane-000", 200, "FUS001"},
		{"GET", "[::1]:10273", "/reports/plane-001", 200, "plane-001"},
		{"GET", "127.0.0.1:10273", "/reports/plane-002", 404, "not found"},
		{"GET", "127.0.0.1:10273", "/reports/../metrics", 404, "not found"},
		{"GET", "attacker.example:10273", "/reports/plane-000", 403, "loopback"},
		{"GET", "127.0.0.1.attacker.example", "/reports/plane-000", 403, "loopback"},
		{"POST", "127.0.0.1:10273", "/reports/plane-000", 405, "GET"},
	} {
		request := httptest.NewRequest(test.method, "http://127.0.0.1/", http.NoBody)
		request.Host, request.URL.Path = test.host, test.path
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, request)
		if w.Code != test.code || !strings.Contains(w.Body.String(), test.says) {
			t.Errorf("%s %s at %s: %d, want %d and %q:\n%.300s", test.method, test.path, test.host, w.Code, test.code,
				test.says, w.Body)
		}
	}
	object := f.object(t, f.names[0])
	object.Spec = []byte(`{"layout":"<script>"}`)
	if err := f.Client.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/reports/plane-000", http.NoBody)
	w := httptest.NewRecorder()
	pages.ServeHTTP(w, request)
	if w.Code != http.StatusInternalServerError || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		t.Errorf("a spec without a plan: %d, %q", w.Code, w.Header())
	}
}
