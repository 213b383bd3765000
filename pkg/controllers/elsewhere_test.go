package controllers

import (
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// watchOf is the watch of a side's resource.
func watchOf(t *testing.T, m *manager, side pair.Side, resource string) *monitor {
	t.Helper()
	for r, monitor := range m.monitors.running {
		if r.Resource == resource && (side == "" || r.side == side) {
			return monitor
		}
	}
	t.Fatalf("%s is not watched", resource)
	return nil
}

// TestOrphaningReleasesDependentsOfOtherNamespaces: they would be deleted after their owner.
func TestOrphaningReleasesDependentsOfOtherNamespaces(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	set := w.put(modern, "replicasets", "demo", "set")
	w.put("", "pods", "demo", "here", set)
	w.put("", "pods", "other", "there", set)
	finalized(w, modern, "replicasets/demo/set", metav1.FinalizerOrphanDependents)
	w.see(t.Context(), m)
	if err := c.process(t.Context(), set.UID); err != nil || w.has(modern, "replicasets", "demo", "set") {
		t.Fatalf("the owner stays (%v)", err)
	}
	for _, key := range []string{"pods/demo/here", "pods/other/there"} {
		if owners := w.shared.objects[key].Metadata.OwnerReferences; len(owners) > 0 {
			t.Errorf("%s still names %+v", key, owners)
		}
	}
	if collectAll(t, w, c, m); len(w.deletions) > 0 {
		t.Errorf("deleted %q", w.deletions)
	}
}

// TestOwnersThatNoWatchHasBrought: a reference across namespaces, or one with a wrong name, says where the owner is
// not. Its watch says where it is, and that may lag behind the dependent's, or not have begun.
func TestOwnersThatNoWatchHasBrought(t *testing.T) {
	for name, misnamed := range map[string]bool{"in another namespace": false, "by another name": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c, m := w.collector(Options{})
			now := time.Now()
			clock := func() time.Time { return now }
			c.cluster.now, m.graph.now, c.absent.now = clock, clock, clock
			c.settle = settleTime
			w.see(t.Context(), m)
			set := w.put(modern, "replicasets", "demo", "set")
			ref, namespace := set, "other"
			if misnamed {
				ref.Name, namespace = "another", "demo"
			}
			pod := w.put("", "pods", namespace, "there", ref)
			key := "pods/" + namespace + "/there"
			pods, sets := watchOf(t, m, "", "pods"), watchOf(t, m, modern, "replicasets")
			bring := func(to *monitor, o metav1.ObjectMeta) {
				_ = to.Add(&metav1.PartialObjectMetadata{ObjectMeta: o})
			}
			bring(pods, w.shared.objects[key].Metadata)
			stays := func(why string, err error) {
				t.Helper()
				if len(w.deletions) > 0 {
					t.Fatalf("%s: deleted %q (%v)", why, w.deletions, err)
				}
			}
			_, err := c.find(t.Context(), ref, namespace, now)
			if !errors.Is(err, errUnseen) {
				t.Errorf("find = %v, want that no watch has brought it", err)
			}
			stays("its watch lags", c.process(t.Context(), pod.UID))
			now = now.Add(time.Hour)
			sets.synced.Store(false)
			stays("its kind was not listed", c.process(t.Context(), pod.UID))
			delete(m.monitors.running, sets.resource)
			sets.synced.Store(true)
			stays("its watch has not begun", c.process(t.Context(), pod.UID))
			m.monitors.running[sets.resource] = sets
			bring(sets, w.own[modern].objects["replicasets/demo/set"].Metadata)
			stays("its watch has brought it", c.process(t.Context(), pod.UID))

			w.drop(modern, "replicasets", "demo", "set")
			unsee(m.graph, set.UID)
			if err := c.process(t.Context(), pod.UID); err != nil || !slices.Equal(w.deletions, []string{key}) {
				t.Errorf("its owner is gone: process = %v, deleted %q", err, w.deletions)
			}
		})
	}
}

// TestOwnersThatWereNeverThere: a reference to an owner that no watch brings counts when it is known for long enough,
// and not a moment earlier.
func TestOwnersThatWereNeverThere(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	now := time.Now()
	clock := func() time.Time { return now }
	c.cluster.now, m.graph.now, c.absent.now = clock, clock, clock
	c.settle = settleTime
	pod := w.put("", "pods", "demo", "one", metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet",
		Name: "gone", UID: types.UID("gone")})
	w.see(t.Context(), m)
	if err := c.process(t.Context(), pod.UID); err != nil || len(w.deletions) > 0 {
		t.Fatalf("process = %v, deleted %q; want nothing at first, and no error", err, w.deletions)
	}
	now = now.Add(settleTime)
	if err := c.process(t.Context(), pod.UID); err != nil || len(w.deletions) != 1 {
		t.Errorf("process = %v, deleted %q; want the pod", err, w.deletions)
	}
}

// TestCopiesOfOrphanedOwnersKeepDependents: a reference that says nothing of where the owner is stays while a copy of
// the owner does.
func TestCopiesOfOrphanedOwnersKeepDependents(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	set := w.put(legacy, "replicasets", "demo", "set")
	copied := *w.own[legacy].objects["replicasets/demo/set"]
	w.own[modern].objects["replicasets/demo/set"] = &copied
	ref := set
	ref.Name = "another"
	w.put("", "pods", "demo", "one", ref)
	finalized(w, legacy, "replicasets/demo/set", metav1.FinalizerOrphanDependents)
	w.see(t.Context(), m)
	_ = watchOf(t, m, legacy, "replicasets").Add(&metav1.PartialObjectMetadata{
		ObjectMeta: w.own[legacy].objects["replicasets/demo/set"].Metadata})
	if err := c.process(t.Context(), set.UID); !errors.Is(err, errOther) ||
		len(w.shared.objects["pods/demo/one"].Metadata.OwnerReferences) != 1 {
		t.Errorf("process = %v; want that the reference stays", err)
	}
}
