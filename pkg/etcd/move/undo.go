package move

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// Undo restores what Apply has moved, from the copies, or from the backup where these were deleted. Copies that were
// changed since are kept, and nothing is done when one of them is the only one. Where Apply has deleted nothing
// yet, the originals are left as they are now, and only copies are deleted. Run again after it was killed, it resumes.
// Of a move that never began there is nothing to restore, and the result has NotBegun. Errors: as of Apply.
func Undo(ctx context.Context, job Job) (Result, error) {
	a, release, err := start(ctx, job, true)
	if err != nil {
		return Result{}, err
	}
	defer release()
	err = a.undo(ctx)
	return a.result, err
}

func (a *applier) undo(ctx context.Context) error {
	switch saved, err := a.Files.Saved(); {
	case err != nil:
		return err
	case a.journal[Restored].All:
		a.result.Moved = a.journal[Restored].Moves
		return nil
	case !saved && len(a.journal) > 0:
		return errors.New("undoing: the journal goes on, but its backup is gone: put it back")
	case !saved:
		return a.neverBegun(ctx)
	}
	// First read everything, then change something.
	var d differences
	if err := a.eachSaved(func(before int64, batch []Move, saved []*etcd.Entry) error {
		pairs, err := a.read(ctx, batch)
		for i := range pairs {
			a.restorable(&pairs[i], saved[i], &d)
		}
		a.progress(Compared, before+int64(len(batch)))
		return err
	}); err != nil {
		return err
	}
	if err := d.err("nothing was brought back"); err != nil {
		return err
	}
	done := int64(0)
	err := a.eachSaved(func(before int64, batch []Move, saved []*etcd.Entry) error {
		if err := a.Files.Append(Record{Step: Restored, Moves: before}); err != nil {
			return err
		}
		if err := a.restore(ctx, batch, saved); err != nil {
			return err
		}
		done = before + int64(len(batch))
		a.progress(Restored, done)
		return nil
	})
	if err != nil {
		return err
	}
	return a.Files.Append(Record{Step: Restored, Moves: done, All: true})
}

// neverBegun makes sure that nothing was moved, as the absence of journal and backup suggests: they may be elsewhere. A
// key in both stores may have been in both at planning, or be a copy: that is not known.
func (a *applier) neverBegun(ctx context.Context) error {
	var d differences
	for batch, err := range batches(a.Plan.Moves()) {
		if err != nil {
			return err
		}
		pairs, err := a.read(ctx, batch)
		if err != nil {
			return err
		}
		for _, p := range pairs {
			if p.to != nil || p.from == nil && !p.Leased {
				d.add(p.Key, "is not in store %s alone", p.From)
			}
		}
	}
	if d.n > 0 {
		return fmt.Errorf("undoing: there is no backup, and %d keys may have been moved; want the journal and the "+
			"backup of this plan:%s",
			d.n, d.list())
	}
	a.result.NotBegun = true
	return nil
}

// eachSaved walks over plan and backup side by side; a key whose time was up before the backup was written has no entry
// there.
func (a *applier) eachSaved(do func(before int64, batch []Move, saved []*etcd.Entry) error) error {
	next, stop := iter.Pull2(a.Files.Backup())
	defer stop()
	key, err, more := next()
	var before int64
	for batch, batchErr := range batches(a.Plan.Moves()) {
		if err := errors.Join(batchErr, err); err != nil {
			return err
		}
		saved := make([]*etcd.Entry, len(batch))
		for i, move := range batch {
			if more && key.Store == move.From && string(key.Entry.Key) == move.Key {
				entry := key.Entry
				saved[i] = &entry
				if key, err, more = next(); err != nil {
					return err
				}
			} else if !move.Leased {
				return fmt.Errorf("%s: is missing in the backup", storage.Printable(move.Key))
			}
		}
		if err := do(before, batch, saved); err != nil {
			return err
		}
		before += int64(len(batch))
	}
	if err == nil && more {
		err = fmt.Errorf("%s: is in the backup but not in the plan", storage.Printable(string(key.Entry.Key)))
	}
	return err
}

// untouched reports whether the journal proves that Apply has deleted nothing anywhere. One that lacks its beginning,
// because it was lost meanwhile, proves nothing.
func (a *applier) untouched() bool {
	_, whole := a.journal[Saved]
	_, begun := a.journal[Deleted]
	return whole && !begun
}

// restorable notes a key for which undo would lose what was written after the move. What still is the original,
// whatever was written to it since, is not such a key.
func (a *applier) restorable(p *keyPair, saved *etcd.Entry, d *differences) bool {
	switch {
	case saved == nil, a.untouched(), p.from != nil && p.from.CreateRevision == saved.CreateRevision:
		return true
	case p.from != nil && p.from.ModRevision != p.ModRevision && !bytes.Equal(p.from.Value, saved.Value):
		d.add(p.Key, "was written in store %s after it was moved away", p.From)
	case p.from == nil && p.to != nil && !bytes.Equal(p.to.Value, saved.Value):
		d.add(p.Key, "was written in store %s after it was moved: undo would lose that", p.To)
	default:
		return true
	}
	return false
}

// restore brings one batch back: create where they came from what is missing there, read it back, and then delete the
// copies.
func (a *applier) restore(ctx context.Context, batch []Move, saved []*etcd.Entry) error {
	var recreated int64
	untouched := a.untouched()
	for range rounds {
		pairs, err := a.read(ctx, batch)
		if err != nil {
			return err
		}
		var d differences
		var missing []etcd.Entry
		var copies []KeyAt
		var gone, ended, alone int64
		for i := range pairs {
			p := &pairs[i]
			switch {
			case !a.restorable(p, saved[i], &d):
			case p.from == nil && saved[i] != nil && !untouched:
				entry, ok, err := a.back(ctx, p, saved[i])
				switch {
				case err != nil:
					return err
				case !ok:
					gone, ended = gone+1, ended+1
					continue
				case p.to == nil:
					alone++
				}
				missing = append(missing, entry)
			default:
				if p.from == nil {
					gone++
					if p.Leased {
						ended++
					}
				}
				if saved[i] != nil && a.ours(p, saved[i]) {
					copies = append(copies, KeyAt{p.Key, p.to.ModRevision})
				}
			}
		}
		if err := d.err("undo stops here"); err != nil {
			return err
		}
		done := len(missing) == 0 && len(copies) == 0
		switch {
		case done:
		case len(missing) > 0 && a.full[batch[0].From]:
			return fmt.Errorf("store %s: bringing back %d keys from %s on: %w", batch[0].From, len(missing),
				storage.Printable(string(missing[0].Key)), ErrFull)
		case len(missing) > 0:
			// The copies are deleted in a later round, when what was created here has been read back.
			created, err := a.Stores[batch[0].From].Create(ctx, missing)
			if err != nil && !errors.Is(err, ErrLeaseGone) {
				return fmt.Errorf("store %s: creating %d keys from %s on: %w", batch[0].From, len(missing),
					storage.Printable(string(missing[0].Key)), err)
			}
			if err != nil {
				clear(a.leases)
			}
			if created {
				recreated += alone
			}
		default:
			if done, err = a.Stores[batch[0].To].Delete(ctx, copies); err != nil {
				return fmt.Errorf("store %s: deleting %d copies from %s on: %w", batch[0].To, len(copies),
					storage.Printable(copies[0].Key), err)
			}
		}
		if done {
			a.result.Moved += int64(len(batch)) - gone
			a.result.Expired += ended
			a.result.Recreated += recreated
			return nil
		}
	}
	return fmt.Errorf("stores %s and %s: the keys from %s on do not stay: %w", batch[0].From, batch[0].To,
		storage.Printable(batch[0].Key), ErrChanged)
}

// ours reports whether an entry of the new store is a copy by Apply, and not from before.
func (a *applier) ours(p *keyPair, saved *etcd.Entry) bool {
	return p.to != nil && bytes.Equal(p.to.Value, saved.Value) && p.to.CreateRevision > a.Plan.Header.Revisions[p.To]
}

// back is the entry to create where the key came from; false when its time is up. It gets the lease that it had, or if
// that is gone, what is left of its copy's.
func (a *applier) back(ctx context.Context, p *keyPair, saved *etcd.Entry) (etcd.Entry, bool, error) {
	entry := etcd.Entry{Key: saved.Key, Value: saved.Value}
	if saved.Lease == 0 {
		return entry, true, nil
	}
	if p.to == nil {
		return entry, false, nil
	}
	own := leaseAt{p.From, p.From, saved.Lease}
	if _, ok := a.leases[own]; !ok {
		seconds, err := a.Stores[p.From].TimeToLive(ctx, saved.Lease)
		if err != nil {
			return entry, false, fmt.Errorf("store %s: %w", p.From, err)
		}
		if seconds <= 0 {
			lease, alive, err := a.lease(ctx, leaseAt{p.To, p.From, p.to.Lease})
			entry.Lease = lease
			return entry, alive && p.to.Lease != 0, err
		}
		a.remember(own, saved.Lease)
	}
	entry.Lease = saved.Lease
	return entry, true, nil
}
