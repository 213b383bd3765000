package rules

import (
	"cmp"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/finding"
)

// all lists every rule, by ID.
func all() []rule {
	list := slices.Concat(storedRules(), addressRules(), collectorRules(), controllerRules(), argumentRules(),
		identityRules(), policyRules(), writerRules(), storageRules(), podRules(), ownRules(), adoptedRules(),
		nodeRules(), gatewayRules(), patchRules())
	for i := range list {
		list[i].Engine = finding.Plans
	}
	slices.SortStableFunc(list, func(a, b rule) int { return cmp.Compare(a.ID, b.ID) })
	return list
}
