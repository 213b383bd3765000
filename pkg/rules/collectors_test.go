package rules

import (
	"testing"

	"github.com/kubefusion/fusionctl/pkg/gc"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// Rules about plans report a danger by the ID by which checks of stores and servers report it.
func TestDangersHaveTheRuleOfTheirSight(t *testing.T) {
	seen := map[string]int{}
	for _, minor := range kubever.Minors() {
		collector := kubever.GarbageCollectorIn(minor)
		for sight := gc.UnknownKind; sight <= gc.NamespacedOwner; sight++ {
			if collector.Outcome(sight) != gc.Deleted {
				continue
			}
			for _, owner := range []string{"Node", "Deployment"} {
				d := plan.CollectorDanger{Dependent: "pods", Owner: owner, Seen: sight}
				rule := sight.Rule("pods", owner)
				if absentOwner(d) != (rule == "FUS060") || misled(d) != (rule == "FUS061") {
					t.Errorf("%s, sight %d of a %s: FUS060 %v, FUS061 %v, want %s", minor, sight, owner, absentOwner(d),
						misled(d), rule)
				}
				seen[rule]++
			}
		}
	}
	for _, rule := range []string{"FUS060", "FUS061", "FUS062"} {
		if seen[rule] == 0 {
			t.Errorf("no sight is reported by %s: %v", rule, seen)
		}
	}
}
