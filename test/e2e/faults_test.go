//go:build e2e && linux

package e2e

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// TestFaultsOnRealNodes: while pods of both sides run, one part after the other is killed, or a store stopped; no
// container is restarted, no pod is lost or doubled. Then a node vanishes, and the pods of both sides are created anew
// on the other, each by its own side.
func TestFaultsOnRealNodes(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T) {
		f := startNodesPair(t, "1.15.12", "1.36.3", 2)
		for _, side := range pair.Sides() {
			f.deploy(side, "deployment-"+string(side), 2, soonEvicted())
		}
		for _, side := range pair.Sides() {
			f.awaitReady("deployment-"+string(side), 2)
		}
		n := f.nodes[0]
		for what, fault := range map[string]func(){
			"a kubelet": func() { n.Kubelet.Kill(); n.Kubelet.StartAgain(); n.WaitReady(f.Legacy) },
			"a container runtime": func() {
				n.Containerd.Kill()
				n.Containerd.StartAgain()
				n.WaitReady(f.Legacy)
			},
			"a service proxy":               func() { n.Proxy.Kill(); n.Proxy.StartAgain() },
			"the legacy API server":         func() { f.Legacy.Kill(); f.Legacy.StartAgain(); f.Legacy.WaitReady() },
			"the modern API server":         func() { f.Modern.Kill(); f.Modern.StartAgain(); f.Modern.WaitReady() },
			"the store of the legacy side":  func() { f.Stores["core"].Stop(); f.Stores["core"].Start() },
			"the store of the modern side":  func() { f.Stores["modern"].Stop(); f.Stores["modern"].Start() },
			"the controllers of both sides": func() { f.controllers.Kill(); f.controllers.StartAgain() },
		} {
			before := f.started()
			fault()
			f.Eventually("after "+what+" was stopped: both servers answer", func(ctx context.Context) error {
				for _, side := range pair.Sides() {
					if err := f.client(side).Call(ctx, "GET", demoPods, nil, nil); err != nil {
						return err
					}
				}
				return nil
			})
			f.Throughout(5*time.Second, "after "+what+" was stopped", func(context.Context) error {
				if after := f.started(); !maps.Equal(before, after) {
					return fmt.Errorf("the containers are %v, want %v as before", after, before)
				}
				return nil
			})
		}
		f.rollThrough()
		f.vanish()
		provedOnNodes(t, "1.15.12", "1.36.3",
			"while pods run, a killed kubelet, container runtime, service proxy, API server or controller of either "+
				"side, or a stopped store, restarts no container, and loses and doubles no pod",
			"while Deployments of both sides roll, each of these is killed in turn: at the end there are as many "+
				"pods as "+
				"wanted, all of the new template, and no container was restarted",
			"when a node vanishes, pods of both sides are evicted and created anew on another node by their own side")
	}, fusionctlEnv, reconcilerEnv)
}

// rollThrough: while Deployments of both sides roll again and again, one part after the other is killed.
func (f *nodesPair) rollThrough() {
	t := f.t
	t.Helper()
	n := f.nodes[0]
	generation := 0
	for what, fault := range map[string]func(){
		"a kubelet":                     func() { n.Kubelet.Kill(); n.Kubelet.StartAgain() },
		"a container runtime":           func() { n.Containerd.Kill(); n.Containerd.StartAgain() },
		"the legacy API server":         func() { f.Legacy.Kill(); f.Legacy.StartAgain(); f.Legacy.WaitReady() },
		"the modern API server":         func() { f.Modern.Kill(); f.Modern.StartAgain(); f.Modern.WaitReady() },
		"the store of the legacy side":  func() { f.Stores["core"].Stop(); f.Stores["core"].Start() },
		"the controllers of both sides": func() { f.controllers.Kill(); f.controllers.StartAgain() },
	} {
		generation++
		value := fmt.Sprint(generation)
		spec := soonEvicted()
		spec["containers"].([]object)[0]["env"] = []object{{"name": "GENERATION", "value": value}}
		for _, side := range pair.Sides() {
			must(t, f.client(side).Call(t.Context(), "PATCH", f.path(side, "deployments")+"/deployment-"+string(side),
				object{"spec": object{"template": object{"metadata": object{"labels": object{"generation": value}},
					"spec": spec}}}, nil))
		}
		start := time.Now()
		fault()
		for _, side := range pair.Sides() {
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
				for _, c := range []seenOnNode{pods[0], pods[1]} {
					if restarts := c.Status.ContainerStatuses[0].RestartCount; restarts > 0 {
						t.Fatalf("pod %s was restarted %d times", c.Metadata.Name, restarts)
					}
				}
				return nil
			})
		}
		t.Logf("Deployments of both sides have rolled while %s was killed, after %s", what,
			time.Since(start).Round(100*time.Millisecond))
	}
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
	containers := map[string]string{}
	f.Eventually("listing pods", func(ctx context.Context) error {
		pods, err := f.pods(ctx, "")
		for _, p := range pods {
			for _, c := range p.Status.ContainerStatuses {
				containers[p.Metadata.Name+" "+p.Metadata.UID] = fmt.Sprintf("%s %d", c.ContainerID, c.RestartCount)
			}
		}
		return err
	})
	return containers
}

// vanish takes the second node's power.
func (f *nodesPair) vanish() {
	f.t.Helper()
	gone := f.nodes[1]
	gone.Kill()
	for _, side := range pair.Sides() {
		name := "deployment-" + string(side)
		f.Eventually("the pods of "+name+" run on the node that is left", func(ctx context.Context) error {
			pods, err := f.pods(ctx, name)
			if err != nil {
				return err
			}
			ready := 0
			for i := range pods {
				if pods[i].ready() && pods[i].Spec.NodeName != gone.Name {
					ready++
				}
			}
			if ready < 2 {
				return fmt.Errorf("%d pods are ready there, want 2: %+v", ready, pods)
			}
			return nil
		})
	}
}
