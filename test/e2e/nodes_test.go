//go:build e2e && linux

package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/rules"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

// onNodes runs a test with nodes: in a sandbox, where programs cannot be built, because no modules can be downloaded.
// The needed ones are built outside.
func onNodes(t *testing.T, run func(t *testing.T), needed ...string) {
	t.Helper()
	if _, inside := rig.Sandboxed(); inside {
		run(t)
		return
	}
	var env []string
	for _, name := range needed {
		program, err := map[string]func() (string, error){fusionctlEnv: fusionctl, reconcilerEnv: reconciler}[name]()
		must(t, err)
		env = append(env, name+"="+program)
	}
	if dir := rig.RunSandboxed(t, env...); !t.Failed() {
		readProofs(t, filepath.Join(dir, proofsFile))
	}
}

// enterSandbox makes the sandbox ready, in the process that is in one.
func enterSandbox() error {
	if _, inside := rig.Sandboxed(); !inside {
		return nil
	}
	return rig.EnterSandbox()
}

// nodesAccess is what the policy allows to those who work with pods through the modern server.
const nodesAccess = `  access:
  - {subjects: [{kind: Group, name: developers}], apiGroups: [""], resources: [namespaces, pods, services, configmaps, secrets, serviceaccounts, events]}
  - {subjects: [{kind: Group, name: developers}], apiGroups: [apps, batch], resources: [deployments, replicasets, statefulsets, daemonsets, jobs, cronjobs]}
  - {subjects: [{kind: Group, name: developers}], apiGroups: [apiextensions.k8s.io, example.test], resources: ["*"]}
  - {subjects: [{kind: ServiceAccount, namespace: demo, name: operator}], apiGroups: [example.test], resources: [widgets], namespaces: [demo]}
  - {subjects: [{kind: ServiceAccount, namespace: demo, name: operator}], apiGroups: ["", events.k8s.io], resources: [configmaps, events], namespaces: [demo]}
`

// reconcilerImage is the image of the controller of ./reconciler.
const reconcilerImage = "docker.io/library/reconciler:1"

// nodesPair is a pair whose legacy side has nodes.
type nodesPair struct {
	*rig.Rig
	*rig.Pair
	t           *testing.T
	nodes       []*rig.Node
	admin, user *rig.Client
	controllers *rig.Process
	kubeconfigs map[pair.Side]string
	program     string // fusionctl
	namespace   string // of the workloads; "" for demo
}

// in is the same pair with workloads of another namespace.
func (f *nodesPair) in(namespace string) *nodesPair {
	other := *f
	other.namespace = namespace
	return &other
}

func (f *nodesPair) within() string { return cmp.Or(f.namespace, "demo") }

// startNodesPair starts a pair with everything that the plan has, and nodes with kubelets and service proxies of the
// legacy release.
func startNodesPair(t *testing.T, legacy, modern string, nodes int, more ...string) *nodesPair {
	t.Helper()
	return startNodes(t, rig.PairSpec{Legacy: legacy, Modern: modern, More: strings.Join(more, "")}, nodes)
}

// grace is for how long a node may be silent; short, and more than a busy machine lets a kubelet wait.
const grace = 20 * time.Second

// startNodes is startNodesPair with the versions, the members of stores and more of the spec.
func startNodes(t *testing.T, s rig.PairSpec, nodes int) *nodesPair {
	t.Helper()
	f := &nodesPair{Rig: rig.New(t), t: t}
	s.Layout, s.LegacyScheduler = spec.LayoutSplit, true
	s.ControllersArgs = []string{"qps=400"}
	s.LegacyManagerArgs = []string{"node-monitor-grace-period=" + grace.String(), "node-monitor-period=1s"}
	s.More = nodesAccess + "  pods: {unknownFields: warn}\n" + s.More
	f.Pair = f.StartPair(s)
	binary, err := fusionctl()
	must(t, err)
	f.controllers, _ = f.StartControllers(binary)
	f.admin, f.user = f.Legacy.Client("admin", "system:masters"), f.Modern.Client("alice", "developers")
	f.writeKubeconfigs()
	operator, err := reconciler()
	must(t, err)
	for i := range nodes {
		n := f.StartNode(fmt.Sprintf("node-%d", i+1),
			rig.Image{Name: reconcilerImage, Files: map[string]string{"reconciler": operator},
				Entrypoint: []string{"/reconciler"}})
		n.StartKubelet(f.Plan.Legacy.Version.Minor, f.Legacy)
		n.StartProxy(f.Plan.Legacy.Version.Minor, f.Legacy)
		f.nodes = append(f.nodes, n)
	}
	for _, n := range f.nodes {
		n.WaitReady(f.Legacy)
	}
	f.useDemo()
	return f
}

// writeKubeconfigs writes those of each side's ordinary users.
func (f *nodesPair) writeKubeconfigs() {
	f.t.Helper()
	f.kubeconfigs = map[pair.Side]string{}
	for side, user := range map[pair.Side][]string{pair.Legacy: {f.Legacy.URL, "admin", "system:masters"},
		pair.Modern: {f.Modern.URL, "alice", "developers"}} {
		file, err := f.PKI.Kubeconfig("kubectl-"+string(side), user[0], user[1], user[2])
		must(f.t, err)
		f.kubeconfigs[side] = file
	}
}

// useDemo makes the namespace of the tests.
func (f *nodesPair) useDemo() {
	f.t.Helper()
	must(f.t, f.admin.Call(f.t.Context(), http.MethodPost, "/api/v1/namespaces",
		object{"metadata": object{"name": "demo"}}, nil))
	must(f.t, f.admin.Call(f.t.Context(), http.MethodPost, "/api/v1/namespaces/demo/serviceaccounts",
		object{"metadata": object{"name": "operator"}}, nil))
	awaitServiceAccount(f.Rig, f.admin)
}

// client of a side's ordinary users.
func (f *nodesPair) client(side pair.Side) *rig.Client {
	if side == pair.Legacy {
		return f.admin
	}
	return f.user
}

// kubectl runs a command against a side's server, in the namespace demo.
func (f *nodesPair) kubectl(ctx context.Context, side pair.Side, input string, args ...string) (string, error) {
	return f.door(side).kubectl(ctx, input, args...)
}

// door is a way for kubectl of a release to the namespace demo.
type door struct {
	*nodesPair
	name, kubeconfig string
	release          kubever.Minor
}

// door is a side's server, for kubectl of today.
func (f *nodesPair) door(side pair.Side) door {
	return door{f, "the " + string(side) + " server", f.kubeconfigs[side], kubever.Suggested}
}

func (d door) kubectl(ctx context.Context, input string, args ...string) (string, error) {
	binary, err := rig.Binary("kubectl", d.release)
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(
		ctx, binary, append([]string{"--kubeconfig", d.kubeconfig, "--namespace", d.within()}, args...)...)
	command.Env = append(os.Environ(), "HOME="+d.Dir())
	if input != "" {
		command.Stdin = strings.NewReader(input)
	}
	out, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s through %s: %w\n%s", strings.Join(args, " "), d.name, err, out)
	}
	return string(out), err
}

// seenOnNode is what the tests read of a pod that runs.
type seenOnNode struct {
	Metadata struct {
		Name, UID         string
		Labels            map[string]string
		DeletionTimestamp *time.Time
	}
	Spec   struct{ NodeName string }
	Status struct {
		Phase, PodIP      string
		ContainerStatuses []struct {
			Name, ContainerID string
			Ready             bool
			RestartCount      int
		}
	}
}

func (p *seenOnNode) ready() bool {
	for _, c := range p.Status.ContainerStatuses {
		if !c.Ready {
			return false
		}
	}
	return p.Status.Phase == "Running" && len(p.Status.ContainerStatuses) > 0 && p.Metadata.DeletionTimestamp == nil
}

// pods lists the pods with the label workload, as the legacy server has them.
func (f *nodesPair) pods(ctx context.Context, workload string) ([]seenOnNode, error) {
	var list struct{ Items []seenOnNode }
	path := "/api/v1/namespaces/" + f.within() + "/pods"
	if workload != "" {
		path += "?labelSelector=workload=" + workload
	}
	return list.Items, f.admin.Call(ctx, http.MethodGet, path, nil, &list)
}

// awaitReady waits until a workload has exactly so many pods and all are ready.
func (f *nodesPair) awaitReady(workload string, want int) (pods []seenOnNode) {
	f.t.Helper()
	start := time.Now()
	f.Eventually("the pods of "+workload, func(ctx context.Context) (err error) {
		if pods, err = f.pods(ctx, workload); err != nil {
			return err
		}
		ready := 0
		for i := range pods {
			if pods[i].ready() {
				ready++
			}
		}
		if ready != want || len(pods) != want {
			return fmt.Errorf("%d of %d pods are ready, want %d: %+v", ready, len(pods), want, pods)
		}
		return nil
	})
	f.t.Logf("%s: %d pods are ready after %s", workload, want, time.Since(start).Round(10*time.Millisecond))
	return pods
}

// awaitSucceeded waits until a pod of the workload has succeeded.
func (f *nodesPair) awaitSucceeded(workload string) {
	f.t.Helper()
	f.Eventually("a pod of "+workload+" succeeds", func(ctx context.Context) error {
		pods, err := f.pods(ctx, workload)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(pods, func(p seenOnNode) bool { return p.Status.Phase == "Succeeded" }) {
			return fmt.Errorf("%d pods, none has succeeded: %+v", len(pods), pods)
		}
		return nil
	})
}

// path of a resource in a side's newest version of it.
func (f *nodesPair) path(side pair.Side, key string) string {
	return "/apis/" + f.best(side, key).String() + "/namespaces/" + f.within() + "/" + key
}

// best is the version of a resource that a side serves longest.
func (f *nodesPair) best(side pair.Side, key string) schema.GroupVersion {
	served := f.served(side, key)
	best := served[0]
	for _, gv := range served {
		if gv.Version == "v1" && gv.Group != "extensions" {
			best = gv
		}
	}
	return best
}

// served are the versions of a resource that a side serves.
func (f *nodesPair) served(side pair.Side, key string) []schema.GroupVersion {
	fact, _ := kubever.ResourceByKey(key)
	return fact.Served(f.Plan.Side(side).Version.Minor)
}

// runs is a pod spec with one container of the rig's program.
func runs(args ...string) object {
	return object{"terminationGracePeriodSeconds": 1,
		"containers": []object{{"name": "main", "image": rig.PodImage, "args": args}}}
}

// serves is one that answers with its name at port 8080.
func serves() object {
	spec := runs("serve", ":8080")
	spec["containers"].([]object)[0]["readinessProbe"] = object{"httpGet": object{"port": 8080, "path": "/"},
		"periodSeconds": 1}
	spec["containers"].([]object)[0]["stdin"] = true
	return spec
}

// labelled is the template of a workload's pods.
func labelled(workload string, spec object) object {
	return object{"metadata": object{"labels": object{"workload": workload}}, "spec": spec}
}

func once(spec object) object {
	spec["restartPolicy"] = "Never"
	return spec
}

// create creates an object through a side; a new account may not have its token yet.
func (f *nodesPair) create(side pair.Side, path string, body object) {
	f.t.Helper()
	f.Eventually("creating at "+path+" through the "+string(side)+" server", func(ctx context.Context) error {
		err := f.client(side).Call(ctx, http.MethodPost, path, body, nil)
		if rig.Code(err) == http.StatusConflict {
			f.t.Fatal(err)
		}
		return err
	})
}

// deploy creates a Deployment.
func (f *nodesPair) deploy(side pair.Side, name string, replicas int, spec object) {
	f.t.Helper()
	f.create(side, f.path(side, "deployments"), object{"metadata": object{"name": name,
		"labels": object{"workload": name}}, "spec": object{
		"replicas": replicas, "selector": object{"matchLabels": object{"workload": name}},
		"template": labelled(name, spec),
	}})
}

// inPod runs the rig's program in a pod.
func (f *nodesPair) inPod(ctx context.Context, side pair.Side, pod string, args ...string) (string, error) {
	return f.kubectl(ctx, side, "", append([]string{"exec", pod, "--", "/prog"}, args...)...)
}

// TestWorkloadsOnRealNodes: what both sides create runs on kubelets of the legacy side.
func TestWorkloadsOnRealNodes(t *testing.T) {
	t.Parallel()
	for _, legacy := range []string{"1.15.12", "1.10.13"} {
		t.Run(legacy, func(t *testing.T) {
			t.Parallel()
			onNodes(t, func(t *testing.T) {
				f := startNodesPair(t, legacy, "1.36.3", 1)
				f.workloads()
				f.services()
				f.api()
				f.operator()
				f.streams()
				f.updates()
				f.rollout()
				f.dropped()
				f.cronJobs()
				provedOnNodes(t, legacy, "1.36.3",
					"Deployments, StatefulSets, DaemonSets, Jobs and CronJobs of both sides run on a kubelet of the "+
						"legacy release, placed by its scheduler",
					"services of both sides answer, through the service proxy of the legacy release, from pods of "+
						"both sides",
					"a program in a modern pod reaches the modern API server by its service: 200 where the policy "+
						"allows, 403 where not",
					"a controller of controller-runtime runs as a pod of the modern side",
					"logs, exec, attach and port-forward work through both servers for pods of both sides, but for "+
						"what rule FUS254 says",
					"fields of pods that the legacy release does not know have no effect, and the author of the pod "+
						"is warned of exactly those",
					"changes of config maps and secrets arrive in pods of both sides; Deployments of both sides roll")
			}, fusionctlEnv, reconcilerEnv)
		})
	}
}

// workloads of every kind on both sides.
func (f *nodesPair) workloads() {
	f.t.Helper()
	for _, side := range pair.Sides() {
		name := func(kind string) string { return kind + "-" + string(side) }
		selector := func(kind string) object { return object{"matchLabels": object{"workload": name(kind)}} }
		f.deploy(side, name("deployment"), 2, serves())
		f.create(side, f.path(side, "statefulsets"), object{"metadata": object{"name": name("set")}, "spec": object{
			"serviceName": name("set"), "replicas": 2, "selector": selector("set"),
			"template": labelled(name("set"), serves()),
		}})
		f.create(side, f.path(side, "daemonsets"), object{"metadata": object{"name": name("daemon")},
			"spec": object{"selector": selector("daemon"), "template": labelled(name("daemon"), serves())}})
		f.create(side, f.path(side, "jobs"), object{"metadata": object{"name": name("job")}, "spec": object{
			"template": labelled(name("job"), once(runs("echo", "done"))),
		}})
		f.create(side, f.path(side, "cronjobs"), object{"metadata": object{"name": name("cron")}, "spec": object{
			"schedule":    "* * * * *",
			"jobTemplate": object{"spec": object{"template": labelled(name("cron"), once(runs("echo", "done")))}},
		}})
		f.create(side, "/api/v1/namespaces/demo/services",
			object{"metadata": object{"name": name("service")}, "spec": object{
				"ports": []object{{"port": 80, "targetPort": 8080}}, "selector": object{"workload": name("deployment")},
			}})
	}
	for _, side := range pair.Sides() {
		f.awaitReady("deployment-"+string(side), 2)
		f.awaitReady("set-"+string(side), 2)
		f.awaitReady("daemon-"+string(side), 1)
		f.awaitSucceeded("job-" + string(side))
	}
}

// services: each pod of a service answers to pods of both sides.
func (f *nodesPair) services() {
	t := f.t
	t.Helper()
	for _, of := range pair.Sides() {
		var service struct{ Spec struct{ ClusterIP string } }
		must(t, f.admin.Call(t.Context(), http.MethodGet, "/api/v1/namespaces/demo/services/service-"+string(of), nil,
			&service))
		answers := f.awaitReady("deployment-"+string(of), 2)
		for _, from := range pair.Sides() {
			client := f.awaitReady("daemon-"+string(from), 1)[0].Metadata.Name
			seen := map[string]bool{}
			f.Eventually(fmt.Sprintf("the service of the %s side answers to a pod of the %s side", of, from),
				func(ctx context.Context) error {
					out, err := f.inPod(ctx, pair.Legacy, client, "get", "http://"+service.Spec.ClusterIP+"/")
					if err != nil {
						return err
					}
					seen[strings.TrimSpace(strings.TrimPrefix(out, "200 "))] = true
					for _, p := range answers {
						if !seen[p.Metadata.Name] {
							return fmt.Errorf("%s has not answered yet, only %v", p.Metadata.Name, seen)
						}
					}
					return nil
				})
		}
	}
}

// api: the account of a pod is good at the modern server for what the policy allows.
func (f *nodesPair) api() {
	t := f.t
	t.Helper()
	customResources(t, f.Rig, f.Pair, f.user)
	spec := runs("pause")
	spec["serviceAccountName"] = "operator"
	f.create(pair.Modern, demoPods, object{"metadata": object{"name": "caller", "labels": object{"workload": "caller"}},
		"spec": spec})
	f.awaitReady("caller", 1)
	f.Eventually("the pod asks the modern server", func(ctx context.Context) error {
		out, err := f.inPod(ctx, pair.Legacy, "caller", "api", "/version", "/api/v1/namespaces/demo/configmaps",
			"/api/v1/namespaces/demo/secrets", "/api/v1/nodes")
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		var codes []string
		for _, line := range lines {
			code, _, _ := strings.Cut(line, " ")
			codes = append(codes, code)
		}
		if !slices.Equal(codes, []string{"200", "200", "403", "403"}) ||
			!strings.Contains(lines[0], f.Plan.Modern.Version.String()) {
			return fmt.Errorf("it is answered\n%s\nwant the version %s, and 200, 403, 403", out, f.Plan.Modern.Version)
		}
		return nil
	})
}

// operator: a controller as people write them runs as a pod, and makes a config map for every widget.
func (f *nodesPair) operator() {
	t := f.t
	t.Helper()
	f.deploy(pair.Modern, "operator", 1, object{"serviceAccountName": "operator", "terminationGracePeriodSeconds": 1,
		"containers": []object{{"name": "main", "image": reconcilerImage}}})
	f.awaitReady("operator", 1)
	must(t, f.user.Call(t.Context(), http.MethodPost, "/apis/example.test/v1/namespaces/demo/widgets",
		object{"apiVersion": "example.test/v1", "kind": "Widget", "metadata": object{"name": "two"}}, nil))
	f.Eventually("the operator makes a config map for each widget", func(ctx context.Context) error {
		for _, name := range []string{"one", "two"} {
			if err := f.admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/demo/configmaps/"+name, nil,
				nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// streams: logs, exec, attach and port-forward, through both servers, of pods of both sides.
func (f *nodesPair) streams() {
	t := f.t
	t.Helper()
	redirected := kubever.Behaves(kubever.BehaviourKubeletRedirectsStreams, f.Plan.Kubelet.Minor)
	if found := rulesOf(f.Plan, "FUS254"); redirected != (found > 0) {
		t.Errorf("the rule about redirected streams fires %d times; they are redirected: %t", found, redirected)
	}
	for _, through := range pair.Sides() {
		for _, of := range pair.Sides() {
			pod := f.awaitReady("daemon-"+string(of), 1)[0]
			t.Logf("through the %s server, a pod of the %s side", through, of)
			for what, stream := range streams {
				err := stream(f.door(through), pod.Metadata.Name)
				if what != "logs" && through == pair.Modern && redirected {
					if err == nil || !strings.Contains(err.Error(), "redirect not allowed") &&
						!strings.Contains(err.Error(), "status code 302") {
						t.Errorf("%s through the modern server to a kubelet that redirects: %v, want it refused", what,
							err)
					}
				} else if err != nil {
					t.Errorf("%s through the %s server: %v", what, through, err)
				}
			}
		}
	}
}

// streams are what kubectl does with a pod that serves, by the name of its command.
var streams = map[string]func(d door, pod string) error{
	"logs": door.logs, "exec": door.exec, "attach": door.attach, "port-forward": door.forward, "cp": door.copies,
}

func (d door) logs(pod string) error {
	out, err := d.kubectl(d.t.Context(), "", "logs", pod)
	if err == nil && !strings.Contains(out, "serving on :8080") {
		err = fmt.Errorf("it wrote %q", out)
	}
	return err
}

func (d door) exec(pod string) error {
	out, err := d.kubectl(d.t.Context(), "there and back", "exec", "-i", pod, "--", "/prog", "copy")
	if err == nil && !strings.Contains(out, "there and back") {
		err = fmt.Errorf("it wrote %q", out)
	}
	return err
}

// copies: a file and a folder arrive in the pod and come back.
func (d door) copies(pod string) error {
	here, err := os.MkdirTemp(d.Dir(), "cp")
	if err != nil {
		return err
	}
	folder := filepath.Join(here, filepath.Base(here)) // no other copy is of this name in the pod
	large := strings.Repeat("there and back\n", 100_000)
	for name, text := range map[string]string{"large": large, "inner/small": "small"} {
		file := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755),
			os.WriteFile(file, []byte(text), 0o640)); err != nil {
			return err
		}
	}
	there := "/tmp/" + filepath.Base(here)
	for _, step := range [][]string{
		{folder, pod + ":" + there},
		{filepath.Join(folder, "large"), pod + ":" + there + "/again"},
		{pod + ":" + there, filepath.Join(here, "back")},
		{pod + ":" + there + "/again", filepath.Join(here, "again")},
	} {
		if _, err := d.kubectl(d.t.Context(), "", "cp", step[0], step[1]); err != nil {
			return err
		}
	}
	for name, want := range map[string]string{"back/large": large, "back/inner/small": "small", "again": large} {
		got, err := os.ReadFile(filepath.Join(here, name))
		if err != nil {
			return err
		}
		if string(got) != want {
			return fmt.Errorf("%s has come back with %d bytes of %d", name, len(got), len(want))
		}
	}
	return nil
}

func (d door) attach(pod string) error {
	ctx, cancel := context.WithTimeout(d.t.Context(), 2*time.Minute)
	defer cancel()
	line := "hello through " + d.name
	type ending struct {
		out string
		err error
	}
	ended := make(chan ending, 1)
	attach := func() { // it stays attached to what goes on running
		out, err := d.kubectl(ctx, line+"\n", "attach", "-i", pod)
		ended <- ending{out, err}
	}
	read := func() bool { // what the program reads is in its log, whether it is still attached or not
		logs, err := d.kubectl(d.t.Context(), "", "logs", pod)
		return err == nil && strings.Contains(logs, "read "+line)
	}
	go attach()
	for attached := true; ; {
		select {
		case e := <-ended:
			if attached = false; e.err != nil && !read() {
				return fmt.Errorf("it wrote %q: %w", e.out, e.err)
			}
		case <-time.After(500 * time.Millisecond):
			switch {
			case read():
				cancel()
				if attached {
					<-ended
				}
				return nil
			case ctx.Err() != nil:
				return fmt.Errorf("nothing of what was written has arrived: %w", ctx.Err())
			case !attached: // kubelets of 1.10 end a stream whose input ends, on a busy machine before it arrived
				attached = true
				go attach()
			}
		}
	}
}

func (d door) forward(pod string) error {
	ctx, cancel := context.WithTimeout(d.t.Context(), 2*time.Minute)
	defer cancel()
	port := d.Port()
	ended := make(chan error, 1)
	go func() {
		_, err := d.kubectl(ctx, "", "port-forward", pod, fmt.Sprintf("%d:8080", port))
		ended <- err
	}()
	for {
		response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err == nil {
			response.Body.Close()
			cancel()
			<-ended
			return nil
		}
		select {
		case err := <-ended:
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// updates of config maps and secrets arrive in pods of the same side.
func (f *nodesPair) updates() {
	t := f.t
	t.Helper()
	for _, side := range pair.Sides() {
		name := "volumes-" + string(side)
		for resource, body := range map[string]object{
			"configmaps": {"metadata": object{"name": name}, "data": object{"text": "before"}},
			"secrets":    {"metadata": object{"name": name}, "stringData": object{"text": "before"}},
		} {
			f.create(side, "/api/v1/namespaces/demo/"+resource, body)
		}
		spec := runs("pause")
		spec["containers"].([]object)[0]["volumeMounts"] = []object{{"name": "map", "mountPath": "/map"},
			{"name": "secret", "mountPath": "/secret"}}
		spec["volumes"] = []object{{"name": "map", "configMap": object{"name": name}},
			{"name": "secret", "secret": object{"secretName": name}}}
		f.create(side, demoPods, object{"metadata": object{"name": name, "labels": object{"workload": name}},
			"spec": spec})
		f.awaitReady(name, 1)
		must(t, f.client(side).Call(t.Context(), http.MethodPatch, "/api/v1/namespaces/demo/configmaps/"+name,
			object{"data": object{"text": "after"}}, nil))
		must(t, f.client(side).Call(t.Context(), http.MethodPatch, "/api/v1/namespaces/demo/secrets/"+name,
			object{"stringData": object{"text": "after"}}, nil))
	}
	for _, side := range pair.Sides() {
		f.Eventually("changes arrive in a pod of the "+string(side)+" side", func(ctx context.Context) error {
			_, err := f.inPod(ctx, pair.Legacy, "volumes-"+string(side), "until", "after", "/map/text", "/secret/text")
			return err
		})
	}
}

// rollout: a changed template replaces all pods.
func (f *nodesPair) rollout() {
	t := f.t
	t.Helper()
	for _, side := range pair.Sides() {
		name := "deployment-" + string(side)
		before := f.awaitReady(name, 2)
		spec := serves()
		spec["containers"].([]object)[0]["env"] = []object{{"name": "GENERATION", "value": "2"}}
		must(t, f.client(side).Call(t.Context(), http.MethodPatch, f.path(side, "deployments")+"/"+name,
			object{"spec": object{"template": object{"spec": spec}}}, nil))
		f.Eventually("the Deployment of the "+string(side)+" side rolls", func(ctx context.Context) error {
			pods, err := f.pods(ctx, name)
			if err != nil {
				return err
			}
			for _, p := range pods {
				if slices.ContainsFunc(before, func(b seenOnNode) bool { return b.Metadata.UID == p.Metadata.UID }) {
					return fmt.Errorf("pod %s is still there", p.Metadata.Name)
				}
			}
			return nil
		})
		f.awaitReady(name, 2)
	}
}

// unknownToSome are fields of pods that came after old releases, with a value that a kubelet or scheduler which knows
// it acts on: the pod would wait, be killed, or have another environment.
func unknownToSome() (spec object, fields map[string][]string) {
	spec = runs("pause")
	spec["topologySpreadConstraints"] = []object{{"maxSkew": 1, "topologyKey": "example.test/none",
		"whenUnsatisfiable": "DoNotSchedule", "labelSelector": object{"matchLabels": object{"workload": "dropped"}}}}
	spec["enableServiceLinks"] = false
	spec["hostUsers"] = false
	spec["setHostnameAsFQDN"] = true
	spec["containers"].([]object)[0]["startupProbe"] = object{"exec": object{"command": []string{"/prog", "fail"}},
		"periodSeconds": 1, "failureThreshold": 1}
	return spec, map[string][]string{
		"topologySpreadConstraints": {"v1.PodSpec", "spec.topologySpreadConstraints"},
		"enableServiceLinks":        {"v1.PodSpec", "spec.enableServiceLinks"},
		"hostUsers":                 {"v1.PodSpec", "spec.hostUsers"},
		"setHostnameAsFQDN":         {"v1.PodSpec", "spec.setHostnameAsFQDN"},
		"startupProbe":              {"v1.Container", "spec.containers[0].startupProbe"},
	}
}

// dropped: what the legacy side drops of a pod has no effect, and the author of the pod was warned of exactly that.
func (f *nodesPair) dropped() {
	t := f.t
	t.Helper()
	spec, fields := unknownToSome()
	data, err := json.Marshal(object{"apiVersion": "v1", "kind": "Pod", "spec": spec,
		"metadata": object{"name": "dropped", "labels": object{"workload": "dropped"}}})
	must(t, err)
	response, err := f.user.Do(t.Context(), http.MethodPost, demoPods, bytes.NewReader(data))
	must(t, err)
	response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		t.Fatalf("a pod with fields that the legacy release does not know is answered %s", response.Status)
	}
	said := strings.Join(response.Header.Values("Warning"), "\n")
	legacy := f.Plan.Legacy.Version.Minor
	for name, field := range fields {
		known := kubever.Field(field[0], name).Has(legacy)
		if warned := strings.Contains(said, field[1]); warned == known {
			t.Errorf("%s is known to %s: %t; warned of it: %t", name, legacy, known, warned)
		}
	}
	if got, want := len(response.Header.Values("Warning")), f.unknown(fields); got != want {
		t.Errorf("%d warnings, want %d:\n%s", got, want, said)
	}
	pod := f.awaitReady("dropped", 1)[0]
	f.Throughout(3*time.Second, "what was dropped has no effect", func(ctx context.Context) error {
		pods, err := f.pods(ctx, "dropped")
		if err == nil && (len(pods) != 1 || !pods[0].ready() || pods[0].Status.ContainerStatuses[0].RestartCount > 0) {
			err = fmt.Errorf("the pod is %+v", pods)
		}
		return err
	})
	var stored struct{ Spec object }
	must(t, f.admin.Call(t.Context(), http.MethodGet, demoPods+"/dropped", nil, &stored))
	if _, kept := stored.Spec["enableServiceLinks"]; kept != kubever.Field("v1.PodSpec", "enableServiceLinks").
		Has(legacy) {
		t.Errorf("enableServiceLinks is kept: %t", kept)
	}
	out, err := f.inPod(t.Context(), pair.Legacy, pod.Metadata.Name, "env")
	must(t, err)
	links := strings.Contains(out, "SERVICE_LEGACY_SERVICE_HOST=")
	if known := kubever.Field("v1.PodSpec", "enableServiceLinks").Has(legacy); links == known {
		t.Errorf("the pod has the addresses of services in its environment: %t; the release knows "+
			"enableServiceLinks: %t",
			links, known)
	}
}

// unknown is how many of the fields the legacy release does not know.
func (f *nodesPair) unknown(fields map[string][]string) (count int) {
	for name, field := range fields {
		if !kubever.Field(field[0], name).Has(f.Plan.Legacy.Version.Minor) {
			count++
		}
	}
	return count
}

// cronJobs of both sides have run meanwhile.
func (f *nodesPair) cronJobs() {
	for _, side := range pair.Sides() {
		f.awaitSucceeded("cron-" + string(side))
	}
}

// heldEnv makes TestHoldsANode wait with its node to be killed.
const heldEnv = "FUSIONCTL_E2E_HOLD"

func TestHoldsANode(t *testing.T) {
	if os.Getenv(heldEnv) == "" {
		t.Skip("this is the test that TestKilledTestsLeaveNothing kills")
	}
	onNodes(t, func(t *testing.T) {
		r := rig.New(t)
		server := r.StartAPIServer("apiserver", 15, r.APIServerArgs(15, r.StartEtcd("core")))
		server.WaitReady()
		n := r.StartNode("node-1")
		n.StartKubelet(15, server)
		n.WaitReady(server)
		fmt.Println("the node is ready")
		<-t.Context().Done()
	})
}

// TestKilledTestsLeaveNothing: a test with a node that is killed leaves no process, cgroup, mount or interface, and no
// setting of the kernel changed.
func TestKilledTestsLeaveNothing(t *testing.T) {
	t.Parallel()
	if err := rig.MissingForNodes(); err != nil {
		onNodes(t, nil) // says so, or fails
	}
	if _, inside := rig.Sandboxed(); inside {
		return
	}
	settings := func() (values []string) {
		for _, name := range []string{"vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops",
			"net/ipv4/ip_forward"} {
			data, err := os.ReadFile("/proc/sys/" + name)
			must(t, err)
			values = append(values, name+" "+string(data))
		}
		return values
	}
	before := settings()
	program, err := os.Executable()
	must(t, err)
	command := exec.Command(program, "-test.run=^TestHoldsANode$", "-test.v")
	command.Env = append(os.Environ(), heldEnv+"=yes", "TMPDIR="+t.TempDir()) // whose test removes no files
	out, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	cgroups := fmt.Sprintf("fusionctl-rig-%d-", command.Process.Pid)
	lines, up := bufio.NewScanner(out), false
	for !up && lines.Scan() {
		up = strings.Contains(lines.Text(), "the node is ready")
	}
	inCgroups := func() (found []string) {
		files, err := filepath.Glob("/proc/[0-9]*/cgroup")
		must(t, err)
		for _, file := range files {
			if data, err := os.ReadFile(file); err == nil && strings.Contains(string(data), cgroups) {
				found = append(found, file)
			}
		}
		trees, err := filepath.Glob("/sys/fs/cgroup/*/" + cgroups + "*")
		must(t, err)
		return append(found, trees...)
	}
	if !up || len(inCgroups()) == 0 {
		t.Errorf("the node was not ready, or is not in cgroups of its own; the test would prove nothing")
	}
	must(t, command.Process.Kill())
	_ = command.Wait()
	deadline := time.Now().Add(2 * time.Minute)
	for len(inCgroups()) > 0 && time.Now().Before(deadline) {
		pause(t, 100*time.Millisecond)
	}
	if left := inCgroups(); len(left) > 0 {
		t.Errorf("after the test was killed there are %q", left)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	if strings.Contains(string(mounts), " rig ") {
		t.Errorf("after the test was killed there are mounts of it:\n%s", mounts)
	}
	interfaces, err := net.Interfaces()
	must(t, err)
	for _, i := range interfaces {
		if strings.HasPrefix(i.Name, "rig") {
			t.Errorf("after the test was killed there is the interface %s", i.Name)
		}
	}
	if after := settings(); !slices.Equal(before, after) {
		t.Errorf("the kernel's settings are %q, want %q as before", after, before)
	}
}

// rulesOf is how many findings of a rule a plan has.
func rulesOf(p *plan.Plan, id string) (found int) {
	for _, finding := range rules.Check(p) {
		if finding.Rule == id {
			found++
		}
	}
	return found
}
