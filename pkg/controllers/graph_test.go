package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubefusion/fusionctl/internal/cputest"
)

// TestThousandsOfOwnersThatChange: a client may exchange all owners of an object at each update. An owner that waited
// for the object is attended to.
func TestThousandsOfOwnersThatChange(t *testing.T) {
	const waits = "1b4e28ba-2fa1-11d2-883f-0016d3c00000"
	attended := map[types.UID]int{}
	g := newGraph(time.Now, func(uid types.UID) { attended[uid]++ })
	r, now := &resource{namespaced: true}, metav1.Now()
	g.observe(r, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: waits, Name: "w", Namespace: "a",
		DeletionTimestamp: &now, Finalizers: []string{metav1.FinalizerDeleteDependents}}})
	dependent := func(owners func(i int) types.UID) *metav1.PartialObjectMetadata {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "d", Name: "d", Namespace: "a"}}
		for i := range 20_000 {
			o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{UID: owners(i)})
		}
		return o
	}
	one := dependent(func(int) types.UID { return waits })
	others := dependent(func(i int) types.UID {
		return types.UID(fmt.Sprintf("1b4e28ba-2fa1-11d2-883f-0016d3d%05d", i))
	})
	if took := cputest.Thread(t, func() {
		g.observe(r, one)
		clear(attended)
		g.observe(r, others)
	}); took > 800*time.Millisecond {
		t.Errorf("it took %v", took)
	}
	if attended[waits] == 0 {
		t.Error("the owner that waited is not attended to")
	}
	clear(attended)
	if g.observe(r, others); attended[waits] > 0 {
		t.Error("an owner that it does not have is attended to")
	}
}

// TestHandedOverOwnersAreNotCounted: while objects are handed over both sides have them, with one UID. The deletion of
// one side's is not that of the other's, whichever was heard of last.
func TestHandedOverOwnersAreNotCounted(t *testing.T) {
	for name, again := range map[string]bool{"as they were": false, "the originals change after the copies": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c, m := w.collector(Options{})
			w.put("", "namespaces", "", "demo")
			for i := range 12 {
				name := fmt.Sprintf("route-%d", i)
				ref := w.put(legacy, "ingresses", "demo", name)
				w.put(legacy, "gadgets", "demo", "certificate-"+name, ref)
				copied := *w.own[legacy].objects["ingresses/demo/"+name]
				w.own[modern].objects["ingresses/demo/"+name] = &copied
			}
			w.see(t.Context(), m)
			var original, copied *monitor
			for r, monitor := range m.monitors.running {
				if r.Resource == "ingresses" && r.side == legacy {
					original = monitor
				} else if r.Resource == "ingresses" {
					copied = monitor
				}
			}
			size := m.graph.size()
			for i := range 12 {
				o := &metav1.PartialObjectMetadata{
					ObjectMeta: w.own[legacy].objects[fmt.Sprintf("ingresses/demo/route-%d", i)].Metadata}
				if again {
					_ = original.Add(o)
				}
				w.drop(legacy, "ingresses", "demo", o.Name)
				if err := original.Delete(o); err != nil {
					t.Fatal(err)
				}
				if n := m.graph.node(o.UID); n == nil || n.resource != &copied.resource {
					t.Errorf("the graph has %+v, want the modern side's %s", n, o.Name)
				}
			}
			if err := c.guard.stopped(); err != nil || m.graph.size() != size || len(m.graph.copies) > 0 {
				t.Fatalf("stopped() = %v; %d objects and %d copies, want %d and none", err, m.graph.size(),
					len(m.graph.copies), size)
			}
			if got := m.graph.objects[original.resource]; got != 0 {
				t.Errorf("%d objects of the legacy side are counted", got)
			}
			for i := range 12 { // these are the last
				o := w.own[modern].objects[fmt.Sprintf("ingresses/demo/route-%d", i)].Metadata
				_ = copied.Delete(&metav1.PartialObjectMetadata{ObjectMeta: o})
			}
			if err := c.guard.stopped(); err == nil {
				t.Error("deletions go on after all ingresses have vanished")
			}
		})
	}
}

// TestCopiesGoWithTheirLists: a copy that a list does not have is none any more, and an object whose resource is not
// watched any more leaves its copy behind.
func TestCopiesGoWithTheirLists(t *testing.T) {
	g := newGraph(time.Now, func(types.UID) {})
	one, other := &resource{side: legacy}, &resource{side: modern}
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "1", Name: "n"}}
	g.observe(one, o)
	g.observe(other, o)
	g.replace(one, func(func(*metav1.PartialObjectMetadata) bool) {})
	if g.remove(other, "1"); g.size() != 0 || g.objects[*one] != 0 || g.objects[*other] != 0 {
		t.Errorf("%d objects, %v; want none", g.size(), g.objects)
	}
	g.observe(one, o)
	g.observe(other, o)
	g.observe(&dependents, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "2", Name: "d",
		OwnerReferences: []metav1.OwnerReference{{UID: "1"}}}})
	if owners := g.leave(other); owners != 0 || g.node("1") == nil || g.leftAs("1") != "" {
		t.Errorf("leave = %d, node %v; want the copy to be there", owners, g.node("1"))
	}
	if owners := g.leave(one); owners != 1 || g.node("1") != nil || g.leftAs("1") == "" {
		t.Errorf("leave = %d, node %v; want none to be there", owners, g.node("1"))
	}
	late := &monitor{resource: *other, graph: g, told: func(resource, *metav1.PartialObjectMetadata) {}}
	late.ended.Store(true)
	if _ = late.Add(o); g.node("1") != nil {
		t.Error("an event of a watch that has ended is kept")
	}
}

var dependents = resource{side: modern, kind: "Dependent"}

// TestWhatControllersDeleteInOrdinaryOperation: history limits of CronJobs delete Jobs that own pods, with nothing that
// announces it. A store that has forgotten what they look like is another matter.
func TestWhatControllersDeleteInOrdinaryOperation(t *testing.T) {
	controls := true
	for name, test := range map[string]struct {
		owner, controller string
		change            func(ref *metav1.OwnerReference)
		gone              func(w *world)
		stops             bool
	}{
		"the oldest job of each": {owner: "jobs", controller: "cronjobs"},
		"all jobs": {owner: "jobs", controller: "cronjobs", stops: true, gone: func(w *world) {
			for i := range 10 {
				for n := 1; n < 4; n++ {
					w.drop(modern, "jobs", "demo", fmt.Sprintf("owner-%d-%d", i, n))
				}
			}
		}},
		"the oldest job of each, and its cron job": {owner: "jobs", controller: "cronjobs", stops: true,
			gone: func(w *world) {
				for i := range 10 {
					w.drop(modern, "cronjobs", "demo", fmt.Sprintf("controller-%d", i))
				}
			}},
		"jobs of which a cron job is no controller": {owner: "jobs", controller: "cronjobs", stops: true,
			change: func(ref *metav1.OwnerReference) { ref.Controller = nil }},
		"replica sets of deployments": {owner: "replicasets", controller: "deployments", stops: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c, m := w.collector(Options{})
			w.put("", "namespaces", "", "demo")
			for i := range 10 {
				by := w.put(modern, test.controller, "demo", fmt.Sprintf("controller-%d", i))
				if by.Controller = &controls; test.change != nil {
					test.change(&by)
				}
				for n := range 4 {
					name := fmt.Sprintf("owner-%d-%d", i, n)
					w.put("", "pods", "demo", name, w.put(modern, test.owner, "demo", name, by))
				}
			}
			w.see(t.Context(), m)
			for i := range 10 {
				w.drop(modern, test.owner, "demo", fmt.Sprintf("owner-%d-0", i))
			}
			if test.gone != nil {
				test.gone(w)
			}
			collectAll(t, w, c, m)
			if err := c.guard.stopped(); (err != nil) != test.stops {
				t.Errorf("stopped() = %v with %d deletions, want stopped %t", err, len(w.deletions), test.stops)
			}
			if !test.stops && len(w.deletions) != 10 {
				t.Errorf("deleted %q, want ten pods", w.deletions)
			}
			if err := c.guard.stopped(); err != nil && !strings.Contains(err.Error(), `in namespace "demo"`) {
				t.Errorf("stopped() = %v, want the namespace", err)
			}
		})
	}
}
