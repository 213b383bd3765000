package transition

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// etcds are the stores of a cluster in memory. They grow with every look.
type etcds struct {
	sights map[string]witness.Sight
	silent map[string]bool
	looks  int
}

func (e *etcds) look(w *Watch) (map[string]witness.Sight, error) {
	e.looks++
	seen := map[string]witness.Sight{}
	var problems []error
	for _, s := range w.Stores {
		if e.silent[s.Name] {
			problems = append(problems, fmt.Errorf("store %s: no answer", s.Name))
			continue
		}
		sight := e.sights[s.Name]
		sight.Revision += int64(e.looks)
		sight.At = time.Unix(int64(e.looks), 0)
		seen[s.Name] = sight
	}
	return seen, errors.Join(problems...)
}

func newStores(w *Watch) *etcds {
	e := &etcds{sights: map[string]witness.Sight{}, silent: map[string]bool{}}
	for _, s := range w.Stores {
		e.sights[s.Name] = witness.Sight{Cluster: "c-" + s.Name, Revision: 1000,
			Objects: map[string]witness.Object{witness.KubeSystem: {UID: "u", Revision: 2}}}
	}
	e.sights["modern"] = witness.Sight{Cluster: "c-modern", Revision: 1000, // it has no namespaces
		Objects: map[string]witness.Object{witness.KubeSystem: {}}}
	return e
}

// others are the ways in which a store is not the one that it was.
var others = map[string]struct {
	store  string
	change func(*witness.Sight)
	says   string
}{
	"a new etcd": {"modern", func(s *witness.Sight) { s.Cluster, s.Revision = "new", 1 }, "has the id new"},
	"a restored one that kept its id": {"modern", func(s *witness.Sight) { s.Revision = 500 },
		"its newest revision is"},
	"another cluster behind the endpoint": {"core", func(s *witness.Sight) {
		s.Objects = map[string]witness.Object{witness.KubeSystem: {UID: "other", Revision: 2}}
	}, "namespaces/kube-system is another object"},
	"emptied": {"core", func(s *witness.Sight) {
		s.Objects = map[string]witness.Object{witness.KubeSystem: {}}
	}, "namespaces/kube-system is another object"},
}

// watched are journeys with steps that delete or move.
func watched(t *testing.T) map[string][2]Setup {
	all, some := journeys(t), map[string][2]Setup{}
	for _, name := range []string{"hand over", "hand over, of units", "a node over", "nodes back",
		splitExample + " from nothing", splitExample + " to nothing", "modern 1.33 to 1.36"} {
		if _, there := all[name]; !there {
			t.Fatalf("no journey %q", name)
		}
		some[name] = all[name]
	}
	return some
}

// TestStoresThatForgotStopATransition: whatever step comes next, when a store is another one than the journal knows,
// neither apply nor undo deletes or moves anything, until that is acknowledged.
func TestStoresThatForgotStopATransition(t *testing.T) {
	stops := 0
	for name, setups := range watched(t) {
		tr, err := New(setups[0], setups[1], facts())
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Validate(); err != nil {
			t.Fatal(err)
		}
		for i := range tr.Steps {
			for how, other := range others {
				for _, undo := range []bool{false, true} {
					s := &tr.Steps[i]
					a := s.Do
					if undo {
						a = s.Undo
					}
					if a == nil || !a.deletes() || !slices.Contains(s.Stores, other.store) {
						continue
					}
					stops++
					t.Run(fmt.Sprintf("%s/%s/%s/undo %v", name, s.ID, how, undo), func(t *testing.T) {
						stopBefore(t, &tr, setups, s, a, undo, other.store, other.change, other.says)
					})
				}
			}
		}
	}
	if stops < 100 {
		t.Errorf("%d stops, want more than a hundred", stops)
	}
}

// stopBefore lets a run come up to a step, changes a store, and lets it go on.
func stopBefore(t *testing.T, tr *Transition, setups [2]Setup, s *Step, a *Action, undo bool, store string,
	change func(*witness.Sight), says string) {
	c, e := newCluster(t, setups[0]), newStores(tr.Watch)
	c.stores = e.look
	carry := Apply
	if undo {
		if err := Apply(t.Context(), tr, c, c, nil); err != nil {
			t.Fatal(err)
		}
		carry = Undo
	}
	// the store changes when everything before the step is done
	at, before := slices.IndexFunc(tr.Steps, func(o Step) bool { return o.ID == s.ID }), 0
	if undo {
		before = len(tr.Steps) - 1 - at
	} else {
		before = at
	}
	if before == 0 { // in this direction it is the first: its run has to know the stores from before
		if !undo {
			tr.Watch.Seen, _ = e.look(tr.Watch)
			defer func() { tr.Watch.Seen = nil }()
		}
	}
	ended := 0
	progress := func(_ *Step, event Event) {
		if event == Done || event == Undone {
			if ended++; ended == before {
				sight := e.sights[store]
				change(&sight)
				e.sights[store] = sight
			}
		}
	}
	if before == 0 {
		sight := e.sights[store]
		change(&sight)
		e.sights[store] = sight
	}
	did := func() int { return len(c.did) }
	err := carry(t.Context(), tr, c, c, progress)
	if !errors.Is(err, ErrOtherStore) || !strings.Contains(err.Error(), "before step "+s.ID) ||
		!strings.Contains(err.Error(), says) {
		t.Fatalf("%s = %v, want %q before step %s", a.Kind, err, says, s.ID)
	}
	state, err := StateOf(tr, c.records)
	if err != nil || state.Open || Stopped(c.records) == nil {
		t.Fatalf("the journal is at %+v, %v, stopped %v", state, err, Stopped(c.records))
	}
	was := did()
	for _, again := range []func() error{
		func() error { return carry(t.Context(), tr, c, c, nil) },
		func() error { return Undo(t.Context(), tr, c, c, nil) },
	} {
		if state.Done == 0 { // nothing was done: there is nothing to take back
			break
		}
		if err := again(); !errors.Is(err, ErrOtherStore) || did() != was {
			t.Fatalf("run again: %v, %d actions more", err, did()-was)
		}
	}
	if err := Acknowledge(c, Stopped(c.records), "me", "restored"); err != nil {
		t.Fatal(err)
	}
	if Stopped(c.records) != nil {
		t.Error("is still stopped")
	}
	if err := carry(t.Context(), tr, c, c, nil); err != nil {
		t.Fatalf("after the acknowledgement: %v", err)
	}
	end := newCluster(t, setups[1])
	if undo {
		end = newCluster(t, setups[0])
	}
	if d := differs(c, end); d != "" {
		t.Error(d)
	}
}

// TestAcknowledgedStoresAreThoseOfTheStop: what a person has looked at counts, and nothing that came since.
func TestAcknowledgedStoresAreThoseOfTheStop(t *testing.T) {
	setups := journeys(t)["hand over"]
	tr, err := New(setups[0], setups[1], Facts{})
	if err != nil {
		t.Fatal(err)
	}
	c, e := newCluster(t, setups[0]), newStores(tr.Watch)
	tr.Watch.Seen, _ = e.look(tr.Watch)
	c.stores = e.look
	for i, id := range []string{"second", "third"} {
		e.sights["core"] = witness.Sight{Cluster: id, Revision: 5000}
		if err := Apply(t.Context(), &tr, c, c, nil); !errors.Is(err, ErrOtherStore) || len(c.did) > 0 {
			t.Fatalf("store %d: %v", i, err)
		}
		if i == 0 {
			if err := Acknowledge(c, Stopped(c.records), "me", ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	e.sights["core"] = witness.Sight{Cluster: "second", Revision: 6000}
	if err := Apply(t.Context(), &tr, c, c, nil); err != nil {
		t.Errorf("with the one that was acknowledged: %v", err)
	}
}

// TestHostsThatSayNothingOfAStore: an answer without an error that lacks a store stops what deletes, and what it has of
// stores that were not asked about is not kept.
func TestHostsThatSayNothingOfAStore(t *testing.T) {
	setups := journeys(t)["hand over"]
	tr, err := New(setups[0], setups[1], Facts{})
	if err != nil {
		t.Fatal(err)
	}
	c, e := newCluster(t, setups[0]), newStores(tr.Watch)
	c.stores = func(w *Watch) (map[string]witness.Sight, error) {
		seen, err := e.look(w)
		seen["another"] = witness.Sight{Cluster: "x", Revision: 1, Objects: map[string]witness.Object{}}
		for name, s := range seen {
			s.Objects["namespaces/another"] = witness.Object{UID: "x"}
			s.Cluster += strings.Repeat("x", 10_000)
			seen[name] = s
		}
		if len(w.Stores) > 1 {
			delete(seen, w.Stores[0].Name)
		}
		return seen, err
	}
	if err := Apply(t.Context(), &tr, c, c, nil); !errors.Is(err, ErrUnseen) {
		t.Errorf("Apply = %v, want %v", err, ErrUnseen)
	}
	for _, r := range c.records {
		if r.Looked != nil && r.Looked.Stores["another"].Cluster != "" {
			t.Fatalf("the journal has what was not asked for: %+v", r)
		}
		if text, err := json.Marshal(r); err != nil || len(text) > 1000 || strings.Contains(string(text), "/another") {
			t.Fatalf("the journal has %d bytes of a look, %v", len(text), err)
		}
	}
}

// TestStoresThatCannotBeSeen: nothing is deleted or moved while a store is silent; a kubelet goes back, and components
// start, for that may be what brings the store back.
func TestStoresThatCannotBeSeen(t *testing.T) {
	for name, setups := range watched(t) {
		tr, err := New(setups[0], setups[1], facts())
		if err != nil {
			t.Fatal(err)
		}
		for i := range tr.Steps {
			s := &tr.Steps[i]
			for _, undo := range []bool{false, true} {
				a := s.Do
				if undo {
					a = s.Undo
				}
				if len(s.Stores) == 0 {
					continue
				}
				e := newStores(tr.Watch)
				e.silent[s.Stores[0]] = true
				c := &cluster{left: -1, stores: e.look}
				told := false
				err := watch(t.Context(), &tr, c, c, s, a, true, func(_ *Step, e Event) { told = told || e == Unseen })
				wants := a != nil && a.deletes() && a.Kind != RestoreKubelet
				if (err != nil) != wants || told == wants {
					t.Errorf("%s, step %s, undo %v, %v: %v, told %v", name, s.ID, undo, a, err, told)
				}
			}
		}
	}
}

// TestStoresRunWhereStepsLookAtThem: a step looks at no store whose members are stopped or not started yet.
func TestStoresRunWhereStepsLookAtThem(t *testing.T) {
	eachJourney(t, func(t *testing.T, from, to Setup, tr *Transition) {
		if len(tr.Steps) == 0 {
			return
		}
		c := newCluster(t, from)
		parts := [2][]render.Part{}
		for i, s := range []Setup{from, to} {
			var err error
			if parts[i], err = partsOf(s, map[place]render.File{}); err != nil {
				t.Fatal(err)
			}
		}
		managed := map[string]bool{}
		for _, s := range tr.Watch.Stores {
			managed[s.Name] = s.Managed != nil
		}
		members := func(list []render.Part, running map[string]bool) map[string]bool {
			up := map[string]bool{}
			for _, p := range list {
				if etcd(p.Component) && running[p.Component.Host+"/"+p.Component.Name] {
					up[p.Component.Store] = true
				}
			}
			return up
		}
		looked := 0
		for i := range tr.Steps {
			up := members(parts[0], c.runs(parts[0]))
			maps.Copy(up, members(parts[1], c.runs(parts[1])))
			for _, name := range tr.Steps[i].Stores {
				if looked++; managed[name] && !up[name] {
					t.Errorf("step %s, %s: store %s does not run", tr.Steps[i].ID, tr.Steps[i].Title, name)
				}
			}
			if a := tr.Steps[i].Do; a != nil {
				if err := c.Do(t.Context(), tr.Steps[i].Host, a); err != nil {
					t.Fatal(err)
				}
			}
		}
		if looked == 0 && slices.ContainsFunc(tr.Watch.Stores, func(s plan.Store) bool {
			return s.Managed == nil
		}) {
			t.Error("no store is looked at")
		}
	})
}
