package cli_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/internal/cli"
)

// management is the API server of a management cluster, with control planes and without a Secret that may be read.
type management struct {
	mutex     sync.Mutex
	planes    map[string]object
	forbidden bool // Secrets
	lists     int
	patches   []string
	// edit changes a control plane between its read and its patch.
	edit func(object)
}

func (m *management) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	answer := func(code int, value any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(value)
	}
	status := func(code int, reason string) {
		answer(code, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
			"message": "because " + reason})
	}
	const at = "/apis/kubefusion.dev/v1alpha1/fusedcontrolplanes"
	name := strings.TrimPrefix(r.URL.Path, at+"/")
	f := m.planes[name]
	switch {
	case r.URL.Path == at:
		m.lists++
		names := slices.Sorted(maps.Keys(m.planes))
		next, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		list := object{"apiVersion": "kubefusion.dev/v1alpha1", "kind": "FusedControlPlaneList", "metadata": object{},
			"items": []any{m.planes[names[next]]}} // one on a page, whatever limit is asked for
		if next+1 < len(names) {
			list["metadata"] = object{"continue": strconv.Itoa(next + 1)}
		}
		answer(http.StatusOK, list)
	case strings.Contains(r.URL.Path, "/secrets/") && m.forbidden:
		status(http.StatusForbidden, "Forbidden")
	case f == nil:
		status(http.StatusNotFound, "NotFound")
	case r.Method == http.MethodGet:
		answer(http.StatusOK, f)
		if m.edit != nil {
			m.edit(f)
		}
	case r.Method == http.MethodPatch:
		body, _ := io.ReadAll(r.Body)
		var patch struct {
			Metadata struct {
				ResourceVersion string            `json:"resourceVersion"`
				Annotations     map[string]string `json:"annotations"`
			} `json:"metadata"`
			Spec, Status any
		}
		if err := json.Unmarshal(body, &patch); err != nil || patch.Spec != nil || patch.Status != nil ||
			r.Header.Get("Content-Type") != "application/merge-patch+json" {
			status(http.StatusBadRequest, "BadRequest")
			return
		}
		if patch.Metadata.ResourceVersion != f["metadata"].(object)["resourceVersion"] {
			status(http.StatusConflict, "Conflict")
			return
		}
		for key, value := range patch.Metadata.Annotations {
			m.patches = append(m.patches, name+" "+key+"="+value)
		}
		answer(http.StatusOK, f)
	default:
		status(http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

// newManagement has control planes of the example's spec, each with a status.
func newManagement(t *testing.T, planes map[string]object) (m *management, kubeconfig string) {
	t.Helper()
	text, err := os.ReadFile("../../examples/hosted-1.15-1.36.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m = &management{planes: map[string]object{}}
	for name, status := range planes {
		f := object{}
		if err := yaml.Unmarshal(text, &f); err != nil {
			t.Fatal(err)
		}
		f["metadata"] = object{"name": name, "resourceVersion": "7", "generation": 3}
		if status["observedGeneration"] == nil {
			status["observedGeneration"] = 3
		}
		f["status"] = status
		m.planes[name] = f
	}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	config, err := json.Marshal(object{"apiVersion": "v1", "kind": "Config", "current-context": "a",
		"clusters": []object{{"name": "a", "cluster": object{"server": server.URL}}},
		"users":    []object{{"name": "a", "user": object{"token": "t"}}},
		"contexts": []object{{"name": "a", "context": object{"cluster": "a", "user": "a"}}}})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, config, 0o600); err != nil {
		t.Fatal(err)
	}
	return m, kubeconfig
}

// plugin runs kubectl fusion with these words.
func plugin(t *testing.T, kubeconfig string, words ...string) (code int, stdout, stderr string) {
	t.Helper()
	if kubeconfig != "" {
		words = append(words, "--kubeconfig", kubeconfig)
	}
	var out, errs bytes.Buffer
	code = cli.Main(t.Context(), cli.Arguments(append([]string{"/usr/bin/kubectl-fusion"}, words...)),
		cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	return code, out.String(), errs.String()
}

const (
	runs  = "0123456789abcdef0123"
	wants = "3f0c1d9a5b7e2c4d6a80"
)

func fourPlanes() map[string]object {
	return map[string]object{
		"good": {"phase": "Running", "plan": runs, "runs": runs,
			"components": []object{{"name": "etcd-core", "host": "hosted", "wanted": 3, "ready": 3}},
			"history": []object{{"from": "1.15 and 1.35", "to": "1.15 and 1.36", "plan": runs,
				"ended": "2026-01-02T03:04:05Z", "error": "one of 3 pods"}}},
		"waits": {"phase": "Waiting", "plan": wants, "runs": runs,
			"conditions": []object{{"type": "Progressing", "status": "False", "reason": "WaitingForApproval",
				"message": "4 steps need approval: kubectl annotate --overwrite fcp waits kubefusion.dev/approve=" +
					wants + ".from-" + runs + ".2", "lastTransitionTime": "2026-01-02T03:04:05Z"}}},
		"moves": {"phase": "Progressing", "plan": wants, "runs": runs, "transition": object{"from": "a", "to": "b",
			"plan": wants, "steps": 9, "done": 4, "step": "apply kube-apiserver"}},
		"stale": {"phase": "Waiting", "plan": wants, "runs": runs, "observedGeneration": 2},
	}
}

// TestThePluginShowsControlPlanes: all pages are read, and findings have their exit code.
func TestThePluginShowsControlPlanes(t *testing.T) {
	t.Parallel()
	m, kubeconfig := newManagement(t, fourPlanes())
	code, stdout, stderr := plugin(t, kubeconfig, "get")
	for _, want := range []string{"good   1.15.12  1.36.3  Running      3/3", "4/9 apply kube-apiserver",
		"waits: 4 steps need approval"} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("exit %d, no %q in\n%s%s", code, want, stdout, stderr)
		}
	}
	if m.lists != 4 {
		t.Errorf("%d pages of 4 were read", m.lists)
	}
	m.planes["good"]["status"].(object)["phase"] = "Degraded"
	if code, stdout, _ := plugin(t, kubeconfig, "get", "good", "-o", "json"); code != 3 ||
		!strings.Contains(stdout, `"fusionctl/operator-get/v1"`) || strings.Contains(stdout, "moves") {
		t.Errorf("a degraded one: exit %d\n%s", code, stdout)
	}
	if code, _, stderr := plugin(t, kubeconfig, "get", "none"); code != 1 || !strings.Contains(stderr, `"none"`) {
		t.Errorf("one that is not there: exit %d, %s", code, stderr)
	}
	code, stdout, _ = plugin(t, kubeconfig, "history")
	if code != 0 || !strings.Contains(stdout, "2026-01-02 03:04:05") || !strings.Contains(stdout, "one of 3 pods") {
		t.Errorf("history: exit %d\n%s", code, stdout)
	}
}

// TestApprovalsAreOfAPlan: an approval is written for the plan that waits, and for no other state of the object.
func TestApprovalsAreOfAPlan(t *testing.T) {
	t.Parallel()
	m, kubeconfig := newManagement(t, fourPlanes())
	for words, want := range map[string]string{
		"approve good --yes":                 "is Running, and waits for no approval",
		"approve moves --yes":                "is Progressing, and waits for no approval",
		"approve stale --yes":                "has not looked at the last edit",
		"approve waits":                      "--yes is required",
		"approve waits --yes --plan " + runs: "it is about plan " + wants,
		"approve waits --yes --plan " + wants + ".from-" + wants: "it is about plan " + wants,
		"back good --yes":  "has no transition that goes on",
		"back waits --yes": "has no transition that goes on",
		"back moves --yes --plan " + runs + " --context a": "it is about plan " + wants,
	} {
		if code, stdout, stderr := plugin(t, kubeconfig, strings.Fields(words)...); code != 1 && code != 2 ||
			!strings.Contains(stderr, want) || stdout != "" {
			t.Errorf("%s: exit %d, %s%s; want %q", words, code, stdout, stderr, want)
		}
	}
	if len(m.patches) > 0 {
		t.Fatalf("written: %q", m.patches)
	}
	for _, words := range [][]string{{"approve", "waits", "--yes", "--plan", wants}, {"back", "moves", "--yes"}} {
		if code, _, stderr := plugin(t, kubeconfig, words...); code != 0 {
			t.Errorf("%q: exit %d, %s", words, code, stderr)
		}
	}
	want := []string{"waits kubefusion.dev/approve=" + wants + ".from-" + runs + ".2",
		"moves kubefusion.dev/back=" + wants}
	if !slices.Equal(m.patches, want) {
		t.Errorf("written: %q, want %q", m.patches, want)
	}
	m.edit = func(f object) { f["metadata"].(object)["resourceVersion"] = "8" }
	if code, _, stderr := plugin(t, kubeconfig, "approve", "waits", "--yes"); code != 1 || len(m.patches) != 2 {
		t.Errorf("an object that was edited meanwhile: exit %d, %s, %q", code, stderr, m.patches)
	}
}

// TestAStepByHandIsConfirmed: the word that the condition asks for is written, and none where no step waits.
func TestAStepByHandIsConfirmed(t *testing.T) {
	t.Parallel()
	m, kubeconfig := newManagement(t, map[string]object{"prod": {"phase": "Waiting", "plan": wants,
		"conditions": []object{{"type": "Progressing", "status": "False", "reason": "ByHand",
			"message": "then kubectl annotate --overwrite fcp prod kubefusion.dev/done=" + wants +
				".1767323045.017",
			"lastTransitionTime": "2026-01-02T03:04:05Z"}}},
		"idle": {"phase": "Waiting", "plan": wants}})
	for words, want := range map[string]string{
		"done idle --yes":                 "no step of it waits for a person",
		"done prod":                       "--yes is required",
		"done prod --yes --plan " + runs:  "it is about plan " + wants,
		"done prod --yes --plan " + wants: "",
	} {
		code, _, stderr := plugin(t, kubeconfig, strings.Fields(words)...)
		if (code == 0) != (want == "") || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, %s; want %q", words, code, stderr, want)
		}
	}
	if want := []string{"prod kubefusion.dev/done=" + wants + ".1767323045.017"}; !slices.Equal(m.patches, want) {
		t.Errorf("written: %q, want %q", m.patches, want)
	}
}

// TestThePluginPlans: steps are from the record to the spec. A record that may not be read is not taken for none, by
// which everything would be installed.
func TestThePluginPlans(t *testing.T) {
	t.Parallel()
	m, kubeconfig := newManagement(t, fourPlanes())
	code, stdout, stderr := plugin(t, kubeconfig, "plan", "good")
	if code != 0 || !strings.Contains(stdout, "apply etcd-core") || !strings.Contains(stderr, "another version") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	m.planes["good"]["spec"].(object)["modern"].(object)["version"] = "1.14.0"
	if code, stdout, _ := plugin(t, kubeconfig, "plan", "good", "-o", "json"); code != 3 ||
		!strings.Contains(stdout, `"refused": "`) {
		t.Errorf("a spec that is refused: exit %d\n%s", code, stdout)
	}
	m.forbidden = true
	if code, stdout, stderr := plugin(t, kubeconfig, "plan", "waits"); code != 1 || stdout != "" ||
		!strings.Contains(stderr, "reading the record of waits") {
		t.Errorf("without the record: exit %d, %s%s", code, stdout, stderr)
	}
}

// TestThePluginHasTheVerbsOfTheOperator: and every other word is fusionctl's.
func TestThePluginHasTheVerbsOfTheOperator(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"kubectl-fusion":                      "operator --help",
		"kubectl-fusion --kubeconfig x":       "operator --help",
		"/a/kubectl-fusion.exe help":          "operator --help",
		"kubectl-fusion get -o json":          "operator get -o json",
		"kubectl-fusion check spec.yaml":      "check spec.yaml",
		"fusionctl get":                       "get",
		"/usr/local/bin/kubectl-fusionctl -v": "-v",
	} {
		if got := strings.Join(cli.Arguments(strings.Fields(words)), " "); got != want {
			t.Errorf("%s: %q, want %q", words, got, want)
		}
	}
	if code, stdout, _ := plugin(t, ""); code != 0 || !strings.Contains(stdout, "kubectl fusion get") {
		t.Errorf("exit %d\n%s", code, stdout)
	}
}
