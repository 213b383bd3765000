package handover_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
)

const (
	definitions = "apiextensions.k8s.io/customresourcedefinitions"
	widgetDef   = "/registry/" + definitions + "/widgets.example.com"
	ownDef      = "/registry/" + definitions + "/gears.own.org"
	widget      = "/registry/example.com/widgets/default/w"
	part        = "/registry/example.com/widgets/default/part"
	ownGear     = "/registry/own.org/gears/g"
)

// file keeps one record more than the world.
type file struct {
	w    *world
	text []byte
}

func (f *file) Load() (*handover.Record, error) {
	if err := f.w.step(); err != nil || f.text == nil {
		return nil, err
	}
	r := new(handover.Record)
	return r, json.Unmarshal(f.text, r)
}

func (f *file) Save(r *handover.Record) (err error) {
	if err := f.w.step(); err != nil {
		return err
	}
	f.text, err = json.Marshal(r)
	return err
}

func definition(uid, group, plural, kind string) string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"CustomResourceDefinition","metadata":`+
		`{"generation":1,"name":"%[3]s.%[2]s","uid":%[1]q},"spec":{"group":%[2]q,"names":{"kind":%[4]q,`+
		`"plural":%[3]q},"version":"v1"},"status":{"conditions":[{"type":"Established","status":"True"}]}}`,
		uid, group, plural, kind)
}

// custom is a custom resource, of a kind that has the name of a built-in one.
func custom(uid, group, kind, state, owner string) string {
	return fmt.Sprintf(`{"apiVersion":"%s/v1","kind":%q,"metadata":{%s"name":"x","uid":%q},"spec":{"suspend":false},`+
		`"status":{"state":%q}}`, group, kind, owner, uid, state)
}

// customs is a world with custom resources, of which each side has its own.
type customs struct {
	*world
	defined *file
}

func newCustoms() *customs {
	w := newWorld()
	clear(w.core.entries)
	clear(w.modern.entries)
	w.core.put(widgetDef, definition("c1", "example.com", "widgets", "CronJob"))
	w.core.put(widget, custom("w1", "example.com", "CronJob", "new", ""))
	w.core.put(part, custom("w2", "example.com", "CronJob", "new", ownedBy("example.com/v1", "CronJob", "w1")))
	w.modern.put(ownDef, definition("c2", "own.org", "gears", "Gear"))
	w.modern.put(ownGear, custom("g1", "own.org", "Gear", "new", ""))
	return &customs{world: w, defined: &file{w: w}}
}

func (w *customs) clone() *customs {
	of := &customs{world: &world{record: w.record}}
	of.core = &store{of.world, w.core.revision, maps.Clone(w.core.entries)}
	of.modern = &store{of.world, w.modern.revision, maps.Clone(w.modern.entries)}
	of.defined = &file{of.world, w.defined.text}
	return of
}

func (w *customs) defining(back bool) *handover.Job {
	j := w.job(back)
	j.Aggregated, j.Absent, j.APIVersions, j.Files, j.Custom = nil, nil, nil, w.defined, true
	j.Resources = []handover.Resource{{Key: definitions, Kind: "CustomResourceDefinition", Subject: true,
		Reads: []string{"apiextensions.k8s.io/v1beta1"}, StoredAs: "apiextensions.k8s.io/v1beta1",
		By: handover.ByMetadata}}
	return j
}

func (w *customs) objects(back, copied bool) *handover.Job {
	j := w.defining(back)
	j.Files, j.DefinitionFiles, j.Definitions, j.Copy = w.world, w.defined, definitions, copied
	return j
}

// steps are those of the transition; after each of them is what clients do.
func (w *customs) steps(ctx context.Context, back bool, after ...func()) error {
	for i, j := range []*handover.Job{w.objects(back, true), w.defining(back), w.objects(back, false)} {
		if err := j.Move(ctx); err != nil {
			return err
		}
		if i < len(after) {
			after[i]()
		}
	}
	return errors.Join(w.defining(back).Adopted(ctx), w.objects(back, false).Adopted(ctx))
}

func (w *customs) are(t *testing.T, when string, back bool) {
	t.Helper()
	core, modern := "", ownDef+" "+widgetDef+" "+part+" "+widget+" "+ownGear
	if back {
		core, modern = widgetDef+" "+part+" "+widget, ownDef+" "+ownGear
	}
	if got := keys(w.core); got != core {
		t.Fatalf("%s: core holds %s, want %s", when, got, core)
	}
	if got := keys(w.modern); got != modern {
		t.Fatalf("%s: modern holds %s, want %s", when, got, modern)
	}
}

// TestCustomResourcesKilledAtEveryCall: no object is ever in neither store; no definition is where its objects are not;
// the next run goes on, or goes back.
func TestCustomResourcesKilledAtEveryCall(t *testing.T) {
	points := 0
	begin := map[bool]*customs{false: newCustoms(), true: newCustoms()}
	if err := begin[true].steps(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	begin[true].are(t, "handed over", false)
	for back, world := range begin {
		for _, turns := range []bool{false, true} {
			for killAt := 1; ; killAt++ {
				w := world.clone()
				w.killAt = killAt
				err := w.steps(t.Context(), back)
				if err != nil && !errors.Is(err, errKilled) {
					t.Fatalf("back %t, killed at %d: %v", back, killAt, err)
				}
				for _, s := range []*store{w.core, w.modern} {
					if s.entries[widgetDef].Key != nil && (s.entries[widget].Key == nil || s.entries[part].Key == nil) {
						t.Fatalf("back %t, killed at %d: a store has the definition, and %s", back, killAt, keys(s))
					}
				}
				if w.core.entries[widgetDef].Key == nil && w.modern.entries[widgetDef].Key == nil {
					t.Fatalf("back %t, killed at %d: no definition is left", back, killAt)
				}
				w.killAt = 0
				when := fmt.Sprintf("back %t, killed at %d, turns round %t", back, killAt, turns)
				if err := w.steps(t.Context(), back != turns); err != nil {
					t.Fatalf("%s: %v", when, err)
				}
				w.are(t, when, back != turns)
				if points++; err == nil {
					break
				}
			}
		}
	}
	if points < 60 {
		t.Errorf("%d points, want more", points)
	}
}

// TestCustomResourcesThatClientsWrite: what is written before the definition goes is what goes; what is deleted is not
// brought back; and all that was created by then comes back with the definition.
func TestCustomResourcesThatClientsWrite(t *testing.T) {
	const since = "/registry/example.com/widgets/default/since"
	w := newCustoms()
	err := w.steps(t.Context(), false, func() {
		w.edit(w.core, widget, `"new"`, `"late"`)
		w.core.put(since, custom("w3", "example.com", "CronJob", "new", ""))
	}, func() { // the modern API server writes its status and defaults, and a client an object
		w.edit(w.modern, widgetDef, `"version":"v1"`, `"version":"v1","conversion":{"strategy":"None"}`)
		w.edit(w.modern, part, `"new"`, `"seen"`)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := keys(w.core); got != "" {
		t.Errorf("core holds %s", got)
	}
	for key, state := range map[string]string{widget: "late", part: "seen", since: "new"} {
		if !strings.Contains(string(w.modern.entries[key].Value), state) {
			t.Errorf("%s: want %q: %s", key, state, w.modern.entries[key].Value)
		}
	}
	const later = "/registry/example.com/widgets/default/later"
	delete(w.modern.entries, since)
	w.modern.put(later, custom("w4", "example.com", "CronJob", "new", ""))
	if err := w.steps(t.Context(), true, func() {}, func() { delete(w.core.entries, later) }); err != nil {
		t.Fatal(err)
	}
	w.are(t, "back", true)
	if !strings.Contains(string(w.core.entries[part].Value), "seen") {
		t.Errorf("%s is %s", part, w.core.entries[part].Value)
	}
}

// TestAnotherObjectIsNoCopy: a client deletes the copy, at any moment before it was read back, and creates another
// object of its name. The original stays.
func TestAnotherObjectIsNoCopy(t *testing.T) {
	replaced, removes, undisturbed := 0, 0, newCustoms()
	undisturbed.between = func(op int) { // the call that removes the first original is the last that sees both
		if undisturbed.core.entries[widget].Key != nil && undisturbed.core.entries[part].Key != nil {
			removes = op
		}
	}
	if err := undisturbed.steps(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	for at := 1; at < removes; at++ {
		w, there := newCustoms(), false
		w.between = func(op int) {
			if op != at {
				return
			}
			if _, copied := w.modern.entries[widget]; !copied {
				return
			}
			if _, there = w.core.entries[widget]; there {
				replaced++
			}
			w.modern.put(widget, custom("other", "example.com", "CronJob", "new", ""))
		}
		err := w.steps(t.Context(), false)
		w.between = nil
		if _, still := w.core.entries[widget]; there && (!still || err == nil) {
			t.Errorf("replaced at call %d: %v; the original is there: %t", at, err, still)
		}
	}
	if replaced < 5 {
		t.Errorf("the copy was replaced %d times", replaced)
	}
}

// TestCopiesThatWereWrittenAreNoStrays: the copy of what is gone goes, as it was put there alone.
func TestCopiesThatWereWrittenAreNoStrays(t *testing.T) {
	for _, written := range []bool{false, true} {
		w := newCustoms()
		if err := w.objects(false, true).Move(t.Context()); err != nil {
			t.Fatal(err)
		}
		delete(w.core.entries, widget)
		if written {
			w.edit(w.modern, widget, "new", "changed")
		}
		err := w.objects(false, true).Move(t.Context())
		if _, stays := w.modern.entries[widget]; stays != written || (err != nil) != written ||
			written && !strings.Contains(err.Error(), "without a definition") {
			t.Errorf("written %t: %v; the copy stays: %t", written, err, stays)
		}
	}
}

// TestCustomResourcesThatStay: what stands against it is found before anything changes.
func TestCustomResourcesThatStay(t *testing.T) {
	for want, change := range map[string]func(w *customs){
		"another object of this name": func(w *customs) {
			w.modern.put(widgetDef, definition("c9", "example.com", "widgets", "CronJob"))
		},
		"without a definition": func(w *customs) {
			w.modern.put("/registry/example.com/widgets/default/old", custom("w9", "example.com", "CronJob", "old", ""))
		},
		"is being deleted": func(w *customs) {
			w.edit(w.core, widget, `"uid"`, `"deletionTimestamp":"2026-01-01T00:00:00Z","uid"`)
		},
		"is controlled by the Deployment.apps x": func(w *customs) {
			w.core.put(part, custom("w2", "example.com", "CronJob", "new", ownedBy("apps/v1", "Deployment", "d9")))
		},
		"cannot be edited": func(w *customs) { w.core.put(part, "k8s:enc:aescbc:v1:key1:x") },
		"no group, plural": func(w *customs) { w.core.put(ownDef, definition("c3", "", "gears", "Gear")) },
		// Clients may create such definitions, and these are the keys of what API servers keep of them.
		"own customresourcedefinitions": func(w *customs) {
			w.core.put("/registry/"+definitions+"/customresourcedefinitions.apiextensions.k8s.io",
				definition("c4", "apiextensions.k8s.io", "customresourcedefinitions", "Mine"))
		},
		"own apiservices": func(w *customs) {
			w.core.put("/registry/"+definitions+"/apiservices.apiregistration.k8s.io",
				definition("c5", "apiregistration.k8s.io", "apiservices", "Mine"))
		},
	} {
		w := newCustoms()
		change(w)
		core, modern := maps.Clone(w.core.entries), maps.Clone(w.modern.entries)
		j := w.objects(false, true)
		j.Kinds = nil
		err := errors.Join(w.defining(false).Check(t.Context()), j.Check(t.Context()))
		if err == nil || !strings.Contains(err.Error(), want) && want != "cannot be edited" {
			t.Errorf("%q = %v", want, err)
		}
		same := func(a, b etcd.Entry) bool { return string(a.Value) == string(b.Value) }
		if !maps.EqualFunc(core, w.core.entries, same) || !maps.EqualFunc(modern, w.modern.entries, same) {
			t.Errorf("%q: a store was changed", want)
		}
	}
}

// TestWhatCustomResourcesControlGoesAfterThem, in the same transition, and back before them.
func TestWhatCustomResourcesControlGoesAfterThem(t *testing.T) {
	w := newCustoms()
	w.core.put(deployment, settled("apps/v1", "Deployment", "web", "d1", ownedBy("example.com/v1", "CronJob", "w1")))
	workloads := func(back, together bool) *handover.Job {
		j := w.job(back)
		j.Aggregated, j.Absent, j.Custom, j.Collects, j.Files = nil, nil, together, true, &file{w: w.world}
		return j
	}
	if err := workloads(false, false).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "which stays") {
		t.Errorf("alone: %v", err)
	}
	if err := workloads(false, true).Check(t.Context()); err != nil {
		t.Errorf("before: %v", err)
	}
	if err := w.steps(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if err := workloads(false, true).Check(t.Context()); err != nil {
		t.Errorf("after its owner: %v", err)
	}
}

// liar answers requests for widgets with a role binding as well, before them.
type liar struct{ *store }

func (l liar) Page(ctx context.Context, r etcd.Request) (etcd.Page, error) {
	page, err := l.store.Page(ctx, r)
	if strings.HasPrefix(r.From, "/registry/example.com/widgets/") && len(page.Entries) > 0 {
		evil := custom("e1", "rbac.authorization.k8s.io", "ClusterRoleBinding", "new", "")
		page.Entries = append([]etcd.Entry{{Key: []byte("/registry/clusterrolebindings/evil"), ModRevision: 1,
			Value: []byte(evil)}}, page.Entries...)
		page.RangeKeys++
	}
	return page, err
}

// TestKeysOfOtherResourcesStay: the store of one side puts nothing but custom resources into that of the other side,
// whatever it answers.
func TestKeysOfOtherResourcesStay(t *testing.T) {
	w := newCustoms()
	j := w.objects(false, true)
	j.From.Store = liar{w.core}
	err := j.Move(t.Context())
	if _, there := w.modern.entries["/registry/clusterrolebindings/evil"]; there || err == nil {
		t.Errorf("Move = %v, and the modern store has the role binding: %t; want an error, and none", err, there)
	}
}
