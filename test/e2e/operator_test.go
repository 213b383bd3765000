//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/test/rig"
)

// management is a cluster in which the operator runs: its API server, which authorizes as those of kubeadm do.
type management struct {
	*rig.Rig
	t          *testing.T
	server     *rig.APIServer
	kubeconfig string // of a cluster administrator
}

func startManagement(t *testing.T) *management { return managementOf(t, rig.New(t)) }

// managementOf starts one in a rig that has other servers, too.
func managementOf(t *testing.T, r *rig.Rig) *management {
	t.Helper()
	const newest = kubever.Suggested
	args := append(r.APIServerArgs(newest, r.StartEtcd("management")), "--authorization-mode=Node,RBAC")
	m := &management{Rig: r, t: t, server: r.StartAPIServer("management", newest, args)}
	m.server.WaitReady()
	var err error
	m.kubeconfig, err = r.PKI.Kubeconfig("administrator", m.server.URL, "administrator", "system:masters")
	must(t, err)
	return m
}

// kubectl runs kubectl 1.36 as the administrator.
func (m *management) kubectl(input string, args ...string) (string, error) {
	m.t.Helper()
	binary, err := rig.Binary("kubectl", kubever.Suggested)
	must(m.t, err)
	ctx, cancel := context.WithTimeout(m.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append([]string{"--kubeconfig", m.kubeconfig, "--cache-dir",
		m.Dir() + "/kubectl-cache"}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w\n%s%s", strings.Join(args, " "), err, out, &errs)
	}
	return string(out), err
}

func (m *management) ok(input string, args ...string) string {
	m.t.Helper()
	out, err := m.kubectl(input, args...)
	if err != nil {
		m.t.Fatal(err)
	}
	return out
}

// install applies what fusionctl operator manifests prints.
func (m *management) install() {
	m.t.Helper()
	m.ok(runFusionctl(m.t, 0, "operator", "manifests"), "apply", "--server-side", "-f", "-")
	m.ok("", "wait", "--for=condition=Established", "crd/fusedcontrolplanes.kubefusion.dev", "--timeout=2m")
}

// TestOperatorDefinition: the API server of today takes the definition and every example as an object, says of a field
// what the spec's documentation says, and refuses what is wrong with one object by itself.
func TestOperatorDefinition(t *testing.T) {
	t.Parallel()
	m := startManagement(t)
	m.install()
	if out := m.ok("", "get", "crd", "fusedcontrolplanes.kubefusion.dev", "-o",
		`jsonpath={.status.conditions[?(@.type=="NonStructuralSchema")].message}`); out != "" {
		t.Errorf("the schema is not structural: %s", out)
	}
	examples, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatal(err)
	}
	for _, file := range examples {
		m.ok("", "apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", file)
	}
	if out := m.ok("", "get", "fcp"); !strings.Contains(out, "1.15.12") || !strings.Contains(out, "1.36.3") {
		t.Errorf("kubectl get fcp:\n%s", out)
	}
	if out := m.ok("", "explain", "fcp.spec.stores.managed"); !strings.Contains(out, "peerPort") ||
		!strings.Contains(out, "default: the client port + 1") {
		t.Errorf("kubectl explain:\n%s", out)
	}
	good, err := os.ReadFile("../../examples/split-1.15-1.36.yaml")
	must(t, err)
	for _, wrong := range []struct{ was, is, says string }{
		{"layout: split", "layout: splitt", `supported values: "shared", "split"`},
		{"layout: split", "layuot: split", ".spec.layuot: field not declared in schema"},
		{"version: 1.36.3", "version: 1.99.3", "spec.modern.version in body should match"},
		{"version: 1.36.3", "version: 1.6.3", "modern.version is older than legacy.version"},
		{"version: 1.36.3", "version: 1.36.3\n    existing: true", "only the legacy side may be existing"},
		{"    store: modern\n", "    store: nowhere\n", "modern.store: want one of stores"},
		{"kind: Group", "kind: Crowd", `supported values: "User", "Group", "ServiceAccount"`},
	} {
		text := strings.Replace(string(good), wrong.was, wrong.is, 1)
		if text == string(good) {
			t.Fatalf("the example has no %q", wrong.was)
		}
		if _, err := m.kubectl(text, "apply", "--server-side", "--validate=strict", "-f", "-"); err == nil ||
			!strings.Contains(err.Error(), wrong.says) {
			t.Errorf("%q for %q: %v, want %q", wrong.is, wrong.was, err, wrong.says)
		}
	}
}

// operator is a run of fusionctl operator, as the account of its manifests.
type operator struct {
	*management
	command *command
	args    []string
}

func (m *management) startOperator(more ...string) *operator {
	m.t.Helper()
	kubeconfig, err := m.PKI.Kubeconfig("operator", m.server.URL,
		"system:serviceaccount:kubefusion-system:fusionctl-operator", "system:serviceaccounts", "system:authenticated")
	must(m.t, err)
	o := &operator{management: m, args: append([]string{"operator", "--kubeconfig", kubeconfig, "--health-listen", "",
		"--metrics-listen", fmt.Sprintf("127.0.0.1:%d", m.Port())}, more...)}
	o.start()
	m.t.Cleanup(func() {
		o.kill()
		if m.t.Failed() {
			m.t.Logf("the operator:\n%s", o.command.err.String())
		}
	})
	return o
}

func (o *operator) start(more ...string) {
	o.t.Helper()
	o.command = newCommand(context.Background(), append(slices.Clone(o.args), more...)...)
	must(o.t, o.command.Start())
}

func (o *operator) kill() {
	o.command.Process.Kill() //nolint:errcheck // it may have ended
	o.command.Wait()         //nolint:errcheck // by the kill
}

// kubelets stand in for the managers and the kubelets of the management cluster: they report every pod of a workload as
// ready, as long as none of its images contains the text.
type kubelets struct {
	client.Client
	mu     sync.Mutex
	broken string
}

func (m *management) startKubelets() *kubelets {
	m.t.Helper()
	c, err := client.New(m.server.RESTConfig("administrator", "system:masters"), client.Options{})
	must(m.t, err)
	k := &kubelets{Client: c}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				k.report(ctx)
			}
		}
	}()
	m.t.Cleanup(func() {
		cancel()
		<-done
	})
	return k
}

func (k *kubelets) fail(image string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.broken = image
}

func (k *kubelets) fails(pod corev1.PodTemplateSpec) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.broken != "" && strings.Contains(pod.Spec.Containers[0].Image, k.broken)
}

// report writes the status of every workload; what another has changed meanwhile is reported the next time.
func (k *kubelets) report(ctx context.Context) {
	var deployments appsv1.DeploymentList
	if err := k.List(ctx, &deployments); err != nil {
		return
	}
	for _, d := range deployments.Items {
		ready := *d.Spec.Replicas
		if k.fails(d.Spec.Template) {
			ready = 0
		}
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: *d.Spec.Replicas,
			UpdatedReplicas: *d.Spec.Replicas, ReadyReplicas: ready, AvailableReplicas: ready}
		k.Status().Update(ctx, &d) //nolint:errcheck // the next time
	}
	var sets appsv1.StatefulSetList
	if err := k.List(ctx, &sets); err != nil {
		return
	}
	for _, s := range sets.Items {
		s.Status = appsv1.StatefulSetStatus{ObservedGeneration: s.Generation, Replicas: *s.Spec.Replicas,
			UpdatedReplicas: *s.Spec.Replicas, ReadyReplicas: *s.Spec.Replicas, AvailableReplicas: *s.Spec.Replicas}
		k.Status().Update(ctx, &s) //nolint:errcheck // the next time
	}
}

// awaits waits until a field of the object contains a text.
func (m *management) awaits(name, path, want string) {
	m.t.Helper()
	m.Eventually(fmt.Sprintf("%s of %s being %s", path, name, want), func(context.Context) error {
		out, err := m.kubectl("", "get", "fcp", name, "-o", "jsonpath={"+path+"}")
		if err == nil && !strings.Contains(out, want) {
			whole, _ := m.kubectl("", "get", "fcp", name, "-o", "jsonpath={.status}") //nolint:errcheck // for people
			err = fmt.Errorf("%s is %q: %s", path, out, whole)
		}
		return err
	})
}

// TestOperatorRunsControlPlanes: an object becomes the objects of a control plane; an edit of the modern version
// upgrades it, an impossible one is refused with the reason in the status, a bad one goes back by itself; an operator
// that is killed goes on; nothing that belongs to something else is touched, and deleting the object keeps everything.
func TestOperatorRunsControlPlanes(t *testing.T) {
	t.Parallel()
	m := startManagement(t)
	m.ok(runFusionctl(t, 0, "operator", "manifests", "--image", "registry.example/fusionctl:1"), "apply",
		"--server-side", "-f", "-")
	m.ok("", "wait", "--for=condition=Established", "crd/fusedcontrolplanes.kubefusion.dev", "--timeout=2m")
	kubelets := m.startKubelets()
	o := m.startOperator()

	m.ok("", "apply", "--server-side", "-f", "../../examples/hosted-1.15-1.36.yaml")
	m.awaits("hosted", ".status.phase", "Running")
	m.awaits("hosted", ".status.conditions[?(@.type=='Ready')].status", "True")
	out := m.ok("", "-n", "hosted", "get", "statefulsets,deployments,services,configmaps,secrets", "-o", "name")
	for _, want := range []string{"statefulset.apps/etcd-core", "statefulset.apps/etcd-modern",
		"deployment.apps/kube-apiserver-modern", "deployment.apps/kube-controller-manager-modern",
		"service/kube-apiserver-modern", "secret/fusionctl-pki", "secret/fusionctl-record",
		"secret/kube-apiserver-modern-files"} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("the control plane has no %s:\n%s", want, out)
		}
	}

	// Stores that the operator can read from here: what a minor upgrade needs.
	core, modern := m.StartEtcd("core"), m.StartEtcd("modern")
	plane := func(version, more string) string {
		return fmt.Sprintf(`{apiVersion: kubefusion.dev/v1alpha1, kind: FusedControlPlane, metadata: {name: plane},
  spec: {hosts: [{name: r-1, address: 10.0.0.11}], kubelet: {version: 1.15.12},
    network: {serviceCIDRs: [10.96.0.0/16], modernServiceCIDRs: [10.97.0.0/16]},
    stores: [{name: core, endpoints: [%q], tls: {ca: /pki/etcd-ca.crt, cert: /pki/etcd.crt, key: /pki/etcd.key}},
      {name: modern, endpoints: [%q]}],
    legacy: {version: 1.15.12, apiServer: {}, controllerManager: {}},
    modern: {version: %s, apiServer: {}, controllerManager: {}},
    access: [{subjects: [{kind: Group, name: developers}], apiGroups: [""], resources: [configmaps]}]%s}}`,
			core.URL, modern.URL, version, more)
	}
	image := func(deployment string) string {
		return m.ok("", "-n", "plane", "get", "deployment", deployment, "-o",
			"jsonpath={.spec.template.spec.containers[0].image}")
	}
	apply := func(text string) { m.ok(text, "apply", "--server-side", "--force-conflicts", "-f", "-") }
	apply(plane("1.35.4", ""))
	m.awaits("plane", ".status.conditions[?(@.type=='Degraded')].message", "pki__etcd-ca.crt")
	files := []string{"-n", "plane", "create", "secret", "generic", "fusionctl-pki"}
	for _, flag := range core.Flags() {
		name, file, _ := strings.Cut(flag, "=")
		if key := map[string]string{"--etcd-cafile": "pki__etcd-ca.crt", "--etcd-certfile": "pki__etcd.crt",
			"--etcd-keyfile": "pki__etcd.key"}[name]; key != "" {
			files = append(files, "--from-file="+key+"="+file)
		}
	}
	m.ok("", files...)
	m.awaits("plane", ".status.phase", "Running")
	o.kill()
	o.start()
	apply(plane("1.36.3", ""))
	m.awaits("plane", ".status.history[0].to", "modern 1.36.3")
	if got := image("kube-apiserver-modern"); !strings.HasSuffix(got, ":v1.36.3") {
		t.Errorf("after the upgrade the modern API server runs %s", got)
	}

	// An impossible edit.
	m.ok("", "patch", "fcp", "plane", "--type=merge", "-p", `{"spec":{"legacy":{"version":"1.16.15"}}}`)
	m.awaits("plane", ".status.phase", "Refused")
	m.awaits("plane", ".status.conditions[?(@.type=='Progressing')].message", "the minor of a hosted legacy side stays")
	if got := image("kube-apiserver"); !strings.HasSuffix(got, ":v1.15.12") {
		t.Errorf("after an impossible edit the legacy API server runs %s", got)
	}
	apply(plane("1.36.3", ""))
	m.awaits("plane", ".status.phase", "Running")

	// One that does not start; the operator is killed on the way.
	kubelets.fail("broken")
	bad := `{"spec":{"modern":{"image":"registry.example/broken:v1.36.3"}}}`
	m.ok("", "patch", "fcp", "plane", "--type=merge", "-p", bad)
	m.awaits("plane", ".status.phase", "Progressing")
	o.kill()
	o.start("--step-limit", "10s")
	m.awaits("plane", ".status.history[0].error", "pods are ready")
	m.awaits("plane", ".status.phase", "Degraded")
	m.awaits("plane", ".status.conditions[?(@.type=='Degraded')].message", "went back")
	if got := image("kube-apiserver-modern"); !strings.HasSuffix(got, "kube-apiserver:v1.36.3") {
		t.Errorf("after it went back the modern API server runs %s", got)
	}
	kubelets.fail("")
	o.kill()
	o.start()

	// A person approves.
	manual := plane("1.36.4", ", approval: Manual")
	apply(manual)
	m.ok("", "patch", "fcp", "plane", "--type=json", "-p", `[{"op":"remove","path":"/spec/modern/image"}]`)
	m.awaits("plane", ".status.phase", "Waiting")
	digest := m.ok("", "get", "fcp", "plane", "-o", "jsonpath={.status.plan}")
	runs := m.ok("", "get", "fcp", "plane", "-o", "jsonpath={.status.runs}")
	m.ok("", "annotate", "fcp", "plane", "kubefusion.dev/approve="+digest+".from-"+runs)
	m.awaits("plane", ".status.runs", digest)

	// A namespace of something else.
	m.ok("", "create", "namespace", "taken")
	apply(strings.Replace(plane("1.36.3", ""), "name: plane}", "name: taken}", 1))
	m.awaits("taken", ".status.conditions[?(@.type=='Degraded')].message", "does not belong to this control plane")
	if out := m.ok("", "-n", "taken", "get", "all,secrets", "-o", "name"); out != "" {
		t.Errorf("in a namespace of something else there is %s", out)
	}

	m.ok("", "delete", "fcp", "plane", "--timeout=2m")
	if got := image("kube-apiserver-modern"); !strings.HasSuffix(got, ":v1.36.4") {
		t.Errorf("after the object was deleted the modern API server runs %s", got)
	}
}
