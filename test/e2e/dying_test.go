//go:build e2e && linux

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/kubefusion/fusionctl/test/rig"
)

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
