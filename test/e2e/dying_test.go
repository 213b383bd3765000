//go:build e2e && linux

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/test/rig"
)

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

		files := f.run("sh", "-c", unitSums)
		install := w.plan("install", "none", w.fused)
		w.editManager("-garbagecollector")
		f.kubectlMust(pair.Legacy, "--namespace=default", "apply", "-f",
			filepath.Join(f.runbook(render.Systemd), "legacy-access.yaml"))
		install.run("apply", "permissions on the legacy side")
		f.deploy(pair.Modern, "modern", 2, serves())
		f.awaitReady("modern", 2)
		w.unchanged("in fusion")

		objects, custom := f.objects(pair.Legacy), w.customs(pair.Legacy)
		hand := w.plan("hand", w.fused, w.handed)
		w.operates(pair.Legacy, 0, "")
		w.editManager(givenUp)
		hand.run("apply", noOperators)
		w.unchanged("handed over")
		w.has(objects)
		if got := w.customs(pair.Modern); !maps.Equal(got, custom) {
			t.Errorf("handed over, the modern side has %v, want %v", got, custom)
		}
		w.operates(pair.Modern, 1, "modern")

		roles := w.plan("roles", w.handed, w.copied)
		roles.run("apply")
		over := w.plan("over", w.copied, w.over)
		w.crosses(over, "apply", 15, 36)
		w.proxy(36, f.Modern)

		retire := w.plan("retire", w.over, w.alone)
		retire.asks("apply", "stop kube-apiserver, kube-controller-manager, kube-scheduler on cp-1")
		f.run("sh", "-c", "systemctl disable --now "+legacyUnits)
		const agreed = "the modern controllers act for everything from here on"
		retire.run("apply", "stop the legacy side of cp-1", agreed)
		w.withoutLegacy()
		w.unchanged("alone")
		w.has(objects)
		w.actsAlone()

		retire.asks("undo", "start kube-apiserver, kube-controller-manager, kube-scheduler on cp-1 again")
		f.run("sh", "-c", "systemctl enable --now --no-block "+legacyUnits)
		retire.run("undo", "stop the legacy side of cp-1")
		w.withLegacy()
		w.unchanged("with the legacy side again")
		w.proxy(15, f.Legacy)
		w.crosses(over, "undo", 36, 15)
		roles.run("undo")
		w.operates(pair.Modern, 0, "")
		objects, custom = f.objects(pair.Modern), w.customs(pair.Modern)
		maps.DeleteFunc(objects, func(name, _ string) bool { return strings.Contains(name, "/modern") })
		hand.asks("undo", "kube-controller-manager runs without", noOperatorsBack)
		w.editManager("-garbagecollector")
		hand.run("undo", noOperatorsBack)
		w.unchanged("handed back")
		f.are(pair.Legacy, objects)
		if got := w.customs(pair.Legacy); !maps.Equal(got, custom) {
			t.Errorf("handed back, the legacy side has %v, want %v", got, custom)
		}
		w.operates(pair.Legacy, 1, "back")
		w.onDisk()

		w.deleted("modern")
		w.editManager("")
		install.run("undo", "check the arguments of kube-controller-manager")
		w.unchanged("after the way back")
		f.asBefore(render.Systemd)
		if left := f.run("sh", "-c", unitSums); left != files {
			t.Errorf("the files are\n%s\nwant as before\n%s", left, files)
		}
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

// mortals are killed in turn, those that run: units, and fusionctl itself.
const mortals = "etcd kube-apiserver kube-controller-manager kube-scheduler fusionctl etcd-modern " +
	"kube-apiserver-modern kube-controller-manager-modern kube-scheduler-modern fusionctl-controllers kubelet"

// dying kills something at each step that begins, once for each step and direction.
type dying struct {
	what         map[string]int
	times, again int
}

// killing runs a command with what it prints on standard output looked at: $0 names steps that have had their death.
const killing = `
	run=$0; touch /root/died; : > /root/kills
	[ -e /root/turn ] || echo 0 > /root/turn
	kill_next() {
		set -- ` + mortals + `
		turn=$(cat /root/turn)
		tried=0
		while [ $tried -lt $# ]; do
			turn=$((turn + 1)); tried=$((tried + 1))
			eval "unit=\${$(((turn - 1) % $# + 1))}"
			if [ $unit = fusionctl ]; then
				kill -9 $(cat /root/pid) && break
			elif systemctl is-active --quiet $unit; then
				systemctl kill --signal=KILL $unit && break
			fi
		done
		echo $turn > /root/turn
		echo $unit >> /root/kills
	}
	rm -f /root/status
	{
		sh -c 'echo $$ > /root/pid; exec "$@"' sh "$@" 2> /root/errors
		echo $? > /root/status
	} | while read -r line; do
		echo "$line"
		case "$line" in *'"event":"begun"'*|*'"event":"undoing"'*)
			step=${line#*'"step":"'}; step=${step%%'"'*}
			grep -qx "$run $step" /root/died && continue
			echo "$run $step" >> /root/died
			kill_next
		esac
	done
	cat /root/errors
	sed 's/^/killed: /' /root/kills
	exit $(cat /root/status)`

// run runs apply or undo until it comes to its end, or says what a person has to do.
func (d *dying) run(s *stepsOnHost, verb, says string, done ...string) {
	t := s.f.t
	t.Helper()
	if d.what == nil {
		d.what = map[string]int{}
	}
	once := func() (killed int, err error) {
		out, err := s.f.nodes[0].Run(t.Context(), append([]string{"sh", "-c", killing, verb + " " + s.file},
			s.doing(verb, done...)...)...)
		for line := range strings.Lines(out) {
			if unit, ok := strings.CutPrefix(strings.TrimSpace(line), "killed: "); ok {
				d.what[unit]++
				killed++
			}
		}
		d.times += killed
		switch {
		case err == nil && says != "":
			t.Fatalf("%s %s comes to its end, want it to stop and to say %q:\n%s", verb, s.file, says, out)
		case err != nil && says != "" && strings.Contains(out, says):
			return killed, nil
		case err != nil:
			if killed > 0 {
				t.Logf("%s %s, %d killed: %v: %s", verb, s.file, killed, err, lastLines(out))
			}
			return killed, fmt.Errorf("%w:\n%s", err, out)
		}
		return killed, nil
	}
	killed, err := once()
	for ; err != nil && killed > 0; d.again++ {
		killed, err = once()
	}
	if err != nil { // what was killed comes back; a person would run it again then
		s.f.Eventually(verb+" "+s.file, func(context.Context) error {
			_, err := once()
			return err
		})
	}
	s.f.Eventually("what was killed is back", s.f.back)
}

// back: each unit that is to run runs, and both API servers answer where they are to.
func (f *nodesPair) back(ctx context.Context) error {
	out, _ := f.nodes[0].Run(ctx, "sh", "-c",
		"for unit in "+mortals+"; do echo $unit $(systemctl is-active $unit); done")
	for line := range strings.Lines(out) {
		unit, state, _ := strings.Cut(strings.TrimSpace(line), " ")
		if state == "activating" || state == "failed" {
			return fmt.Errorf("%s is %s", unit, state)
		}
		server := map[string]*rig.APIServer{"kube-apiserver": f.Legacy, "kube-apiserver-modern": f.Modern}[unit]
		if server == nil || state != "active" {
			continue
		}
		if err := server.Client("admin", "system:masters").Call(ctx, http.MethodGet, "/healthz", nil, nil); err != nil {
			return fmt.Errorf("%s: %w", unit, err)
		}
	}
	return nil
}

func lastLines(out string) string {
	var said []string
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "{") && !strings.HasPrefix(line, "killed: ") {
			said = append(said, strings.TrimSpace(line))
		}
	}
	return strings.Join(said[max(0, len(said)-3):], "; ")
}
