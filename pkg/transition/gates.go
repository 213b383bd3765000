package transition

import (
	"slices"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// movesOf are what the servers of a side look for in another store afterwards: at no time do two of them look in two.
func (b *builder) movesOf(side pair.Side) []Move {
	return slices.DeleteFunc(Moves(b.from, b.to), func(m Move) bool { return m.Side != side })
}

// stopped are the checks while the servers that change are stopped, on the way and on the way back: no key stays behind
// in another store, or waits in the one that is read next, and the older servers decode what the newer ones stored.
func (b *builder) stopped() {
	moves, moving := Moves(b.from, b.to), b.movesKeys()
	if stays := Stays(moves, moving); len(stays) > 0 {
		b.add(Step{Phase: Stop, Host: b.to.Plan.Hosts[0].Name, Title: "no key stays behind in another store",
			Do:   &Action{Kind: RunChecks, Before: MoveChecks(b.from.Plan, b.to.Plan, stays)},
			Undo: &Action{Kind: RunChecks, Before: noKeysOf(b.to.Plan, stays, true)}})
	}
	if b.mayBeUnreadable() {
		b.add(Step{Phase: Stop, Host: b.to.Plan.Hosts[0].Name,
			Title: "on the way back: the stores are readable by " + readerOf(b.from.Plan, b.to.Plan),
			Undo:  &Action{Kind: RunChecks, Before: []Check{storesCheck(b.from.Plan, b.to.Plan)}}})
		if back := b.rewrite(b.from.Plan, b.to.Plan); back != nil {
			b.add(Step{Phase: Stop, Host: b.to.Plan.Hosts[0].Name, Title: back.changes(), Undo: back})
		}
	}
	b.moveKeys() // first on the way back, so that what is written again is where it is read
	if b.mayNotRead() {
		if forth := b.rewrite(b.to.Plan, b.from.Plan); forth != nil {
			b.add(Step{Phase: Stop, Host: b.to.Plan.Hosts[0].Name, Title: forth.changes(), Do: forth})
		}
	}
}

// changing is the side whose API servers are of another minor afterwards; the modern one where that is neither.
func (b *builder) changing() pair.Side {
	if b.legacyUp() {
		return pair.Legacy
	}
	return pair.Modern
}

// mayBeUnreadable reports whether the servers of the second plan may store what those of the first do not decode, or
// leave out of a record what these allocate from.
func (b *builder) mayBeUnreadable() bool { return b.mayDiffer(b.to.Plan, b.from.Plan) }

// mayNotRead is the same of what the first plan has stored.
func (b *builder) mayNotRead() bool { return b.mayDiffer(b.from.Plan, b.to.Plan) }

// mayDiffer: of a legacy side it is always looked at, for of skipped minors the tables say what is stored, and people
// what was left there by those before.
func (b *builder) mayDiffer(wrote, reads *plan.Plan) bool {
	return b.legacyUp() || b.minorChanges(pair.Modern) && (len(refuseSide(wrote, reads, pair.Modern, Facts{})) > 0 ||
		len(bitmapsOf(reads, wrote)) > 0)
}

// wayBack is the gate on the way back: what stands against it is found while everything serves. It comes first of
// all, and again when the controllers have stopped and the servers have not.
func (b *builder) wayBack(phase Phase) {
	var checks []Check
	if b.mayBeUnreadable() {
		checks = append(checks, unmoved(b.readable(b.from.Plan, b.to.Plan), b.to.Plan, b.movesKeys()))
	}
	if stays := Stays(Moves(b.from, b.to), b.movesKeys()); len(stays) > 0 {
		checks = append(checks, noKeysOf(b.to.Plan, stays, true)...)
	}
	checks = append(checks, b.mayMove(true)...)
	if phase == Tidy {
		checks = append(checks, b.etcdBack()...)
		checks = append(checks, b.kubeletsStay()...)
	}
	if len(checks) == 0 {
		return
	}
	b.add(Step{Phase: phase, Host: b.to.Plan.Hosts[0].Name, Title: "on the way back: what is stored allows it",
		Undo: &Action{Kind: RunChecks, Before: checks}})
}

// storesCheck is that the stores are what API servers of a plan read, which come after those of another.
func storesCheck(p, before *plan.Plan) Check {
	m := p.Ownership()
	m.Starting = starting(p, before)
	return Check{Kind: StoresAgree, Stores: p.Stores, Map: &m, Accept: p.Accept,
		Hint: "objects that cannot be decoded: rewrite them through the newer API server in a version that both " +
			"decode; of the rest fusionctl explain RULE says more"}
}

// StoresCheck is what a transition to the second of two setups finds in the stores, before it moves keys.
func StoresCheck(from, to Setup, moving []Moving) Check {
	return unmoved(storesCheck(to.Plan, from.Plan), from.Plan, moving)
}

// starting are the sides of a plan of which no API server serves before all of the other plan have stopped: what these
// have left out of the allocators' records, each adds before it is ready.
func starting(p, before *plan.Plan) []pair.Side {
	if before == nil {
		return nil
	}
	var sides []pair.Side
	for _, side := range pair.Sides() {
		was, is := before.Side(side), p.Side(side)
		if !is.Retired && (was.Retired || was.Version.Minor != is.Version.Minor) {
			sides = append(sides, side)
		}
	}
	return sides
}

// prepare are the checks and the copies before anything changes.
func (b *builder) prepare() {
	b.silentHosts()
	if p := b.to.Plan; p != nil {
		for _, h := range p.Hosts {
			checks := b.hostChecks(p, h.Name)
			if len(checks) > 0 {
				b.add(Step{Phase: Prepare, Host: h.Name, Title: "check certificates and programs",
					Do: &Action{Kind: RunChecks, Before: checks}})
			}
		}
		if b.mayNotRead() {
			b.add(Step{Phase: Prepare, Host: p.Hosts[0].Name,
				Title: "the stores are readable by " + readerOf(p, b.from.Plan),
				Do: &Action{Kind: RunChecks, Before: []Check{unmoved(b.readable(p, b.from.Plan), b.from.Plan,
					b.movesKeys())}}})
		}
	}
	if stays := Stays(Moves(b.from, b.to), b.movesKeys()); len(stays) > 0 {
		b.add(Step{Phase: Prepare, Host: b.to.Plan.Hosts[0].Name, Title: "no key would stay behind in another store",
			Do: &Action{Kind: RunChecks, Before: MoveChecks(b.from.Plan, b.to.Plan, stays)}})
	}
	if checks := b.mayMove(false); len(checks) > 0 {
		b.add(Step{Phase: Prepare, Host: b.to.Plan.Hosts[0].Name, Title: "keys can go to another store",
			Do: &Action{Kind: RunChecks, Before: checks}})
	}
	b.mayEnd()
	b.noneEnds()
	b.steps = append(b.steps, b.alike...)
	b.etcdReady()
	b.mayGo()
	b.mayCopy()
	b.mayRetire()
	b.programs()
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
		if c := &p.Certificates[i]; c.Host == host && !c.Existing && !c.Authority && b.to.Certificates == nil {
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
		if listed := programOf(p, host, c.is.Program); listed != nil {
			if b.putsProgram(host, listed) {
				continue // which looks at it
			}
			check.SHA256 = listed.SHA256
		}
		if !slices.ContainsFunc(checks, func(o Check) bool { return o.Path == check.Path }) {
			checks = append(checks, check)
		}
	}
	return checks
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
	if gateway(c) { // it serves when it knows what both API servers serve
		probe := *c.Liveness
		probe.Path = "/readyz"
		check.Probe, check.CA = &probe, p.PKI.CA
	}
	return []Check{check}
}

// endedChecks are the checks that a rendered component has ended. A process that has just begun does not listen yet,
// and one that ends listens no more: either could still write, or take the port of what starts next.
func endedChecks(c *plan.Component) []Check {
	checks := goneChecks(c)
	for i := range checks {
		for _, a := range c.Args {
			checks[i].Args = append(checks[i].Args, a.String())
		}
	}
	return checks
}

func goneChecks(c *plan.Component) []Check {
	if c.Liveness == nil {
		return nil
	}
	return []Check{{Kind: Gone, Probe: c.Liveness, Program: c.Name}}
}
