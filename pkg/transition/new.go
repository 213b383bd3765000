package transition

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// New computes the steps from one setup to another. The order is by phase: every controller and scheduler that
// changes is stopped on every host before a server or a store changes, and started after the last of those, so that at
// no time a controller of the first plan runs beside one that takes over its work in the second; stores come before API
// servers and API servers before controllers; servers of one side change one host after the other, or, where their
// minor changes, all of them stop before the first starts.
//
// Errors: *RefusedError, with every reason; what cannot be rendered.
func New(from, to Setup, facts Facts) (Transition, error) {
	t := Transition{From: describe(from), To: describe(to)}
	reasons := refuseLost(from, to, facts.Lost)
	whole := from
	if len(reasons) == 0 {
		from.Plan = withoutHosts(from.Plan, facts.Lost)
		reasons = append(refuse(from, to, facts), refuseAddresses(whole.Plan, to.Plan)...)
	}
	if len(reasons) > 0 {
		return t, &RefusedError{Reasons: reasons}
	}
	b := &builder{whole: whole, lost: facts.Lost, from: from, to: to, prepares: facts.Prepare,
		disk: map[place]render.File{}, final: map[place]render.File{}, placed: map[place]bool{}}
	if err := b.read(); err != nil {
		return t, err
	}
	if err := b.readMembers(); err != nil {
		return t, err
	}
	b.nodes(false)
	b.beforeHandOver()
	b.roles()
	b.rolesAlone()
	b.handOverKept()
	b.handOverServed()
	b.pauseExisting(true)
	b.stop()
	b.legacyGone()
	b.legacyStopped()
	b.stopped()
	b.stores()
	b.servers(pair.Legacy, Legacy)
	b.legacyStarts()
	if !b.pauses() {
		b.start(LegacyMgr, b.changed(daemon(pair.Legacy)), true)
	}
	if !b.handsOver() {
		b.existing()
	}
	b.handOver()
	if b.pauses() {
		b.start(LegacyMgr, b.changed(daemon(pair.Legacy)), true)
	}
	b.rolesDecide()
	b.servers(pair.Modern, Modern)
	b.wayBack(Modern)
	b.servesAlone()
	b.start(ModernMgr, b.changed(daemon(pair.Modern)), true)
	b.actsAlone()
	if err := b.permissions(); err != nil {
		return t, err
	}
	b.joint()
	b.start(Gateway, b.changed(gateway), true)
	b.pauseExisting(false)
	b.afterHandOver()
	b.nodes(true)
	b.leave()
	b.putCertificates()
	b.tidy()
	b.legacyReads()
	b.wayBack(Tidy)
	b.wayBackOfLegacy()
	b.mayEndAgain()
	changes := b.steps
	b.steps = nil
	switch {
	case len(changes) > 0:
		b.prepare()
	default:
		b.programs()
	}
	if t.Steps = append(b.steps, changes...); len(t.Steps) == 0 {
		return t, nil
	}
	for i := range t.Steps {
		t.Steps[i].ID = fmt.Sprintf("%03d", i+1)
	}
	t.Hosts = hostsOf(t.Steps, from.Plan, to.Plan)
	b.watchOver(&t)
	return t, nil
}

func describe(s Setup) string {
	if s.Plan == nil {
		return "none"
	}
	if s.Plan.Legacy.Retired {
		return fmt.Sprintf("%s: legacy %s retired, modern %s, %s", s.Plan.Name, s.Plan.Legacy.Version,
			s.Plan.Modern.Version, s.Target)
	}
	return fmt.Sprintf("%s: legacy %s, modern %s, %s", s.Plan.Name, s.Plan.Legacy.Version, s.Plan.Modern.Version,
		s.Target)
}

// hostsOf are the hosts of steps, in the order of plans. One that got another address is reached at the last.
func hostsOf(steps []Step, plans ...*plan.Plan) []Host {
	var hosts []Host
	for _, p := range plans {
		if p == nil {
			continue
		}
		for _, host := range HostsOf(p) {
			at := slices.IndexFunc(hosts, func(o Host) bool { return o.Name == host.Name })
			if at >= 0 {
				hosts[at].Address = host.Address
			} else if slices.ContainsFunc(steps, func(s Step) bool { return s.Host == host.Name }) {
				hosts = append(hosts, host)
			}
		}
	}
	return hosts
}

// builder collects steps, and knows which files are in their places after them.
type builder struct {
	from, to    Setup // the first without lost hosts
	whole       Setup // the first with them, as its files were rendered
	lost        []string
	gone        []lostMember
	steps       []Step
	crossings   []crossing
	sets        []handedSet // that are handed over while no controller acts for them
	served      []handedSet // that are handed over while programs serve them
	kept        []handedSet // that both sides have afterwards
	defining    []handedSet // of definitions, which go with what they define
	changes     []change    // in the order of the components, of hosts that both plans have first
	disk, final map[place]render.File
	placed      map[place]bool // programs that are put while what starts them is stopped
	started     map[place]bool // programs that something of the first plan starts
	prepares    bool           // objects are written again
	// resources that go, to which side, by key
	resources map[pair.Side]map[string]handover.Resource
	moving    []moving // members that join or leave a store
	alike     []Step   // that look whether endpoints are of one store, and whether members can join it
}

// minorChanges reports whether the servers of a side are of another minor afterwards.
func (b *builder) minorChanges(side pair.Side) bool {
	return b.from.Plan != nil && b.to.Plan != nil &&
		b.from.Plan.Side(side).Version.Minor != b.to.Plan.Side(side).Version.Minor
}

// stop stops what acts and changes, then the servers and members that are not changed in their place.
func (b *builder) stop() {
	p := b.from.Plan
	ends := p != nil && p.Joint != nil && (b.to.Plan == nil || b.to.Plan.Joint == nil)
	if ends {
		b.settle(p, func(a *Action) Step { return Step{Phase: Stop, Do: a} })
	}
	b.stopAll(b.changed(gateway))
	b.stopAll(b.changed(joint))
	if ends {
		b.release(p, func(a *Action) Step { return Step{Phase: Stop, Do: a} })
	}
	b.stopAll(b.changed(daemon(pair.Modern)))
	b.stopAll(b.changed(daemon(pair.Legacy)))
	for _, side := range []pair.Side{pair.Modern, pair.Legacy} {
		var gone []change
		for _, c := range b.changed(server(side)) {
			if c.is == nil || b.minorChanges(side) || len(b.movesOf(side)) > 0 {
				gone = append(gone, c)
			}
		}
		b.stopAll(gone)
	}
	b.stopAll(slices.DeleteFunc(b.changed(etcd), func(c change) bool { return c.is != nil || b.joinsOrLeaves(c) }))
}

func (b *builder) stopAll(changes []change) {
	for _, c := range slices.Backward(changes) {
		b.stopOne(Stop, c.was, true)
	}
}

// stores starts members, all of a new store before the first is waited for: one alone is not healthy.
func (b *builder) stores() {
	var anew []change
	minors := b.etcdMinors()
	b.removeLost()
	for _, c := range b.changed(etcd) {
		switch {
		case c.is == nil || b.joinsOrLeaves(c):
		case c.was == nil:
			anew = append(anew, c)
		case minorOf(minors, c.is.Component) != nil: // store by store, below
		default:
			b.startOne(Stores, c, true)
		}
	}
	b.joined()
	b.startMembers(anew)
	for _, m := range minors {
		b.changeMinor(m, slices.DeleteFunc(b.changed(etcd), func(c change) bool {
			return c.is == nil || c.was == nil || c.is.Component.Store != m.store.Name
		}))
	}
}

// startMembers starts all members before the first is waited for.
func (b *builder) startMembers(members []change) {
	b.start(Stores, members, false)
	for _, c := range members {
		if ready := b.ready(b.to.Plan, c.is.Component); len(ready) > 0 {
			b.add(Step{Phase: Stores, Host: c.is.Component.Host, Title: "wait for " + c.is.Component.Name,
				Do: &Action{Kind: RunChecks, Before: ready}})
		}
	}
}

// servers changes the API servers of a side, one host after the other.
func (b *builder) servers(side pair.Side, phase Phase) { b.start(phase, b.changed(server(side)), true) }

func (b *builder) start(phase Phase, changes []change, wait bool) {
	for _, c := range changes {
		if c.is != nil {
			b.startOne(phase, c, wait)
		}
	}
}

// startOne brings a component from what it was to what it will be.
func (b *builder) startOne(phase Phase, c change, wait bool) {
	host, name := c.is.Component.Host, c.is.Component.Name
	b.stopOne(phase, c.was, wait)
	b.programInPlace(phase, c)
	for _, f := range b.certificates(c.is) {
		b.putCertificate(phase, host, f)
	}
	for _, f := range c.is.Beside {
		b.put(phase, host, f, nil, nil)
	}
	var ready []Check
	if wait {
		ready = b.ready(b.to.Plan, c.is.Component)
	}
	gone := endedChecks(c.is.Component)
	if c.is.Unit == "" {
		for _, f := range c.is.Start {
			b.put(phase, host, f, ready, gone)
		}
		return
	}
	for _, f := range c.is.Start {
		b.put(phase, host, f, nil, nil)
	}
	b.add(Step{Phase: phase, Host: host, Title: "start " + name,
		Do:   &Action{Kind: StartUnit, Unit: c.is.Unit, After: ready},
		Undo: &Action{Kind: StopUnit, Unit: c.is.Unit, After: gone}})
}

// stopOne stops a component of the first plan, once.
func (b *builder) stopOne(phase Phase, p *render.Part, wait bool) {
	if p == nil {
		return
	}
	host := p.Component.Host
	var ready []Check
	if wait && (p.Component.Kind != plan.Etcd || b.alone(p.Component)) {
		ready = b.ready(b.from.Plan, p.Component)
	}
	gone := endedChecks(p.Component)
	if p.Unit != "" {
		if slices.ContainsFunc(b.steps, func(s Step) bool {
			return s.Host == host && s.Do != nil && s.Do.Kind == StopUnit && s.Do.Unit == p.Unit
		}) {
			return
		}
		b.add(Step{Phase: phase, Host: host, Title: "stop " + p.Component.Name,
			Do:   &Action{Kind: StopUnit, Unit: p.Unit, After: gone},
			Undo: &Action{Kind: StartUnit, Unit: p.Unit, After: ready}})
		return
	}
	for _, f := range p.Start {
		b.remove(phase, host, f.Path, gone, ready)
	}
}

// alone reports whether a member is healthy without those that stop or start with it.
func (b *builder) alone(c *plan.Component) bool {
	members := 0
	for _, other := range b.from.Plan.Components {
		if other.Kind == plan.Etcd && other.Store == c.Store {
			members++
		}
	}
	stays := slices.ContainsFunc(b.changes, func(o change) bool {
		return o.was != nil && o.is != nil && o.was.Component.Host == c.Host && o.was.Component.Name == c.Name
	})
	return members == 1 || stays
}

func (b *builder) add(s Step) { b.steps = append(b.steps, s) }

func stored(f render.File) *File { return &File{Path: f.Path, Mode: f.Mode, Data: f.Data} }

func (b *builder) put(phase Phase, host string, f render.File, after, undone []Check) {
	at := place{host, f.Path}
	old, there := b.disk[at]
	if there && sameFile(old, f) {
		return
	}
	s := Step{Phase: phase, Host: host, Title: "put " + f.Path}
	s.Do = &Action{Kind: PutFile, File: stored(f), After: after}
	s.Undo = &Action{Kind: RemoveFile, File: stored(f), After: undone}
	if there {
		s.Do.Was = stored(old)
		s.Undo = &Action{Kind: PutFile, File: stored(old), Was: stored(f)}
	}
	b.disk[at] = f
	b.add(s)
}

// again adds a step that puts a file once more: there it changes nothing on the way, and is the first on the way back.
func (b *builder) again(phase Phase, s Step) {
	do, undo := *s.Do, *s.Undo
	b.add(Step{Phase: phase, Host: s.Host, Title: s.Title, Do: &do, Undo: &undo})
}

func (b *builder) remove(phase Phase, host, path string, after, undone []Check) {
	at := place{host, path}
	old, there := b.disk[at]
	if !there {
		return
	}
	delete(b.disk, at)
	b.add(Step{Phase: phase, Host: host, Title: "remove " + path,
		Do:   &Action{Kind: RemoveFile, File: stored(old), After: after},
		Undo: &Action{Kind: PutFile, File: stored(old), After: undone}})
}

// tidy removes what no component of the second plan has.
func (b *builder) tidy() {
	left := slices.SortedFunc(maps.Keys(b.disk), func(x, y place) int {
		return strings.Compare(x.host+x.path, y.host+y.path)
	})
	for _, at := range left {
		if _, kept := b.final[at]; !kept {
			b.remove(Tidy, at.host, at.path, nil, nil)
		}
	}
}

// permissions are those on the legacy API server that what sees both sides has to have before it starts.
func (b *builder) permissions() error {
	var started []change
	for _, c := range b.changes {
		if c.is != nil && plan.SeesBoth(c.is.Component.Kind) {
			started = append(started, c)
		}
	}
	if len(started) == 0 {
		return nil
	}
	wanted, err := render.LegacyAccess(b.to.Plan)
	if err != nil {
		return err
	}
	var had []render.File
	if b.from.Plan != nil {
		if had, err = render.LegacyAccess(b.from.Plan); err != nil {
			return err
		}
	}
	if len(wanted) == 0 || sameFiles(had, wanted) {
		return nil
	}
	var users []string
	if b.to.Plan.Joint != nil {
		users = append(users, b.to.Plan.Joint.User)
	}
	if g := b.to.Plan.Gateway; g.Serves() {
		users = append(users, g.Component.User)
	}
	phase := Gateway
	if slices.ContainsFunc(started, func(c change) bool { return joint(c.is.Component) }) {
		phase = Joint
	}
	b.add(Step{Phase: phase, Host: started[0].is.Component.Host, Title: "permissions on the legacy side",
		Do: &Action{Kind: ByHand, Text: fmt.Sprintf("allow %s on the legacy API server what %s, as fusionctl render "+
			"writes it, says", "user "+strings.Join(users, " and user "), wanted[0].Path)}})
	return nil
}

// joint starts the controllers of both sides, for which the legacy API server has to allow what they do.
func (b *builder) joint() {
	started := slices.DeleteFunc(b.changed(joint), func(c change) bool { return c.is == nil })
	if len(started) == 0 {
		return
	}
	begins := b.from.Plan == nil || b.from.Plan.Joint == nil
	if begins {
		b.release(b.to.Plan, func(a *Action) Step { return Step{Phase: Joint, Undo: a} })
	}
	b.start(Joint, started, true)
	if begins {
		b.settle(b.to.Plan, func(a *Action) Step { return Step{Phase: Joint, Undo: a} })
	}
	b.admits(started)
}
