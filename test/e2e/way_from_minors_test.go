//go:build e2e && linux

package e2e

import (
	"testing"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/test/rig"
)

// TestTheWayFromMinors: clusters of releases whose API servers serve more of what 1.36 does than that of 1.15 go the
// whole way to 1.36.3 alone, and back over every step. `make rig` builds these releases on request alone.
func TestTheWayFromMinors(t *testing.T) {
	t.Parallel()
	for _, minor := range []kubever.Minor{20, 24} {
		t.Run(minor.String(), func(t *testing.T) {
			if _, err := rig.Binary("kubelet", minor); err != nil {
				t.Skip(err)
			}
			t.Parallel()
			wayFrom(t, minor)
		})
	}
}

// wayFrom goes the whole way, killed once, without the turns of TestTheWholeWay.
func wayFrom(t *testing.T, minor kubever.Minor) {
	t.Helper()
	onNodes(t, func(t *testing.T) {
		w := startWholeWay(t, minor, newWorkloads, "")
		f := w.nodesPair
		install := w.fuses()

		objects, custom := f.objects(pair.Legacy), w.customs(pair.Legacy)
		w.schedules(pair.Legacy)
		hand := w.plan("hand", w.fused, w.handed)
		w.operates(pair.Legacy, 0, "")
		w.editManager(givenUp)
		hand.killed("apply", "hand customresourcedefinitions over to the modern side", noOperators)
		hand.run("apply", noOperators)
		w.unchanged("handed over")
		w.has(objects)
		w.hasCustoms(pair.Modern, custom, "handed over")
		w.operates(pair.Modern, 1, "modern")
		w.schedules(pair.Modern)
		w.onDisk()

		roles := w.plan("roles", w.handed, w.copied)
		roles.run("apply")
		over := w.plan("over", w.copied, w.over)
		w.crosses(over, "apply", minor, 36)
		w.proxy(36, f.Modern)

		retire := w.plan("retire", w.over, w.alone)
		retire.asks("apply", "stop kube-apiserver, kube-controller-manager, kube-scheduler on cp-1")
		f.run("sh", "-c", "systemctl disable --now "+legacyUnits)
		retire.run("apply", "stop the legacy side of cp-1", agreed)
		w.withoutLegacy()
		w.unchanged("alone")
		w.has(objects)
		w.actsAlone()
		w.operates(pair.Modern, 1, "alone")
		w.onDisk()

		w.addressed()
		w.unretires(retire)
		w.keepsAddresses()
		w.comesBack(minor, install, hand, roles, over)
		release := kubever.Release(minor)
		provedOnNodes(t, release, "1.36.3",
			"a cluster of "+release+" becomes one of 1.36.3 alone by fusionctl transition and comes back over every "+
				"step: no pod is lost, exactly the predicted containers restart, and the files are those of before")
	}, fusionctlEnv, reconcilerEnv)
}
