package transition

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// NewHosted computes the steps from one hosted plan to another; no first plan is nothing yet, no second one nothing any
// more. The order is that of New: controllers and schedulers that change stop before a server or a store changes;
// members come before API servers and these before controllers; servers roll, unless their minor changes or a resource
// moves: then all of them stop before the first starts. Components that run elsewhere are left alone. Data that members
// claimed stays.
//
// Errors: *RefusedError, with every reason; what cannot be rendered.
func NewHosted(from, to *plan.Plan, facts Facts) (Transition, error) {
	setup := func(p *plan.Plan) Setup { return Setup{Plan: p, Target: render.Hosted} }
	t := Transition{From: describe(setup(from)), To: describe(setup(to))}
	h := hosted{from: from, to: to}
	if from != nil && to != nil {
		reasons := refusePlans(from, to, facts, otherMembers, anotherMinor, refuseLegacyMinor)
		if !sameHandedOver(from, to) {
			reasons = append(reasons, "spec.handedOver: steps of hosted plans move no objects: those of the legacy "+
				"side would stay where no controller acts for them")
		}
		if (copied(from) == nil) != (copied(to) == nil) {
			reasons = append(reasons, "spec.handedOver: steps of hosted plans copy no roles: the modern side would "+
				"have none of those of the legacy side")
		}
		if reasons = append(reasons, h.refuseElsewhere()...); len(reasons) > 0 {
			return t, &RefusedError{Reasons: reasons}
		}
		h.moved = Moves(setup(from), setup(to))
	}
	if err := h.read(); err != nil {
		return t, err
	}
	h.stop()
	h.unreadable(Stop)
	h.start(Stores, etcd)
	h.start(Legacy, server(pair.Legacy))
	h.start(LegacyMgr, daemon(pair.Legacy))
	h.start(Modern, server(pair.Modern))
	h.start(ModernMgr, daemon(pair.Modern))
	h.joint()
	h.start(Gateway, gateway)
	for _, c := range slices.Backward(h.gone(etcd)) {
		h.remove(Tidy, c)
	}
	if len(h.steps) == 0 {
		return t, nil
	}
	changes := h.steps
	h.steps = nil
	h.readable()
	t.Steps = append(h.steps, changes...)
	for i := range t.Steps {
		t.Steps[i].ID, t.Steps[i].Host = fmt.Sprintf("%03d", i+1), plan.HostedName
	}
	t.Hosts = []Host{{Name: plan.HostedName}}
	p := from
	if p == nil {
		p = to
	}
	t.Watch = &Watch{Host: plan.HostedName, Prefix: p.Prefix}
	t.watchOver(from, to, func(s *Step) bool {
		return slices.ContainsFunc(h.selected(etcd), func(c hostedChange) bool {
			return s.changesWorkload(c.component().Name)
		})
	})
	return t, nil
}

// changesWorkload reports whether a step applies or removes a component.
func (s *Step) changesWorkload(name string) bool {
	for _, a := range []*Action{s.Do, s.Undo} {
		if a != nil && a.Workload != nil && a.Workload.Name == name {
			return true
		}
	}
	return false
}

// otherMembers: nothing lets pods of members join a store that runs.
func otherMembers(was, _ *plan.Store) string {
	return fmt.Sprintf("store %q: its endpoints differ: members that are pods stay as many as they are", was.Name)
}

// anotherMinor: pods of members roll as their StatefulSet does it, and nothing looks at all of them after each.
func anotherMinor(was, is *plan.Store) string {
	if sameEtcd(was.Managed.Version, is.Managed.Version) {
		return ""
	}
	return fmt.Sprintf("store %q: etcd %s and %s: members that are pods stay at one minor", was.Name,
		was.Managed.Version, is.Managed.Version)
}

// hosted collects the steps of a hosted transition.
type hosted struct {
	from, to *plan.Plan
	steps    []Step
	changes  []hostedChange // in the order of the components
	moved    []Move
}

// hostedChange is a component as it was and as it will be; nil where it is not there.
type hostedChange struct{ was, is *render.HostedPart }

func (c hostedChange) component() *plan.Component {
	if c.is != nil {
		return c.is.Component
	}
	return c.was.Component
}

func (h *hosted) read() error {
	var parts [2][]render.HostedPart
	for i, p := range []*plan.Plan{h.from, h.to} {
		if p == nil {
			continue
		}
		var err error
		if parts[i], err = render.HostedParts(p); err != nil {
			return err
		}
	}
	was, is := parts[0], parts[1]
	named := func(list []render.HostedPart, name string) *render.HostedPart {
		at := slices.IndexFunc(list, func(p render.HostedPart) bool { return p.Component.Name == name })
		if at < 0 {
			return nil
		}
		return &list[at]
	}
	for i := range is {
		c := hostedChange{named(was, is[i].Component.Name), &is[i]}
		if c.was == nil || !bytes.Equal(c.was.Manifest, c.is.Manifest) {
			h.changes = append(h.changes, c)
		}
	}
	for i := range was {
		if named(is, was[i].Component.Name) == nil {
			h.changes = append(h.changes, hostedChange{was: &was[i]})
		}
	}
	return nil
}

// refuseElsewhere: what a transition changes of components that run from files of their own is changed by hand, and
// nothing in the cluster could look whether it was.
func (h *hosted) refuseElsewhere() []string {
	var reasons []string
	was := existingOf(h.from)
	for _, c := range existingOf(h.to) {
		at := slices.IndexFunc(was, func(o *plan.Component) bool { return o.Host == c.Host && o.Name == c.Name })
		if at >= 0 && !slices.Equal(neededArgs(c), neededArgs(was[at])) {
			reasons = append(reasons, fmt.Sprintf("%s on %s: runs elsewhere, and would need other arguments: change "+
				"them there and say so in extraArgs; fusionctl render --diff shows them", c.Name, c.Host))
		}
	}
	if len(h.from.Hosts) != len(h.to.Hosts) && slices.ContainsFunc(h.from.Stores, func(s plan.Store) bool {
		return s.Managed != nil
	}) {
		reasons = append(reasons, fmt.Sprintf("spec.hosts: %d and %d: each is a member of the managed stores, which "+
			"are added and removed with etcdctl", len(h.from.Hosts), len(h.to.Hosts)))
	}
	return reasons
}

func (h *hosted) selected(of func(*plan.Component) bool) []hostedChange {
	var found []hostedChange
	for _, c := range h.changes {
		if of(c.component()) {
			found = append(found, c)
		}
	}
	return found
}

// gone are the changed components of a kind that the second plan does not have.
func (h *hosted) gone(of func(*plan.Component) bool) []hostedChange {
	return slices.DeleteFunc(h.selected(of), func(c hostedChange) bool { return c.is != nil })
}

// stop removes what acts and changes, then the servers that must not serve beside their successors.
func (h *hosted) stop() {
	ends := h.from != nil && h.from.Joint != nil && (h.to == nil || h.to.Joint == nil)
	for _, c := range slices.Backward(h.selected(gateway)) {
		h.remove(Stop, c)
	}
	if ends {
		h.steps = append(h.steps, h.settle(h.from, Stop, func(s *Step, a *Action) { s.Do = a })...)
	}
	for _, c := range slices.Backward(h.selected(joint)) {
		h.remove(Stop, c)
	}
	if ends {
		h.steps = append(h.steps, h.release(h.from, Stop, func(s *Step, a *Action) { s.Do = a }))
	}
	for _, of := range []func(*plan.Component) bool{daemon(pair.Modern), daemon(pair.Legacy)} {
		for _, c := range slices.Backward(h.selected(of)) {
			h.remove(Stop, c)
		}
	}
	for _, side := range []pair.Side{pair.Modern, pair.Legacy} {
		for _, c := range h.selected(server(side)) {
			if c.is == nil || h.apart(side) {
				h.remove(Stop, c)
			}
		}
	}
}

// joint starts the controllers that see both sides. On the way back, what they leave behind is taken out of the API.
func (h *hosted) joint() {
	begins := h.to != nil && h.to.Joint != nil && (h.from == nil || h.from.Joint == nil)
	undo := func(s *Step, a *Action) { s.Undo = a }
	if begins {
		h.steps = append(h.steps, h.release(h.to, Joint, undo))
	}
	h.start(Joint, joint)
	if begins {
		h.steps = append(h.steps, h.settle(h.to, Joint, undo)...)
	}
}

// settle is builder.settle for the controllers of a cluster.
func (h *hosted) settle(p *plan.Plan, phase Phase, set func(*Step, *Action)) []Step {
	a := releaseOf(p, plan.HostedName)
	if a.Marks.Namespaces == nil {
		return nil
	}
	s := Step{Phase: phase, Title: "no namespace waits for the controllers of both sides"}
	set(&s, &Action{Kind: RunChecks, Before: []Check{{Kind: Settled, Marks: a.Marks, Hint: "the controllers of both " +
		"sides delete what is in it"}}})
	return []Step{s}
}

// release is builder.release for the controllers of a cluster.
func (h *hosted) release(p *plan.Plan, phase Phase, set func(*Step, *Action)) Step {
	a := releaseOf(p, plan.HostedName)
	s := Step{Phase: phase, Title: a.changes()}
	set(&s, a)
	return s
}

// apart reports whether no server of the first plan may serve beside one of the second.
func (h *hosted) apart(side pair.Side) bool {
	return h.from != nil && h.to != nil &&
		(h.from.Side(side).Version.Minor != h.to.Side(side).Version.Minor ||
			slices.ContainsFunc(h.moved, func(m Move) bool { return m.Side == side }))
}

// unreadable is the gate on the way back, asked while the servers are stopped: what the newer ones stored, the older
// ones decode.
func (h *hosted) unreadable(phase Phase) {
	if !h.apart(pair.Modern) || len(refuseSide(h.to, h.from, pair.Modern, Facts{})) == 0 {
		return
	}
	h.steps = append(h.steps, Step{Phase: phase,
		Title: "on the way back: the stores are readable by " + h.from.Modern.Version.String(),
		Undo:  &Action{Kind: RunChecks, Before: []Check{storesCheck(h.from, h.to)}}})
}

// readable is the gate before anything stops: what is stored, the servers of the second plan decode.
func (h *hosted) readable() {
	if !h.apart(pair.Modern) || len(refuseSide(h.from, h.to, pair.Modern, Facts{})) == 0 {
		return
	}
	h.steps = append(h.steps, Step{Phase: Prepare, Title: "the stores are readable by " + h.to.Modern.Version.String(),
		Do: &Action{Kind: RunChecks, Before: []Check{storesCheck(h.to, h.from)}}})
}

func (h *hosted) start(phase Phase, of func(*plan.Component) bool) {
	for _, c := range h.selected(of) {
		if c.is == nil {
			continue
		}
		is := workloadOf(h.to, c.is)
		gone := is
		if c.was != nil && h.removed(c.was) {
			c.was, gone = nil, stopped(h.to, c.is)
		}
		s := Step{Phase: phase, Title: "apply " + is.Name, Do: applying(is), Undo: removing(gone)}
		if c.was != nil {
			s.Undo = applying(workloadOf(h.from, c.was))
		}
		h.steps = append(h.steps, s)
	}
}

func (h *hosted) removed(p *render.HostedPart) bool {
	return slices.ContainsFunc(h.steps, func(s Step) bool {
		return s.Do != nil && s.Do.Kind == RemoveObjects && s.Do.Workload.Name == p.Component.Name
	})
}

func (h *hosted) remove(phase Phase, c hostedChange) {
	if c.was == nil {
		return
	}
	was := workloadOf(h.from, c.was)
	gone := was
	if c.is != nil {
		gone = stopped(h.from, c.was)
	}
	h.steps = append(h.steps, Step{Phase: phase, Title: "remove " + was.Name, Do: removing(gone), Undo: applying(was)})
}

// stopped is what is removed of a component that comes again: its pods. A Service that was made anew would have another
// address, and clients outside would not find it.
func stopped(p *plan.Plan, part *render.HostedPart) *Workload {
	w := workloadOf(p, part)
	w.Manifest = part.Pods
	return w
}

func workloadOf(p *plan.Plan, part *render.HostedPart) *Workload {
	return &Workload{Namespace: p.Name, Kind: part.Kind, Name: part.Component.Name, Manifest: part.Manifest}
}

// named is the workload without its manifest, as checks have it.
func (w *Workload) named() *Workload {
	return &Workload{Namespace: w.Namespace, Kind: w.Kind, Name: w.Name}
}

func applying(w *Workload) *Action {
	return &Action{Kind: ApplyObjects, Workload: w, After: []Check{{Kind: RolledOut, Workload: w.named(),
		Hint: "kubectl -n " + w.Namespace + " describe pods -l app.kubernetes.io/name=" + w.Name + " says why"}}}
}

func removing(w *Workload) *Action {
	return &Action{Kind: RemoveObjects, Workload: w, After: []Check{{Kind: NoPods, Workload: w.named()}}}
}
