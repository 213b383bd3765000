package move

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// Record is one line of the journal. Records only make a repeated run faster: the stores and the backup hold what they
// record.
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
	Compared Step = "compared" // by Undo with what it would bring back; not in the journal
	Restored Step = "restored" // by Undo
)

// SavedKey is a key in the backup, which holds every key before anything is changed.
type SavedKey struct {
	Store string     `json:"store"`
	Entry etcd.Entry `json:"entry"`
}

// Files is where a run keeps what must survive it.
type Files interface {
	// Journal returns the records of earlier runs, oldest first; a last one that was cut off is left out.
	Journal() ([]Record, error)
	// Append adds a record to the journal, and returns when it is on the disk.
	Append(Record) error
	// Saved reports whether there is a backup of this plan.
	Saved() (bool, error)
	// SaveBackup writes the keys, whole or not at all, and returns when they are on the disk.
	SaveBackup(keys iter.Seq2[SavedKey, error]) error
	// Backup reads the keys back, in the order in which they were saved. Its end is an error when it is not whole.
	Backup() iter.Seq2[SavedKey, error]
}

// Progress is called after each batch, with how many moves of the plan the step is done for.
type Progress func(step Step, moves int64)

// Result counts what happened.
type Result struct {
	// of Apply: deleted where they came from, after their copies were read back; of Undo: brought back
	Moved   int64 `json:"moved"`
	Expired int64 `json:"expired"` // leases that ended meanwhile
	// NotBegun: Undo found nothing to restore: every key is where the plan found it, and there is no
	// backup.
	NotBegun bool `json:"notBegun,omitempty"`
	// Recreated are keys that Undo has from the backup alone: they were deleted in their new store after the move.
	Recreated int64 `json:"recreated,omitempty"`
	// Full are stores that were too full to be locked, and in which Undo has deleted copies all the same.
	Full []string `json:"full,omitempty"`
	// Left are keys that were written to the wrong store while Apply was running, and that it has not changed.
	Left     int64    `json:"left,omitempty"`
	LeftKeys []string `json:"leftKeys,omitempty"` // the first of them, and what is about them
}

// ErrChanged is wrapped when the stores are not as the plan found them: a client still writes to them.
var ErrChanged = errors.New("changed since the plan was made")

// ErrOtherStores is wrapped when a plan is of other etcd clusters than those that were given, or of a state
// that one of them has forgotten: it was restored.
var ErrOtherStores = errors.New("the plan was made for another etcd")

const (
	batchKeys  = 100     // of a transaction, beside the lock; a server takes 128 operations by default
	batchBytes = 1 << 19 // of values in a transaction; a server takes 1.5 MiB by default
	named      = 10      // keys that an error names
)

// Job is a plan and what it is to be done with.
type Job struct {
	Map      *pair.Map
	Stores   map[string]Store
	Plan     Plan
	Files    Files
	Run      string // identifies the runs of one journal
	By       string // for people: what runs where
	Progress Progress
}

// applier is a job that runs.
type applier struct {
	Job
	leases  map[leaseAt]int64
	full    map[string]bool // stores without a lock
	journal map[Step]Record
	result  Result
}

// leaseAt is a lease of one store that is to be kept in another.
type leaseAt struct {
	from, to string
	id       int64
}

// start refuses a plan that cannot be done whole, reads the journal and locks the stores. With deleting, full stores
// need no lock.
func start(ctx context.Context, job Job, deleting bool) (a *applier, release func(), err error) {
	a = &applier{Job: job, leases: map[leaseAt]int64{}, full: map[string]bool{}, journal: map[Step]Record{}}
	if err := a.check(ctx); err != nil {
		return nil, nil, err
	}
	records, err := a.Files.Journal()
	if err != nil {
		return nil, nil, err
	}
	for _, r := range records {
		a.journal[r.Step] = r
	}
	release, err = a.lock(ctx, deleting)
	return a, release, err
}

// lock takes the locks of all stores of the plan. One etcd under two names is found out here for certain.
//
// With deleting, one that is full may go without, for it takes deletions only: each is done at the revision that was
// read and at no other, nothing that an earlier run has sent can be created there, and whatever else is changed is
// changed in a store with a lock.
func (a *applier) lock(ctx context.Context, deleting bool) (release func(), err error) {
	var releases []func(context.Context) error
	release = func() {
		for _, r := range releases {
			_ = r(context.WithoutCancel(ctx)) // what remains of it expires
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.Plan.Header.Clusters)) {
		r, err := a.Stores[name].Lock(ctx, a.Plan.Header.Prefix+LockKey, Owner{Run: a.Run, Store: name, By: a.By})
		var locked *LockedError
		switch {
		case errors.As(err, &locked) && locked.Run == a.Run && locked.Store != name:
			err = fmt.Errorf("stores %s and %s are one and the same etcd: each key would be its own copy, and "+
				"deleted", locked.Store, name)
		case err != nil:
			err = fmt.Errorf("store %s: locking: %w", name, err)
		default:
			releases = append(releases, r)
			continue
		}
		if deleting && errors.Is(err, ErrFull) && len(a.full) < len(a.Plan.Header.Clusters)-1 {
			a.full[name] = true
			a.result.Full = append(a.result.Full, name)
			continue
		}
		release()
		return nil, err
	}
	return release, nil
}

// check refuses plans that cannot be applied whole, and plans for other stores.
func (a *applier) check(ctx context.Context) error {
	if a.Plan.Header.Schema != Schema {
		return fmt.Errorf("schema %q: want %q", a.Plan.Header.Schema, Schema)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Plan.Header.Clusters)) {
		if a.Stores[name] == nil {
			return fmt.Errorf("store %q of the plan must be given", name)
		}
		cluster, err := a.Stores[name].Cluster(ctx)
		if err != nil {
			return fmt.Errorf("store %s: reading its id: %w", name, err)
		}
		planned := witness.Sight{Cluster: a.Plan.Header.Clusters[name], Revision: a.Plan.Header.Revisions[name]}
		now := witness.Sight{Cluster: cluster}
		if now.Revision, err = etcd.NewestRevision(ctx, a.Stores[name], a.Plan.Header.Prefix+"/"); err != nil {
			return fmt.Errorf("store %s: %w", name, err)
		}
		if why := planned.Changes(&now); len(why) > 0 {
			return fmt.Errorf("store %s: %w: %s", name, ErrOtherStores, strings.Join(why, "; "))
		}
	}
	conflicts := differences{}
	last := Move{}
	for move, err := range a.Plan.Moves() {
		if err != nil {
			return err
		}
		if a.Plan.Header.Clusters[move.From] == "" || a.Plan.Header.Clusters[move.To] == "" || move.From == move.To {
			return fmt.Errorf("%s: moves from store %q to %q: want two stores of the plan",
				storage.Printable(move.Key), move.From, move.To)
		}
		if last.Key != "" && compareMoves(last, move) >= 0 {
			return fmt.Errorf("%s: the plan is not in order, or names the key twice", storage.Printable(move.Key))
		}
		last = move
		if move.Conflict != "" {
			conflicts.add(move.Key, "%s", move.Conflict)
		}
	}
	if conflicts.n > 0 {
		return fmt.Errorf("%d keys cannot be moved; delete or rename one object of each, then make a new plan:%s",
			conflicts.n, conflicts.list())
	}
	return nil
}

// differences are keys that are not as they should be; the first of them are named.
type differences struct {
	n     int64
	named []string
}

func (d *differences) add(key, format string, args ...any) {
	if d.n++; d.n <= named {
		d.named = append(d.named, storage.Printable(key)+": "+fmt.Sprintf(format, args...))
	}
}

func (d *differences) list() string {
	list := "\n  " + strings.Join(d.named, "\n  ")
	if d.n > named {
		list += fmt.Sprintf("\n  and %d more", d.n-named)
	}
	return list
}

func (d *differences) err(way string) error {
	if d.n == 0 {
		return nil
	}
	return fmt.Errorf("%d keys: %w; %s:%s", d.n, ErrChanged, way, d.list())
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
			if len(batch) > 0 && (len(batch) == batchKeys || size+move.Bytes > batchBytes ||
				move.From != batch[0].From || move.To != batch[0].To) {
				if !yield(batch, nil) {
					return
				}
				batch, size = nil, 0
			}
			batch = append(batch, move)
			size += move.Bytes + 3*len(move.Key) // in the guard and in the operation; and some of it is not text
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

// keyPair is a key in both stores; nil where it is absent.
type keyPair struct {
	Move
	from, to *etcd.Entry
}

// fail is an error about a pair.
func (p *keyPair) fail(format string, args ...any) error {
	return fmt.Errorf("%s: %s: %w", storage.Printable(p.Key), fmt.Sprintf(format, args...), ErrChanged)
}

// read reads a batch in both stores.
func (a *applier) read(ctx context.Context, batch []Move) ([]keyPair, error) {
	from, err := a.Stores[batch[0].From].Read(ctx, keysOf(batch))
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", batch[0].From, err)
	}
	to, err := a.Stores[batch[0].To].Read(ctx, keysOf(batch))
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", batch[0].To, err)
	}
	pairs := make([]keyPair, len(batch))
	for i, move := range batch {
		pairs[i] = keyPair{move, from[i], to[i]}
	}
	return pairs, nil
}

func (a *applier) progress(step Step, moves int64) {
	if a.Progress != nil {
		a.Progress(step, moves)
	}
}
