package controllers

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// Owner references of every shape that an API server stores. An object whose owner is there stays, whatever stands
// beside the reference to it, and no shape costs the servers more than so many requests.
func TestOwnersOfEveryShape(t *testing.T) {
	yes := true
	absent := func(n int) (refs []metav1.OwnerReference) {
		for i := range n {
			refs = append(refs, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet",
				Name: fmt.Sprintf("gone-%d", i), UID: types.UID(fmt.Sprintf("gone-%d", i))})
		}
		return refs
	}
	for name, test := range map[string]struct {
		refs    func(alive metav1.OwnerReference) []metav1.OwnerReference
		deleted bool
	}{
		"an absent owner": {func(metav1.OwnerReference) []metav1.OwnerReference { return absent(1) }, true},
		"as many as are looked for": {func(metav1.OwnerReference) []metav1.OwnerReference {
			return absent(mostOwners)
		}, true},
		"one more": {func(metav1.OwnerReference) []metav1.OwnerReference { return absent(mostOwners + 1) }, false},
		"as many as an object can have": {func(metav1.OwnerReference) []metav1.OwnerReference {
			return absent(10_000)
		}, false},
		"one of many is there": {func(alive metav1.OwnerReference) []metav1.OwnerReference {
			return append(absent(mostOwners-1), alive)
		}, false},
		"the same twice": {func(alive metav1.OwnerReference) []metav1.OwnerReference {
			return []metav1.OwnerReference{alive, alive}
		}, false},
		"the same under another name": {func(alive metav1.OwnerReference) []metav1.OwnerReference {
			other := alive
			other.Name = "elsewhere"
			return []metav1.OwnerReference{other}
		}, false},
		"the same as another kind": {func(alive metav1.OwnerReference) []metav1.OwnerReference {
			other := alive
			other.Kind, other.APIVersion = "ConfigMap", "v1"
			return []metav1.OwnerReference{other}
		}, false},
		"two controllers": {func(alive metav1.OwnerReference) []metav1.OwnerReference {
			refs := append(absent(1), alive)
			refs[0].Controller, refs[1].Controller = &yes, &yes
			return refs
		}, false},
		"a kind in another case": {func(metav1.OwnerReference) []metav1.OwnerReference {
			refs := absent(1)
			refs[0].Kind = "replicaset"
			return refs
		}, false},
		"a plural": {func(metav1.OwnerReference) []metav1.OwnerReference {
			refs := absent(1)
			refs[0].Kind = "replicasets"
			return refs
		}, false},
		"a list": {func(metav1.OwnerReference) []metav1.OwnerReference {
			refs := absent(1)
			refs[0].Kind = "ReplicaSetList"
			return refs
		}, false},
		"no version": {func(metav1.OwnerReference) []metav1.OwnerReference {
			refs := absent(1)
			refs[0].APIVersion = ""
			return refs
		}, false},
		"three parts": {func(metav1.OwnerReference) []metav1.OwnerReference {
			refs := absent(1)
			refs[0].APIVersion = "apps/v1/x"
			return refs
		}, false},
		"a long name": {func(metav1.OwnerReference) []metav1.OwnerReference {
			refs := absent(1)
			refs[0].APIVersion, refs[0].Kind = strings.Repeat("x", 100_000)+"/v1", strings.Repeat("y", 100_000)
			return refs
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c, m := w.collector(Options{})
			alive := w.put(modern, "replicasets", "demo", "alive")
			pod := w.put("", "pods", "demo", "owned", test.refs(metav1.OwnerReference{APIVersion: "apps/v1",
				Kind: "ReplicaSet", Name: "alive", UID: alive.UID})...)
			w.see(t.Context(), m)
			var requests atomic.Int64
			w.refuse = func(pair.Side, *http.Request) int { requests.Add(1); return 0 }
			_ = c.process(t.Context(), pod.UID)
			if deleted := !w.has("", "pods", "demo", "owned"); deleted != test.deleted {
				t.Errorf("deleted %v, want %v", deleted, test.deleted)
			}
			if n := requests.Load(); n > 15*mostOwners {
				t.Errorf("%d requests for one object", n)
			}
		})
	}
}

// An owner of a kind that no side serves leaves an object undecided for ever, and it is considered again and again: the
// others are not looked for then.
func TestOwnersBesideOneOfAnUnknownKindCostNothing(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	var refs []metav1.OwnerReference
	for i := range mostOwners - 1 {
		refs = append(refs, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet",
			Name: fmt.Sprintf("gone-%d", i), UID: types.UID(fmt.Sprintf("gone-%d", i))})
	}
	refs = append(refs, metav1.OwnerReference{APIVersion: "none/v1", Kind: "None", Name: "none", UID: "none"})
	pod := w.put("", "pods", "demo", "owned", refs...)
	w.see(t.Context(), m)
	var requests atomic.Int64
	w.refuse = func(pair.Side, *http.Request) int { requests.Add(1); return 0 }
	for range 10 {
		if err := c.process(t.Context(), pod.UID); err != nil {
			t.Error(err)
		}
	}
	if n := requests.Load(); n > mostOwners || !w.has("", "pods", "demo", "owned") {
		t.Errorf("%d requests for ten looks at one object, want at most %d", n, mostOwners)
	}
}

// Objects that take hundreds of requests, of which any client makes thousands, wait for each other in their namespace,
// and delay no others.
func TestCostlyObjectsDelayNoOthers(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{Collect: true, Workers: 4})
	orphaning := func(namespace, name string) types.UID {
		of := w.put(modern, "replicasets", namespace, name)
		finalized(w, modern, "replicasets/"+namespace+"/"+name, metav1.FinalizerOrphanDependents)
		return of.UID
	}
	first, second, elsewhere := orphaning("demo", "first"), orphaning("demo", "second"), orphaning("other", "one")
	pod := w.put("", "pods", "demo", "owned", metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet",
		Name: "gone", UID: "gone"})
	w.see(t.Context(), m)
	var begun atomic.Bool
	waits, goes := make(chan bool), make(chan bool)
	w.refuse = func(pair.Side, *http.Request) int {
		if begun.CompareAndSwap(false, true) {
			w.mutex.Unlock() // the server answers others
			close(waits)
			<-goes
			w.mutex.Lock()
		}
		return 0
	}
	var processed sync.WaitGroup
	processed.Go(func() {
		if err := c.process(t.Context(), first); err != nil {
			t.Error(err)
		}
	})
	<-waits
	for _, uid := range []types.UID{second, elsewhere, pod.UID} {
		if err := c.process(t.Context(), uid); err != nil && (uid != second || !errors.Is(err, errWaits)) {
			t.Error(err)
		}
	}
	left := func(namespace, name string) bool {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		o := w.own[modern].objects["replicasets/"+namespace+"/"+name]
		return o != nil && len(o.Metadata.Finalizers) > 0
	}
	if !left("demo", "second") || left("other", "one") || w.has("", "pods", "demo", "owned") {
		t.Errorf("beside one that is released: another of its namespace waits %v, one of another %v, "+
			"a pod without owner %v",
			left("demo", "second"), left("other", "one"), w.has("", "pods", "demo", "owned"))
	}
	close(goes)
	processed.Wait()
	for uid := types.UID(""); uid != second; c.queue.Done(uid) { // in a moment, behind what the graph had queued
		uid, _ = c.queue.Get()
	}
	if left("demo", "first") {
		t.Error("the first waits")
	}
	if err := c.process(t.Context(), second); err != nil || left("demo", "second") {
		t.Errorf("%v, and the second waits %v", err, left("demo", "second"))
	}
}
