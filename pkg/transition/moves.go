package transition

import (
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// Moves lists what the API servers of either side would look for in another store after a transition.
func Moves(from, to Setup) []Move {
	var moves []Move
	if from.Plan != nil && to.Plan != nil {
		for _, side := range pair.Sides() {
			moves = append(moves, movesOf(from.Plan, to.Plan, side)...)
		}
	}
	return moves
}

// MoveChecks are the checks before API servers look for resources in other stores: no key stays behind in a store that
// they leave, and none waits in one that they come to.
func MoveChecks(from, to *plan.Plan, moves []Move) []Check {
	return slices.Concat(noKeysOf(from, moves, false), unusedStores(from, to, moves))
}

// noKeysOf checks, for every store that moves leave, that it holds no key of theirs. The plan is one that has the
// stores; back is for those to which they go.
func noKeysOf(p *plan.Plan, moves []Move, back bool) []Check {
	var checks []Check
	for _, s := range p.Stores {
		check := Check{Kind: NoKeys, Stores: []plan.Store{s}, Hint: "the API server will look for them in another " +
			"store: delete them through the API, or stop the API servers and move them with fusionctl etcd move"}
		for _, m := range moves {
			store := m.From
			if back {
				store = m.To
			}
			key := p.Prefix + "/" + m.Resource
			if !strings.HasPrefix(m.Resource, "ranges/") { // those are single keys
				key += "/"
			}
			if store == s.Name && !slices.Contains(check.Keys, key) {
				check.Keys = append(check.Keys, key)
			}
		}
		if len(check.Keys) > 0 {
			checks = append(checks, check)
		}
	}
	return checks
}

// unusedStores checks that a store to which a resource moves holds no key of it, where no API server of the first plan
// looks for it there: what an earlier installation left would be served again.
func unusedStores(from, to *plan.Plan, moves []Move) []Check {
	unused := slices.DeleteFunc(slices.Clone(moves), func(m Move) bool {
		row := from.Resource(m.Resource)
		return slices.ContainsFunc(pair.Sides(), func(side pair.Side) bool { return row.View(side).Store == m.To })
	})
	checks := noKeysOf(to, unused, true)
	for i := range checks {
		checks[i].Hint = "no API server of FROM looks for them there, and the one of TO would serve them: fusionctl " +
			"etcd ls shows them; delete them with etcdctl when nothing needs them"
	}
	return checks
}
