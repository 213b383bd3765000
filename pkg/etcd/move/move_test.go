package move_test

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/move"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// ownership gives deployments to the modern store, pods to core, config maps to both.
func ownership() *pair.Map {
	at := func(store string) pair.View { return pair.View{Store: store} }
	return &pair.Map{Prefix: "/registry", Stores: []string{"core", "modern"}, Resources: []pair.Resource{
		{Key: "deployments", Namespaced: true, Owner: pair.OwnerModern, Legacy: at("core"), Modern: at("modern")},
		{Key: "events", Namespaced: true, Owner: pair.OwnerModern, Legacy: at("core"), Modern: at("modern")},
		{Key: "pods", Namespaced: true, Owner: pair.OwnerShared, Legacy: at("core"), Modern: at("core")},
		{Key: "configmaps", Namespaced: true, Owner: pair.OwnerSplit, Legacy: at("core"), Modern: at("modern")},
		{Key: "flowschemas", Owner: pair.OwnerModern, Modern: at("modern")},
	}, CustomResources: pair.Resource{Owner: pair.OwnerModern, Modern: at("modern")},
		Boot: []pair.BootKey{{Side: pair.Modern, Key: "flowschemas/*"}}}
}

// fill puts keys where some of them do not belong.
func fill(w *world, n int) {
	core, modern := w.stores["core"], w.stores["modern"]
	core.leases[7] = 3000
	for i := range n {
		core.put(fmt.Sprintf("/registry/deployments/default/d-%05d", i), fmt.Sprintf("deployment %d", i), 0)
		if i%10 == 0 {
			core.put(fmt.Sprintf("/registry/pods/default/p-%05d", i), "pod", 0)
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

func content(e etcd.Entry) string {
	return string(e.Value) + " lease " + strconv.FormatInt(e.Lease, 16)
}

// values are the contents of a store, with the lease of each key.
func (s *fakeStore) values() map[string]string {
	values := map[string]string{}
	for key, e := range s.entries {
		values[key] = content(e)
	}
	return values
}

func plan(t *testing.T, w *world, options move.Options) move.Plan {
	t.Helper()
	var moves []move.Move
	header, err := move.New(t.Context(), ownership(), w.asStores(), options, func(m move.Move) error {
		moves = append(moves, m)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return move.Plan{Header: header, ID: "plan 1", Moves: func() iter.Seq2[move.Move, error] {
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
		"/registry/deployments/default/d-00000": "core>modern", "/registry/pods/modern/m-00010": "modern>core",
		"/registry/kubeflow.org/notebooks/default/n-00000": "core>modern",
		"/registry/configmaps/default/c":                   "", "/registry/flowschemas/system": "",
		"/registry/widgets/w": "", "/registry/pods/default/p-00010": "",
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
		`both are "core"`: {From: "core", To: "core", Resources: []string{"pods"}},
		`store "extra"`:   {From: "core", To: "extra", Resources: []string{"pods"}},
	} {
		_, err := move.New(t.Context(), ownership(), newWorld().asStores(), options, func(move.Move) error {
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("New(%+v) = %v, want an error that says %q", options, err, says)
		}
	}
}

// TestApplyAndUndoSurviveBeingKilledAnywhere kills a run at every operation on a store or a file, before and after it
// takes effect, and runs it again; then the same for undo.
func TestApplyAndUndoSurviveBeingKilledAnywhere(t *testing.T) {
	filled := newWorld()
	fill(filled, 650)
	build := filled.clone
	reference := build()
	p := plan(t, reference, move.Options{})
	before := map[string]map[string]string{"core": reference.stores["core"].values(),
		"modern": reference.stores["modern"].values()}
	if _, err := move.Apply(t.Context(), reference.job(p)); err != nil {
		t.Fatal(err)
	}
	done := map[string]map[string]string{"core": reference.stores["core"].values(),
		"modern": reference.stores["modern"].values()}
	for _, m := range list(p) {
		value, lease, _ := strings.Cut(done[m.To][m.Key], " lease ")
		if !strings.HasPrefix(before[m.From][m.Key], value+" lease ") || (lease != "0") != m.Leased ||
			done[m.From][m.Key] != "" {
			t.Fatalf("%s: %q in %s, %q in %s; want it moved", m.Key, done[m.To][m.Key], m.To, done[m.From][m.Key],
				m.From)
		}
	}

	points := 0
	for _, after := range []bool{false, true} {
		for killAt := 1; ; killAt++ {
			w := build()
			w.killAt, w.after = killAt, after
			_, err := move.Apply(t.Context(), w.job(p))
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
			if _, err := move.Apply(t.Context(), w.job(p)); err != nil {
				t.Fatalf("run again after being killed at %d: %v", killAt, err)
			}
			same(t, w, done, fmt.Sprintf("run again after being killed at %d", killAt))
		}
		for killAt := 1; ; killAt++ {
			w := reference.clone()
			w.ops, w.killAt, w.after = 0, killAt, after
			_, err := move.Undo(t.Context(), w.job(p))
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
		if string(w.stores[m.From].entries[m.Key].Value) != want &&
			string(w.stores[m.To].entries[m.Key].Value) != want {
			t.Fatalf("killed at %d: %s is in neither store with its value", killAt, m.Key)
		}
	}
}

func undo(t *testing.T, w *world, p move.Plan, before map[string]map[string]string, killAt int) {
	t.Helper()
	_, err := move.Undo(t.Context(), w.job(p))
	// the one that had a copy before the plan
	if err != nil && !strings.Contains(err.Error(), "there is no backup, and 1 keys may have been moved") {
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
			if content(e) != want[name][key] {
				t.Fatalf("%s: store %s: %s = %q with lease %x, want %q", when, name, key, e.Value, e.Lease,
					want[name][key])
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
		"changed": {func(w *world) { w.stores["core"].put(key, "new", 0) }, key + ": was at revision"},
		"added": {func(w *world) {
			w.stores["core"].put("/registry/deployments/default/zzz", "new", 0)
		}, "zzz: is new in store core"},
		"deleted": {func(w *world) { w.stores["core"].remove(key) }, key + ": is gone from store core"},
		"collision": {func(w *world) {
			w.stores["modern"].put(key, "another", 0)
		}, key + ": store modern holds another object"},
	} {
		w := newWorld()
		fill(w, 20)
		p := plan(t, w, move.Options{})
		test.change(w)
		before := w.stores["modern"].values()
		_, err := move.Apply(t.Context(), w.job(p))
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
	job := w.job(p)
	job.Progress = func(step move.Step, moves int64) {
		if step == move.Copied && moves > 400 {
			w.stores["core"].put(key, "written by a server that was not stopped", 0)
		}
	}
	_, err := move.Apply(t.Context(), job)
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
	w.stores["core"].remove("/registry/events/default/e-00010")
	if _, err := move.Apply(t.Context(), w.job(p)); err != nil {
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
	if !slices.ContainsFunc(list(p), func(m move.Move) bool {
		return m.Conflict != "" && strings.HasSuffix(m.Key, "d-00001")
	}) {
		t.Error("the conflict is not in the plan")
	}
	if _, err := move.Apply(t.Context(), w.job(p)); err == nil ||
		!strings.Contains(err.Error(), "1 keys cannot be moved") {
		t.Errorf("Apply = %v, want it to refuse", err)
	}
}

func TestUndoKeepsWhatWasWrittenSince(t *testing.T) {
	w := newWorld()
	fill(w, 20)
	p := plan(t, w, move.Options{})
	if _, err := move.Apply(t.Context(), w.job(p)); err != nil {
		t.Fatal(err)
	}
	key := "/registry/deployments/default/d-00005"
	w.stores["modern"].put(key, "changed by its new owner", 0)
	after := w.stores["core"].values()
	if _, err := move.Undo(t.Context(), w.job(p)); !errors.Is(err, move.ErrChanged) ||
		!strings.Contains(err.Error(), key) {
		t.Errorf("Undo = %v, want %v about %s", err, move.ErrChanged, key)
	}
	if !maps.Equal(after, w.stores["core"].values()) ||
		!bytes.Equal(w.stores["modern"].entries[key].Value, []byte("changed by its new owner")) {
		t.Error("Undo refused, and changed something")
	}
}

func TestApplyRefusesAPlanThatWasUndone(t *testing.T) {
	w := newWorld()
	fill(w, 20)
	p := plan(t, w, move.Options{})
	if _, err := move.Apply(t.Context(), w.job(p)); err != nil {
		t.Fatal(err)
	}
	if _, err := move.Undo(t.Context(), w.job(p)); err != nil {
		t.Fatal(err)
	}
	if _, err := move.Apply(t.Context(), w.job(p)); err == nil || !strings.Contains(err.Error(), "was undone") {
		t.Errorf("Apply = %v, want it to refuse", err)
	}
}
