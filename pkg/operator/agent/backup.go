package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/etcd/backup"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// How long a backup may take, and after which time one that failed is tried again.
const (
	savesWithin = 6 * time.Hour
	savesAgain  = 10 * time.Minute
)

// saving is a backup that is being made.
type saving struct {
	of     api.HostBackup
	cancel context.CancelFunc
	done   chan *backup.Result // nothing where it was broken off
}

// saves makes a backup of the stores when one is due, and returns when to look again at the latest. Nothing on this
// machine is changed but the directory of the backups: it needs no lock.
func (a *agent) saves(ctx context.Context, w *api.HostBackup) time.Duration {
	if a.saving != nil && (w == nil || *w != a.saving.of) {
		a.stopSaving()
	}
	if w == nil || a.saving != nil {
		return api.AgentPulse
	}
	schedule, err := spec.ParseSchedule(w.Schedule, w.TimeZone)
	if err != nil {
		a.notSaved(fmt.Errorf("the schedule of backups: %w", err))
		return savesAgain
	}
	now := time.Now().Round(0) // as clocks say it, which may be put back
	if a.savesSince.IsZero() || a.savesSince.After(now) {
		a.savesSince = now
	}
	s := a.status.Backup
	if s == nil {
		s = &api.BackupStatus{}
		a.status.Backup = s
	}
	since := a.savesSince
	if s.Last != nil && !s.Last.At.After(now) { // otherwise a clock was ahead, and none would be made until then
		since = s.Last.At.Time
	}
	due := schedule.Next(since)
	if s.Failed != nil && s.Failed.At.After(since) && !s.Failed.At.After(now) {
		due = s.Failed.At.Add(savesAgain)
	}
	if due.IsZero() || now.Before(due) {
		return min(api.AgentPulse, due.Sub(now))
	}
	within, cancel := context.WithTimeout(ctx, savesWithin)
	d := &saving{of: *w, cancel: cancel, done: make(chan *backup.Result, 1)}
	a.saving = d
	a.Log.Info("saving the stores", "directory", w.Directory)
	go func() {
		defer close(d.done)
		defer cancel()
		result := a.save(within, &d.of, now)
		if ctx.Err() == nil && within.Err() == nil || result.Error == "" {
			d.done <- result
		} else if errors.Is(within.Err(), context.DeadlineExceeded) {
			d.done <- backup.NewResult(nil, nil, fmt.Errorf("it is still at work after %s", savesWithin))
		}
	}()
	return api.AgentPulse
}

// save makes one backup.
func (a *agent) save(ctx context.Context, w *api.HostBackup, now time.Time) *backup.Result {
	failed := func(err error) *backup.Result { return backup.NewResult(nil, nil, err) }
	if !filepath.IsAbs(w.Directory) || filepath.Clean(w.Directory) != w.Directory || w.Directory == "/" {
		return failed(fmt.Errorf("directory %q: want an absolute and clean path", w.Directory))
	}
	var source backup.Source
	if err := a.entry(ctx, api.BackupKey, w.Digest, &source); err != nil {
		return failed(err)
	}
	dir := w.Directory
	if a.Rehearsal != "" {
		dir = filepath.Join(a.Rehearsal, a.Host, dir)
	}
	if err := filetree.Private(dir); err != nil {
		return failed(err)
	}
	made, kept, err := backup.Save(ctx, source, dir, w.Keep, now)
	return backup.NewResult(made, kept, err)
}

// saved puts what became of a backup into the status.
func (a *agent) saved(r *backup.Result) {
	if r.Error != "" {
		a.notSaved(errors.New(r.Error))
		return
	}
	a.Log.Info("saved the stores", "backup", r.Name)
	last := &api.BackupMade{Name: r.Name, At: metav1.NewTime(r.At), Findings: r.Findings}
	for _, store := range r.Stores {
		last.Stores = append(last.Stores, api.StoreSaved{Name: store.Name, Revision: store.Revision, Keys: store.Keys,
			Bytes: store.Bytes})
	}
	a.status.Backup = &api.BackupStatus{Last: last, Kept: r.Kept}
}

func (a *agent) notSaved(err error) {
	text := visible.Text(err.Error())
	a.Log.Error("saving the stores failed", "err", text)
	if a.status.Backup == nil {
		a.status.Backup = &api.BackupStatus{}
	}
	a.status.Backup.Failed = &api.BackupFailed{At: metav1.NewTime(time.Now().Truncate(time.Second)),
		Error: text[:min(len(text), limitErrorBytes)]}
}

// stopSaving breaks a backup off: what is not whole is none.
func (a *agent) stopSaving() {
	if a.saving == nil {
		return
	}
	a.saving.cancel()
	for range a.saving.done { //nolint:revive // until it is closed
	}
	a.saving = nil
}
