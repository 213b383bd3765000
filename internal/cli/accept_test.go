package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAcceptMeansTheSameInEveryVerb: a finding that spec.accept names is shown as accepted, with its reason, and counts
// in neither the summary nor the exit code.
func TestAcceptMeansTheSameInEveryVerb(t *testing.T) {
	directory := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(directory, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	base, err := os.ReadFile(splitSpec)
	if err != nil {
		t.Fatal(err)
	}
	policy := file("policy.jsonl", `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy",`+
		`"spec":{"group":"devs","resource":"pods","namespace":"a","readonly":true}}`)
	legacy := file("legacy.conf", kubeconfig(emptyServer(t, "v1.10.13")))
	modern := file("modern.conf", kubeconfig(emptyServer(t, "v1.36.3")))
	for name, test := range map[string]struct {
		rule, failOn string
		args         func(spec string) []string
	}{
		"check": {"FUS224", "warning", func(spec string) []string { return []string{"check", spec} }},
		"etcd check": {"FUS060", "info", func(spec string) []string {
			return slices.Concat([]string{"etcd", "check", spec}, fromFiles)
		}},
		"policy validate": {"FUS152", "warning", func(spec string) []string {
			return []string{"policy", "validate", policy, "--spec", spec}
		}},
		"check --live": {"FUS242", "warning", func(spec string) []string {
			return []string{"check", spec, "--live", "--no-flags", "--legacy-kubeconfig", legacy, "--modern-kubeconfig",
				modern}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			type document struct {
				Findings, Accepted []struct{ Rule, Severity, Message, Key, Reason string }
				Summary            struct{ Errors, Warnings, Infos int }
			}
			read := func(spec string) (d document, code int, table string) {
				args := append(test.args(spec), "--fail-on", test.failOn)
				_, table, _ = run(t, args...)
				code, stdout, stderr := run(t, append(args, "-o", "json")...)
				if err := json.Unmarshal([]byte(stdout), &d); err != nil || stderr != "" {
					t.Fatalf("exit code %d, %v, stderr %s", code, err, stderr)
				}
				return d, code, table
			}
			before, code, table := read(file("spec.yaml", string(base)))
			if code != 3 || len(before.Accepted) > 0 || !strings.Contains(table, test.rule) {
				t.Fatalf("without accept: exit code %d, %+v\n%s", code, before, table)
			}
			accept := "spec:\n  accept:\n"
			for _, f := range before.Findings {
				entry := fmt.Sprintf("  - {rule: %s, reason: agreed upon}\n", f.Rule)
				accept = strings.ReplaceAll(accept, entry, "") + entry
			}
			after, code, table := read(file("accepting.yaml", strings.Replace(string(base), "spec:\n", accept, 1)))
			if s := after.Summary; code != 0 || len(after.Findings) > 0 || s.Errors+s.Warnings+s.Infos > 0 {
				t.Errorf("exit code %d, %+v; want 0 and nothing that counts", code, after)
			}
			if len(after.Accepted) != len(before.Findings) {
				t.Fatalf("accepted: %+v, want all of %+v", after.Accepted, before.Findings)
			}
			for i, a := range after.Accepted {
				f := before.Findings[i]
				if a.Reason != "agreed upon" || a.Key != f.Key || a.Severity != f.Severity || a.Message != f.Message {
					t.Errorf("accepted: %+v, want it as it was found, with the reason: %+v", a, f)
				}
			}
			counts := fmt.Sprintf("0 errors, 0 warnings, 0 infos, %d accepted", len(after.Accepted))
			for _, want := range []string{"ACCEPTED\n", "accepted: agreed upon\n", counts} {
				if !strings.Contains(table, want) {
					t.Errorf("the table lacks %q:\n%s", want, table)
				}
			}
		})
	}
}

// emptyServer is an API server that serves namespaces alone.
func emptyServer(t *testing.T, version string) *httptest.Server {
	answers := map[string]string{
		"/healthz": "ok",
		"/readyz":  "ok",
		"/version": fmt.Sprintf(`{"gitVersion":%q}`, version),
		"/api":     `{"kind":"APIVersions","versions":["v1"]}`,
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[` +
			`{"name":"namespaces","kind":"Namespace","namespaced":false,"verbs":["get","list"]}]}`,
		"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[` +
			`{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}]}]}`,
		"/apis/apps/v1":      `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[]}`,
		"/api/v1/namespaces": `{"kind":"NamespaceList","apiVersion":"v1","metadata":{},"items":[]}`,
		"/api/v1/namespaces/kube-system": `{"kind":"Namespace","apiVersion":"v1",` +
			`"metadata":{"name":"kube-system","uid":"system"}}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if answer, ok := answers[r.URL.Path]; ok {
			fmt.Fprint(w, answer)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{}}`)
	}))
	t.Cleanup(server.Close)
	return server
}

func kubeconfig(server *httptest.Server) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c,
contexts: [{name: c, context: {cluster: k, user: u}}], users: [{name: u, user: {}}],
clusters: [{name: k, cluster: {server: %q}}]}`, server.URL)
}
