package migrate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const dishes = 11

// started is a kitchen with objects in v1alpha1, and the plan to v1 that retires v1alpha1.
func started(t *testing.T) (*kitchen, *Plan) {
	t.Helper()
	k := newKitchen(t, definition(t, pizzaBeta), dishes)
	p, err := New(observation(k.crd), Goal{Storage: "v1", With: definition(t, pizzaNew), Retire: []string{"v1alpha1"},
		Grace: time.Minute, Wait: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return k, p
}

// finished checks what is true when the plan is carried out.
func finished(t *testing.T, k *kitchen) {
	t.Helper()
	if diff := cmp.Diff(map[string]int{"v1": len(k.objects)}, k.count()); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Version{{"v1", true, true}}, k.crd.Versions()); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"v1"}, k.crd.StoredVersions()); diff != "" {
		t.Errorf("storedVersions (-want +got):\n%s", diff)
	}
	for o, d := range k.objects {
		for _, f := range d.managed {
			if text(f, "apiVersion") != "restaurant.example/v1" {
				t.Errorf("%s is managed through %v", o, f)
			}
		}
	}
}

func TestApplyMigratesAndProves(t *testing.T) {
	for _, store := range []bool{true, false} {
		k, p := started(t)
		report, err := Apply(t.Context(), p, k.world(store, 0))
		if err != nil {
			t.Fatal(err)
		}
		finished(t, k)
		want := Proof{How: ProofWritten, APIVersion: "restaurant.example/v1", Objects: dishes}
		if store {
			want.How, want.Store = ProofStore, "core"
		}
		for _, got := range report.Proofs {
			got.Revision, got.Base, got.Written, got.Unchanged = 0, "", 0, 0
			if got != want {
				t.Errorf("store %v: proof %+v, want %+v", store, got, want)
			}
		}
		if len(report.Proofs) != 2 || report.Rewritten != dishes {
			t.Errorf("store %v: %+v, want two proofs and %d rewritten", store, report, dishes)
		}
		// Again: there is nothing to do.
		if report, err := Apply(t.Context(), p, k.world(store, 0)); err != nil || len(report.Steps) > 0 {
			t.Errorf("store %v: again: %+v (%v)", store, report, err)
		}
	}
}

// Whatever the call at which the process is killed, and however often: what is stored is remembered, and another
// process finishes.
func TestApplyIsResumedAfterAKillAnywhere(t *testing.T) {
	for _, store := range []bool{true, false} {
		for dies := 1; ; dies++ {
			k, p := started(t)
			_, err := Apply(t.Context(), p, k.world(store, dies))
			if err == nil {
				t.Logf("store %v: killed at each of %d calls", store, dies-1)
				break
			}
			if !errors.Is(err, errKilled) && !k.died {
				t.Fatalf("call %d: %v", dies, err)
			}
			for kills := 0; err != nil; kills++ { // and again, a little later each time
				if kills > 200 {
					t.Fatalf("call %d: it does not get to its end: %v", dies, err)
				}
				_, err = Apply(t.Context(), p, k.world(store, max(0, 1+(dies+kills)%7*(60-kills))))
			}
			finished(t, k)
			if t.Failed() {
				t.Fatalf("killed at call %d with store %v", dies, store)
			}
		}
	}
}

// The way back leads to how everything was, from wherever the plan was when it was killed, and wherever the way back is
// killed.
func TestUndoLeadsBackFromAnywhere(t *testing.T) {
	for dies := 1; ; dies += 2 {
		k, p := started(t)
		if _, err := Apply(t.Context(), p, k.world(true, dies)); err == nil {
			break
		}
		k.died = false
		steps, err := Undo(p, k.log, "start")
		if err != nil {
			if strings.Contains(err.Error(), "nothing was done") {
				continue
			}
			t.Fatalf("call %d: %v", dies, err)
		}
		for kills := 0; ; kills++ {
			_, err := ApplyUndo(t.Context(), p, steps, k.world(true, 3+kills*5))
			if err == nil {
				break
			}
			if kills > 60 {
				t.Fatalf("call %d: it does not get to its end: %v", dies, err)
			}
			k.died = false
			if at, err := Locate(p, k.log); err != nil || at.Undone { // killed after its last word
				break
			}
			if steps, err = Undo(p, k.log, "start"); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(map[string]int{"v1alpha1": dishes}, k.count()); diff != "" {
			t.Errorf("call %d: stored (-want +got):\n%s", dies, diff)
		}
		if got, want := decoded(t, k.crd)["spec"], decoded(t, p.Before)["spec"]; !cmp.Equal(got, want) {
			t.Errorf("call %d: the CRD (-want +got):\n%s", dies, cmp.Diff(want, got))
		}
		if diff := cmp.Diff([]string{"v1alpha1"}, k.crd.StoredVersions()); diff != "" {
			t.Errorf("call %d: storedVersions (-want +got):\n%s", dies, diff)
		}
		if _, err := Apply(t.Context(), p, k.world(true, 0)); err == nil ||
			!strings.Contains(err.Error(), "was undone") {
			t.Errorf("apply after undo: %v", err)
		}
		if t.Failed() {
			return
		}
	}
}

func TestUndoStopsAtTheLastSafeStep(t *testing.T) {
	k, p := started(t)
	if _, err := Apply(t.Context(), p, k.world(true, 0)); err != nil {
		t.Fatal(err)
	}
	reached := func(id string) []Record {
		for i, r := range k.log {
			if r.Event == EventDone && r.ID == id {
				return k.log[:i+1]
			}
		}
		t.Fatalf("no step %q", id)
		return nil
	}
	for _, c := range []struct{ at, to, want string }{
		{"add v1", "", "remove v1"},
		{"switch v1", "", "switch v1alpha1, settle v1alpha1, rewrite v1alpha1, prove v1alpha1, prune v1alpha1"},
		{"prune v1", "", "switch v1alpha1, settle v1alpha1, rewrite v1alpha1, prove v1alpha1, prune v1alpha1"},
		{"unserve v1alpha1", "", "serve v1alpha1"},
		{"remove v1alpha1", "", "add v1alpha1, serve v1alpha1"},
		{"remove v1alpha1", "serve v1", "add v1alpha1, serve v1alpha1, switch v1alpha1, settle v1alpha1, rewrite " +
			"v1alpha1, prove v1alpha1, prune v1alpha1"},
	} {
		steps, err := Undo(p, reached(c.at), c.to)
		if err != nil || ids(steps) != c.want {
			t.Errorf("Undo(%s, %q) = %s (%v), want %s", c.at, c.to, ids(steps), err, c.want)
		}
	}
	for _, to := range []string{"switch v1", "nonsense"} {
		if _, err := Undo(p, k.log, to); err == nil {
			t.Errorf("Undo to %q: no error", to)
		}
	}
	if _, err := Undo(p, nil, ""); err == nil {
		t.Error("Undo of nothing: no error")
	}
}

func TestApplySetsABadObjectAside(t *testing.T) {
	for _, store := range []bool{true, false} {
		k, p := started(t)
		bad := Object{Namespace: "n1", Name: "p007"}
		k.objects[bad].bad = true
		report, err := Apply(t.Context(), p, k.world(store, 0))
		if !errors.Is(err, ErrRefused) || report.Stopped != "rewrite v1" || report.Refused != 1 ||
			report.Refusals[0].Name != "p007" {
			t.Fatalf("store %v: %+v (%v), want n1/p007 refused", store, report, err)
		}
		if diff := cmp.Diff(map[string]int{"v1": dishes - 1, "v1alpha1": 1}, k.count()); diff != "" {
			t.Errorf("store %v (-want +got):\n%s", store, diff)
		}
		if got := k.crd.StoredVersions(); len(got) != 2 {
			t.Errorf("store %v: storedVersions = %v, want both", store, got)
		}
		k.objects[bad].bad = false
		if _, err := Apply(t.Context(), p, k.world(store, 0)); err != nil {
			t.Fatal(err)
		}
		finished(t, k)
	}
}

func TestApplyBeginsNothingWhileConversionIsBroken(t *testing.T) {
	k := newKitchen(t, both(t), dishes)
	p, err := New(observation(k.crd), Goal{Storage: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	k.broken = true
	generation := k.crd.Generation()
	if _, err := Apply(t.Context(), p, k.world(true, 0)); !errors.Is(err, ErrConversion) {
		t.Errorf("Apply = %v, want ErrConversion", err)
	}
	if k.crd.Generation() != generation || len(k.log) > 0 || k.count()["v1"] > 0 {
		t.Errorf("something was changed: generation %d, journal %v, stored %v", k.crd.Generation(), k.log, k.count())
	}
}

// A webhook that dies in the middle stops the walk; it does not have every object refused.
func TestApplyStopsWhenConversionBreaks(t *testing.T) {
	k, p := started(t)
	w := k.world(true, 0)
	w.Workers = 1
	w.Progress = func(step Progress) {
		if step.Objects > 0 {
			k.mu.Lock()
			k.broken = true
			k.mu.Unlock()
		}
	}
	report, err := Apply(t.Context(), p, w)
	if !errors.Is(err, ErrConversion) || report.Refused > 1 {
		t.Errorf("Apply = %+v, %v; want ErrConversion and no heap of refusals", report, err)
	}
	k.broken = false
	if _, err := Apply(t.Context(), p, k.world(true, 0)); err != nil {
		t.Fatal(err)
	}
	finished(t, k)
}

func TestApplySeesThatSomebodyElseChangedTheCRD(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(*kitchen)
	}{
		{"changed", func(k *kitchen) { k.bump(k.crd.Generation() + 1) }},
		{"created again", func(k *kitchen) { k.crd.object["metadata"].(map[string]any)["uid"] = "u2" }},
	} {
		k, p := started(t)
		c.change(k)
		if _, err := Apply(t.Context(), p, k.world(true, 0)); !errors.Is(err, ErrChanged) {
			t.Errorf("%s: %v, want ErrChanged", c.what, err)
		}
		if len(k.log) > 0 {
			t.Errorf("%s: the journal has %v", c.what, k.log)
		}
	}
}

// A server that still writes as before the switch, after it said otherwise: the store shows it, and the objects are
// written again.
func TestProofFindsLateWrites(t *testing.T) {
	k, p := started(t)
	w := k.world(true, 0)
	once := true
	w.Sleep = func(_ context.Context, d time.Duration) error {
		k.now = k.now.Add(d)
		if d > 30*time.Second && once { // the grace before the proof
			once = false
			for _, dish := range k.objects {
				k.revision++
				dish.version, dish.revision = "v1alpha1", k.revision
				break
			}
		}
		return nil
	}
	report, err := Apply(t.Context(), p, w)
	if err != nil {
		t.Fatal(err)
	}
	finished(t, k)
	if report.Rewritten != dishes+1 {
		t.Errorf("%d rewritten, want %d", report.Rewritten, dishes+1)
	}
}

func TestWaitNeedsAReason(t *testing.T) {
	ended := func(k *kitchen, requests Requests) error {
		_, p := started(t)
		p.Wait.Duration = 0
		w := k.world(true, 0)
		if requests.From != (time.Time{}) || requests.Count > 0 {
			w.Audit = func(time.Time) (Requests, error) { return requests, nil }
		}
		_, err := Apply(t.Context(), p, w)
		return err
	}
	k, _ := started(t)
	long, soon := k.now.Add(-time.Hour), k.now.Add(24*time.Hour)
	for _, c := range []struct {
		requests Requests
		want     string
	}{
		{Requests{}, "neither a time to wait nor an audit log"},
		{Requests{From: long, To: soon, Count: 3, Last: soon, Who: "alice"},
			"3 requests for the version, the last by alice"},
		{Requests{From: soon, To: soon}, "covers"},
		{Requests{From: long, To: long}, "covers"},
	} {
		if err := ended(k, c.requests); !errors.Is(err, ErrWaiting) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.requests, err, c.want)
		}
	}
	if err := ended(k, Requests{From: long, To: soon}); err != nil {
		t.Error(err)
	}
	finished(t, k)
}

// An old server does not say in discovery how it stores: it is given the time that a request may take.
func TestSettleGivesASilentServerTime(t *testing.T) {
	k, p := started(t)
	k.silent = true
	before := k.now
	report, err := Apply(t.Context(), p, k.world(false, 0))
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Notes) == 0 || !strings.Contains(report.Notes[0], "was given 1m0s") ||
		k.now.Sub(before) < time.Minute {
		t.Errorf("notes %q after %s, want the grace", report.Notes, k.now.Sub(before))
	}
	finished(t, k)
}

func TestCleanedFields(t *testing.T) {
	entry := func(manager, version string, fields ...string) ManagedField {
		set := map[string]any{}
		for _, f := range fields {
			set[f] = map[string]any{}
		}
		return ManagedField{"manager": manager, "operation": "Apply", "apiVersion": version, "fieldsV1": set}
	}
	for _, c := range []struct {
		what  string
		in    []ManagedField
		alike bool
		want  []any // nil for no change
	}{
		{"none", []ManagedField{entry("a", "g/v1", "f:x")}, true, nil},
		{"moved", []ManagedField{entry("a", "g/v0", "f:x")}, true, []any{entry("a", "g/v1", "f:x")}},
		{"joined", []ManagedField{entry("a", "g/v0", "f:x"), entry("a", "g/v1", "f:y")}, true,
			[]any{entry("a", "g/v1", "f:x", "f:y")}},
		{"not another manager's", []ManagedField{entry("a", "g/v0", "f:x"), entry("b", "g/v1", "f:y")}, true,
			[]any{entry("b", "g/v1", "f:y"), entry("a", "g/v1", "f:x")}},
		{"dropped", []ManagedField{entry("a", "g/v0", "f:x"), entry("b", "g/v1", "f:y")}, false,
			[]any{entry("b", "g/v1", "f:y")}},
	} {
		got, changed := cleanedFields(c.in, "g/v0", "g/v1", c.alike)
		if changed != (c.want != nil) || !cmp.Equal(got, c.want) {
			t.Errorf("%s: %v %v, want %v", c.what, got, changed, c.want)
		}
	}
	if got, _ := cleanedFields([]ManagedField{entry("a", "g/v0", "f:x")}, "g/v0", "g/v1", false); len(got) != 1 {
		t.Errorf("an empty list: %v, want an entry that keeps the server from forgetting", got)
	}
}

// crowd is a resource of any number of objects, each of which is made when it is listed.
type crowd struct {
	*kitchen
	objects int
}

func (c crowd) Page(_ context.Context, list List) (Page, error) {
	from, _ := strconv.Atoi(list.Token)
	page := Page{ResourceVersion: "1000"}
	for i := from; i < min(from+list.Limit, c.objects); i++ {
		page.Objects = append(page.Objects,
			Object{Namespace: "shop", Name: fmt.Sprint("pizza-", i), ResourceVersion: "7"})
		page.Next = strconv.Itoa(i + 1)
	}
	if from+list.Limit >= c.objects {
		page.Next = ""
	}
	return page, nil
}

func (c crowd) Patch(_ context.Context, _ string, o Object, _ map[string]any) (string, error) {
	return o.ResourceVersion, nil
}

func TestMemoryDoesNotGrowWithTheObjects(t *testing.T) {
	live := func(objects int) (peak uint64) {
		k, p := started(t)
		w := k.world(false, 0)
		w.Objects = crowd{k, objects}
		w.Workers, w.PageObjects = 8, 500
		seen := 0
		r := &run{World: w, plan: p, steps: p.Steps, at: position{base: "10"}}
		w.Progress = func(step Progress) {
			if seen++; seen%10_000 == 0 {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapAlloc)
			}
		}
		walked, err := r.rewriteOnce(t.Context(), "v1")
		if err != nil || walked.unchanged != int64(objects) {
			t.Fatalf("%d of %d objects walked over: %v", walked.unchanged, objects, err)
		}
		return peak
	}
	few, many := live(10_000), live(200_000)
	if many > few+2<<20 {
		t.Errorf("%d bytes held with 10000 objects, %d with 200000", few, many)
	}
}

// Whatever call a run stops at: when the store is another one then, or was restored from a backup of any earlier
// moment, no further step is done. Where the restored store has grown past what is remembered, nothing is pruned that
// is stored: the kitchen looks at each change.
func TestStoresThatForgotEndAMigration(t *testing.T) {
	forget := map[string]func(k *kitchen, restore func()){
		"restored": func(k *kitchen, restore func()) { restore() },
		"restored, and raised as for watches": func(k *kitchen, restore func()) {
			restore()
			k.revision += 1_000_000_000
		},
		"emptied": func(k *kitchen, _ func()) {
			k.revision, k.objects = 3, map[Object]*dish{}
		},
		"another cluster": func(k *kitchen, _ func()) { k.system = "other" },
	}
	for name, forget := range forget {
		for _, store := range []bool{true, false} {
			for first := 4; first < 60; first += 5 {
				k, p := started(t)
				p.Seen, _ = Look(t.Context(), k, nil, "", k.now)
				if _, err := Apply(t.Context(), p, k.world(store, first)); err == nil {
					break
				}
				restore, before := k.backup(), k.revision
				if _, err := Apply(t.Context(), p, k.world(store, 50)); err == nil || k.revision == before {
					continue // nothing was written that could be forgotten
				}
				if at, _ := Locate(p, k.log); at.Done == len(p.Steps) {
					continue // nothing is left to do
				}
				forget(k, restore)
				log, crd := len(k.log), k.crd.Clone()
				_, err := Apply(t.Context(), p, k.world(store, 0))
				if !errors.Is(err, ErrOtherStore) {
					t.Errorf("%s, store %v, after %d calls: Apply = %v, want ErrOtherStore", name, store, first, err)
				}
				if len(k.log) != log || !k.crd.says(crd) || k.crd.Generation() != crd.Generation() {
					t.Errorf("%s, store %v, after %d calls: it went on", name, store, first)
				}
			}
		}
	}
}

// A restored store that others have written to since has a newer revision than what is remembered, and the objects of
// before. What an earlier run proved is proved again.
func TestProofsOfAnEarlierRunAreProvedAgain(t *testing.T) {
	for _, store := range []bool{true, false} {
		pruned := 0
		for dies := 1; ; dies++ {
			k, p := started(t)
			if _, err := Apply(t.Context(), p, k.world(store, dies)); err == nil {
				break
			}
			if last := k.log[max(0, len(k.log)-1):]; len(last) == 0 || last[0].Event != EventDone ||
				last[0].ID != "prove v1" || len(k.crd.StoredVersions()) == 1 {
				continue
			}
			for _, d := range k.objects { // the CRD is as it was, and so is its generation
				d.version, d.revision = "v1alpha1", 101
			}
			k.revision += 1000
			if _, err := Apply(t.Context(), p, k.world(store, 0)); err != nil {
				t.Fatalf("store %v, killed at call %d: %v", store, dies, err)
			}
			finished(t, k)
			pruned++
		}
		if pruned == 0 {
			t.Errorf("store %v: no run ended between the proof and what relies on it", store)
		}
	}
}

// Objects that vanish in numbers while they are rewritten are a store that is being emptied.
func TestVanishingObjectsEndARewrite(t *testing.T) {
	for _, test := range []struct {
		objects, gone int
		stops         bool
	}{{100, 5, false}, {100, 60, true}, {9, 9, false}} {
		k := newKitchen(t, definition(t, pizzaBeta), test.objects)
		p, err := New(observation(k.crd), Goal{Storage: "v1", With: definition(t, pizzaNew)})
		if err != nil {
			t.Fatal(err)
		}
		w := k.world(false, 0)
		w.Workers, w.PageObjects = 1, 500
		paced := 0
		w.Pace = func(context.Context) error {
			if paced++; paced == 1 { // the list is there
				k.mu.Lock()
				defer k.mu.Unlock()
				for _, o := range k.sorted()[test.objects-test.gone:] {
					o.ResourceVersion = ""
					delete(k.objects, o)
				}
			}
			return nil
		}
		_, err = Apply(t.Context(), p, w)
		if errors.Is(err, ErrOtherStore) != test.stops || (err != nil && !test.stops) {
			t.Errorf("%d of %d objects vanish: Apply = %v, want stopped %v", test.gone, test.objects, err, test.stops)
		}
		if test.stops && strings.Join(k.crd.StoredVersions(), ",") == "v1" {
			t.Errorf("%d of %d objects vanished, and the old version was pruned", test.gone, test.objects)
		}
	}
}

// A store in which the API server does not keep the resource proves nothing: it is empty of it.
func TestAnotherStoreProvesNothing(t *testing.T) {
	k, p := started(t)
	k.elsewhere = true
	crd := k.crd.Clone()
	if _, err := Apply(t.Context(), p, k.world(true, 0)); !errors.Is(err, ErrNotItsStore) {
		t.Errorf("Apply = %v, want ErrNotItsStore", err)
	}
	if !k.crd.says(crd) || len(k.log) > 0 {
		t.Error("the CRD was changed")
	}
	delete(k.crd.object["metadata"].(map[string]any), "resourceVersion")
	if err := Confirm(t.Context(), *k.world(true, 0).Store, p.Resource, k, k); err == nil {
		t.Error("a CRD without a resource version confirms a store")
	}
}

// What a server does not keep of a version is said however often the step is tried, also by a run that finds it done.
func TestAServerThatDropsAFieldNeverPasses(t *testing.T) {
	for dies := range 12 {
		k, p := started(t)
		entry, err := p.With.entry("v1")
		if err != nil {
			t.Fatal(err)
		}
		at(entry, "schema", "openAPIV3Schema").(map[string]any)["description"] = "what a pizza is"
		k.dropped = true
		for range 3 {
			_, err = Apply(t.Context(), p, k.world(true, dies))
			dies = 0
			if k.died {
				continue
			}
			if err == nil || !strings.Contains(err.Error(), "the server dropped spec.versions") {
				t.Fatalf("Apply = %v, want what was dropped", err)
			}
		}
		steps, err := Undo(p, k.log, "start")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ApplyUndo(t.Context(), p, steps, k.world(true, 0)); err != nil {
			t.Errorf("the way back: %v", err)
		}
	}
}

// Settled with the store, the grace was not waited for: without the store a later run waits for it, and takes nothing
// that was written before for written in the version.
func TestAResumedRunWithoutTheStoreWaits(t *testing.T) {
	for dies := 1; ; dies++ {
		k, p := started(t)
		if _, err := Apply(t.Context(), p, k.world(true, dies)); err == nil {
			break
		}
		if last := k.log[max(0, len(k.log)-1):]; len(last) == 0 || last[0].ID != "settle v1" ||
			last[0].Event != EventDone {
			continue
		}
		for _, d := range k.objects { // a request from before the switch, which ends now
			k.revision++
			d.version, d.revision = "v1alpha1", k.revision
		}
		if _, err := Apply(t.Context(), p, k.world(false, 0)); err != nil {
			t.Fatal(err)
		}
		finished(t, k)
		return
	}
	t.Error("no run ended behind settle")
}

// What is left of a plan when all is stored in the new version is to retire the old one: there was nothing to settle.
func TestRetirementAloneIsProvedWithoutTheStore(t *testing.T) {
	d := both(t)
	if err := d.setStorage("v1"); err != nil {
		t.Fatal(err)
	}
	d.setStored("v1")
	k := newKitchen(t, d, dishes)
	p, err := New(observation(k.crd), Goal{Storage: "v1", Retire: []string{"v1alpha1"}, Grace: time.Minute,
		Wait: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Apply(t.Context(), p, k.world(false, 0)); err != nil {
		t.Fatal(err)
	}
	finished(t, k)
}

// Without a switch there is no way back, and none begins.
func TestAnUndoWithoutStepsIsRefused(t *testing.T) {
	d := both(t)
	if err := d.setStorage("v1"); err != nil {
		t.Fatal(err)
	}
	d.setStored("v1alpha1", "v1")
	k := newKitchen(t, d, dishes)
	p, err := New(observation(k.crd), Goal{Storage: "v1", Grace: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Apply(t.Context(), p, k.world(true, 20)); err == nil {
		t.Fatal("want a run that is killed")
	}
	steps, err := Undo(p, k.log, "start")
	if err == nil || len(steps) > 0 {
		t.Errorf("Undo = %v, %v; want an error", steps, err)
	}
	if _, err := ApplyUndo(t.Context(), p, nil, k.world(true, 0)); err == nil {
		t.Error("ApplyUndo without steps: want an error")
	}
	k.log = append(k.log, Record{Event: EventUndo}) // as it was written before
	if _, err := Apply(t.Context(), p, k.world(true, 0)); err != nil {
		t.Errorf("going on: %v", err)
	}
}

// talkative refuses every object with words that repeat what is in it.
type talkative struct{ *kitchen }

func (k talkative) Patch(_ context.Context, _ string, o Object, _ map[string]any) (string, error) {
	if o.Name == "p000" {
		return k.kitchen.Patch(context.Background(), "restaurant.example/v1", o, nil)
	}
	return "", errors.New("invalid: " + strings.Repeat("x", 1<<20))
}

func TestRefusalsAreKeptShortAndOnce(t *testing.T) {
	k, p := started(t)
	for range 3 {
		w := k.world(true, 0)
		w.Objects = talkative{k}
		if _, err := Apply(t.Context(), p, w); !errors.Is(err, ErrRefused) {
			t.Fatalf("Apply = %v, want ErrRefused", err)
		}
	}
	size, refused := 0, map[string]int{}
	for _, r := range k.log {
		size += len(r.Error)
		if r.Event == EventRefused {
			refused[r.Object.String()]++
		}
	}
	for o, times := range refused {
		if times != 1 {
			t.Errorf("%s is refused %d times in the journal", o, times)
		}
	}
	if len(refused) < dishes-2 || size > len(refused)*(refusalBytes+100) {
		t.Errorf("%d objects, %d bytes of words in the journal", len(refused), size)
	}
}

// An audit log must reach to the present: a client may have come after its end.
func TestAnAuditLogThatEndsTooEarlyIsNotEnough(t *testing.T) {
	for _, c := range []struct {
		ends time.Duration // before the end of the wait
		ok   bool
	}{{time.Minute, true}, {59 * time.Minute, false}} {
		k, p := started(t)
		w := k.world(true, 0)
		w.Audit = func(since time.Time) (Requests, error) {
			return Requests{From: since.Add(-time.Hour), To: k.now.Add(-c.ends)}, nil
		}
		if _, err := Apply(t.Context(), p, w); errors.Is(err, ErrWaiting) == c.ok || c.ok && err != nil {
			t.Errorf("the log ends %s before now: Apply = %v", c.ends, err)
		}
	}
}

// Rolling back with the conversion None takes away what the new version alone has.
func TestUndoNamesWhatIsLost(t *testing.T) {
	with := definition(t, pizzaNew)
	p, err := New(observation(definition(t, pizzaBeta)), Goal{Storage: "v1", With: with})
	if err != nil {
		t.Fatal(err)
	}
	entry, err := p.With.entry("v1")
	if err != nil {
		t.Fatal(err)
	}
	at(entry, "schema", "openAPIV3Schema", "properties").(map[string]any)["status"] = map[string]any{
		"type": "object", "properties": map[string]any{"baked": map[string]any{"type": "boolean"}}}
	if got := p.UndoWarnings(p.inverse(p.Steps)); len(got) != 1 || !strings.Contains(got[0],
		"v1alpha1 does not have .status") {
		t.Errorf("%q, want .status", got)
	}
	if got := p.UndoWarnings(p.inverse(p.Steps[:2])); len(got) > 0 {
		t.Errorf("%q, want nothing: nothing is written again", got)
	}
	p.With.spec()["conversion"] = map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"clientConfig": map[string]any{"url": "https://127.0.0.1/"}}}
	if got := p.UndoWarnings(p.inverse(p.Steps)); len(got) > 0 {
		t.Errorf("%q, want nothing: a webhook converts", got)
	}
}
