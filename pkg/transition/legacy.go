package transition

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// refuseLegacy says why the API servers of the legacy side cannot get another minor; "" where they can, or do not.
// What Kubernetes allows, one minor at a time, is for clusters whose API servers run beside each other meanwhile. Here
// all of them stop, and the stores decide: which version reads what others stored is in the tables.
func refuseLegacy(a, b *plan.Plan, facts Facts) string {
	x, y := a.Legacy.Version, b.Legacy.Version
	between := fmt.Sprintf("spec.legacy.version: %s and %s: ", x, y)
	switch {
	case x.Minor == y.Minor:
		return ""
	case y.Minor < x.Minor:
		return between + "an older legacy minor comes back by fusionctl transition undo of the steps that led to the " +
			"newer one"
	case a.Modern.Version != b.Modern.Version:
		return between + "the modern version changes at the same time: upgrade one side before the other"
	case !reflect.DeepEqual(handedOver(a), handedOver(b)):
		return between + "spec.handedOver changes at the same time: hand over before, or afterwards"
	case !reflect.DeepEqual(a.ModernKubelet, b.ModernKubelet) || !reflect.DeepEqual(a.Nodes, b.Nodes):
		return between + "spec.kubelet.modern changes at the same time: take nodes over before, or afterwards"
	case !reflect.DeepEqual(a.Hosts, b.Hosts):
		return between + "spec.hosts change at the same time: add and remove hosts before, or afterwards"
	case !facts.StoresAgree:
		return between + "the stores have to be read first: --read-stores"
	}
	return ""
}

// refuseLegacyMinor: nothing in a cluster looks whether objects of a hosted legacy side would be lost.
func refuseLegacyMinor(a, b *plan.Plan, _ Facts) string {
	if a.Legacy.Version.Minor == b.Legacy.Version.Minor {
		return ""
	}
	return fmt.Sprintf("spec.legacy.version: %s and %s: the minor of a hosted legacy side stays, for nothing in a "+
		"cluster looks whether its objects would be lost: write %s again", a.Legacy.Version, b.Legacy.Version,
		a.Legacy.Version)
}

// legacyUp reports whether the API servers of the legacy side are of another minor afterwards.
func (b *builder) legacyUp() bool { return b.minorChanges(pair.Legacy) && !b.to.Plan.Legacy.Retired }

// legacyStopped has a person stop what runs from files of its own, and start the newer version in its place when the
// stores are ready for it: at no time do API servers of two minors run.
func (b *builder) legacyStopped() {
	if !b.legacyUp() {
		return
	}
	for _, c := range existingOf(b.from.Plan) {
		if had := neededArgs(c); len(had) > 0 {
			b.add(Step{Phase: Stop, Host: c.Host, Title: "on the way back: the arguments of " + c.Name,
				Undo: b.runs(c, had)})
		}
	}
	b.stopExisting()
}

// legacyStarts is the other half of legacyStopped.
func (b *builder) legacyStarts() {
	if !b.legacyUp() {
		return
	}
	for _, of := range existingByHost(b.to.Plan) {
		start, stop := &Action{Kind: ByHand}, &Action{Kind: ByHand}
		for _, c := range of.components {
			for _, check := range ofVersion(b.to.Plan, c, b.ready(b.to.Plan, c)) {
				check.Hint = "it runs from files of its own: start version " + c.Version + " there"
				start.After = append(start.After, check)
			}
			for _, check := range goneChecks(c) {
				check.Hint = "it runs from files of its own: stop it there"
				stop.After = append(stop.After, check)
			}
		}
		start.Text = fmt.Sprintf("start %s on %s in version %s: they run from files of their own; fusionctl render "+
			"--diff shows arguments that differ", of.names(), of.host, b.to.Plan.Legacy.Version)
		stop.Text = fmt.Sprintf("stop %s of version %s on %s", of.names(), b.to.Plan.Legacy.Version, of.host)
		b.add(Step{Phase: Legacy, Host: of.host, Title: "start the legacy side of " + of.host, Do: start, Undo: stop})
	}
}

// ofVersion are the checks that an API server that runs from files of its own serves, in the version of a plan. What
// the plan knows of it is a port: it is asked as the controllers of both sides ask it, for it may serve no others.
func ofVersion(p *plan.Plan, c *plan.Component, ready []Check) []Check {
	for i := range ready {
		ready[i].CA = "" // which is its own
		if c.Kind != kubever.APIServer {
			continue
		}
		probe := *c.Liveness
		probe.Scheme, probe.Path = "HTTPS", "/version"
		ready[i].Probe = &probe
		if access := jointAccess(p, c.Host, c.Side); access != nil {
			ready[i].Cert, ready[i].Key = access.Cert, access.Key
		}
	}
	return ready
}

// hostsExisting are the components of a host that run from files of their own.
type hostsExisting struct {
	host       string
	components []*plan.Component
}

func (h *hostsExisting) names() string {
	var names []string
	for _, c := range h.components {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}

func existingByHost(p *plan.Plan) (list []hostsExisting) {
	for _, h := range p.Hosts {
		of := hostsExisting{host: h.Name}
		for _, c := range existingOf(p) {
			if c.Host == h.Name {
				of.components = append(of.components, c)
			}
		}
		if len(of.components) > 0 {
			list = append(list, of)
		}
	}
	return list
}

// legacyReads verifies, when everything runs, that the newer legacy version reads all that is stored.
func (b *builder) legacyReads() {
	if !b.legacyUp() {
		return
	}
	b.add(Step{Phase: Tidy, Host: b.to.Plan.Hosts[0].Name, Title: "all that is stored is readable by " +
		b.to.Plan.Legacy.Version.String(), Do: &Action{Kind: RunChecks,
		Before: []Check{storesCheck(b.to.Plan, b.from.Plan)}}}) // allocators complete their records meanwhile
}

// kubeletsStay is the check on the way back that no kubelet is newer than all API servers that one may be connected to.
func (b *builder) kubeletsStay() []Check {
	if !b.legacyUp() {
		return nil
	}
	p := b.from.Plan
	h := &Heartbeats{Prefix: p.Prefix, Nodes: p.Resource("minions").Legacy.Store, Version: p.Legacy.Version}
	if k := p.ModernKubelet; k != nil && k.Minor > h.Version.Minor {
		h.Version = *k
	}
	return []Check{{Kind: NotNewer, Heartbeats: h, Stores: []plan.Store{*p.Store(h.Nodes)},
		Hint: "kubelets must not be newer than their API server: put them back to " + p.Kubelet.String() + " first"}}
}

// EndingKinds is the check that the legacy side has no objects of kinds that its newer version does not have: nothing
// would serve them any more. Nil where there are no such kinds.
func EndingKinds(from, to Setup) *Check {
	if from.Plan == nil || to.Plan == nil || to.Plan.Legacy.Retired ||
		from.Plan.Legacy.Version.Minor == to.Plan.Legacy.Version.Minor {
		return nil
	}
	p := from.Plan
	l := &Left{Prefix: p.Prefix}
	var stores []plan.Store
	for i := range p.Resources {
		row := &p.Resources[i]
		store, is := row.Legacy.Store, to.Plan.Resource(row.Key)
		if store == "" || row.Pseudo || is != nil && (is.Legacy.Store != "" || is.Modern.Store == store) {
			continue
		}
		l.Rows = append(l.Rows, LeftRow{Key: row.Key, Name: row.Name, Store: store, Hint: fmt.Sprintf("%s has none: "+
			"delete them through the legacy API server, and what they define", to.Plan.Legacy.Version)})
		if !slices.ContainsFunc(stores, func(s plan.Store) bool { return s.Name == store }) {
			stores = append(stores, *p.Store(store))
		}
	}
	if len(l.Rows) == 0 {
		return nil
	}
	return &Check{Kind: NothingLeft, Left: l, Stores: stores, Hint: "nothing would serve them any more"}
}

// noneEnds are the gates before kinds end.
func (b *builder) noneEnds() {
	if c := EndingKinds(b.from, b.to); c != nil {
		b.add(Step{Phase: Prepare, Host: b.to.Plan.Hosts[0].Name,
			Title: "no object is of a kind that " + b.to.Plan.Legacy.Version.String() + " does not have",
			Do:    &Action{Kind: RunChecks, Before: []Check{*c}}})
	}
}
