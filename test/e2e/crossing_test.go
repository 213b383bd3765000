//go:build e2e && linux

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/restart"
	"github.com/kubefusion/fusionctl/pkg/rules"
	"github.com/kubefusion/fusionctl/test/rig"
)

// TestNodesGoOverAndBack: the kubelet of a node and its service proxy are replaced by those of the modern release,
// connected to the modern API server, while pods of both sides run there; then by the old ones again. The plan gives
// them their rights. No pod is lost, the node stays ready in the eyes of both sides, and exactly the containers that
// were predicted restart, once for each crossing.
func TestNodesGoOverAndBack(t *testing.T) {
	t.Parallel()
	for _, legacy := range []string{"1.15.12", "1.10.13"} {
		t.Run(legacy, func(t *testing.T) {
			t.Parallel()
			onNodes(t, func(t *testing.T) {
				f := startNodesPair(t, legacy, "1.36.3", 1, "  kubelet: {modern: {}}\n")
				n, old := f.nodes[0], f.Plan.Legacy.Version.Minor
				for _, side := range pair.Sides() {
					f.deploy(side, "deployment-"+string(side), 2, serves())
					f.create(side, demoPods, object{"metadata": object{"name": "daemon-" + string(side),
						"labels": object{"workload": "daemon-" + string(side)}}, "spec": serves()})
					f.create(side, "/api/v1/namespaces/demo/services",
						object{"metadata": object{"name": "service-" + string(side)}, "spec": object{
							"ports":    []object{{"port": 80, "targetPort": 8080}},
							"selector": object{"workload": "deployment-" + string(side)}}})
				}
				for _, side := range pair.Sides() {
					f.awaitReady("deployment-"+string(side), 2)
					f.awaitReady("daemon-"+string(side), 1)
				}
				// Without it a node of a legacy side that reads no Leases is NotReady when its grace is over.
				if blind := f.found("FUS084"); blind != (old < 13) {
					t.Errorf("rule FUS084 about the heartbeats says %t", blind)
				} else if blind {
					n.ConfigureKubelets("nodeStatusReportFrequency: 1s")
				}
				f.cross(n, old, f.Plan.ModernKubelet.Minor, f.Modern)
				f.services()
				f.reached("daemon-"+string(pair.Legacy), f.Plan.ModernKubelet.Minor)
				f.onlyModernHasCSINodes()
				for _, side := range pair.Sides() { // placed by the legacy scheduler, started by the new kubelet
					f.deploy(side, "later-"+string(side), 1, serves())
				}
				for _, side := range pair.Sides() {
					f.awaitReady("later-"+string(side), 1)
				}
				f.cross(n, f.Plan.ModernKubelet.Minor, old, f.Legacy)
				f.services()
				f.reached("daemon-"+string(pair.Modern), old)
				provedOnNodes(t, legacy, "1.36.3",
					"a node moves to the modern API server with kubelet and service proxy of its release, and "+
						"back, with the rights that the plan gives: no pod is lost, the node stays ready for both "+
						"sides, exactly the predicted containers restart, once each time; services, logs and exec of "+
						"both sides work, new pods of both sides start")
			}, fusionctlEnv, reconcilerEnv)
		})
	}
}

// found reports whether check has a finding of the rule about the plan.
func (f *nodesPair) found(rule string) bool {
	return slices.ContainsFunc(rules.Check(f.Plan), func(of finding.Finding) bool { return of.Rule == rule })
}

// cross replaces kubelet and service proxy of a node, connects them to a server, and compares what restarts with what
// was predicted.
func (f *nodesPair) cross(n *rig.Node, from, to kubever.Minor, server *rig.APIServer) {
	t := f.t
	t.Helper()
	before, pods := f.containersNow()
	verdicts := predict(t, f.kubeconfigs[pair.Legacy], n, from, to, len(before))
	start := time.Now()
	n.ReplaceKubelet(to, server)
	f.Eventually("the node has its new kubelet", func(ctx context.Context) error {
		return f.nodeIs(ctx, n, kubever.Release(to))
	})
	t.Logf("kubelet %s -> %s after %s", from, to, time.Since(start).Round(10*time.Millisecond))
	n.Proxy.Stop()
	n.StartProxy(to, server)
	check := func(context.Context) error {
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
				return fmt.Errorf("%s has restarted %d times, want %d: its verdict is %s, because %q", name, now[name],
					want, c.Verdict, c.Why)
			}
		}
		return nil
	}
	f.Eventually("the containers that are to be restarted are", check)
	f.Throughout(grace+stayed/2, "nothing else restarts, and the node is ready", func(ctx context.Context) error {
		if err := f.nodeIs(ctx, n, kubever.Release(to)); err != nil {
			return err
		}
		return check(ctx)
	})
}

// containersNow are the restarts of each container, and the pods with their UIDs.
func (f *nodesPair) containersNow() (restarts map[string]int, pods string) {
	f.t.Helper()
	list, err := f.pods(f.t.Context(), "")
	must(f.t, err)
	restarts = map[string]int{}
	var names []string
	for _, p := range list {
		names = append(names, p.Metadata.Name+"/"+p.Metadata.UID)
		for _, c := range p.Status.ContainerStatuses {
			restarts[p.Metadata.Name+"/"+c.Name] = c.RestartCount
		}
	}
	return restarts, strings.Join(names, " ")
}

// nodeIs returns nil when both sides say that the node is ready with a kubelet of the release.
func (f *nodesPair) nodeIs(ctx context.Context, n *rig.Node, release string) error {
	for _, server := range []*rig.APIServer{f.Legacy, f.Modern} {
		var node struct {
			Status struct {
				Conditions []struct{ Type, Status, Reason string }
				NodeInfo   struct{ KubeletVersion string }
			}
		}
		err := server.Client("rig-node", "system:masters").Call(ctx, http.MethodGet, "/api/v1/nodes/"+n.Name, nil,
			&node)
		if err != nil {
			return err
		}
		if node.Status.NodeInfo.KubeletVersion != "v"+release {
			return fmt.Errorf("the node's kubelet is %s, want %s", node.Status.NodeInfo.KubeletVersion, release)
		}
		for _, c := range node.Status.Conditions {
			if c.Type == "Ready" && c.Status != "True" {
				return fmt.Errorf("the node is %+v", c)
			}
		}
	}
	return nil
}

// reached: exec and logs of a pod on a kubelet of the minor through both servers, but for what rule FUS254 says.
func (f *nodesPair) reached(pod string, kubelet kubever.Minor) {
	f.t.Helper()
	for _, side := range pair.Sides() {
		f.Eventually("exec and logs through the "+string(side)+" server", func(ctx context.Context) error {
			if _, err := f.kubectl(ctx, side, "", "logs", pod); err != nil {
				return err
			}
			if side == pair.Modern && kubever.Behaves(kubever.BehaviourKubeletRedirectsStreams, kubelet) {
				return nil
			}
			out, err := f.inPod(ctx, side, pod, "echo", "here")
			if err == nil && !strings.Contains(out, "here") {
				err = fmt.Errorf("exec prints %q", out)
			}
			return err
		})
	}
}

// onlyModernHasCSINodes: the kubelet's CSINode is none that the legacy server would have to decode.
func (f *nodesPair) onlyModernHasCSINodes() {
	t := f.t
	t.Helper()
	fact, _ := kubever.ResourceByKey("csinodes")
	for _, side := range pair.Sides() {
		want := 0
		if side == pair.Modern {
			want = 1
		}
		for _, gv := range fact.Served(f.Plan.Side(side).Version.Minor) {
			f.Eventually("CSINodes through the "+string(side)+" server", func(ctx context.Context) error {
				var list struct{ Items []object }
				client := map[pair.Side]*rig.APIServer{pair.Legacy: f.Legacy, pair.Modern: f.Modern}[side].
					Client("rig-node", "system:masters")
				err := client.Call(ctx, http.MethodGet, "/apis/"+gv.String()+"/csinodes", nil, &list)
				if err == nil && len(list.Items) != want {
					err = fmt.Errorf("there are %d, want %d", len(list.Items), want)
				}
				return err
			})
		}
	}
}
