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

const shop, blog, ownIngress = "/registry/ingress/default/shop", "/registry/ingress/default/blog",
	"/registry/ingress/default/own"

// route is an Ingress, with the address that its program wrote.
func route(uid, host, address string) string {
	return fmt.Sprintf(`{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"x","uid":%q},`+
		`"spec":{"rules":[{"host":%q}]},"status":{"loadBalancer":{"ingress":[{"ip":%q}]}}}`, uid, host, address)
}

// routes is a world with Ingresses.
func routes() *world {
	w := newWorld()
	clear(w.core.entries)
	clear(w.modern.entries)
	w.core.put(shop, strings.Replace(route("i1", "shop", "1.1.1.1"), "networking.k8s.io/v1", "extensions/v1beta1", 1))
	w.core.put(blog, route("i2", "blog", "1.1.1.1"))
	w.modern.put(ownIngress, route("m1", "own", "2.2.2.2"))
	return w
}

func (w *world) routing(back, copied bool) *handover.Job {
	j := w.job(back)
	j.Aggregated, j.Absent, j.Copy = nil, nil, copied
	r := handover.Resource{Key: "ingress", Kind: "Ingress", Reads: []string{"networking.k8s.io/v1"}, Subject: true,
		StoredAs: "networking.k8s.io/v1", Compared: "networking.k8s.io/v1"}
	if back {
		r.Reads, r.StoredAs = []string{"extensions/v1beta1"}, "extensions/v1beta1"
	}
	j.Resources = []handover.Resource{r}
	j.Convert = func(value []byte, apiVersion string) ([]byte, error) {
		var object map[string]any
		if err := json.Unmarshal(value, &object); err != nil {
			return nil, err
		}
		if spec, _ := object["spec"].(map[string]any); apiVersion == "extensions/v1beta1" && spec["novel"] != nil {
			return nil, errors.New("does not have spec.novel")
		}
		object["apiVersion"] = apiVersion
		return json.Marshal(object)
	}
	return j
}

func (w *world) edit(s *store, key, old, now string) {
	value := string(s.entries[key].Value)
	if !strings.Contains(value, old) {
		panic(key + " has no " + old)
	}
	s.put(key, strings.Replace(value, old, now, 1))
}

// journey copies, and then removes the originals, in one direction.
func (w *world) journey(ctx context.Context, back bool, between func()) error {
	if err := w.routing(back, true).Move(ctx); err != nil {
		return err
	}
	between()
	if err := w.routing(back, false).Move(ctx); err != nil {
		return err
	}
	return w.routing(back, false).Adopted(ctx)
}

// TestProgramsGoOnMeanwhile: copies are there before any original goes, what programs write of the status on either
// side is no reason to stop, and what a client writes on one of the sides is what stays.
func TestProgramsGoOnMeanwhile(t *testing.T) {
	w := routes()
	err := w.journey(t.Context(), false, func() {
		if len(w.core.entries) != 2 || len(w.modern.entries) != 3 {
			t.Errorf("copied, there are %s and %s", keys(w.core), keys(w.modern))
		}
		w.edit(w.core, shop, "1.1.1.1", "1.1.1.9")
		w.edit(w.modern, shop, "1.1.1.1", "2.2.2.2")
		w.edit(w.core, blog, `"blog"`, `"blog-of-a-legacy-client"`)
		w.edit(w.modern, blog, "1.1.1.1", "2.2.2.2")
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(w.core.entries) != 0 || len(w.modern.entries) != 3 {
		t.Errorf("afterwards there are %s and %s", keys(w.core), keys(w.modern))
	}
	has := func(s *store, key string, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if !strings.Contains(string(s.entries[key].Value), text) {
				t.Errorf("%s has no %s: %s", key, text, s.entries[key].Value)
			}
		}
	}
	has(w.modern, shop, "2.2.2.2", `"networking.k8s.io/v1"`, `"i1"`)
	has(w.modern, blog, "blog-of-a-legacy-client", `"i2"`)

	w.modern.put("/registry/ingress/default/since", route("i3", "since", "2.2.2.2"))
	err = w.journey(t.Context(), true, func() {
		w.edit(w.modern, shop, `"shop"`, `"shop-of-a-modern-client"`)
		w.edit(w.core, shop, "2.2.2.2", "1.1.1.1")
		w.edit(w.core, blog, `"blog-of-a-legacy-client"`, `"blog-again"`)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(w.core.entries) != 2 || len(w.modern.entries) != 2 || w.modern.entries[ownIngress].Key == nil {
		t.Errorf("back, there are %s and %s", keys(w.core), keys(w.modern))
	}
	has(w.core, shop, "shop-of-a-modern-client", "extensions/v1beta1", `"i1"`)
	has(w.core, blog, "blog-again")
}

// TestCopiesKilledAtEveryCall: in both directions, and turned round wherever it was killed.
func TestCopiesKilledAtEveryCall(t *testing.T) {
	nothing := func() {}
	points := 0
	for _, from := range []bool{false, true} {
		for killAt := 1; ; killAt++ {
			for _, turn := range []bool{false, true} {
				w := routes()
				if from {
					if err := w.journey(t.Context(), false, nothing); err != nil {
						t.Fatal(err)
					}
				}
				w.ops, w.killAt = 0, killAt
				err := w.journey(t.Context(), from, nothing)
				if err == nil {
					if killAt < 10 || points < 20 {
						t.Fatalf("only %d points", points)
					}
					killAt = 0
					break
				}
				points++
				for _, key := range []string{shop, blog} {
					if w.core.entries[key].Key == nil && w.modern.entries[key].Key == nil {
						t.Fatalf("killed at call %d: %s is in neither store", killAt, key)
					}
				}
				w.ops, w.killAt = 0, 0
				back := from != turn
				if err := w.journey(t.Context(), back, nothing); err != nil {
					t.Fatalf("killed at call %d, back %t, then back %t: %v", killAt, from, back, err)
				}
				here, there := w.core, w.modern
				if back {
					here, there = there, here
				}
				if here.entries[shop].Key != nil || there.entries[shop].Key == nil || there.entries[blog].Key == nil ||
					w.modern.entries[ownIngress].Key == nil {
					t.Fatalf("killed at call %d, then back %t: %s and %s", killAt, back, keys(w.core), keys(w.modern))
				}
			}
			if killAt == 0 {
				break
			}
		}
	}
}

// TestWhatStandsAgainstRoutes: it is named, and neither store is changed.
func TestWhatStandsAgainstRoutes(t *testing.T) {
	for name, test := range map[string]struct {
		back    bool
		copied  bool // when it is copied, and then prepared
		prepare func(w *world)
		says    string
	}{
		"a class that is not there": {prepare: func(w *world) {
			w.edit(w.core, blog, `"rules"`, `"ingressClassName":"nginx","rules"`)
		}, says: blog + ": is of the IngressClass nginx, which is not there"},
		"a backend that is not there": {prepare: func(w *world) {
			w.edit(w.core, blog, `"host"`, `"http":{"paths":[{"backend":{"resource":{"apiGroup":"k8s.example.com",`+
				`"kind":"Bucket","name":"b"}}}]},"host"`)
			w.modern.put("/registry/k8s.example.com/buckets/other/b", "{}")
		}, says: "has the Bucket.k8s.example.com b as a backend"},
		"another one of that name": {prepare: func(w *world) {
			w.modern.put(blog, route("other", "blog", ""))
		}, says: "another object of this name is there already"},
		"written on both sides": {copied: true, prepare: func(w *world) {
			w.edit(w.core, blog, `"blog"`, `"one"`)
			w.edit(w.modern, blog, `"blog"`, `"other"`)
		}, says: blog + ": was written in both stores"},
		"deleted on the side that it leaves": {copied: true, prepare: func(w *world) {
			delete(w.core.entries, blog)
		}, says: blog + ": was deleted since it was copied"},
		"its copy deleted": {copied: true, prepare: func(w *world) {
			delete(w.modern.entries, blog)
		}, says: blog + ": its copy was deleted"},
		"a field that is lost on the way back": {back: true, prepare: func(w *world) {
			w.edit(w.modern, blog, `"rules"`, `"novel":1,"rules"`)
		}, says: "does not have spec.novel"},
	} {
		w := routes()
		if test.back {
			if err := w.journey(t.Context(), false, func() {}); err != nil {
				t.Fatal(err)
			}
		}
		if test.copied {
			if err := w.routing(test.back, true).Move(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		test.prepare(w)
		core, modern := maps.Clone(w.core.entries), maps.Clone(w.modern.entries)
		j := w.routing(test.back, !test.copied)
		for _, do := range []func(context.Context) error{j.Check, j.Move} {
			if err := do(t.Context()); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v, want %q", name, err, test.says)
			}
		}
		same := func(a, b etcd.Entry) bool { return a.ModRevision == b.ModRevision }
		if !maps.EqualFunc(core, w.core.entries, same) || !maps.EqualFunc(modern, w.modern.entries, same) {
			t.Errorf("%s: the stores were changed", name)
		}
	}
}

// TestRoutesThatAreThere: a class and a backend of the other side are enough; what is created afterwards on the side
// that was left is named.
func TestRoutesThatAreThere(t *testing.T) {
	w := routes()
	w.edit(w.core, blog, `"rules"`, `"ingressClassName":"nginx","defaultBackend":{"resource":{"apiGroup":`+
		`"k8s.example.com","kind":"Bucket","name":"b"}},"rules"`)
	w.modern.put("/registry/ingressclasses/nginx", "{}")
	w.modern.put("/registry/k8s.example.com/buckets/default/b", "{}")
	if err := w.journey(t.Context(), false, func() {}); err != nil {
		t.Error(err)
	}
	w.core.put(shop+"2", route("i9", "late", ""))
	if err := w.routing(false, false).Adopted(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "shop2: was created in store core since") {
		t.Errorf("Adopted = %v", err)
	}
}
