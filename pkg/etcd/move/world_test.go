package move_test

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/move"
)

// errKilled stands for the end of the process.
var errKilled = errors.New("killed")

// world is two stores and a disk, and a counter of everything that is done to them: a run can be killed at any of it,
// either just before it takes effect or just after, when the answer is lost.
type world struct {
	stores map[string]*fakeStore
	disk   disk
	ops    int
	killAt int // 0: never
	after  bool
}

func (w *world) kill(effect func()) error {
	w.ops++
	switch {
	case w.killAt == 0 || w.ops < w.killAt:
		effect()
		return nil
	case w.ops == w.killAt && w.after:
		effect()
	}
	return errKilled
}

// fakeStore is an etcd in memory.
type fakeStore struct {
	w        *world
	cluster  string
	entries  map[string]etcd.Entry
	leases   map[int64]int64
	revision int64
	room     int64 // 0: it does not say
	full     bool
	sorted   []string // the keys; nil after one was added or deleted
}

// keys are all keys from one on, in order.
func (s *fakeStore) keys(from string) []string {
	if s.sorted == nil {
		s.sorted = slices.Sorted(maps.Keys(s.entries))
	}
	i, _ := slices.BinarySearch(s.sorted, from)
	return s.sorted[i:]
}

// clone is a world of its own.
func (w *world) clone() *world {
	c := *w
	c.stores = map[string]*fakeStore{}
	for name, s := range w.stores {
		store := *s
		store.w, store.entries, store.leases = &c, maps.Clone(s.entries), maps.Clone(s.leases)
		c.stores[name] = &store
	}
	c.disk.journal = slices.Clone(w.disk.journal)
	return &c
}

func newWorld() *world {
	w := &world{stores: map[string]*fakeStore{}}
	for i, name := range []string{"core", "modern"} {
		w.stores[name] = &fakeStore{w: w, cluster: "id of " + name, entries: map[string]etcd.Entry{},
			leases: map[int64]int64{}, revision: int64(100 * (i + 1))}
	}
	return w
}

// handle is what one run has of a store: a connection, and perhaps the lock.
type handle struct {
	*fakeStore
	lock int64 // its revision
}

func (w *world) asStores() map[string]move.Store {
	return map[string]move.Store{"core": &handle{fakeStore: w.stores["core"]},
		"modern": &handle{fakeStore: w.stores["modern"]}}
}

// job is a run of a plan in this world.
func (w *world) job(p move.Plan) move.Job {
	return move.Job{Map: ownership(), Stores: w.asStores(), Plan: p, Files: w, Run: "journal 1", By: "a test"}
}

const lockKey = "/registry/fusionctl-etcd-move"

func (s *fakeStore) Cluster(context.Context) (id string, err error) {
	err = s.w.kill(func() { id = s.cluster })
	return id, err
}

func (h *handle) Lock(_ context.Context, key string, owner move.Owner) (release func(context.Context) error,
	err error) {
	var locked error
	killed := h.w.kill(func() {
		if h.full {
			locked = move.ErrFull
			return
		}
		if e, ok := h.entries[key]; ok && string(e.Value) != owner.Run+" at "+owner.Store {
			run, store, _ := strings.Cut(string(e.Value), " at ")
			locked = &move.LockedError{Owner: move.Owner{Run: run, Store: store, By: "somebody"}, Seconds: 17}
			return
		}
		h.put(key, owner.Run+" at "+owner.Store, 0)
		h.lock = h.revision
	})
	if err := errors.Join(killed, locked); err != nil {
		return nil, err
	}
	return func(context.Context) error {
		return h.w.kill(func() {
			if h.entries[key].ModRevision == h.lock {
				h.remove(key)
			}
			h.lock = 0
		})
	}, nil
}

// locked fails unless the lock is this run's.
func (h *handle) locked() error {
	if h.lock == 0 || h.entries[lockKey].ModRevision != h.lock {
		return move.ErrLockLost
	}
	return nil
}

func (s *fakeStore) put(key, value string, lease int64) {
	s.revision++
	e := etcd.Entry{Key: []byte(key), Value: []byte(value), CreateRevision: s.revision, Lease: lease}
	if old, ok := s.entries[key]; ok {
		e.CreateRevision, e.Version = old.CreateRevision, old.Version
	}
	e.ModRevision, e.Version = s.revision, e.Version+1
	s.sorted = nil
	s.entries[key] = e
}

func (s *fakeStore) remove(key string) {
	delete(s.entries, key)
	s.sorted = nil
}

func (s *fakeStore) Page(_ context.Context, r etcd.Request) (page etcd.Page, err error) {
	err = s.w.kill(func() {
		page.Revision = s.revision
		for _, key := range s.keys(r.From) {
			if r.To != "" && key >= r.To {
				break
			}
			page.RangeKeys++
			if len(page.Entries) == r.LimitKeys {
				page.More = true
				continue
			}
			page.Entries = append(page.Entries, s.entries[key])
		}
	})
	return page, err
}

func (s *fakeStore) Read(_ context.Context, keys []string) (entries []*etcd.Entry, err error) {
	err = s.w.kill(func() {
		for _, key := range keys {
			if e, ok := s.entries[key]; ok {
				entries = append(entries, &e)
			} else {
				entries = append(entries, nil)
			}
		}
	})
	return entries, err
}

func (h *handle) Create(_ context.Context, entries []etcd.Entry) (created bool, err error) {
	killed := h.w.kill(func() {
		if err = h.locked(); err == nil && h.full {
			err = move.ErrFull
		}
		if err != nil {
			return
		}
		for _, e := range entries {
			if _, ok := h.entries[string(e.Key)]; ok {
				return
			}
			if _, ok := h.leases[e.Lease]; e.Lease != 0 && !ok {
				err = move.ErrLeaseGone
				return
			}
		}
		created = true
		for _, e := range entries {
			h.put(string(e.Key), string(e.Value), e.Lease)
		}
	})
	return created, errors.Join(killed, err)
}

func (h *handle) Delete(_ context.Context, keys []move.KeyAt) (deleted bool, err error) {
	killed := h.w.kill(func() {
		if err = h.locked(); err != nil && (!h.full || h.lock != 0) {
			return
		}
		err = nil
		for _, k := range keys {
			if h.entries[k.Key].ModRevision != k.ModRevision {
				return
			}
		}
		deleted = true
		h.revision++
		for _, k := range keys {
			h.remove(k.Key)
		}
	})
	return deleted, errors.Join(killed, err)
}

func (s *fakeStore) Room(context.Context) (int64, bool) { return s.room, s.room != 0 }

func (s *fakeStore) Grant(_ context.Context, id, seconds int64) (err error) {
	killed := s.w.kill(func() {
		if s.full {
			err = move.ErrFull
			return
		}
		if _, ok := s.leases[id]; !ok {
			s.leases[id] = seconds
		}
	})
	return errors.Join(killed, err)
}

// expire ends a lease.
func (s *fakeStore) expire(lease int64) {
	delete(s.leases, lease)
	for key, e := range s.entries {
		if e.Lease == lease {
			s.remove(key)
		}
	}
}

func (s *fakeStore) TimeToLive(_ context.Context, lease int64) (seconds int64, err error) {
	err = s.w.kill(func() { seconds = s.leases[lease] })
	return seconds, err
}

// disk holds the journal and the backup.
type disk struct {
	journal []move.Record
	backup  []move.SavedKey
}

func (w *world) Journal() ([]move.Record, error) { return w.disk.journal, nil }

func (w *world) Append(r move.Record) error {
	return w.kill(func() { w.disk.journal = append(w.disk.journal, r) })
}

func (w *world) Saved() (saved bool, err error) {
	return w.disk.backup != nil, nil
}

func (w *world) SaveBackup(keys iter.Seq2[move.SavedKey, error]) error {
	backup := []move.SavedKey{}
	for key, err := range keys {
		if err != nil {
			return err
		}
		backup = append(backup, key)
	}
	return w.kill(func() { w.disk.backup = backup })
}

func (w *world) Backup() iter.Seq2[move.SavedKey, error] {
	return func(yield func(move.SavedKey, error) bool) {
		for _, key := range w.disk.backup {
			if !yield(key, nil) {
				return
			}
		}
	}
}
