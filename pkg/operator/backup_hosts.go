package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/etcd/backup"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// On hosts the agent of the first one saves the stores, into a directory there. It has the certificates that the API
// servers of its host read the stores with: none passes through the management cluster.

// saver is the host whose agent saves the stores.
func (p *plane) saver() string { return p.record.Plan.Hosts[0].Name }

// backupsOnHosts has the agent save the stores that run, and says in the status what was saved.
func (p *plane) backupsOnHosts(ctx context.Context, b *spec.Backup, schedule *spec.Schedule) (time.Duration, error) {
	h := &api.ControlPlaneHost{}
	if err := p.Client.Get(ctx, types.NamespacedName{Namespace: p.object.Name, Name: p.saver()}, h); err != nil {
		p.notBackedUp("NotApplied", err.Error())
		return p.Repair, nil // it is made by what looks at hosts
	}
	if !p.verdict.file.Spec.Paused && !denied(h) {
		if err := p.tellSaver(ctx, h, b); err != nil {
			p.notBackedUp("NotApplied", err.Error())
			return 0, err
		}
	}
	s := p.object.Status.Backup
	if s == nil {
		s = &api.BackupStatus{}
		p.object.Status.Backup = s
	}
	if seen := h.Status.Backup; seen != nil {
		p.seenBackup(s, seen)
	}
	return p.judgeBackups(schedule, h.CreationTimestamp.Time, ""), nil
}

// tellSaver writes what is saved, and when, for the agent of a host. What it has already is not written again.
func (p *plane) tellSaver(ctx context.Context, h *api.ControlPlaneHost, b *spec.Backup) error {
	data, digest, err := api.Pack(backup.SourceOf(p.record.Plan))
	if err != nil {
		return err
	}
	wanted := api.HostBackup{Digest: digest, Schedule: b.Schedule, TimeZone: b.TimeZone, Keep: b.Keep,
		Directory: b.Directory}
	if w := h.Spec.Backup; w != nil && *w == wanted {
		return nil
	}
	if err := p.put(ctx, p.object.Name, h.Name, func(key string) bool { return key == api.BackupKey },
		map[string][]byte{api.BackupKey: data}); err != nil {
		return err
	}
	h.Spec.Backup = &wanted
	if err := p.Client.Update(ctx, h); err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	return nil
}

// seenBackup takes over what an agent says of backups: it may say what it likes.
func (p *plane) seenBackup(s, seen *api.BackupStatus) {
	if s.Last != nil && p.toCome(s.Last.At.Time) {
		s.Last = nil
	}
	failed, before := seen.Failed, s.Failed
	if last := seen.Last; last != nil && backup.IsName(last.Name) {
		made := *last
		made.Stores = nil
		for _, store := range last.Stores[:min(len(last.Stores), mostStoresSaved)] {
			store.Name = brief(store.Name)
			made.Stores = append(made.Stores, store)
		}
		kept := slices.DeleteFunc(slices.Clone(seen.Kept), func(name string) bool { return !backup.IsName(name) })
		s.Kept = kept[:min(len(kept), spec.MostBackupsKept)]
		if ahead := p.ahead(last.Name, last.At.Time); ahead == "" {
			s.Last = &made
		} else if failed = before; before == nil || before.Error != ahead {
			failed = &api.BackupFailed{At: p.now(), Error: ahead}
		}
	}
	s.Failed = nil
	if failed != nil && (s.Last == nil || failed.At.After(s.Last.At.Time)) {
		s.Failed = &api.BackupFailed{At: failed.At, Error: brief(visible.Text(failed.Error))}
	}
}

// mostStoresSaved bounds what is taken over of one backup.
const mostStoresSaved = 64

// stopSaver has the agent save nothing any more. What it saved stays.
func (p *plane) stopSaver(ctx context.Context) error {
	h := &api.ControlPlaneHost{}
	err := p.Client.Get(ctx, types.NamespacedName{Namespace: p.object.Name, Name: p.saver()}, h)
	if err != nil || h.Spec.Backup == nil {
		return client.IgnoreNotFound(err)
	}
	h.Spec.Backup = nil
	if err := p.Client.Update(ctx, h); err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	return nil
}
