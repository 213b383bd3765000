package move_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
	"github.com/kubefusion/fusionctl/pkg/etcdsplit/move"
)

// errKilled stands for the end of the process.
var errKilled = errors.New("killed")

// world is two stores and a disk, and a counter of everything that is done to them: a run can be killed at any of it, either
// just before it takes effect or just after, when the answer is lost.
type world struct {
	stores map[string]*fakeStore
	disk   disk
	ops    int
	killAt int // 0: never
	after  bool
}

func (w *world) kill(effect func()) error {
	w.ops++
	switch {
	case w.killAt == 0 || w.ops < w.killAt:
		effect()
		return nil
	case w.ops == w.killAt && w.after:
		effect()
	}
	return errKilled
}

// fakeStore is an etcd in memory.
type fakeStore struct {
	w        *world
	entries  map[string]etcdsplit.Entry
	leases   map[int64]int64
	revision int64
}

func newWorld() *world {
	w := &world{stores: map[string]*fakeStore{}}
	for i, name := range []string{"core", "modern"} {
		w.stores[name] = &fakeStore{w: w, entries: map[string]etcdsplit.Entry{}, leases: map[int64]int64{}, revision: int64(100 * (i + 1))}
	}
	return w
}

func (w *world) asStores() map[string]move.Store {
	return map[string]move.Store{"core": w.stores["core"], "modern": w.stores["modern"]}
}

func (s *fakeStore) put(key, value string, lease int64) {
	s.revision++
	e := etcdsplit.Entry{Key: []byte(key), Value: []byte(value), CreateRevision: s.revision, Lease: lease}
	if old, ok := s.entries[key]; ok {
		e.CreateRevision, e.Version = old.CreateRevision, old.Version
	}
	e.ModRevision, e.Version = s.revision, e.Version+1
	s.entries[key] = e
}

func (s *fakeStore) Page(_ context.Context, r etcdsplit.Request) (page etcdsplit.Page, err error) {
	err = s.w.kill(func() {
		page.Revision = s.revision
		for _, key := range slices.Sorted(maps.Keys(s.entries)) {
			if key < r.From || (r.To != "" && key >= r.To) {
				continue
			}
			page.RangeKeys++
			if len(page.Entries) == r.LimitKeys {
				page.More = true
				continue
			}
			page.Entries = append(page.Entries, s.entries[key])
		}
	})
	return page, err
}

func (s *fakeStore) Read(_ context.Context, keys []string) (entries []*etcdsplit.Entry, err error) {
	err = s.w.kill(func() {
		for _, key := range keys {
			if e, ok := s.entries[key]; ok {
				entries = append(entries, &e)
			} else {
				entries = append(entries, nil)
			}
		}
	})
	return entries, err
}

func (s *fakeStore) Create(_ context.Context, entries []etcdsplit.Entry) (created bool, err error) {
	err = s.w.kill(func() {
		for _, e := range entries {
			if _, ok := s.entries[string(e.Key)]; ok {
				return
			}
		}
		created = true
		for _, e := range entries {
			s.put(string(e.Key), string(e.Value), e.Lease)
		}
	})
	return created, err
}

func (s *fakeStore) Delete(_ context.Context, keys []move.KeyAt) (deleted bool, err error) {
	err = s.w.kill(func() {
		for _, k := range keys {
			if s.entries[k.Key].ModRevision != k.ModRevision {
				return
			}
		}
		deleted = true
		s.revision++
		for _, k := range keys {
			delete(s.entries, k.Key)
		}
	})
	return deleted, err
}

func (s *fakeStore) Grant(_ context.Context, seconds int64) (id int64, err error) {
	err = s.w.kill(func() { id = int64(len(s.leases) + 1000); s.leases[id] = seconds })
	return id, err
}

func (s *fakeStore) TimeToLive(_ context.Context, lease int64) (seconds int64, err error) {
	err = s.w.kill(func() { seconds = s.leases[lease] })
	return seconds, err
}

// disk holds the journal and the backup.
type disk struct {
	journal []move.Record
	backup  []move.SavedKey
}

func (w *world) Journal() ([]move.Record, error) { return w.disk.journal, nil }

func (w *world) Append(r move.Record) error {
	return w.kill(func() { w.disk.journal = append(w.disk.journal, r) })
}

func (w *world) SaveBackup(keys iter.Seq2[move.SavedKey, error]) error {
	var backup []move.SavedKey
	for key, err := range keys {
		if err != nil {
			return err
		}
		backup = append(backup, key)
	}
	return w.kill(func() { w.disk.backup = backup })
}

func (w *world) Backup() iter.Seq2[move.SavedKey, error] {
	return func(yield func(move.SavedKey, error) bool) {
		for _, key := range w.disk.backup {
			if !yield(key, nil) {
				return
			}
		}
	}
}

// ownership gives deployments to the modern store, pods to core, config maps to both.
func ownership() *etcdsplit.Map {
	at := func(store string) etcdsplit.Side { return etcdsplit.Side{Store: store} }
	return &etcdsplit.Map{Prefix: "/registry", Stores: []string{"core", "modern"}, Resources: []etcdsplit.Resource{
		{Key: "deployments", Namespaced: true, Owner: etcdsplit.OwnerModern, Legacy: at("core"), Modern: at("modern")},
		{Key: "events", Namespaced: true, Owner: etcdsplit.OwnerModern, Legacy: at("core"), Modern: at("modern")},
		{Key: "pods", Namespaced: true, Owner: etcdsplit.OwnerShared, Legacy: at("core"), Modern: at("core")},
		{Key: "configmaps", Namespaced: true, Owner: etcdsplit.OwnerSplit, Legacy: at("core"), Modern: at("modern")},
		{Key: "flowschemas", Owner: etcdsplit.OwnerModern, Modern: at("modern")},
	}, CustomResources: etcdsplit.Resource{Owner: etcdsplit.OwnerModern, Modern: at("modern")}, Boot: []etcdsplit.BootKey{{Side: etcdsplit.Modern, Key: "flowschemas/*"}}}
}

// fill puts keys where some of them do not belong.
func fill(w *world, n int) {
	core, modern := w.stores["core"], w.stores["modern"]
	core.leases[7] = 3000
	for i := range n {
		core.put(fmt.Sprintf("/registry/deployments/default/d-%05d", i), fmt.Sprintf("deployment %d", i), 0)
		core.put(fmt.Sprintf("/registry/pods/default/p-%05d", i), "pod", 0)
		if i%10 == 0 {
			core.put(fmt.Sprintf("/registry/events/default/e-%05d", i), fmt.Sprintf("event %d", i), 7)
			core.put(fmt.Sprintf("/registry/kubeflow.org/notebooks/default/n-%05d", i), "notebook", 0)
			modern.put(fmt.Sprintf("/registry/pods/modern/m-%05d", i), "misplaced pod", 0)
			modern.put(fmt.Sprintf("/registry/deployments/default/other-%05d", i), "at home", 0)
		}
	}
	core.put("/registry/configmaps/default/c", "either", 0)
	core.put("/registry/flowschemas/system", "left over", 0)
	modern.put("/registry/flowschemas/system", "written at start", 0)
	core.put("/registry/widgets/w", "of a vendor", 0)
	core.put("compact_rev_key", "1", 0)
	// A move that was broken off long ago: the same value in both.
	modern.put("/registry/deployments/default/d-00003", "deployment 3", 0)
}

// values are the contents of a store, with whether each key has a lease.
func (s *fakeStore) values() map[string]string {
	values := map[string]string{}
	for key, e := range s.entries {
		values[key] = fmt.Sprintf("%s lease %v", e.Value, e.Lease != 0)
	}
	return values
}

func plan(t *testing.T, w *world, options move.Options) move.Plan {
	t.Helper()
	var moves []move.Move
	header, err := move.New(t.Context(), ownership(), w.asStores(), options, func(m move.Move) error { moves = append(moves, m); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return move.Plan{Header: header, Moves: func() iter.Seq2[move.Move, error] {
		return func(yield func(move.Move, error) bool) {
			for _, m := range moves {
				if !yield(m, nil) {
					return
				}
			}
		}
	}}
}

func list(p move.Plan) []move.Move {
	var moves []move.Move
	for m := range p.Moves() {
		moves = append(moves, m)
	}
	return moves
}

func TestPlanMovesWhatLiesInTheWrongStore(t *testing.T) {
	w := newWorld()
	fill(w, 20)
	got := map[string]string{}
	for _, m := range list(plan(t, w, move.Options{})) {
		got[m.Key] = m.From + ">" + m.To
		if m.Conflict != "" || m.Leased != strings.Contains(m.Key, "/events/") {
			t.Errorf("unexpected %+v", m)
		}
	}
	if len(got) != 20+2+2+2 {
		t.Errorf("%d moves, want 20 deployments, 2 events, 2 notebooks and 2 pods: %v", len(got), got)
	}
	for key, want := range map[string]string{
		"/registry/deployments/default/d-00000": "core>modern", "/registry/pods/modern/m-00010": "modern>core", "/registry/kubeflow.org/notebooks/default/n-00000": "core>modern",
		"/registry/configmaps/default/c": "", "/registry/flowschemas/system": "", "/registry/widgets/w": "", "/registry/pods/default/p-00001": "",
	} {
		if got[key] != want {
			t.Errorf("%s: moves %q, want %q", key, got[key], want)
		}
	}
	only := list(plan(t, w, move.Options{Resources: []string{"configmaps"}, From: "core", To: "modern"}))
	if len(only) != 1 || only[0].Key != "/registry/configmaps/default/c" || only[0].To != "modern" {
		t.Errorf("moving config maps by hand plans %+v", only)
	}
}

func TestPlanRefusesBadOptions(t *testing.T) {
	for says, options := range map[string]move.Options{
		"want both or neither": {From: "core"}, "want the resources": {From: "core", To: "modern"},
		`both are "core"`: {From: "core", To: "core", Resources: []string{"pods"}}, `store "extra"`: {From: "core", To: "extra", Resources: []string{"pods"}},
	} {
		_, err := move.New(t.Context(), ownership(), newWorld().asStores(), options, func(move.Move) error { return nil })
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("New(%+v) = %v, want an error that says %q", options, err, says)
		}
	}
}

// TestApplyAndUndoSurviveBeingKilledAnywhere kills a run at every operation on a store or a file, before and after it takes
// effect, and runs it again; then the same for undo.
func TestApplyAndUndoSurviveBeingKilledAnywhere(t *testing.T) {
	build := func() *world { w := newWorld(); fill(w, 500); return w }
	reference := build()
	p := plan(t, reference, move.Options{})
	before := map[string]map[string]string{"core": reference.stores["core"].values(), "modern": reference.stores["modern"].values()}
	if _, err := move.Apply(t.Context(), ownership(), reference.asStores(), p, reference, nil); err != nil {
		t.Fatal(err)
	}
	done := map[string]map[string]string{"core": reference.stores["core"].values(), "modern": reference.stores["modern"].values()}
	for _, m := range list(p) {
		if done[m.To][m.Key] != before[m.From][m.Key] || done[m.From][m.Key] != "" {
			t.Fatalf("%s: %q in %s, %q in %s; want it moved", m.Key, done[m.To][m.Key], m.To, done[m.From][m.Key], m.From)
		}
	}

	points := 0
	for _, after := range []bool{false, true} {
		for killAt := 1; ; killAt++ {
			w := build()
			w.killAt, w.after = killAt, after
			_, err := move.Apply(t.Context(), ownership(), w.asStores(), p, w, nil)
			if err == nil {
				break // it was done before it could be killed
			}
			points++
			if !errors.Is(err, errKilled) {
				t.Fatalf("killed at %d: %v", killAt, err)
			}
			nothingLost(t, w, p, before, killAt)
			w.killAt = 0
			if killAt%3 == 0 { // every third time the user changes his mind
				undo(t, w, p, before, killAt)
				continue
			}
			if _, err := move.Apply(t.Context(), ownership(), w.asStores(), p, w, nil); err != nil {
				t.Fatalf("run again after being killed at %d: %v", killAt, err)
			}
			same(t, w, done, fmt.Sprintf("run again after being killed at %d", killAt))
		}
		for killAt := 1; ; killAt++ {
			w := build()
			if _, err := move.Apply(t.Context(), ownership(), w.asStores(), p, w, nil); err != nil {
				t.Fatal(err)
			}
			w.ops, w.killAt, w.after = 0, killAt, after
			_, err := move.Undo(t.Context(), w.asStores(), p, w, nil)
			if err == nil {
				break
			}
			points++
			nothingLost(t, w, p, before, killAt)
			w.killAt = 0
			undo(t, w, p, before, killAt)
		}
	}
	if points < 400 {
		t.Errorf("only %d points were tried, want hundreds", points)
	}
	t.Logf("killed at %d points", points)
}

// nothingLost checks that every key of the plan is in at least one store with its value.
func nothingLost(t *testing.T, w *world, p move.Plan, before map[string]map[string]string, killAt int) {
	t.Helper()
	for m := range p.Moves() {
		want := strings.Split(before[m.From][m.Key], " lease")[0]
		if string(w.stores[m.From].entries[m.Key].Value) != want && string(w.stores[m.To].entries[m.Key].Value) != want {
			t.Fatalf("killed at %d: %s is in neither store with its value", killAt, m.Key)
		}
	}
}

func undo(t *testing.T, w *world, p move.Plan, before map[string]map[string]string, killAt int) {
	t.Helper()
	_, err := move.Undo(t.Context(), w.asStores(), p, w, nil)
	if err != nil && !strings.Contains(err.Error(), "nothing was changed yet") {
		t.Fatalf("undo after being killed at %d: %v", killAt, err)
	}
	same(t, w, before, fmt.Sprintf("undone after being killed at %d", killAt))
}

func same(t *testing.T, w *world, want map[string]map[string]string, when string) {
	t.Helper()
	for name, store := range w.stores {
		if len(store.entries) != len(want[name]) {
			t.Fatalf("%s: store %s holds %d keys, want %d", when, name, len(store.entries), len(want[name]))
		}
		for key, e := range store.entries {
			if value, lease, _ := strings.Cut(want[name][key], " lease "); string(e.Value) != value || lease != strconv.FormatBool(e.Lease != 0) {
				t.Fatalf("%s: store %s: %s = %q with lease %x, want %q", when, name, key, e.Value, e.Lease, want[name][key])
			}
		}
	}
}

func TestApplyRefusesWhenSomethingStillWrites(t *testing.T) {
	key := "/registry/deployments/default/d-00005"
	for name, test := range map[string]struct {
		change func(w *world)
		says   string
	}{
		"changed":   {func(w *world) { w.stores["core"].put(key, "new", 0) }, key + ": was at revision"},
		"added":     {func(w *world) { w.stores["core"].put("/registry/deployments/default/zzz", "new", 0) }, "zzz: is new in store core"},
		"deleted":   {func(w *world) { delete(w.stores["core"].entries, key) }, key + ": is gone from store core"},
		"collision": {func(w *world) { w.stores["modern"].put(key, "another", 0) }, key + ": store modern holds another object"},
	} {
		w := newWorld()
		fill(w, 20)
		p := plan(t, w, move.Options{})
		test.change(w)
		before := w.stores["modern"].values()
		_, err := move.Apply(t.Context(), ownership(), w.asStores(), p, w, nil)
		if !errors.Is(err, move.ErrChanged) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: Apply = %v, want %v that says %q", name, err, move.ErrChanged, test.says)
		}
		if !maps.Equal(before, w.stores["modern"].values()) {
			t.Errorf("%s: Apply refused, and changed something", name)
		}
	}
}

func TestApplyNeverDeletesWhatChangedMeanwhile(t *testing.T) {
	w := newWorld()
	fill(w, 500)
	p := plan(t, w, move.Options{})
	key := "/registry/deployments/default/d-00444"
	_, err := move.Apply(t.Context(), ownership(), w.asStores(), p, w, func(step move.Step, moves int64) {
		if step == move.Copied && moves > 400 {
			w.stores["core"].put(key, "written by a server that was not stopped", 0)
		}
	})
	if !errors.Is(err, move.ErrChanged) || !strings.Contains(err.Error(), key) {
		t.Errorf("Apply = %v, want %v about %s", err, move.ErrChanged, key)
	}
	if got := w.stores["core"].entries[key]; string(got.Value) != "written by a server that was not stopped" {
		t.Errorf("the changed key holds %q", got.Value)
	}
}

func TestApplyToleratesLeasesThatEnd(t *testing.T) {
	w := newWorld()
	fill(w, 30)
	p := plan(t, w, move.Options{})
	delete(w.stores["core"].entries, "/registry/events/default/e-00010")
	if _, err := move.Apply(t.Context(), ownership(), w.asStores(), p, w, nil); err != nil {
		t.Fatal(err)
	}
	modern := w.stores["modern"]
	kept, ok := modern.entries["/registry/events/default/e-00020"]
	if !ok || modern.leases[kept.Lease] != 3000 {
		t.Errorf("event = %+v, want a lease of 3000 s", kept)
	}
	if _, ok := modern.entries["/registry/events/default/e-00010"]; ok {
		t.Error("an event whose time was up is back")
	}
}

func TestPlanNamesConflictsAndApplyRefusesThem(t *testing.T) {
	w := newWorld()
	fill(w, 20)
	w.stores["modern"].put("/registry/deployments/default/d-00001", "another", 0)
	p := plan(t, w, move.Options{})
	if !slices.ContainsFunc(list(p), func(m move.Move) bool { return m.Conflict != "" && strings.HasSuffix(m.Key, "d-00001") }) {
		t.Error("the conflict is not in the plan")
	}
	if _, err := move.Apply(t.Context(), ownership(), w.asStores(), p, w, nil); err == nil || !strings.Contains(err.Error(), "1 keys cannot be moved") {
		t.Errorf("Apply = %v, want it to refuse", err)
	}
}

func TestUndoKeepsWhatWasWrittenSince(t *testing.T) {
	w := newWorld()
	fill(w, 20)
	p := plan(t, w, move.Options{})
	if _, err := move.Apply(t.Context(), ownership(), w.asStores(), p, w, nil); err != nil {
		t.Fatal(err)
	}
	key := "/registry/deployments/default/d-00005"
	w.stores["modern"].put(key, "changed by its new owner", 0)
	after := w.stores["core"].values()
	if _, err := move.Undo(t.Context(), w.asStores(), p, w, nil); !errors.Is(err, move.ErrChanged) || !strings.Contains(err.Error(), key) {
		t.Errorf("Undo = %v, want %v about %s", err, move.ErrChanged, key)
	}
	if !maps.Equal(after, w.stores["core"].values()) || !bytes.Equal(w.stores["modern"].entries[key].Value, []byte("changed by its new owner")) {
		t.Error("Undo refused, and changed something")
	}
}

func TestApplyRefusesAPlanThatWasUndone(t *testing.T) {
	w := newWorld()
	fill(w, 20)
	p := plan(t, w, move.Options{})
	if _, err := move.Apply(t.Context(), ownership(), w.asStores(), p, w, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := move.Undo(t.Context(), w.asStores(), p, w, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := move.Apply(t.Context(), ownership(), w.asStores(), p, w, nil); err == nil || !strings.Contains(err.Error(), "was undone") {
		t.Errorf("Apply = %v, want it to refuse", err)
	}
}
