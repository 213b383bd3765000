package controllers

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// TestObjectsThatStayAreCostly: clients make hundreds of small objects whose owners no watch sees, and that stay. They
// are processed one after the other, the first time as well where there is more to read than of garbage, and what is
// undecided without a request is looked up first.
func TestObjectsThatStayAreCostly(t *testing.T) {
	gone := func(many int, last ...metav1.OwnerReference) (refs []metav1.OwnerReference) {
		for k := range many {
			name := fmt.Sprintf("gone-%d", k)
			refs = append(refs, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: name, UID: types.UID(name)})
		}
		return append(refs, last...)
	}
	events := func(many int) func(*world) []metav1.OwnerReference {
		return func(w *world) (refs []metav1.OwnerReference) {
			for k := range many {
				refs = append(refs, w.put(modern, "events", "evil", fmt.Sprintf("event-%d", k)))
			}
			return refs
		}
	}
	with := func(many int, last metav1.OwnerReference) func(*world) []metav1.OwnerReference {
		return func(*world) []metav1.OwnerReference { return gone(many, last) }
	}
	unread := metav1.OwnerReference{APIVersion: "v1", Kind: "Binding", Name: "x", UID: "x"}
	for name, test := range map[string]struct {
		owners func(*world) []metav1.OwnerReference
		first  bool // costly before it was processed
		reads  int  // the most of them
	}{
		"of a kind that cannot be read":          {owners: with(7, unread), first: true, reads: 1},
		"of a kind that cannot be read, and few": {owners: with(1, unread), reads: 1},
		"of a name that no object has": {owners: with(7, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod",
			Name: "a/b", UID: "x"}), first: true, reads: 1},
		"of a group whose discovery fails": {owners: with(7, metav1.OwnerReference{APIVersion: "both.test/v1",
			Kind: "Gadget", Name: "x", UID: "x"}), first: true, reads: 1},
		"that are events":  {owners: events(8), first: true, reads: 1 + 8*3},
		"that is an event": {owners: events(1), reads: 1 + 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c, m := w.collector(Options{})
			bait := w.put(modern, "configmaps", "evil", "bait", test.owners(w)...)
			w.see(t.Context(), m)
			reads, failing := 0, strings.Contains(name, "fails")
			w.refuses(func(side pair.Side, r *http.Request) int {
				if strings.Contains(r.URL.Path, "/namespaces/evil/") {
					reads++
				}
				return code(failing && r.URL.Path == "/apis/both.test/v1", 503)
			})
			if failing {
				forget(m)
				_, _ = c.catalogs[legacy].since(t.Context(), time.Time{}) // as a scan's discovery
			}
			if costs := m.graph.costs(m.graph.node(bait.UID)); costs != test.first {
				t.Errorf("costly before it is processed: %t, want %t", costs, test.first)
			}
			_ = c.process(t.Context(), bait.UID)
			if reads == 0 || reads > test.reads {
				t.Errorf("%d reads, want 1 to %d", reads, test.reads)
			}
			if !w.has(modern, "configmaps", "evil", "bait") || !m.graph.costs(m.graph.node(bait.UID)) {
				t.Error("it is gone, or it is not costly the next time")
			}
		})
	}
}

// TestOwnersThatAreSeenMakeObjectsCheap: what was undecided until its owner was seen is processed as others are when
// the owner goes.
func TestOwnersThatAreSeenMakeObjectsCheap(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	set := w.put(modern, "replicasets", "demo", "set")
	pod := w.put("", "pods", "demo", "one", set)
	w.see(t.Context(), m)
	unsee(m.graph, set.UID)
	if err := c.process(t.Context(), pod.UID); err != nil || !m.graph.costs(m.graph.node(pod.UID)) {
		t.Fatalf("process = %v; want that the pod stays, and is costly", err)
	}
	if w.see(t.Context(), m); m.graph.costs(m.graph.node(pod.UID)) {
		t.Error("it is costly while its owner is seen")
	}
	if unsee(m.graph, set.UID); m.graph.costs(m.graph.node(pod.UID)) {
		t.Error("it is costly when its owner goes")
	}
}

// TestCostlyObjectsTakeTurns: of one namespace one at a time, the next as soon as it ends, and none is lost.
func TestCostlyObjectsTakeTurns(t *testing.T) {
	c := &costly{limit: 1}
	nodes := map[types.UID]*node{"b": nil, "c": {uid: "c"}, "d": {uid: "d"}}
	node := func(uid types.UID) *node { return nodes[uid] }
	if goes, waits := c.begin("demo", "a"); !goes || waits {
		t.Fatalf("begin = %t, %t; want that it goes", goes, waits)
	}
	for _, uid := range []types.UID{"b", "c", "c", "d"} {
		if goes, waits := c.begin("demo", uid); goes || !waits {
			t.Fatalf("begin = %t, %t; want that it waits", goes, waits)
		}
	}
	if goes, waits := c.begin("other", "e"); goes || waits {
		t.Fatalf("begin = %t, %t; want that another namespace comes back later", goes, waits)
	}
	var order []types.UID
	for next, found := c.end("demo", node); found; next, found = c.end("demo", node) {
		order = append(order, next)
		if goes, _ := c.begin("demo", next); !goes {
			t.Fatalf("%s waits again", next)
		}
	}
	if fmt.Sprint(order) != "[c d]" || len(c.waits)+len(c.waiting)+len(c.of) > 0 {
		t.Errorf("order %v, left %+v; want c and d, and none", order, c)
	}
}
