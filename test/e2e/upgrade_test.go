//go:build e2e && linux

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/internal/cli"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/restart"
	"github.com/kubefusion/fusionctl/test/rig"
)

// stayed is how long containers must stay after the last one that was to be restarted: a kubelet looks at every pod
// about once a minute, and at all of them when it starts.
const stayed = 20 * time.Second

// TestKubeletUpgrades: a kubelet takes the place of another on the same node, and exactly those containers are
// restarted of which `restarts plan --runtime-endpoint` says so beforehand. The hashes that the first kubelet recorded
// are those that `restarts hash` prints.
func TestKubeletUpgrades(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		server, from, to kubever.Minor
		restarts, keeps  bool
	}{
		{15, 10, 15, true, true},
		{36, 15, 17, true, false},
		{36, 15, 36, true, false},
		{36, 36, 36, false, true},
	} {
		t.Run(test.from.String()+" to "+test.to.String(), func(t *testing.T) {
			t.Parallel()
			onNodes(t, func(t *testing.T) {
				counts := upgradeKubelet(t, test.server, test.from, test.to)
				if (counts[true] > 0) != test.restarts || (counts[false] > 0) != test.keeps {
					t.Errorf("%d containers were restarted, %d kept; want some: %t, %t", counts[true], counts[false],
						test.restarts,
						test.keeps)
				}
			})
		})
	}
}

// upgradeKubelet returns how many containers were restarted (true) and kept.
func upgradeKubelet(t *testing.T, release, from, to kubever.Minor) (counts map[bool]int) {
	t.Helper()
	r := rig.New(t)
	server := r.StartAPIServer("apiserver", release, r.APIServerArgs(release, r.StartEtcd("core")))
	server.WaitReady()
	manager := r.StartControllerManager("controller-manager", release, r.ControllerManagerArgs(release, server))
	manager.WaitReady()
	client := server.Client("admin", "system:masters")
	n := r.StartNode("node-1")
	n.StartKubelet(from, server)
	n.WaitReady(server)
	r.Eventually("the default service account", func(ctx context.Context) error {
		return client.Call(ctx, http.MethodGet, "/api/v1/namespaces/default/serviceaccounts/default", nil, nil)
	})
	must(t, client.Call(t.Context(), http.MethodPost, "/api/v1/namespaces/default/configmaps",
		object{"metadata": object{"name": "map"}, "data": object{"a": "1"}}, nil))
	shapes := 0
	for i, pod := range shapedPods() {
		name := fmt.Sprintf("shapes-%d", i)
		spec := pod
		spec["nodeName"], spec["terminationGracePeriodSeconds"] = n.Name, 1
		for _, c := range spec["containers"].([]object) {
			c["image"] = rig.PodImage
			shapes++
		}
		r.Eventually("creating "+name, func(ctx context.Context) error {
			return client.Call(ctx, http.MethodPost, "/api/v1/namespaces/default/pods",
				object{"metadata": object{"name": name, "labels": object{"shape": name}}, "spec": spec}, nil)
		})
	}
	if shapes < 30 {
		t.Fatalf("%d shapes of containers, want at least 30", shapes)
	}
	before := awaitContainers(t, r, client, shapes)

	kubeconfig, err := r.PKI.Kubeconfig("restarts", server.URL, "admin", "system:masters")
	must(t, err)
	verdicts := predict(t, kubeconfig, n, from, to, shapes)
	recordedIsPrinted(t, r, client, from, verdicts)
	n.ReplaceKubelet(to, server)
	n.WaitReady(server)
	want := map[string]bool{}
	for name, c := range verdicts {
		want[name] = c.Verdict == restart.Restart
	}
	r.Eventually("the containers that are to be restarted are", func(ctx context.Context) error {
		now, err := containersOf(ctx, client)
		if err != nil {
			return err
		}
		for name := range want {
			if want[name] && (now[name].ID == before[name].ID || !now[name].Running) {
				return fmt.Errorf("%s is %+v, was %+v", name, now[name], before[name])
			}
		}
		return nil
	})
	counts = map[bool]int{}
	r.Throughout(stayed, "no other container is restarted, and none twice", func(ctx context.Context) error {
		now, err := containersOf(ctx, client)
		if err != nil {
			return err
		}
		clear(counts)
		for name, restarted := range want {
			counts[restarted]++
			if got := now[name].Restarts - before[name].Restarts; (got > 0) != restarted || got > 1 {
				return fmt.Errorf("%s was restarted %d times, its verdict is %s, because %q", name, got,
					verdicts[name].Verdict, verdicts[name].Why)
			}
		}
		return nil
	})
	t.Logf("kubelet %s -> %s: %d containers restarted, %d kept, as predicted", from, to, counts[true], counts[false])
	note(t, onNode, "-", kubever.Release(from), kubever.Release(to), []string{
		"a kubelet upgraded in place restarts exactly the containers that `restarts plan --runtime-endpoint` " +
			"predicts, of " +
			fmt.Sprintf("%d shapes; the recorded hashes are those of `restarts hash`", shapes)})
	return counts
}

// runningContainer is a container as its pod's status has it.
type runningContainer struct {
	ID       string
	Restarts int
	Running  bool
}

func containersOf(ctx context.Context, client *rig.Client) (map[string]runningContainer, error) {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				ContainerStatuses []struct {
					Name, ContainerID string
					RestartCount      int
					State             struct{ Running *struct{} }
				}
			}
		}
	}
	if err := client.Call(ctx, http.MethodGet, "/api/v1/namespaces/default/pods", nil, &list); err != nil {
		return nil, err
	}
	containers := map[string]runningContainer{}
	for _, pod := range list.Items {
		for _, c := range pod.Status.ContainerStatuses {
			containers[pod.Metadata.Name+"/"+c.Name] = runningContainer{c.ContainerID, c.RestartCount,
				c.State.Running != nil}
		}
	}
	return containers, nil
}

func awaitContainers(t *testing.T, r *rig.Rig, client *rig.Client, want int) (containers map[string]runningContainer) {
	t.Helper()
	r.Eventually("the containers run", func(ctx context.Context) (err error) {
		if containers, err = containersOf(ctx, client); err != nil {
			return err
		}
		running := 0
		for name, c := range containers {
			if c.Running {
				running++
			} else if c.Restarts > 0 {
				return fmt.Errorf("%s ends by itself", name)
			}
		}
		if running != want {
			return fmt.Errorf("%d of %d containers run: %+v", running, want, containers)
		}
		return nil
	})
	return containers
}

// commandOutput runs the command line and returns what it prints.
func commandOutput(t *testing.T, args ...string) []byte {
	t.Helper()
	var out, errs bytes.Buffer
	if code := cli.Main(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}); code != 0 {
		t.Fatalf("fusionctl %s exits %d, want 0\n%s%s", strings.Join(args, " "), code, &errs, &out)
	}
	return out.Bytes()
}

// predicted is what the command says of one container.
type predicted struct {
	Pod, Container, Recorded string
	Verdict                  restart.Verdict
	Why                      []string
}

// predict is what the command says of the containers of the node, by name.
func predict(t *testing.T, kubeconfig string, n *rig.Node, from, to kubever.Minor, want int) map[string]predicted {
	t.Helper()
	var plan struct{ Containers []predicted }
	must(t, json.Unmarshal(commandOutput(t, "restarts", "plan", "--from", from.String(), "--to", to.String(),
		"--kubeconfig", kubeconfig, "--node", n.Name, "--runtime-endpoint", n.Socket(), "-o", "json"), &plan))
	containers := map[string]predicted{}
	for _, c := range plan.Containers {
		if c.Verdict != restart.Restart && c.Verdict != restart.Keep {
			t.Errorf("%s/%s: %s, because %q: want it known", c.Pod, c.Container, c.Verdict, c.Why)
		}
		containers[c.Pod+"/"+c.Container] = c
	}
	if len(containers) != want {
		t.Fatalf("%d containers were predicted, want %d", len(containers), want)
	}
	return containers
}

// recordedIsPrinted compares what the runtime has recorded with what `restarts hash` prints for the kubelet's version.
func recordedIsPrinted(t *testing.T, r *rig.Rig, client *rig.Client, kubelet kubever.Minor,
	containers map[string]predicted) {
	t.Helper()
	var list json.RawMessage
	must(t, client.Call(t.Context(), http.MethodGet, "/api/v1/namespaces/default/pods", nil, &list))
	file := filepath.Join(r.Dir(), "pods.json")
	must(t, os.WriteFile(file, list, 0o600))
	var printed struct {
		Containers []struct{ Object, Container, Hash string }
	}
	must(t, json.Unmarshal(commandOutput(t, "restarts", "hash", file, "--kubelet", kubelet.String(), "-o", "json"),
		&printed))
	hashes := map[string]string{}
	for _, p := range printed.Containers {
		_, pod, _ := strings.Cut(p.Object, "/")
		hashes[pod+"/"+p.Container] = p.Hash
	}
	for name, c := range containers {
		if c.Recorded == "" || hashes[name] != c.Recorded {
			t.Errorf("the runtime has recorded %q for %s, `restarts hash --kubelet %s` prints %q", c.Recorded, name,
				kubelet, hashes[name])
		}
	}
}

// shapedPods are pods whose containers differ in every field that kubelets of all these versions can start.
func shapedPods() []object {
	named := func(containers ...object) []object {
		for i, c := range containers {
			c["name"] = fmt.Sprintf("c%d", i)
			if c["args"] == nil && c["command"] == nil {
				c["args"] = []string{"pause"}
			}
		}
		return containers
	}
	probe := func(more object) object {
		p := object{"periodSeconds": 30, "initialDelaySeconds": 3}
		for k, v := range more {
			p[k] = v
		}
		return p
	}
	exec := object{"exec": object{"command": []string{"/prog", "echo", "ok"}}}
	field := func(path string) object { return object{"valueFrom": object{"fieldRef": object{"fieldPath": path}}} }
	env := func(name string, from object) object { from["name"] = name; return from }
	return []object{
		{"automountServiceAccountToken": false, "containers": named(
			object{},
			object{"command": []string{"/prog"}},
			object{"command": []string{"/prog", "pause"}, "args": []string{}},
			object{"args": []string{"pause", "a b", "\"quoted\"", "tab\there", "ümlaut <>&"}},
			object{"workingDir": "/tmp"},
			object{"imagePullPolicy": "Never"},
			object{"stdin": true, "stdinOnce": true},
			object{"tty": true, "stdin": true},
		)},
		{"containers": named(
			object{"env": []object{{"name": "A", "value": "1"}, {"name": "EMPTY"},
				{"name": "REF", "value": "$(A)-$$(A)"}}},
			object{"env": []object{env("NAME", field("metadata.name")), env("IP", field("status.podIP"))}},
			object{"env": []object{
				env("MAP", object{"valueFrom": object{"configMapKeyRef": object{"name": "map", "key": "a"}}})}},
			object{"env": []object{env("NONE",
				object{"valueFrom": object{"secretKeyRef": object{"name": "none", "key": "k", "optional": true}}})}},
			object{"env": []object{env("CPU",
				object{"valueFrom": object{
					"resourceFieldRef": object{"resource": "limits.memory", "divisor": "1Mi"}}})},
				"resources": object{"limits": object{"memory": "64Mi"}}},
			object{"envFrom": []object{{"configMapRef": object{"name": "map"}},
				{"prefix": "P_", "secretRef": object{"name": "none", "optional": true}}}},
		)},
		{"automountServiceAccountToken": false, "containers": named(
			object{"ports": []object{{"containerPort": 8080}}},
			object{"ports": []object{{"containerPort": 8081, "name": "web", "protocol": "TCP"},
				{"containerPort": 53, "protocol": "UDP"}}},
			object{"ports": []object{{"containerPort": 8082, "hostPort": 18082}}},
			object{"resources": object{"requests": object{"cpu": "10m"}}},
			object{"resources": object{"requests": object{"cpu": "0.01", "memory": "10485760"},
				"limits": object{"cpu": "0.1", "memory": "50Mi"}}},
			object{"resources": object{"requests": object{"cpu": "1e-2"}, "limits": object{"memory": "0.0625Gi"}}},
		)},
		{"automountServiceAccountToken": false,
			"volumes": []object{{"name": "e", "emptyDir": object{}}, {"name": "m", "configMap": object{"name": "map"}}},
			"containers": named(
				object{"volumeMounts": []object{{"name": "e", "mountPath": "/e"}}},
				object{"volumeMounts": []object{{"name": "e", "mountPath": "/e", "readOnly": true}}},
				object{"volumeMounts": []object{{"name": "m", "mountPath": "/m", "subPath": "a"}}},
				object{"volumeMounts": []object{
					{"name": "e", "mountPath": "/e", "mountPropagation": "HostToContainer"}}},
			)},
		{"automountServiceAccountToken": false, "containers": named(
			object{"livenessProbe": probe(exec)},
			object{"readinessProbe": probe(exec)},
			object{"livenessProbe": probe(object{"tcpSocket": object{"port": 8090}}),
				"args": []string{"serve", ":8090"}},
			object{"livenessProbe": probe(object{
				"httpGet": object{"port": 8091, "path": "/", "httpHeaders": []object{{"name": "X", "value": "y"}}}}),
				"args": []string{"serve", ":8091"}},
			object{"lifecycle": object{"preStop": exec}},
			object{"lifecycle": object{
				"postStart": object{"exec": object{"command": []string{"/prog", "echo", "started"}}}}},
			object{"terminationMessagePath": "/tmp/end", "terminationMessagePolicy": "FallbackToLogsOnError"},
		)},
		{"securityContext": object{"fsGroup": 1000}, "containers": named(
			object{"securityContext": object{}},
			object{"securityContext": object{"runAsUser": 1000, "runAsNonRoot": true}},
			object{"securityContext": object{"readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false}},
			object{"securityContext": object{"capabilities": object{"drop": []string{"NET_RAW"}}}},
		)},
	}
}
