//go:build e2e && linux

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

const (
	hostedExample = "../../examples/hosted-1.15-1.36.yaml"
	operatorImage = "registry.example/fusionctl:1"
	// nextPatch is a release that the tests have no programs of: its images have those of the suggested minor.
	nextPatch = "1.36.4"
	// noSuchPatch is one whose API server ends at its start.
	noSuchPatch = "1.36.9"
	// members is a control plane of three pods of everything, whose modern side skips minors.
	members = `{apiVersion: kubefusion.dev/v1alpha1, kind: FusedControlPlane, metadata: {name: members}, spec: {
  hosts: [{name: r-1, address: 10.0.0.11}, {name: r-2, address: 10.0.0.12}, {name: r-3, address: 10.0.0.13}],
  kubelet: {version: 1.10.13}, network: {serviceCIDRs: [10.96.0.0/16]},
  pki: {directory: /etc/kubernetes/pki}, deletionPolicy: Delete,
  stores: [
    {name: core, endpoints: ["https://10.0.0.11:2379", "https://10.0.0.12:2379", "https://10.0.0.13:2379"],
      tls: {ca: /etc/kubernetes/pki/etcd/ca.crt, cert: /etc/kubernetes/pki/apiserver-etcd-client.crt,
        key: /etc/kubernetes/pki/apiserver-etcd-client.key},
      managed: {version: 3.6.8, dataDir: /var/lib/etcd-core}},
    {name: modern, endpoints: ["https://10.0.0.11:2479", "https://10.0.0.12:2479", "https://10.0.0.13:2479"],
      managed: {version: 3.6.8, dataDir: /var/lib/etcd-modern}}],
  legacy: {version: 1.10.13, apiServer: {}}, modern: {version: 1.15.12, apiServer: {}},
  access: [{subjects: [{kind: Group, name: developers}], apiGroups: [""], resources: [configmaps]}],
  accept: [{rule: FUS227, reason: no controllers run beside it}],
  backup: {schedule: "0 0 1 1 *", image: ` + operatorImage + `, claim: backups}}}`
)

// restoreEnv asks for what takes minutes on a small machine.
const restoreEnv = "FUSIONCTL_RESTORE"

// hostedRig is a management cluster with a node, on which the operator runs as its Helm chart has it.
type hostedRig struct {
	*management
	node  *rig.Node
	admin *rig.Client
	keys  string // file of the Secret with the keys of a control plane, that a person keeps beside its backups
	turn  int    // of hostedDeaths
}

// hostedDeaths are killed in turn, those that run.
var hostedDeaths = []string{"etcd-modern", "operator", "kube-apiserver-modern", "etcd-core", "kube-apiserver"}

func startHosted(t *testing.T) *hostedRig {
	t.Helper()
	r := rig.New(t)
	program := sandboxed(t, fusionctlEnv)
	images := []rig.Image{{Name: operatorImage, Files: map[string]string{"usr/local/bin/fusionctl": program},
		Entrypoint: []string{"/usr/local/bin/fusionctl"}}}
	example, err := os.ReadFile(hostedExample)
	must(t, err)
	for _, text := range []string{string(example), strings.Replace(string(example), "1.36.3", nextPatch, 1), members,
		strings.Replace(members, "1.15.12", nextPatch, 1)} {
		f, err := spec.Load("hosted.yaml", []byte(text))
		must(t, err)
		p, err := plan.New(f, plan.Hosted)
		must(t, err)
		for _, image := range r.PlanImages(p) {
			if !slices.ContainsFunc(images, func(i rig.Image) bool { return i.Name == image.Name }) {
				images = append(images, image)
			}
		}
	}
	other, err := rig.Program("etcdctl")
	must(t, err)
	images = append(images, rig.Image{Name: "registry.k8s.io/kube-apiserver:v" + noSuchPatch,
		Files: map[string]string{"usr/local/bin/kube-apiserver": other}})
	h := &hostedRig{management: managementOf(t, r)}
	h.admin = h.server.Client("administrator", "system:masters")
	const newest = kubever.Suggested
	h.StartControllerManager("management-manager", newest, h.ControllerManagerArgs(newest, h.server)).WaitReady()
	kubeconfig, err := h.PKI.Kubeconfig("management-scheduler", h.server.URL, "system:kube-scheduler")
	must(t, err)
	h.Start("management-scheduler", kubever.Scheduler, newest, []string{"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--leader-elect=false", "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", h.Port())})
	h.StartClusterDNS(h.server)
	h.node = h.StartNode("worker", images...)
	h.node.ConfigureKubelets("crashLoopBackOff: {maxContainerRestartPeriod: 2s}")
	h.node.StartKubelet(newest, h.server, rig.ClusterDNSArgs...)
	h.node.StartProxy(newest, h.server)
	h.node.WaitReady(h.server)
	// Clients outside reach the addresses of services by the node.
	out, err := exec.CommandContext(t.Context(), "ip", "route", "add", rig.ServiceCIDR, "via", h.node.Address).
		CombinedOutput()
	if err != nil {
		t.Fatalf("routing to services: %v: %s", err, out)
	}
	h.volumes(20)
	t.Cleanup(h.explain)
	return h
}

// volumes are directories of the node, one for each claim; what is in them stays when a claim is deleted.
func (h *hostedRig) volumes(count int) {
	h.t.Helper()
	var text strings.Builder
	for n := range count {
		fmt.Fprintf(&text, `---
apiVersion: v1
kind: PersistentVolume
metadata: {name: volume-%[1]d}
spec:
  capacity: {storage: 100Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  local: {path: /var/lib/volumes/%[1]d}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [
    {key: kubernetes.io/hostname, operator: In, values: [%[2]s]}]}]}}
`, n, h.node.Name)
	}
	h.onNode("sh", "-c", fmt.Sprintf("for n in $(seq 0 %d); do mkdir -p /var/lib/volumes/$n; done", count-1))
	h.ok(text.String(), "create", "-f", "-")
}

func (h *hostedRig) onNode(words ...string) string {
	h.t.Helper()
	out, err := h.node.Run(h.t.Context(), words...)
	if err != nil {
		h.t.Fatalf("%s on %s: %v\n%s", strings.Join(words, " "), h.node.Name, err, out)
	}
	return out
}

// explain logs what the cluster has of a test that failed.
func (h *hostedRig) explain() {
	if !h.t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	binary, err := rig.Binary("kubectl", kubever.Suggested)
	if err != nil {
		return
	}
	for _, words := range [][]string{{"get", "fcp", "-o", "yaml"}, {"get", "pods,pvc", "-A", "-o", "wide"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"}} {
		out, err := exec.CommandContext(ctx, binary, append([]string{"--kubeconfig", h.kubeconfig}, words...)...).
			CombinedOutput()
		h.t.Logf("kubectl %s: %v\n%s", strings.Join(words, " "), err, out)
	}
	out, err := h.node.Run(ctx, "sh", "-c", `for f in /var/log/pods/*/*/*.log; do echo "== $f"; tail -n 12 "$f"; done`)
	h.t.Logf("the pods' logs: %v\n%s", err, out)
}

// installChart installs the chart of the operator, of which two pods run.
func (h *hostedRig) installChart() {
	h.t.Helper()
	chart := filepath.Join(h.Dir(), "fusionctl-operator.tgz")
	command := newCommand(h.t.Context(), "operator", "manifests", "--chart")
	must(h.t, command.Run())
	must(h.t, os.WriteFile(chart, command.out.Bytes(), 0o600))
	helm, err := rig.Program("helm")
	must(h.t, err)
	out, err := exec.CommandContext(h.t.Context(), helm, "--kubeconfig", h.kubeconfig, "install", "fusionctl-operator",
		chart, "--namespace", "kubefusion-system", "--create-namespace", "--set", "image="+operatorImage).
		CombinedOutput()
	if err != nil {
		h.t.Fatalf("helm install: %v\n%s", err, out)
	}
	h.ok("", "wait", "--for=condition=Established", "crd/fusedcontrolplanes.kubefusion.dev", "--timeout=2m")
}

// killLeader ends the operator that acts, as a failure of its machine does.
func (h *hostedRig) killLeader() {
	h.t.Helper()
	holder := h.ok("", "--namespace=kubefusion-system", "get", "lease", "fusionctl-operator", "-o",
		"jsonpath={.spec.holderIdentity}")
	pod, _, _ := strings.Cut(holder, "_")
	out := h.onNode("sh", "-c", `for p in $(pgrep -f '^/usr/local/bin/fusionctl operator'); do
	tr '\0' '\n' < /proc/$p/environ | grep -qx "HOSTNAME=$0" && kill -9 $p && echo killed; done; true`, pod)
	if out != "killed\n" {
		h.t.Fatalf("killing the operator %q: %q", holder, out)
	}
}

// killNext kills the operator, or the pods of a component, in turn.
func (h *hostedRig) killNext(plane string) {
	h.t.Helper()
	for range hostedDeaths {
		who := hostedDeaths[h.turn%len(hostedDeaths)]
		h.turn++
		if who == "operator" {
			h.killLeader()
			return
		}
		if h.ok("", "--namespace", plane, "delete", "pod", "-l", "app.kubernetes.io/name="+who, "--grace-period=0",
			"--force", "--wait=false", "--ignore-not-found", "-o", "name") != "" {
			return
		}
	}
}

// killedAt kills the operator when so many steps of a transition are done.
func (h *hostedRig) killedAt(name string, steps int) {
	h.t.Helper()
	h.Eventually(fmt.Sprintf("step %d of %s", steps, name), func(context.Context) error {
		s := h.statusOf(name)
		if s.Transition == nil || s.Transition.Done < steps {
			return fmt.Errorf("%s, %+v: %s; %s", s.Phase, s.Transition, messageOf(&s, api.ConditionProgressing),
				messageOf(&s, api.ConditionDegraded))
		}
		return nil
	})
	h.killLeader()
}

// statusOf reads the status of a control plane; a program for each look would take the processors of all others.
func (h *hostedRig) statusOf(name string) api.Status {
	h.t.Helper()
	return h.objectOf(name).Status
}

func (h *hostedRig) objectOf(name string) (f api.FusedControlPlane) {
	h.t.Helper()
	if err := h.admin.Call(h.t.Context(), http.MethodGet, "/apis/kubefusion.dev/v1alpha1/fusedcontrolplanes/"+name, nil,
		&f); err != nil {
		h.t.Fatal(err)
	}
	return f
}

// awaits waits until a condition of a control plane says something: REASON: MESSAGE.
func (h *hostedRig) awaits(name, condition, says string) {
	h.t.Helper()
	h.Eventually(fmt.Sprintf("%s of %s says %q", condition, name, says), func(context.Context) error {
		s := h.statusOf(name)
		if got := messageOf(&s, condition); !strings.Contains(got, says) {
			return fmt.Errorf("%s, %+v: %q; %s", s.Phase, s.Transition, got, messageOf(&s, api.ConditionDegraded))
		}
		return nil
	})
}

// runs waits until a control plane is what its spec says, and ready.
func (h *hostedRig) runs(name string) api.Status {
	h.t.Helper()
	return h.goesOn(name, func() {})
}

// dies does the same, and kills something at each step.
func (h *hostedRig) dies(name string) api.Status {
	h.t.Helper()
	return h.goesOn(name, func() { h.killNext(name) })
}

func (h *hostedRig) goesOn(name string, atStep func()) (s api.Status) {
	h.t.Helper()
	start, ended := time.Now(), false
	for done := ""; !ended; { // on a busy machine all steps together take long
		h.Eventually(name+" goes on", func(context.Context) error {
			err := h.running(name, &s)
			position := fmt.Sprint(len(s.History))
			if s.Transition != nil {
				position = fmt.Sprintf("%d, %t, %d", len(s.History), s.Transition.Back, s.Transition.Done)
			}
			if ended = err == nil; position != done {
				done = position
				return nil
			}
			return err
		})
		if s.Transition != nil {
			atStep()
		}
	}
	h.t.Logf("%s runs after %s", name, time.Since(start).Round(100*time.Millisecond))
	return s
}

// running is why a control plane is not what its spec says, and ready; nil when it is.
func (h *hostedRig) running(name string, s *api.Status) error {
	h.t.Helper()
	f := h.objectOf(name)
	*s = f.Status
	if s.Phase != api.Running || s.Runs != s.Plan || s.Transition != nil || s.ObservedGeneration != f.Generation ||
		!strings.HasPrefix(messageOf(s, api.ConditionReady), "Ready: ") {
		return fmt.Errorf("%s, %+v: %s; %s", s.Phase, s.Transition, messageOf(s, api.ConditionProgressing),
			messageOf(s, api.ConditionDegraded))
	}
	return nil
}

// certified issues a client certificate of the control plane's own authority, as docs/operator.md has it.
const certified = `mkdir "$OUT" && cd "$OUT"
file() { kubectl -n "$PLANE" get secret fusionctl-pki -o "go-template={{index .data \"$1\" | base64decode}}"; }
file etc__kubernetes__pki__ca.crt > ca.crt
file etc__kubernetes__pki__ca.key > ca.key
openssl req -new -newkey rsa:2048 -nodes -subj "/O=$GROUP/CN=alice" -keyout alice.key -out alice.csr
openssl x509 -req -in alice.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out alice.crt
`

// shell runs commands as a person does, and returns the name of the file or directory that they make.
func (h *hostedRig) shell(plane, script string, env ...string) (out string) {
	t := h.t
	t.Helper()
	dir := t.TempDir()
	kubectl, err := rig.Binary("kubectl", kubever.Suggested)
	must(t, err)
	must(t, os.Symlink(kubectl, filepath.Join(dir, "kubectl")))
	out = filepath.Join(dir, "out")
	command := exec.CommandContext(t.Context(), "bash", "-e", "-o", "pipefail", "-c", script)
	command.Env = append(append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "KUBECONFIG="+h.kubeconfig,
		"HOME="+h.Dir(), "PLANE="+plane, "OUT="+out), env...)
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, text)
	}
	return out
}

// user is a client of one side.
func (h *hostedRig) user(plane string, side pair.Side, group string) *rig.Client {
	t := h.t
	t.Helper()
	dir := h.shell(plane, certified, "GROUP="+group)
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "alice.crt"), filepath.Join(dir, "alice.key"))
	must(t, err)
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	service := map[pair.Side]string{pair.Legacy: "kube-apiserver", pair.Modern: "kube-apiserver-modern"}[side]
	at := h.ok("", "--namespace", plane, "get", "service", service, "-o",
		"jsonpath={.spec.clusterIP}:{.spec.ports[0].port}")
	return h.ClientWith("https://"+at, &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: roots,
		ServerName: plan.ServiceName(plane, service)})
}

// users are those of both sides of a control plane.
func (h *hostedRig) users(plane, developers string) map[pair.Side]*rig.Client {
	h.t.Helper()
	return map[pair.Side]*rig.Client{pair.Legacy: h.user(plane, pair.Legacy, "system:masters"),
		pair.Modern: h.user(plane, pair.Modern, developers)}
}

const defaultMaps = "/api/v1/namespaces/default/configmaps"

// ofSide is the name of what the user of a side creates: both sides may see it.
func ofSide(name string, side pair.Side) string { return name + "-" + string(side) }

// creates has the users of both sides create a config map.
func (h *hostedRig) creates(users map[pair.Side]*rig.Client, name string) {
	h.t.Helper()
	for side, user := range users {
		h.Eventually("creating "+name+" on the "+string(side)+" side", func(ctx context.Context) error {
			err := user.Call(ctx, http.MethodPost, defaultMaps, object{"metadata": object{"name": ofSide(name, side)},
				"data": object{"side": string(side)}}, nil)
			if rig.Code(err) == http.StatusConflict { // an answer was lost
				return nil
			}
			return err
		})
	}
	h.has(users, name)
}

// has looks whether each side has what its user created.
func (h *hostedRig) has(users map[pair.Side]*rig.Client, names ...string) {
	h.t.Helper()
	for side, user := range users {
		for _, name := range names {
			h.Eventually("reading "+name+" on the "+string(side)+" side", func(ctx context.Context) error {
				var read struct{ Data map[string]string }
				err := user.Call(ctx, http.MethodGet, defaultMaps+"/"+ofSide(name, side), nil, &read)
				if rig.Code(err) == http.StatusNotFound {
					h.t.Fatalf("%s of the %s side is lost: %v", name, side, err)
				}
				if err == nil && read.Data["side"] != string(side) {
					h.t.Fatalf("%s of the %s side has %v", name, side, read.Data)
				}
				return err
			})
		}
	}
}

// TestHostedOnRealNodes: in a management cluster with a node, two objects become control planes, one of them with three
// pods of everything. Clients of both sides use them; an edit of the modern version upgrades them, also over minors;
// an impossible one is refused, and one that does not start goes back by itself. Pods and Secrets that are lost come
// back, and members that lost their volumes are reported. At each step of one of them the operator is killed, or a pod.
// On request, a control plane that was deleted comes back from its backup: three servers of everything start once more.
func TestHostedOnRealNodes(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T) {
		h := startHosted(t)
		h.installChart()
		h.ok("", "apply", "--server-side", "-f", hostedExample)
		h.ok(members, "apply", "--server-side", "-f", "-")
		h.dies("hosted")
		h.runs("members")
		one, three := h.users("hosted", "platform:developers"), h.users("members", "developers")
		h.isFused(one)
		h.creates(one, "first")
		h.creates(three, "first")

		h.heals(one)
		h.upgrades(one, three)
		h.refuses(one)
		h.badUpgrade()
		backup := h.backsUp()
		h.creates(three, "later")
		h.wentBack(one)
		h.losesMembers()
		restored := ""
		if os.Getenv(restoreEnv) != "" {
			h.ok("", "patch", "fcp", "hosted", "--type=merge", "-p", `{"spec":{"deletionPolicy":"Delete"}}`)
			h.deletes("hosted") // its servers start again and again without their store
			h.deletes("members")
			h.restores(backup)
			restored = ", and one that was deleted comes back from its backup"
		}
		provedOnNodes(t, "1.15.12", "1.36.3",
			"control planes that are objects of a management cluster run as pods of its nodes, from the example as it "+
				"stands: both sides serve, lost pods and Secrets come back, an edit of the version upgrades, a bad "+
				"one goes back by itself; at each step the operator, a store or an API server is killed"+restored)
	}, fusionctlEnv)
}

// isFused: a namespace of one side is there on the other, and the policy is that of the spec.
func (h *hostedRig) isFused(users map[pair.Side]*rig.Client) {
	t := h.t
	t.Helper()
	must(t, users[pair.Legacy].Call(t.Context(), http.MethodPost, "/api/v1/namespaces",
		object{"metadata": object{"name": "team"}}, nil))
	if err := users[pair.Modern].Call(t.Context(), http.MethodPost, "/api/v1/namespaces/team/serviceaccounts",
		object{"metadata": object{"name": "other"}}, nil); rig.Code(err) != http.StatusForbidden {
		t.Errorf("what the spec does not allow: %v, want 403", err)
	}
	must(t, users[pair.Modern].Call(t.Context(), http.MethodPost, "/apis/apps/v1/namespaces/team/deployments",
		object{"metadata": object{"name": "web"}, "spec": object{"replicas": 1,
			"selector": object{"matchLabels": object{"app": "web"}}, "template": object{
				"metadata": object{"labels": object{"app": "web"}},
				"spec":     object{"containers": []object{{"name": "web", "image": "web"}}}}}}, nil))
	h.Eventually("the controllers of the modern side create the pod of a Deployment, the legacy side has it",
		func(ctx context.Context) error {
			var list struct{ Items []any }
			err := users[pair.Legacy].Call(ctx, http.MethodGet, "/api/v1/namespaces/team/pods", nil, &list)
			if err == nil && len(list.Items) != 1 {
				err = fmt.Errorf("there are %d pods", len(list.Items))
			}
			return err
		})
}

// evict evicts the pods of a component, as a drain does.
func (h *hostedRig) evict(plane, component string) {
	h.t.Helper()
	for pod := range strings.FieldsSeq(h.ok("", "--namespace", plane, "get", "pods", "-l",
		"app.kubernetes.io/name="+component, "-o", "jsonpath={.items[*].metadata.name}")) {
		h.ok(fmt.Sprintf(`{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": %q}}`, pod), "create",
			"--raw", "/api/v1/namespaces/"+plane+"/pods/"+pod+"/eviction", "-f", "-")
	}
}

// heals: a store whose pod is killed has what it had; an API server is evicted while its Secret is gone.
func (h *hostedRig) heals(users map[pair.Side]*rig.Client) {
	h.t.Helper()
	h.ok("", "--namespace=hosted", "delete", "pod", "etcd-modern-0", "--grace-period=0", "--force")
	h.ok("", "--namespace=hosted", "delete", "secret", "kube-apiserver-modern-files")
	h.evict("hosted", "kube-apiserver-modern")
	h.awaits("hosted", api.ConditionDegraded, "NotReady: ")
	h.runs("hosted")
	h.has(users, "first")
	h.creates(users, "healed")
}

// upgrades: an edit of modern.version, of one to another patch release while all its certificates are gone, of the
// other over minors.
func (h *hostedRig) upgrades(one, three map[pair.Side]*rig.Client) {
	h.t.Helper()
	h.ok("", "--namespace=hosted", "delete", "secret", "fusionctl-pki")
	h.ok("", "patch", "fcp", "hosted", "--type=merge", "-p", `{"spec":{"modern":{"version":"`+nextPatch+`"}}}`)
	h.ok("", "patch", "fcp", "members", "--type=merge", "-p", `{"spec":{"modern":{"version":"`+nextPatch+`"}}}`)
	h.killedAt("members", 2)
	for name, users := range map[string]map[pair.Side]*rig.Client{"hosted": one, "members": three} {
		goesOn := map[string]func(string) api.Status{"hosted": h.dies, "members": h.runs}[name]
		if s := goesOn(name); len(s.History) < 2 || s.History[0].Error != "" {
			h.t.Errorf("the history of %s is %+v", name, s.History)
		}
		h.has(users, "first")
		h.creates(users, "upgraded")
	}
	var version struct{ GitVersion string }
	must(h.t, three[pair.Modern].Call(h.t.Context(), http.MethodGet, "/version", nil, &version))
	if !strings.HasPrefix(version.GitVersion, "v1.36.") {
		h.t.Errorf("after the upgrade %s serves", version.GitVersion)
	}
}

// refuses: edits to which no plan and no transition leads change nothing, and the status says why.
func (h *hostedRig) refuses(users map[pair.Side]*rig.Client) {
	t := h.t
	t.Helper()
	for _, edit := range []struct{ was, is, condition, says string }{
		{`{"layout":"split"}`, `{"layout":"shared"}`, api.ConditionSafe, "the plan has errors: FUS"},
		{`{"legacy":{"version":"1.15.12"}}`, `{"legacy":{"version":"1.16.15"}}`, api.ConditionProgressing,
			"the minor of a hosted legacy side stays"},
	} {
		h.ok("", "patch", "fcp", "hosted", "--type=merge", "-p", `{"spec":`+edit.is+`}`)
		h.awaits("hosted", edit.condition, edit.says)
		if s := h.statusOf("hosted"); len(s.Findings) == 0 || s.Phase != api.Refused {
			t.Errorf("after %s there is no finding: %+v", edit.is, s)
		}
		h.has(users, "upgraded")
		h.ok("", "patch", "fcp", "hosted", "--type=merge", "-p", `{"spec":`+edit.was+`}`)
		h.runs("hosted")
	}
}

// stepLimit restarts the operator with another limit of steps.
func (h *hostedRig) stepLimit(limit string) {
	h.t.Helper()
	args := h.ok("", "--namespace=kubefusion-system", "get", "deployment", "fusionctl-operator", "-o",
		"jsonpath={.spec.template.spec.containers[0].args}")
	var words []string
	must(h.t, json.Unmarshal([]byte(args), &words))
	words = slices.DeleteFunc(words, func(w string) bool { return strings.HasPrefix(w, "--step-limit") })
	data, err := json.Marshal(append(words, "--step-limit="+limit))
	must(h.t, err)
	h.ok("", "--namespace=kubefusion-system", "patch", "deployment", "fusionctl-operator", "--type=json", "-p",
		`[{"op":"replace","path":"/spec/template/spec/containers/0/args","value":`+string(data)+`}]`)
	h.ok("", "--namespace=kubefusion-system", "rollout", "status", "deployment/fusionctl-operator", "--timeout=3m")
}

// badUpgrade edits the modern version to one that does not start.
func (h *hostedRig) badUpgrade() {
	h.t.Helper()
	// Requests of pods have all processors of a small node: the standby of the operator makes room.
	h.ok("", "--namespace=kubefusion-system", "scale", "deployment", "fusionctl-operator", "--replicas=1")
	h.stepLimit("30s")
	h.ok("", "patch", "fcp", "hosted", "--type=merge", "-p", `{"spec":{"modern":{"version":"`+noSuchPatch+`"}}}`)
	h.awaits("hosted", api.ConditionProgressing, "Waiting: ")
	for range hostedDeaths { // each of them
		h.killNext("hosted")
	}
}

// wentBack: the bad upgrade has gone back by itself, and says why.
func (h *hostedRig) wentBack(users map[pair.Side]*rig.Client) {
	t := h.t
	t.Helper()
	h.awaits("hosted", api.ConditionDegraded, "WentBack: ")
	h.stepLimit("15m")
	s := h.statusOf("hosted")
	if len(s.History) == 0 || !strings.Contains(s.History[0].Error, "kube-apiserver-modern") ||
		!strings.Contains(s.History[0].Error, "it ended with") {
		t.Errorf("the history does not say why: %+v", s.History)
	}
	t.Logf("it went back: %s", messageOf(&s, api.ConditionDegraded))
	h.has(users, "first", "healed", "upgraded")
	var version struct{ GitVersion string }
	must(t, users[pair.Modern].Call(t.Context(), http.MethodGet, "/version", nil, &version))
	h.ok("", "patch", "fcp", "hosted", "--type=merge", "-p", `{"spec":{"modern":{"version":"`+nextPatch+`"}}}`)
	h.runs("hosted")
}

// backsUp makes a backup now, which is verified, and keeps what a person keeps beside it. It returns its name.
func (h *hostedRig) backsUp() (name string) {
	h.t.Helper()
	h.ok("", "--namespace=members", "create", "job", "--from=cronjob/fusionctl-backup", "now")
	h.ok("", "--namespace=members", "wait", "--for=condition=complete", "job/now", "--timeout=2m")
	h.ok("", "annotate", "--overwrite", "fcp", "members", "kubefusion.dev/look=now") // next look: in an hour
	h.Eventually("the backup of members", func(context.Context) error {
		s := h.statusOf("members")
		if s.Backup == nil || s.Backup.Last == nil || len(s.Backup.Last.Stores) != 2 ||
			!strings.HasPrefix(messageOf(&s, api.ConditionBackedUp), "Verified: ") {
			return fmt.Errorf("%+v: %s", s.Backup, messageOf(&s, api.ConditionBackedUp))
		}
		name = s.Backup.Last.Name
		return nil
	})
	h.keys = h.shell("members", `kubectl -n "$PLANE" get secret fusionctl-pki -o json |
	jq '.metadata |= {namespace, name, labels}' > "$OUT"`)
	return name
}

// deletes deletes a control plane with its namespace.
func (h *hostedRig) deletes(name string) {
	h.t.Helper()
	h.ok("", "delete", "fcp", name, "--timeout=3m")
	if out := h.ok("", "get", "namespace", name, "--ignore-not-found"); out != "" {
		h.t.Errorf("%s is deleted, its namespace is there: %s", name, out)
	}
}

// restores: the object is applied again, with the keys and the volume of backups that were kept, as docs/operator.md
// has it.
func (h *hostedRig) restores(backup string) {
	h.t.Helper()
	volume := h.ok("", "get", "pv", "-o", `jsonpath={.items[?(@.spec.claimRef.name=="backups")].metadata.name}`)
	h.ok("", "patch", "pv", volume, "--type=merge", "-p",
		`{"spec":{"claimRef":{"namespace":"members","name":"backups","uid":null,"resourceVersion":null}}}`)
	h.ok("", "create", "namespace", "members")
	h.ok("", "label", "namespace", "members", "app.kubernetes.io/managed-by=fusionctl",
		"app.kubernetes.io/part-of=members")
	h.ok("", "create", "-f", h.keys)
	h.ok(strings.Replace(members, "version: 1.15.12", "version: "+nextPatch, 1), "apply", "--server-side",
		"--force-conflicts", "-f", "-")
	h.runs("members")
	h.backsUp() // it says which ones there are
	h.ok("", "annotate", "fcp", "members", "kubefusion.dev/restore="+backup)
	h.killedAt("members", 3)
	if s := h.runs("members"); s.History[0].To != "backup "+backup || s.History[0].Error != "" {
		h.t.Errorf("the history is %+v", s.History)
	}
	// The clients of before, with their certificates; the address is another one.
	again := h.users("members", "developers")
	h.has(again, "first", "upgraded")
	for side, user := range again {
		if err := user.Call(h.t.Context(), http.MethodGet, defaultMaps+"/"+ofSide("later", side), nil,
			nil); rig.Code(err) != http.StatusNotFound {
			h.t.Errorf("what came after the backup is there on the %s side: %v", side, err)
		}
	}
	h.creates(again, "restored")
}

// losesMembers: the volume of one of three members is lost, and that of the only member of a store. Neither comes back
// with nothing, and the status says that it is missing.
func (h *hostedRig) losesMembers() {
	h.t.Helper()
	for plane, member := range map[string]string{"members": "etcd-modern-2", "hosted": "etcd-modern-0"} {
		h.ok("", "--namespace="+plane, "delete", "pvc", "data-"+member, "--wait=false")
		h.ok("", "--namespace="+plane, "delete", "pod", member, "--grace-period=0", "--force")
	}
	h.awaits("members", api.ConditionDegraded, "etcd-modern has 2 of 3 pods")
	h.awaits("hosted", api.ConditionDegraded, "etcd-modern has 0 of 1 pods")
	h.Eventually("the only member of a store says why it does not start", func(ctx context.Context) error {
		log, err := h.node.Run(ctx, "sh", "-c", "cat /var/log/pods/hosted_etcd-modern-0_*/etcd/*.log")
		if err == nil && !strings.Contains(log, "cannot fetch cluster info from peer urls") {
			err = fmt.Errorf("it says %.2000s", log)
		}
		return err
	})
}
