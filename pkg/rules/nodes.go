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

// nodeRules are about kubelets that are connected to the modern API server.
func nodeRules() []rule {
	const modernNodes = "1.15.12, modern: {}"
	return []rule{
		{finding.Rule{
			ID: "FUS280", Title: "Kubelets at the modern API server write what the legacy one cannot decode",
			Why: "A kubelet that is connected to the modern API server creates and renews objects of its own there, " +
				"in the versions that this server stores. One such object in a store that the legacy API server " +
				"reads as well, and it can no longer list the whole resource.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{Read: "pkg/volume/csi/csi_plugin.go of 1.15 to 1.17; pkg/kubelet of 1.6 to 1.36",
				Damage: []string{"TestHostsAndNodesThatTheirPlanForbids"},
				Seen: "kubelet 1.36.3 wrote its CSINode through 1.36.3 into the store that 1.15.12 reads: every list " +
					"of csinodes at 1.15.12 failed"},
			Bad: example{kubelet: modernNodes,
				more: "owners: [{resources: [csinodes.storage.k8s.io], owner: legacy}]"}.String(),
			Good: example{kubelet: modernNodes}.String(),
		}, unreadByLegacy},
		{finding.Rule{
			ID: "FUS281", Title: "Kubelets at the modern API server have no permissions there, or too many",
			Why: "A kubelet whose requests are refused renews no Lease: after 40 s its node is NotReady, and its " +
				"pods are evicted. It cannot start a container again either, because it may not list services. The " +
				"Node authorizer allows exactly what a kubelet needs; without the admission plugin NodeRestriction a " +
				"kubelet may change every other node.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{Read: "plugin/pkg/auth/authorizer/node and " +
				"plugin/pkg/admission/noderestriction of 1.8 to 1.36",
				Damage: []string{"TestHostsAndNodesThatTheirPlanForbids"},
				Seen:   "a node whose kubelet 1.36.3 had no permissions at 1.36.3 was NotReady after 38 s"},
			Bad:  example{kubelet: modernNodes, modernServer: args("authorization-mode=ABAC")}.String(),
			Good: example{kubelet: modernNodes}.String(),
		}, rightsOfKubelets},
	}
}

func unreadByLegacy(p *plan.Plan) []finding.Finding {
	kubelet, ok := p.KubeletAt(pair.Modern)
	if !ok {
		return nil
	}
	var found []finding.Finding
	for _, key := range plan.KubeletWrites(kubelet) {
		row := p.Resource(key)
		if row == nil || !row.VisibleToBoth() || row.Legacy.Reads(row.Modern.StoredAs) {
			continue
		}
		found = append(found, finding.Finding{Subject: row.Name, Key: key,
			Message: fmt.Sprintf("kubelets of %s write them, stored as %s, into the store that %s reads: it can list "+
				"none of them any more", kubelet, row.Modern.StoredAs, p.Legacy.Version.Minor),
			Fix: fmt.Sprintf("let them be split: remove %s from spec.owners, in layout split", qualified(row))})
	}
	return found
}

func rightsOfKubelets(p *plan.Plan) []finding.Finding {
	if p.ModernKubelet == nil {
		return nil
	}
	var found []finding.Finding
	mode, _ := modernArg(p, kubever.APIServer, "authorization-mode")
	if !slices.Contains(strings.Split(mode, ","), "Node") {
		wanted, _ := plan.ModernAuthorization(true)
		found = append(found, finding.Finding{Subject: "--authorization-mode of the modern API server", Key: "mode",
			Message: fmt.Sprintf("%q: without Node kubelets are refused, and their nodes become NotReady", mode),
			Fix:     "remove the argument from extraArgs; the plan sets " + wanted})
	}
	if !slices.Contains(p.Plugins(pair.Modern), "NodeRestriction") {
		found = append(found, finding.Finding{Subject: "admission of the modern API server", Key: "admission",
			Message: "NodeRestriction does not run: a kubelet may change every node and pod",
			Fix: "remove enable-admission-plugins and disable-admission-plugins from extraArgs, or add " +
				"NodeRestriction"})
	}
	return found
}
