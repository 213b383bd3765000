package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	yamlv3 "go.yaml.in/yaml/v3"
)

// restartsPod is a pod whose container a 1.16 kubelet restarts and a 1.15 kubelet keeps.
func restartsPod(name, node string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"shop","labels":{"app":"web"}},"spec":{"nodeName":%q,
"containers":[{"name":"app","image":"registry.example/app:1.0","terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}]},
"status":{"phase":"Running","podIP":"10.0.0.1","conditions":[{"type":"Ready","status":"True"}]}}`, name, node)
}

func TestRestartsPlanReadsACluster(t *testing.T) {
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.URL.String())
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/apis/policy/v1beta1/namespaces/shop/poddisruptionbudgets":
			fmt.Fprint(w,
				`{"kind":"PodDisruptionBudgetList","apiVersion":"policy/v1beta1","items":[{"metadata":{"name":"web","namespace":"shop"},
"spec":{"maxUnavailable":1,"selector":{"matchLabels":{"app":"web"}}}}]}`)
		case r.URL.Path != "/api/v1/namespaces/shop/pods":
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		case r.URL.Query().Get("continue") == "":
			fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"more"},"items":[%s]}`,
				restartsPod("web-0", "n1"))
		default:
			fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[%s]}`,
				restartsPod("web-1", "n2"))
		}
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "admin.conf")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"none","contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],
"clusters":[{"name":"k","cluster":{"server":%q}}],"users":[{"name":"u","user":{}}]}`, server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	args := []string{"restarts", "plan", "--from", "1.15", "--to", "1.16", "--kubeconfig", kubeconfig, "--context", "c",
		"--namespace", "shop",
		"--node", "n1", "--fail-above", "1", "-o", "json"}
	code := Main(t.Context(), args, Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	if code != exitAttention || errs.Len() > 0 {
		t.Fatalf("exit %d, stderr %q, want 3 and nothing; requests %q", code, errs.String(), requests)
	}
	var plan struct {
		Pods    int
		Summary struct{ Restart int }
		Order   []struct{ Nodes []string }
	}
	if err := json.Unmarshal(out.Bytes(), &plan); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	if plan.Pods != 2 || plan.Summary.Restart != 2 || len(plan.Order) != 2 {
		t.Errorf("%+v, want two pods, two restarts, and two waves for one budget", plan)
	}
	if last := requests[len(requests)-1]; !strings.Contains(last, "continue=more") ||
		!strings.Contains(last, "fieldSelector=spec.nodeName%3Dn1") {
		t.Errorf("last request %s, want the second page of one node's pods", last)
	}
}

func TestRestartsPlanStopsWhenInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	endless := readerFunc(func(p []byte) (int, error) {
		interrupt()
		return copy(p, restartsPod("web-0", "n1")), nil
	})
	var out, errs bytes.Buffer
	code := Main(ctx, []string{"restarts", "plan", "--from", "1.15", "--to", "1.16", "-f", "-", "-o", "json"},
		Streams{In: endless, Out: &out, Err: &errs})
	if code != exitInterrupted || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("exit %d, stderr %q, want 130", code, errs.String())
	}
	var answer map[string]any
	if err := json.Unmarshal(out.Bytes(), &answer); out.Len() > 0 && (err != nil || answer["incomplete"] == nil) {
		t.Errorf("%v: %s, want JSON that says it is incomplete", err, out.String())
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestJSONRowsAreOneObject(t *testing.T) {
	type head struct {
		Schema string `json:"schema"`
	}
	for _, rows := range []int{0, 1, 3} {
		for _, tail := range []any{nil, struct{}{}, incomplete{"why"}} {
			var out bytes.Buffer
			r := newJSONRows(&out, head{"s"}, "containers")
			for i := range rows {
				if err := r.row(map[string]any{"n": i}, nil, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.close(tail); err != nil {
				t.Fatal(err)
			}
			var answer struct {
				Schema     string
				Containers []struct{ N int }
				Incomplete string
			}
			if err := json.Unmarshal(out.Bytes(), &answer); err != nil || answer.Schema != "s" ||
				len(answer.Containers) != rows {
				t.Errorf("%d rows, tail %v: %v in\n%s", rows, tail, err, out.String())
			}
			var indented bytes.Buffer
			if err := json.Indent(&indented, bytes.TrimSpace(out.Bytes()), "", "  "); err != nil {
				t.Fatal(err)
			}
			if indented.String()+"\n" != out.String() {
				t.Errorf("%d rows, tail %v:\n%s\nis not indented like\n%s", rows, tail, out.String(), indented.String())
			}
		}
	}
	if err := newJSONRows(io.Discard, head{}, "a").row(func() {}, nil, nil); err == nil {
		t.Error("a row that is no JSON passed, want an error")
	}
}

// TestYAMLRowsAreTheJSONRows: the same document, whatever the number of rows and the tail.
func TestYAMLRowsAreTheJSONRows(t *testing.T) {
	type head struct {
		Schema string `json:"schema"`
	}
	for count := range 3 {
		for _, tail := range []any{nil, struct{}{}, incomplete{"it broke: off"}} {
			var documents []any
			for _, format := range []string{"json", "yaml"} {
				var out bytes.Buffer
				r := newDocumentRows(&out, format, head{"s/v1"}, "rows")
				for i := range count {
					row := map[string]any{"name": fmt.Sprintf("- a: %d", i), "n": i, "list": []string{"x"}}
					if err := r.row(row, nil, nil); err != nil {
						t.Fatal(err)
					}
				}
				if err := r.close(tail); err != nil {
					t.Fatal(err)
				}
				var document any
				if err := yamlv3.Unmarshal(out.Bytes(), &document); err != nil {
					t.Fatalf("%s: %v\n%s", format, err, &out)
				}
				documents = append(documents, document)
			}
			if !reflect.DeepEqual(documents[0], documents[1]) {
				t.Errorf("%d rows, tail %v: JSON %v, YAML %v", count, tail, documents[0], documents[1])
			}
		}
	}
}
