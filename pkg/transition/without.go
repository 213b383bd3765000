package transition

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/plan"
)

// WithoutError says why an open transition needs hosts that are lost.
type WithoutError struct{ Reasons []string }

func (e *WithoutError) Error() string {
	return "without the lost hosts it does not go on:\n  " + strings.Join(e.Reasons, "\n  ")
}

// onLost is what becomes of an action or a check whose host is lost.
type onLost int

const (
	needed    onLost = iota // it needs what lies there: the transition does not go past it
	skipped                 // it changes that machine alone
	byAnother               // it changes the cluster, by what every host of the control plane has
	leaves                  // a member joins or leaves: the lost one leaves
)

// actionsOnLost says what becomes of actions whose host is lost.
var actionsOnLost = map[Kind]onLost{
	PutFile: skipped, RemoveFile: skipped, StartUnit: skipped, StopUnit: skipped, PutProgram: skipped,
	RemoveProgram: skipped, ChangeKubelet: skipped, RestoreKubelet: skipped, SettleMember: skipped,
	SetDataAside: skipped, RestoreMember: skipped, PutBackMember: skipped, RunChecks: skipped,
	ByHand: byAnother, Snapshot: byAnother, Release: byAnother, CopyRoles: byAnother, RemoveRoles: byAnother,
	RaiseStore: byAnother, LowerStore: byAnother, RewriteObjects: byAnother, MoveKeys: byAnother,
	ClearEndpoints: byAnother, AddRanges: byAnother, RemoveRanges: byAnother,
	AddMember: leaves, PromoteMember: leaves, RemoveMember: leaves,
	HandOver: needed, HandBack: needed,
	ApplyObjects: needed, RemoveObjects: needed, // of hosted plans, which have no hosts
}

// checksOnLost says the same of checks.
var checksOnLost = map[CheckKind]onLost{
	FileIs: skipped, UnitOn: skipped, Executable: skipped, Certificate: skipped, Ready: skipped, Gone: skipped,
	Runs: skipped, Program: skipped, NodeRights: skipped, NodeReady: skipped, NodePods: skipped, MemberIs: skipped,
	BackupIs: skipped, NoData: skipped, Silent: skipped,
	StoresAgree: byAnother, NoKeys: byAnother, Settled: byAnother, Released: byAnother, Budgets: byAnother,
	RolesMayGo: byAnother, RolesEqual: byAnother, MayRewrite: byAnother, MayMove: byAnother, MembersAre: byAnother,
	MayComeBack: byAnother, OneCluster: byAnother, SameData: byAnother, Beats: byAnother, NotNewer: byAnother,
	NothingLeft: byAnother, MastersAre: byAnother, NoneWakes: byAnother, RangesAdded: byAnother,
	Works: byAnother,
	MayGo: needed, Adopted: needed, Defined: needed,
	RolledOut: needed, NoPods: needed,
}

// Silence has the hosts that are not lost look whether something on the lost ones answers: those of the control plane,
// or all where the steps change none of it. Errors: *WithoutError where no host is left that could look; those of the
// runner.
func Silence(ctx context.Context, t *Transition, r Runner, lost []string) error {
	isLost := func(name string) bool { return slices.Contains(lost, name) }
	look := slices.DeleteFunc(t.controlPlane(), isLost)
	if len(look) == 0 {
		for _, h := range t.Hosts {
			if !isLost(h.Name) {
				look = append(look, h.Name)
			}
		}
	}
	if len(look) == 0 {
		return &WithoutError{Reasons: []string{"no other host has a step: none could look whether it is lost"}}
	}
	var problems []error
	for _, host := range look {
		a := &Action{Kind: RunChecks}
		for _, h := range t.Hosts {
			if isLost(h.Name) {
				a.Before = append(a.Before, Check{Kind: Silent, Addresses: t.addressesOn(h), Hint: hintNotLost})
			}
		}
		if err := performOn(ctx, r, host, a); err != nil {
			problems = append(problems, fmt.Errorf("seen from host %s: %w", host, err))
		}
	}
	return errors.Join(problems...)
}

// controlPlane are the hosts that have more than a kubelet to change, by name.
func (t *Transition) controlPlane() (names []string) {
	for _, h := range t.Hosts {
		if slices.ContainsFunc(t.Steps, func(s Step) bool { return s.Host == h.Name && s.Phase != Nodes }) {
			names = append(names, h.Name)
		}
	}
	return names
}

// addressesOn is where something on a host would answer: its kubelet, and what the steps know of there.
func (t *Transition) addressesOn(h Host) []string {
	addresses := []string{plan.HostPort(h.Address, kubeletPort)}
	for i := range t.Steps {
		s := &t.Steps[i]
		for _, a := range []*Action{s.Do, s.Undo} {
			for ; a != nil; a = a.First {
				for _, c := range slices.Concat(a.Before, a.After) {
					if c.Probe != nil && s.Host == h.Name {
						addresses = append(addresses, plan.HostPort(h.Address, c.Probe.Port))
					}
				}
				for _, store := range a.stores() {
					for _, e := range store.Endpoints {
						if u, err := url.Parse(e); err == nil && h.has(u.Hostname()) {
							addresses = append(addresses, u.Host)
						}
					}
				}
			}
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

// has reports whether a name or an address in a URL is that of a host.
func (h *Host) has(name string) bool { return name == h.Address || name == h.Name }

// Without is an open transition as it goes on, or back, when hosts are lost for good: what would change those machines
// alone is not done, what would change the cluster from there is done from another host of the control plane, and no
// step looks for stores there. The identities of its steps are the same, and so is its journal. Silence says whether
// they are lost. Errors: *WithoutError; ErrJournal, wrapped.
func (t *Transition) Without(records []Record, lost []string, undo bool) (*Transition, error) {
	state, err := StateOf(t, records)
	if err != nil {
		return nil, err
	}
	e := &WithoutError{}
	add := func(format string, args ...any) { e.Reasons = append(e.Reasons, fmt.Sprintf(format, args...)) }
	if state == (State{}) {
		add("nothing of it was begun: fusionctl transition plan --lost plans it without the host")
	}
	var gone []Host
	for _, name := range lost {
		at := slices.IndexFunc(t.Hosts, func(h Host) bool { return h.Name == name })
		if at < 0 {
			add("%q is none of its hosts", name)
			continue
		}
		gone = append(gone, t.Hosts[at])
	}
	if len(e.Reasons) > 0 {
		return nil, e
	}
	l := &leaving{gone: gone}
	if l.Transition, err = t.copied(); err != nil {
		return nil, err
	}
	isLost := func(name string) bool { return slices.Contains(lost, name) }
	l.Hosts = slices.DeleteFunc(l.Hosts, func(h Host) bool { return isLost(h.Name) })
	if on := l.controlPlane(); len(on) > 0 {
		l.by = l.Hosts[slices.IndexFunc(l.Hosts, func(h Host) bool { return h.Name == on[0] })]
	}
	first, last := state.Done, len(t.Steps)-1 // of those that are left to do
	if undo {
		first, last = 0, state.Done-1
		if state.Open {
			last++
		}
	}
	for i := range l.Steps {
		s := &l.Steps[i]
		if i < first || i > last {
			continue
		}
		a, err := &s.Do, error(nil)
		if undo {
			a = &s.Undo
		}
		if !isLost(s.Host) {
			l.forget(*a)
		} else if *a, err = l.instead(*a); err == nil {
			s.lost = s.Host
			if s.Host = cmp.Or(l.by.Name, s.Host); *a == nil {
				s.Title += ": not done, " + s.lost + " is lost"
			}
		}
		if err == nil {
			err = l.reachable(*a)
		}
		if err != nil {
			add("step %s, %s on %s: %v", s.ID, t.Steps[i].Title, t.Steps[i].Host, err)
		}
	}
	if w := l.Watch; w != nil {
		if isLost(w.Host) {
			w.Host = l.by.Name
		}
		for i := range w.Stores {
			l.strip(&w.Stores[i])
		}
		if w.Host == "" {
			add("no other host of the control plane has a step, from which the stores can be looked at")
		}
	}
	if len(e.Reasons) > 0 {
		return nil, e
	}
	return l.Transition, nil
}

// copied is a transition of which nothing is shared: it is plain data.
func (t *Transition) copied() (*Transition, error) {
	data, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	own := &Transition{}
	return own, json.Unmarshal(data, own)
}

// leaving is a transition that hosts leave.
type leaving struct {
	*Transition
	gone []Host
	by   Host // does what is done for them; none where no other host of the control plane has a step
}

// instead is what is done in the place of an action whose host is lost; nil for nothing.
func (l *leaving) instead(a *Action) (*Action, error) {
	if a == nil {
		return nil, nil
	}
	own := *a
	own.Before, own.After = nil, nil
	for _, checks := range []struct{ from, to *[]Check }{{&a.Before, &own.Before}, {&a.After, &own.After}} {
		for _, c := range *checks.from {
			does := checksOnLost[c.Kind]
			if a.Kind == RemoveRoles && c.Kind == Ready { // that of the host which does it instead
				does = byAnother
				if c.Probe != nil && l.lost(c.Probe.Host) { // it listens on the address of its host alone
					probe := *c.Probe
					c.Probe, probe.Host = &probe, l.by.Address
				}
			}
			switch does {
			case needed:
				return nil, fmt.Errorf("the check %q: %w", c.Kind, errNeeded)
			case byAnother:
				if c.Members != nil && l.endpoint(c.Members.Member) { // it was about the one that is lost
					c.Members.Member, c.Members.Version = "", ""
				}
				*checks.to = append(*checks.to, c)
			}
		}
	}
	first, err := l.instead(a.First)
	if err != nil {
		return nil, err
	}
	own.First = first
	switch actionsOnLost[a.Kind] {
	case needed:
		return nil, errNeeded
	case leaves:
		own.Kind = RemoveMember
	case skipped:
		own = Action{Kind: RunChecks, Before: append(own.Before, own.After...), First: own.First}
		if len(own.Before) == 0 && own.First == nil {
			return nil, nil
		}
	}
	if l.by.Name == "" {
		return nil, errors.New("no other host of the control plane has a step, from which it could be done")
	}
	l.forget(&own)
	for _, access := range own.accesses() {
		u, err := url.Parse(access.Server)
		if err == nil && l.lost(u.Hostname()) {
			port, err := strconv.Atoi(u.Port())
			if err != nil {
				return nil, fmt.Errorf("the API server at %s: has no port: %w", access.Server, err)
			}
			u.Host = plan.HostPort(l.by.Address, port)
			access.Server = u.String()
		}
	}
	return &own, nil
}

// errNeeded is the reason of what cannot be done from another host.
var errNeeded = errors.New("it needs the record that lies on that host: put its directory of snapshots onto a host " +
	"of the same name and address, or go the other way, where that needs less")

func (l *leaving) lost(name string) bool {
	return slices.ContainsFunc(l.gone, func(h Host) bool { return h.has(name) })
}

func (l *leaving) endpoint(e string) bool {
	u, err := url.Parse(e)
	return err == nil && e != "" && l.lost(u.Hostname())
}

// strip takes the endpoints that are lost out of a store. Where no other one was known to a step, those are looked for
// that the store is to have in the end.
func (l *leaving) strip(s *plan.Store) {
	s.Endpoints = slices.DeleteFunc(slices.Clone(s.Endpoints), l.endpoint)
	if len(s.Endpoints) == 0 && l.Watch != nil {
		for _, known := range l.Watch.Stores {
			if known.Name == s.Name {
				s.Endpoints = slices.DeleteFunc(slices.Clone(known.Endpoints), l.endpoint)
			}
		}
	}
}

// forget takes what is lost out of where an action looks.
func (l *leaving) forget(a *Action) {
	if a == nil {
		return
	}
	aboutLost := func(c Check) bool { return c.Node != nil && l.lost(c.Node.Name) }
	a.Before, a.After = slices.DeleteFunc(a.Before, aboutLost), slices.DeleteFunc(a.After, aboutLost)
	for _, s := range a.stores() {
		l.strip(s)
	}
	for _, m := range a.masters() {
		m.Addresses = slices.DeleteFunc(slices.Clone(m.Addresses), l.lost)
	}
	l.forget(a.First)
}

// reachable reports an action that has no endpoint left by which it reaches a store.
func (l *leaving) reachable(a *Action) error {
	for ; a != nil; a = a.First {
		for _, s := range a.stores() {
			if s.Name != "" && len(s.Endpoints) == 0 {
				return fmt.Errorf("every endpoint of store %s is on a lost host: fusionctl transition restore puts it "+
					"back to a backup", s.Name)
			}
		}
	}
	return nil
}

// stores are those that an action and its checks reach, without First.
func (a *Action) stores() (all []*plan.Store) {
	each := func(o *Objects, r *Roles, w *Rewrite, m *Moving, e *Members, g *Ranges) {
		if o != nil {
			all = append(all, &o.From, &o.To)
		}
		if r != nil {
			all = append(all, &r.From, &r.To)
		}
		if w != nil {
			for i := range w.Stores {
				all = append(all, &w.Stores[i])
			}
		}
		if m != nil {
			all = append(all, &m.From, &m.To)
		}
		if e != nil {
			all = append(all, &e.Store)
		}
		if g != nil {
			all = append(all, &g.Store)
		}
	}
	if a.Store != nil {
		all = append(all, a.Store)
	}
	if a.Joining != nil {
		all = append(all, &a.Joining.Store)
	}
	each(a.Objects, a.Roles, a.Rewrite, a.Moving, a.Members, a.Ranges)
	for _, checks := range [][]Check{a.Before, a.After} {
		for i := range checks {
			c := &checks[i]
			for n := range c.Stores {
				all = append(all, &c.Stores[n])
			}
			each(c.Objects, c.Roles, c.Rewrite, c.Moving, c.Members, c.Ranges)
		}
	}
	for _, m := range a.masters() {
		all = append(all, &m.Endpoints, &m.Slices)
	}
	return all
}

// masters are those that an action and its checks are about, without First.
func (a *Action) masters() (all []*Masters) {
	if a.Masters != nil {
		all = append(all, a.Masters)
	}
	for _, checks := range [][]Check{a.Before, a.After} {
		for i := range checks {
			if m := checks[i].Masters; m != nil {
				all = append(all, m)
			}
		}
	}
	return all
}

// accesses are how an action and its checks reach API servers, without First, and without those of a node.
func (a *Action) accesses() (all []*Access) {
	each := func(m *Marks, r *Ranges) {
		if m != nil && m.Namespaces != nil {
			all = append(all, m.Namespaces)
		}
		if m != nil && m.Modern != nil {
			all = append(all, m.Modern)
		}
		if r != nil {
			all = append(all, &r.Access)
		}
	}
	each(a.Marks, a.Ranges)
	for _, checks := range [][]Check{a.Before, a.After} {
		for i := range checks {
			c := &checks[i]
			for n := range c.Asked {
				all = append(all, &c.Asked[n])
			}
			each(c.Marks, c.Ranges)
		}
	}
	return all
}
