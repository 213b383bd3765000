//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/websocket"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

// gatewayAccess is what the modern side allows to the gateway itself and to a developer behind it.
const gatewayAccess = access +
	`  - {subjects: [{kind: User, name: gateway}], apiGroups: [apiregistration.k8s.io], resources: [apiservices], readOnly: true}
  - {subjects: [{kind: User, name: gateway}], apiGroups: [authentication.k8s.io], resources: [tokenreviews]}
  - {subjects: [{kind: User, name: gateway}], nonResourcePaths: ["*"], readOnly: true}
  - {subjects: [{kind: Group, name: developers}], nonResourcePaths: ["*"], readOnly: true}
  - {subjects: [{kind: Group, name: developers}], apiGroups: [""], resources: [events, nodes]}
  - {subjects: [{kind: Group, name: developers}], apiGroups: [coordination.k8s.io], resources: [leases]}
  - {subjects: [{kind: Group, name: developers}], apiGroups: [autoscaling, networking.k8s.io, policy], resources: [horizontalpodautoscalers, ingresses, poddisruptionbudgets]}
  - {subjects: [{kind: Group, name: developers}], apiGroups: [restaurant.example.com], resources: ["*"]}
`

// gatewayRules are what the legacy side allows to both.
var gatewayRules = map[string][]object{
	"gateway": {
		{"apiGroups": []string{"apiregistration.k8s.io"}, "resources": []string{"apiservices"},
			"verbs": []string{"get", "list"}},
		{"apiGroups": []string{"authentication.k8s.io"}, "resources": []string{"tokenreviews"},
			"verbs": []string{"create"}},
		{"nonResourceURLs": []string{"*"}, "verbs": []string{"get"}},
	},
	// the gateway at a further cluster, as docs/gateway.md has it
	"edge": {
		{"apiGroups": []string{""}, "resources": []string{"users"}, "verbs": []string{"impersonate"}},
		{"apiGroups": []string{""}, "resources": []string{"groups"}, "verbs": []string{"impersonate"},
			"resourceNames": []string{"developers", "system:authenticated"}},
		{"nonResourceURLs": []string{"/api", "/api/*", "/apis", "/apis/*", "/version", "/readyz"},
			"verbs": []string{"get"}},
	},
	"developers": {
		{"apiGroups": []string{"", "apps", "autoscaling", "batch", "coordination.k8s.io", "extensions",
			"networking.k8s.io", "policy", "restaurant.example.com"},
			"resources": []string{"*"}, "verbs": []string{"*"}},
		{"nonResourceURLs": []string{"*"}, "verbs": []string{"get"}},
	},
}

// gatewayed is a pair behind a gateway.
type gatewayed struct {
	*rig.Rig
	*rig.Pair
	t          testing.TB
	url        string
	metrics    string // address of its metrics
	kubeconfig string // of a developer, at the gateway
	admin      map[pair.Side]*rig.Client
	edge       string        // the kubeconfig of the gateway for the further cluster
	client     kubever.Minor // of kubectl
}

// kubectls are the clients that work through a gateway: of today, and of the oldest side with nodes that is tried.
var kubectls = []kubever.Minor{kubever.Suggested, 15}

// with is the same gateway for another kubectl, which reports to t.
func (g *gatewayed) with(t *testing.T, kubectl kubever.Minor) *gatewayed {
	other := *g
	other.t, other.client = t, kubectl
	return &other
}

func startGateway(t testing.TB, s rig.PairSpec) *gatewayed {
	r := rig.New(t)
	s.More = gatewayAccess + s.More
	g := &gatewayed{Rig: r, Pair: r.StartPair(s), t: t, client: kubever.Suggested}
	g.admin = map[pair.Side]*rig.Client{pair.Legacy: g.Legacy.Client("admin", "system:masters"),
		pair.Modern: g.Modern.Client("admin", "system:masters")}
	for name, rules := range gatewayRules {
		kind := "User"
		if name == "developers" {
			kind = "Group"
		}
		g.must(pair.Legacy, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1beta1/clusterroles", object{
			"metadata": object{"name": "gateway-" + name}, "rules": rules})
		g.must(pair.Legacy, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1beta1/clusterrolebindings", object{
			"metadata": object{"name": "gateway-" + name},
			"roleRef": object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
				"name": "gateway-" + name},
			"subjects": []object{{"kind": kind, "name": name, "apiGroup": "rbac.authorization.k8s.io"}}})
	}
	legacy, err := r.PKI.Kubeconfig("gateway-legacy", g.Legacy.URL, "gateway")
	must(t, err)
	modern, err := r.PKI.Kubeconfig("gateway-modern", g.Modern.URL, "gateway")
	must(t, err)
	// The legacy API server is a further cluster, too.
	g.edge, err = r.PKI.Kubeconfig("gateway-edge", g.Legacy.URL, "edge")
	must(t, err)
	g.metrics = fmt.Sprintf("127.0.0.1:%d", r.Port())
	rules, err := filepath.Abs("../../examples/pizza")
	must(t, err)
	g.serves("gateway", g.SpecFile, "--legacy-kubeconfig", legacy, "--modern-kubeconfig", modern, "--cluster", "edge",
		"--cluster-kubeconfig", g.edge, "--conversion-rules", rules, "--metrics-listen", g.metrics)
	return g
}

// serves starts a gateway for the developer, with more arguments, and waits until it is ready.
func (g *gatewayed) serves(name string, args ...string) {
	g.t.Helper()
	program, err := fusionctl()
	must(g.t, err)
	cert, key, err := g.PKI.Serving(name, "127.0.0.1")
	must(g.t, err)
	port := g.Port()
	g.url = fmt.Sprintf("https://127.0.0.1:%d", port)
	g.kubeconfig, err = g.PKI.Kubeconfig("developer-of-"+name, g.url, "alice", "developers")
	must(g.t, err)
	process := g.StartProgram(name, program, append([]string{"gateway", "--proxy-cert",
		g.Place(g.Plan.PKI.ProxyClientCert), "--proxy-key", g.Place(g.Plan.PKI.ProxyClientKey), "--tls-cert", cert,
		"--tls-key", key, "--client-ca", g.PKI.File("ca.crt"), "--listen", fmt.Sprintf("127.0.0.1:%d", port),
		"--discovery-interval", "1s"}, args...),
		"GOGC=", "GOMEMLIMIT=") // its memory is measured, and it paces its heap itself
	ready := g.ClientOf(g.url, "alice", "developers")
	process.Wait("become ready", func(ctx context.Context) error {
		return ready.Call(ctx, http.MethodGet, "/readyz", nil, nil)
	})
}

// outlives: a kubectl of the legacy version works through a gateway with the modern API server alone, in the version
// that it knows.
func (g *gatewayed) outlives(t *testing.T) {
	alone := g.with(t, 15)
	runtime := g.Plan.Runtime()
	runtime.Legacy.Retired = true
	text, err := runtime.Format()
	must(t, err)
	file := filepath.Join(g.Dir(), "retired.json")
	must(t, os.WriteFile(file, text, 0o600))
	modern, err := g.PKI.Kubeconfig("gateway-alone", g.Modern.URL, "gateway")
	must(t, err)
	alone.serves("gateway-alone", "--plan", file, "--modern-kubeconfig", modern)
	alone.ok(strings.Replace(deploymentYAML("late", 0), "apps/v1", "extensions/v1beta1", 1), "apply", "-f", "-")
	alone.ok("", "scale", "deployments.v1beta1.extensions/late", "--replicas=2")
	says(t, alone.ok("", "get", "deployments.v1beta1.extensions", "late", "-o", "yaml"),
		"apiVersion: extensions/v1beta1", "replicas: 2")
	says(t, alone.ok("", "get", "deployments.v1beta1.extensions"), "late")
	var d appsv1.Deployment
	must(t, g.admin[pair.Modern].Call(t.Context(), http.MethodGet, deployments+"/late", nil, &d))
	if *d.Spec.Replicas != 2 {
		t.Errorf("the modern side has %d replicas, want 2", *d.Spec.Replicas)
	}
	alone.ok("", "delete", "deployments.v1beta1.extensions", "late")
}

func (g *gatewayed) must(side pair.Side, method, path string, body any) {
	g.t.Helper()
	if err := g.admin[side].Call(g.t.Context(), method, path, body, nil); err != nil {
		g.t.Fatalf("%s %s on the %s side: %v", method, path, side, err)
	}
}

// change updates an object, and does so again when a controller was faster: one of a Deployment writes its status.
func (g *gatewayed) change(c *rig.Client, path string, change func(object)) {
	g.t.Helper()
	g.Eventually("an update of "+path, func(ctx context.Context) error {
		var o object
		if err := c.Call(ctx, http.MethodGet, path, nil, &o); err != nil {
			return err
		}
		change(o)
		return c.Call(ctx, http.MethodPut, path, o, nil)
	})
}

// kubectl runs kubectl as the developer.
func (g *gatewayed) kubectl(input string, args ...string) (string, error) {
	g.t.Helper()
	return g.program("kubectl-"+g.client.String(), input, append([]string{"--cache-dir",
		g.Dir() + "/kubectl-cache-" + g.client.String()}, args...)...)
}

// program runs a client with the kubeconfig of the developer.
func (g *gatewayed) program(name, input string, args ...string) (string, error) {
	g.t.Helper()
	file, err := rig.Program(name)
	must(g.t, err)
	ctx, cancel := context.WithTimeout(g.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, file, append([]string{"--kubeconfig", g.kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	// A home of its own: helm keeps files there.
	cmd.Env = append(os.Environ(), "KUBE_EDITOR=sed -i s/replicas:.0/replicas:\\ 1/", "HOME="+g.Dir())
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, &errs)
	}
	return string(out), err
}

func (g *gatewayed) ok(input string, args ...string) string {
	g.t.Helper()
	out, err := g.kubectl(input, args...)
	if err != nil {
		g.t.Fatal(err)
	}
	return out
}

// replace is `kubectl replace` of a Deployment as it was read, again when its controller was faster.
func (g *gatewayed) replace(name string) {
	g.t.Helper()
	g.Eventually("kubectl replace", func(context.Context) error {
		_, err := g.kubectl(g.ok("", "get", "deployment", name, "-o", "json"), "replace", "-f", "-")
		return err
	})
}

func says(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, each := range want {
		if !strings.Contains(text, each) {
			t.Errorf("%q is not said:\n%s", each, text)
		}
	}
}

func deploymentYAML(name string, replicas int) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %s, labels: {app: %s}}
spec:
  replicas: %d
  selector: {matchLabels: {app: %s}}
  template:
    metadata: {labels: {app: %s}}
    spec: {containers: [{name: c, image: example.test/c}]}
`, name, name, replicas, name, name)
}

const deployments = "/apis/apps/v1/namespaces/default/deployments"

// deploymentsOf is where each side has Deployments, whatever its version.
func deploymentsOf(side pair.Side) string {
	if side == pair.Legacy {
		return "/apis/extensions/v1beta1/namespaces/default/deployments"
	}
	return deployments
}

// TestGatewayServesBothSides: kubectl of today and client-go work through the gateway with objects of both sides of a
// real pair.
func TestGatewayServesBothSides(t *testing.T) {
	t.Parallel()
	g := startGateway(t, rig.PairSpec{Layout: spec.LayoutSplit, Legacy: "1.15.12", Modern: "1.36.3",
		NoControllers: true})
	var old object
	must(t, json.Unmarshal([]byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"old",
		"labels":{"app":"old"}},"spec":{"replicas":0,"selector":{"matchLabels":{"app":"old"}},"template":{"metadata":{
		"labels":{"app":"old"}},"spec":{"containers":[{"name":"c","image":"example.test/c"}]}}}}`), &old))
	g.must(pair.Legacy, http.MethodPost, deployments, old)

	g.ok(deploymentYAML("new", 0), "apply", "-f", "-")
	if err := g.admin[pair.Modern].Call(t.Context(), http.MethodGet, deployments+"/new", nil, nil); err != nil {
		t.Errorf("what is created does not go to the modern side: %v", err)
	}

	for _, kubectl := range kubectls {
		t.Run("kubectl "+kubectl.String(), func(t *testing.T) { g.with(t, kubectl).worksOnBothSides(t) })
	}
	t.Run("server-side apply", func(t *testing.T) { g.applies(t) })
	t.Run("custom resources", func(t *testing.T) { g.customResources(t) })
	t.Run("controller-runtime", func(t *testing.T) { g.manages(t) })
	t.Run("informers", func(t *testing.T) { g.informs(t) })
	t.Run("a further cluster", func(t *testing.T) { g.furtherCluster(t, true) })
	t.Run("a watch of a browser", func(t *testing.T) { g.watchesInABrowser(t) })
	t.Run("refusals", func(t *testing.T) {
		client := g.ClientOf(g.url, "alice", "developers")
		for path, want := range map[string]int{
			"/apis/batch/v1/cronjobs":                             http.StatusOK, // batch/v1beta1 on the legacy side
			"/apis/apps/v1/deployments?resourceVersion=1":         http.StatusGone,
			"/apis/apps/v1/deployments?resourceVersion=x":         http.StatusUnprocessableEntity,
			"/apis/apps/v1/deployments?continue=abc":              http.StatusBadRequest,
			"/apis/apps/v1/namespaces//deployments":               http.StatusBadRequest,
			"/apis/apps/v1/namespaces/default/deployments/%2e%2e": http.StatusBadRequest,
			"/sides/legacy/apis/batch/v1beta1/cronjobs":           http.StatusOK,
			"/sides/modern/apis/batch/v1/cronjobs":                http.StatusOK,
			"/sides/other/api":                                    http.StatusNotImplemented,
		} {
			if err := client.Call(t.Context(), http.MethodGet, path, nil, nil); rig.Code(err) != want &&
				(want != http.StatusOK || err != nil) {
				t.Errorf("GET %s: %v, want %d", path, err, want)
			}
		}
		nobody := g.ClientOf(g.url, "mallory")
		for _, path := range []string{"/api/v1/namespaces/default/secrets", deployments} {
			if err := nobody.Call(t.Context(), http.MethodGet, path, nil, nil); rig.Code(err) != http.StatusForbidden {
				t.Errorf("GET %s as a user without rights: %v, want 403", path, err)
			}
		}
	})
	t.Run("a side hangs", func(t *testing.T) { g.hangs(t) })
	t.Run("one name on both sides", func(t *testing.T) {
		for _, side := range pair.Sides() {
			twin := old
			twin["metadata"] = object{"name": "twin", "labels": object{"app": "old"}}
			g.must(side, http.MethodPost, deployments, twin)
		}
		client := g.ClientOf(g.url, "alice", "developers")
		if err := client.Call(t.Context(), http.MethodGet, deployments+"/twin", nil, nil); rig.Code(err) !=
			http.StatusConflict || !strings.Contains(err.Error(), "UID") {
			t.Errorf("a name on both sides: %v, want 409 with both UIDs", err)
		}
		if _, err := g.kubectl("", "delete", "deployment", "twin"); err == nil {
			t.Error("a name on both sides is deleted")
		}
		var twin appsv1.Deployment
		must(t, g.admin[pair.Legacy].Call(t.Context(), http.MethodGet, deployments+"/twin", nil, &twin))
		at := deployments + "/twin?fieldSelector=metadata.uid=" + string(twin.UID)
		must(t, client.Call(t.Context(), http.MethodGet, at, nil, &twin))
		if twin.Annotations["kubefusion.dev/side"] != "legacy" {
			t.Errorf("by its UID: %v", twin.Annotations)
		}
		// A dry run deletes nothing: an old side refuses it.
		dry := client.Call(t.Context(), http.MethodDelete, at+"&dryRun=All", nil, nil)
		if dry != nil && rig.Code(dry) != http.StatusBadRequest {
			t.Errorf("a dry run by its UID: %v", dry)
		}
		must(t, client.Call(t.Context(), http.MethodGet, at, nil, &twin))
		must(t, client.Call(t.Context(), http.MethodDelete, at, nil, nil))
		must(t, client.Call(t.Context(), http.MethodDelete, deployments+"/twin", nil, nil))
	})
	t.Run("delete", func(t *testing.T) {
		g.ok("", "delete", "deployment", "old", "new")
		says(t, g.ok("", "get", "deployments", "-o", "name")+"none", "none")
		for _, side := range pair.Sides() {
			var list appsv1.DeploymentList
			must(t, g.admin[side].Call(t.Context(), http.MethodGet, deployments, nil, &list))
			if len(list.Items) != 0 {
				t.Errorf("the %s side still has %d deployments", side, len(list.Items))
			}
		}
	})
}

// hangs: what needs a side that hangs is 503 in the end, with a time to come again, also on a connection that was used
// before; what needs the other one alone goes on, and so does everything when the side does.
func (g *gatewayed) hangs(t *testing.T) {
	const view, other = "/sides/legacy/api/v1/namespaces", "/sides/modern/api/v1/namespaces"
	client := httpClient(t, g.kubeconfig)
	get := func(path string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url+path, nil)
		must(t, err)
		response, err := client.Do(r)
		if err == nil {
			response.Body.Close()
		}
		return response, err
	}
	paths := []string{view, deployments, deployments + "?watch=1&timeoutSeconds=1"}
	for _, path := range paths {
		response, err := get(path)
		must(t, err)
		if response.StatusCode != http.StatusOK {
			t.Fatalf("GET %s: %s", path, response.Status)
		}
	}
	g.Legacy.Signal(syscall.SIGSTOP)
	defer g.Legacy.Signal(syscall.SIGCONT)
	g.Eventually("the side hangs", func(context.Context) error { return g.Legacy.Hangs() })
	var all sync.WaitGroup
	for _, path := range paths {
		all.Go(func() {
			response, err := get(path)
			if err != nil {
				t.Errorf("GET %s: %v", path, err)
			} else if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
				t.Errorf("GET %s: %s, want 503 with Retry-After", path, response.Status)
			}
		})
	}
	if response, err := get(other); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("GET %s: %v, %v", other, response, err)
	}
	all.Wait()
	g.Legacy.Signal(syscall.SIGCONT)
	g.Eventually("all goes on", func(context.Context) error {
		for _, path := range paths {
			if response, err := get(path); err != nil || response.StatusCode != http.StatusOK {
				return fmt.Errorf("GET %s: %v, %w", path, response, err)
			}
		}
		return nil
	})
}

// worksOnBothSides: what people type, for a Deployment of each side: old and new.
func (g *gatewayed) worksOnBothSides(t *testing.T) {
	t.Run("get and list", func(t *testing.T) {
		says(t, g.ok("", "get", "deployments"), "NAME", "READY", "old", "new")
		says(t, g.ok("", "get", "deployments", "-o", "yaml"), "kubefusion.dev/side: legacy",
			"kubefusion.dev/side: modern")
		says(t, g.ok("", "get", "deployment", "old", "-o", "yaml"), "kubefusion.dev/side: legacy")
		says(t, g.ok("", "get", "deployments", "-o", "name", "--chunk-size=1"), "deployment.apps/old",
			"deployment.apps/new")
		says(t, g.ok("", "get", "deploy", "-l", "app=old", "-o", "name"), "deployment.apps/old")
		says(t, g.ok("", "describe", "deployment", "old"), "kubefusion.dev/side: legacy", "example.test/c")
		says(t, g.ok("", "get", "pods,services,namespaces,configmaps", "-A"), "kube-system")
		says(t, g.ok("", "api-resources"), "deployments", "apps", "pods")
		says(t, g.ok("", "version"), "v1.36")
		says(t, g.ok("", "explain", "deployment.spec.replicas"), "replicas")
		if _, err := g.kubectl("", "get", "deployment", "nowhere"); err == nil ||
			!strings.Contains(err.Error(), "NotFound") {
			t.Errorf("a deployment that neither side has: %v", err)
		}
	})
	t.Run("change", func(t *testing.T) {
		for _, name := range []string{"old", "new"} {
			side := pair.Legacy
			if name == "new" {
				side = pair.Modern
			}
			read := func() (d appsv1.Deployment) {
				must(t, g.admin[side].Call(t.Context(), http.MethodGet, deployments+"/"+name, nil, &d))
				if d.Annotations["kubefusion.dev/side"] != "" {
					t.Errorf("%s: the annotation is stored: %v", name, d.Annotations)
				}
				return d
			}
			g.ok("", "scale", "deployment", name, "--replicas=2")
			if d := read(); *d.Spec.Replicas != 2 {
				t.Errorf("%s: scaled to %d, want 2", name, *d.Spec.Replicas)
			}
			g.ok(deploymentYAML(name, 0), "apply", "-f", "-")
			if d := read(); *d.Spec.Replicas != 0 {
				t.Errorf("%s: applied, and it has %d replicas", name, *d.Spec.Replicas)
			}
			g.ok("", "edit", "deployment", name)
			if d := read(); *d.Spec.Replicas != 1 {
				t.Errorf("%s: edited, and it has %d replicas", name, *d.Spec.Replicas)
			}
			g.ok("", "annotate", "--overwrite", "deployment", name, "example.test/note=x")
			if d := read(); d.Annotations["example.test/note"] != "x" {
				t.Errorf("%s: not annotated: %v", name, d.Annotations)
			}
			g.replace(name)
			read()
			g.ok("", "patch", "deployment", name, "--type=json", "-p",
				`[{"op":"replace","path":"/spec/replicas","value":0}]`)
			if d := read(); *d.Spec.Replicas != 0 {
				t.Errorf("%s: patched, and it has %d replicas", name, *d.Spec.Replicas)
			}
			g.ok("", "rollout", "restart", "deployment", name)
			g.ok("", "rollout", "status", "deployment", name, "--timeout=120s")
			says(t, g.ok("", "rollout", "history", "deployment", name), "REVISION")
			g.ok("", "rollout", "undo", "deployment", name)
			g.ok("", "wait", "deployment", name, "--for=condition=Available", "--timeout=120s")
		}
		g.ok(deploymentYAML("made", 0), "create", "-f", "-")
		says(t, g.ok("", "describe", "deployment", "made"), "kubefusion.dev/side: modern")
		says(t, g.ok("", "delete", "deployment", "made"), "deleted")
		if _, err := g.kubectl(deploymentYAML("old", 0), "create", "-f", "-"); err == nil ||
			!strings.Contains(err.Error(), "AlreadyExists") {
			t.Errorf("creating what the legacy side has: %v", err)
		}
	})
}

// TestGatewayConverts: a client of extensions/v1beta1 works with Deployments of a 1.36 side, which has no such version,
// beside those of a 1.15 side, and kubectl of today with both.
func TestGatewayConverts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ legacy, native string }{{"1.6.13", "apps/v1beta1"}, {"1.15.12", "apps/v1beta1"}} {
		t.Run(tc.legacy, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, rig.PairSpec{Layout: spec.LayoutSplit, Legacy: tc.legacy, Modern: "1.36.3",
				NoControllers: true, More: "  gateway: {create: legacy}\n"})
			native := "/apis/" + tc.native + "/namespaces/default/deployments"
			const modern = deployments
			const older = "/apis/extensions/v1beta1/namespaces/default/deployments"
			g.must(pair.Modern, http.MethodPost, modern, object{"apiVersion": "apps/v1", "kind": "Deployment",
				"metadata": object{"name": "new", "labels": object{"app": "new"}}, "spec": object{"replicas": 0,
					"selector": object{"matchLabels": object{"app": "new"}}, "template": object{
						"metadata": object{"labels": object{"app": "new"}},
						"spec":     object{"containers": []object{{"name": "c", "image": "example.test/c"}}}}}})

			for _, kubectl := range kubectls {
				t.Run("kubectl "+kubectl.String(), func(t *testing.T) {
					g.with(t, kubectl).worksConverted(t, native+"/old")
				})
			}
			t.Run("helm", func(t *testing.T) { g.helm(t, native) })
			t.Run("controller-runtime", func(t *testing.T) { g.manages(t) })
			t.Run("informers of metadata", func(t *testing.T) { g.informsOfMetadata(t) })
			t.Run("informers", func(t *testing.T) { g.informs(t) })
			t.Run("alone", g.outlives)
			t.Run("a further cluster", func(t *testing.T) { g.furtherCluster(t, tc.legacy != "1.6.13") })

			// What the old side would not know, and list what is newer, is refused.
			client := g.ClientOf(g.url, "alice", "developers")
			for _, side := range pair.Sides() {
				var list metav1.PartialObjectMetadataList
				must(t, g.admin[side].Call(t.Context(), http.MethodGet,
					"/api/v1/namespaces?resourceVersion=1&resourceVersionMatch=Exact", nil, &list))
				if knows := side == pair.Modern; (len(list.Items) == 0) != knows {
					t.Errorf("the %s side has %d namespaces at version 1", side, len(list.Items))
				}
			}
			const exact = modern + "?resourceVersion=l1m1&resourceVersionMatch=Exact"
			err := client.Call(t.Context(), http.MethodGet, exact, nil, nil)
			if rig.Code(err) != http.StatusUnprocessableEntity {
				t.Errorf("a list exactly at a version: %v, want 422", err)
			}

			// A client of extensions/v1beta1, by what it sends and reads: kubectl of today has no such types.
			var list struct {
				APIVersion string
				Items      []struct{ Metadata metav1.ObjectMeta }
			}
			must(t, client.Call(t.Context(), http.MethodGet, older, nil, &list))
			if len(list.Items) != 2 || list.APIVersion != "extensions/v1beta1" {
				t.Errorf("a client of extensions/v1beta1 reads %+v", list)
			}
			g.change(client, older+"/new", func(read object) {
				if read["apiVersion"] != "extensions/v1beta1" {
					t.Errorf("read %v", read)
				}
				read["spec"].(map[string]any)["replicas"] = 3
			})
			g.change(client, older+"/new/scale", func(scale object) {
				if scale["apiVersion"] != "extensions/v1beta1" || scale["spec"].(map[string]any)["replicas"] != 3.0 {
					t.Errorf("the scale is %v", scale)
				}
				scale["spec"].(map[string]any)["replicas"] = 0
			})
			var d appsv1.Deployment
			must(t, g.admin[pair.Modern].Call(t.Context(), http.MethodGet, modern+"/new", nil, &d))
			if *d.Spec.Replicas != 0 {
				t.Errorf("the modern side has %d replicas, want 0", *d.Spec.Replicas)
			}

			// What a deletion says in its query counts, as clients in Python send it: API servers do not look there in
			// a request with a body, which one in another version has.
			must(t, client.Call(t.Context(), http.MethodDelete, older+"/new?dryRun=All", nil, nil))
			must(t, g.admin[pair.Modern].Call(t.Context(), http.MethodGet, modern+"/new", nil, &d))
			must(t, client.Call(t.Context(), http.MethodDelete, older+"/new?propagationPolicy=Foreground", nil, nil))
			must(t, g.admin[pair.Modern].Call(t.Context(), http.MethodGet, modern+"/new", nil, &d))
			if d.DeletionTimestamp == nil || !slices.Contains(d.Finalizers, metav1.FinalizerDeleteDependents) {
				t.Errorf("deleted with its dependents first: %v", d.ObjectMeta)
			}
			g.change(g.admin[pair.Modern], modern+"/new", func(read object) {
				delete(read["metadata"].(map[string]any), "finalizers")
			})

			g.ok("", "delete", "deployment", "old")
			if left := g.ok("", "get", "deployments", "-o", "name"); strings.TrimSpace(left) != "" {
				t.Errorf("left after the deletion: %s", left)
			}
		})
	}
}

// worksConverted: what people type, for the Deployment old of a side that has no apps/v1. stored is its path there.
func (g *gatewayed) worksConverted(t *testing.T, stored string) {
	g.ok(deploymentYAML("old", 0), "apply", "-f", "-")
	read := func() (d appsv1.Deployment) {
		t.Helper()
		must(t, g.admin[pair.Legacy].Call(t.Context(), http.MethodGet, stored, nil, &d))
		if d.Annotations["kubefusion.dev/side"] != "" {
			t.Errorf("the annotation is stored: %v", d.Annotations)
		}
		return d
	}
	read()
	g.ok("", "autoscale", "deployment", "old", "--max=3")
	says(t, g.ok("", "get", "hpa"), "REFERENCE", "Deployment/old") // of a version that kubectl 1.15 does not know
	g.ok("", "delete", "hpa", "old", "--wait=false")
	// A side before 1.15 makes no Tables.
	says(t, g.ok("", "get", "deployments"), "NAME", "READY", "UP-TO-DATE", "old", "new")
	says(t, g.ok("", "get", "deployment", "old", "-o", "wide"), "READY", "example.test/c", "app=old")
	says(t, g.ok("", "get", "deployment", "old", "-o", "yaml"), "apiVersion: apps/v1\n",
		"kubefusion.dev/side: legacy")
	says(t, g.ok("", "describe", "deployment", "old"), "example.test/c")
	// A version that neither side serves, and one that the legacy side alone does, are explained.
	for _, version := range []string{"apps/v1beta2", "extensions/v1beta1"} {
		says(t, g.ok("", "explain", "deployment.spec.minReadySeconds", "--api-version="+version), version[:4],
			"Minimum number of seconds for which a newly created pod should be ready")
	}
	g.ok(strings.Replace(deploymentYAML("old", 0), "apps/v1", "apps/v1beta2", 1), "apply", "-f", "-")
	g.watches(t, func() {
		g.ok("", "scale", "deployment", "old", "--replicas=2")
		g.ok("", "scale", "deployment", "new", "--replicas=2")
	}, map[string]string{"old": "0/2", "new": "0/2"})
	if d := read(); *d.Spec.Replicas != 2 {
		t.Errorf("scaled to %d, want 2", *d.Spec.Replicas)
	}
	g.ok("", "scale", "deployment", "new", "--replicas=0")
	g.ok(deploymentYAML("old", 0), "apply", "-f", "-")
	if d := read(); *d.Spec.Replicas != 0 {
		t.Errorf("applied, and it has %d replicas", *d.Spec.Replicas)
	}
	g.ok("", "edit", "deployment", "old")
	if d := read(); *d.Spec.Replicas != 1 {
		t.Errorf("edited, and it has %d replicas", *d.Spec.Replicas)
	}
	g.replace("old")
	g.ok("", "annotate", "--overwrite", "deployment", "old", "example.test/note=x")
	g.ok("", "patch", "deployment", "old", "--type=json", "-p",
		`[{"op":"replace","path":"/spec/replicas","value":0}]`)
	if d := read(); *d.Spec.Replicas != 0 || d.Annotations["example.test/note"] != "x" {
		t.Errorf("patched, and it has %d replicas, %v", *d.Spec.Replicas, d.Annotations)
	}
	g.ok("", "rollout", "restart", "deployment", "old")
	g.ok("", "rollout", "status", "deployment", "old", "--timeout=120s")
	g.ok("", "wait", "deployment", "old", "--for=condition=Available", "--timeout=120s")
}

// watches: `kubectl get --watch` shows the Deployments of both sides, and what becomes of them, below the columns of
// lists. want is what is ready of each, by its name.
func (g *gatewayed) watches(t *testing.T, change func(), want map[string]string) {
	t.Helper()
	file, err := rig.Program("kubectl-" + g.client.String())
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, file, "--kubeconfig", g.kubeconfig, "--cache-dir",
		g.Dir()+"/kubectl-cache-"+g.client.String(), "get", "deployments", "--watch")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() {
		cancel()
		_ = cmd.Wait() // it is killed
	}()
	lines := bufio.NewScanner(out)
	seen, listed := map[string]string{}, 0
	for lines.Scan() {
		cells := strings.Fields(lines.Text())
		if cells[0] == "NAME" {
			if got := cells[:2]; !slices.Equal(got, []string{"NAME", "READY"}) {
				t.Errorf("the columns are %q", cells)
			}
			continue
		}
		if len(cells) != 5 {
			t.Errorf("a row has the cells %q, want 5", cells)
			continue
		}
		seen[cells[0]] = cells[1]
		if listed++; listed == len(want) {
			change()
		}
		if maps.Equal(seen, want) {
			return
		}
	}
	t.Errorf("kubectl get --watch ends after %v, want %v: %s", seen, want, &errs)
}

// helm: a chart of apps/v1 is installed, changed, taken back and removed on a side that has no apps/v1. stored is the
// path of Deployments there.
func (g *gatewayed) helm(t *testing.T, stored string) {
	chart := t.TempDir()
	for name, text := range map[string]string{
		"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\nkubeVersion: \">=1.6.0-0\"\n",
		// --wait is of what has no pods: there are no nodes.
		"values.yaml": "note: first\n",
		"templates/deployment.yaml": `apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}, annotations: {example.test/note: {{ .Values.note }}}}
spec:
  replicas: 0
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec: {containers: [{name: c, image: example.test/c}]}
`,
		"templates/configmap.yaml": "apiVersion: v1\nkind: ConfigMap\n" +
			"metadata: {name: {{ .Release.Name }}}\ndata: {note: {{ .Values.note }}}\n",
	} {
		file := filepath.Join(chart, name)
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, []byte(text), 0o644))
	}
	ok := func(args ...string) string {
		t.Helper()
		out, err := g.program("helm", "", args...)
		must(t, err)
		return out
	}
	noted := func(want string) {
		t.Helper()
		var d appsv1.Deployment
		must(t, g.admin[pair.Legacy].Call(t.Context(), http.MethodGet, stored+"/web", nil, &d))
		if got := d.Annotations["example.test/note"]; got != want {
			t.Errorf("the Deployment of the release has the note %q, want %q", got, want)
		}
	}
	ok("install", "web", chart, "--wait")
	noted("first")
	ok("upgrade", "web", chart, "--wait", "--set", "note=second")
	noted("second")
	ok("rollback", "web", "1", "--wait")
	noted("first")
	says(t, ok("list"), "web", "deployed", "web-1.0.0")
	says(t, ok("get", "manifest", "web"), "apiVersion: apps/v1")
	ok("uninstall", "web", "--wait")
	if err := g.admin[pair.Legacy].Call(t.Context(), http.MethodGet, stored+"/web", nil, nil); rig.Code(err) !=
		http.StatusNotFound {
		t.Errorf("the Deployment of the release that was removed: %v", err)
	}
}

// manages: a manager of controller-runtime leads by a Lease, and its controller has a ConfigMap for each Deployment of
// either side, and a note on the Deployment itself.
func (g *gatewayed) manages(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", g.kubeconfig)
	must(t, err)
	failures := &lastError{}
	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"},
		Logger: logr.New(failures), LeaderElection: true, LeaderElectionID: "notes.example.test",
		LeaderElectionNamespace: "default", LeaderElectionReleaseOnCancel: true,
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)}})
	must(t, err)
	c := manager.GetClient()
	must(t, ctrl.NewControllerManagedBy(manager).For(&appsv1.Deployment{}).Owns(&corev1.ConfigMap{}).Complete(
		reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			var d appsv1.Deployment
			if err := c.Get(ctx, request.NamespacedName, &d); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			if d.Annotations["example.test/managed"] == "" {
				before := d.DeepCopy()
				metav1.SetMetaDataAnnotation(&d.ObjectMeta, "example.test/managed", "yes")
				return reconcile.Result{}, c.Patch(ctx, &d, client.MergeFrom(before))
			}
			made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name}}
			_, err := controllerutil.CreateOrUpdate(ctx, c, made, func() error {
				made.Data = map[string]string{"side": d.Annotations["kubefusion.dev/side"]}
				return controllerutil.SetControllerReference(&d, made, manager.GetScheme())
			})
			return reconcile.Result{}, err
		})))
	runManager(t, manager)
	g.Eventually("it leads", func(ctx context.Context) error {
		var lease struct {
			Spec struct{ HolderIdentity string }
		}
		err := g.ClientOf(g.url, "alice", "developers").Call(ctx, http.MethodGet,
			"/apis/coordination.k8s.io/v1/namespaces/default/leases/notes.example.test", nil, &lease)
		if err == nil && lease.Spec.HolderIdentity == "" {
			err = errors.New("nobody holds the lease")
		}
		return err
	})
	for side, name := range map[pair.Side]string{pair.Legacy: "old", pair.Modern: "new"} {
		g.Eventually("the controller works on the "+string(side)+" side", func(ctx context.Context) error {
			var d appsv1.Deployment
			if err := g.admin[side].Call(ctx, http.MethodGet, deploymentsOf(side)+"/"+name, nil, &d); err != nil {
				return err
			}
			var made corev1.ConfigMap
			if err := g.admin[pair.Legacy].Call(ctx, http.MethodGet, "/api/v1/namespaces/default/configmaps/"+name, nil,
				&made); err != nil {
				return errors.Join(err, failures.get())
			}
			if d.Annotations["example.test/managed"] != "yes" || made.Data["side"] != string(side) ||
				len(made.OwnerReferences) != 1 || made.OwnerReferences[0].UID != d.UID {
				return errors.Join(fmt.Errorf("the Deployment has %v, the ConfigMap %v of %v", d.Annotations, made.Data,
					made.OwnerReferences), failures.get())
			}
			return nil
		})
	}
}

// informs: a shared informer sees objects of both sides come, change and go, through restarts of either side.
func (g *gatewayed) informs(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", g.kubeconfig)
	must(t, err)
	clients, err := kubernetes.NewForConfig(config)
	must(t, err)
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace("default"))
	informer := factory.Apps().V1().Deployments().Informer()
	var mu sync.Mutex
	seen := map[string]string{} // what was last seen of a name
	record := func(what string) func(any) {
		return func(o any) {
			mu.Lock()
			defer mu.Unlock()
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			d := o.(*appsv1.Deployment)
			seen[d.Name] = fmt.Sprintf("%s %s %s", what, d.Annotations["kubefusion.dev/side"], d.Labels["step"])
		}
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: record("has"),
		UpdateFunc: func(_, o any) { record("has")(o) }, DeleteFunc: record("lost")})
	must(t, err)
	stop := make(chan struct{})
	defer factory.Shutdown()
	defer close(stop)
	factory.Start(stop)
	g.Eventually("the informer", func(context.Context) error {
		if !informer.HasSynced() {
			return fmt.Errorf("has not synced")
		}
		return nil
	})
	wants := func(name, want string) {
		t.Helper()
		g.Eventually(name+" in the informer", func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if got := seen[name]; got != want {
				return fmt.Errorf("%q, want %q", got, want)
			}
			return nil
		})
	}
	label := func(side pair.Side, name, step string) {
		t.Helper()
		g.change(g.admin[side], deploymentsOf(side)+"/"+name, func(d object) {
			d["metadata"].(map[string]any)["labels"].(map[string]any)["step"] = step
		})
	}
	wants("old", "has legacy ")
	wants("new", "has modern ")
	label(pair.Legacy, "old", "1")
	label(pair.Modern, "new", "1")
	wants("old", "has legacy 1")
	wants("new", "has modern 1")
	for i, side := range pair.Sides() {
		g.RestartServer(side)
		step := fmt.Sprint(i + 2)
		label(pair.Legacy, "old", step)
		label(pair.Modern, "new", step)
		wants("old", "has legacy "+step)
		wants("new", "has modern "+step)
	}
}

// informsOfMetadata: an informer of metadata alone follows objects of both sides, also of one that does not answer so,
// without a watch that breaks.
func (g *gatewayed) informsOfMetadata(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", g.kubeconfig)
	must(t, err)
	client, err := metadata.NewForConfig(config)
	must(t, err)
	factory := metadatainformer.NewFilteredSharedInformerFactory(client, 0, "default", nil)
	informer := factory.ForResource(appsv1.SchemeGroupVersion.WithResource("deployments")).Informer()
	must(t, informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
		t.Errorf("a watch of metadata: %v", err)
	}))
	stop := make(chan struct{})
	defer factory.Shutdown()
	defer close(stop)
	factory.Start(stop)
	for side, name := range map[pair.Side]string{pair.Legacy: "old", pair.Modern: "new"} {
		for _, step := range []string{"", "1", "2"} {
			if step != "" {
				g.ok("", "label", "--overwrite", "deployment", name, "metadata="+step)
			}
			g.Eventually("the metadata of "+name, func(context.Context) error {
				o, _, err := informer.GetStore().GetByKey("default/" + name)
				if err != nil || o == nil {
					return errors.Join(err, errors.New("is not there"))
				}
				m := o.(*metav1.PartialObjectMetadata)
				if m.Labels["metadata"] != step || m.Annotations["kubefusion.dev/side"] != string(side) {
					return fmt.Errorf("labels %v, annotations %v", m.Labels, m.Annotations)
				}
				return nil
			})
		}
		g.ok("", "label", "deployment", name, "metadata-")
	}
}

// watchesInABrowser: a program in a browser watches Deployments of both sides over a WebSocket.
func (g *gatewayed) watchesInABrowser(t *testing.T) {
	kubeconfig, err := clientcmd.BuildConfigFromFlags("", g.kubeconfig)
	must(t, err)
	config, err := websocket.NewConfig("wss"+strings.TrimPrefix(g.url, "https")+deployments+"?watch=1", g.url)
	must(t, err)
	config.TlsConfig, err = rest.TLSConfigFor(kubeconfig)
	must(t, err)
	config.Protocol = []string{"base64.binary.k8s.io"}
	connection, err := config.DialContext(t.Context())
	must(t, err)
	defer connection.Close()
	must(t, connection.SetDeadline(time.Now().Add(time.Minute)))
	for seen := map[string]bool{}; !seen["old legacy"] || !seen["new modern"]; {
		var e struct{ Object metav1.PartialObjectMetadata }
		if err := websocket.JSON.Receive(connection, &e); err != nil {
			t.Fatalf("%v, after %v", err, seen)
		}
		seen[e.Object.Name+" "+e.Object.Annotations["kubefusion.dev/side"]] = true
	}
}

// furtherCluster: the legacy API server as a cluster of its own, by impersonation: its objects alone, in versions that
// it does not serve, by the rights that it gives. withCronJobs: it serves them, in batch/v1beta1.
func (g *gatewayed) furtherCluster(t *testing.T, withCronJobs bool) {
	const prefix = "/clusters/edge"
	edge := "--server=" + g.url + prefix
	g.awaitCluster(t, prefix)
	if out := g.ok("", "get", "deployments.apps", "-o", "name", edge); strings.TrimSpace(out) != "deployment.apps/old" {
		t.Errorf("the Deployments of the further cluster are %q, want old alone", out)
	}
	// Before 1.10 there is no description of the API against which kubectl of today validates.
	g.ok(deploymentYAML("far", 0), "apply", "--validate=false", edge, "-f", "-")
	g.ok("", "scale", "deployment", "far", "--replicas=1", edge)
	g.ok("", "wait", "deployment", "far", "--for=jsonpath={.spec.replicas}=1", "--timeout=60s", edge)
	var far appsv1.Deployment
	must(t, g.admin[pair.Legacy].Call(t.Context(), http.MethodGet,
		"/apis/extensions/v1beta1/namespaces/default/deployments/far", nil, &far))
	if *far.Spec.Replicas != 1 {
		t.Errorf("far has %d replicas, want 1", *far.Spec.Replicas)
	}
	g.ok("", "delete", "deployment", "far", edge)

	program, err := fusionctl()
	must(t, err)
	routes, err := exec.CommandContext(t.Context(), program, "gateway", "routes", g.SpecFile, "--cluster", "edge",
		"--cluster-kubeconfig", g.edge).CombinedOutput()
	must(t, err)
	says(t, string(routes), "deployments.apps", "converted", "edge")

	client := g.ClientOf(g.url, "alice", "developers")
	if withCronJobs {
		const cronJobs = "/apis/batch/v1/namespaces/default/cronjobs" // batch/v1beta1 there
		must(t, client.Call(t.Context(), http.MethodPost, prefix+cronJobs, object{"apiVersion": "batch/v1",
			"kind": "CronJob", "metadata": object{"name": "far"}, "spec": object{"schedule": "0 0 1 1 *",
				"jobTemplate": object{"spec": object{"template": object{"spec": object{"restartPolicy": "Never",
					"containers": []object{{"name": "c", "image": "example.test/c"}}}}}}}}, nil))
		var stored object
		must(t, g.admin[pair.Legacy].Call(t.Context(), http.MethodGet,
			"/apis/batch/v1beta1/namespaces/default/cronjobs/far", nil, &stored))
		must(t, client.Call(t.Context(), http.MethodDelete, prefix+cronJobs+"/far", nil, nil))
	}
	for who, c := range map[string]*rig.Client{
		"a user without rights":                  g.ClientOf(g.url, "mallory"),
		"a user of a group it may not speak for": g.ClientOf(g.url, "root", "administrators"),
		"an administrator of the pair":           g.ClientOf(g.url, "admin", "system:masters"),
		"a component of the pair":                g.ClientOf(g.url, "system:kube-scheduler"),
	} {
		err := c.Call(t.Context(), http.MethodGet, prefix+"/api/v1/namespaces/default/secrets", nil, nil)
		if rig.Code(err) != http.StatusForbidden {
			t.Errorf("%s at the further cluster: %v, want 403", who, err)
		}
	}
}

func (g *gatewayed) awaitCluster(t *testing.T, prefix string) {
	client := g.ClientOf(g.url, "alice", "developers")
	g.Eventually("the further cluster answers", func(ctx context.Context) error {
		return client.Call(ctx, http.MethodGet, prefix+"/version", nil, nil)
	})
}
