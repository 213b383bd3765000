//go:build e2e && linux

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/test/rig"
)

// fault is something that happens to a part, and is over when it returns. meanwhile is looked at while the part is
// away.
type fault struct {
	what string
	does func(meanwhile func())
}

// TestFaultsOnRealNodes: while pods of both sides run, one part after the other is killed, or a store stopped, or one
// of its three members; no container is restarted, no pod is lost or doubled. The same while Deployments of both sides
// roll. Then a node vanishes, and the pods of both sides are created anew on the other, each by its own side.
func TestFaultsOnRealNodes(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T) {
		f := startNodes(t, rig.PairSpec{Legacy: "1.15.12", Modern: "1.36.3", Members: 3}, 2)
		for _, side := range pair.Sides() {
			f.deploy(side, "deployment-"+string(side), 2, serves())
		}
		for _, side := range pair.Sides() {
			f.awaitReady("deployment-"+string(side), 2)
		}
		for _, fault := range f.faults() {
			before := f.started()
			stays := func() {
				f.Throughout(3*time.Second, "while "+fault.what+" is away or just back", func(context.Context) error {
					if after := f.started(); !maps.Equal(before, after) {
						return fmt.Errorf("the containers are %v, want %v as before", after, before)
					}
					return nil
				})
			}
			fault.does(stays)
			f.bothAnswer(fault.what)
			stays()
		}
		f.rollThrough()
		f.vanish()
		provedOnNodes(t, "1.15.12", "1.36.3",
			"while pods run, a killed kubelet, container runtime, service proxy, API server or controller of either "+
				"side, a stopped store, or any killed member of a store of three, restarts no container, and loses "+
				"and doubles no pod; without a member both sides go on",
			"while Deployments of both sides roll, each of these is killed in turn: at the end there are as many "+
				"pods as wanted, all of the new template, and no container was restarted",
			"when a node vanishes, pods of both sides are evicted and created anew on another node by their own side")
	}, fusionctlEnv, reconcilerEnv)
}

// faults are those of every part. With one member of each store away both sides go on; with the rest nobody asks
// meanwhile.
func (f *nodesPair) faults() []fault {
	n := f.nodes[0]
	again := func(p *rig.Process) func(func()) { return func(func()) { p.Kill(); p.StartAgain() } }
	ready := func(s *rig.APIServer) func(func()) {
		return func(func()) { s.Kill(); s.StartAgain(); s.WaitReady() }
	}
	all := func(store *rig.Etcd) func(func()) { return func(func()) { store.Stop(); store.Start() } }
	list := []fault{
		{"a kubelet", func(func()) { n.Kubelet.Kill(); n.Kubelet.StartAgain(); n.WaitReady(f.Legacy) }},
		{"a container runtime",
			func(func()) { n.Containerd.Kill(); n.Containerd.StartAgain(); n.WaitReady(f.Legacy) }},
		{"a service proxy", again(n.Proxy)},
		{"the legacy API server", ready(f.Legacy)},
		{"the modern API server", ready(f.Modern)},
		{"the store of the legacy side", all(f.Stores["core"])},
		{"the store of the modern side", all(f.Stores["modern"])},
		{"the controllers of both sides", again(f.controllers)},
	}
	for i := range f.Stores["core"].Members {
		list = append(list, fault{fmt.Sprintf("member %d of each store", i+1), func(meanwhile func()) {
			for _, store := range f.Stores {
				store.Members[i].Kill()
			}
			f.bothAnswer(fmt.Sprintf("member %d of each store is away", i+1))
			meanwhile()
			for _, store := range f.Stores {
				store.Members[i].StartAgain()
			}
			for _, store := range f.Stores {
				store.AwaitMembers()
			}
		}})
	}
	return list
}

// bothAnswer: both servers read and write again.
func (f *nodesPair) bothAnswer(when string) {
	f.t.Helper()
	start := time.Now()
	for _, side := range pair.Sides() {
		f.Eventually(when+": the "+string(side)+" server answers", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // a request may hang on what is gone
			defer cancel()
			if err := f.client(side).Call(ctx, http.MethodGet, demoPods, nil, nil); err != nil {
				return err
			}
			return f.client(side).Call(ctx, http.MethodPatch, f.path(side, "deployments")+"/deployment-"+string(side),
				object{"metadata": object{"annotations": object{"asked": when}}}, nil)
		})
	}
	f.t.Logf("%s: both sides write after %s", when, time.Since(start).Round(10*time.Millisecond))
}

// rollThrough: while Deployments of both sides roll again and again, one part after the other is killed.
func (f *nodesPair) rollThrough() {
	t := f.t
	t.Helper()
	for i, fault := range f.faults() {
		value := fmt.Sprint(i + 1)
		spec := serves()
		spec["containers"].([]object)[0]["env"] = []object{{"name": "GENERATION", "value": value}}
		for _, side := range pair.Sides() {
			f.Eventually("another template of the "+string(side)+" side", func(ctx context.Context) error {
				return f.client(side).Call(ctx, http.MethodPatch,
					f.path(side, "deployments")+"/deployment-"+string(side), object{"spec": object{
						"template": object{"metadata": object{"labels": object{"generation": value}}, "spec": spec}}},
					nil)
			})
		}
		start := time.Now()
		rolled := func() {
			for _, side := range pair.Sides() {
				f.awaitGeneration(side, value, fault.what)
			}
			t.Logf("Deployments of both sides have rolled while %s was killed, after %s", fault.what,
				time.Since(start).Round(100*time.Millisecond))
		}
		away := false
		fault.does(func() { away = true; rolled() })
		if !away {
			rolled()
		}
	}
}

// awaitGeneration waits until a side's Deployment has as many pods as it wants, all of the generation and ready.
func (f *nodesPair) awaitGeneration(side pair.Side, value, what string) {
	f.t.Helper()
	name := "deployment-" + string(side)
	f.Eventually(name+" rolls while "+what+" is killed", func(ctx context.Context) error {
		pods, err := f.pods(ctx, name)
		if err != nil {
			return err
		}
		for i := range pods {
			if p := &pods[i]; p.Metadata.Labels["generation"] != value || !p.ready() {
				return fmt.Errorf("pod %s is of generation %s, ready: %t", p.Metadata.Name,
					p.Metadata.Labels["generation"], p.ready())
			}
		}
		if len(pods) != 2 {
			return fmt.Errorf("%d pods, want 2", len(pods))
		}
		for i := range pods {
			if restarts := pods[i].Status.ContainerStatuses[0].RestartCount; restarts > 0 {
				f.t.Fatalf("pod %s was restarted %d times", pods[i].Metadata.Name, restarts)
			}
		}
		return nil
	})
}

// soonEvicted are pods that do not wait five minutes for their node to come back.
func soonEvicted() object {
	spec := serves()
	tolerate := func(key string) object {
		return object{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2}
	}
	spec["tolerations"] = []object{tolerate("node.kubernetes.io/not-ready"), tolerate("node.kubernetes.io/unreachable")}
	return spec
}

// started are the containers of all pods, by pod and UID, with the number of their restarts.
func (f *nodesPair) started() map[string]string {
	f.t.Helper()
	var containers map[string]string
	f.Eventually("listing pods", func(ctx context.Context) error {
		pods, err := f.pods(ctx, "")
		containers = seenContainers(pods)
		return err
	})
	return containers
}

// seenContainers are the containers of pods, by name and UID, and how often each has restarted.
func seenContainers(pods []seenOnNode) map[string]string {
	containers := map[string]string{}
	for _, p := range pods {
		for _, c := range p.Status.ContainerStatuses {
			containers[p.Metadata.Name+" "+p.Metadata.UID] = fmt.Sprintf("%s %d", c.ContainerID, c.RestartCount)
		}
	}
	return containers
}

// vanish takes a node's power on which pods of both sides run.
func (f *nodesPair) vanish() {
	t := f.t
	t.Helper()
	before := map[pair.Side][]seenOnNode{}
	for _, side := range pair.Sides() {
		name, spec := "evicted-"+string(side), soonEvicted()
		// one on each node: the legacy scheduler does not know that the pods of the modern side belong together
		spec["affinity"] = object{"podAntiAffinity": object{
			"preferredDuringSchedulingIgnoredDuringExecution": []object{{"weight": 100, "podAffinityTerm": object{
				"topologyKey":   "kubernetes.io/hostname",
				"labelSelector": object{"matchLabels": object{"workload": name}}}}}}}
		f.deploy(side, name, 2, spec)
	}
	for _, side := range pair.Sides() {
		before[side] = f.awaitReady("evicted-"+string(side), 2)
	}
	gone := f.nodes[1]
	gone.Kill()
	for _, side := range pair.Sides() {
		name := "evicted-" + string(side)
		on := func(p seenOnNode) bool { return p.Spec.NodeName == gone.Name }
		if !slices.ContainsFunc(before[side], on) {
			t.Errorf("no pod of %s is on the node that vanishes: the test proves nothing of them", name)
		}
		f.Eventually("the pods of "+name+" run on the node that is left", func(ctx context.Context) error {
			pods, err := f.pods(ctx, name)
			if err != nil {
				return err
			}
			ready := 0
			for i := range pods {
				if pods[i].ready() && !on(pods[i]) {
					ready++
				}
			}
			if ready != 2 {
				return fmt.Errorf("%d pods are ready there, want 2: %+v", ready, pods)
			}
			return nil
		})
		for _, p := range before[side] { // those of the other node are the same
			now, err := f.pods(t.Context(), name)
			must(t, err)
			if !on(p) && !slices.ContainsFunc(now, func(q seenOnNode) bool {
				return q.Metadata.UID == p.Metadata.UID && q.ready()
			}) {
				t.Errorf("pod %s of the node that is left is gone", p.Metadata.Name)
			}
		}
	}
}
