package transition

import (
	"slices"

	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// What later transitions made of a cluster is not always in its files: see unchanged. Steps that take away what these
// rely on look for it where it is.

// legacyServes are the checks that the legacy API server of a plan serves on a host: what is handed back would be
// served by nothing, and without the copies of its roles a modern API server that authorizes by these alone refuses
// every client. None where the host has no legacy API server.
func (b *builder) legacyServes(p *plan.Plan, host string) (checks []Check) {
	for _, c := range p.ComponentsOf(pair.Legacy, kubever.APIServer) {
		if c.Host != host {
			continue
		}
		for _, check := range b.ready(p, &c) {
			if p.Legacy.Existing { // it has certificates of its own, and the patch level that it has
				check.CA, check.Version = "", ""
			}
			check.Hint = "a transition that came later has retired or changed the legacy side: undo the later " +
				"transition first; or start the legacy API server again"
			checks = append(checks, check)
		}
	}
	return checks
}

// handBack takes objects back to the legacy API server of a plan.
func (b *builder) handBack(p *plan.Plan, o *Objects) *Action {
	return &Action{Kind: HandBack, Objects: o, Before: b.legacyServes(p, b.to.Plan.Hosts[0].Name)}
}

// mayGoBack is the check that they can come.
func (b *builder) mayGoBack(p *plan.Plan, o *Objects) *Action {
	a := b.mayGoOne(o)
	a.Before = append(a.Before, b.legacyServes(p, b.to.Plan.Hosts[0].Name)...)
	return a
}

// removeRoles takes away the copies of a plan that has no other use of them.
func (b *builder) removeRoles(p *plan.Plan, r *Roles, host string) *Action {
	return &Action{Kind: RemoveRoles, Roles: r, Before: b.legacyServes(p, host)}
}

// noneHanded is the check that nothing is handed over to the modern side of a plan, before that ends; nil where nothing
// could be: files and flags do not differ by single namespaces, Ingresses and custom resources, nor by anything where
// the legacy side runs from files of its own.
func noneHanded(p *plan.Plan) *Action {
	check := Check{Kind: NoKeys, Keys: []string{p.Prefix + handover.MarksKey}, Hint: "these were handed over to the " +
		"modern side, and nothing would serve them: undo the later transition first, which handed them over"}
	for _, set := range kubever.HandOvers() {
		for _, key := range set.Keys {
			row := p.Resource(key)
			if row == nil || row.Legacy.Store == "" || row.Modern.Store == "" || row.Legacy.Store == row.Modern.Store {
				continue
			}
			if !slices.ContainsFunc(check.Stores, func(s plan.Store) bool { return s.Name == row.Modern.Store }) {
				check.Stores = append(check.Stores, *p.Store(row.Modern.Store))
			}
		}
	}
	if len(check.Stores) == 0 {
		return nil
	}
	return &Action{Kind: RunChecks, Before: []Check{check}}
}

// mayEnd looks before anything changes whether the modern side may go.
func (b *builder) mayEnd() {
	if b.from.Plan == nil || b.to.Plan != nil {
		return
	}
	if a := noneHanded(b.from.Plan); a != nil {
		b.add(Step{Phase: Prepare, Host: b.from.Plan.Hosts[0].Name, Title: "nothing is handed over", Do: a})
	}
}

// mayEndAgain is mayEnd on the way back of what brings it: the first of all.
func (b *builder) mayEndAgain() {
	if b.from.Plan != nil || b.to.Plan == nil {
		return
	}
	if a := noneHanded(b.to.Plan); a != nil {
		b.add(Step{Phase: Tidy, Host: b.to.Plan.Hosts[0].Name, Title: "on the way back: nothing is handed over",
			Undo: a})
	}
}
