//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

// Two API servers that each believe to be the only one write the endpoints of the kubernetes service by turns, every
// ten seconds. etcd watch tells that as a fight.
func TestWatchTellsAFight(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutShared, Legacy: "1.15.12", Modern: "1.36.3", NoModernManager: true,
		More:             access,
		ModernServerArgs: []string{"endpoint-reconciler-type=master-count", "advertise-address=192.0.2.2"}})
	p.StartLegacy()
	p.StartModern()
	c := newCommand(t.Context(), "etcd", "watch", p.SpecFile)
	c.Stdout = nil
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill() // it may have ended
		_ = c.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var event struct {
			Event   string
			Finding finding.Finding
		}
		must(t, json.Unmarshal(lines.Bytes(), &event))
		if event.Event != "fight" {
			continue
		}
		if event.Finding.Rule != "FUS040" || event.Finding.Subject != "core:services/endpoints/default/kubernetes" {
			t.Errorf("a fight of rule %s about %s, want FUS040 about the endpoints of kubernetes", event.Finding.Rule,
				event.Finding.Subject)
		}
		seenDamage(t, spec.LayoutShared, "1.15.12", "1.36.3", "a modern server that counts masters and a legacy one "+
			"that keeps leases write the endpoints of kubernetes alternately")
		return
	}
	t.Fatalf("watch ended without a fight: %v\n%s", lines.Err(), c.err.String())
}
