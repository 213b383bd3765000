package handover_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/internal/cputest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
)

// sorted is a store that gets no new keys: they are sorted once.
type sorted struct {
	*store
	keys []string
}

func (s *sorted) Page(_ context.Context, r etcd.Request) (etcd.Page, error) {
	page := etcd.Page{Revision: s.revision}
	from, _ := slices.BinarySearch(s.keys, r.From)
	for _, key := range s.keys[from:] {
		if r.To != "" && key >= r.To {
			break
		}
		entry, there := s.entries[key]
		if !there {
			continue
		}
		if page.RangeKeys++; len(page.Entries) == r.LimitKeys {
			page.More = true
			break
		}
		page.Entries = append(page.Entries, entry)
	}
	return page, nil
}

// TestManyPods: no controller acts while their owners go.
func TestManyPods(t *testing.T) {
	w := newWorld()
	for i := range 30_000 {
		w.core.put(fmt.Sprintf("/registry/pods/default/many-%05d", i), podOf("apps/v1",
			fmt.Sprintf("1b4e28ba-2fa1-11d2-883f-0016d3c%05d", i), "r1"))
	}
	core := &sorted{w.core, slices.Sorted(maps.Keys(w.core.entries))}
	took := cputest.Thread(t, func() {
		j := w.job(false)
		j.From.Store, j.Shared.Store = core, core
		if err := j.Move(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if took > 2*time.Second {
		t.Errorf("to remember 30,000 pods took %v", took)
	}
	if rec, err := w.Load(); err != nil || len(rec.Pods) != 30_001 {
		t.Errorf("the record has %d pods, %v", len(rec.Pods), err)
	}
}

// TestOwnersInACircle: clients write who controls what.
func TestOwnersInACircle(t *testing.T) {
	const many = 4000
	w := newWorld()
	before := map[string]string{}
	for i := range many {
		key := fmt.Sprintf("/registry/replicasets/default/circle-%04d", i)
		before[key] = settled("apps/v1", "ReplicaSet", fmt.Sprintf("circle-%04d", i), fmt.Sprintf("c%d", i),
			ownedBy("apps/v1", "ReplicaSet", fmt.Sprintf("c%d", (i+1)%many)))
		w.core.put(key, before[key])
	}
	if err := w.job(false).Move(t.Context()); err != nil {
		t.Fatal(err)
	}
	for key, value := range before { // the controllers have looked at them
		w.modern.put(key, value)
	}
	w.modern.put(deployment, settled("apps/v1", "Deployment", "web", "d1", ""))
	w.modern.put(replicas, settled("apps/v1", "ReplicaSet", "web-1", "r1", ownedBy("apps/v1", "Deployment", "d1")))
	if took := cputest.Thread(t, func() {
		if err := w.job(false).Adopted(t.Context()); err != nil {
			t.Fatal(err)
		}
	}); took > 800*time.Millisecond {
		t.Errorf("who controls %d objects took %v", many, took)
	}
}

// TestManyBackends: what one Ingress names is read once.
func TestManyBackends(t *testing.T) {
	w := routes()
	var paths strings.Builder
	for i := range 500 {
		fmt.Fprintf(&paths, `,{"backend":{"resource":{"apiGroup":"k8s.example.com","kind":"Bucket","name":"b%d"}}}`, i)
		w.modern.put(fmt.Sprintf("/registry/k8s.example.com/buckets/default/b%d", i), "{}")
	}
	w.edit(w.core, blog, `"host"`, `"http":{"paths":[`+paths.String()[1:]+`]},"host"`)
	w.ops = 0
	if err := w.routing(false, true).Check(t.Context()); err != nil || w.ops > 50 {
		t.Errorf("the stores were asked %d times, %v", w.ops, err)
	}
	delete(w.modern.entries, "/registry/k8s.example.com/buckets/default/b7")
	err := w.routing(false, true).Check(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the Bucket.k8s.example.com b7 as a backend") {
		t.Errorf("%v, want the Bucket that is gone", err)
	}
}
