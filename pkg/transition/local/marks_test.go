package local

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/transition"
)

// markedServer is an API server with namespaces and registrations. Another client changes the first namespace whose
// finalizers are written, once.
type markedServer struct {
	t          *testing.T
	finalizers map[string][]string
	deleted    string // a namespace that is being deleted
	registered []string
	conflicts  int
	versions   map[string]int
}

func (m *markedServer) namespace(name string) map[string]any {
	metadata := map[string]any{"name": name, "resourceVersion": fmt.Sprint(1 + m.versions[name])}
	if name == m.deleted {
		metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	}
	return map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": metadata,
		"spec": map[string]any{"finalizers": m.finalizers[name], "unknown": "kept"}}
}

func (m *markedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := func(value any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(value)
	}
	status := func(code int, reason string) {
		w.WriteHeader(code)
		answer(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
			"reason": reason, "message": reason})
	}
	const group = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
	name, finalize := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/"), "/finalize")
	switch {
	case r.URL.Path == "/api/v1/namespaces":
		items := []any{}
		for name := range m.finalizers {
			items = append(items, m.namespace(name))
		}
		answer(map[string]any{"kind": "NamespaceList", "apiVersion": "v1", "metadata": map[string]any{},
			"items": items})
	case r.Method == http.MethodGet && m.finalizers[name] != nil:
		answer(m.namespace(name))
	case r.Method == http.MethodPut && finalize:
		var sent struct {
			Metadata struct{ ResourceVersion string }
			Spec     struct {
				Finalizers []string
				Unknown    string
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil || sent.Spec.Unknown != "kept" {
			m.t.Errorf("PUT of %s: %v, %+v", name, err, sent)
		}
		if m.conflicts > 0 {
			m.conflicts--
			m.versions[name]++
			m.finalizers[name] = append(m.finalizers[name], "another.example")
		}
		if sent.Metadata.ResourceVersion != fmt.Sprint(1+m.versions[name]) {
			status(http.StatusConflict, "Conflict")
			return
		}
		m.finalizers[name] = sent.Spec.Finalizers
		answer(m.namespace(name))
	case r.URL.Path == group:
		items := []any{}
		for _, name := range m.registered {
			items = append(items, map[string]any{"metadata": map[string]any{"name": name}})
		}
		answer(map[string]any{"kind": "MutatingWebhookConfigurationList",
			"apiVersion": "admissionregistration.k8s.io/v1", "metadata": map[string]any{}, "items": items})
	case r.Method == http.MethodDelete && strings.HasPrefix(r.URL.Path, group+"/"):
		m.registered = slices.DeleteFunc(m.registered, func(n string) bool {
			return n == strings.TrimPrefix(r.URL.Path, group+"/")
		})
		answer(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	default:
		status(http.StatusNotFound, "NotFound")
	}
}

func TestReleaseTakesOutTheMarksAndNothingElse(t *testing.T) {
	const ours = "kubefusion.dev/both-sides"
	m := &markedServer{t: t, conflicts: 1, versions: map[string]int{}, registered: []string{"theirs",
		"pods.kubefusion.dev"}, finalizers: map[string][]string{"a": {"kubernetes", ours}, "b": {"kubernetes"},
		"c": {ours, "kubernetes"}}}
	server := httptest.NewServer(m)
	defer server.Close()
	access := &transition.Access{Side: "modern", Server: server.URL}
	marks := &transition.Marks{Namespaces: access, Modern: access, Registrations: []transition.Registration{{
		Version: "v1", Resource: "mutatingwebhookconfigurations", Kind: "MutatingWebhookConfiguration"}}}
	h := &Host{}
	check := func(kind transition.CheckKind, says string) {
		t.Helper()
		err := h.Check(t.Context(), "", &transition.Check{Kind: kind, Marks: marks})
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s = %v, want %q", kind, err, says)
		}
	}
	do := func() error { return h.Do(t.Context(), "", &transition.Action{Kind: transition.Release, Marks: marks}) }
	check(transition.Settled, "")
	check(transition.Released, "namespace a")
	m.deleted = "c"
	check(transition.Settled, "namespaces c")
	if err := do(); err == nil || len(m.finalizers["a"]) != 2 {
		t.Errorf("release beside a namespace that is being deleted = %v, %v", err, m.finalizers)
	}
	m.deleted = ""
	for range 2 {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	check(transition.Released, "")
	changed := 0
	for name, finalizers := range m.finalizers {
		if slices.Contains(finalizers, ours) || !slices.Contains(finalizers, "kubernetes") {
			t.Errorf("namespace %s has %v", name, finalizers)
		}
		if slices.Contains(finalizers, "another.example") {
			changed++
		}
	}
	if changed != 1 || !slices.Equal(m.registered, []string{"theirs"}) {
		t.Errorf("%d namespaces have what another client wrote meanwhile, want 1; registered are %v", changed,
			m.registered)
	}
	server.Close()
	for _, kind := range []transition.CheckKind{transition.Settled, transition.Released} {
		if err := h.Check(t.Context(), "", &transition.Check{Kind: kind, Marks: marks}); err == nil {
			t.Errorf("%s of a server that does not answer = nil", kind)
		}
	}
}
