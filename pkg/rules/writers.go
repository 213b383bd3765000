package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// writerRules are about who writes what the spec gives to one side.
func writerRules() []rule {
	return []rule{{finding.Rule{
		ID: "FUS223", Title: "A side writes resources that the other side owns",
		Why: "The owner of a resource is the only side that writes it, and the plan configures the modern side's " +
			"controllers accordingly. Controllers of the other side that are on still write the objects that both " +
			"sides see, and so do kubelets through the legacy API server: two sides write where the plan assumes " +
			"one, and fields that the older version does not know are lost.",
		Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
		Evidence: finding.Evidence{Read: "derived from spec.owners and what the controllers of every minor write"},
		Bad:      example{more: "owners: [{resources: [serviceaccounts], owner: modern}]"}.String(),
		Good: example{more: "owners: [{resources: [serviceaccounts], owner: modern}]",
			legacyManager: args("controllers=*,-serviceaccount,-serviceaccount-token,-garbagecollector")}.String(),
	}, foreignControllers}}
}

// foreignControllers reports, for each resource that both sides see and one side owns, who of the other side writes it.
// What acts on everything (garbage collection, the end of namespaces) is judged by rules of its own.
func foreignControllers(p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	for i := range p.Resources {
		r := &p.Resources[i]
		other := map[pair.Owner]pair.Side{pair.OwnerModern: pair.Legacy, pair.OwnerLegacy: pair.Modern}[r.Owner]
		if other == "" || !r.VisibleToBoth() || r.Pseudo {
			continue
		}
		who := writersOf(p, other, r.Key)
		if len(who) == 0 {
			continue
		}
		found = append(found, finding.Finding{Subject: r.Name, Related: who,
			Message: fmt.Sprintf("their owner is %s, and on the %s side %s still writes them", r.Owner, other,
				strings.Join(first(who, 4), ", ")),
			Fix: writersFix(r, other, who)})
	}
	return found
}

const kubelets = "kubelets"

// writersOf names what writes the objects of a key through a side's server.
func writersOf(p *plan.Plan, side pair.Side, key string) []string {
	var who []string
	for _, fact := range kubever.Controllers(p.Side(side).Version.Minor) {
		if c := p.Controller(side, fact.Name); c != nil && c.On &&
			(slices.Contains(fact.Writes, key) || slices.Contains(fact.Deletes, key)) {
			who = append(who, c.Name)
		}
	}
	for _, l := range p.Side(side).Locks {
		if l.Resource == key {
			who = append(who, "the lock of "+l.Component)
		}
	}
	if kubelet, ok := p.KubeletAt(side); ok && slices.Contains(plan.KubeletWrites(kubelet), key) {
		who = append(who, kubelets)
	}
	return who
}

func writersFix(r *plan.Resource, side pair.Side, who []string) string {
	if slices.Contains(who, kubelets) {
		return fmt.Sprintf("remove %s from spec.owners: kubelets are connected to the %s API server", qualified(r),
			side)
	}
	return fmt.Sprintf("remove %s from spec.owners, or disable these in --controllers of the %s controller manager",
		qualified(r), side)
}
