package local

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// TestARecordIsFoundWhereItWasKept: a way back with another directory of snapshots brings back what the journal knows;
// when the record is nowhere, it says so, and brings back nothing.
func TestARecordIsFoundWhereItWasKept(t *testing.T) {
	const key = "/registry/deployments/default/web"
	core, modern := etcdtest.Start(t), etcdtest.Start(t)
	core.Put(t, map[string][]byte{key: storetest.Put("apps/v1", "Deployment", "default", "web", "d1", nil)})
	objects := func(back bool, known *handover.Known) *transition.Objects {
		o := &transition.Objects{Record: "hand-over-deployments", Names: []string{"deployments"}, Pods: "core",
			From:  plan.Store{Name: "core", Endpoints: []string{core.Endpoint}},
			To:    plan.Store{Name: "modern", Endpoints: []string{modern.Endpoint}},
			Known: known, Plan: handover.Plan{Prefix: "/registry", Pods: "pods", Back: back,
				Resources: []handover.Resource{{Key: "deployments", Kind: "Deployment", Reads: []string{"apps/v1"},
					StoredAs: "apps/v1", Subject: true}}}}
		if back {
			o.From, o.To = o.To, o.From
		}
		return o
	}
	first, second := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	h := &Host{Snapshots: first}
	if _, err := h.Keep(t.Context(), "", objects(false, nil)); err != nil {
		t.Fatal(err)
	}
	forth := &transition.Action{Kind: transition.HandOver, Objects: objects(false, nil)}
	if err := h.Do(t.Context(), "", forth); err != nil {
		t.Fatal(err)
	}
	known, err := h.Keep(t.Context(), "", objects(false, &handover.Known{}))
	if err != nil || known.Directory != first || known.Digest == "" {
		t.Fatalf("Keep = %+v, %v", known, err)
	}
	back := &transition.Action{Kind: transition.HandBack, Objects: objects(true, known)}
	there := func() bool {
		answer, err := core.Client(t).Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return answer.Count == 1
	}
	h.Wait = time.Hour
	if _, err := modern.Client(t).Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	check := &transition.Check{Kind: transition.Adopted, Objects: objects(false, known)}
	if _, gone := errors.AsType[*handover.GoneError](h.Check(t.Context(), "", check)); !gone {
		t.Error("what is gone is waited for")
	}
	modern.Put(t, map[string][]byte{key: storetest.Put("apps/v1", "Deployment", "default", "web", "d1", nil)})
	file := filepath.Join(first, "hand-over-deployments.json")
	if err := os.Rename(file, file+".away"); err != nil {
		t.Fatal(err)
	}
	h.Snapshots = second
	if err := h.Do(t.Context(), "", back); err == nil || !strings.Contains(err.Error(), first) || there() {
		t.Errorf("without a record: %v", err)
	}
	if err := os.Rename(file+".away", file); err != nil {
		t.Fatal(err)
	}
	if err := h.Do(t.Context(), "", back); err != nil || !there() {
		t.Errorf("with the record where it was: %v", err)
	}
	h.Rehearsal = t.TempDir()
	if kept, err := h.Keep(t.Context(), "", objects(false, nil)); kept != nil || err != nil {
		t.Errorf("a rehearsal keeps %v, %v", kept, err)
	}
}
