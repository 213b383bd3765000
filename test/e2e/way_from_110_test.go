//go:build e2e && linux

package e2e

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// bound tells objects that cannot leave a side before 1.12.
func bound(name, _ string) bool {
	resource, _, _ := strings.Cut(name, "/")
	return slices.Contains([]string{"statefulsets", "daemonsets", "controllerrevisions"}, resource)
}

// TestTheWayFrom110: a cluster of 1.10.13 goes the whole way to 1.36.3 alone, and back over every step. Its
// StatefulSets and DaemonSets cannot be handed over, which is said before anything changes; without them it is the way
// from 1.15.
func TestTheWayFrom110(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T) {
		const accept = "  accept: [{rule: FUS084, reason: its kubelets write the status of their nodes every 10 s}]\n"
		w := startWholeWay(t, 10, fewWorkloads, accept)
		f := w.nodesPair
		f.nodes[0].ConfigureKubelets("nodeStatusReportFrequency: 10s")

		install := w.fuses()

		f.run("sh", "-c", `sed 's/handedOver: \[/&statefulsets.apps, daemonsets.apps, /' `+w.handed+" > /root/all.yaml")
		out, err := f.nodes[0].Run(t.Context(), "fusionctl", "transition", "plan", w.fused, "/root/all.yaml",
			"--from-target", "systemd", "--to-target", "systemd", "--out", "/root/all.steps")
		if err == nil || !strings.Contains(out, "statefulsets, daemonsets stay") {
			t.Errorf("planning to hand StatefulSets and DaemonSets over = %v, want it refused:\n%s", err, out)
		}

		objects, custom := f.objects(pair.Legacy), w.customs(pair.Legacy)
		maps.DeleteFunc(objects, bound)
		w.schedules(pair.Legacy)
		hand := w.plan("hand", w.fused, w.handed)
		w.operates(pair.Legacy, 0, "")
		w.editManager("-cronjob,-deployment,-disruption,-garbagecollector,-horizontalpodautoscaling,-job,-replicaset")
		hand.killed("apply", "hand customresourcedefinitions over to the modern side", noOperators)
		hand.run("apply", noOperators)
		w.unchanged("handed over")
		w.has(objects)
		w.hasCustoms(pair.Modern, custom, "handed over")
		w.operates(pair.Modern, 1, "modern")
		w.schedules(pair.Modern)

		roles := w.plan("roles", w.handed, w.copied)
		roles.run("apply")
		over := w.plan("over", w.copied, w.over)
		w.crosses(over, "apply", 10, 36)
		w.proxy(36, f.Modern)

		retire := w.plan("retire", w.over, w.alone)
		retire.asks("apply", "statefulsets: demo/set: those of 1.10 cannot be handed over")
		retire.run("undo")
		for key, name := range map[string]string{"statefulsets": "set", "daemonsets": "daemon"} {
			must(t, f.admin.Call(t.Context(), http.MethodDelete, f.path(pair.Legacy, key)+"/"+name,
				object{"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}, nil))
			f.awaitReady(name, 0)
			delete(w.ready, name)
			maps.DeleteFunc(w.stays, func(pod, _ string) bool { return strings.HasPrefix(pod, name+"-") })
		}
		retire.asks("apply", "stop kube-apiserver, kube-controller-manager, kube-scheduler on cp-1")
		f.run("sh", "-c", "systemctl disable --now "+legacyUnits)
		retire.run("apply", "stop the legacy side of cp-1", agreed)
		w.withoutLegacy()
		w.unchanged("alone")
		w.has(objects)
		w.actsAlone()
		w.operates(pair.Modern, 1, "alone")

		w.unretires(retire)
		w.comesBack(10, install, hand, roles, over)
		provedOnNodes(t, "1.10.13", "1.36.3",
			"a cluster of 1.10.13 whose StatefulSets and DaemonSets were deleted becomes one of 1.36.3 alone by "+
				"fusionctl transition and comes back over every step: no pod is lost, exactly the predicted "+
				"containers restart, and the files are those of before; with them it ends, named, before it is retired")
	}, fusionctlEnv, reconcilerEnv)
}
