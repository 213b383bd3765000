package transition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/render"
)

// puttingBack is a cluster whose members are put back to backups.
type puttingBack struct {
	*cluster
	t        *testing.T
	parts    []render.Part
	restored map[string]string // by host: the directory and the file
}

func newPuttingBack(t *testing.T, s Setup) *puttingBack {
	t.Helper()
	parts, err := partsOf(s, map[place]render.File{})
	if err != nil {
		t.Fatal(err)
	}
	return &puttingBack{newCluster(t, s), t, parts, map[string]string{}}
}

func (r *puttingBack) Do(ctx context.Context, host string, a *Action) error {
	if a.Kind == RestoreMember || a.Kind == PutBackMember {
		if running := r.runs(r.parts); len(running) > 0 {
			r.t.Errorf("%s on %s while %v run", a.Kind, host, running)
		}
		delete(r.restored, host)
		if a.Kind == RestoreMember {
			r.restored[host] = a.Member.DataDir + " " + a.Member.Snapshot()
		}
	}
	return r.cluster.Do(ctx, host, a)
}

func (r *puttingBack) copied() *puttingBack {
	return &puttingBack{&cluster{files: maps.Clone(r.files), units: maps.Clone(r.units), digests: r.digests,
		records: slices.Clone(r.records), left: -1}, r.t, r.parts, maps.Clone(r.restored)}
}

// TestStoresOfHostsArePutBack: everything that a plan runs on hosts stops, the members are put back while nothing runs,
// each to the snapshot of its store, and everything starts, files and all; killed anywhere it goes on, or back to what
// the members had. What is looked at before anything stops is the backup, and no store.
func TestStoresOfHostsArePutBack(t *testing.T) {
	for _, target := range []render.Target{render.StaticPod, render.Systemd} {
		s := onHosts(t, target, 1, 2, 3)
		tr, err := NewRestoreOnHosts(s, "/var/backups/fused", "20261124T013000Z", "20261125t013000z")
		if err == nil {
			err = tr.Validate()
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if !checks(tr.Steps[i].Do, BackupIs) || tr.Steps[i].Host != fmt.Sprintf("cp-%d", i+1) {
				t.Errorf("step %d is %+v", i, tr.Steps[i])
			}
		}
		// Hosts may have made backups of one name each for itself: that members have the same data is known before
		// anything reads them.
		server := func(s Step) bool { return s.Phase == Legacy || s.Phase == Modern }
		if same, first := position(t, &tr, "members are compared", func(s Step) bool { return checks(s.Do, SameData) }),
			position(t, &tr, "an API server starts", server); tr.Steps[same].Phase != Stores || same > first {
			t.Errorf("members are compared in step %d, an API server starts in %d", same, first)
		}
		want := map[string]string{}
		for i := range 3 {
			want[fmt.Sprintf("cp-%d", i+1)] = s.Plan.Store("modern").Managed.DataDir +
				" /var/backups/fused/20261124T013000Z/modern.db"
		}
		start := newPuttingBack(t, s)
		for at := 0; ; at += 13 {
			killed := start.copied()
			killed.left = at
			err := Apply(t.Context(), &tr, killed, killed, nil)
			if err != nil && !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			on, back := killed.copied(), killed.copied()
			if err := Apply(t.Context(), &tr, on, on, nil); err != nil || differs(on.cluster, start.cluster) != "" ||
				!maps.Equal(on.restored, want) {
				t.Fatalf("%s: killed at call %d, then on: %v %s, %q", target, at, err,
					differs(on.cluster, start.cluster), on.restored)
			}
			if err := Undo(t.Context(), &tr, back, back, nil); err != nil ||
				differs(back.cluster, start.cluster) != "" || len(back.restored) > 0 {
				t.Fatalf("%s: killed at call %d, then back: %v %s, %q", target, at, err,
					differs(back.cluster, start.cluster), back.restored)
			}
			if err == nil {
				break
			}
		}
		for _, s := range tr.Steps {
			if s.Do.Kind == RestoreMember && !strings.Contains(s.Do.Member.Cluster, "cp-3=") ||
				s.Do.Kind == RestoreMember && s.Do.Member.Token != "etcd-modern-20261125t013000z" {
				t.Errorf("%+v", s.Do.Member)
			}
		}
	}
}

// TestRestoresOnHostsThatAreRefused: stores that nothing of the plan runs, one that an API server elsewhere reads, and
// members of a file that lead elsewhere.
func TestRestoresOnHostsThatAreRefused(t *testing.T) {
	var refused *RefusedError
	s := Setup{Plan: planOf(t, "shared", example(t, "shared-1.6-1.10.yaml")), Target: render.StaticPod}
	if _, err := NewRestoreOnHosts(s, "/b", "20261124T013000Z", "a"); !errors.As(err, &refused) ||
		!strings.Contains(err.Error(), "no store is managed") {
		t.Errorf("without a managed store: %v", err)
	}
	for name, change := range map[string]func(*Member){
		"":                      func(*Member) {},
		"a pod":                 func(m *Member) { m.Namespace, m.Pod, m.Claim = "fused", "etcd-0", "data-etcd-0" },
		"a way out":             func(m *Member) { m.Backup = "../20261124T013000Z" },
		"another store":         func(m *Member) { m.Store = "../../etc" },
		"the root":              func(m *Member) { m.DataDir = "/" },
		"no clean directory":    func(m *Member) { m.DataDir = "/var/../etc" },
		"backups of the root":   func(m *Member) { m.Directory = "/" },
		"backups anywhere":      func(m *Member) { m.Directory = "backups" },
		"an id with a path":     func(m *Member) { m.ID = "a/../b" },
		"a name of two lines":   func(m *Member) { m.Name = "cp-1\ncp-2" },
		"a title of other data": nil,
	} {
		tr, err := NewRestoreOnHosts(onHosts(t, render.Systemd, 1), "/b", "20261124T013000Z", "a")
		if err != nil {
			t.Fatal(err)
		}
		at := position(t, &tr, "a restore", func(s Step) bool { return s.Do.Kind == RestoreMember })
		if change != nil {
			change(tr.Steps[at].Do.Member)
		} else {
			other := *tr.Steps[at].Undo.Member
			other.ID = "b"
			tr.Steps[at].Undo.Member = &other
		}
		if err := tr.Validate(); (err == nil) != (name == "") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
