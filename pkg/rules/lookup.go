package rules

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

// modernArg is an argument of the modern side's component, the same on every host.
func modernArg(p *plan.Plan, kind, name string) (string, bool) {
	return sideArg(p, pair.Modern, kind, name)
}

// sideArg is an argument of a side's component on the first host that has one.
func sideArg(p *plan.Plan, side pair.Side, kind, name string) (string, bool) {
	minor := p.Side(side).Version.Minor
	for _, c := range p.ComponentsOf(side, kind) {
		for i := len(c.Args) - 1; i >= 0; i-- {
			if kubever.Meant(kind, c.Args[i].Name, minor) == kubever.Meant(kind, name, minor) {
				return c.Args[i].Value, true
			}
		}
	}
	return "", false
}

// sideFile is where the file that an argument names lies on the host: components may see it elsewhere.
func sideFile(p *plan.Plan, side pair.Side, kind, name string) (string, bool) {
	value, ok := sideArg(p, side, kind, name)
	if components := p.ComponentsOf(side, kind); len(components) > 0 {
		value = components[0].OnHost(value)
	}
	return value, ok
}

// setLegacy is the edit of the spec that sets arguments of a component of the legacy side. Of one that runs already
// extraArgs are what it runs with: what is to be changed has a list of its own, from which the runbook has it.
func setLegacy(p *plan.Plan, component string, pairs ...string) string {
	list := "extraArgs"
	if p.Legacy.Existing {
		list = "changeArgs"
	}
	entries := make([]string, len(pairs))
	for i, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		entries[i] = fmt.Sprintf("{name: %s, value: %q}", name, value)
	}
	return fmt.Sprintf("add to spec.legacy.%s.%s: %s", component, list, strings.Join(entries, ", "))
}

// effective is the value with which a side's API server runs: its argument, or its version's default.
func effective(p *plan.Plan, side pair.Side, name string) string {
	if value, ok := sideArg(p, side, kubever.APIServer, name); ok {
		return value
	}
	value, _ := kubever.Flag(kubever.APIServer, name).Default(p.Side(side).Version.Minor)
	return value
}

// userGrants are the grants of the policy to users, not to the modern side's own components.
func userGrants(p *plan.Plan) []policy.Grant {
	var grants []policy.Grant
	for i := range p.Policy.Grants {
		if p.Policy.Grants[i].Purpose == policy.ForUsers {
			grants = append(grants, p.Policy.Grants[i])
		}
	}
	return grants
}

// userWrites reports whether the policy lets users write the resource through the modern side.
func userWrites(p *plan.Plan, r *plan.Resource) bool {
	return slices.ContainsFunc(userGrants(p), func(g policy.Grant) bool { return !g.ReadOnly && covers(g, r) })
}

// legacyWrites reports whether the legacy side has the resource and writes it.
func legacyWrites(r *plan.Resource) bool {
	return r.Owner != pair.OwnerModern && len(r.Legacy.Serves) > 0
}

// modernWrites reports whether the resource is written through the modern side: by a user, a controller, a leader
// election, or because the spec gives it to the modern side.
func modernWrites(p *plan.Plan, r *plan.Resource) bool {
	if len(r.Modern.Serves) == 0 {
		return false
	}
	return r.Owner != pair.OwnerLegacy || userWrites(p, r) || controllerTouches(p, r, true) ||
		slices.ContainsFunc(p.Modern.Locks, func(l pair.Lock) bool { return l.Resource == r.Key })
}

// modernReads reports whether a component or a user reads the resource through the modern API server.
func modernReads(p *plan.Plan, r *plan.Resource) bool {
	if len(r.Modern.Serves) == 0 {
		return false
	}
	return r.Owner != pair.OwnerLegacy || controllerTouches(p, r, false) ||
		slices.ContainsFunc(userGrants(p), func(g policy.Grant) bool { return covers(g, r) })
}

// controllerTouches reports whether a controller of the modern side that runs writes the resource, or reads it at all.
// Those that act on everything are judged by rules of their own.
func controllerTouches(p *plan.Plan, r *plan.Resource, writing bool) bool {
	if len(p.ComponentsOf(pair.Modern, kubever.ControllerManager)) == 0 {
		return false
	}
	for _, fact := range kubever.Controllers(p.Modern.Version.Minor) {
		touches := slices.Contains(fact.Writes, r.Key) || slices.Contains(fact.Deletes, r.Key) ||
			!writing && slices.Contains(fact.Reads, r.Key)
		if touches && runs(p, pair.Modern, fact.Name) {
			return true
		}
	}
	return false
}

// covers reports whether a grant is about the resource.
func covers(g policy.Grant, r *plan.Resource) bool {
	if !slices.Contains(g.Resources, "*") && !slices.Contains(g.Resources, r.Name) {
		return false
	}
	return slices.Contains(g.APIGroups, "*") || slices.ContainsFunc(r.Groups, func(group string) bool {
		return slices.Contains(g.APIGroups, group)
	})
}

// runs reports whether a side's controller runs.
func runs(p *plan.Plan, side pair.Side, id string) bool {
	c := p.Controller(side, id)
	return c != nil && c.On
}

// endpointsKey is where endpoints are kept.
const endpointsKey = "services/endpoints"

// apartOnBoth reports whether both sides have objects of the key, each its own.
func apartOnBoth(p *plan.Plan, key string) bool {
	r := p.Resource(key)
	return r != nil && !r.VisibleToBoth() && r.Legacy.Store != "" && r.Modern.Store != ""
}

// hasGate reports whether a side's API server is given NAME=VALUE among its feature gates.
func hasGate(p *plan.Plan, side pair.Side, gate string) bool {
	value, _ := sideArg(p, side, kubever.APIServer, "feature-gates")
	return slices.ContainsFunc(strings.Split(value, ","), func(g string) bool { return strings.TrimSpace(g) == gate })
}

// rowOf is what the plan holds about the resource of a power; nil for one that neither version has.
func rowOf(p *plan.Plan, power policy.Power) *plan.Resource {
	return p.Row(schema.GroupResource{Group: power.Group, Resource: power.Resource})
}

// makesPods reports whether pods are created through the modern API server: by users, or by its side's controllers for
// what users may make there.
func makesPods(p *plan.Plan) bool {
	if pods := p.Resource("pods"); pods != nil && userWrites(p, pods) {
		return true
	}
	for _, by := range policy.Powers() {
		if row := rowOf(p, by); by.PodsBy != "" && row != nil && userWrites(p, row) && runs(p, pair.Modern, by.PodsBy) {
			return true
		}
	}
	return false
}

// toServiceAccounts reports whether the policy is also about software that runs in pods.
func toServiceAccounts(p *plan.Plan) bool {
	for _, g := range userGrants(p) {
		if len(g.Resources) == 0 {
			continue // paths alone: discovery
		}
		if slices.ContainsFunc(g.Subjects, func(s policy.Subject) bool {
			return s.Kind == policy.KindServiceAccount || strings.HasPrefix(s.Name, "system:serviceaccount") ||
				s.Name == "system:authenticated" || s.Name == "*"
		}) {
			return true
		}
	}
	return false
}

// visible reports whether both sides look at the same objects of the key.
func visible(p *plan.Plan, key string) bool {
	r := p.Resource(key)
	return r != nil && r.VisibleToBoth()
}
