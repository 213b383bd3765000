package kube

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/apiserver"
)

// serve starts a server and returns a client for it whose pauses are short.
func serve(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client, err := apiserver.New(&rest.Config{Host: server.URL}, apiserver.Options{Pause: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return &Client{client}
}

func answer(t *testing.T, w http.ResponseWriter, code int, object any) {
	t.Helper()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(object); err != nil {
		t.Error(err)
	}
}

func failure(code int, reason metav1.StatusReason, next string) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, ListMeta: metav1.ListMeta{Continue: next},
		Status: "Failure", Code: int32(code), Reason: reason, Message: "refused by the test",
	}
}

func podPage(next string, names ...string) *v1.PodList {
	list := &v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"},
		ListMeta: metav1.ListMeta{Continue: next}}
	for _, name := range names {
		list.Items = append(list.Items, v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}})
	}
	return list
}

func names(t *testing.T, c *Client, selection Selection) string {
	t.Helper()
	var names []string
	for pod, err := range c.Pods(t.Context(), selection) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, pod.Name)
	}
	return strings.Join(names, " ")
}

func TestPodsAsksForPagesAndSurvivesFailuresThatPass(t *testing.T) {
	var requests []string
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.URL.Path+"?"+r.URL.RawQuery)
		switch len(requests) {
		case 1:
			answer(t, w, 200, podPage("second", "a", "b"))
		case 2:
			answer(t, w, 503, failure(503, metav1.StatusReasonServiceUnavailable, ""))
		case 3:
			answer(t, w, 500, failure(500, metav1.StatusReasonInternalError, ""))
		case 4: // the state of the first page is forgotten
			answer(t, w, 410, failure(410, metav1.StatusReasonExpired, "second-now"))
		case 5:
			answer(t, w, 200, podPage("", "c"))
		default:
			t.Errorf("unexpected request %s", r.URL)
		}
	})
	if got := names(t, client, Selection{}); got != "a b c" {
		t.Errorf("Pods = %q, want a b c", got)
	}
	want := []string{"limit=500", "continue=second&limit=500", "continue=second&limit=500", "continue=second&limit=500",
		"continue=second-now&limit=500"}
	for i, query := range want {
		if i >= len(requests) || requests[i] != "/api/v1/pods?"+query {
			t.Errorf("requests %q, want queries %q", requests, want)
			break
		}
	}
}

func TestPodsSelects(t *testing.T) {
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if want := "/api/v1/namespaces/shop/pods?fieldSelector=spec.nodeName%3Dn1&limit=500"; r.URL.String() != want {
			t.Errorf("request %s, want %s", r.URL, want)
		}
		answer(t, w, 200, podPage("", "a"))
	})
	if got := names(t, client, Selection{Namespace: "shop", Node: "n1"}); got != "a" {
		t.Errorf("Pods = %q, want a", got)
	}
}

// The name of a node comes from the command line; whatever it is, it stays one term of the selector.
func TestNodeNamesStayOneTerm(t *testing.T) {
	for _, node := range []string{"n1,metadata.namespace=kube-system", "n1&limit=1", `a\,b`, "a=b", "n1#", "%2c"} {
		asked := 0
		client := serve(t, func(w http.ResponseWriter, r *http.Request) {
			asked++
			selector, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
			if err != nil {
				t.Errorf("%q: %v", node, err)
			} else if terms := selector.Requirements(); len(terms) != 1 || terms[0].Value != node {
				t.Errorf("%q became %v", node, terms)
			}
			answer(t, w, 200, podPage("", "a"))
		})
		names(t, client, Selection{Node: node})
		if asked != 1 {
			t.Errorf("%q: %d requests", node, asked)
		}
	}
}

// TestPodsRefusesQuantitiesThatAreBombs: to parse twelve bytes takes a minute.
func TestPodsRefusesQuantitiesThatAreBombs(t *testing.T) {
	client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(t, w, 200, json.RawMessage(`{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a"},`+
			`"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1e-100000000"}}}]}}]}`))
	})
	for pod, err := range client.Pods(t.Context(), Selection{}) {
		if err == nil || !strings.Contains(err.Error(), "exponent") {
			t.Errorf("Pods = %v, %v", pod, err)
		}
	}
}

func TestPodsReportsWhatDoesNotPass(t *testing.T) {
	for code, want := range map[int]int{403: 1, 503: 6} {
		requests := 0
		client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			requests++
			answer(t, w, code, failure(code, metav1.StatusReasonForbidden, ""))
		})
		var got error
		for _, err := range client.Pods(t.Context(), Selection{}) {
			got = err
		}
		if got == nil || !strings.Contains(got.Error(), "listing pods: refused by the test") || requests != want {
			t.Errorf("%d: %v after %d requests, want the server's words after %d", code, got, requests, want)
		}
	}
}

func TestDisruptionBudgetsOfOldServers(t *testing.T) {
	for served, want := range map[string]string{"v1": "policy/v1", "v1beta1": "policy/v1beta1", "": ""} {
		client := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/apis" {
				answer(t, w, 200, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList"},
					Groups: []metav1.APIGroup{
						{Name: "apps", Versions: []metav1.GroupVersionForDiscovery{{Version: "v1"}}}}})
				return
			}
			if r.URL.Path != "/apis/policy/"+served+"/poddisruptionbudgets" {
				answer(t, w, 404, failure(404, metav1.StatusReasonNotFound, ""))
				return
			}
			answer(t, w, 200, map[string]any{"kind": "PodDisruptionBudgetList", "apiVersion": "policy/" + served,
				"items": []any{map[string]any{
					"metadata": map[string]any{"name": "web"}, "spec": map[string]any{"minAvailable": "50%"},
				}}})
		})
		budgets, err := client.DisruptionBudgets(t.Context(), "")
		if err != nil {
			t.Errorf("%q: %v", served, err)
			continue
		}
		if want == "" {
			if len(budgets) != 0 {
				t.Errorf("a server without the API has %d budgets", len(budgets))
			}
			continue
		}
		if len(budgets) != 1 || budgets[0].APIVersion != want || budgets[0].Spec.MinAvailable.String() != "50%" {
			t.Errorf("%q: %+v, want one budget of %s", served, budgets, want)
		}
	}
}

// TestDisruptionBudgetsThatAreNotFound: a server that has the API, and what is none, are no answer that there are none.
func TestDisruptionBudgetsThatAreNotFound(t *testing.T) {
	policy := metav1.APIGroup{Name: "policy", Versions: []metav1.GroupVersionForDiscovery{{Version: "v1"}}}
	for name, groups := range map[string]any{"a proxy": nil,
		"a server": metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList"},
			Groups: []metav1.APIGroup{policy}}} {
		client := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/apis" && groups != nil {
				answer(t, w, 200, groups)
				return
			}
			answer(t, w, 404, failure(404, metav1.StatusReasonNotFound, ""))
		})
		if budgets, err := client.DisruptionBudgets(t.Context(), ""); err == nil {
			t.Errorf("%s: %d budgets and no error", name, len(budgets))
		}
	}
}

func TestNewClientNamesTheFile(t *testing.T) {
	for file, text := range map[string]string{"missing": "", "empty": "{}", "broken": "clusters: 1"} {
		path := filepath.Join(t.TempDir(), file)
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := NewClient(path, ""); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("NewClient of a %s file: %v, want an error that names it", file, err)
		}
	}
}
