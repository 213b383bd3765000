package transition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// Watch is how the stores of a transition are looked at: whether they are those that the journal knows.
type Watch struct {
	Host   string       `json:"host"` // from which they are reached
	Prefix string       `json:"prefix"`
	Stores []plan.Store `json:"stores"`
	// Seen is what they showed when the transition was planned; nothing where it was planned without reading them.
	Seen map[string]witness.Sight `json:"seen,omitempty"`
}

// Looked is what a record says of stores.
type Looked struct {
	Stores map[string]witness.Sight `json:"stores"`        // what they showed, by name
	Why    []string                 `json:"why,omitempty"` // a stop, or its acknowledgement
	// Gone are, by the name of its record, the objects of a hand-over that are in neither store: a digest of them.
	Gone map[string]string `json:"gone,omitempty"`
	By   string            `json:"by,omitempty"` // who acknowledged
}

// ErrOtherStore is wrapped when a store is not the one recorded in the journal: it is new, was restored, or is another.
var ErrOtherStore = errors.New("a store is not the one recorded in the journal")

// ErrUnseen is wrapped when a store could not be looked at before a step that deletes.
var ErrUnseen = errors.New("a store cannot be looked at")

// watchOver lets every step say which stores run meanwhile: they are looked at before it.
func (b *builder) watchOver(t *Transition) {
	from, to := b.from.Plan, b.to.Plan
	p := from
	if p == nil {
		p = to
	}
	t.Watch = &Watch{Host: p.Hosts[0].Name, Prefix: p.Prefix}
	t.watchOver(from, to, b.changesMember)
}

// watchOver names the stores that run at each step. Between the first and the last step that start or stop members
// these are those alone whose members no step starts or stops.
func (t *Transition) watchOver(from, to *plan.Plan, changesMember func(*Step) bool) {
	was, is := storesOf(from), storesOf(to)
	w := t.Watch
	w.Stores = slices.Clone(is)
	for _, s := range was {
		if !slices.ContainsFunc(is, func(o plan.Store) bool { return o.Name == s.Name }) {
			w.Stores = append(w.Stores, s)
		}
	}
	if from == nil {
		was = elsewhere(is)
	}
	if to == nil {
		is = elsewhere(was)
	}
	first, last := len(t.Steps), -1
	for i := range t.Steps {
		if changesMember(&t.Steps[i]) {
			first, last = min(first, i), max(last, i)
		}
	}
	for i := range t.Steps {
		running := was
		switch {
		case i == first && removes(t.Steps[i].Do): // it takes away what runs until then
		case first <= i && i <= last:
			running = elsewhere(was)
		case i > last && last >= 0:
			running = is
		}
		for _, s := range running {
			t.Steps[i].Stores = append(t.Steps[i].Stores, s.Name)
		}
	}
}

func removes(a *Action) bool { return a != nil && a.Kind == RemoveObjects }

func storesOf(p *plan.Plan) []plan.Store {
	if p == nil {
		return nil
	}
	return p.Stores
}

// elsewhere are the stores whose members no step starts or stops.
func elsewhere(stores []plan.Store) (unmanaged []plan.Store) {
	for _, s := range stores {
		if s.Managed == nil {
			unmanaged = append(unmanaged, s)
		}
	}
	return unmanaged
}

// changesMember reports whether a step starts or stops a member of a store.
func (b *builder) changesMember(s *Step) bool {
	for _, c := range b.changed(etcd) {
		if c.component().Host != s.Host || s.Phase == Tidy {
			continue
		}
		for _, p := range []*render.Part{c.was, c.is} {
			if p != nil && touches(p, s.Do) {
				return true
			}
		}
	}
	return false
}

func touches(p *render.Part, a *Action) bool {
	switch {
	case a == nil:
		return false
	case a.File == nil:
		return a.Unit != "" && a.Unit == p.Unit
	}
	return slices.ContainsFunc(slices.Concat(p.Start, p.Beside),
		func(f render.File) bool { return f.Path == a.File.Path })
}

// deletes reports whether an action takes something away by what is in a store, moves it, or judges by its absence.
func (a *Action) deletes() bool {
	switch a.Kind {
	case Snapshot, Release, HandOver, HandBack, CopyRoles, RemoveRoles, RewriteObjects, MoveKeys, ChangeKubelet,
		RestoreKubelet, RemoveObjects, ClearEndpoints, AddRanges, RemoveRanges, RemoveMember:
		return true
	}
	return slices.ContainsFunc(slices.Concat(a.Before, a.After), func(c Check) bool {
		return c.Kind == StoresAgree || c.Kind == MayRewrite || c.Kind == MayMove || c.Kind == NoKeys ||
			c.Kind == NothingLeft || c.Kind == MayGo || c.Kind == Adopted
	})
}

// KnownStores is what the journal of a transition knows of the stores, by name.
func KnownStores(t *Transition, records []Record) map[string]witness.Sight {
	stores := map[string]witness.Sight{}
	if t.Watch != nil {
		maps.Copy(stores, t.Watch.Seen)
	}
	for _, r := range records {
		switch r.Event {
		case Seen:
			for name, now := range r.Looked.Stores {
				before := stores[name]
				stores[name] = before.Merge(&now)
			}
		case Acknowledged:
			maps.Copy(stores, r.Looked.Stores)
		}
	}
	return stores
}

// Stopped returns the record of the stop that was not acknowledged, nil where there is none. It is over, too, when all
// of its stores were seen again as they were, and one that is about objects when its step is done, or undone.
func Stopped(records []Record) *Record {
	seen, ended := map[string]bool{}, map[string]bool{}
	for _, r := range slices.Backward(records) {
		switch r.Event {
		case Halted:
			again := len(r.Looked.Stores) > 0
			for name := range r.Looked.Stores {
				again = again && seen[name]
			}
			if again || len(r.Looked.Gone) > 0 && ended[r.Step] {
				return nil
			}
			return &r
		case Seen:
			for name := range r.Looked.Stores {
				seen[name] = true
			}
		case Done, Undone:
			ended[r.Step] = true
		case Acknowledged:
			return nil
		}
	}
	return nil
}

// Acknowledge records a person's word that the stores are right as they were seen at a stop.
func Acknowledge(j Journal, stop *Record, by, why string) error {
	r := Record{Step: stop.Step, Event: Acknowledged, Looked: &Looked{Stores: stop.Looked.Stores,
		Gone: stop.Looked.Gone, By: by}}
	if why != "" {
		r.Looked.Why = []string{why}
	}
	return j.Append(r)
}

// watch looks at the stores before the first step of a run, and before every one that deletes or moves; also where the
// way back alone does, so that it knows the stores from before. A store that cannot be looked at stops what deletes; it
// does not stop other steps, nor a kubelet on its way back, for these may be what brings it back.
func watch(ctx context.Context, t *Transition, r Runner, j Journal, s *Step, a *Action, first bool,
	p Progress) error {
	deletes := a != nil && a.deletes()
	wayBack := a == nil && s.Undo != nil && s.Undo.deletes()
	if t.Watch == nil || len(s.Stores) == 0 || !first && !deletes && !wayBack {
		return nil
	}
	w := Watch{Host: t.Watch.Host, Prefix: t.Watch.Prefix}
	for _, store := range t.Watch.Stores {
		if slices.Contains(s.Stores, store.Name) {
			w.Stores = append(w.Stores, store)
		}
	}
	stores, err := r.Look(ctx, w.Host, &w)
	err = errors.Join(err, lacking(stores, w.Stores))
	if err != nil && (ctx.Err() != nil || deletes && a.Kind != RestoreKubelet) {
		return fmt.Errorf("before step %s, %s: %w: %w", s.ID, s.Title, ErrUnseen, err)
	}
	if err != nil && p != nil {
		p(s, Unseen)
	}
	if len(stores) == 0 {
		return nil
	}
	before, looked := KnownStores(t, j.Records()), &Looked{Stores: map[string]witness.Sight{}}
	for _, name := range slices.Sorted(maps.Keys(stores)) {
		was, now := before[name], stores[name]
		for _, why := range was.Changes(&now) {
			looked.Why = append(looked.Why, "store "+name+": "+why)
		}
		// what is not there yet is nothing to know a store by
		now.Objects = maps.Clone(now.Objects)
		maps.DeleteFunc(now.Objects, func(_ string, o witness.Object) bool { return o.UID == "" })
		looked.Stores[name] = now
	}
	if len(looked.Why) == 0 {
		return j.Append(Record{Step: s.ID, Event: Seen, Looked: looked})
	}
	return errors.Join(fmt.Errorf("before step %s, %s: %w:\n  %s", s.ID, s.Title, ErrOtherStore,
		strings.Join(looked.Why, "\n  ")), j.Append(Record{Step: s.ID, Event: Halted, Looked: looked}))
}

// mostIDBytes is more than the id of a cluster or the UID of a namespace has.
const mostIDBytes = 128

// lacking takes what was not requested out of an answer of a host, which would be kept for ever, and reports what is
// missing in it: no error of the host may say so. One without stores is of a host that looks at none.
func lacking(seen map[string]witness.Sight, stores []plan.Store) error {
	maps.DeleteFunc(seen, func(name string, _ witness.Sight) bool {
		return !slices.ContainsFunc(stores, func(s plan.Store) bool { return s.Name == name })
	})
	for name, s := range seen {
		system, looked := s.Objects[witness.KubeSystem]
		s.Objects = map[string]witness.Object{}
		if system.UID = system.UID[:min(len(system.UID), mostIDBytes)]; looked {
			s.Objects[witness.KubeSystem] = system
		}
		s.Cluster = s.Cluster[:min(len(s.Cluster), mostIDBytes)]
		seen[name] = s
	}
	for _, s := range stores {
		if _, is := seen[s.Name]; !is && len(seen) > 0 {
			return fmt.Errorf("store %s: the answer does not have it", s.Name)
		}
	}
	return nil
}
