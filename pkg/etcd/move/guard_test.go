package move_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/move"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

func filledWorld(t *testing.T, n int) (*world, move.Plan) {
	t.Helper()
	w := newWorld()
	fill(w, n)
	return w, plan(t, w, move.Options{})
}

func TestOneRunAtATime(t *testing.T) {
	w, p := filledWorld(t, 20)
	w.stores["modern"].put(lockKey, "journal 2 at modern", 0)
	before := w.stores["core"].values()
	var locked *move.LockedError
	if _, err := move.Apply(t.Context(), w.job(p)); !errors.As(err, &locked) || locked.Run != "journal 2" ||
		!strings.Contains(err.Error(), "store modern: locking: another move is under way: somebody") {
		t.Errorf("Apply while another run holds a lock = %v", err)
	}
	if !maps.Equal(before, w.stores["core"].values()) {
		t.Error("Apply refused, and changed something, or left its lock")
	}
	w.stores["modern"].remove(lockKey)
	w.stores["modern"].put(lockKey, "journal 1 at modern", 0) // of a run that was killed
	if _, err := move.Apply(t.Context(), w.job(p)); err != nil {
		t.Errorf("Apply after a run of the same journal was killed = %v", err)
	}
}

// TestARunThatLostItsLockWritesNothing: another run takes the lock over between any two of its writes.
func TestARunThatLostItsLockWritesNothing(t *testing.T) {
	for _, step := range []move.Step{move.Saved, move.Copied, move.Deleted} {
		w, p := filledWorld(t, 300)
		job := w.job(p)
		var then map[string]map[string]string
		job.Progress = func(s move.Step, moves int64) {
			if s == step && then == nil {
				for _, store := range w.stores {
					store.put(lockKey, "journal 2 at another place", 0)
				}
				then = map[string]map[string]string{"core": w.stores["core"].values(),
					"modern": w.stores["modern"].values()}
			}
		}
		if _, err := move.Apply(t.Context(), job); !errors.Is(err, move.ErrLockLost) {
			t.Errorf("Apply that lost its lock after a batch was %s = %v, want %v", step, err, move.ErrLockLost)
		}
		same(t, w, then, fmt.Sprintf("the lock lost after a batch was %s", step))
	}
}

// late does one write of a run only when the run is over: a member was slow, and nobody waited for its answer.
type late struct {
	move.Store
	write *func()
}

func (l late) Create(ctx context.Context, entries []etcd.Entry) (bool, error) {
	*l.write = func() { _, _ = l.Store.Create(ctx, entries) }
	return false, errKilled
}

func (l late) Delete(ctx context.Context, keys []move.KeyAt) (bool, error) {
	*l.write = func() { _, _ = l.Store.Delete(ctx, keys) }
	return false, errKilled
}

// TestWhatAnEarlierRunSentIsNotDoneLater: an apply times out, an undo brings everything back, and then the store does
// what the apply had sent. Without the lock in its guard a late deletion would take the only copy.
func TestWhatAnEarlierRunSentIsNotDoneLater(t *testing.T) {
	// the store where keys are deleted, the one where they are created
	for _, slow := range []string{"core", "modern"} {
		w, p := filledWorld(t, 50)
		before := map[string]map[string]string{"core": w.stores["core"].values(), "modern": w.stores["modern"].values()}
		job := w.job(p)
		var write func()
		job.Stores[slow] = late{job.Stores[slow], &write}
		if _, err := move.Apply(t.Context(), job); !errors.Is(err, errKilled) || write == nil {
			t.Fatalf("Apply with a slow store %s = %v", slow, err)
		}
		// The process is gone: so are its connections, but not what was sent through them; and its lock is still there.
		for _, name := range []string{"core", "modern"} {
			w.stores[name].put(lockKey, "journal 1 at "+name, 0)
		}
		job.Stores[slow].(late).Store.(*handle).lock = w.stores[slow].entries[lockKey].ModRevision
		if _, err := move.Undo(t.Context(), w.job(p)); err != nil {
			t.Fatal(err)
		}
		write()
		same(t, w, before, "after a late write in "+slow)
	}
}

func TestApplyRefusesOtherStores(t *testing.T) {
	w, p := filledWorld(t, 20)
	w.stores["core"].cluster = "another"
	if _, err := move.Apply(t.Context(), w.job(p)); !errors.Is(err, move.ErrOtherStores) ||
		!strings.Contains(err.Error(), "store core") {
		t.Errorf("Apply with another etcd = %v, want %v about core", err, move.ErrOtherStores)
	}
	if _, err := move.Undo(t.Context(), w.job(p)); !errors.Is(err, move.ErrOtherStores) {
		t.Errorf("Undo with another etcd = %v, want %v", err, move.ErrOtherStores)
	}
}

// A store that was restored from a copy of its data has the same id, and an older revision.
func TestApplyRefusesStoresThatWentBack(t *testing.T) {
	w, p := filledWorld(t, 20)
	p.Header.Revisions["modern"] += 100
	if _, err := move.Apply(t.Context(), w.job(p)); !errors.Is(err, move.ErrOtherStores) ||
		!strings.Contains(err.Error(), "store modern") || !strings.Contains(err.Error(), "newest revision") {
		t.Errorf("Apply to an older state = %v, want %v about modern", err, move.ErrOtherStores)
	}
}

// TestOneEtcdUnderTwoNames would lose every key if it were not refused: each lies in both stores already. The ids need
// not tell.
func TestOneEtcdUnderTwoNames(t *testing.T) {
	w, p := filledWorld(t, 20)
	job := w.job(p)
	job.Stores["modern"] = renamed{&handle{fakeStore: w.stores["core"]}, w.stores["modern"].cluster}
	p.Header.Revisions["modern"] = p.Header.Revisions["core"]
	before := w.stores["core"].values()
	if _, err := move.Apply(t.Context(), job); err == nil || !strings.Contains(err.Error(), "one and the same etcd") {
		t.Errorf("Apply = %v, want it refused", err)
	}
	if !maps.Equal(before, w.stores["core"].values()) {
		t.Error("Apply refused, and changed something")
	}
}

type renamed struct {
	*handle
	cluster string
}

func (r renamed) Cluster(context.Context) (string, error) { return r.cluster, nil }

// TestStoresThatWereCopiedFromEachOther: a new store may be made from a snapshot of the other, with its id and
// revisions.
func TestStoresThatWereCopiedFromEachOther(t *testing.T) {
	w := newWorld()
	fill(w, 20)
	for _, s := range w.stores {
		s.cluster = "the same"
	}
	w.stores["modern"].entries, w.stores["modern"].sorted = maps.Clone(w.stores["core"].entries), nil
	w.stores["modern"].revision = w.stores["core"].revision
	w.stores["modern"].put("/registry/leases/x", "written by the API server since", 0)
	p := plan(t, w, move.Options{Resources: []string{"deployments"}})
	result, err := move.Apply(t.Context(), w.job(p))
	if err != nil || result.Moved != 20 ||
		w.stores["core"].entries["/registry/deployments/default/d-00000"].Key != nil ||
		w.stores["modern"].entries["/registry/deployments/default/d-00000"].Key == nil {
		t.Errorf("Apply = %+v, %v; want 20 deployments in modern alone", result, err)
	}
}

// TestWhatSomebodyDoesMeanwhile changes a key at each stage of a move, in each way.
func TestWhatSomebodyDoesMeanwhile(t *testing.T) {
	const key = "/registry/deployments/default/d-00250"
	type act func(w *world)
	rewrite := func(store string) act { return func(w *world) { w.stores[store].put(key, "by somebody", 0) } }
	remove := func(store string) act { return func(w *world) { w.stores[store].remove(key) } }
	recreate := func(w *world) { w.stores["core"].remove(key); w.stores["core"].put(key, "deployment 250", 0) }
	add := func(w *world) { w.stores["core"].put("/registry/deployments/default/e-new", "by somebody", 0) }
	for _, test := range []struct {
		name string
		step move.Step // after whose last batch it happens
		do   act
		says string
		left int64 // keys that are reported in the end; 0: it is refused
	}{
		{"written in the old store", move.Saved, rewrite("core"), key + ": was at revision", 0},
		{"deleted in the old store", move.Saved, remove("core"),
			key + ": is in neither store; its last value is in the backup", 0},
		{"created in the new store", move.Saved, rewrite("modern"),
			key + ": stores core and modern hold different objects", 0},
		{"written in the old store", move.Copied, rewrite("core"), key + ": was at revision", 0},
		{"deleted in the old store", move.Copied, remove("core"), key + ": is gone from store core", 0},
		{"deleted and created again", move.Copied, recreate, key + ": was at revision", 0},
		{"written in the new store", move.Copied, rewrite("modern"),
			key + ": its copy in store modern is not what it was", 0},
		{"deleted in the new store", move.Copied, remove("modern"),
			key + ": its copy in store modern is not what it was", 0},
		{"another one is created", move.Copied, add, "e-new: is new in store core", 0},
		{"created again in the old store", move.Deleted, rewrite("core"), key + ": was written in store core " +
			"meanwhile", 1},
		{"another one is created", move.Deleted, add, "e-new: was written in store core meanwhile", 1},
	} {
		t.Run(fmt.Sprintf("%s after all were %s", test.name, test.step), func(t *testing.T) {
			w, p := filledWorld(t, 300)
			total := int64(len(list(p)))
			var now map[string]map[string]string
			job := w.job(p)
			job.Progress = func(step move.Step, moves int64) {
				if step == test.step && moves == total {
					test.do(w)
					now = map[string]map[string]string{"core": w.stores["core"].values(),
						"modern": w.stores["modern"].values()}
				}
			}
			result, err := move.Apply(t.Context(), job)
			if test.left == 0 {
				if !errors.Is(err, move.ErrChanged) || !strings.Contains(err.Error(), test.says) {
					t.Errorf("Apply = %v, want %v that says %q", err, move.ErrChanged, test.says)
				}
			} else if err != nil || result.Left != test.left ||
				!strings.Contains(strings.Join(result.LeftKeys, "\n"), test.says) {
				t.Errorf("Apply = %+v, %v; want %d keys left, that it names as %q", result, err, test.left, test.says)
			}
			for name, store := range w.stores { // whatever somebody wrote is there
				if value, ok := now[name][key]; ok && store.values()[key] != value &&
					strings.HasPrefix(value, "by somebody") {
					t.Errorf("store %s: %s = %q, want %q", name, key, store.values()[key], value)
				}
			}
		})
	}
}

// TestADeletionInTheMiddleOfDeleting: the first batch that a killed run may have deleted is taken as deleted; others
// are not.
func TestADeletionInTheMiddleOfDeleting(t *testing.T) {
	w, p := filledWorld(t, 300)
	job := w.job(p)
	job.Progress = func(step move.Step, moves int64) {
		if step == move.Deleted && moves == 100 {
			w.stores["core"].remove("/registry/deployments/default/d-00250")
		}
	}
	if _, err := move.Apply(t.Context(), job); !errors.Is(err, move.ErrChanged) ||
		!strings.Contains(err.Error(), "d-00250: was deleted in store core after it was copied; its copy is in store "+
			"modern") {
		t.Errorf("Apply = %v, want it to name the key that somebody deleted", err)
	}
}

// TestLeases: one lease for each, whatever happens, and undo gives keys the lease that they had.
func TestLeasesAreNotMultiplied(t *testing.T) {
	w, _ := filledWorld(t, 300)
	core, modern := w.stores["core"], w.stores["modern"]
	core.leases[8] = 50
	for i := range 200 {
		core.put(fmt.Sprintf("/registry/events/other/e-%03d", i), "event", 8)
	}
	p := plan(t, w, move.Options{})
	before := core.values()
	for killAt := 30; ; killAt += 7 { // again and again in one world
		w.ops, w.killAt = 0, killAt
		_, err := move.Apply(t.Context(), w.job(p))
		if err == nil {
			break
		}
		if !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
	}
	if len(modern.leases) != 2 {
		t.Errorf("2 leases became %d", len(modern.leases))
	}
	w.killAt = 0
	if _, err := move.Undo(t.Context(), w.job(p)); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(core.values(), before) || len(core.leases) != 2 {
		t.Errorf("undone, core holds %d keys and %d leases, want the %d keys from before with their 2 leases",
			len(core.entries), len(core.leases), len(before))
	}
}

func TestALeaseEndsAtAnyMoment(t *testing.T) {
	for _, where := range []string{"core", "modern"} {
		for _, step := range []move.Step{move.Saved, move.Copied, move.Deleted} {
			for _, batch := range []int64{100, 200} {
				w, p := filledWorld(t, 900) // 90 events, in the first batches
				job := w.job(p)
				job.Progress = func(s move.Step, moves int64) {
					if s != step || moves != batch {
						return
					}
					for lease := range w.stores[where].leases {
						w.stores[where].expire(lease)
					}
				}
				if _, err := move.Apply(t.Context(), job); err != nil {
					t.Errorf("Apply when the leases of %s end after %d keys were %s = %v", where, batch, step, err)
				}
				for key := range w.stores["core"].entries {
					if strings.Contains(key, "/events/") {
						t.Errorf("%s is still in core", key)
					}
				}
			}
		}
	}
}

// TestACopyOfAnEventThatSomebodyDeleted: its lease still lasts, so its time was not up.
func TestACopyOfAnEventThatSomebodyDeleted(t *testing.T) {
	w, p := filledWorld(t, 100)
	job := w.job(p)
	job.Progress = func(step move.Step, moves int64) {
		if step == move.Copied {
			w.stores["modern"].remove("/registry/events/default/e-00010")
		}
	}
	if _, err := move.Apply(t.Context(), job); !errors.Is(err, move.ErrChanged) ||
		!strings.Contains(err.Error(), "e-00010: its copy in store modern is gone") {
		t.Errorf("Apply = %v, want it to name the copy that is gone", err)
	}
}

// TestTheJournalOnlySavesTime: without it, apply goes on and undo goes back all the same.
func TestTheJournalOnlySavesTime(t *testing.T) {
	for _, verb := range []string{"apply", "undo"} {
		for killAt := 20; ; killAt += 5 {
			w, p := filledWorld(t, 300)
			before := map[string]map[string]string{"core": w.stores["core"].values(),
				"modern": w.stores["modern"].values()}
			w.ops, w.killAt = 0, killAt
			if _, err := move.Apply(t.Context(), w.job(p)); err == nil {
				break
			}
			w.killAt, w.disk.journal = 0, nil
			if verb == "apply" {
				if _, err := move.Apply(t.Context(), w.job(p)); err != nil {
					t.Fatalf("apply without its journal after being killed at %d: %v", killAt, err)
				}
				if n := len(list(plan(t, w, move.Options{}))); n != 0 {
					t.Fatalf("apply without its journal after being killed at %d: %d keys are left to move", killAt, n)
				}
				continue
			}
			undo(t, w, p, before, killAt)
		}
	}
}

// compacting loses the revision that is read, now and then.
type compacting struct {
	move.Store
	every, pages int
}

func (c *compacting) Page(ctx context.Context, r etcd.Request) (etcd.Page, error) {
	if c.pages++; r.Revision != 0 && c.every > 0 && c.pages%c.every == 0 {
		return etcd.Page{}, fmt.Errorf("page: %w", etcd.ErrCompacted)
	}
	return c.Store.Page(ctx, r)
}

func TestPlanSurvivesCompaction(t *testing.T) {
	w, p := filledWorld(t, 2000)
	stores := w.asStores()
	stores["core"] = &compacting{Store: stores["core"], every: 7}
	var got []move.Move
	if _, err := move.New(t.Context(), ownership(), stores, move.Options{}, func(m move.Move) error {
		got = append(got, m)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := list(p); len(got) != len(want) || got[0] != want[0] || got[len(got)-1] != want[len(want)-1] {
		t.Errorf("planned %d moves while the store was compacted, want %d", len(got), len(want))
	}
	stores["core"] = &compacting{Store: stores["core"], every: 1}
	if _, err := move.New(t.Context(), ownership(), stores, move.Options{}, func(move.Move) error {
		return nil
	}); !errors.Is(err, etcd.ErrCompacted) {
		t.Errorf("New on a store that is compacted before anything can be read = %v, want %v", err,
			etcd.ErrCompacted)
	}
}

func TestUndoRefusesWhenTheKeyIsTakenAgain(t *testing.T) {
	w, p := filledWorld(t, 20)
	if _, err := move.Apply(t.Context(), w.job(p)); err != nil {
		t.Fatal(err)
	}
	key := "/registry/deployments/default/d-00005"
	w.stores["core"].put(key, "a new one of this name", 0)
	if _, err := move.Undo(t.Context(), w.job(p)); !errors.Is(err, move.ErrChanged) ||
		!strings.Contains(err.Error(), key+": was written in store core after it was moved away") {
		t.Errorf("Undo = %v, want it to name %s", err, key)
	}
}

func TestUndoSaysWhatOnlyTheBackupHad(t *testing.T) {
	w, p := filledWorld(t, 20)
	before := w.stores["core"].values()
	if _, err := move.Apply(t.Context(), w.job(p)); err != nil {
		t.Fatal(err)
	}
	w.stores["modern"].remove("/registry/deployments/default/d-00005")
	result, err := move.Undo(t.Context(), w.job(p))
	if err != nil || result.Recreated != 1 || !maps.Equal(before, w.stores["core"].values()) {
		t.Errorf("Undo = %+v, %v; want one key from the backup, and everything as before", result, err)
	}
}

func TestResolveResources(t *testing.T) {
	m := ownership()
	m.Resources = append(m.Resources, pair.Resource{Key: "minions", Name: "nodes"},
		pair.Resource{Key: "services/specs", Name: "services"}, pair.Resource{Key: "ranges/serviceips"})
	got, err := move.ResolveResources(m, []string{"nodes", "minions", "services", "ranges", "kubeflow.org/notebooks",
		"pods"})
	if want := "[minions minions services/specs ranges kubeflow.org/notebooks pods]"; err != nil ||
		fmt.Sprint(got) != want {
		t.Errorf("ResolveResources = %v, %v; want %s", got, err, want)
	}
	if _, err := move.ResolveResources(m, []string{"nodse"}); err == nil {
		t.Error("ResolveResources of an unknown name is no error")
	}
}

// TestASecondCopyThatEndsIsNoCopy: the same value lies in both stores already, and only in one of them for good.
func TestASecondCopyThatEndsIsNoCopy(t *testing.T) {
	const key = "/registry/events/default/twice"
	for _, test := range []struct {
		name      string
		old, copy int64 // seconds, 0 for no lease
		says      string
	}{
		{"no lease", 0, 0, ""},
		{"the copy would end", 0, 5, "store modern holds the same under this key, but with a lease: it would end"},
		{"the copy would not end", 3000, 0, "but without a lease: it would not end"},
		{"the copy ends sooner", 3000, 2999, "but with a lease that ends sooner, in 2999 s instead of 3000 s"},
		{"the copy lasts as long", 3000, 3000, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			twice := func(w *world) {
				for name, seconds := range map[string]int64{"core": test.old, "modern": test.copy} {
					lease := int64(0)
					if seconds != 0 {
						lease = 77
						w.stores[name].leases[lease] = seconds
					}
					w.stores[name].put(key, "the same", lease)
				}
			}
			w := newWorld()
			twice(w)
			p := plan(t, w, move.Options{})
			if moves := list(p); len(moves) != 1 || !strings.Contains(moves[0].Conflict, test.says) ||
				(moves[0].Conflict != "") != (test.says != "") {
				t.Errorf("planned %+v, want the conflict %q", moves, test.says)
			}
			if _, err := move.Apply(t.Context(), w.job(p)); (err == nil) != (test.says == "") {
				t.Errorf("Apply = %v, want the conflict %q", err, test.says)
			}

			// Somebody puts it there after the backup was written: no plan knows.
			for _, step := range []move.Step{move.Saved, move.Copied} {
				w := newWorld()
				twice(w)
				copied := w.stores["modern"].entries[key]
				w.stores["modern"].remove(key)
				p := plan(t, w, move.Options{})
				job := w.job(p)
				job.Progress = func(s move.Step, _ int64) {
					if s == step {
						w.stores["modern"].put(key, "the same", copied.Lease)
					}
				}
				_, err := move.Apply(t.Context(), job)
				if test.says == "" && err != nil ||
					test.says != "" && (!errors.Is(err, move.ErrChanged) || !strings.Contains(err.Error(), test.says)) {
					t.Errorf("%s: Apply = %v, want %q", step, err, test.says)
				}
				if _, ok := w.stores["core"].entries[key]; test.says != "" && !ok {
					t.Errorf("%s: Apply refused, and deleted the original", step)
				}
			}
		})
	}
}

// TestUndoOfAnApplyThatDeletedNothing: the API servers run again, and write to what never was away. Undo deletes the
// copies, and nothing else.
func TestUndoOfAnApplyThatDeletedNothing(t *testing.T) {
	key := func(n int) string { return fmt.Sprintf("/registry/deployments/default/d-%05d", n) }
	// after the last batch was copied, after the first was deleted
	for _, step := range []move.Step{move.Copied, move.Deleted} {
		t.Run(string(step), func(t *testing.T) {
			w, p := filledWorld(t, 300)
			total, modernBefore := int64(len(list(p))), w.stores["modern"].values()
			job := w.job(p)
			job.Progress = func(s move.Step, moves int64) {
				if s == step && (moves == total || step == move.Deleted) {
					w.killAt = w.ops + 1
				}
			}
			if _, err := move.Apply(t.Context(), job); !errors.Is(err, errKilled) {
				t.Fatalf("Apply = %v, want it killed", err)
			}
			w.killAt = 0
			core := w.stores["core"]
			core.remove(lockKey)
			w.stores["modern"].remove(lockKey)
			core.put(key(250), "an ordinary update", 0)
			if step == move.Copied { // later, nobody knows whether it was apply that deleted them
				core.remove(key(251))
				core.remove(key(252))
				core.put(key(252), "another of this name", 0)
			}
			want := core.values()
			for m := range p.Moves() {
				if m.To == "core" {
					delete(want, m.Key)
				} else if step == move.Deleted {
					if _, ok := want[m.Key]; !ok {
						want[m.Key] = content(w.stores["modern"].entries[m.Key])
						if m.Leased {
							want[m.Key] = strings.Split(want[m.Key], " lease ")[0] + " lease 7"
						}
					}
				}
			}
			if _, err := move.Apply(t.Context(), w.job(p)); !errors.Is(err, move.ErrChanged) {
				t.Errorf("Apply again = %v, want %v", err, move.ErrChanged)
			}
			result, err := move.Undo(t.Context(), w.job(p))
			if err != nil {
				t.Fatalf("Undo = %v", err)
			}
			if result.Expired != 0 || result.Recreated != 0 {
				t.Errorf("Undo = %+v, want nothing expired or from the backup", result)
			}
			same(t, w, map[string]map[string]string{"core": want, "modern": modernBefore}, "undone")
			if moves := list(plan(t, w, move.Options{})); slices.ContainsFunc(moves, func(m move.Move) bool {
				return m.Conflict != ""
			}) {
				t.Error("a new plan has conflicts")
			}
		})
	}
}

func TestApplyLooksForRoomBeforeItCopies(t *testing.T) {
	w, p := filledWorld(t, 300)
	before := map[string]map[string]string{"core": w.stores["core"].values(), "modern": w.stores["modern"].values()}
	w.stores["modern"].room = 1000
	if _, err := move.Apply(t.Context(), w.job(p)); !errors.Is(err, move.ErrNoRoom) ||
		!strings.Contains(err.Error(), "store modern: ") || !strings.Contains(err.Error(), "it takes 1000 more") {
		t.Errorf("Apply into 1000 bytes = %v, want %v", err, move.ErrNoRoom)
	}
	same(t, w, before, "refused")
	w.stores["modern"].room = 1 << 20
	job := w.job(p)
	job.Progress = func(step move.Step, moves int64) {
		if step == move.Copied && moves == 300 {
			w.killAt = w.ops + 1
		}
	}
	if _, err := move.Apply(t.Context(), job); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	w.killAt = 0
	w.stores["modern"].room = 200 * (60 + 64) // what was copied needs no room again
	if _, err := move.Apply(t.Context(), w.job(p)); err != nil {
		t.Errorf("Apply that goes on = %v", err)
	}
}

// TestUndoInAStoreThatIsFull deletes there, at the revision that was read, and creates nothing.
func TestUndoInAStoreThatIsFull(t *testing.T) {
	broken := func(step move.Step, moves int64) (*world, move.Plan, map[string]map[string]string) {
		w, p := filledWorld(t, 300)
		before := map[string]map[string]string{"core": w.stores["core"].values(), "modern": w.stores["modern"].values()}
		job := w.job(p)
		job.Progress = func(s move.Step, n int64) {
			if s == step && n == moves {
				w.stores["modern"].full = true
				w.killAt = w.ops + 1
			}
		}
		if _, err := move.Apply(t.Context(), job); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		w.killAt = 0
		w.stores["core"].put(lockKey, "journal 1 at core", 0)
		w.stores["modern"].remove(lockKey)
		return w, p, before
	}
	w, p, before := broken(move.Copied, 200)
	if _, err := move.Apply(t.Context(), w.job(p)); !errors.Is(err, move.ErrFull) {
		t.Errorf("Apply = %v, want %v: it needs every lock", err, move.ErrFull)
	}
	w.stores["core"].full = true
	if _, err := move.Undo(t.Context(), w.job(p)); !errors.Is(err, move.ErrFull) {
		t.Errorf("Undo without any lock = %v, want %v", err, move.ErrFull)
	}
	w.stores["core"].full = false
	result, err := move.Undo(t.Context(), w.job(p))
	if err != nil || fmt.Sprint(result.Full) != "[modern]" {
		t.Errorf("Undo = %+v, %v; want it done, and modern named", result, err)
	}
	same(t, w, before, "undone in a full store")

	total := int64(len(list(p)))
	w, p, _ = broken(move.Deleted, total) // what came from modern would have to be created there again
	if _, err := move.Undo(t.Context(), w.job(p)); !errors.Is(err, move.ErrFull) ||
		!strings.Contains(err.Error(), "store modern: bringing back 30 keys") {
		t.Errorf("Undo that has to create in a full store = %v, want %v", err, move.ErrFull)
	}
	w.stores["modern"].full = false
	if _, err := move.Undo(t.Context(), w.job(p)); err != nil {
		t.Errorf("Undo when there is room again = %v", err)
	}
	same(t, w, before, "undone when there was room again")
}
