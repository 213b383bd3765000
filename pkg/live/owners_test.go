package live

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/gc"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

func owned(name, apiVersion, kind, owner, uid string) string {
	return fmt.Sprintf(`{metadata: {name: %s, namespace: shop, uid: uid-%s, ownerReferences: [{apiVersion: %s, kind: %s, name: %s, uid: %s, controller: true}]}}`, name, name, apiVersion, kind, owner, uid)
}

func TestOwnersOfTheOtherSide(t *testing.T) {
	p := newPair(t, "1.10.13", "")
	p.modern.put("/apis/apps/v1/replicasets", `{metadata: {name: web, namespace: shop, uid: r2}}`)
	p.shared("/api/v1/pods", owned("web-1", "apps/v1", "ReplicaSet", "web", "r2"))
	p.wants("FUS060 info", "pods: 1 of them is owned by a ReplicaSet of apps/v1",
		"the legacy side (1.10) serves that kind", "which is off", "Pod shop/web-1 (owner web)")

	// With a collector that runs, it is no remark.
	p = newPair(t, "1.10.13", `extraArgs: [{name: controllers, value: "*"}]`)
	p.legacy.put("/apis/apps/v1/replicasets", `{metadata: {name: web, namespace: shop, uid: r1}}`)
	p.shared("/api/v1/pods", owned("web-1", "apps/v1", "ReplicaSet", "web", "r1"))
	p.wants("FUS060 error", "the modern side (1.36) serves that kind", "its garbage collector deletes them")
	fix := gc.TurnOff("modern", "garbage-collector-controller")
	if found := p.check().Findings; !slices.ContainsFunc(found, func(f finding.Finding) bool { return f.Fix == fix }) {
		t.Errorf("no finding has the fix %q: %+v", fix, found)
	}

	// A version that a new collector does not have is none of its business.
	p = newPair(t, "1.10.13", `extraArgs: [{name: controllers, value: "*"}]`)
	p.legacy.put("/apis/extensions/v1beta1/replicasets", `{metadata: {name: web, namespace: shop, uid: r1}}`)
	p.shared("/api/v1/pods", owned("web-1", "extensions/v1beta1", "ReplicaSet", "web", "r1"))
	p.wants()

	// An old one takes it for absence.
	p = newPair(t, "1.6.13", "")
	p.modern.put("/apis/apps/v1/statefulsets", `{metadata: {name: db, namespace: shop, uid: r2}}`)
	p.shared("/api/v1/pods", owned("db-0", "apps/v1", "StatefulSet", "db", "r2"))
	p.wants("FUS061 info", "the legacy side (1.6) knows that kind but not in this version")
	p = newPair(t, "1.6.13", "")
	p.modern.put("/apis/apps/v1/replicasets", `{metadata: {name: web, namespace: shop, uid: r2}}`)
	p.shared("/api/v1/pods", owned("web-1", "apps/v1", "ReplicaSet", "web", "r2"))
	p.wants()
	p = newPair(t, "1.6.13", "")
	p.shared("/api/v1/nodes", `{metadata: {name: cp-1, uid: n1}}`)
	p.shared("/api/v1/pods", owned("mirror", "v1", "Node", "cp-1", "n1"))
	p.wants("FUS062 info", "looks up the cluster-scoped owner in the namespace")

	// It looks for an owner that is in a namespace, and has no namespace to look in.
	p = newPair(t, "1.6.13", "")
	p.shared("/api/v1/configmaps", `{metadata: {name: settings, namespace: shop, uid: c1}}`)
	p.shared("/api/v1/nodes",
		`{metadata: {name: cp-1, uid: n1, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: settings, uid: c1}]}}`)
	p.wants("FUS061 info", "looks up a namespaced owner, and the object is in no namespace")
}

func TestOwnersThatAreGone(t *testing.T) {
	gone := func(legacy, manager string) *fakePair {
		p := newPair(t, legacy, manager)
		p.shared("/api/v1/configmaps", owned("settings", "apps/v1", "StatefulSet", "db", "u9"))
		return p
	}
	gone("1.10.13", "").wants("FUS135 warning", "configmaps: 1 of them is owned by a StatefulSet of apps/v1 that "+
		"neither side has")
	gone("1.10.13", `extraArgs: [{name: controllers, value: "*"}]`).wants() // that collector does its work

	// Another object of the name is not the owner.
	p := gone("1.10.13", "")
	p.modern.put("/apis/apps/v1/statefulsets", `{metadata: {name: db, namespace: shop, uid: u8}}`)
	p.wants("FUS135 warning")
	// One that holds it is enough.
	p = newPair(t, "1.10.13", "")
	p.modern.put("/apis/apps/v1/statefulsets", `{metadata: {name: db, namespace: shop, uid: u1}}`)
	p.modern.put("/apis/apps/v1/statefulsets",
		`{metadata: {name: leftover, namespace: shop, uid: uid-leftover, ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: gone, uid: u9}, {apiVersion: apps/v1, kind: StatefulSet, name: db, uid: u1}]}}`)
	p.wants()
	p.modern.put("/apis/apps/v1/statefulsets",
		`{metadata: {name: orphan, namespace: shop, uid: uid-orphan, ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: gone, uid: u9}, {apiVersion: apps/v1, kind: StatefulSet, name: gone2, uid: u8}]}}`)
	p.wants("FUS135 warning", "StatefulSet shop/orphan")
	// What is being deleted needs no collector.
	p = newPair(t, "1.10.13", "")
	p.shared("/api/v1/configmaps", strings.Replace(owned("settings", "apps/v1", "StatefulSet", "db", "u9"),
		"namespace:", "deletionTimestamp: 2026-01-01T00:00:00Z, namespace:", 1))
	p.wants()
	// A kind that nobody serves: nothing can be said.
	p = newPair(t, "1.10.13", "")
	p.shared("/api/v1/configmaps", owned("settings", "other.test/v1", "Thing", "db", "u9"))
	p.wants()
}

func TestOwnersAreReadAgain(t *testing.T) {
	p := newPair(t, "1.10.13", "")
	p.shared("/api/v1/configmaps", owned("settings", "apps/v1", "StatefulSet", "db", "u9"))
	p.modern.before = func(url string) {
		if strings.HasSuffix(url, "/statefulsets/db") && len(p.modern.objects["/apis/apps/v1/statefulsets"]) == 0 {
			// made after the list
			p.modern.put("/apis/apps/v1/statefulsets", `{metadata: {name: db, namespace: shop, uid: u9}}`)
		}
	}
	p.wants()
	p = newPair(t, "1.10.13", "")
	p.shared("/api/v1/configmaps", owned("settings", "apps/v1", "StatefulSet", "db", "u9"))
	p.modern.before = func(url string) {
		if strings.HasSuffix(url, "/configmaps/settings") {
			p.modern.objects["/api/v1/configmaps"] = nil // gone after the list
		}
	}
	p.wants()
	p = newPair(t, "1.10.13", "")
	p.shared("/api/v1/configmaps", owned("settings", "apps/v1", "StatefulSet", "db", "u9"))
	p.modern.fails["/apis/apps/v1/namespaces/shop/statefulsets/db"] = errors.New("timeout")
	p.wants("incomplete", "reading configmaps shop/settings again", "timeout")
}

// The name of an owner is its author's to choose: it is no way to another path.
func TestOwnersOfImpossibleNamesAreNotAskedFor(t *testing.T) {
	p := newPair(t, "1.10.13", "")
	p.modern.before = func(url string) {
		if strings.Contains(url, "proxy") {
			t.Errorf("the modern side is asked for %s", url)
		}
	}
	const name = "../../kube-system/pods/http:victim:8080/proxy/x"
	p.shared("/api/v1/configmaps", owned("settings", "apps/v1", "StatefulSet", name, "u9"))
	p.wants("incomplete", "reading configmaps shop/settings again", "cannot be part of a path")
}

// A list that breaks off says nothing about what it did not name.
func TestOwnersBeyondABrokenListAreNotMissed(t *testing.T) {
	p := newPair(t, "1.10.13", "")
	p.shared("/api/v1/configmaps", owned("settings", "apps/v1", "StatefulSet", "db", "u9"))
	p.modern.fails["/apis/apps/v1/statefulsets"] = errors.New("unexpected EOF")
	if text := lines(p.check()); strings.Contains(text, "FUS") ||
		!strings.Contains(text, "incomplete: listing statefulsets.apps on the modern side") {
		t.Errorf("want the broken list alone:\n%s", text)
	}
}

// What is held does not grow with objects whose owners are there.
func TestOwnersThatArePresentAreNotKept(t *testing.T) {
	sets := &collection{Resource: discovery.Resource{GroupVersion: schema.GroupVersion{Group: "apps", Version: "v1"},
		Name: "statefulsets", Kind: "StatefulSet", Namespaced: true}, name: "statefulsets",
		seen: []pair.Side{pair.Modern}}
	w := newOwners(func(pair.Side, *reference) bool { return true })
	var set, revision object
	set.Metadata.UID = "s1"
	w.meet(sets, &set)
	revision.Metadata.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "s1"}}
	for i := range 1000 {
		revision.Metadata.UID = fmt.Sprint("r", i)
		w.meet(sets, &revision)
	}
	if len(w.waiting)+len(w.several) > 0 {
		t.Errorf("%d references are kept of owners that are there", len(w.waiting)+len(w.several))
	}
}

// lists is a fake whose pods are made while they are listed.
type lists struct {
	*fake
	pods func(yield func([]byte, error) bool)
}

func (l lists) List(ctx context.Context, at discovery.Path, o discovery.ListOptions) iter.Seq2[[]byte, error] {
	if at.String() == "/api/v1/pods" {
		return l.pods
	}
	return l.fake.List(ctx, at, o)
}

// 10000 pods of 4 KiB, with 100 owners on the other side, are 40 MiB in one piece.
func TestPodsPassOneAtATime(t *testing.T) {
	const count, perOwner, limitBytes = 10_000, 100, 10 << 20
	p := newPair(t, "1.10.13", "")
	for i := range count / perOwner {
		p.legacy.put("/apis/apps/v1/replicasets",
			fmt.Sprintf(`{metadata: {name: set-%d, namespace: shop, uid: set-%d}, spec: {selector: {matchLabels: {set: "%d"}}, template: {metadata: {labels: {set: "%d"}}}}}`, i, i, i, i))
	}
	ballast := strings.Repeat("x", 4096)
	var before, most runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	server := lists{p.modern, func(yield func([]byte, error) bool) {
		for i := range count {
			owner := i / perOwner
			if !yield(fmt.Appendf(nil,
				`{"metadata":{"name":"pod-%d","namespace":"shop","uid":"pod-%d","labels":{"set":"%d"},"annotations":{"x":%q},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"set-%d","uid":"set-%d","controller":true}]}}`,
				i, i, owner, ballast, owner, owner), nil) {
				return
			}
			if i%2_000 == 1_999 {
				var now runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&now)
				most.HeapAlloc = max(most.HeapAlloc, now.HeapAlloc)
			}
		}
	}}
	report, err := Check(t.Context(), p.plan, map[pair.Side]Server{pair.Legacy: p.legacy, pair.Modern: server},
		p.options)
	if err != nil || report.Objects < count {
		t.Fatalf("Check looked at %d objects, %v", report.Objects, err)
	}
	if most.HeapAlloc > before.HeapAlloc+limitBytes {
		t.Errorf("while %d pods were read the heap grew by %d MiB, want at most %d", count,
			(most.HeapAlloc-before.HeapAlloc)>>20, limitBytes>>20)
	} else {
		t.Logf("the heap grew by %d KiB", (most.HeapAlloc-before.HeapAlloc)>>10)
	}
}
