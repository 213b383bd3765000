package agent

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// saved says in the status of the first host which backups there are, as its agent does.
func (w *world) saved(name string) {
	w.t.Helper()
	a := w.agents[w.hosts[0]]
	a.status.Backup = &api.BackupStatus{Last: &api.BackupMade{Name: name, At: now()}, Kept: []string{name}}
	a.report(w.t.Context(), api.AgentPulse)
	w.reconcile()
}

func (w *world) annotate(name, value string) {
	w.t.Helper()
	f := w.object()
	if f.Annotations == nil {
		f.Annotations = map[string]string{}
	}
	f.Annotations[name] = value
	if err := w.client.Update(w.t.Context(), f); err != nil {
		w.t.Fatal(err)
	}
}

// TestStoresOfHostsArePutBackOnce: the annotation with the name of a backup is a transition that agents carry out,
// once, and after operator and agents were killed; nothing is saved meanwhile. A backup that is not there is refused,
// and one with an agent that is silent waits.
func TestStoresOfHostsArePutBackOnce(t *testing.T) {
	w := newWorld(t, render.Systemd, map[string]any{"backup": map[string]any{"schedule": "0 0 1 1 *", "keep": 2,
		"directory": "/var/backups/fused"}})
	w.runs(nil)
	const name = "20261124T013000Z"
	w.saved(name)
	w.annotate(api.AnnotationRestore, "20200101T000000Z")
	if f := w.until(api.Refused, nil); len(f.Status.History) != 1 {
		t.Errorf("a backup that is not there: %+v", f.Status.History)
	}

	w.now = w.now.Add(time.Hour) // nothing was heard of agents since
	w.annotate(api.AnnotationRestore, name)
	w.reconcile()
	degraded := meta.FindStatusCondition(w.object().Status.Conditions, api.ConditionDegraded)
	if degraded == nil || degraded.Reason != "AgentSilent" || w.object().Status.Transition != nil {
		t.Errorf("with silent agents: %+v, %+v", degraded, w.object().Status.Transition)
	}

	titles := map[string]bool{}
	f := w.until(api.Running, func(n int) {
		if s := w.object().Status.Transition; s != nil {
			for _, host := range w.hosts {
				if h := w.host(host); h.Spec.Backup != nil {
					t.Errorf("host %s saves during the restore", host)
				} else if h.Spec.Task != nil {
					titles[h.Spec.Task.Title] = true
				}
			}
		}
		if n%7 == 3 {
			w.restart()
			for _, host := range w.hosts {
				w.startAgent(host)
			}
		}
	})
	if len(f.Status.History) != 2 || f.Status.History[0].To != "backup "+name || f.Status.History[0].Error != "" {
		t.Fatalf("history %+v", f.Status.History)
	}
	for _, want := range []string{"restore cp-1 of store modern from backup " + name,
		"restore cp-2 of store modern from backup " + name, "start kube-apiserver-modern"} {
		if !titles[want] {
			t.Errorf("no agent was told to %s: %v", want, titles)
		}
	}
	for range 5 {
		w.reconcile()
		for _, host := range w.hosts {
			w.turn(host)
		}
	}
	if f := w.object(); f.Status.Transition != nil || len(f.Status.History) != 2 || w.host("cp-1").Spec.Backup == nil {
		t.Errorf("after it: %+v, the agent saves %+v", f.Status, w.host("cp-1").Spec.Backup)
	}
	w.compare(w.wanted())
	if !strings.HasPrefix(w.backedUp(), "Verified: ") {
		t.Error(w.backedUp())
	}
}

// TestANodeGetsAnotherAddress: its agent does nothing at an address that is none of its machine's, and no step is done
// at the new one, so that the edit of the spec which says it waits for no agent.
func TestANodeGetsAnotherAddress(t *testing.T) {
	kubelet := func(address string) map[string]any {
		return map[string]any{"kubelet": map[string]any{"version": "1.15.12", "modern": map[string]any{
			"nodes": []any{map[string]any{"name": "n-1", "address": address}}}}}
	}
	w := newWorld(t, render.Systemd, kubelet("10.0.0.21"))
	w.hosts = append(w.hosts, "n-1")
	w.startAgent("n-1")
	w.runs(nil)
	w.agents["n-1"].IsHere = func(address string) (bool, error) { return address == "10.0.0.22", nil }
	w.turn("n-1")
	w.edit(kubelet("10.0.0.22"))
	w.runs(nil)
	if h := w.host("n-1"); h.Spec.Address != "10.0.0.22" || h.Status.Problem != "" {
		t.Errorf("the agent of %s says %q", h.Spec.Address, h.Status.Problem)
	}
}
