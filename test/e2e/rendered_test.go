//go:build e2e && linux

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

// machine is the address of the first node of a sandbox, and host its name.
const (
	machine = "10.88.0.11"
	host    = "cp-1"
)

// renderedSpec is a control plane of which nothing runs yet: both sides and both stores are of the plan. Its paths and
// ports are those that people have.
const renderedSpec = `apiVersion: kubefusion.dev/v1alpha1
kind: FusedControlPlane
metadata: {name: rendered}
spec:
  layout: split
  hosts: [{name: cp-1, address: 10.88.0.11}]
  kubelet: {version: LEGACY}
  network: {serviceCIDRs: [10.96.0.0/16], modernServiceCIDRs: [10.97.0.0/16], podCIDR: 10.244.0.0/16}
  pki: {directory: /etc/kubernetes/pki}
  stores:
  - name: core
    endpoints: ["https://10.88.0.11:2379"]
    tls: {ca: /etc/kubernetes/pki/etcd/ca.crt, cert: /etc/kubernetes/pki/apiserver-etcd-client.crt, key: /etc/kubernetes/pki/apiserver-etcd-client.key}
    managed: {version: 3.6.8, dataDir: /var/lib/etcd}
  - name: modern
    endpoints: ["https://10.88.0.11:2479"]
    tls: {ca: /etc/kubernetes/pki/etcd/ca.crt, cert: /etc/kubernetes/pki/apiserver-etcd-client.crt, key: /etc/kubernetes/pki/apiserver-etcd-client.key}
    managed: {version: 3.6.8, dataDir: /var/lib/etcd-modern}
  legacy: {version: LEGACY, store: core, apiServer: {port: 6443}, controllerManager: {}, scheduler: {}}
  modern: {version: 1.36.3, store: modern, apiServer: {port: 7443}, controllerManager: {}}
  controllers: {extraArgs: [{name: qps, value: "400"}]}
  gateway: {}
  pods: {unknownFields: warn}
`

// TestRenderedTreeRuns: what render and pki write is copied to a machine as it stands, and everything runs: as static
// pods of a kubelet, and as units of systemd.
func TestRenderedTreeRuns(t *testing.T) {
	t.Parallel()
	for _, of := range []struct{ target, legacy string }{
		{"static-pod", "1.15.12"}, {"systemd", "1.15.12"}, {"static-pod", "1.10.13"},
	} {
		t.Run(of.target+" "+of.legacy, func(t *testing.T) {
			t.Parallel()
			onNodes(t, func(t *testing.T) {
				f := startRendered(t, of.target, of.legacy)
				f.deploys()
				f.throughGateway()
				f.propagation()
				f.endsNamespace()
				provedOnNodes(t, of.legacy, "1.36.3",
					"the rendered tree runs as it stands ("+of.target+
						"): etcd, both API servers, managers, scheduler and "+
						"fusionctl-controllers; pods of both sides run, deletion with each propagation policy leaves "+
						"what it should, and a namespace ends on both sides",
					"the rendered gateway ("+of.target+") serves one list of the Deployments of both sides, and "+
						"logs, exec, attach and port-forward of kubectl 1.15 and 1.36 work there for pods of both")
			}, fusionctlEnv, reconcilerEnv)
		})
	}
}

// startRendered renders the spec, copies the files to a machine and waits for what they start.
func startRendered(t *testing.T, target, legacy string) *nodesPair {
	t.Helper()
	f := &nodesPair{Rig: rig.New(t), t: t, program: sandboxed(t, fusionctlEnv)}
	f.plan(strings.ReplaceAll(renderedSpec, "LEGACY", legacy) + nodesAccess)
	work := f.Dir()
	f.fusionctl("pki", f.SpecFile, "--ca-cert", f.PKI.File("ca.crt"), "--ca-key", f.PKI.File("ca.key"), "--out",
		filepath.Join(work, "certificates"))
	f.fusionctl("render", f.SpecFile, "--out", filepath.Join(work, "tree"), "--target", target)
	start := f.StartNode
	if target == "systemd" {
		start = f.StartMachine
	}
	n := start(host, f.PlanImages(f.Plan)...)
	f.nodes = []*rig.Node{n}
	for name, file := range map[string]string{"ca.crt": f.PKI.File("ca.crt"), "ca.key": f.PKI.File("ca.key")} {
		f.install(file, "/etc/kubernetes/pki/"+name, "0600")
	}
	f.install(f.program, "/usr/local/bin/fusionctl", "0755")
	must(t, n.CopyTree(filepath.Join(work, "certificates", host)))
	must(t, n.CopyTree(filepath.Join(work, "tree", host)))
	if target == "systemd" {
		f.startUnits()
	}
	f.connect()
	f.kubectlMust(pair.Legacy, "apply", "-f", filepath.Join(work, "tree", "legacy-access.yaml"))
	for i := range f.Plan.Components {
		f.awaitHealthy(&f.Plan.Components[i])
	}
	if target == "static-pod" {
		f.mirrored()
	}
	f.useDemo()
	return f
}

// plan plans a spec, which it writes to a file.
func (f *nodesPair) plan(text string) {
	f.t.Helper()
	file := filepath.Join(f.Dir(), "spec.yaml")
	must(f.t, os.WriteFile(file, []byte(text), 0o644))
	loaded, err := spec.Load(file, []byte(text))
	must(f.t, err)
	planned, err := plan.New(loaded, plan.OnHosts)
	must(f.t, err)
	f.Pair = &rig.Pair{Plan: planned, SpecFile: file}
}

// sandboxed is a program that was built before the sandbox.
func sandboxed(t *testing.T, name string) string {
	t.Helper()
	program := os.Getenv(name)
	if program == "" {
		t.Fatalf("%s is not set", name)
	}
	return program
}

// fusionctl runs the program to its end.
func (f *nodesPair) fusionctl(args ...string) string {
	f.t.Helper()
	out, err := exec.CommandContext(f.t.Context(), f.program, args...).CombinedOutput()
	if err != nil {
		f.t.Fatalf("fusionctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// install puts a file of the test on the machine.
func (f *nodesPair) install(file, to, mode string) {
	f.t.Helper()
	f.installOn(f.nodes[0], file, to, mode)
}

// installOn puts a file of the test on one of several machines.
func (f *nodesPair) installOn(n *rig.Node, file, to, mode string) {
	f.t.Helper()
	if out, err := n.Run(f.t.Context(), "install", "-D", "-m", mode, file, to); err != nil {
		f.t.Fatalf("installing %s on %s: %v\n%s", to, n.Name, err, out)
	}
}

// startUnits puts programs where the units look for them, and starts the units.
func (f *nodesPair) startUnits() {
	f.t.Helper()
	var units []string
	for i := range f.Plan.Components {
		c := &f.Plan.Components[i]
		unit := c.Name + ".service"
		units = append(units, unit)
		out, err := f.nodes[0].Run(f.t.Context(), "sed", "-n", `s/^ExecStart=\([^ ]*\).*/\1/p`,
			"/etc/systemd/system/"+unit)
		must(f.t, err)
		if plan.SeesBoth(c.Kind) {
			continue
		}
		program, err := f.ProgramOf(c)
		must(f.t, err)
		f.install(program, strings.TrimSpace(out), "0755")
	}
	f.run("systemctl", "daemon-reload")
	f.run(append([]string{"systemctl", "enable", "--now", "--no-block"}, units...)...)
}

// run runs a command on the machine.
func (f *nodesPair) run(words ...string) string {
	f.t.Helper()
	return f.runOn(f.nodes[0], words...)
}

// runOn runs a command on one of several machines.
func (f *nodesPair) runOn(n *rig.Node, words ...string) string {
	f.t.Helper()
	out, err := n.Run(f.t.Context(), words...)
	if err != nil {
		f.t.Fatalf("on %s: %s: %v\n%s", n.Name, strings.Join(words, " "), err, out)
	}
	return out
}

// addresses of the machines, sorted.
func (f *nodesPair) addresses() (list []string) {
	for _, n := range f.nodes {
		list = append(list, n.Address)
	}
	slices.Sort(list)
	return list
}

// connect starts the machine's kubelet and service proxy, and clients of both servers.
func (f *nodesPair) connect() {
	f.t.Helper()
	f.Legacy = f.ServerAt("kube-apiserver", fmt.Sprintf("https://%s:%d", machine, f.Plan.Legacy.Port),
		f.Plan.Legacy.Version.Minor)
	f.Modern = f.ServerAt("kube-apiserver-modern", fmt.Sprintf("https://%s:%d", machine, f.Plan.Modern.Port),
		f.Plan.Modern.Version.Minor)
	f.admin, f.user = f.Legacy.Client("admin", "system:masters"), f.Modern.Client("alice", "developers")
	f.writeKubeconfigs()
	for _, n := range f.nodes {
		n.StartKubelet(f.Plan.Kubelet.Minor, f.Legacy)
	}
	f.logsOnFailure()
	f.Legacy.WaitReady()
	for _, n := range f.nodes {
		n.WaitReady(f.Legacy)
		n.StartProxy(f.Plan.Kubelet.Minor, f.Legacy)
	}
}

// logsOnFailure shows what the components wrote on the machine.
func (f *nodesPair) logsOnFailure() {
	f.t.Cleanup(func() {
		if !f.t.Failed() {
			return
		}
		for _, n := range f.nodes {
			out, err := n.Run(context.WithoutCancel(f.t.Context()), "sh", "-c",
				`ctr -n k8s.io containers ls | tail -n +2; systemctl --no-pager --state=failed 2>/dev/null
				for f in $(ls -rt /var/log/pods/kube-system_*/*/*.log /var/log/kube-*.log /var/log/etcd*.log 2>/dev/null |
					tail -n 24); do echo "== $f"; tail -n 5 "$f" | cut -c1-250; done`)
			f.t.Logf("on %s: %v\n%s", n.Name, err, out)
		}
	})
}

// awaitHealthy waits until a component says that it is well, as its probe asks it.
func (f *nodesPair) awaitHealthy(c *plan.Component) {
	f.t.Helper()
	q := c.Liveness
	if q == nil || q.Path == "" {
		return
	}
	url := fmt.Sprintf("%s://%s:%d%s", strings.ToLower(q.Scheme), q.Host, q.Port, q.Path)
	start := time.Now()
	f.Eventually(c.Name+" is healthy", func(ctx context.Context) error {
		out, err := f.nodes[0].Run(ctx, "curl", "-skf", "--max-time", "5", url)
		if err != nil {
			return fmt.Errorf("%s: %w: %s", url, err, out)
		}
		return nil
	})
	f.t.Logf("%s is healthy after %s", c.Name, time.Since(start).Round(10*time.Millisecond))
}

// mirrored: the legacy server shows every component as a pod that runs.
func (f *nodesPair) mirrored() {
	f.t.Helper()
	f.Eventually("every component is a pod that runs", func(ctx context.Context) error {
		for i := range f.Plan.Components {
			name := f.Plan.Components[i].Name + "-" + host
			var pod seenOnNode
			if err := f.admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/kube-system/pods/"+name, nil,
				&pod); err != nil {
				return err
			}
			if !pod.ready() {
				return fmt.Errorf("pod %s: %+v", name, pod.Status)
			}
		}
		return nil
	})
}

// kubectlMust runs a command that has to succeed.
func (f *nodesPair) kubectlMust(side pair.Side, args ...string) string {
	f.t.Helper()
	out, err := f.kubectl(f.t.Context(), side, "", args...)
	must(f.t, err)
	return out
}

// deploys: Deployments of both sides run and answer.
func (f *nodesPair) deploys() {
	f.t.Helper()
	for _, side := range pair.Sides() {
		f.deploy(side, "deployment-"+string(side), 2, serves())
	}
	for _, side := range pair.Sides() {
		f.awaitReady("deployment-"+string(side), 2)
	}
}

// throughGateway: the rendered gateway knows a client by its certificate, has the Deployments of both sides in one
// list, and leads to the pods of both; one whom neither side allows anything is refused.
func (f *nodesPair) throughGateway() {
	f.t.Helper()
	url := f.Plan.Gateway.Component.Server
	admin, stranger := f.ClientOf(url, "admin", "system:masters"), f.ClientOf(url, "mallory")
	const path = "/apis/apps/v1/namespaces/demo/deployments"
	f.Eventually("the gateway lists the Deployments of both sides", func(ctx context.Context) error {
		var list metav1.PartialObjectMetadataList
		if err := admin.Call(ctx, http.MethodGet, path, nil, &list); err != nil {
			return err
		}
		for _, side := range pair.Sides() {
			if !slices.ContainsFunc(list.Items, func(d metav1.PartialObjectMetadata) bool {
				return d.Name == "deployment-"+string(side) && d.Annotations["kubefusion.dev/side"] == string(side)
			}) {
				return fmt.Errorf("the Deployment of the %s side is not among %d", side, len(list.Items))
			}
		}
		return nil
	})
	if err := stranger.Call(f.t.Context(), http.MethodGet, path, nil, nil); rig.Code(err) != http.StatusForbidden {
		f.t.Errorf("a user without permissions at the gateway: %v, want 403", err)
	}
	kubeconfig, err := f.PKI.Kubeconfig("kubectl-gateway", url, "admin", "system:masters")
	must(f.t, err)
	for _, release := range kubectls {
		d := door{f, "the gateway, by kubectl " + release.String(), kubeconfig, release}
		for _, of := range pair.Sides() {
			pod := f.awaitReady("deployment-"+string(of), 2)[0]
			for what, stream := range streams {
				if err := stream(d, pod.Metadata.Name); err != nil {
					f.t.Errorf("%s through %s, a pod of the %s side: %v", what, d.name, of, err)
				}
			}
		}
	}
}

// propagation: a deleted Deployment of either side takes its pods with it, in the background and in the foreground, and
// leaves them when they are to be orphans.
func (f *nodesPair) propagation() {
	f.t.Helper()
	for _, policy := range []string{"Background", "Foreground", "Orphan"} {
		for _, side := range pair.Sides() {
			name := strings.ToLower(policy) + "-" + string(side)
			f.deploy(side, name, 1, runs("pause"))
			pods := f.awaitReady(name, 1)
			must(f.t, f.client(side).Call(f.t.Context(), http.MethodDelete, f.path(side, "deployments")+"/"+name,
				object{"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}, nil))
			f.Eventually("Deployment "+name+" is gone", func(ctx context.Context) error {
				err := f.client(side).Call(ctx, http.MethodGet, f.path(side, "deployments")+"/"+name, nil, nil)
				if rig.Code(err) != http.StatusNotFound {
					return fmt.Errorf("it is still there: %v", err)
				}
				return nil
			})
			if policy == "Orphan" {
				f.Throughout(5*time.Second, "the orphans of "+name, func(ctx context.Context) error {
					left, err := f.pods(ctx, name)
					if err == nil && (len(left) != 1 || left[0].Metadata.UID != pods[0].Metadata.UID) {
						err = fmt.Errorf("the pods are %+v, want %s", left, pods[0].Metadata.UID)
					}
					return err
				})
				continue
			}
			f.Eventually("the pods of "+name+" are gone", func(ctx context.Context) error {
				left, err := f.pods(ctx, name)
				if err == nil && len(left) > 0 {
					err = fmt.Errorf("there is %s", left[0].Metadata.Name)
				}
				return err
			})
		}
	}
}

// endsNamespace: a deleted namespace with objects of both sides is gone from both, with its pods.
func (f *nodesPair) endsNamespace() {
	f.t.Helper()
	must(f.t, f.admin.Call(f.t.Context(), http.MethodDelete, "/api/v1/namespaces/demo", nil, nil))
	start := time.Now()
	f.Eventually("the namespace is gone", func(ctx context.Context) error {
		var namespace object
		err := f.admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/demo", nil, &namespace)
		if rig.Code(err) != http.StatusNotFound {
			return fmt.Errorf("it is still there: %v, %v", err, namespace)
		}
		return nil
	})
	f.t.Logf("the namespace is gone after %s", time.Since(start).Round(10*time.Millisecond))
	for _, side := range pair.Sides() {
		var list struct{ Items []object }
		err := f.client(side).Call(f.t.Context(), http.MethodGet, f.path(side, "deployments"), nil, &list)
		if err != nil || len(list.Items) > 0 {
			f.t.Errorf("Deployments of the %s side afterwards: %v, %v", side, list.Items, err)
		}
	}
	if pods, err := f.pods(f.t.Context(), ""); err != nil || len(pods) > 0 {
		f.t.Errorf("pods afterwards: %v, %v", pods, err)
	}
}
