package move

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
)

// Record is one line of the journal. Records only speed a repetition up: what they claim is in the stores.
type Record struct {
	Step  Step  `json:"step"`
	Moves int64 `json:"moves"` // of the plan, from its start, for which the step is done
	All   bool  `json:"all,omitempty"`
}

// Step is what is done with each key in turn; a step begins when the one before is done with all keys.
type Step string

// The steps of Apply and Undo, in order.
const (
	Saved    Step = "saved"    // in the backup
	Copied   Step = "copied"   // and read back
	Deleted  Step = "deleted"  // where they came from
	Restored Step = "restored" // by Undo
)

// Saved keys are in a backup before anything is changed.
type SavedKey struct {
	Store string          `json:"store"`
	Entry etcdsplit.Entry `json:"entry"`
}

// Files is where a run keeps what must survive it.
type Files interface {
	// Journal returns the records of the runs before, oldest first; a last one that was cut off is left out.
	Journal() ([]Record, error)
	// Append adds a record to the journal, and returns when it is on the disk.
	Append(Record) error
	// SaveBackup writes the keys, whole or not at all.
	SaveBackup(keys iter.Seq2[SavedKey, error]) error
	// Backup reads the keys back, in the order in which they were saved.
	Backup() iter.Seq2[SavedKey, error]
}

// Progress is called after each batch, with how many moves of the plan the step is done for.
type Progress func(step Step, moves int64)

// Result counts what happened.
type Result struct {
	Moved   int64 `json:"moved"`   // deleted where they came from, after their copies were read back
	Expired int64 `json:"expired"` // leases that ended meanwhile
}

// ErrChanged is wrapped when the stores are not as the plan found them: something still writes to them.
var ErrChanged = errors.New("changed since the plan was made")

const (
	batchKeys  = 64      // of a transaction; a server takes 128 operations by default
	batchBytes = 1 << 19 // of values in a transaction; a server takes 1.5 MiB by default
)

// Apply does the moves of a plan: it saves all keys in a backup, copies them, and when every copy was read back, deletes
// them where they came from. Run again after it was killed, it goes on. The API servers must not write to these resources
// meanwhile; Apply checks by revision that they have not, before it begins and at every key.
// Errors: ErrChanged, wrapped, names the keys; a plan with conflicts; a store that fails. What is done stays done.
func Apply(ctx context.Context, m *etcdsplit.Map, stores map[string]Store, plan Plan, files Files, progress Progress) (Result, error) {
	a := applier{stores: stores, plan: plan, files: files, progress: progress, leases: map[leaseAt]int64{}}
	journal, err := files.Journal()
	if err != nil {
		return a.result, err
	}
	if err := a.check(plan); err != nil {
		return a.result, err
	}
	done := map[Step]Record{}
	for _, r := range journal {
		done[r.Step] = r
	}
	if _, undone := done[Restored]; undone {
		return a.result, errors.New("applying: this plan was undone: make a new one")
	}
	if !done[Saved].All {
		if err := a.unchanged(ctx, m); err != nil {
			return a.result, err
		}
		if err := files.SaveBackup(a.saved(ctx)); err != nil {
			return a.result, fmt.Errorf("writing the backup: %w", err)
		}
		if err := files.Append(Record{Step: Saved, All: true}); err != nil {
			return a.result, err
		}
	}
	for _, step := range []struct {
		name Step
		do   func(context.Context, []Move) error
	}{{Copied, a.copy}, {Deleted, a.delete}} {
		if done[step.name].All {
			continue
		}
		if err := a.each(ctx, step.name, done[step.name].Moves, step.do); err != nil {
			return a.result, err
		}
	}
	return a.result, nil
}

type applier struct {
	stores   map[string]Store
	plan     Plan
	files    Files
	progress Progress
	leases   map[leaseAt]int64
	result   Result
}

// leaseAt is a lease of one store that is to be kept in another.
type leaseAt struct {
	from, to string
	id       int64
}

// check refuses plans that cannot be applied whole.
func (a *applier) check(plan Plan) error {
	if plan.Header.Schema != Schema {
		return fmt.Errorf("schema %q: want %q", plan.Header.Schema, Schema)
	}
	var conflicts []string
	n := 0
	last := Move{}
	for move, err := range plan.Moves() {
		if err != nil {
			return err
		}
		if a.stores[move.From] == nil || a.stores[move.To] == nil {
			return fmt.Errorf("%s: moves from store %q to %q: both must be given", move.Key, move.From, move.To)
		}
		if last.Key != "" && compareMoves(last, move) >= 0 {
			return fmt.Errorf("%s: the plan is not in order, or names the key twice", move.Key)
		}
		last = move
		if move.Conflict != "" {
			if n++; len(conflicts) < 10 {
				conflicts = append(conflicts, move.Key+": "+move.Conflict)
			}
		}
	}
	if n > 0 {
		return fmt.Errorf("%d keys cannot be moved; delete or rename one object of each, then make a new plan:\n  %s", n, strings.Join(conflicts, "\n  "))
	}
	return nil
}

// unchanged makes the plan again and compares: nothing may have been written, added or deleted since. Keys with a lease
// may have expired.
func (a *applier) unchanged(ctx context.Context, m *etcdsplit.Map) error {
	next, stop := iter.Pull2(a.plan.Moves())
	defer stop()
	var differences []string
	n := 0
	differ := func(format string, args ...any) {
		if n++; len(differences) < 10 {
			differences = append(differences, fmt.Sprintf(format, args...))
		}
	}
	planned, err, more := next()
	_, newErr := New(ctx, m, a.stores, a.plan.Header.Options, func(now Move) error {
		for err == nil && more && compareMoves(planned, now) < 0 {
			if !planned.Leased {
				differ("%s: is gone from store %s", planned.Key, planned.From)
			}
			planned, err, more = next()
		}
		switch {
		case err != nil:
			return err
		case !more || compareMoves(planned, now) > 0:
			differ("%s: is new in store %s", now.Key, now.From)
			return nil
		case planned.ModRevision != now.ModRevision || planned.To != now.To:
			differ("%s: was at revision %d of store %s, is at %d", now.Key, planned.ModRevision, planned.From, now.ModRevision)
		case now.Conflict != "":
			differ("%s: %s", now.Key, now.Conflict)
		}
		planned, err, more = next()
		return nil
	})
	for newErr == nil && err == nil && more {
		if !planned.Leased {
			differ("%s: is gone from store %s", planned.Key, planned.From)
		}
		planned, err, more = next()
	}
	if err := errors.Join(newErr, err); err != nil {
		return err
	}
	if n > 0 {
		return fmt.Errorf("%d keys: %w; stop the API servers' writes, then make a new plan:\n  %s", n, ErrChanged, strings.Join(differences, "\n  "))
	}
	return nil
}

// saved reads every key of the plan for the backup.
func (a *applier) saved(ctx context.Context) iter.Seq2[SavedKey, error] {
	return func(yield func(SavedKey, error) bool) {
		for batch, err := range batches(a.plan.Moves()) {
			if err != nil {
				yield(SavedKey{}, err)
				return
			}
			entries, err := a.stores[batch[0].From].Read(ctx, keysOf(batch))
			if err != nil {
				yield(SavedKey{}, fmt.Errorf("store %s: %w", batch[0].From, err))
				return
			}
			for i, e := range entries {
				switch {
				case e == nil && batch[i].Leased:
				case e == nil || e.ModRevision != batch[i].ModRevision:
					yield(SavedKey{}, fmt.Errorf("%s: %w", batch[i].Key, ErrChanged))
					return
				case !yield(SavedKey{batch[i].From, *e}, nil):
					return
				}
			}
		}
	}
}

// batches groups moves between the same stores, as many as fit a transaction.
func batches(moves iter.Seq2[Move, error]) iter.Seq2[[]Move, error] {
	return func(yield func([]Move, error) bool) {
		var batch []Move
		size := 0
		for move, err := range moves {
			if err != nil {
				yield(nil, err)
				return
			}
			if len(batch) > 0 && (len(batch) == batchKeys || size+move.Bytes > batchBytes || move.From != batch[0].From || move.To != batch[0].To) {
				if !yield(batch, nil) {
					return
				}
				batch, size = nil, 0
			}
			batch = append(batch, move)
			size += move.Bytes + len(move.Key)
		}
		if len(batch) > 0 {
			yield(batch, nil)
		}
	}
}

func keysOf(batch []Move) []string {
	keys := make([]string, len(batch))
	for i, move := range batch {
		keys[i] = move.Key
	}
	return keys
}

// each does a step for every batch that the journal does not say it is done for.
func (a *applier) each(ctx context.Context, step Step, done int64, do func(context.Context, []Move) error) error {
	var moves int64
	for batch, err := range batches(a.plan.Moves()) {
		if err != nil {
			return err
		}
		if moves += int64(len(batch)); moves <= done {
			continue
		}
		if err := do(ctx, batch); err != nil {
			return err
		}
		if err := a.files.Append(Record{Step: step, Moves: moves}); err != nil {
			return err
		}
		if a.progress != nil {
			a.progress(step, moves)
		}
	}
	return a.files.Append(Record{Step: step, Moves: moves, All: true})
}

// pair is a key in both stores.
type pair struct {
	Move
	from, to *etcdsplit.Entry
}

// read reads a batch in both stores.
func (a *applier) read(ctx context.Context, batch []Move) ([]pair, error) {
	from, err := a.stores[batch[0].From].Read(ctx, keysOf(batch))
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", batch[0].From, err)
	}
	to, err := a.stores[batch[0].To].Read(ctx, keysOf(batch))
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", batch[0].To, err)
	}
	pairs := make([]pair, len(batch))
	for i, move := range batch {
		pairs[i] = pair{move, from[i], to[i]}
	}
	return pairs, nil
}

// copy creates the keys that their new store lacks, and reads all back.
func (a *applier) copy(ctx context.Context, batch []Move) error {
	// The second round is for a copy that a lost answer hides: what was created is then found and compared.
	for range 3 {
		pairs, err := a.read(ctx, batch)
		if err != nil {
			return err
		}
		missing, err := a.missing(ctx, pairs)
		if err != nil || len(missing) == 0 {
			return err
		}
		if _, err := a.stores[batch[0].To].Create(ctx, missing); err != nil {
			return fmt.Errorf("store %s: creating %d keys from %q on: %w", batch[0].To, len(missing), missing[0].Key, err)
		}
	}
	return fmt.Errorf("store %s: the keys from %q on do not stay: %w", batch[0].To, batch[0].Key, ErrChanged)
}

// missing lists what is to be created, after checking that everything else is as it should be.
func (a *applier) missing(ctx context.Context, pairs []pair) ([]etcdsplit.Entry, error) {
	var missing []etcdsplit.Entry
	for _, p := range pairs {
		switch {
		case p.from == nil && (p.to != nil || p.Leased):
			continue // a run before has deleted it already, or its time was up
		case p.from == nil:
			return nil, fmt.Errorf("%s: is in neither store; its last value is in the backup: %w", p.Key, ErrChanged)
		case p.from.ModRevision != p.ModRevision:
			return nil, fmt.Errorf("%s: was at revision %d of store %s, is at %d: %w", p.Key, p.ModRevision, p.From, p.from.ModRevision, ErrChanged)
		case p.to != nil && !bytes.Equal(p.from.Value, p.to.Value):
			return nil, fmt.Errorf("%s: stores %s and %s hold different objects under it: %w", p.Key, p.From, p.To, ErrChanged)
		case p.to != nil:
			continue
		}
		lease, alive, err := a.lease(ctx, leaseAt{p.From, p.To, p.from.Lease})
		if err != nil {
			return nil, err
		}
		if alive {
			missing = append(missing, etcdsplit.Entry{Key: p.from.Key, Value: p.from.Value, Lease: lease})
		}
	}
	return missing, nil
}

// lease returns a lease of the new store that lasts as long as the old one still does. One that is granted and then not
// used, because the run is killed, ends by itself.
func (a *applier) lease(ctx context.Context, l leaseAt) (id int64, alive bool, err error) {
	if l.id == 0 {
		return 0, true, nil
	}
	if id, ok := a.leases[l]; ok {
		return id, true, nil
	}
	seconds, err := a.stores[l.from].TimeToLive(ctx, l.id)
	if err != nil {
		return 0, false, fmt.Errorf("store %s: reading the lease %x: %w", l.from, l.id, err)
	}
	if seconds <= 0 {
		return 0, false, nil
	}
	id, err = a.stores[l.to].Grant(ctx, seconds)
	if err != nil {
		return 0, false, fmt.Errorf("store %s: granting a lease of %d s: %w", l.to, seconds, err)
	}
	a.leases[l] = id
	return id, true, nil
}

// delete deletes the keys where they came from, once more only if their copies are there.
func (a *applier) delete(ctx context.Context, batch []Move) error {
	for range 3 {
		pairs, err := a.read(ctx, batch)
		if err != nil {
			return err
		}
		var doomed []KeyAt
		expired := int64(0)
		for _, p := range pairs {
			switch {
			case p.from == nil && (p.to != nil || p.Leased):
				if p.to == nil {
					expired++
				}
			case p.from == nil:
				return fmt.Errorf("%s: is in neither store; its last value is in the backup: %w", p.Key, ErrChanged)
			case p.from.ModRevision != p.ModRevision:
				return fmt.Errorf("%s: was at revision %d of store %s, is at %d: %w", p.Key, p.ModRevision, p.From, p.from.ModRevision, ErrChanged)
			case p.to == nil && p.Leased:
				expired++
				doomed = append(doomed, KeyAt{p.Key, p.ModRevision}) // its copy's time was up first, by a second or so
			case p.to == nil || !bytes.Equal(p.from.Value, p.to.Value):
				return fmt.Errorf("%s: its copy in store %s is not what it was: %w", p.Key, p.To, ErrChanged)
			default:
				doomed = append(doomed, KeyAt{p.Key, p.ModRevision})
			}
		}
		if len(doomed) == 0 {
			a.result.Moved += int64(len(batch)) - expired
			a.result.Expired += expired
			return nil
		}
		if _, err := a.stores[batch[0].From].Delete(ctx, doomed); err != nil {
			return fmt.Errorf("store %s: deleting %d keys from %q on: %w", batch[0].From, len(doomed), doomed[0].Key, err)
		}
	}
	return fmt.Errorf("store %s: the keys from %q on come back: %w", batch[0].From, batch[0].Key, ErrChanged)
}

// Undo brings back what Apply has moved, from the copies, or from the backup where these are gone. Copies that were changed
// since are not touched, and nothing is done when there is one. Run again after it was killed, it goes on.
// Errors: as of Apply.
func Undo(ctx context.Context, stores map[string]Store, plan Plan, files Files, progress Progress) (Result, error) {
	a := applier{stores: stores, plan: plan, files: files, progress: progress, leases: map[leaseAt]int64{}}
	journal, err := files.Journal()
	if err != nil {
		return a.result, err
	}
	if err := a.check(plan); err != nil {
		return a.result, err
	}
	if !slices.ContainsFunc(journal, func(r Record) bool { return r.Step == Saved && r.All }) {
		return a.result, errors.New("undoing: the journal says that nothing was changed yet")
	}
	if slices.ContainsFunc(journal, func(r Record) bool { return r.Step == Restored && r.All }) {
		return a.result, nil
	}
	// First look at everything, then change something.
	for _, change := range []bool{false, true} {
		next, stop := iter.Pull2(files.Backup())
		err := a.undo(ctx, next, change)
		stop()
		if err != nil {
			return a.result, err
		}
	}
	return a.result, files.Append(Record{Step: Restored, All: true})
}

// undo walks over plan and backup side by side.
func (a *applier) undo(ctx context.Context, next func() (SavedKey, error, bool), change bool) error {
	saved, err, more := next()
	var moves int64
	for batch, batchErr := range batches(a.plan.Moves()) {
		if err := errors.Join(batchErr, err); err != nil {
			return err
		}
		values := make([]*etcdsplit.Entry, len(batch))
		for i, move := range batch {
			if more && saved.Store == move.From && string(saved.Entry.Key) == move.Key {
				entry := saved.Entry
				values[i] = &entry
				if saved, err, more = next(); err != nil {
					return err
				}
			} else if !move.Leased {
				return fmt.Errorf("%s: is missing in the backup", move.Key)
			}
		}
		if change {
			if err := a.files.Append(Record{Step: Restored, Moves: moves}); err != nil {
				return err
			}
		}
		if err := a.restore(ctx, batch, values, change); err != nil {
			return err
		}
		if moves += int64(len(batch)); change && a.progress != nil {
			a.progress(Restored, moves)
		}
	}
	return nil
}

// restore brings one batch back: create where they came from what is missing there, read it back, and then delete the copies.
func (a *applier) restore(ctx context.Context, batch []Move, saved []*etcdsplit.Entry, change bool) error {
	for range 4 {
		pairs, err := a.read(ctx, batch)
		if err != nil {
			return err
		}
		var missing []etcdsplit.Entry
		var copies []KeyAt
		for i, p := range pairs {
			ours := p.to != nil && saved[i] != nil && bytes.Equal(p.to.Value, saved[i].Value) &&
				p.to.CreateRevision == p.to.ModRevision && p.to.CreateRevision > a.plan.Header.Revisions[p.To]
			switch {
			case saved[i] == nil: // its time was up before the backup was written
			case p.from != nil && ours:
				copies = append(copies, KeyAt{p.Key, p.to.ModRevision})
			case p.from != nil:
			case p.to != nil && !bytes.Equal(p.to.Value, saved[i].Value):
				return fmt.Errorf("%s: was written in store %s after it was moved: undo would lose that: %w", p.Key, p.To, ErrChanged)
			default:
				entry, ok, err := a.back(ctx, p, saved[i])
				if err != nil {
					return err
				}
				if ok {
					missing = append(missing, entry)
				}
			}
		}
		if !change || (len(missing) == 0 && len(copies) == 0) {
			if change {
				a.result.Moved += int64(len(batch))
			}
			return nil
		}
		if len(missing) > 0 {
			// The copies are deleted in a later round, when what was created here has been read back.
			if _, err := a.stores[batch[0].From].Create(ctx, missing); err != nil {
				return fmt.Errorf("store %s: creating %d keys from %q on: %w", batch[0].From, len(missing), missing[0].Key, err)
			}
			continue
		}
		if _, err := a.stores[batch[0].To].Delete(ctx, copies); err != nil {
			return fmt.Errorf("store %s: deleting %d copies from %q on: %w", batch[0].To, len(copies), copies[0].Key, err)
		}
	}
	return fmt.Errorf("stores %s and %s: the keys from %q on do not stay: %w", batch[0].From, batch[0].To, batch[0].Key, ErrChanged)
}

// back is the entry to create where the key came from; false when its lease has ended.
func (a *applier) back(ctx context.Context, p pair, saved *etcdsplit.Entry) (etcdsplit.Entry, bool, error) {
	entry := etcdsplit.Entry{Key: saved.Key, Value: saved.Value}
	if !p.Leased {
		return entry, true, nil
	}
	if p.to == nil || p.to.Lease == 0 {
		return entry, false, nil
	}
	lease, alive, err := a.lease(ctx, leaseAt{p.To, p.From, p.to.Lease})
	entry.Lease = lease
	return entry, alive, err
}
