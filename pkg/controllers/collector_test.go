package controllers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

const (
	legacy = pair.Legacy
	modern = pair.Modern
)

// collectAll looks at every object until nothing changes; objects that are left in doubt are left.
func collectAll(t *testing.T, w *world, c *collector, m *manager) {
	t.Helper()
	for range 20 {
		before := len(w.deletions)
		w.see(t.Context(), m)
		for _, uid := range m.graph.suspects() {
			_ = c.process(t.Context(), uid)
		}
		if len(w.deletions) == before {
			return
		}
	}
	t.Fatal("deletions do not end")
}

func TestOwnersOfEitherSideKeepSharedObjects(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	w.put("", "pods", "demo", "of-legacy", w.put(legacy, "replicasets", "demo", "old"))
	w.put("", "pods", "demo", "of-modern", w.put(modern, "replicasets", "demo", "new"))
	w.put("", "pods", "demo", "of-widget", w.put(modern, "widgets", "demo", "one"))
	beta := w.put(legacy, "replicasets", "demo", "beta")
	beta.APIVersion = "extensions/v1beta1"
	w.put("", "pods", "demo", "of-beta", beta)
	collectAll(t, w, c, m)
	if len(w.deletions) > 0 {
		t.Fatalf("deleted %q, want nothing", w.deletions)
	}
	w.drop(legacy, "replicasets", "demo", "old")
	w.drop(modern, "replicasets", "demo", "new")
	w.drop(modern, "widgets", "demo", "one")
	w.drop(legacy, "replicasets", "demo", "beta")
	collectAll(t, w, c, m)
	slices.Sort(w.deletions)
	if want := []string{"pods/demo/of-beta", "pods/demo/of-legacy", "pods/demo/of-modern",
		"pods/demo/of-widget"}; !slices.Equal(w.deletions, want) || len(w.wrong) > 0 {
		t.Errorf("deleted %q, want %q; %q", w.deletions, want, w.wrong)
	}
}

// An owner that goes over between the looks at both sides is on one of them all the time.
func TestOwnersThatMoveBetweenTwoLooksKeepTheirDependents(t *testing.T) {
	for from, to := range map[pair.Side]pair.Side{legacy: modern, modern: legacy} {
		w := newWorld(t)
		c, m := w.collector(Options{})
		w.put("", "pods", "demo", "one", w.put(from, "replicasets", "demo", "set"))
		const key = "replicasets/demo/set"
		set := w.own[from].objects[key]
		delete(w.own[from].objects, key) // the watches have not told of it
		w.see(t.Context(), m)
		w.own[from].objects[key] = set
		moves := 0
		w.refuse = func(side pair.Side, r *http.Request) int {
			if side == modern && strings.HasSuffix(r.URL.Path, "/replicasets/set") && moves == 0 {
				moves++
				w.own[to].objects[key] = set
				delete(w.own[from].objects, key)
			}
			return 0
		}
		for _, uid := range m.graph.suspects() {
			_ = c.process(t.Context(), uid)
		}
		if len(w.deletions) > 0 || len(w.wrong) > 0 || (moves == 0) != (from == legacy) {
			t.Errorf("from the %s side: moved %d times, deleted %q", from, moves, w.deletions)
		}
	}
}

// An owner that was made again under its name is another owner, on whichever side.
func TestOwnersAreKnownByUID(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	w.put("", "pods", "demo", "one", w.put(modern, "replicasets", "demo", "set"))
	w.put(modern, "replicasets", "demo", "set")
	w.put(legacy, "replicasets", "demo", "set")
	collectAll(t, w, c, m)
	if !slices.Equal(w.deletions, []string{"pods/demo/one"}) {
		t.Errorf("deleted %q, want the pod", w.deletions)
	}
}

// Whatever a server answers instead of properly, nothing is deleted: with it both of the pod's possible places are not
// known to be empty.
func TestDoubtNeverDeletes(t *testing.T) {
	for name, refuse := range map[string]func(pair.Side, *http.Request) int{
		"the legacy side is down": func(side pair.Side, _ *http.Request) int { return code(side == legacy, 503) },
		"the modern side is down": func(side pair.Side, _ *http.Request) int { return code(side == modern, 503) },
		"owners may not be read": func(_ pair.Side, r *http.Request) int {
			return code(strings.Contains(r.URL.Path, "/replicasets/"), 403)
		},
		"a proxy answers 404": func(_ pair.Side, r *http.Request) int {
			return code(strings.Contains(r.URL.Path, "/replicasets/"), 404)
		},
		"a proxy answers 200": func(_ pair.Side, r *http.Request) int {
			return code(strings.Contains(r.URL.Path, "/replicasets/"), 200)
		},
		"a group's discovery fails": func(side pair.Side, r *http.Request) int {
			return code(side == legacy && r.URL.Path == "/apis/apps/v1", 503)
		},
		"the old group's discovery": func(_ pair.Side, r *http.Request) int {
			return code(r.URL.Path == "/apis/extensions/v1beta1", 500)
		},
		"the pod cannot be read": func(_ pair.Side, r *http.Request) int {
			return code(strings.Contains(r.URL.Path, "/pods/"), 500)
		},
		"the version cannot be read": func(side pair.Side, r *http.Request) int {
			return code(side == legacy && r.URL.Path == "/version", 500)
		},
		"kube-system cannot be found": func(side pair.Side, r *http.Request) int {
			return code(side == modern && strings.HasSuffix(r.URL.Path, "/kube-system"), 404)
		},
		"both servers say 401": func(pair.Side, *http.Request) int { return 401 },
		"one side's discovery is short": func(side pair.Side, r *http.Request) int {
			return code(side == modern && r.URL.Path == "/apis", 200)
		},
		"all discovery is short": func(_ pair.Side, r *http.Request) int { return code(r.URL.Path == "/apis", 200) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c, m := w.collector(Options{})
			w.put("", "pods", "demo", "one", w.put(modern, "replicasets", "demo", "set"))
			w.see(t.Context(), m)
			w.drop(modern, "replicasets", "demo", "set")
			w.see(t.Context(), m)
			forget(m)
			w.refuse = refuse
			for _, uid := range m.graph.suspects() {
				if err := c.process(t.Context(), uid); err == nil {
					t.Error("the object is left without a second look")
				}
			}
			if len(w.deletions) > 0 {
				t.Fatalf("deleted %q", w.deletions)
			}
			w.refuse = func(pair.Side, *http.Request) int { return 0 }
			forget(m)
			collectAll(t, w, c, m)
			if !slices.Equal(w.deletions, []string{"pods/demo/one"}) {
				t.Errorf("afterwards deleted %q, want the pod", w.deletions)
			}
		})
	}
}

func code(refuse bool, code int) int {
	if refuse {
		return code
	}
	return 0
}

// forget makes the catalogs old.
func forget(m *manager) {
	for _, c := range m.catalogs {
		c.mutex.Lock()
		c.last = nil
		c.mutex.Unlock()
	}
}

// Nothing is known of a kind that no side serves, so its dependents stay.
// A custom kind that both sides serve, and one that for the moment does not say so: the other's word is not enough.
func TestCustomKindsOfBothSidesWaitForBothSides(t *testing.T) {
	for name, test := range map[string]struct {
		refuse func(pair.Side, *http.Request) int
		settle time.Duration
	}{
		"the groups may not be read": {refuse: func(side pair.Side, r *http.Request) int {
			return code(side == modern && r.URL.Path == "/apis", 403)
		}},
		"the groups are not found": {refuse: func(side pair.Side, r *http.Request) int {
			return code(side == modern && r.URL.Path == "/apis", 404)
		}},
		"the core is not found": {refuse: func(side pair.Side, r *http.Request) int {
			return code(side == modern && r.URL.Path == "/api", 404)
		}},
		"the group may not be read": {refuse: func(side pair.Side, r *http.Request) int {
			return code(side == modern && r.URL.Path == "/apis/both.test/v1", 403)
		}},
		"its definition is news": {settle: time.Hour, refuse: func(side pair.Side, r *http.Request) int {
			return code(side == modern && r.URL.Path == "/apis", withoutBoth)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c, m := w.collector(Options{})
			c.settle = test.settle
			w.put("", "pods", "demo", "one", w.put(modern, "gadgets", "demo", "gadget"))
			w.see(t.Context(), m)
			forget(m)
			unsee(m.graph, "uid-2") // no watch has seen the owner
			w.refuse = test.refuse
			for _, uid := range m.graph.suspects() {
				_ = c.process(t.Context(), uid)
			}
			if len(w.deletions) > 0 {
				t.Errorf("deleted %q although its owner exists", w.deletions)
			}
		})
	}
}

func TestOwnersOfUnservedKindsKeepTheirDependents(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	w.put("", "pods", "demo", "one", metav1.OwnerReference{APIVersion: "gone.example/v1", Kind: "Gadget", Name: "g",
		UID: "gadget"})
	w.put("", "pods", "demo", "two", metav1.OwnerReference{APIVersion: "a/b/c", Kind: "Gadget", Name: "g",
		UID: "gadget"})
	collectAll(t, w, c, m)
	if len(w.deletions) > 0 {
		t.Errorf("deleted %q", w.deletions)
	}
}

// A UID counts, wherever its object is seen: a reference that misnames its owner does not cost the dependent.
func TestMisnamedOwnersKeepTheirDependents(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	ref := w.put(legacy, "replicasets", "elsewhere", "set")
	ref.Name = "other"
	w.put("", "pods", "demo", "one", ref)
	collectAll(t, w, c, m)
	if len(w.deletions) > 0 {
		t.Errorf("deleted %q", w.deletions)
	}
}

// A kubeconfig that leads to another server makes every owner of the side look absent.
func TestWrongServersAreNotBelieved(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	w.put("", "pods", "demo", "one", w.put(modern, "replicasets", "demo", "set"))
	w.see(t.Context(), m)
	m.clients[modern] = m.clients[legacy] // both kubeconfigs lead to the legacy server
	forget(m)
	unsee(m.graph, "uid-2")
	if err := c.process(t.Context(), "uid-3"); !errors.Is(err, discovery.ErrWrongServer) {
		t.Errorf("process = %v, want %v", err, discovery.ErrWrongServer)
	}
	if len(w.deletions) > 0 {
		t.Errorf("deleted %q", w.deletions)
	}
}

// Two API servers of the right versions that are of two clusters: each owner is absent from one of them.
func TestServersOfTwoClustersAreNotBelieved(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	pod := w.put("", "pods", "demo", "one", metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet",
		Name: "elsewhere", UID: "elsewhere"})
	w.see(t.Context(), m)
	forget(m)
	w.refuse = func(side pair.Side, _ *http.Request) int {
		w.shared.objects["namespaces//"+metav1.NamespaceSystem].Metadata.UID = types.UID("of-" + side)
		return 0
	}
	if err := c.process(t.Context(), pod.UID); !errors.Is(err, discovery.ErrWrongServer) || len(w.deletions) > 0 {
		t.Errorf("process = %v, deleted %q; want the server refused", err, w.deletions)
	}
}

func TestDryRunOnlySays(t *testing.T) {
	w := newWorld(t)
	var trail bytes.Buffer
	c, m := w.collector(Options{DryRun: true, Audit: slog.New(slog.NewTextHandler(&trail, nil))})
	w.put("", "pods", "demo", "one", w.put(modern, "replicasets", "demo", "set"))
	w.drop(modern, "replicasets", "demo", "set")
	collectAll(t, w, c, m)
	if len(w.deletions) > 0 || !strings.Contains(trail.String(), "name=one") ||
		!strings.Contains(trail.String(), "dry run") || !strings.Contains(trail.String(), "uid-2") {
		t.Errorf("deleted %q with the trail\n%s", w.deletions, &trail)
	}
}

func finalized(w *world, side pair.Side, key string, finalizers ...string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	o := w.own[side].objects[key]
	now := metav1.Now()
	o.Metadata.DeletionTimestamp, o.Metadata.Finalizers = &now, finalizers
}

func TestForegroundWaitsForBlockingDependents(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	blocking := true
	set := w.put(modern, "replicasets", "demo", "set")
	set.BlockOwnerDeletion = &blocking
	w.put("", "pods", "demo", "one", set)
	finalized(w, modern, "replicasets/demo/set", metav1.FinalizerDeleteDependents)
	w.see(t.Context(), m)
	if err := c.process(t.Context(), set.UID); err != nil || !w.has(modern, "replicasets", "demo", "set") {
		t.Fatalf("the owner goes before its dependent (%v)", err)
	}
	if err := c.process(t.Context(), "uid-3"); err != nil || w.has("", "pods", "demo", "one") {
		t.Fatalf("the dependent of an owner that waits for it stays (%v)", err)
	}
	w.see(t.Context(), m)
	for _, monitor := range m.monitors.running {
		if monitor.resource.Resource == "configmaps" {
			monitor.synced.Store(false) // any of them could be a dependent
		}
	}
	if err := c.process(t.Context(), set.UID); err == nil || !w.has(modern, "replicasets", "demo", "set") {
		t.Fatalf("the owner goes while nobody knows all of its dependents (%v)", err)
	}
	w.see(t.Context(), m)
	if err := c.process(t.Context(), set.UID); err != nil || w.has(modern, "replicasets", "demo", "set") {
		t.Errorf("the owner stays after its dependent (%v)", err)
	}
}

// A side of which discovery fails may have dependents that the graph does not have.
func TestForegroundWaitsForBothSides(t *testing.T) {
	for _, side := range pair.Sides() {
		w := newWorld(t)
		c, m := w.collector(Options{})
		set := w.put(modern, "replicasets", "demo", "set")
		finalized(w, modern, "replicasets/demo/set", metav1.FinalizerDeleteDependents)
		w.see(t.Context(), m)
		forget(m)
		w.refuse = func(at pair.Side, r *http.Request) int { return code(at == side && r.URL.Path == "/apis", 500) }
		if err := c.process(t.Context(), set.UID); err == nil || !w.has(modern, "replicasets", "demo", "set") {
			t.Errorf("the owner goes while the %s side does not say what it serves (%v)", side, err)
		}
		w.refuse = func(pair.Side, *http.Request) int { return 0 }
		if err := c.process(t.Context(), set.UID); err != nil || w.has(modern, "replicasets", "demo", "set") {
			t.Errorf("the owner stays (%v)", err)
		}
	}
}

// An object of another namespace that refers to the owner does not keep it: a client may keep that one for ever.
func TestForegroundWaitsForNoOtherNamespace(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	blocking := true
	set := w.put(modern, "replicasets", "demo", "set")
	set.BlockOwnerDeletion = &blocking
	w.put("", "pods", "elsewhere", "forged", set)
	finalized(w, modern, "replicasets/demo/set", metav1.FinalizerDeleteDependents)
	w.see(t.Context(), m)
	if err := c.process(t.Context(), set.UID); err != nil || w.has(modern, "replicasets", "demo", "set") {
		t.Errorf("an object of another namespace keeps the owner (%v)", err)
	}
}

// The dependents that are released are those that the servers list, not those that the graph happens to know.
func TestOrphaningReleasesDependentsThatNoWatchHasSeen(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	set := w.put(modern, "replicasets", "demo", "set")
	finalized(w, modern, "replicasets/demo/set", metav1.FinalizerOrphanDependents)
	w.see(t.Context(), m)
	w.put("", "pods", "demo", "late", set)
	w.refuse = func(side pair.Side, r *http.Request) int {
		return code(side == legacy && strings.HasSuffix(r.URL.Path, "/replicasets"), 500)
	}
	if err := c.process(t.Context(), set.UID); err == nil || !w.has(modern, "replicasets", "demo", "set") {
		t.Fatalf("the owner goes although a list failed (%v)", err)
	}
	w.refuse = func(pair.Side, *http.Request) int { return 0 }
	if err := c.process(t.Context(), set.UID); err != nil || w.has(modern, "replicasets", "demo", "set") {
		t.Fatalf("the owner stays (%v)", err)
	}
	if owners := w.shared.objects["pods/demo/late"].Metadata.OwnerReferences; len(owners) > 0 {
		t.Errorf("the dependent still names %+v", owners)
	}
	collectAll(t, w, c, m)
	if len(w.deletions) > 0 {
		t.Errorf("deleted %q", w.deletions)
	}
}

func TestGoneOwnersAreTrimmedWhereOthersRemain(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	stays, goes := w.put(legacy, "replicasets", "demo", "stays"), w.put(modern, "replicasets", "demo", "goes")
	w.put("", "pods", "demo", "one", stays, goes)
	w.drop(modern, "replicasets", "demo", "goes")
	collectAll(t, w, c, m)
	if owners := w.shared.objects["pods/demo/one"].Metadata.OwnerReferences; len(owners) != 1 ||
		owners[0].UID != stays.UID {
		t.Errorf("owners %+v, want %q alone", owners, stays.Name)
	}
}

// Owners and dependents come and go on both sides, servers fail, watches lag; nothing is deleted that has an owner
// somewhere, and in the end everything is that has none.
func TestNothingIsDeletedWhileAnOwnerExists(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t)
			c, m := w.collector(Options{Brake: witness.Limit{Share: 100, Least: 1000, Within: time.Minute}})
			random := rand.New(rand.NewPCG(seed, 1))
			places := []struct {
				side     pair.Side
				resource string
			}{{legacy, "replicasets"}, {modern, "replicasets"}, {modern, "widgets"}, {"", "pods"}}
			var refs []metav1.OwnerReference
			for step := range 120 {
				at := places[random.IntN(len(places))]
				name := fmt.Sprintf("o%d", random.IntN(12))
				switch random.IntN(6) {
				case 0, 1:
					var owners []metav1.OwnerReference
					for range min(random.IntN(3), len(refs)) {
						owners = append(owners, refs[random.IntN(len(refs))])
					}
					if !w.has(at.side, at.resource, "demo", name) {
						refs = append(refs, w.put(at.side, at.resource, "demo", name, owners...))
					}
				case 2:
					w.drop(at.side, at.resource, "demo", name)
				case 3:
					failing, chance := places[random.IntN(3)].side, 2+random.IntN(3)
					w.refuses(func(side pair.Side, r *http.Request) int {
						return code(side == failing && random.IntN(chance) == 0, []int{404, 500, 403, 200}[step%4])
					})
					for _, uid := range m.graph.suspects() {
						_ = c.process(t.Context(), uid)
					}
					w.refuses(func(pair.Side, *http.Request) int { return 0 })
				case 4:
					w.see(t.Context(), m)
				case 5:
					for _, ref := range refs { // a watch that lags, or hears of a deletion too much
						if random.IntN(8) == 0 {
							unsee(m.graph, ref.UID)
						}
					}
					for _, uid := range m.graph.suspects() {
						_ = c.process(t.Context(), uid)
					}
				}
			}
			collectAll(t, w, c, m)
			if len(w.wrong) > 0 {
				t.Fatalf("%q", w.wrong)
			}
			for _, s := range []store{w.shared, w.own[legacy], w.own[modern]} {
				for key, o := range s.objects {
					owned := len(o.Metadata.OwnerReferences) == 0
					for _, ref := range o.Metadata.OwnerReferences {
						owned = owned || w.exists(string(ref.UID))
					}
					if !owned {
						t.Errorf("%s is left, and none of its owners is", key)
					}
				}
			}
		})
	}
}

// clientOf asks a server that answers so.
func clientOf(t *testing.T, handler http.HandlerFunc) *client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := newClient(modern, &rest.Config{Host: server.URL}, -1)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// podCollection is all pods.
var podCollection = collection{
	resource{side: modern, GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		kind: "Pod", namespaced: true},
	"", decodeObject,
}

// A list that breaks off is not a short list, for whom it decides and for whom a watch follows.
func TestBrokenListsAreErrors(t *testing.T) {
	whole := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a","uid":"1"}},
{"metadata":{"name":"b","uid":"2"},"spec":{"Metadata":{"name":"x"}},"Metadata":{"uid":"3"}}]}`
	text := whole
	c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) })
	list, _, err := c.list(t.Context(), podCollection, metav1.ListOptions{}, 0)
	if err != nil || len(list.Items) != 2 || list.Items[1].UID != "2" || list.ResourceVersion != "7" {
		t.Fatalf("list = %+v, %v", list, err)
	}
	for end := 0; end < len(whole); end += 9 {
		text = whole[:end]
		if _, err := c.listAll(t.Context(), podCollection.resource, ""); err == nil {
			t.Errorf("listAll reads %q without an error", text)
		}
	}
	const head = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":`
	for _, text = range []string{`[]`, head + `{}}`, head + `[{}]}`, `{"items":[]}`,
		head + `[{"metadata":{"name":"a"}}]}`,
		head + `[{"metadata":{"name":"../../secrets/b","uid":"1"}}]}`, head + `[]}{}`} {
		if _, _, err := c.list(t.Context(), podCollection, metav1.ListOptions{}, 0); err == nil {
			t.Errorf("list reads %s without an error", text)
		}
		if _, err := c.listAll(t.Context(), podCollection.resource, ""); err == nil {
			t.Errorf("listAll reads %s without an error", text)
		}
	}
	text = head + `[{"metadata":{"name":"a","namespace":"prod","uid":"1"}}]}`
	if _, err := c.listAll(t.Context(), podCollection.resource, "demo"); err == nil {
		t.Error("listAll reads an object of another namespace than was asked for")
	}
}

// An extension API server may send lists and events that do not end, all of different objects.
func TestWhatIsHeldOfAServerIsBounded(t *testing.T) {
	pages := 0
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		pages++
		fmt.Fprintf(
			w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"%d"},"items":[`,
			pages)
		for i := range 500 {
			fmt.Fprintf(
				w, `%s{"metadata":{"name":"p-%06d-%03d","namespace":"a","uid":"%d-%d","finalizers":["%0200d"]}}`,
				strings.Repeat(",", min(i, 1)), pages, i, pages, i, i)
		}
		fmt.Fprint(w, "]}")
	})
	c.limitHeld = 1 << 20
	const says = "more than 1 MiB of metadata"
	if _, err := c.listAll(t.Context(), podCollection.resource, ""); err == nil ||
		!strings.Contains(err.Error(), says) {
		t.Errorf("listAll = %v, want %q", err, says)
	}
	pages = 0
	failed := make(chan error, 1)
	source := c.source(podCollection)
	go func() {
		var err error
		for next := "go"; next != "" && err == nil; {
			var list runtime.Object
			if list, err = source.ListWithContext(t.Context(), metav1.ListOptions{Limit: 500,
				Continue: strings.TrimPrefix(next, "go")}); err == nil {
				next = list.(*metav1.PartialObjectMetadataList).Continue
			}
		}
		failed <- err
	}()
	select {
	case err := <-failed:
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the pages of a watch: %v, want %q", err, says)
		}
	case <-time.After(time.Minute):
		t.Errorf("%d pages are read, and no end", pages)
	}

	g := newGraph(time.Now, func(types.UID) {})
	g.limit = 100
	other := podCollection.resource
	other.Resource = "others"
	for i := range 300 {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: types.UID(fmt.Sprint(i))}}
		g.observe(&podCollection.resource, o)
	}
	if g.size() != 100 || len(g.incomplete()) != 1 {
		t.Errorf("%d objects of one resource are kept, want 100; incomplete are %q, want it", g.size(), g.incomplete())
	}
	g.remove(&podCollection.resource, "7")
	g.observe(&podCollection.resource, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "later"}})
	g.observe(&other, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "another"}})
	if g.size() != 101 || g.node("later") == nil || g.node("another") == nil {
		t.Errorf("%d objects are kept, want 101 with those that came when there was room", g.size())
	}
}

// hundredThousand is a list of pods as a server of 1.6 sends it, whole objects, written as it is read. It calls look
// at every hundredth.
func hundredThousand(n int, look func()) io.Reader {
	reader, writer := io.Pipe()
	go func() {
		filler := strings.Repeat("x", 1000)
		fmt.Fprint(writer, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[`)
		for i := range n {
			if i > 0 {
				fmt.Fprint(writer, ",")
			}
			if i%100 == 0 {
				look()
			}
			fmt.Fprintf(writer,
				`{"metadata":{"name":"some-deployment-7d4c5f9d7b-%06d","namespace":"namespace-%d","uid":"6f9619ff-8b86-d011-b42d-%012d","resourceVersion":"%d",`+
					`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"some-deployment-7d4c5f9d7b","uid":"7f9619ff-8b86-d011-b42d-%012d","controller":true,"blockOwnerDeletion":true}]},"spec":{"filler":"%s"}}`,
				i, i%100, i, i, i/10, filler)
		}
		fmt.Fprint(writer, "]}")
		writer.Close()
	}()
	return reader
}

// The bound that is promised: the metadata of a hundred thousand pods, read from a list of whole objects, and the graph
// of them.
func TestHundredThousandPodsFitInto300MiB(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 150 MB of JSON")
	}
	peak := peakMemory(t, func(look func()) any {
		g := newGraph(time.Now, func(types.UID) {})
		c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, hundredThousand(100_000, look))
		})
		list, _, err := c.list(t.Context(), podCollection, metav1.ListOptions{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		r := resource{side: modern}
		g.replace(&r, func(yield func(*metav1.PartialObjectMetadata) bool) {
			for i := range list.Items {
				if i%100 == 0 {
					look()
				}
				if !yield(&list.Items[i]) {
					return
				}
			}
		})
		if g.size() != 100_000 {
			t.Fatalf("%d objects", g.size())
		}
		return g
	})
	if limit := uint64(300 << 20); peak > limit {
		t.Errorf("%d MiB at the peak, want at most 300", peak>>20)
	}
}

// Objects whose turn comes later go on from where their backoff was: that of one which nothing can be decided about is
// not begun anew between two tries.
func TestWaitingKeepsTheBackoff(t *testing.T) {
	queue := workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Nanosecond, time.Nanosecond))
	queue.Add("a")
	var failures []int
	work(t.Context(), queue, func(_ context.Context, key string) error {
		failures = append(failures, queue.NumRequeues(key))
		switch len(failures) {
		case 1, 2:
			return apierrors.NewTimeoutError("doubt", 0)
		case 3:
			queue.Add(key) // as the end of the one before it does
			return errWaits
		}
		queue.ShutDown()
		return nil
	}, slog.New(slog.DiscardHandler))
	if want := []int{0, 1, 2, 2}; !slices.Equal(failures, want) || queue.NumRequeues("a") != 0 {
		t.Errorf("failures %v, want %v; %d at the end, want 0", failures, want, queue.NumRequeues("a"))
	}
}
