package transition

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// Roles are roles and bindings of the legacy side that the modern side gets copies of.
type Roles struct {
	Prefix string     `json:"prefix"`
	Keys   []RoleKey  `json:"keys"` // in the order in which they are copied: a binding after what it binds
	From   plan.Store `json:"from"` // the legacy side's
	To     plan.Store `json:"to"`
	// Stored: the legacy API server authorizes by the roles that it stores.
	Stored bool `json:"stored"`
	// Policies are files of ABAC by which it authorizes, on the host; their rules become roles.
	Policies []string `json:"policies,omitempty"`
	// Rules are lines of ABAC, by which the modern API server has authorized; they become roles, too.
	Rules string `json:"rules,omitempty"`
	// Ended are users of components that run no more: bindings of these alone are not copied.
	Ended []string `json:"ended,omitempty"`
	// InPlaceOf are lines of ABAC in whose place Rules come where roles decide already. What is stored on the legacy
	// side, and its policies, are not copied then: people have changed and withdrawn what they gave.
	InPlaceOf *string `json:"inPlaceOf,omitempty"`
}

// aboutRoles are the checks that are about roles.
var aboutRoles = []CheckKind{RolesMayGo, RolesEqual, NoneWakes}

// RoleKey is a resource of roles or bindings.
type RoleKey struct {
	Key      string `json:"key"` // its part of the key
	Name     string `json:"name"`
	StoredAs string `json:"storedAs"` // the group/version of the copies
}

func (r *Roles) names() string {
	var names []string
	for _, k := range r.Keys {
		names = append(names, k.Name)
	}
	return strings.Join(names, ", ")
}

func (r *Roles) validate() error {
	if r == nil || r.Prefix == "" || len(r.Keys) == 0 || r.From.Name == r.To.Name {
		return errors.New("want resources, a prefix, and two stores")
	}
	for _, k := range r.Keys {
		if k.Key == "" || k.Name == "" || k.StoredAs == "" {
			return fmt.Errorf("resource %q: is incomplete", k.Key)
		}
	}
	for _, file := range r.Policies {
		if !path.IsAbs(file) || path.Clean(file) != file {
			return fmt.Errorf("policy %q: want an absolute and clean path", file)
		}
	}
	if r.InPlaceOf != nil && (r.Stored || len(r.Policies) > 0) {
		return errors.New("copies what the legacy side has to where roles decide already")
	}
	return nil
}

// copied is the set of roles of which a plan has copies on the modern side; nil for none.
func copied(p *plan.Plan) *kubever.HandOver {
	if p == nil {
		return nil
	}
	for _, set := range kubever.HandOvers() {
		if row := p.Resource(set.Keys[0]); set.Copied && row != nil && row.Copied {
			return &set
		}
	}
	return nil
}

// rolesOf is what is copied in a plan that has copies, as the legacy API server of a host authorizes: each reads a file
// of its own.
func rolesOf(p *plan.Plan, set *kubever.HandOver, host string) *Roles {
	r := &Roles{Prefix: p.Prefix}
	for _, key := range set.Keys {
		row := p.Resource(key)
		r.From, r.To = *p.Store(row.Legacy.Store), *p.Store(row.Modern.Store)
		r.Keys = append(r.Keys, RoleKey{Key: key, Name: row.Name, StoredAs: row.Modern.StoredAs})
	}
	for _, c := range p.ComponentsOf(pair.Legacy, kubever.APIServer) {
		if c.Host != host {
			continue
		}
		modes := plan.AuthorizationModes(&c)
		r.Stored = slices.Contains(modes, "RBAC")
		if file, ok := c.Arg("authorization-policy-file"); ok && slices.Contains(modes, "ABAC") {
			r.Policies = append(r.Policies, c.OnHost(file))
		}
	}
	return r
}

// refuseRoles lists what stands against copying roles.
func refuseRoles(from, to Setup) []string {
	set := copied(to.Plan)
	if set == nil || copied(from.Plan) != nil {
		return nil
	}
	if from.Plan == nil {
		return []string{"spec.handedOver: roles are copied to a side that runs: install without them, then copy"}
	}
	p := to.Plan
	first := rolesOf(p, set, p.Hosts[0].Name)
	var reasons []string
	for _, h := range p.Hosts[1:] {
		r := rolesOf(p, set, h.Name)
		if authorizes(p, h.Name) && (r.Stored != first.Stored || len(r.Policies) != len(first.Policies)) {
			reasons = append(reasons, fmt.Sprintf("spec.handedOver: the legacy API servers of %s and %s do not "+
				"authorize by the same modes, so that there is no one answer to what a subject may do",
				p.Hosts[0].Name, h.Name))
		}
	}
	return reasons
}

// authorizes reports whether a host has a legacy API server.
func authorizes(p *plan.Plan, host string) bool {
	return slices.ContainsFunc(p.ComponentsOf(pair.Legacy, kubever.APIServer), func(c plan.Component) bool {
		return c.Host == host
	})
}

// roles copies roles, or takes the copies away, while all of the control plane runs: the modern API server of a plan
// consults none.
func (b *builder) roles() {
	was, is := copied(b.from.Plan), copied(b.to.Plan)
	if (was == nil) == (is == nil) {
		return
	}
	add := func(p *plan.Plan, s Step) {
		s.Phase, s.Host = HandingOver, p.Hosts[0].Name
		b.add(s)
	}
	if is == nil {
		r := rolesOf(b.from.Plan, was, b.from.Plan.Hosts[0].Name)
		forth := b.removeRoles(b.from.Plan, r, b.from.Plan.Hosts[0].Name)
		back := &Action{Kind: CopyRoles, Roles: r}
		add(b.from.Plan, Step{Title: forth.changes(), Do: forth, Undo: back})
		return
	}
	r := rolesOf(b.to.Plan, is, b.to.Plan.Hosts[0].Name)
	forth, back := &Action{Kind: CopyRoles, Roles: r}, b.removeRoles(b.from.Plan, r, b.to.Plan.Hosts[0].Name)
	add(b.to.Plan, Step{Title: forth.changes(), Do: forth, Undo: back})
	first := r.Policies
	for _, h := range b.to.Plan.Hosts {
		r, hint := rolesOf(b.to.Plan, is, h.Name), ""
		if h.Name != b.to.Plan.Hosts[0].Name {
			if len(r.Policies) == 0 || !authorizes(b.to.Plan, h.Name) {
				continue // it reads the stored ones alone
			}
			hint = fmt.Sprintf("the copies are of %s on %s: the policies of all legacy API servers have to allow the "+
				"same", strings.Join(first, ", "), b.to.Plan.Hosts[0].Name)
		}
		b.add(Step{Phase: HandingOver, Host: h.Name, Title: "the copies allow what " + r.names() + " of the legacy " +
			"side allow", Do: &Action{Kind: RunChecks, Before: []Check{{Kind: RolesEqual, Roles: r, Hint: hint}}}})
	}
}

// mayCopy looks before anything changes whether roles can be copied.
func (b *builder) mayCopy() {
	if is := copied(b.to.Plan); is != nil && copied(b.from.Plan) == nil {
		r := rolesOf(b.to.Plan, is, b.to.Plan.Hosts[0].Name)
		b.add(Step{Phase: Prepare, Host: b.to.Plan.Hosts[0].Name, Title: r.names() + " can be copied", Do: &Action{
			Kind: RunChecks, Before: []Check{{Kind: RolesMayGo, Roles: r,
				Hint: "nothing was changed; fix it and run this again"}}}})
	}
}
