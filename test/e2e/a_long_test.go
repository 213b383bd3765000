//go:build e2e && linux

package e2e

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// Tests begin in the order of the names of their files, a few at a time. These take longest, most of it waiting: they
// are in the first file, for the one that begins last goes on alone.

// TestEverythingDiesOnTheWay: at each step of each transition of the whole way, forth and back, something is killed
// that runs then: a member of a store, which is its quorum, an API server, a controller, a scheduler, the kubelet, or
// fusionctl itself. What stops for that goes on when it is run again. No pod is lost, no container restarts but those
// that were predicted, and at the end the files are those of before.
func TestEverythingDiesOnTheWay(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T) {
		w := startWholeWay(t, 15, newWorkloads, "")
		f := w.nodesPair
		w.dying = &dying{}

		install := w.fuses()

		objects, custom := f.objects(pair.Legacy), w.customs(pair.Legacy)
		hand := w.plan("hand", w.fused, w.handed)
		w.operates(pair.Legacy, 0, "")
		w.editManager(givenUp)
		hand.run("apply", noOperators)
		w.unchanged("handed over")
		w.has(objects)
		w.hasCustoms(pair.Modern, custom, "handed over")
		w.operates(pair.Modern, 1, "modern")

		roles := w.plan("roles", w.handed, w.copied)
		roles.run("apply")
		over := w.plan("over", w.copied, w.over)
		w.crosses(over, "apply", 15, 36)
		w.proxy(36, f.Modern)

		retire := w.plan("retire", w.over, w.alone)
		retire.asks("apply", "stop kube-apiserver, kube-controller-manager, kube-scheduler on cp-1")
		f.run("sh", "-c", "systemctl disable --now "+legacyUnits)
		retire.run("apply", "stop the legacy side of cp-1", agreed)
		w.withoutLegacy()
		w.unchanged("alone")
		w.has(objects)
		w.actsAlone()

		w.unretires(retire)
		w.comesBack(15, install, hand, roles, over)
		t.Logf("killed %d times: %v; apply and undo were run again %d times", w.dying.times, w.dying.what,
			w.dying.again)
		for _, unit := range strings.Fields(mortals) {
			if w.dying.what[unit] == 0 {
				t.Errorf("%s was never killed", unit)
			}
		}
		if w.dying.times < 200 {
			t.Errorf("only %d times something was killed", w.dying.times)
		}
		provedOnNodes(t, "1.15.12", "1.36.3",
			"at each step of install, hand over, roles, nodes over and retire, and of the way back over each, a "+
				"member of a store, an API server, a controller, a scheduler, the kubelet or fusionctl is killed: "+
				"run again, it goes on; no pod is lost, and only the predicted containers restart")
	}, fusionctlEnv, reconcilerEnv)
}

// TestRunbook follows a runbook to its end and back. A cluster as kubeadm makes it runs, with pods; fusionctl reads its
// manifests and renders the plan, and every command of the rendered runbook is executed as it stands, each Verify
// compared with what it says it answers; then every Go back, in the order that the runbook says. The pods of the
// cluster live through all of it.
func TestRunbook(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T) {
		f := startLegacyCluster(t)
		f.followRunbook(render.StaticPod)
		provedOnNodes(t, "1.15.12", "1.36.3",
			"a cluster as kubeadm makes it went into fusion and back by the rendered "+
				"runbook, every command of it executed: its pods have the UIDs, containers and restart counts that "+
				"they had, and its garbage collector works as before")
	}, fusionctlEnv)
}

// TestRunbookOnSeveralHosts follows a runbook for systemd on three hosts, each with a member of both stores: a cluster
// that runs as units of systemd goes into fusion and back.
func TestRunbookOnSeveralHosts(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T) {
		f := startLegacyUnits(t, 15, 3)
		f.followRunbook(render.Systemd)
		provedOnNodes(t, "1.15.12", "1.36.3",
			"a cluster of three hosts that runs as units of systemd went into fusion and back by the rendered "+
				"runbook, every command of it executed on the hosts that it names: its pods have the UIDs, "+
				"containers and restart counts that they had, and its garbage collector works as before")
	}, fusionctlEnv)
}

// TestTransitionOnRealNode: a cluster as kubeadm makes it, with pods, goes into fusion and back by `fusionctl
// transition` on its own machine. apply and undo are killed while components start and stop, and go on.
func TestTransitionOnRealNode(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T) {
		f := startLegacyCluster(t)
		f.writeKubeconfigs()
		before, files := f.started(), f.run("sh", "-c", checksums)
		steps := f.planTransition()
		const put = "put /etc/kubernetes/manifests/"

		f.stops("apply", "", "wait for etcd-modern", steps)
		f.fails("apply", "", "kube-controller-manager runs without")
		f.run("cp", manager, "/root/manager.before")
		f.edit(manager, manager, "s|^    - --controllers=.*|&,-garbagecollector|")
		f.Eventually("the manager has its argument", f.hasArgument("-garbagecollector"))
		f.stops("apply", "", put+"kube-apiserver-modern.yaml", steps)
		f.stops("apply", "", put+"kube-controller-manager-modern.yaml", steps)
		f.fails("apply", "", "to be done by hand: allow user fusionctl-controllers")
		f.kubectlMust(pair.Legacy, "--namespace=default", "apply", "-f",
			filepath.Join(f.runbook(render.StaticPod), "legacy-access.yaml"))
		permissions := steps["permissions on the legacy side"]
		f.stops("apply", permissions, put+"fusionctl-controllers.yaml", steps)
		f.transition("apply", permissions)

		f.deploy(pair.Modern, "modern", 2, serves())
		f.awaitReady("modern", 2)
		f.same(before, "in fusion")
		if out := f.run("fusionctl", "etcd", "check", "/root/spec.yaml"); !strings.Contains(out, "0 errors") {
			t.Errorf("the stores in fusion: %s", out)
		}
		must(t, f.user.Call(t.Context(), http.MethodDelete, f.path(pair.Modern, "deployments")+"/modern",
			object{"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}, nil))
		f.awaitReady("modern", 0)

		f.haveFinalizer(true)
		f.stops("undo", "", put+"fusionctl-controllers.yaml", steps)
		f.stops("undo", "", "take out what the controllers of both sides leave behind", steps)
		f.stops("undo", "", put+"kube-apiserver-modern.yaml", steps)
		f.haveFinalizer(false)
		f.kubectlMust(pair.Legacy, "--namespace=default", "delete", "-f",
			filepath.Join(f.Dir(), "tree", "legacy-access.yaml"))
		f.fails("undo", "", "to be done by hand: take back")
		f.edit("/root/manager.before", manager, "")
		f.stops("undo", steps["check the arguments of kube-controller-manager"], put+"etcd-modern.yaml", steps)
		f.transition("undo", "")

		f.same(before, "after the way back")
		f.asBefore(render.StaticPod)
		if after := f.run("sh", "-c", checksums); after != files {
			t.Errorf("the files are\n%s\nwant as before\n%s", after, files)
		}
		provedOnNodes(t, "1.15.12", "1.36.3",
			"a cluster as kubeadm makes it goes into fusion and back by fusionctl transition, killed while "+
				"components start and stop: its pods have the UIDs, containers and restart counts that they had, its "+
				"manifests the same bytes")
	}, fusionctlEnv)
}
