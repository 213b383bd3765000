//go:build e2e && linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/restart"
	"github.com/kubefusion/fusionctl/test/rig"
)

// TestTransitionTakesANodeOver: `fusionctl transition` connects the kubelet of a real node, 1.15.12 as a unit of
// systemd, to the modern API server, as one of 1.36.3, and back, killed while it does so. Pods of both sides stay;
// exactly the predicted containers restart, once each way. It stops beforehand where a PodDisruptionBudget forbids what
// restarts, and a kubelet that does not start is undone.
func TestTransitionTakesANodeOver(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T) {
		const legacy = kubever.Minor(15)
		f := startNodes(t, rig.PairSpec{Legacy: "1.15.12", Modern: "1.36.3", More: "  kubelet: {modern: {}}\n"}, 0)
		n := f.startUnitNode("node-1", legacy)
		for _, side := range pair.Sides() {
			f.deploy(side, "deployment-"+string(side), 2, serves())
			f.create(side, demoPods, object{"metadata": object{"name": "daemon-" + string(side),
				"labels": object{"workload": "daemon-" + string(side)}}, "spec": serves()})
		}
		for _, side := range pair.Sides() {
			f.awaitReady("deployment-"+string(side), 2)
			f.awaitReady("daemon-"+string(side), 1)
		}
		f.brokenKubelet(n)
		over := f.planNodes("over", f.SpecFile, f.withNode("over", n, f.kubeletProgram(36)))

		f.create(pair.Legacy, "/apis/policy/v1beta1/namespaces/demo/poddisruptionbudgets", object{
			"metadata": object{"name": "whole"}, "spec": object{"minAvailable": 2,
				"selector": object{"matchLabels": object{"workload": "deployment-legacy"}}}})
		over.fails("apply", "demo/whole")
		must(t, f.admin.Call(t.Context(), http.MethodDelete,
			"/apis/policy/v1beta1/namespaces/demo/poddisruptionbudgets/whole", nil, nil))

		before, pods := f.containersNow()
		forth := predict(t, f.kubeconfigs[pair.Legacy], n, legacy, 36, len(before))
		over.killed("apply", "change the kubelet of node-1")
		over.run("apply")
		f.onNode(n, "1.36.3", before, pods, forth)
		f.reached("daemon-"+string(pair.Legacy), 36)
		f.onlyModernHasCSINodes()
		f.deploy(pair.Modern, "later", 1, serves())
		f.awaitReady("later", 1)

		before, pods = f.containersNow()
		back := predict(t, f.kubeconfigs[pair.Legacy], n, 36, legacy, len(before))
		over.killed("undo", "change the kubelet of node-1")
		over.run("undo")
		f.onNode(n, "1.15.12", before, pods, back)
		f.reached("daemon-"+string(pair.Modern), legacy)
		out, err := n.Run(t.Context(), "ls", "-R", "/etc/systemd/system", "/etc/kubernetes")
		if err != nil || !strings.Contains(out, "kubelet.service") ||
			strings.Contains(out, "fusionctl") || strings.Contains(out, "kubelet-modern") {
			t.Errorf("after the way back there are still: %v %s", err, out)
		}
		provedOnNodes(t, "1.15.12", "1.36.3",
			"fusionctl transition moves a node to the modern API server with a kubelet of its release, and back, "+
				"killed meanwhile: no pod is lost, the node is ready for both sides, exactly the predicted containers "+
				"restart, once each time; a PodDisruptionBudget that forbids it is named beforehand")
	}, fusionctlEnv, reconcilerEnv)
}

// brokenKubelet: one that does not start is noticed, and undone, while the pods run on as if nothing had been.
func (f *nodesPair) brokenKubelet(n *rig.Node) {
	t := f.t
	t.Helper()
	before, pods := f.containersNow()
	program := filepath.Join(f.Dir(), "broken", "kubelet")
	writeTo(t, f.Dir(), "broken/kubelet", []byte("#!/bin/sh\n[ \"$1\" = --version ] && echo Kubernetes v1.36.3\n"))
	must(t, os.Chmod(program, 0o755))
	broken := f.planNodes("broken", f.SpecFile, f.withNode("broken", n, program))
	broken.wait = "30s"
	broken.fails("apply", "its kubelet is v1.15.12, want 1.36.3")
	broken.wait = patientWait
	broken.run("undo")
	must(t, f.nodeIs(t.Context(), n, "1.15.12"))
	if now, left := f.containersNow(); left != pods || !maps.Equal(now, before) {
		t.Errorf("after a kubelet that did not start, the pods are %s, %v; want %s, %v", left, now, pods, before)
	}
}

// startUnitNode starts a machine whose kubelet is a unit, as distributions have it.
func (f *nodesPair) startUnitNode(name string, minor kubever.Minor) *rig.Node {
	t := f.t
	t.Helper()
	n := f.StartMachine(name)
	f.nodes = append(f.nodes, n)
	f.kubeletUnit(n, minor)
	n.StartProxy(minor, f.Legacy)
	f.Eventually("the node is ready", func(ctx context.Context) error {
		return f.nodeIs(ctx, n, kubever.Release(minor))
	})
	return n
}

// kubeletUnit runs the kubelet of a machine as a unit, at the legacy API server.
func (f *nodesPair) kubeletUnit(n *rig.Node, minor kubever.Minor) {
	t, name := f.t, n.Name
	t.Helper()
	kubeconfig, err := f.PKI.Kubeconfig(name+"-kubelet", f.Legacy.URL, "system:node:"+name, "system:nodes")
	must(t, err)
	program := f.kubeletProgram(minor)
	unit := "[Unit]\nDefaultDependencies=no\n[Service]\nKillMode=process\nRestart=always\nRestartSec=1\n" +
		"Environment=" + strings.Join(rig.KubeletEnv(minor), " ") + "\nStandardError=append:/var/log/kubelet.log\n" +
		"ExecStart=" + program + " " + strings.Join(n.KubeletArgs(minor, kubeconfig), " ") + "\n"
	must(t, n.WriteFile("/etc/systemd/system/kubelet.service", []byte(unit), 0o644))
	f.runOn(n, "systemctl", "daemon-reload")
	f.runOn(n, "systemctl", "start", "--no-block", "kubelet")
}

// kubeletProgram is the kubelet of a release under its own name.
func (f *nodesPair) kubeletProgram(minor kubever.Minor) string {
	f.t.Helper()
	binary, err := rig.Binary("kubelet", minor)
	must(f.t, err)
	file := filepath.Join(f.Dir(), filepath.Base(binary), "kubelet")
	must(f.t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(f.t, os.Symlink(binary, file))
	return file
}

// withNode is the spec of the pair with the node at the modern API server.
func (f *nodesPair) withNode(name string, n *rig.Node, program string) string {
	t := f.t
	t.Helper()
	cert, key, err := f.PKI.Client(n.Name+"-"+name, "system:node:"+n.Name, "system:nodes")
	must(t, err)
	var args []string
	for _, a := range n.KubeletArgs(36, "") {
		name, value, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		if name != "kubeconfig" {
			args = append(args, fmt.Sprintf("{name: %s, value: %q}", name, value))
		}
	}
	text, err := os.ReadFile(f.SpecFile)
	must(t, err)
	const without = "kubelet: {modern: {}}"
	if !strings.Contains(string(text), without) {
		t.Fatalf("%s has no %s", f.SpecFile, without)
	}
	file := filepath.Join(f.Dir(), name+".yaml")
	with := fmt.Sprintf("kubelet: {modern: {program: %s, ca: %s, cert: %s, key: %s, nodes: [{name: %s, address: %s}], "+
		"args: [%s]}}", program, f.PKI.File("ca.crt"), cert, key, n.Name, n.Address,
		strings.Join(args, ", "))
	must(t, os.WriteFile(file, []byte(strings.Replace(string(text), without, with, 1)), 0o600))
	return file
}

// wayOfNodes is a file of steps, which are done from the pair's host; those of nodes over a command in place of ssh.
type wayOfNodes struct {
	f       *nodesPair
	program string
	file    string
	ids     map[string]string // by title
	wait    string
}

const patientWait = "4m"

func (f *nodesPair) planNodes(name, from, to string) *wayOfNodes {
	t := f.t
	t.Helper()
	program, err := fusionctl()
	must(t, err)
	w := &wayOfNodes{f: f, program: program, file: filepath.Join(f.Dir(), name+".steps"), ids: map[string]string{},
		wait: patientWait}
	must(t, os.WriteFile(w.file+".sh", []byte("#!/bin/sh\nshift\n"+f.nodes[0].Enter()+"\n"), 0o755))
	words := []string{"transition", "plan", from, to, "--out", w.file, "-o", "json"}
	out, err := exec.CommandContext(t.Context(), program, words...).CombinedOutput()
	if err != nil {
		t.Fatalf("transition plan: %v\n%s", err, out)
	}
	var printed struct{ Steps []struct{ ID, Title string } }
	must(t, json.Unmarshal(out, &printed))
	for _, s := range printed.Steps {
		w.ids[s.Title] = s.ID
	}
	return w
}

func (w *wayOfNodes) words(verb string) []string {
	dir := w.f.Dir()
	return []string{w.program, "transition", verb, w.file, "--yes", "--wait", w.wait, "-o", "json", "--lock",
		filepath.Join(dir, "transition.lock"), "--ssh=" + w.file + ".sh", "--ssh-program", w.program}
}

func (w *wayOfNodes) run(verb string) {
	t := w.f.t
	t.Helper()
	start := time.Now()
	words := w.words(verb)
	if out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", verb, err, out)
	}
	t.Logf("%s to its end after %s", verb, time.Since(start).Round(time.Millisecond))
}

func (w *wayOfNodes) fails(verb, says string) {
	t := w.f.t
	t.Helper()
	words := w.words(verb)
	out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), says) {
		t.Fatalf("%s = %v, want it to fail and to say %q:\n%s", verb, err, says, out)
	}
}

// killed kills apply or undo when it has begun the first step whose title begins so.
func (w *wayOfNodes) killed(verb, title string) {
	t := w.f.t
	t.Helper()
	event := map[string]string{"apply": "begun", "undo": "undoing"}[verb]
	id := ""
	for name, number := range w.ids {
		if strings.HasPrefix(name, title) {
			id = number
		}
	}
	if id == "" {
		t.Fatalf("no step %q: %v", title, w.ids)
	}
	words := w.words(verb)
	command := exec.CommandContext(t.Context(), words[0], words[1:]...)
	out, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	decoder := json.NewDecoder(out)
	for {
		var record struct{ Step, Event string }
		if err := decoder.Decode(&record); err != nil {
			t.Fatalf("%s, to be killed at step %s: %v", verb, id, err)
		}
		if record.Step == id && record.Event == event {
			break
		}
	}
	must(t, command.Process.Kill())
	_ = command.Wait() // it was killed
}

// onNode: the node is ready in both sides' eyes with a kubelet of the release, its pods are those of before, and each
// container has restarted as often as was predicted.
func (f *nodesPair) onNode(n *rig.Node, release string, before map[string]int, pods string,
	verdicts map[string]predicted) {
	t := f.t
	t.Helper()
	must(t, f.nodeIs(t.Context(), n, release))
	f.Throughout(grace+stayed/2, "nothing else restarts, and the node is ready", func(ctx context.Context) error {
		now, left := f.containersNow()
		if left != pods {
			return fmt.Errorf("the pods are %s, want %s as before", left, pods)
		}
		for name, c := range verdicts {
			want := before[name]
			if c.Verdict == restart.Restart {
				want++
			}
			if now[name] != want {
				return fmt.Errorf("%s has restarted %d times, want %d: its verdict is %s", name, now[name], want,
					c.Verdict)
			}
		}
		return f.nodeIs(ctx, n, release)
	})
	if !slices.ContainsFunc(slices.Collect(maps.Values(verdicts)), func(c predicted) bool {
		return c.Verdict == restart.Restart
	}) {
		t.Error("nothing was to restart: the test would prove little")
	}
}
