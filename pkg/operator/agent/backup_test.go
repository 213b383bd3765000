package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/pkg/etcd/backup"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// saves has the agent of the first host look, and make the backup that is due to its end.
func (w *world) saves() {
	w.t.Helper()
	a := w.agents[w.hosts[0]]
	a.look(w.t.Context())
	if a.saving == nil {
		w.t.Fatal("no backup is made")
	}
	result, whole := <-a.saving.done
	if !whole {
		w.t.Fatal("the backup was broken off")
	}
	a.saved(result)
	a.saving = nil
	a.report(w.t.Context(), api.AgentPulse)
	w.reconcile()
}

// backedUp is what the condition says: REASON: MESSAGE.
func (w *world) backedUp() string {
	w.t.Helper()
	c := meta.FindStatusCondition(w.object().Status.Conditions, api.ConditionBackedUp)
	if c == nil {
		return ""
	}
	return c.Reason + ": " + c.Message
}

// reads has the Secret of the first host name another etcd for the stores.
func (w *world) reads(endpoint string) {
	w.t.Helper()
	source := backup.SourceOf(w.plan)
	source.Stores = []plan.Store{{Name: "core", Endpoints: []string{endpoint}},
		{Name: "modern", Endpoints: []string{endpoint}}}
	data, digest, err := api.Pack(source)
	if err != nil {
		w.t.Fatal(err)
	}
	secret := &corev1.Secret{}
	at := types.NamespacedName{Namespace: planeName, Name: api.TasksOf(w.hosts[0])}
	if err := w.client.Get(w.t.Context(), at, secret); err != nil {
		w.t.Fatal(err)
	}
	secret.Data[api.BackupKey] = data
	h := w.host(w.hosts[0])
	h.Spec.Backup.Digest = digest
	if err := w.client.Update(w.t.Context(), secret); err != nil {
		w.t.Fatal(err)
	}
	if err := w.client.Update(w.t.Context(), h); err != nil {
		w.t.Fatal(err)
	}
}

// TestTheFirstHostSavesTheStores: its agent, and no other one, saves them into a directory of the host, when the
// schedule says so; what it made, and why it made none, is in the status of the control plane. During a transition
// nothing is saved.
func TestTheFirstHostSavesTheStores(t *testing.T) {
	w := newWorld(t, render.Systemd, map[string]any{"backup": map[string]any{"schedule": "0 0 1 1 *", "keep": 2,
		"directory": "/var/backups/fused"}})
	w.runs(func(int) {
		if w.object().Status.Transition == nil {
			return
		}
		for _, host := range w.hosts {
			if h := (&api.ControlPlaneHost{}); w.client.Get(t.Context(), types.NamespacedName{Namespace: planeName,
				Name: host}, h) == nil && h.Spec.Backup != nil {
				t.Errorf("during the transition host %s is told to save %+v", host, h.Spec.Backup)
			}
		}
	})
	w.reconcile()
	if got := w.backedUp(); !strings.HasPrefix(got, "NotYet: ") {
		t.Errorf("before the first backup: %s", got)
	}
	first, second := w.host("cp-1").Spec.Backup, w.host("cp-2").Spec.Backup
	if first == nil || first.Directory != "/var/backups/fused" || first.Keep != 2 || second != nil {
		t.Fatalf("the hosts are told %+v and %+v", first, second)
	}

	etcd := etcdtest.Start(t)
	etcd.Put(t, map[string][]byte{"/registry/configmaps/default/a": []byte("k8s\x00\n\x0f\n\x02v1\x12\tConfigMap")})
	w.reads(etcd.Endpoint)
	a := w.agents["cp-1"]
	a.look(t.Context())
	if a.saving != nil {
		t.Fatal("a backup is made before its time")
	}
	a.savesSince = a.savesSince.AddDate(-1, 0, 0)
	w.saves()
	s := w.object().Status.Backup
	if s == nil || s.Last == nil || len(s.Kept) != 1 || s.Kept[0] != s.Last.Name || s.Failed != nil ||
		len(s.Last.Stores) != 2 || s.Last.Stores[0].Keys != 1 {
		t.Fatalf("after a backup: %+v; %s", s, w.backedUp())
	}
	if got := w.backedUp(); !strings.HasPrefix(got, "Verified: ") {
		t.Error(got)
	}
	file := filepath.Join(w.dir, "cp-1", "var/backups/fused", s.Last.Name, "core.db")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("%s: %v, %v", file, info, err)
	}

	// A clock that was ahead, and is put back, neither ends the backups nor has the last one count until then.
	ahead := metav1.NewTime(a.status.Backup.Last.At.AddDate(10, 0, 0))
	a.status.Backup.Last.At, a.savesSince = ahead, time.Now().AddDate(-1, 0, 0)
	a.report(t.Context(), api.AgentPulse)
	w.reconcile()
	if got := w.backedUp(); !strings.HasPrefix(got, "Failed: ") || !strings.Contains(got, "is to come") {
		t.Errorf("after a backup of a time to come: %s", got)
	}
	w.reads(etcd.Endpoint)
	if err := os.RemoveAll(filepath.Dir(file)); err != nil { // the next one may have its name
		t.Fatal(err)
	}
	w.saves()
	if got := w.backedUp(); !strings.HasPrefix(got, "Verified: ") {
		t.Errorf("after the next one: %s", got)
	}

	w.reads(etcd.Endpoint)
	etcd.Stop()
	a.status.Backup.Last.At = metav1.NewTime(a.status.Backup.Last.At.AddDate(-1, 0, 0))
	w.saves()
	s = w.object().Status.Backup
	if s.Failed == nil || s.Failed.Error == "" || s.Last == nil || !strings.HasPrefix(w.backedUp(), "Failed: ") {
		t.Errorf("after one that failed: %+v; %s", s, w.backedUp())
	}
	a.look(t.Context())
	if a.saving != nil {
		t.Error("one that failed is tried again at once")
	}

	w.edit(map[string]any{"backup": nil})
	w.reconcile()
	if h := w.host("cp-1"); h.Spec.Backup != nil || w.object().Status.Backup != nil || w.backedUp() != "" {
		t.Errorf("without backups: %+v, %+v, %s", h.Spec.Backup, w.object().Status.Backup, w.backedUp())
	}
}
