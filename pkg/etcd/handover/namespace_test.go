package handover_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
)

// within puts a Deployment, its ReplicaSet and a pod into a namespace.
func (w *world) within(namespace string) {
	in := func(value string) string { return strings.Replace(value, `"default"`, `"`+namespace+`"`, 1) }
	key := func(resource, name string) string { return "/registry/" + resource + "/" + namespace + "/" + name }
	d, r := "d-"+namespace, "r-"+namespace
	w.core.put(key("deployments", "web"), in(settled("apps/v1", "Deployment", "web", d, "")))
	w.core.put(key("replicasets", "web-1"), in(settled("apps/v1", "ReplicaSet", "web-1", r,
		ownedBy(older, "Deployment", d))))
	w.core.put(key("pods", "web-1-a"), in(podOf(older, "p-"+namespace, r)))
}

// inNamespace is the job of one namespace alone, with a record of its own.
func (w *world) inNamespace(namespace string, back bool) *handover.Job {
	j := w.job(back)
	j.Namespace = namespace
	return j
}

// of are the keys of a store within a namespace; without are the entries of all others, as they are.
func of(s *store, namespace string) string {
	return strings.Join(slices.DeleteFunc(slices.Sorted(maps.Keys(s.entries)), func(key string) bool {
		return !strings.Contains(key, "/"+namespace+"/")
	}), " ")
}

func without(s *store, namespace string) string {
	others := maps.Clone(s.entries)
	maps.DeleteFunc(others, func(key string, _ etcd.Entry) bool { return strings.Contains(key, "/"+namespace+"/") })
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(others)) {
		fmt.Fprintf(&text, "%s %d %s\n", key, others[key].ModRevision, others[key].Value)
	}
	return text.String()
}

// TestOneNamespaceGoesAndBackKilledAtEveryCall: whatever lies in other namespaces, and stands against it there, stays
// as it is, byte for byte.
func TestOneNamespaceGoesAndBackKilledAtEveryCall(t *testing.T) {
	const a, webs = "team-a", "/registry/deployments/team-a/web"
	const pods, sets = "/registry/pods/team-a/web-1-a", "/registry/replicasets/team-a/web-1"
	start := func() *world {
		w := newWorld()
		w.within(a)
		w.within("team-b")
		w.within("team-a-b")
		// each of these stops a hand-over of all
		w.core.put("/registry/horizontalpodautoscalers/team-b/web", settled("autoscaling/v1",
			"HorizontalPodAutoscaler", "web", "h1", ""))
		w.core.put("/registry/deployments/team-b/leaving", strings.Replace(settled("apps/v1", "Deployment", "leaving",
			"d9", ""), `"generation"`, `"deletionTimestamp":"2020-01-01T00:00:00Z","generation"`, 1))
		w.modern.put(deployment, settled("apps/v1", "Deployment", "web", "another", ""))
		// this one names what goes as its owner, and is none of its
		w.core.put("/registry/pods/team-b/claims", podOf(older, "p9", "r-"+a))
		return w
	}
	is := func(w *world, core, modern, when string) {
		t.Helper()
		if got := of(w.core, a); got != core {
			t.Fatalf("%s: core holds %q, want %q", when, got, core)
		}
		if got := of(w.modern, a); got != modern {
			t.Fatalf("%s: modern holds %q, want %q", when, got, modern)
		}
		for _, s := range [][2]*store{{w.core, start().core}, {w.modern, start().modern}} {
			if got, want := without(s[0], a), without(s[1], a); got != want {
				t.Fatalf("%s: other namespaces have\n%s\nwant\n%s", when, got, want)
			}
		}
	}
	if err := start().job(false).Check(t.Context()); err == nil {
		t.Fatal("all namespaces could go")
	}
	for name, says := range map[string]string{a: "", "team-c": "there is no namespace team-c"} {
		w := start()
		w.core.put("/registry/namespaces/"+a, `{"apiVersion":"v1","kind":"Namespace"}`)
		j := w.inNamespace(name, false)
		j.NamespacesIn = "core"
		err := j.Check(t.Context())
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("namespace %s: %v, want %q", name, err, says)
		}
	}
	points := 0
	for _, killedBack := range []bool{false, true} {
		for _, then := range []bool{false, true} { // back
			for killAt := 1; ; killAt++ {
				w, when := start(), fmt.Sprintf("back %t, killed at %d, then back %t", killedBack, killAt, then)
				if killedBack {
					if err := w.inNamespace(a, false).Move(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				w.ops, w.killAt = 0, killAt
				err := w.inNamespace(a, killedBack).Move(t.Context())
				if err != nil && !errors.Is(err, errKilled) {
					t.Fatalf("%s: %v", when, err)
				}
				finished := err == nil
				w.killAt = 0
				if err := w.inNamespace(a, then).Move(t.Context()); err != nil {
					t.Fatalf("%s: %v", when, err)
				}
				if then {
					is(w, webs+" "+pods+" "+sets, "", when)
				} else {
					is(w, pods, webs+" "+sets, when)
				}
				if points++; finished {
					break
				}
			}
		}
	}
	if points < 40 {
		t.Errorf("%d points, want more", points)
	}
}

// TestANamespaceThenAll: what one namespace has handed over before is no part of what goes with all the others, and
// does not come back with them.
func TestANamespaceThenAll(t *testing.T) {
	const a = "/registry/deployments/team-a/web /registry/replicasets/team-a/web-1"
	w := newWorld()
	w.within("team-a")
	if err := w.inNamespace("team-a", false).Move(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := w.record
	w.record = nil // that of all is another one
	if err := w.job(false).Move(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := keys(w.modern), "/registry/deployments/default/own /registry/deployments/default/web "+
		"/registry/deployments/team-a/web /registry/replicasets/default/own-1 /registry/replicasets/default/web-1 "+
		"/registry/replicasets/team-a/web-1"; got != want {
		t.Errorf("modern holds %s, want %s", got, want)
	}
	if err := w.job(true).Move(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := of(w.modern, "team-a"); got != a {
		t.Errorf("when all others are back, modern holds %q of the namespace, want %q", got, a)
	}
	w.record = first
	if err := w.inNamespace("team-a", true).Move(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := keys(w.modern); got != own {
		t.Errorf("when all are back, modern holds %s, want its own: %s", got, own)
	}
}
