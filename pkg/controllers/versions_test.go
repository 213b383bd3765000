package controllers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// defineIn makes a side serve a resource in one more version, as withVersion does.
func (w *world) defineIn(c *collector, side pair.Side, gvr schema.GroupVersionResource, kind string) {
	w.t.Helper()
	server, err := apiserver.New(serverOf(w.withVersion(side, gvr, kind)), apiserver.Options{Attempts: 1, QPS: -1})
	if err != nil {
		w.t.Fatal(err)
	}
	c.clients[side].server = server
	c.catalogs[side].forget()
}

// withVersion is a side that serves a resource in one more version, which it prefers and which has no objects: as by a
// definition of whoever may create one, in the group of an extension API server, or of the API server itself.
func (w *world) withVersion(side pair.Side, gvr schema.GroupVersionResource, kind string) http.HandlerFunc {
	root := "/apis/" + gvr.GroupVersion().String()
	answer := func(rw http.ResponseWriter, code int, value any) {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(code)
		_ = json.NewEncoder(rw).Encode(value)
	}
	return func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/apis":
			recorder := httptest.NewRecorder()
			w.serve(side, recorder, r)
			var list metav1.APIGroupList
			if err := json.Unmarshal(recorder.Body.Bytes(), &list); err != nil {
				w.t.Error(err)
			}
			for i := range list.Groups {
				if group := &list.Groups[i]; group.Name == gvr.Group {
					group.PreferredVersion = metav1.GroupVersionForDiscovery{GroupVersion: gvr.GroupVersion().String(),
						Version: gvr.Version}
					group.Versions = slices.Insert(group.Versions, 0, group.PreferredVersion)
				}
			}
			answer(rw, 200, list)
		case r.URL.Path == root:
			answer(rw, 200, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"},
				GroupVersion: gvr.GroupVersion().String(), APIResources: []metav1.APIResource{
					{Name: gvr.Resource, Kind: kind, Namespaced: true, Verbs: everyVerb}}})
		case strings.HasPrefix(r.URL.Path, root+"/namespaces/") && strings.Count(r.URL.Path, "/") == 7:
			_, name := lastTwo(r.URL.Path)
			answer(rw, 404, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
				Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: 404,
				Details: &metav1.StatusDetails{Name: name, Group: gvr.Group, Kind: gvr.Resource}})
		case strings.HasPrefix(r.URL.Path, root+"/"):
			answer(rw, 200, map[string]any{"kind": kind + "List", "apiVersion": gvr.GroupVersion().String(),
				"metadata": map[string]string{"resourceVersion": "1"}, "items": []any{}})
		default:
			w.serve(side, rw, r)
		}
	}
}

// An API server may have the versions of a group from different servers, each with objects of its own: an extension API
// server has one, and whoever may create a definition of that name makes another, which is preferred. An owner is
// looked for in all.
func TestOwnersOfEveryVersionStay(t *testing.T) {
	for _, at := range []schema.GroupVersionResource{
		{Group: "example.test", Version: "v9", Resource: "widgets"},
		{Group: "apps", Version: "v9", Resource: "replicasets"},
	} {
		t.Run(at.String(), func(t *testing.T) {
			w := newWorld(t)
			c, m := w.collector(Options{})
			ref := w.put(modern, at.Resource, "demo", "owner")
			pod := w.put("", "pods", "demo", "one", ref)
			w.see(t.Context(), m)
			w.defineIn(c, modern, at, ref.Kind)
			unsee(m.graph, ref.UID) // the watch of its version has ended
			if err := c.process(t.Context(), pod.UID); err != nil || len(w.deletions) > 0 {
				t.Errorf("process = %v, deleted %q; want the pod to stay, whose owner is there", err, w.deletions)
			}
			w.drop(modern, at.Resource, "demo", "owner")
			if err := c.process(t.Context(), pod.UID); err != nil || fmt.Sprint(w.deletions) != "[pods/demo/one]" {
				t.Errorf("process = %v, deleted %q; want the pod to go, whose owner is gone", err, w.deletions)
			}
		})
	}
}

// What a version builds in is watched in a version that it builds in, whatever another one is that the server prefers.
func TestBuiltInVersionsAreWatched(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	w.defineIn(c, modern, schema.GroupVersionResource{Group: "apps", Version: "v9", Resource: "replicasets"},
		"ReplicaSet")
	for _, r := range m.layout.watchedFor(t, m) {
		if r.side == modern && r.Resource == "replicasets" && r.Version != "v1" {
			t.Errorf("watched in %s, want v1", r.Version)
		}
	}
}

// A kind that a side serves no more, because a definition or an API service was deleted, takes its objects along
// without deleting them: an extension API server keeps them in a store of its own. What they own stays, although the
// other side serves the kind and does not have them, until the side serves it again, and says what has become of them.
func TestOwnersThatVanishWithTheirKindHold(t *testing.T) {
	for name, kinds := range map[string]int{"remembered": 0, "no room to remember": 10_000} {
		t.Run(name, func(t *testing.T) { ownersHold(t, kinds) })
	}
}

func ownersHold(t *testing.T, kinds int) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	rememberKinds(c.guard, kinds)
	for i := range 2 * DefaultBrake.Least {
		name := fmt.Sprintf("o%d", i)
		w.put("", "pods", "demo", name, w.put(modern, "gadgets", "demo", name))
	}
	w.see(t.Context(), m)
	w.drop(modern, "customresourcedefinitions", "", "gadgets.both.test")
	w.refuses(func(side pair.Side, r *http.Request) int {
		return code(side == modern && r.URL.Path == "/apis", withoutBoth)
	})
	forget(m)
	if err := m.monitors.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.guard.stopped(); err != nil {
		t.Errorf("nothing was deleted, and deletions have stopped: %v", err)
	}
	process := func() {
		for _, uid := range m.graph.suspects() {
			if err := c.process(t.Context(), uid); err != nil {
				t.Error(err)
			}
		}
	}
	if process(); len(w.deletions) > 0 {
		t.Fatalf("deleted %q, whose owners are there", w.deletions)
	}
	w.define(modern, "gadgets.both.test")
	w.refuses(func(pair.Side, *http.Request) int { return 0 })
	w.drop(modern, "gadgets", "demo", "o1")
	w.see(t.Context(), m)
	if process(); fmt.Sprint(w.deletions) != "[pods/demo/o1]" {
		t.Errorf("deleted %q, want the pod alone whose owner is gone", w.deletions)
	}
}

// unserved takes the kind of gadgets, or the kind alone, away from the modern side.
func (w *world) unserved() {
	w.drop(modern, "customresourcedefinitions", "", "gadgets.both.test")
	w.refuses(func(side pair.Side, r *http.Request) int {
		return code(side == modern && r.URL.Path == "/apis", withoutBoth)
	})
}

// A process that begins when the kind is not served any more has not seen its objects: one of before has, on this host
// or on the one that led.
func TestKindsThatOwnAreRemembered(t *testing.T) {
	for name, next := range map[string]func(w *world, c *collector, options Options) (*collector, *manager){
		"restarted": func(w *world, _ *collector, options Options) (*collector, *manager) {
			return w.collector(options)
		},
		"another host leads": func(w *world, c *collector, _ Options) (*collector, *manager) {
			held := &lock{client: c.client(modern), identity: "first", guard: c.guard}
			if err := held.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "first"}); err != nil {
				t.Fatal(err)
			}
			c, m := w.collector(Options{StateDirectory: t.TempDir()})
			taken := &lock{client: c.client(modern), identity: "second", guard: c.guard}
			if _, _, err := taken.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
			return c, m
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, options := newWorld(t), Options{StateDirectory: t.TempDir()}
			c, m := w.collector(options)
			owner := w.put(modern, "gadgets", "demo", "one")
			pod := w.put("", "pods", "demo", "one", owner)
			w.see(t.Context(), m)
			m.monitors.learn()

			w.unserved()
			c, m = next(w, c, options)
			w.see(t.Context(), m)
			m.monitors.learn()
			if err := c.process(t.Context(), pod.UID); err != nil || len(w.deletions) > 0 {
				t.Fatalf("process = %v, deleted %q; want the pod to stay, whose owner is there", err, w.deletions)
			}
			c, m = w.collector(options)
			waits := w.put(legacy, "gadgets", "demo", "waits") // what is found, is
			waits.BlockOwnerDeletion = new(true)
			w.put("", "pods", "demo", "waits", waits)
			finalized(w, legacy, "gadgets/demo/waits", metav1.FinalizerDeleteDependents)
			w.see(t.Context(), m)
			collectAll(t, w, c, m)
			if fmt.Sprint(w.deletions) != "[pods/demo/waits]" {
				t.Errorf("deleted %q, want what its owner waits for", w.deletions)
			}

			w.define(modern, "gadgets.both.test")
			w.refuses(func(pair.Side, *http.Request) int { return 0 })
			w.drop(modern, "gadgets", "demo", "one")
			w.see(t.Context(), m)
			m.monitors.learn()
			w.unserved()
			w.see(t.Context(), m)
			if err := c.process(t.Context(), pod.UID); err != nil || len(w.deletions) != 2 {
				t.Errorf("process = %v, deleted %q; want the pod to go: the side has said that its owner is gone", err,
					w.deletions)
			}
		})
	}
}

// rememberKinds has a guard remember other kinds, as long as there is room.
func rememberKinds(g *guard, number int) {
	for i := range number {
		g.rememberKind(resource{side: modern, GroupVersionResource: schema.GroupVersionResource{
			Group: strings.Repeat("a", 200), Resource: "kinds"}, kind: fmt.Sprintf("Kind%d", i)}, true)
	}
}

// The names of kinds are bounded, and a lock that says nothing of them, or nothing that can be read, changes nothing.
func TestKindsThatOwnAreBounded(t *testing.T) {
	c, _ := newWorld(t).collector(Options{})
	rememberKinds(c.guard, 10_000)
	text := c.guard.kinds()
	if len(text) > 100<<10 || !c.guard.owned(modern, []string{strings.Repeat("a", 200)}, "Kind1") {
		t.Errorf("%d bytes are kept, want the first ones, and no more than an annotation takes", len(text))
	}
	for _, other := range []string{"", "{", `"a"`, `["` + strings.Repeat("a", 1<<20) + `"]`} {
		if c.guard.takeOverKinds(other); c.guard.kinds() != text {
			t.Errorf("%.20q on the lock changes what is remembered", other)
		}
	}
	if c.guard.takeOverKinds("[]"); c.guard.kinds() != "[]" {
		t.Errorf("%s is remembered, want what the leader remembers: nothing", c.guard.kinds())
	}
	c.guard.rememberKind(resource{side: modern, GroupVersionResource: schema.GroupVersionResource{
		Group: "apps", Version: "v1", Resource: "replicasets"}, kind: "ReplicaSet"}, true)
	if c.guard.kinds() != "[]" {
		t.Errorf("%s is remembered, which the version builds in", c.guard.kinds())
	}
}

// TestKindsOfManyBytesFitTheLock: an extension API server names its kinds as it likes, and JSON escapes them.
func TestKindsOfManyBytesFitTheLock(t *testing.T) {
	c, _ := newWorld(t).collector(Options{})
	for i := range 100 {
		c.guard.rememberKind(resource{side: modern, GroupVersionResource: schema.GroupVersionResource{
			Group: "ext.test", Resource: "kinds"}, kind: strings.Repeat("<", 5000) + fmt.Sprint(i)}, true)
	}
	if text := c.guard.kinds(); len(text) > limitKindBytes || len(text) < 10_000 {
		t.Errorf("%d bytes are on the lock, want some, and at most %d", len(text), limitKindBytes)
	}
}

// What the preferred version of a resource does not list, another one may: what depends on an owner that is orphaned
// there is released, and a namespace waits until it is empty of it.
func TestObjectsOfEveryVersionAreListed(t *testing.T) {
	at := schema.GroupVersionResource{Group: "example.test", Version: "v9", Resource: "widgets"}
	t.Run("orphaning", func(t *testing.T) {
		w := newWorld(t)
		c, m := w.collector(Options{})
		set := w.put(modern, "replicasets", "demo", "set")
		w.put(modern, "widgets", "demo", "one", set)
		finalized(w, modern, "replicasets/demo/set", metav1.FinalizerOrphanDependents)
		w.defineIn(c, modern, at, "Widget")
		w.see(t.Context(), m)
		if err := c.process(t.Context(), set.UID); err != nil || w.has(modern, "replicasets", "demo", "set") {
			t.Errorf("process = %v, want the owner to go", err)
		}
		if refs := w.own[modern].objects["widgets/demo/one"].Metadata.OwnerReferences; len(refs) > 0 {
			t.Errorf("the widget has the owners %v, want none", refs)
		}
	})
	t.Run("the end of a namespace", func(t *testing.T) {
		w := newWorld(t)
		c, m := w.collector(Options{})
		w.put("", "namespaces", "", "demo")
		w.put(modern, "widgets", "demo", "one")
		w.setNamespace("demo", true, NamespaceFinalizer)
		w.defineIn(c, modern, at, "Widget")
		for range 2 {
			if err := m.namespaces.process(t.Context(), "demo"); err != nil {
				t.Fatal(err)
			}
		}
		if _, there := w.finalizersOf("demo"); there || w.has(modern, "widgets", "demo", "one") {
			t.Errorf("the namespace is there: %t, and the widget in it: %t; want neither", there,
				w.has(modern, "widgets", "demo", "one"))
		}
	})
}

// A version that takes the place of the watched one, and has no objects, says nothing of those that were watched
// before: by this process, or by the one before it.
func TestKindsOfSeveralServersAreNotForgotten(t *testing.T) {
	at := schema.GroupVersionResource{Group: "both.test", Version: "v9", Resource: "gadgets"}
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted %t", restarted), func(t *testing.T) {
			w, options := newWorld(t), Options{StateDirectory: t.TempDir()}
			c, m := w.collector(options)
			pod := w.put("", "pods", "demo", "one", w.put(modern, "gadgets", "demo", "one"))
			w.see(t.Context(), m)
			m.monitors.learn()

			if restarted {
				c, m = w.collector(options)
			}
			served := c.clients[modern].server
			w.defineIn(c, modern, at, "Gadget")
			look := func() {
				t.Helper()
				forget(m)
				if err := m.monitors.sync(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			w.see(t.Context(), m)
			look()
			c.clients[modern].server = served
			w.unserved()
			look()
			if err := c.process(t.Context(), pod.UID); err != nil || len(w.deletions) > 0 {
				t.Errorf("process = %v, deleted %q; want the pod to stay, whose owner is there", err, w.deletions)
			}
		})
	}
}
