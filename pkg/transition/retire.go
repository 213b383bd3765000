package transition

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/policy"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Heartbeats are those of the nodes, as stores have them.
type Heartbeats struct {
	Prefix string `json:"prefix"`
	// Nodes and Leases are the names of the stores that have them; no Leases: the status of the nodes alone.
	Nodes   string          `json:"nodes"`
	Leases  string          `json:"leases,omitempty"`
	Version kubever.Version `json:"version"` // of the kubelets
}

// Left is where the legacy side may have objects that no API server would serve any more.
type Left struct {
	Prefix string    `json:"prefix"`
	Rows   []LeftRow `json:"rows"`
	// Boot are the keys, below the prefix, that API servers write by themselves.
	Boot []pair.BootKey `json:"boot,omitempty"`
}

// LeftRow is a resource of Left.
type LeftRow struct {
	Key   string `json:"key"`
	Name  string `json:"name"` // for people
	Store string `json:"store"`
	Hint  string `json:"hint"` // how its objects come to the modern side
}

// Masters are the endpoints of the service kubernetes.
type Masters struct {
	Prefix    string     `json:"prefix"`
	Endpoints plan.Store `json:"endpoints"`        // has the Endpoints
	Slices    plan.Store `json:"slices,omitempty"` // has the EndpointSlices of the modern side; "" as its name: none
	Addresses []string   `json:"addresses"`        // of the API servers
	Port      int        `json:"port"`
}

func (m *Masters) validate() error {
	if m == nil || m.Prefix == "" || m.Endpoints.Name == "" || len(m.Addresses) == 0 || m.Port == 0 {
		return errors.New("want the store of Endpoints, a prefix, addresses and a port")
	}
	return nil
}

// Ranges are service ranges from which the modern API server did not allocate.
type Ranges struct {
	Access  Access     `json:"access"`
	CIDRs   []string   `json:"cidrs"` // those of one address family, or one of each
	Version string     `json:"version"`
	Prefix  string     `json:"prefix"`
	Store   plan.Store `json:"store"` // has the services
}

func (r *Ranges) validate() error {
	if r == nil || len(r.CIDRs) == 0 || len(r.CIDRs) > 2 || r.Prefix == "" || r.Store.Name == "" || r.Version == "" {
		return errors.New("want one or two ranges, a prefix, the version of ServiceCIDRs and the store of services")
	}
	for _, text := range r.CIDRs {
		if prefix, err := netip.ParsePrefix(text); err != nil || prefix != prefix.Masked() {
			return fmt.Errorf("range %q: want an address and a mask", text)
		}
	}
	return nil
}

// RangeName is the name of the object that adds the ranges.
const RangeName = "kubefusion-legacy"

// retires reports whether the legacy side ends with the transition.
func (b *builder) retires() bool {
	return b.from.Plan != nil && b.to.Plan != nil && !b.from.Plan.Legacy.Retired && b.to.Plan.Legacy.Retired
}

// refuseRetire lists what stands against ending the legacy side, or against its return.
func refuseRetire(from, to Setup) []string {
	const at = "spec.legacy.retired: "
	was, is := from.Plan, to.Plan
	retiredAlready := was != nil && was.Legacy.Retired
	switch {
	case is == nil && retiredAlready:
		return []string{at + "nothing of the legacy side runs any more: taking the modern side away would leave none"}
	case is == nil || !is.Legacy.Retired:
		if retiredAlready {
			return []string{at + "only the steps that retired the legacy side know how it comes back: fusionctl " +
				"transition undo"}
		}
		return nil
	case was == nil:
		return []string{at + "true: install beside the legacy side, hand over, then retire it"}
	case retiredAlready:
		return refuseAlone(was, is)
	}
	var reasons []string
	add := func(format string, args ...any) { reasons = append(reasons, at+fmt.Sprintf(format, args...)) }
	if copied(was) == nil && copied(is) != nil {
		add("spec.handedOver: FROM has no copies of the roles: copy them in a transition before")
	}
	for _, side := range pair.Sides() {
		if was.Side(side).Version != is.Side(side).Version {
			add("the %s version changes at the same time: upgrade before, or afterwards", side)
		}
	}
	if from.Target != to.Target {
		add("the target changes at the same time")
	}
	if !reflect.DeepEqual(was.Hosts, is.Hosts) {
		add("spec.hosts: they change at the same time: add and remove hosts before, or afterwards")
	}
	if !reflect.DeepEqual(was.Nodes, is.Nodes) {
		add("spec.kubelet.modern.nodes: they change at the same time: take nodes over before")
	}
	if was.ModernKubelet == nil || is.ModernKubelet == nil || *was.ModernKubelet != *is.ModernKubelet {
		add("spec.kubelet.modern: the kubelets have to be connected to the modern API server before, by a " +
			"transition, or by hand and said in FROM")
	}
	if !sameHandedOver(was, is) {
		add("spec.handedOver: hand over before")
	}
	if ranges := addedRanges(is); len(ranges) > 0 && serviceCIDRVersion(is.Modern.Version.Minor) == "" {
		add("spec.network.serviceCIDRs: %s of the modern side cannot be given %s beside its own range: upgrade the "+
			"modern side first", is.Modern.Version, strings.Join(ranges, ", "))
	}
	if managerAccess(is) == nil {
		add("no host has the kubeconfig of the modern controller manager")
	}
	return reasons
}

// refuseAlone: what steps query of the legacy API server is not there any more.
func refuseAlone(was, is *plan.Plan) []string {
	if why := KubeletsByHand(was, is); why != "" {
		return []string{why}
	}
	return nil
}

// managerAccess is how a host reaches the modern API server as its controller manager does; nil where none does.
func managerAccess(p *plan.Plan) *Access {
	for _, c := range p.ComponentsOf(pair.Modern, kubever.ControllerManager) {
		for _, k := range p.Kubeconfigs {
			if k.Host == p.Hosts[0].Name && c.Host == k.Host && k.Component == c.Name {
				return &Access{Side: pair.Modern, Server: k.Server, CA: k.CA, Cert: k.Cert, Key: k.Key}
			}
		}
	}
	return nil
}

// rolesAlone gives the modern side roles that allow what its policy allows, beside the copies: it is to authorize by
// roles alone. Until everything works, its manager may do what the steps ask of the API server.
func (b *builder) rolesAlone() {
	if !b.retires() {
		return
	}
	was, all := b.aloneRoles(func(policy.Grant) bool { return true }, probeGrants()...)
	b.add(b.copyStep(all, was))
	b.add(Step{Phase: HandingOver, Host: b.to.Plan.Hosts[0].Name, Title: "the roles of the modern side allow what " +
		"roles and policies of both sides allow", Do: &Action{Kind: RunChecks, Before: []Check{{Kind: RolesEqual,
		Roles: all}}}})
}

// rolesDecide stops the modern API servers, all of them before one starts that authorizes by roles: the others would
// go on to take what clients write by a policy. With the last one it looks once more at what comes into force, as long
// as that serves, so that a person can delete it there, and again when none does. Both belong to one step: what was
// agreed to before is not asked once more with the API gone, and a step that is killed in between looks again.
func (b *builder) rolesDecide() {
	if !b.retires() {
		return
	}
	for _, c := range slices.Backward(b.changed(server(pair.Modern))) { // last on the first host: the roles are of its
		b.stopOne(Modern, c.was, true) // policies
	}
	_, all := b.aloneRoles(func(policy.Grant) bool { return true }, probeGrants()...)
	look, last := Check{Kind: NoneWakes, Roles: all}, b.steps[len(b.steps)-1].Do
	last.Before, last.After = append(last.Before, look), append(last.After, look)
}

// aloneRoles are the roles as FROM has them, and those with a part of its policy, and more.
func (b *builder) aloneRoles(part func(policy.Grant) bool, more ...policy.Grant) (was, is *Roles) {
	was = rolesOf(b.from.Plan, copied(b.from.Plan), b.from.Plan.Hosts[0].Name)
	with := *was
	var intent policy.Intent
	for _, g := range b.from.Plan.Policy.Grants {
		if part(g) {
			intent.Grants = append(intent.Grants, g)
		}
	}
	intent.Grants = append(intent.Grants, more...)
	sections, err := policy.Generate(intent)
	if err != nil { // the plan is rendered with them already
		panic("transition: internal error: " + err.Error())
	}
	with.Rules = string(policy.Format(sections))
	return was, &with
}

func (b *builder) copyStep(forth, back *Roles) Step {
	do := &Action{Kind: CopyRoles, Roles: forth}
	return Step{Phase: HandingOver, Host: b.to.Plan.Hosts[0].Name, Title: do.changes(), Do: do,
		Undo: &Action{Kind: CopyRoles, Roles: back}}
}

// probeGrants are what the steps ask of the modern API server as its controller manager.
func probeGrants() []policy.Grant {
	subject := []policy.Subject{{Kind: policy.KindUser, Name: "system:kube-controller-manager"}}
	const why = "fusionctl transition: ranges of services, and the probes of what works"
	grant := func(group string, resources ...string) policy.Grant {
		return policy.Grant{Subjects: subject, APIGroups: []string{group}, Resources: resources,
			Namespaces: []string{"*"}, Purpose: policy.ForControllers, Why: why}
	}
	return []policy.Grant{grant("", "configmaps", "endpoints", "namespaces", "pods", "serviceaccounts", "services"),
		grant("apps", "deployments"), grant("discovery.k8s.io", "endpointslices"),
		grant("networking.k8s.io", "ipaddresses", "servicecidrs")}
}

// mayRetire looks before anything changes for what would be lost with the legacy side.
func (b *builder) mayRetire() {
	if !b.retires() {
		return
	}
	host := b.to.Plan.Hosts[0].Name
	b.add(Step{Phase: Prepare, Host: host, Title: "nothing is the legacy side's alone",
		Do: &Action{Kind: RunChecks, Before: append([]Check{b.left()}, b.bothHave()...)}})
	b.add(Step{Phase: Prepare, Host: host, Title: "the kubelets are those of the modern side",
		Do: &Action{Kind: RunChecks, Before: []Check{b.beats()}}})
}

// bothHave are the checks that what is kept on both sides is the same there.
func (b *builder) bothHave() (checks []Check) {
	was := &builder{from: b.from, to: b.from}
	for _, set := range handedOver(b.from.Plan) {
		if set.Kept {
			checks = append(checks, Check{Kind: Adopted, Objects: was.objects(set, false),
				Hint: "the modern side is to have all of them"})
		}
	}
	return checks
}

// derived are resources whose objects are not brought over, by key, and why: what writes them writes them anew.
var derived = map[string]string{
	"certificatesigningrequests":         "requests are answered within minutes, and removed within a day",
	"csinodes":                           "kubelets write those of their nodes",
	"endpointslices":                     "controllers write them for services",
	"ipaddresses":                        "the allocator has one for every address",
	"servicecidrs":                       "each API server writes that of its range",
	"apiregistration.k8s.io/apiservices": "API servers write those of what they serve; others are looked for",
}

// left is the check that the legacy side has no objects of its own.
func (b *builder) left() Check {
	p := b.from.Plan
	l := &Left{Prefix: p.Prefix}
	for _, k := range p.StartupWrites {
		if k.Side == pair.Legacy {
			l.Boot = append(l.Boot, k)
		}
	}
	var stores []plan.Store
	for _, row := range p.LegacyOnly() {
		if _, is := derived[row.Key]; is && row.Key != apiServices {
			continue
		}
		hint := "delete them, when nothing needs them: the modern version has none"
		if set, goes := kubever.HandOverOf(row.Key); goes {
			hint = "hand them over with spec.handedOver"
			if plan.Stays(set, p.Legacy.Version.Minor, p.Modern.Version.Minor) != "" {
				hint = fmt.Sprintf("those of %s cannot be handed over: delete them, and create them anew through the "+
					"modern API server", p.Legacy.Version.Minor)
			}
		} else if row.Modern.Store != "" {
			hint = "stop what acts for them, and move them with fusionctl etcd move"
		}
		l.Rows = append(l.Rows, LeftRow{Key: row.Key, Name: row.Name, Store: row.Legacy.Store, Hint: hint})
		if !slices.ContainsFunc(stores, func(s plan.Store) bool { return s.Name == row.Legacy.Store }) {
			stores = append(stores, *p.Store(row.Legacy.Store))
		}
	}
	return Check{Kind: NothingLeft, Left: l, Stores: stores, Hint: "nothing would serve them any more"}
}

const apiServices = "apiregistration.k8s.io/apiservices"

// beats is the check that every node is heard of through the modern API server, once the legacy one is gone.
func (b *builder) beats() Check {
	p := b.to.Plan
	h := &Heartbeats{Prefix: p.Prefix, Version: *p.ModernKubelet, Nodes: p.Resource("minions").Modern.Store}
	stores := []plan.Store{*p.Store(h.Nodes)}
	if row := p.Resource("leases"); row != nil && row.Modern.Store != "" &&
		kubever.Behaves(kubever.BehaviourKubeletLeaseHeartbeat, p.ModernKubelet.Minor) {
		if h.Leases = row.Modern.Store; h.Leases != h.Nodes {
			stores = append(stores, *p.Store(h.Leases))
		}
	}
	return Check{Kind: Beats, Heartbeats: h, Stores: stores,
		Hint: "spec.kubelet.modern.nodes connects kubelets to the " +
			"modern API server; a kubelet that is connected to the legacy one stops"}
}

// legacyGone is what follows the end of the legacy side: what runs from files of its own is stopped by a person. Then
// the nodes have to be alive without it, and the stores what the modern side alone makes of them.
func (b *builder) legacyGone() {
	if !b.retires() {
		return
	}
	p, host := b.to.Plan, b.to.Plan.Hosts[0].Name
	b.stopExisting()
	b.add(Step{Phase: Stop, Host: host, Title: "the nodes live without the legacy side",
		Do: &Action{Kind: RunChecks, Before: []Check{b.beats()}}})
	b.add(Step{Phase: Stop, Host: host, Title: "the stores are those of the modern side alone",
		Do:   &Action{Kind: RunChecks, Before: []Check{b.left(), storesCheck(p, b.from.Plan)}},
		Undo: &Action{Kind: RunChecks, Before: []Check{b.readableByLegacy()}}})
	if r := rewriteForLegacy(b.from.Plan, p); r != nil { // while nothing writes them any more
		b.add(Step{Phase: Stop, Host: host, Title: r.changes(), Undo: &Action{Kind: RewriteObjects, Rewrite: r}})
	}
	clear := &Action{Kind: ClearEndpoints, Masters: masters(p)}
	b.add(Step{Phase: Stop, Host: host, Title: clear.changes(), Do: clear, Undo: clear})
}

// readableByLegacy is the check before the legacy side comes back.
func (b *builder) readableByLegacy() Check {
	c := storesCheck(b.from.Plan, b.to.Plan)
	c.Hint = "the legacy side cannot come back while these are there: delete them, or write them again without what " +
		"is named, through the modern API server"
	return c
}

// mayBeReadByLegacy is readableByLegacy while the modern side still acts for everything: what is written again on the
// way back is in no one's way, and its controllers would store it as they did.
func (b *builder) mayBeReadByLegacy() Check {
	c := b.readableByLegacy()
	if r := rewriteForLegacy(b.from.Plan, b.to.Plan); r != nil {
		c.Kind, c.Rewrite = MayRewrite, r
	}
	return c
}

// stopExisting has a person stop, and start again, what runs from files of its own.
func (b *builder) stopExisting() {
	for _, h := range b.from.Plan.Hosts {
		if names, stop, start := b.byHand(h.Name, ""); names != "" {
			b.add(Step{Phase: Stop, Host: h.Name, Title: "stop the legacy side of " + h.Name, Do: stop, Undo: start})
		}
	}
}

// byHand is how a person stops what runs on a host from files of its own, and starts it again: components of a kind, ""
// for all of them. No names where there are none.
func (b *builder) byHand(host, kind string) (names string, stop, start *Action) {
	var list []string
	stop, start = &Action{Kind: ByHand}, &Action{Kind: ByHand}
	for _, c := range existingOf(b.from.Plan) {
		if c.Host != host || kind != "" && c.Kind != kind {
			continue
		}
		list = append(list, c.Name)
		for _, check := range goneChecks(c) {
			check.Hint = "it runs from files of its own: stop it there"
			stop.After = append(stop.After, check)
		}
		ready := b.ready(b.from.Plan, c)
		if b.legacyUp() {
			ready = ofVersion(b.from.Plan, c, ready)
		}
		for _, check := range ready {
			if check.CA = ""; !b.legacyUp() {
				check.Version = ""
			}
			check.Hint = "it runs from files of its own: start it there"
			start.After = append(start.After, check)
		}
	}
	names = strings.Join(list, ", ")
	stop.Text = fmt.Sprintf("stop %s on %s, which runs from files of its own; keep these files elsewhere, for they "+
		"are put back", names, host)
	start.Text = fmt.Sprintf("start %s on %s again: put their files back", names, host)
	return names, stop, start
}

func masters(p *plan.Plan) *Masters {
	m := &Masters{Prefix: p.Prefix, Port: p.Modern.Port}
	m.Endpoints = *p.Store(p.Resource("services/endpoints").Modern.Store)
	if row := p.Resource("endpointslices"); row != nil && row.Modern.Store != "" {
		m.Slices = *p.Store(row.Modern.Store)
	}
	for _, h := range p.Hosts {
		m.Addresses = append(m.Addresses, h.Address)
	}
	for _, c := range p.ComponentsOf(pair.Modern, kubever.APIServer) {
		if address, ok := c.Arg("advertise-address"); ok {
			at := slices.IndexFunc(p.Hosts, func(h spec.Host) bool { return h.Name == c.Host })
			m.Addresses[at] = address
		}
	}
	return m
}

// addedRanges are the ranges of the legacy side from which the modern one does not allocate.
func addedRanges(p *plan.Plan) []string {
	if len(p.Network.ModernServiceCIDRs) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.Network.ServiceCIDRs), func(cidr string) bool {
		return slices.Contains(p.Network.ModernServiceCIDRs, cidr)
	})
}

// serviceCIDRVersion is the version in which a minor serves ServiceCIDRs; "" where it does not by default.
func serviceCIDRVersion(m kubever.Minor) string {
	version := ""
	for _, r := range kubever.APIResources(m) {
		if r.Group == "networking.k8s.io" && r.Name == "servicecidrs" && r.DefaultOn.Has(m) &&
			(version == "" || r.Version == "v1") {
			version = r.Version
		}
	}
	return version
}

// ranges is what the modern allocator has to be told; nil for nothing.
func (b *builder) ranges() *Ranges {
	p := b.to.Plan
	version := serviceCIDRVersion(p.Modern.Version.Minor)
	cidrs := addedRanges(p)
	if version == "" || len(cidrs) == 0 {
		return nil
	}
	return &Ranges{Access: *managerAccess(p), CIDRs: cidrs, Version: version, Prefix: p.Prefix,
		Store: *p.Store(p.Resource("services/specs").Modern.Store)}
}

// servesAlone verifies the modern API server that authorizes by roles, and has it know all addresses of services before
// any controller allocates.
func (b *builder) servesAlone() {
	if !b.retires() {
		return
	}
	p, host := b.to.Plan, b.to.Plan.Hosts[0].Name
	b.add(Step{Phase: Modern, Host: host, Title: "the service kubernetes leads to the modern API server",
		Do: &Action{Kind: RunChecks, Before: []Check{{Kind: MastersAre, Masters: masters(p),
			Hint: "the log of the modern API server says what it does with them; a slice of another name is of " +
				"a client: delete it"}}}})
	if r := b.ranges(); r != nil {
		add, remove := &Action{Kind: AddRanges, Ranges: r}, &Action{Kind: RemoveRanges, Ranges: r}
		b.add(Step{Phase: Modern, Host: host, Title: add.changes(), Do: add, Undo: remove})
	}
	b.add(Step{Phase: ModernMgr, Host: host, Title: "the modern controllers act for everything from here on",
		Do: &Action{Kind: ByHand,
			Text: fmt.Sprintf("from here on the controllers of %s act for the whole cluster: they "+
				"evict, collect and finalize. Undo brings the legacy side back, and nothing that they, or clients, "+
				"have deleted meanwhile. See before that service proxies, and all clients of the legacy API server "+
				"(its audit log names them), are connected to the modern one, and that the cluster is as it should be",
				p.Modern.Version)}})
}

// actsAlone verifies that everything works without the legacy side, and takes from the manager what the steps needed.
func (b *builder) actsAlone() {
	if !b.retires() {
		return
	}
	host := b.to.Plan.Hosts[0].Name
	if r := b.ranges(); r != nil {
		b.add(Step{Phase: ModernMgr, Host: host, Title: "every address of a service is known to the allocator",
			Do: &Action{Kind: RunChecks, Before: []Check{{Kind: RangesAdded, Ranges: r,
				Hint: "a service that is created before would be given an address that another one has"}}}})
	}
	b.add(Step{Phase: ModernMgr, Host: host, Title: "controllers, scheduler and collector do their work",
		Do: &Action{Kind: RunChecks, Before: []Check{{Kind: Works, Asked: []Access{*managerAccess(b.to.Plan)},
			Hint: "the logs of the modern controller manager and scheduler say why not"}, b.beats()}}})
	_, all := b.aloneRoles(func(policy.Grant) bool { return true }, probeGrants()...)
	serves := b.to.Plan.Gateway.Serves()
	_, others := b.aloneRoles(func(g policy.Grant) bool {
		return g.Purpose != policy.ForControllers || serves && g.Subjects[0].Name == plan.JointGateway
	})
	others.Ended = []string{plan.JointControllers}
	if !serves {
		others.Ended = append(others.Ended, plan.JointGateway)
	}
	b.add(b.copyStep(instead(others, all), instead(all, others)))
}

// instead are roles where they decide, in the place of others. Nothing comes from the legacy side: what was withdrawn
// through the modern API server, the only one that is left, would count again, and no person has seen it.
func instead(is, was *Roles) *Roles {
	r := *is
	r.Stored, r.Policies, r.InPlaceOf = false, nil, &was.Rules
	return &r
}

// wayBackOfLegacy is the first of all on the way back: what stands against it is found while everything serves.
func (b *builder) wayBackOfLegacy() {
	if b.retires() {
		b.add(Step{Phase: Tidy, Host: b.to.Plan.Hosts[0].Name,
			Title: "on the way back: the legacy side can read what " +
				"is stored", Undo: &Action{Kind: RunChecks, Before: []Check{b.mayBeReadByLegacy()}}})
	}
}
