package move

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// Apply carries out the moves of a plan: it saves all keys in a backup, copies them, and when every copy was read back,
// deletes them where they came from. Run again after it was killed, it resumes. The API servers must not write to these
// resources meanwhile; Apply checks by revision that they have not: before it begins, before it deletes the first key,
// at every key, and in the end. Errors: ErrChanged, wrapped, names the keys; ErrOtherStores; ErrNoRoom; ErrFull;
// *LockedError; a plan with conflicts; a store that fails. What is done stays done.
func Apply(ctx context.Context, job Job) (Result, error) {
	a, release, err := start(ctx, job, false)
	if err != nil {
		return Result{}, err
	}
	defer release()
	err = a.apply(ctx)
	return a.result, err
}

func (a *applier) apply(ctx context.Context) error {
	if _, undone := a.journal[Restored]; undone {
		return errors.New("applying: this plan was undone: make a new one")
	}
	if done := a.journal[Deleted]; done.All {
		a.result.Moved = done.Moves
		return nil
	}
	saved, err := a.Files.Saved()
	if err != nil {
		return err
	}
	if !saved || len(a.journal) > 0 {
		if err := a.fits(ctx); err != nil {
			return err
		}
	}
	if !saved {
		if len(a.journal) > 0 {
			return errors.New("applying: the journal goes on, but its backup is gone: put it back, or make a new plan")
		}
		if err := a.unchanged(ctx); err != nil {
			return err
		}
		if err := a.Files.SaveBackup(a.saved(ctx)); err != nil {
			return fmt.Errorf("writing the backup: %w", err)
		}
		if err := a.Files.Append(Record{Step: Saved, All: true}); err != nil {
			return err
		}
	}
	// What an earlier run may have deleted without a record: the batch after its last record; anything, when there is
	// no journal to a backup.
	copied, lost := a.journal[Copied].All, saved && len(a.journal) == 0
	if !copied {
		err := a.each(ctx, Copied, func(ctx context.Context, batch []Move, _ bool) error {
			return a.copy(ctx, batch, lost)
		})
		if err != nil {
			return err
		}
	}
	if err := a.beforeDeleting(ctx, copied || lost); err != nil {
		return err
	}
	if _, begun := a.journal[Deleted]; !begun {
		// from here on, what is absent may have been moved
		if err := a.Files.Append(Record{Step: Deleted}); err != nil {
			return err
		}
	}
	err = a.each(ctx, Deleted, func(ctx context.Context, batch []Move, first bool) error {
		return a.delete(ctx, batch, lost || copied && first)
	})
	if err != nil {
		return err
	}
	return a.left(ctx)
}

// bytesBeside is what a store keeps with a key and its value, at least.
const bytesBeside = 64

// fits checks whether the stores have room for what is still to be copied.
func (a *applier) fits(ctx context.Context) error {
	done, moves := a.journal[Copied].Moves, int64(0)
	needs := map[string]int64{}
	for m, err := range a.Plan.Moves() {
		if err != nil {
			return err
		}
		if moves++; moves > done {
			needs[m.To] += int64(len(m.Key) + m.Bytes + bytesBeside)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		if room, known := a.Stores[name].Room(ctx); known && room < needs[name] {
			return fmt.Errorf("store %s: %w: %d bytes, and it takes %d more", name, ErrNoRoom, needs[name],
				max(room, 0))
		}
	}
	return nil
}

// each does a step for every batch for which the journal does not record it.
func (a *applier) each(ctx context.Context, step Step,
	do func(ctx context.Context, batch []Move, first bool) error) error {
	done, moves := a.journal[step].Moves, int64(0)
	first := true
	for batch, err := range batches(a.Plan.Moves()) {
		if err != nil {
			return err
		}
		moves += int64(len(batch))
		if step == Deleted {
			a.result.Moved += int64(len(batch))
		}
		if moves <= done {
			continue
		}
		if err := do(ctx, batch, first); err != nil {
			return err
		}
		first = false
		if err := a.Files.Append(Record{Step: step, Moves: moves}); err != nil {
			return err
		}
		a.progress(step, moves)
	}
	return a.Files.Append(Record{Step: step, Moves: moves, All: true})
}

// walk plans again and hands each planned move and each move of now that are about the same key to visit, in order; one
// of them is nil where there is no other.
func (a *applier) walk(ctx context.Context, keysOnly bool, visit func(planned, now *Move)) error {
	next, stop := iter.Pull2(a.Plan.Moves())
	defer stop()
	planned, err, more := next()
	p := newPlanner(a.Map, a.Stores, a.Plan.Header.Options, func(now Move) error {
		for err == nil && more && compareMoves(planned, now) < 0 {
			visit(&planned, nil)
			planned, err, more = next()
		}
		if err != nil {
			return err
		}
		if !more || compareMoves(planned, now) > 0 {
			visit(nil, &now)
			return nil
		}
		visit(&planned, &now)
		planned, err, more = next()
		return err
	})
	revisions := map[string]int64{}
	for name := range a.Stores {
		var err error
		if revisions[name], err = p.revision(ctx, name); err != nil {
			return err
		}
	}
	if err := p.stores(ctx, revisions, keysOnly); err != nil {
		return err
	}
	for err == nil && more {
		visit(&planned, nil)
		planned, err, more = next()
	}
	return err
}

// unchanged plans again and compares: nothing may have been written, added or deleted since. Keys with a lease
// may have expired.
func (a *applier) unchanged(ctx context.Context) error {
	var d differences
	err := a.walk(ctx, false, func(planned, now *Move) {
		switch {
		case now != nil && now.Conflict != "":
			d.add(now.Key, "%s", now.Conflict)
		default:
			d.compare(planned, now)
		}
	})
	if err != nil {
		return err
	}
	return d.err("stop the API servers, then make a new plan")
}

// beforeDeleting checks once more whether anything was written since the plan. Missing keys may have been deleted by an
// earlier run: these are read one by one.
func (a *applier) beforeDeleting(ctx context.Context, begun bool) error {
	var d differences
	err := a.walk(ctx, true, func(planned, now *Move) {
		if now != nil || !begun {
			d.compare(planned, now)
		}
	})
	if err != nil {
		return err
	}
	return d.err("nothing more is deleted")
}

func (d *differences) compare(planned, now *Move) {
	switch {
	case planned == nil:
		d.add(now.Key, "is new in store %s", now.From)
	case now == nil && !planned.Leased:
		d.add(planned.Key, "is gone from store %s", planned.From)
	case now != nil && (planned.ModRevision != now.ModRevision || planned.To != now.To):
		d.add(now.Key, "was at revision %d of store %s, is at %d", planned.ModRevision, planned.From, now.ModRevision)
	}
}

// left checks at the end whether keys have to be moved again.
func (a *applier) left(ctx context.Context) error {
	var d differences
	err := a.walk(ctx, true, func(_, now *Move) {
		if now != nil {
			d.add(now.Key, "was written in store %s meanwhile", now.From)
		}
	})
	a.result.Left, a.result.LeftKeys = d.n, d.named
	return err
}

// saved reads every key of the plan for the backup.
func (a *applier) saved(ctx context.Context) iter.Seq2[SavedKey, error] {
	return func(yield func(SavedKey, error) bool) {
		moves := int64(0)
		for batch, err := range batches(a.Plan.Moves()) {
			if err != nil {
				yield(SavedKey{}, err)
				return
			}
			entries, err := a.Stores[batch[0].From].Read(ctx, keysOf(batch))
			if err != nil {
				yield(SavedKey{}, fmt.Errorf("store %s: %w", batch[0].From, err))
				return
			}
			for i, e := range entries {
				switch {
				case e == nil && batch[i].Leased:
				case e == nil || e.ModRevision != batch[i].ModRevision:
					yield(SavedKey{}, (&keyPair{Move: batch[i]}).fail("was written in store %s while it was saved",
						batch[i].From))
					return
				case !yield(SavedKey{batch[i].From, *e}, nil):
					return
				}
			}
			moves += int64(len(batch))
			a.progress(Saved, moves)
		}
	}
}

// rounds of a batch: the second is for what a lost answer hides, for a lease that ends at the wrong moment, and for a
// server that was not stopped. What it finds is then compared.
const rounds = 4

// copy creates the keys that their new store lacks, and reads all back.
func (a *applier) copy(ctx context.Context, batch []Move, lost bool) error {
	for range rounds {
		pairs, err := a.read(ctx, batch)
		if err != nil {
			return err
		}
		missing, err := a.missing(ctx, pairs, lost)
		if err != nil || len(missing) == 0 {
			return err
		}
		switch created, err := a.Stores[batch[0].To].Create(ctx, missing); {
		case errors.Is(err, ErrLeaseGone):
			clear(a.leases)
		case err != nil:
			return fmt.Errorf("store %s: creating %d keys from %s on: %w", batch[0].To, len(missing),
				storage.Printable(string(missing[0].Key)), err)
		case created:
			same, err := a.readBack(ctx, batch[0].To, missing)
			if err != nil || same {
				return err
			}
		}
	}
	return fmt.Errorf("store %s: the keys from %s on do not stay: %w", batch[0].To, storage.Printable(batch[0].Key),
		ErrChanged)
}

// readBack reports whether a store holds the entries.
func (a *applier) readBack(ctx context.Context, store string, entries []etcd.Entry) (bool, error) {
	keys := make([]string, len(entries))
	for i := range entries {
		keys[i] = string(entries[i].Key)
	}
	read, err := a.Stores[store].Read(ctx, keys)
	if err != nil {
		return false, fmt.Errorf("store %s: reading back: %w", store, err)
	}
	for i, e := range read {
		if e == nil || !bytes.Equal(e.Value, entries[i].Value) || e.Lease != entries[i].Lease {
			return false, nil
		}
	}
	return true, nil
}

// missing lists what is to be created, after checking that everything else is as it should be.
func (a *applier) missing(ctx context.Context, pairs []keyPair, lost bool) ([]etcd.Entry, error) {
	var missing []etcd.Entry
	for _, p := range pairs {
		switch {
		case p.from == nil && (p.Leased || lost && p.to != nil):
			continue // its lease expired, or an earlier run has deleted it
		case p.from == nil && p.to != nil:
			return nil, p.fail("was deleted in store %s while it was copied; its copy is in store %s", p.From, p.To)
		case p.from == nil:
			return nil, p.fail("is in neither store; its last value is in the backup")
		case p.from.ModRevision != p.ModRevision:
			return nil, p.fail("was at revision %d of store %s, is at %d", p.ModRevision, p.From, p.from.ModRevision)
		case p.to != nil && !bytes.Equal(p.from.Value, p.to.Value):
			return nil, p.fail("stores %s and %s hold different objects under it", p.From, p.To)
		case p.to != nil:
			if problem, err := a.lasts(ctx, p); err != nil || problem != "" {
				return nil, cmp.Or(err, p.fail("%s", problem))
			}
			continue
		}
		lease, alive, err := a.lease(ctx, leaseAt{p.From, p.To, p.from.Lease})
		if err != nil {
			return nil, err
		}
		if alive {
			missing = append(missing, etcd.Entry{Key: p.from.Key, Value: p.from.Value, Lease: lease})
		}
	}
	return missing, nil
}

// delete deletes the keys in their old store, again only if their copies exist. begun says that an earlier run
// may have done it already.
func (a *applier) delete(ctx context.Context, batch []Move, begun bool) error {
	for range rounds {
		pairs, err := a.read(ctx, batch)
		if err != nil {
			return err
		}
		doomed, expired, err := a.doomed(ctx, pairs, begun)
		if err != nil {
			return err
		}
		deleted := len(doomed) == 0
		if !deleted {
			if deleted, err = a.Stores[batch[0].From].Delete(ctx, doomed); err != nil {
				return fmt.Errorf("store %s: deleting %d keys from %s on: %w", batch[0].From, len(doomed),
					storage.Printable(doomed[0].Key), err)
			}
		}
		if deleted {
			a.result.Moved -= expired
			a.result.Expired += expired
			return nil
		}
		begun = true // if the response was lost
	}
	return fmt.Errorf("store %s: the keys from %s on come back: %w", batch[0].From, storage.Printable(batch[0].Key),
		ErrChanged)
}

// doomed lists what is to be deleted, and counts what has expired.
func (a *applier) doomed(ctx context.Context, pairs []keyPair, begun bool) (doomed []KeyAt, expired int64, err error) {
	for _, p := range pairs {
		switch {
		case p.from == nil && (p.Leased || begun && p.to != nil):
			if p.to == nil {
				expired++
			}
		case p.from == nil && p.to != nil:
			return nil, 0, p.fail("was deleted in store %s after it was copied; its copy is in store %s", p.From, p.To)
		case p.from == nil:
			return nil, 0, p.fail("is in neither store; its last value is in the backup")
		case p.from.ModRevision != p.ModRevision:
			return nil, 0, p.fail("was at revision %d of store %s, is at %d", p.ModRevision, p.From, p.from.ModRevision)
		case p.to == nil && p.Leased:
			// Its copy's lease expired first, by a second or so; if not, another client has deleted the copy.
			seconds, err := a.Stores[p.To].TimeToLive(ctx, a.leaseID(leaseAt{p.From, p.To, p.from.Lease}))
			if err != nil {
				return nil, 0, fmt.Errorf("store %s: reading a lease: %w", p.To, err)
			}
			if seconds > 0 {
				return nil, 0, p.fail("its copy in store %s is gone", p.To)
			}
			expired++
			doomed = append(doomed, KeyAt{p.Key, p.ModRevision})
		case p.to == nil || !bytes.Equal(p.from.Value, p.to.Value):
			return nil, 0, p.fail("its copy in store %s is not what it was", p.To)
		default:
			if problem, err := a.lasts(ctx, p); err != nil || problem != "" {
				return nil, 0, cmp.Or(err, p.fail("%s", problem))
			}
			doomed = append(doomed, KeyAt{p.Key, p.ModRevision})
		}
	}
	return doomed, expired, nil
}
