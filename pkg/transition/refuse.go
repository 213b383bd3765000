package transition

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// RefusedError says why no transition leads from one plan to the other. Nothing was changed.
type RefusedError struct{ Reasons []string }

func (e *RefusedError) Error() string {
	return "there is no transition:\n  " + strings.Join(e.Reasons, "\n  ")
}

// mostNamed bounds what a sentence lists.
const mostNamed = 8

// refuse lists what stands against going from one plan to the other.
func refuse(from, to Setup, facts Facts) []string {
	var reasons []string
	add := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	for _, s := range []Setup{from, to} {
		if s.Plan != nil && (s.Target == render.Hosted || s.Plan.Target != plan.OnHosts) {
			add("target %q: want static-pod or systemd: another cluster runs the components of hosted plans", s.Target)
		}
	}
	reasons = append(reasons, refuseNodes(from, to)...)
	reasons = append(reasons, refuseHandOver(from, to)...)
	reasons = append(reasons, refuseRoles(from, to)...)
	reasons = append(reasons, refuseRetire(from, to)...)
	reasons = append(reasons, refusePrograms(from, to)...)
	reasons = append(reasons, refuseCertificates(from, to)...)
	if from.Plan == nil || to.Plan == nil || len(reasons) > 0 {
		return reasons
	}
	return append(refusePlans(from.Plan, to.Plan, facts, refuseMembers, refuseEtcd, refuseLegacy),
		refusePorts(from.Plan, to.Plan)...)
}

// refusePlans lists what stands against going from one plan to another, wherever their components run; members what
// stands against other endpoints of a store, etcd against other releases of its members, legacy against another minor
// of the legacy side.
func refusePlans(a, b *plan.Plan, facts Facts, members, etcd func(was, is *plan.Store) string,
	legacy func(was, is *plan.Plan, facts Facts) string) []string {
	var reasons []string
	add := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	if a.Name != b.Name {
		add("metadata.name: %q and %q are two clusters", a.Name, b.Name)
	}
	if a.Prefix != b.Prefix {
		add("spec.stores[].prefix: the keys lie below %q, and an API server with %q reads none of them", a.Prefix,
			b.Prefix)
	}
	if !reflect.DeepEqual(a.Network, b.Network) {
		add("spec.network: addresses and ports of it are allocated already")
	}
	if a.Kubelet.Minor != b.Kubelet.Minor {
		add("spec.kubelet.version: %s and %s: a transition does not upgrade kubelets: upgrade them, then "+
			"set the version in FROM",
			a.Kubelet, b.Kubelet)
	}
	if why := legacy(a, b, facts); why != "" && !b.Legacy.Retired {
		reasons = append(reasons, why)
	}
	for _, side := range pair.Sides() {
		if side == pair.Modern || !b.Legacy.Retired { // what it alone has is looked for by a step
			reasons = append(reasons, refuseSide(a, b, side, facts)...)
		}
	}
	return append(reasons, refuseStores(a, b, members, etcd)...)
}

// refuseAddresses says of which machines the plans do not say the same. Steps are done on hosts by name, at the address
// of the first plan: of one machine that is two hosts, those of one would undo what those of the other do, and what a
// machine of another name has would be taken for nothing.
func refuseAddresses(from, to *plan.Plan) []string {
	if from == nil || to == nil {
		return nil
	}
	var reasons []string
	for _, is := range HostsOf(to) {
		for _, was := range HostsOf(from) {
			switch same := sameAddress(was.Address, is.Address); {
			case same && was.Name != is.Name:
				reasons = append(reasons, fmt.Sprintf("host %s: %s is the address of %s in FROM: a machine keeps its "+
					"name; let %s leave first, in a transition of its own", is.Name, is.Address, was.Name, was.Name))
			case !same && was.Name == is.Name && hasMember(from, was.Name) && hasMember(to, was.Name):
				reasons = append(reasons, fmt.Sprintf("host %s: %s and %s: its members of stores are known by their "+
					"address: let it leave, and join with the new one, each in a transition of its own", was.Name,
					was.Address, is.Address))
			}
		}
	}
	return reasons
}

// refusePorts says which components would start while another one still listens on their port: members and API servers
// are changed where they are, those of the modern side last. Components that TO does not have, daemons, and servers
// that become another minor stop before any other starts.
func refusePorts(a, b *plan.Plan) (reasons []string) {
	// order is when a component is changed in its place; -1 for those that stop first.
	order := func(c *plan.Component) int {
		return slices.IndexFunc([]func(*plan.Component) bool{etcd, server(pair.Legacy), server(pair.Modern)},
			func(is func(*plan.Component) bool) bool { return is(c) })
	}
	runsAlready := func(p *plan.Plan, c *plan.Component) bool { return c.Side != "" && p.Side(c.Side).Existing }
	for i := range b.Components {
		is := &b.Components[i]
		for j := range a.Components {
			was := &a.Components[j]
			if was.Host != is.Host || was.Name == is.Name || was.Port != is.Port || order(was) < max(order(is), 0) ||
				order(is) < 0 || runsAlready(a, was) || runsAlready(b, is) ||
				was.Side != "" && a.Side(was.Side).Version.Minor != b.Side(was.Side).Version.Minor ||
				!slices.ContainsFunc(b.Components, func(o plan.Component) bool {
					return o.Host == was.Host && o.Name == was.Name
				}) {
				continue
			}
			reasons = append(reasons, fmt.Sprintf("%s on %s would start on port %d, on which %s of FROM listens: give "+
				"that another port first, in a transition of its own", is.Name, is.Host, is.Port, was.Name))
		}
	}
	return reasons
}

func sameAddress(a, b string) bool {
	x, err := netip.ParseAddr(a)
	y, also := netip.ParseAddr(b)
	return a == b || err == nil && also == nil && x == y
}

// hasMember reports whether a member of a store runs on a host.
func hasMember(p *plan.Plan, host string) bool {
	return slices.ContainsFunc(p.Components, func(c plan.Component) bool { return etcd(&c) && c.Host == host })
}

func refuseSide(a, b *plan.Plan, name pair.Side, facts Facts) []string {
	var reasons []string
	add := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	x, y := a.Side(name), b.Side(name)
	if x.Existing != y.Existing {
		add("spec.%s: existing in one of the plans only: its components would run twice, or not at all", name)
	}
	var moved, unread []string
	for _, m := range movesOf(a, b, name) {
		if y.Existing || !slices.Contains(facts.Empty, m) {
			moved = append(moved, fmt.Sprintf("%s (%s to %s)", m.Resource, m.From, m.To))
		}
	}
	for i := range a.Resources {
		row := &a.Resources[i]
		was, is := row.View(name), b.Resource(row.Key)
		switch {
		case was.Store == "" || row.Pseudo && is == nil:
		case is == nil || is.View(name).Store == "":
			unread = append(unread, row.Key)
		case is.View(name).Store == was.Store && slices.ContainsFunc(was.Decodes, func(v string) bool {
			return !slices.Contains(is.View(name).Decodes, v)
		}):
			unread = append(unread, row.Key)
		}
	}
	if custom := a.CustomResources.View(name).Store; custom != "" && custom != b.CustomResources.View(name).Store {
		moved = append(moved, "custom resources")
	}
	if len(moved) > 0 {
		add("the %s API server would look for these in another store, and their keys stay: %s; when no such key is "+
			"stored, reading the stores shows it; otherwise stop the API servers and move them with fusionctl etcd "+
			"move",
			name, prose.First(moved, mostNamed))
	}
	if len(unread) > 0 && !facts.StoresAgree {
		add("%s %s may not decode what %s has stored: %s; the stores have to be read against the second plan"+
			" first",
			name,
			y.Version, x.Version, prose.First(unread, mostNamed))
	}
	return reasons
}

func movesOf(a, b *plan.Plan, side pair.Side) []Move {
	var moves []Move
	for i := range a.Resources {
		row := &a.Resources[i]
		is := b.Resource(row.Key)
		if is == nil {
			continue
		}
		if was, now := row.View(side).Store, is.View(side).Store; was != "" && now != "" && was != now {
			moves = append(moves, Move{Side: side, Resource: row.Key, From: was, To: now})
		}
	}
	return moves
}

func refuseStores(a, b *plan.Plan, members, etcd func(was, is *plan.Store) string) []string {
	var reasons []string
	add := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	for i := range a.Stores {
		was := &a.Stores[i]
		is := b.Store(was.Name)
		switch {
		case is == nil: // what was kept in it would have moved
		case (was.Managed == nil) != (is.Managed == nil):
			add("store %q: run by one of the plans only: its members would run twice, or not at all", was.Name)
		case was.Managed != nil && was.Managed.DataDir != is.Managed.DataDir:
			add("store %q: %s and %s: its data would stay behind", was.Name, was.Managed.DataDir, is.Managed.DataDir)
		case was.Managed != nil && was.Managed.PeerPort != is.Managed.PeerPort:
			add("store %q: peerPort %d and %d: its members know each other by it, for etcd reads what it is told of "+
				"the others when it begins without data only: keep it; or change each member with etcdctl member "+
				"update, and set it in FROM", was.Name, was.Managed.PeerPort, is.Managed.PeerPort)
		case !slices.Equal(was.Endpoints, is.Endpoints) && members(was, is) != "":
			add("%s", members(was, is))
		case was.Managed != nil && etcd(was, is) != "":
			add("%s", etcd(was, is))
		}
	}
	return reasons
}

// sameEtcd reports whether two releases of etcd are of one minor.
func sameEtcd(a, b string) bool {
	was, ok := kubever.ParseEtcd(a)
	is, alike := kubever.ParseEtcd(b)
	return a == b || ok && alike && was == is
}
