package rules

import (
	"fmt"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// patchRules judge the patch releases that a spec names. What plans are computed from holds for the last one of a
// minor.
func patchRules() []rule {
	return []rule{{finding.Rule{
		ID: "FUS258", Title: "A release has a fault that a later patch release mended",
		Why: "The first releases of some minors do what no other release does: they roll every StatefulSet that an " +
			"older version wrote, end watches, or let a client pass for the API server. A side that goes over from " +
			"an older minor meets it at once, with every object that it has.",
		Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
		Evidence: finding.Evidence{Read: "changelogs of Kubernetes: the table patches.tsv of pkg/kubever names each"},
		Bad:      example{modern: "1.34.1", modernManager: args("controllers=statefulset-controller")}.String(),
		Good:     example{modern: "1.34.2", modernManager: args("controllers=statefulset-controller")}.String(),
	}, mendedFaults}}
}

func mendedFaults(p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	for _, side := range pair.Sides() {
		version := p.Side(side).Version
		for _, kind := range []string{kubever.APIServer, kubever.ControllerManager, kubever.Scheduler} {
			components := p.ComponentsOf(side, kind)
			if len(components) == 0 {
				continue
			}
			gates, _ := components[0].Arg("feature-gates")
			for _, fault := range kubever.PatchFaults(kind, version) {
				if fault.Controller != "" && !runs(p, side, fault.Controller) ||
					fault.Gate != "" && plan.TurnsOff(gates, fault.Gate) {
					continue
				}
				patch, _ := fault.MendedIn(version.Minor)
				fix := fmt.Sprintf("use %s.%d or a later release of %[1]s", version.Minor, patch)
				if fault.Gate != "" {
					fix += fmt.Sprintf(", or give it --feature-gates=%s=false", fault.Gate)
				}
				found = append(found, finding.Finding{Subject: components[0].Name, Key: fault.Source,
					Message: fmt.Sprintf("of %s: %s (%s)", version, fault.Happens, fault.Source), Fix: fix})
			}
		}
	}
	return found
}
