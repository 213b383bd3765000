package controllers

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// starting sets a world up and runs the check that this returns at every stage of the start of each side's server, with
// a readiness check that tells and with one that does not.
func starting(t *testing.T, setUp func(*world, *collector, *manager, pair.Side) (check func(*testing.T))) {
	for _, side := range pair.Sides() {
		for _, ready := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, ready %t", side, ready), func(t *testing.T) {
				w := newWorld(t)
				c, m := w.collector(Options{})
				check := setUp(w, c, m, side)
				stages, groups := []boot{{ready: ready}}, len(fakeGroups(side))
				for n := range groups {
					if n < 3 || n+3 > groups || n%7 == 0 {
						stages = append(stages, boot{ready: ready, core: true, groups: n})
					}
				}
				for _, stage := range stages {
					w.boots[side] = &stage
					forget(m)
					check(t)
					if len(w.deletions) > 0 || len(w.wrong) > 0 {
						t.Fatalf("deleted %q while the server was starting (%+v): %q", w.deletions, stage, w.wrong)
					}
				}
			})
		}
	}
}

// A server that has just started lists some of its groups only: it does not lack what is stored in the others.
func TestStartingServersAreNotBelieved(t *testing.T) {
	starting(t, func(w *world, c *collector, m *manager, side pair.Side) func(*testing.T) {
		ref := w.put(side, "gadgets", "demo", "gadget")
		w.put("", "pods", "demo", "one", ref)
		w.see(t.Context(), m)
		return func(t *testing.T) {
			unsee(m.graph, ref.UID) // as if its watch had ended with the server
			for _, uid := range m.graph.suspects() {
				_ = c.process(t.Context(), uid)
			}
		}
	})
}

// A namespace, and an owner that is deleted without its dependents, wait for a server that has just started.
func TestStartingServersKeepNamespacesAndOrphans(t *testing.T) {
	starting(t, func(w *world, c *collector, m *manager, side pair.Side) func(*testing.T) {
		w.put("", "namespaces", "", "going")
		w.setNamespace("going", true, NamespaceFinalizer)
		set := w.put(side, "replicasets", "demo", "set")
		w.put(side, "gadgets", "demo", "dependent", set)
		finalized(w, side, "replicasets/demo/set", metav1.FinalizerOrphanDependents)
		w.see(t.Context(), m)
		return func(t *testing.T) {
			if err := c.process(t.Context(), set.UID); err == nil || !w.has(side, "replicasets", "demo", "set") {
				t.Errorf("the owner is let go (%v), and its dependents are not known", err)
			}
			if err := m.namespaces.process(t.Context(), "going"); err == nil {
				t.Error("the namespace is finalized")
			}
			if _, there := w.finalizersOf("going"); !there {
				t.Error("the namespace is gone")
			}
		}
	})
}

// A definition that is stored, and that the server does not list, keeps a namespace as well: custom resources may be in
// it.
func TestDefinitionsThatAreNotServedKeepNamespaces(t *testing.T) {
	w := newWorld(t)
	_, m := w.collector(Options{})
	w.put("", "namespaces", "", "going")
	w.setNamespace("going", true, NamespaceFinalizer)
	w.define(modern, "things.new.test")
	if err := m.namespaces.process(t.Context(), "going"); err == nil ||
		!strings.Contains(err.Error(), "things.new.test") {
		t.Errorf("process = %v, want the definition's name", err)
	}
	taken := &w.own[modern].objects["customresourcedefinitions//things.new.test"].Status.Conditions[0] // its names are
	taken.Status = metav1.ConditionFalse
	forget(m)
	if err := m.namespaces.process(t.Context(), "going"); err != nil {
		t.Errorf("process = %v with a definition that was never served, want nothing", err)
	}
}

// settling has a collector settle as it does outside of tests, by a clock that a test moves.
func settling(c *collector, m *manager) *time.Time {
	now := time.Now()
	clock := func() time.Time { return now }
	c.now, c.absent.now, m.graph.now, c.settle = clock, clock, clock, settleTime
	for _, catalogs := range c.catalogs {
		catalogs.now = clock
	}
	return &now
}

// A kind that a side does not serve is absent there only after it has not been served for the settle time, since it
// vanished; an answer of before a doubt does not count.
func TestKindsSettleSinceTheyVanished(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	now := settling(c, m)
	w.put("", "pods", "demo", "one", w.put(modern, "widgets", "demo", "gone"))
	w.see(t.Context(), m)
	unsee(m.graph, "uid-2")
	w.drop(modern, "widgets", "demo", "gone")
	step := func(after time.Duration, deleted bool) {
		t.Helper()
		*now = now.Add(after)
		err := c.process(t.Context(), "uid-3")
		if got := len(w.deletions) > 0; got != deleted || (err == nil) != deleted {
			t.Fatalf("deleted %q (%v), want deleted %t", w.deletions, err, deleted)
		}
	}
	step(time.Hour, false) // the reference is old, and nobody has asked the legacy side about widgets yet
	step(settleTime-time.Second, false)
	w.boots[legacy] = &boot{core: true, groups: len(fakeGroups(legacy))} // it starts again, and is not ready
	step(catalogAge, false)
	delete(w.boots, legacy)
	step(failedAge, false)
	step(settleTime-time.Second, false)
	step(time.Second, true)
}

// What a side has served of its version it is expected to serve: an alpha resource that vanishes is not known to be
// gone.
func TestBuiltInResourcesThatVanishAreDoubted(t *testing.T) {
	w := newWorld(t)
	_, m := w.collector(Options{})
	side := m.catalogs[modern]
	whole, err := side.since(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	custom := func(gr schema.GroupResource) bool { return strings.HasSuffix(gr.Group, ".test") }
	if len(side.seen) == 0 || slices.ContainsFunc(side.seen, custom) {
		t.Fatalf("seen %q of %d resources, want the built-in ones", side.seen, len(whole.resources))
	}
	side.seen = append(side.seen, schema.GroupResource{Group: "scheduling.k8s.io", Resource: "workloads"})
	forget(m)
	_, err = side.since(t.Context(), time.Time{})
	if err == nil || !strings.Contains(err.Error(), "workloads.scheduling.k8s.io") {
		t.Errorf("since = %v, want a doubt that names the resource", err)
	}
}

// Definitions that may not be read are as good as unknown ones.
func TestDefinitionsThatCannotBeReadAreADoubt(t *testing.T) {
	for _, path := range []string{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		"/apis/apiregistration.k8s.io/v1/apiservices", "/readyz"} {
		w := newWorld(t)
		_, m := w.collector(Options{})
		w.refuse = func(side pair.Side, r *http.Request) int {
			return code(side == modern && r.URL.Path == path, http.StatusForbidden)
		}
		if _, err := m.catalogs[modern].since(t.Context(), time.Time{}); err == nil {
			t.Errorf("%s may not be read, and the catalog is believed", path)
		}
		if known, err := m.catalogs[modern].recent(t.Context()); err != nil || len(known.resources) == 0 {
			t.Errorf("recent = %v: what only has to be written somewhere waits for %s", err, path)
		}
	}
}

// What is known of a side decides about the owners that an object had when it was learnt: one that it was given since
// may be of a kind that a side serves since, and no watch has seen either of them.
func TestOwnersThatAnObjectWasGivenSinceAreAskedAbout(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	now := settling(c, m)
	hidden := true // the legacy side does not serve the kind yet
	w.refuse = func(side pair.Side, r *http.Request) int {
		return code(hidden && side == legacy && r.URL.Path == "/apis", withoutBoth)
	}
	w.drop(legacy, "customresourcedefinitions", "", "gadgets.both.test")
	first, other := w.put(modern, "gadgets", "demo", "first"), w.put(modern, "gadgets", "demo", "other")
	one, two := w.put("", "pods", "demo", "one", first), w.put("", "pods", "demo", "two", other)
	w.see(t.Context(), m)
	for _, owner := range []metav1.OwnerReference{first, other} {
		unsee(m.graph, owner.UID)
		w.drop(modern, "gadgets", "demo", owner.Name)
	}
	*now = now.Add(time.Hour)
	if err := c.process(t.Context(), two.UID); err == nil {
		t.Fatal("a kind that was just asked about has settled")
	}
	*now = now.Add(settleTime)
	if err := c.process(t.Context(), two.UID); err != nil || len(w.deletions) != 1 {
		t.Fatalf("deleted %q, %v; want the one whose owner is gone", w.deletions, err)
	}
	hidden = false
	w.define(legacy, "gadgets.both.test")
	w.shared.objects["pods/demo/one"].Metadata.OwnerReferences = []metav1.OwnerReference{
		w.put(legacy, "gadgets", "demo", "second")}
	*now = now.Add(time.Millisecond)
	if err := c.process(t.Context(), one.UID); len(w.deletions) != 1 {
		t.Errorf("deleted %q (%v), whose owner exists", w.deletions, err)
	}
}
