package watch

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
)

// TestWatchHoldsNoMoreAfterManyChanges tells a watch of keys that come, change and go: some in the wrong store, some of
// resources that nobody knows, some fought about. What it holds must depend on what there is, not on what there was.
func TestWatchHoldsNoMoreAfterManyChanges(t *testing.T) {
	p := plantest.Example(t, "split-1.15-1.36.yaml")
	lines := 0
	w := New(Config{Map: p.Ownership()}, func(Event) error { lines++; return nil })
	const changes, keys, batch = 300_000, 20_000, 100
	revision := int64(1)
	held := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var heap []uint64
	for n := 0; n < changes; n += batch {
		c := storeChanges{store: []string{"core", "modern"}[n/batch%2]}
		for i := range batch {
			revision++
			k := (n + i*7919) % keys
			c.changes = append(c.changes, soakChange(k, n+i, revision))
		}
		c.revision = revision
		if err := w.look(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if (n+batch)%(changes/3) == 0 {
			heap = append(heap, held())
			t.Logf("%d changes: %d KiB, %d findings, %d keys followed, %d lines",
				n+batch, heap[len(heap)-1]>>10, len(w.findings), w.referee.Following(), lines)
		}
	}
	if first, last := heap[0], heap[len(heap)-1]; last > first+first/10+1<<20 {
		t.Errorf("%d KiB after a third of the changes, %d KiB after all of them", first>>10, last>>10)
	}
}

// soakChange is the n-th change, of the k-th key.
func soakChange(k, n int, revision int64) etcd.Change {
	c := etcd.Change{Entry: etcd.Entry{ModRevision: revision}, Deleted: n/20_000%5 == 4}
	resource := []string{"pods", "deployments", "configmaps", "events", "kubeflow.org/notebooks"}[k%5]
	if k%100 == 99 {
		resource = fmt.Sprintf("strange-%03d", k/100)
	}
	c.Key = fmt.Appendf(nil, "/registry/%s/team-%02d/name-%05d-%d", resource, k%50, k, n/100_000)
	if !c.Deleted {
		c.Value = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod",`+
			`"metadata":{"name":"name-%05d","namespace":"team-%02d","uid":"%d"},"spec":{"n":%d}}`, k, k%50, k, n)
	}
	return c
}
