package rules

import "slices"

// All lists every rule, by ID.
func All() []Rule {
	all := slices.Concat(storedRules(), addressRules(), collectorRules(), controllerRules(), argumentRules(), identityRules(), policyRules(), writerRules(), storageRules(), podRules(), ownRules())
	slices.SortStableFunc(all, func(a, b Rule) int {
		switch {
		case a.ID < b.ID:
			return -1
		case a.ID > b.ID:
			return 1
		}
		return 0
	})
	return all
}
