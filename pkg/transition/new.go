package transition

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
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
	if reasons := refuse(from, to, facts); len(reasons) > 0 {
		return t, &RefusedError{Reasons: reasons}
	}
	b := &builder{from: from, to: to, disk: map[place]render.File{}, final: map[place]render.File{}}
	if err := b.read(); err != nil {
		return t, err
	}
	b.nodes(false)
	b.beforeHandOver()
	b.stop()
	b.stopped()
	b.stores()
	b.servers(pair.Legacy, Legacy)
	b.start(LegacyMgr, b.changed(daemon(pair.Legacy)), true)
	if len(b.sets) == 0 {
		b.existing()
	}
	b.handOver()
	b.servers(pair.Modern, Modern)
	b.wayBack(Modern)
	b.start(ModernMgr, b.changed(daemon(pair.Modern)), true)
	if err := b.joint(); err != nil {
		return t, err
	}
	b.afterHandOver()
	b.nodes(true)
	b.tidy()
	b.wayBack(Tidy)
	if len(b.steps) == 0 {
		return t, nil
	}
	changes := b.steps
	b.steps = nil
	b.prepare()
	t.Steps = append(b.steps, changes...)
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
	return fmt.Sprintf("%s: legacy %s, modern %s, %s", s.Plan.Name, s.Plan.Legacy.Version, s.Plan.Modern.Version,
		s.Target)
}

func hostsOf(steps []Step, plans ...*plan.Plan) []Host {
	var hosts []Host
	for _, p := range plans {
		if p == nil {
			continue
		}
		machines := make([]Host, 0, len(p.Hosts)+len(p.Nodes))
		for _, h := range p.Hosts {
			machines = append(machines, Host{Name: h.Name, Address: h.Address})
		}
		for _, n := range p.Nodes {
			machines = append(machines, Host{Name: n.Name, Address: n.Address})
		}
		for _, host := range machines {
			known := slices.ContainsFunc(hosts, func(o Host) bool { return o.Name == host.Name })
			if !known && slices.ContainsFunc(steps, func(s Step) bool { return s.Host == host.Name }) {
				hosts = append(hosts, host)
			}
		}
	}
	return hosts
}

// place is a path on a host.
type place struct{ host, path string }

// change is a component as it was and as it will be; nil where it is not there.
type change struct{ was, is *render.Part }

func (c change) component() *plan.Component {
	if c.is != nil {
		return c.is.Component
	}
	return c.was.Component
}

// builder collects steps, and knows which files are in their places after them.
type builder struct {
	from, to    Setup
	steps       []Step
	crossings   []crossing
	sets        []kubever.HandOver // that are handed over
	changes     []change           // in the order of the components, of hosts that both plans have first
	disk, final map[place]render.File
}

// read renders both plans and finds the components and kubelets that differ.
func (b *builder) read() error {
	if err := b.readNodes(); err != nil {
		return err
	}
	was, err := partsOf(b.from, b.disk)
	if err != nil {
		return err
	}
	is, err := partsOf(b.to, b.final)
	if err != nil {
		return err
	}
	for i := range is {
		c := change{is: &is[i]}
		if at := slices.IndexFunc(was, func(p render.Part) bool { return same(&p, &is[i]) }); at >= 0 {
			c.was = &was[at]
		}
		if c.was == nil || c.was.Unit != c.is.Unit || !sameFiles(c.was.Start, c.is.Start) ||
			!sameFiles(c.was.Beside, c.is.Beside) {
			b.changes = append(b.changes, c)
		}
	}
	for i := range was {
		if !slices.ContainsFunc(is, func(p render.Part) bool { return same(&p, &was[i]) }) {
			b.changes = append(b.changes, change{was: &was[i]})
		}
	}
	b.readHandOver(was, is)
	return nil
}

func partsOf(s Setup, files map[place]render.File) ([]render.Part, error) {
	if s.Plan == nil {
		return nil, nil
	}
	parts, err := render.Parts(s.Plan, s.Target)
	for _, p := range parts {
		for _, f := range slices.Concat(p.Start, p.Beside) {
			files[place{p.Component.Host, f.Path}] = f
		}
	}
	if err != nil {
		return nil, err
	}
	kubelets, err := kubeletsOf(s)
	for name, k := range kubelets {
		files[place{name, k.kubeconfig.Path}], files[place{name, k.dropIn.Path}] = k.kubeconfig, k.dropIn
	}
	return parts, err
}

func same(a, b *render.Part) bool {
	return a.Component.Host == b.Component.Host && a.Component.Name == b.Component.Name
}

func sameFiles(a, b []render.File) bool { return slices.EqualFunc(a, b, sameFile) }

func sameFile(a, b render.File) bool {
	return a.Path == b.Path && a.Mode == b.Mode && bytes.Equal(a.Data, b.Data)
}

func (b *builder) changed(of func(*plan.Component) bool) []change {
	var found []change
	for _, c := range b.changes {
		if of(c.component()) {
			found = append(found, c)
		}
	}
	return found
}

// daemon selects the controller managers and schedulers of a side.
func daemon(side pair.Side) func(*plan.Component) bool {
	return func(c *plan.Component) bool {
		return c.Side == side && c.Kind != kubever.APIServer && c.Kind != plan.Etcd
	}
}

func server(side pair.Side) func(*plan.Component) bool {
	return func(c *plan.Component) bool { return c.Side == side && c.Kind == kubever.APIServer }
}

func joint(c *plan.Component) bool { return c.Kind == plan.JointControllers }

func etcd(c *plan.Component) bool { return c.Kind == plan.Etcd }

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
	b.stopAll(slices.DeleteFunc(b.changed(etcd), func(c change) bool { return c.is != nil }))
}

// movesOf are what the servers of a side look for in another store afterwards: at no time do two of them look in two.
func (b *builder) movesOf(side pair.Side) []Move {
	return slices.DeleteFunc(Moves(b.from, b.to), func(m Move) bool { return m.Side != side })
}

// stopped are the checks while the servers that change are stopped, on the way and on the way back: no key stays behind
// in another store, or waits in the one that is read next, and the older servers decode what the newer ones stored.
func (b *builder) stopped() {
	if moves := Moves(b.from, b.to); len(moves) > 0 {
		b.add(Step{Phase: Stop, Host: b.to.Plan.Hosts[0].Name, Title: "no key stays behind in another store",
			Do: &Action{Kind: RunChecks, Before: slices.Concat(NoKeysOf(b.from.Plan, moves, false),
				UnusedStores(b.from.Plan, b.to.Plan, moves))},
			Undo: &Action{Kind: RunChecks, Before: NoKeysOf(b.to.Plan, moves, true)}})
	}
	if b.mayBeUnreadable() {
		b.add(Step{Phase: Stop, Host: b.to.Plan.Hosts[0].Name,
			Title: "on the way back: the stores are readable by " + b.from.Plan.Modern.Version.String(),
			Undo:  &Action{Kind: RunChecks, Before: []Check{storesCheck(b.from.Plan)}}})
	}
}

// mayBeUnreadable reports whether the modern servers of the second plan may store what those of the first do not
// decode.
func (b *builder) mayBeUnreadable() bool {
	return b.minorChanges(pair.Modern) && len(refuseSide(b.to.Plan, b.from.Plan, pair.Modern, Facts{})) > 0
}

func (b *builder) stopAll(changes []change) {
	for _, c := range slices.Backward(changes) {
		b.stopOne(Stop, c.was, true)
	}
}

// stores starts members, all of a new store before the first is waited for: one alone is not healthy.
func (b *builder) stores() {
	var anew []change
	for _, c := range b.changed(etcd) {
		switch {
		case c.is == nil:
		case c.was == nil:
			anew = append(anew, c)
		default:
			b.startOne(Stores, c, true)
		}
	}
	b.start(Stores, anew, false)
	for _, c := range anew {
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
	for _, f := range c.is.Beside {
		b.put(phase, host, f, nil, nil)
	}
	var ready []Check
	if wait {
		ready = b.ready(b.to.Plan, c.is.Component)
	}
	gone := goneChecks(c.is.Component)
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
	gone := goneChecks(p.Component)
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

// ready are the checks that a component serves.
func (b *builder) ready(p *plan.Plan, c *plan.Component) []Check {
	if c.Liveness == nil {
		return nil
	}
	check := Check{Kind: Ready, Probe: c.Liveness, Program: c.Name}
	if c.Kind == kubever.APIServer {
		check.CA, check.Version = p.PKI.CA, c.Version
	}
	return []Check{check}
}

func goneChecks(c *plan.Component) []Check {
	if c.Liveness == nil {
		return nil
	}
	return []Check{{Kind: Gone, Probe: c.Liveness, Program: c.Name}}
}

// existing makes sure that what runs already has the arguments that the plan needs of it: a person changes them, and
// takes them back on the way back.
func (b *builder) existing() {
	for _, c := range existingOf(b.to.Plan) {
		needed, had := neededArgs(c), b.had(c)
		if slices.Equal(needed, had) {
			continue
		}
		s := Step{Phase: LegacyMgr, Host: c.Host, Title: "check the arguments of " + c.Name,
			Do: b.runs(c, needed), Undo: b.runs(c, had)}
		if len(had) == 0 {
			s.Undo = takeBack(c, needed)
		}
		if len(needed) == 0 {
			s.Do = takeBack(c, had)
		}
		b.add(s)
	}
	if b.to.Plan != nil {
		return
	}
	for _, c := range existingOf(b.from.Plan) {
		if needed := neededArgs(c); len(needed) > 0 {
			b.add(Step{Phase: LegacyMgr, Host: c.Host, Title: "the arguments of " + c.Name,
				Do: takeBack(c, needed), Undo: b.runs(c, needed)})
		}
	}
}

// existingOf are the components that run from files of their own.
func existingOf(p *plan.Plan) (components []*plan.Component) {
	if p == nil {
		return nil
	}
	for i := range p.Components {
		if c := &p.Components[i]; c.Side != "" && p.Side(c.Side).Existing {
			components = append(components, c)
		}
	}
	return components
}

// runs checks that a component that runs from files of its own has the arguments.
func (b *builder) runs(c *plan.Component, args []string) *Action {
	return &Action{Kind: RunChecks, Before: []Check{{Kind: Runs, Program: c.Kind, Args: args, Others: b.others(c),
		Hint: "it runs from files of its own: change them there; fusionctl render --diff shows how"}}}
}

func takeBack(c *plan.Component, args []string) *Action {
	return &Action{Kind: ByHand, Text: fmt.Sprintf("take back what was changed in the files of %s for the plan: %s",
		c.Name, strings.Join(args, " "))}
}

// others are the arguments of the other side's component of the same kind on the same host, in either plan.
func (b *builder) others(c *plan.Component) [][]string {
	var others [][]string
	for _, s := range []Setup{b.from, b.to} {
		if s.Plan == nil {
			continue
		}
		for _, o := range s.Plan.Components {
			if o.Host != c.Host || o.Kind != c.Kind || o.Side == c.Side || len(o.Args) == 0 {
				continue
			}
			var args []string
			for _, a := range o.Args {
				args = append(args, a.String())
			}
			others = append(others, args)
		}
	}
	return others
}

// had are the arguments that the first plan needs of a component of the second.
func (b *builder) had(c *plan.Component) []string {
	for _, o := range existingOf(b.from.Plan) {
		if o.Host == c.Host && o.Name == c.Name {
			return neededArgs(o)
		}
	}
	return nil
}

func neededArgs(c *plan.Component) []string {
	var args []string
	for _, a := range c.Args {
		if a.Origin != plan.FromSpec {
			args = append(args, a.String())
		}
	}
	return args
}

// wayBack is the gate on the way back: what stands against it is found while everything serves. It comes first of
// all, and again when the controllers have stopped and the servers have not.
func (b *builder) wayBack(phase Phase) {
	var checks []Check
	if b.mayBeUnreadable() {
		checks = append(checks, storesCheck(b.from.Plan))
	}
	if moves := Moves(b.from, b.to); len(moves) > 0 {
		checks = append(checks, NoKeysOf(b.to.Plan, moves, true)...)
	}
	if len(checks) == 0 {
		return
	}
	b.add(Step{Phase: phase, Host: b.to.Plan.Hosts[0].Name, Title: "on the way back: what is stored allows it",
		Undo: &Action{Kind: RunChecks, Before: checks}})
}

func storesCheck(p *plan.Plan) Check {
	m := p.Ownership()
	return Check{Kind: StoresAgree, Stores: p.Stores, Map: &m, Accept: p.Accept,
		Hint: "rewrite the objects through the newer API server in a version that both decode"}
}

// joint starts the controllers of both sides, for which the legacy API server has to allow what they do.
func (b *builder) joint() error {
	started := slices.DeleteFunc(b.changed(joint), func(c change) bool { return c.is == nil })
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
	if len(wanted) > 0 && !sameFiles(had, wanted) {
		b.add(Step{Phase: Joint, Host: started[0].is.Component.Host, Title: "permissions on the legacy side",
			Do: &Action{Kind: ByHand, Text: fmt.Sprintf("allow user %s on the legacy API server what %s, as fusionctl "+
				"render writes it, says", b.to.Plan.Joint.User, wanted[0].Path)}})
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
	return nil
}

// prepare are the checks and the copies before anything changes.
func (b *builder) prepare() {
	if p := b.to.Plan; p != nil {
		for _, h := range p.Hosts {
			checks := b.hostChecks(p, h.Name)
			if len(checks) > 0 {
				b.add(Step{Phase: Prepare, Host: h.Name, Title: "check certificates and programs",
					Do: &Action{Kind: RunChecks, Before: checks}})
			}
		}
		if b.minorChanges(pair.Modern) &&
			len(refuseSide(b.from.Plan, p, pair.Modern, Facts{})) > 0 {
			b.add(Step{Phase: Prepare, Host: p.Hosts[0].Name,
				Title: "the stores are readable by " + p.Modern.Version.String(),
				Do:    &Action{Kind: RunChecks, Before: []Check{storesCheck(p)}}})
		}
	}
	if moves := Moves(b.from, b.to); len(moves) > 0 {
		b.add(Step{Phase: Prepare, Host: b.to.Plan.Hosts[0].Name, Title: "no key would stay behind in another store",
			Do: &Action{Kind: RunChecks, Before: slices.Concat(NoKeysOf(b.from.Plan, moves, false),
				UnusedStores(b.from.Plan, b.to.Plan, moves))}})
	}
	b.mayGo()
	p := b.from.Plan
	if p == nil {
		p = b.to.Plan
	}
	for i := range p.Stores {
		if s := p.Stores[i]; s.Managed == nil || b.from.Plan != nil {
			b.add(Step{Phase: Prepare, Host: p.Hosts[0].Name, Title: "snapshot store " + s.Name,
				Do: &Action{Kind: Snapshot, Store: &s}})
		}
	}
}

func (b *builder) hostChecks(p *plan.Plan, host string) []Check {
	var checks []Check
	if !slices.ContainsFunc(b.changes, func(c change) bool { return c.component().Host == host }) {
		return nil
	}
	for i := range p.Certificates {
		if c := &p.Certificates[i]; c.Host == host && !c.Existing && !c.Authority {
			checks = append(checks, Check{Kind: Certificate, Certificate: c, Path: c.Cert,
				Hint: "fusionctl pki issue issues what is missing"})
		}
	}
	for _, c := range b.changes {
		if c.is == nil || c.is.Program == "" || c.is.Component.Host != host {
			continue
		}
		check := Check{Kind: Executable, Path: c.is.Program, Hint: "install the program of version " +
			c.is.Component.Version + " there"}
		if !slices.ContainsFunc(checks, func(o Check) bool { return o.Path == check.Path }) {
			checks = append(checks, check)
		}
	}
	return checks
}
