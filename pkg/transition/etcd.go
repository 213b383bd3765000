package transition

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Members are those of a store whose minor changes, one member after the other.
type Members struct {
	Store plan.Store `json:"store"`
	// Minors are those that a member may have meanwhile, the older one first: 3.5 and 3.6.
	Minors []string `json:"minors"`
	// Member is the endpoint of one that has just started, and Version its release; "" for none.
	Member  string `json:"member,omitempty"`
	Version string `json:"version,omitempty"`
	// Cluster is the version that the members have to have agreed on; "" for any of Minors.
	Cluster string `json:"cluster,omitempty"`
}

func (m *Members) validate() error {
	if m == nil || !spec.IsLabel(m.Store.Name) || len(m.Store.Endpoints) == 0 || len(m.Minors) != 2 {
		return errors.New("want a store with endpoints, and two minors")
	}
	older, ok := kubever.ParseEtcd(m.Minors[0])
	newer, also := kubever.ParseEtcd(m.Minors[1])
	if !ok || !also || !older.Before(newer) {
		return fmt.Errorf("minors %q: want two of etcd, the older one first", m.Minors)
	}
	if m.Cluster != "" && !slices.Contains(m.Minors, m.Cluster) || (m.Member == "") != (m.Version == "") {
		return fmt.Errorf("cluster version %q, member %q of %q: want one of the minors, and a member with a release",
			m.Cluster, m.Member, m.Version)
	}
	return nil
}

// etcdChange is a store of both plans whose members get another minor.
type etcdChange struct {
	store    *plan.Store // as it will be
	was, is  string      // releases
	up       bool
	upgrade  kubever.EtcdUpgrade
	snapshot string // the file, of the beginning
}

// etcdChangeOf returns how the minor of a managed store changes; nil where it does not. It is one that is not refused.
func etcdChangeOf(was, is *plan.Store) *etcdChange {
	if was == nil || is == nil || was.Managed == nil || is.Managed == nil {
		return nil
	}
	c := &etcdChange{store: is, was: was.Managed.Version, is: is.Managed.Version, snapshot: was.Name + ".db"}
	from, known := kubever.ParseEtcd(c.was)
	to, alsoKnown := kubever.ParseEtcd(c.is)
	if !known || !alsoKnown || from == to {
		return nil
	}
	c.up = from.Before(to)
	older := from
	if !c.up {
		older = to
	}
	c.upgrade, _ = kubever.EtcdUpgradeOf(older)
	return c
}

// refuseEtcd says why the members of a store cannot get another release; "" where they can.
func refuseEtcd(was, is *plan.Store) string {
	if sameEtcd(was.Managed.Version, is.Managed.Version) {
		return ""
	}
	from, known := kubever.ParseEtcd(was.Managed.Version)
	to, alsoKnown := kubever.ParseEtcd(is.Managed.Version)
	between := fmt.Sprintf("store %q: etcd %s and %s: ", was.Name, was.Managed.Version, is.Managed.Version)
	if !known || !alsoKnown {
		return between + "want releases such as 3.6.8"
	}
	older, newer, up := from, to, from.Before(to)
	if !up {
		older, newer = to, from
	}
	u, ok := kubever.EtcdUpgradeOf(older)
	switch {
	case !ok && !slices.ContainsFunc(kubever.EtcdUpgrades(), func(u kubever.EtcdUpgrade) bool { return u.To == older }):
		return between + "no way from " + older.String() + " to another minor is known"
	case !ok || u.To.Before(newer):
		next := u.To
		if !up {
			next = kubever.EtcdMinor{Major: newer.Major, Minor: newer.Minor - 1}
		}
		if !ok {
			return between + "no way to " + newer.String() + " is known"
		}
		return between + fmt.Sprintf("etcd goes one minor at a time: first to a release of %s, then further, each a "+
			"transition of its own", next)
	case !up && !u.Downgrades:
		return between + fmt.Sprintf("what %s has written has no way back to %s but a snapshot: %s", newer, older,
			u.Why)
	}
	if patch, has := kubever.EtcdPatch(was.Managed.Version); up && u.LeastPatch > 0 && (!has || patch < u.LeastPatch) {
		return between + fmt.Sprintf("members go on to %s from %s.%d or later, all of them: %s: first set that "+
			"release, in a transition of its own", newer, older, u.LeastPatch, u.Why)
	}
	return ""
}

func (c *etcdChange) minors() []string {
	return []string{c.upgrade.From.String(), c.upgrade.To.String()}
}

// all are the members, whichever of the two minors each has.
func (c *etcdChange) all() *Members { return &Members{Store: *c.store, Minors: c.minors()} }

// agreed are the members with a cluster version.
func (c *etcdChange) agreed(version kubever.EtcdMinor) *Members {
	m := c.all()
	m.Cluster = version.String()
	return m
}

// one are the members of which that of a component has just started.
func (c *etcdChange) one(member *plan.Component) *Members {
	m := c.all()
	m.Member, _ = member.Arg("advertise-client-urls")
	m.Version = member.Version
	return m
}

func checkMembers(m *Members) *Action {
	return &Action{Kind: RunChecks, Before: []Check{{Kind: MembersAre, Members: m, Hint: "etcdctl endpoint status " +
		"and endpoint health, and the logs of the members, say what each does"}}}
}

// etcdMinors are the stores whose minor changes, in the order of the plan.
func (b *builder) etcdMinors() (list []*etcdChange) {
	if b.from.Plan == nil || b.to.Plan == nil {
		return nil
	}
	for i := range b.to.Plan.Stores {
		is := &b.to.Plan.Stores[i]
		if c := etcdChangeOf(b.from.Plan.Store(is.Name), is); c != nil {
			list = append(list, c)
		}
	}
	return list
}

// changeMinor changes the members of a store, one after the other, and looks at all of them after each. On the way to a
// newer minor the members agree on it when the last of them runs; on the way to an older one they do before the first.
func (b *builder) changeMinor(c *etcdChange, members []change) {
	at := func(title string, do, undo *Action) {
		b.add(Step{Phase: Stores, Host: b.to.Plan.Hosts[0].Name, Title: title, Do: do, Undo: undo})
	}
	raise := &Action{Kind: RaiseStore, Members: c.agreed(c.upgrade.To)}
	lower := &Action{Kind: LowerStore, Members: c.agreed(c.upgrade.From)}
	if !c.up {
		at(lower.changes(), lower, raise)
	}
	if c.up && c.upgrade.Settles {
		for _, m := range members {
			settle := &Action{Kind: SettleMember, Members: c.all()}
			b.add(Step{Phase: Stores, Host: m.is.Component.Host, Title: settle.changes(), Do: settle})
		}
	}
	for i, m := range members {
		if c.up && !c.upgrade.Downgrades && i == len(members)-1 {
			at("the last member of store "+c.store.Name+" that can still go back", &Action{Kind: ByHand,
				Text: fmt.Sprintf("look at what the other members do with etcd %s: once the last member runs it, the "+
					"store has no way back to %s but its snapshot of the beginning, %s, without what was written "+
					"since (%s)", c.is, c.upgrade.From, c.snapshot, c.upgrade.Why)}, nil)
		}
		host := m.is.Component.Host
		b.add(Step{Phase: Stores, Host: host, Title: fmt.Sprintf("on the way back: %s runs etcd %s",
			m.was.Component.Name, c.was), Undo: checkMembers(c.one(m.was.Component))})
		first := len(b.steps)
		b.startOne(Stores, m, true)
		if c.up {
			c.comesBack(b.steps[first:], host, m.is)
		}
		b.add(Step{Phase: Stores, Host: host, Title: fmt.Sprintf("%s runs etcd %s", m.is.Component.Name, c.is),
			Do: checkMembers(c.one(m.is.Component))})
	}
	switch {
	case c.up && c.upgrade.Downgrades:
		at(raise.changes(), raise, lower)
	case c.up:
		at("the members of store "+c.store.Name+" agree on "+c.upgrade.To.String(),
			checkMembers(c.agreed(c.upgrade.To)), c.noDowngrade())
	default:
		at("the members of store "+c.store.Name+" agree on "+c.upgrade.From.String(),
			checkMembers(c.agreed(c.upgrade.From)), nil)
	}
}

// comesBack lets a member stop only when an older one can take its place: they agree on the newer minor by themselves,
// seconds after the last of them has started.
func (c *etcdChange) comesBack(steps []Step, host string, is *render.Part) {
	for i := range steps {
		undo := steps[i].Undo
		if steps[i].Host != host || !touches(is, undo) || undo.Kind != StopUnit && len(undo.After) == 0 {
			continue
		}
		if c.upgrade.Downgrades {
			undo.First = &Action{Kind: LowerStore, Members: c.agreed(c.upgrade.From)}
			continue
		}
		undo.Before = append(undo.Before, Check{Kind: MayComeBack, Members: c.all(), Hint: c.stays()})
	}
}

// stays says what to do where no member can come back.
func (c *etcdChange) stays() string {
	return fmt.Sprintf("members of %s refuse to start once all of them have agreed on %s: stop what uses the store, "+
		"put the snapshot %s back on every member with etcd %s (it lacks what was written since), and run this again; "+
		"or stay with what runs", c.upgrade.From, c.upgrade.To, c.snapshot, c.was)
}

// noDowngrade stands in the way back of a store once its members have agreed on a minor from which none can come back.
func (c *etcdChange) noDowngrade() *Action {
	return &Action{Kind: RunChecks, Before: []Check{{Kind: MayComeBack, Members: c.all(), Hint: c.stays()}}}
}

// etcdReady looks, before anything changes, whether the members of stores whose minor changes can be changed.
func (b *builder) etcdReady() {
	for _, c := range b.etcdMinors() {
		from := c.upgrade.From
		if !c.up {
			from = c.upgrade.To
		}
		b.add(Step{Phase: Prepare, Host: b.from.Plan.Hosts[0].Name,
			Title: "the members of store " + c.store.Name + " are healthy, and agree on " + from.String(),
			Do:    checkMembers(c.agreed(from))})
	}
}

// etcdBack are the checks on the way back, while everything serves: every member answers, and can come back.
func (b *builder) etcdBack() (checks []Check) {
	for _, c := range b.etcdMinors() {
		if c.up && !c.upgrade.Downgrades {
			checks = append(checks, c.noDowngrade().Before...)
		} else {
			checks = append(checks, checkMembers(c.all()).Before...)
		}
	}
	return checks
}

// minorOf returns how the minor of the store of a member changes; nil where it does not.
func minorOf(list []*etcdChange, c *plan.Component) *etcdChange {
	at := slices.IndexFunc(list, func(e *etcdChange) bool { return e.store.Name == c.Store })
	if at < 0 {
		return nil
	}
	return list[at]
}
