package transition

import (
	"fmt"
	"net/url"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// refuseLost says why hosts cannot be taken for lost.
func refuseLost(from, to Setup, lost []string) []string {
	var reasons []string
	add := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	if len(lost) > 0 && (from.Plan == nil || to.Plan == nil) {
		return append(reasons, "lost hosts: want the plan that they were part of, and one without them")
	}
	for _, name := range lost {
		is := func(h Host) bool { return h.Name == name }
		switch {
		case !slices.ContainsFunc(HostsOf(from.Plan), is):
			add("lost host %q: is none of FROM", name)
		case slices.ContainsFunc(HostsOf(to.Plan), is):
			add("lost host %q: is in TO as well: take it out there; one that takes its place has a name of its own, "+
				"for the lost one may come back", name)
		}
	}
	if len(reasons) > 0 || len(lost) == 0 {
		return reasons
	}
	for i := range from.Plan.Stores {
		was := &from.Plan.Stores[i]
		is := to.Plan.Store(was.Name)
		if is == nil || was.Managed == nil || is.Managed == nil || len(membersOn(from.Plan, was, lost)) == 0 {
			continue
		}
		if !sameEtcd(was.Managed.Version, is.Managed.Version) {
			add("store %q: a lost member, and etcd %s and %s: each is a transition of its own", was.Name,
				was.Managed.Version, is.Managed.Version)
		}
	}
	return reasons
}

// withoutHosts is a plan as it runs when hosts are lost: what the others run is the same.
func withoutHosts(p *plan.Plan, lost []string) *plan.Plan {
	if p == nil || len(lost) == 0 {
		return p
	}
	on := func(host string) bool { return slices.Contains(lost, host) }
	q := *p
	q.Hosts = slices.DeleteFunc(slices.Clone(p.Hosts), func(h spec.Host) bool { return on(h.Name) })
	q.Nodes = slices.DeleteFunc(slices.Clone(p.Nodes), func(n plan.Node) bool { return on(n.Name) })
	q.Components = slices.DeleteFunc(slices.Clone(p.Components), func(c plan.Component) bool { return on(c.Host) })
	q.Kubeconfigs = slices.DeleteFunc(slices.Clone(p.Kubeconfigs), func(k plan.Kubeconfig) bool { return on(k.Host) })
	q.Certificates = slices.DeleteFunc(slices.Clone(p.Certificates), func(c plan.Certificate) bool {
		return on(c.Host)
	})
	q.Stores = slices.Clone(p.Stores)
	for i := range q.Stores {
		s := &q.Stores[i]
		s.Endpoints = slices.DeleteFunc(slices.Clone(s.Endpoints), func(e string) bool {
			return endpointOn(p, e, lost)
		})
	}
	return &q
}

// endpointOn reports whether an endpoint of a store is on one of some hosts: by their addresses and names.
func endpointOn(p *plan.Plan, endpoint string, hosts []string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && slices.ContainsFunc(p.Hosts, func(h spec.Host) bool {
		return slices.Contains(hosts, h.Name) && (u.Hostname() == h.Address || u.Hostname() == h.Name)
	})
}

// membersOn are the members of a store on some hosts.
func membersOn(p *plan.Plan, store *plan.Store, hosts []string) (members []*plan.Component) {
	for i := range p.Components {
		if c := &p.Components[i]; isMember(c, store) && slices.Contains(hosts, c.Host) {
			members = append(members, c)
		}
	}
	return members
}

// kubeletPort is where kubelets serve, by default.
const kubeletPort = 10250

// silentHosts looks, before anything changes, whether something on a lost host answers after all: it would go on beside
// what takes its place. Each host looks: the way from one of them may be cut.
func (b *builder) silentHosts() {
	for _, name := range b.lost {
		for _, h := range b.to.Plan.Hosts {
			b.add(Step{Phase: Prepare, Host: h.Name, Title: "nothing answers on " + name + ", which is lost",
				Do: &Action{Kind: RunChecks, Before: []Check{b.silence(name)}}})
		}
	}
}

// silence is the check that nothing on a lost host answers.
func (b *builder) silence(lost string) Check {
	p := b.whole.Plan
	var addresses []string
	for _, h := range HostsOf(p) {
		if h.Name != lost {
			continue
		}
		at := func(port int) { addresses = append(addresses, plan.HostPort(h.Address, port)) }
		at(kubeletPort)
		for _, side := range pair.Sides() {
			if s := p.Side(side); !s.Retired && slices.ContainsFunc(p.Hosts, func(own spec.Host) bool {
				return own.Name == h.Name
			}) {
				at(s.Port)
			}
		}
	}
	for i := range p.Components {
		c := &p.Components[i]
		if !etcd(c) || c.Host != lost {
			continue
		}
		peers, _ := c.Arg("initial-advertise-peer-urls")
		at := peers // one that is no URL is no address either: the look fails
		if u, err := url.Parse(peers); err == nil && u.Port() != "" {
			at = u.Host
		}
		addresses = append(addresses, at)
	}
	return Check{Kind: Silent, Addresses: addresses, Hint: hintNotLost}
}

// hintNotLost is the way out where something on a lost host answers.
const hintNotLost = "it is not lost, and would go on beside what takes its place: switch it off; or let it leave as " +
	"a host that is there"

// removeLost takes the members of lost hosts out of their stores, before any other one starts again or joins: the store
// may have no member more than a majority. Undo does not bring them back, so that it is looked once more whether
// something answers there.
func (b *builder) removeLost() {
	for i := range b.gone {
		g := &b.gone[i]
		do := &Action{Kind: RemoveMember, Before: []Check{b.silence(g.host)}, Joining: &g.Joining}
		b.add(Step{Phase: Stores, Host: g.by, Title: do.changes(), Do: do})
	}
}

// lostMember is a member on a lost host, and the host that takes it out.
type lostMember struct {
	Joining
	host, by string
}

// readLost finds the members of a store that are lost.
func (b *builder) readLost(store plan.Store, by string) {
	for _, c := range membersOn(b.whole.Plan, &store, b.lost) {
		m := lostMember{Joining: Joining{Store: store, DataDir: store.Managed.DataDir}, host: c.Host, by: by}
		m.Name, _ = c.Arg("name")
		m.PeerURL, _ = c.Arg("initial-advertise-peer-urls")
		b.gone = append(b.gone, m)
	}
}
