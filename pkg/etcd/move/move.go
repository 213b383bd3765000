// Package move moves keys between stores so that what they hold matches an ownership map: an existing shared store is
// split, or a mistake repaired. A plan lists the moves; Apply copies, verifies and then deletes; Undo brings everything
// back.
//
// Killed at any moment and run again, it loses nothing and leaves nothing twice: a key is created only where it is
// absent, deleted only when its copy was read back and it has not changed since the plan, and everything that decides
// is read from the stores. The journal records how far a run came, so that the next one need not read everything again.
//
// A run holds a lock in every store, and each of its writes is guarded by the lock: late writes of an earlier run, by a
// slow member, fail.
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
	"strings"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// Store is a live store that keys are moved from and to.
type Store interface {
	etcd.Pager
	// Cluster is the cluster id of the store's members.
	Cluster(ctx context.Context) (string, error)
	// Lock puts the lock under the key, and renews it until it is released or the process ends; from then on Create and
	// Delete fail, with ErrLockLost, unless it still exists. A lock of the same owner is taken over.
	// Errors: *LockedError when it is another's; ErrFull.
	Lock(ctx context.Context, key string, owner Owner) (release func(context.Context) error, err error)
	// Read reads keys at one revision, in their order; nil for a key that the store does not hold.
	Read(ctx context.Context, keys []string) ([]*etcd.Entry, error)
	// Create puts the entries with their leases, all of them, or none when one of the keys exists already.
	// Errors: ErrLeaseGone; ErrFull.
	Create(ctx context.Context, entries []etcd.Entry) (created bool, err error)
	// Delete deletes the keys, all of them, or none when one of them is not at its revision any more.
	Delete(ctx context.Context, keys []KeyAt) (deleted bool, err error)
	// Room is how many bytes may be written before the store is full; false when that is unknown.
	Room(ctx context.Context) (bytes int64, known bool)
	// Grant creates a lease of this id and TTL, unless there is one.
	Grant(ctx context.Context, lease, seconds int64) error
	// TimeToLive is how many seconds a lease still lasts, at most 0 when it has expired.
	TimeToLive(ctx context.Context, lease int64) (seconds int64, err error)
}

// Owner identifies the holder of a lock.
type Owner struct {
	Run   string `json:"run"`   // a journal's
	Store string `json:"store"` // for which the lock was taken
	By    string `json:"by"`    // for people: what runs where
}

// LockedError: another run holds the lock of a store.
type LockedError struct {
	Owner
	Seconds int64 // until it expires, unless that run renews it
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("another move is under way: %s; its lock ends %d s after it does", e.By, e.Seconds)
}

var (
	// ErrLeaseGone: a lease expired before its keys were created.
	ErrLeaseGone = errors.New("the lease has ended")
	// ErrFull: a store accepts no writes but deletions.
	ErrFull = errors.New("the store is full")
	// ErrNoRoom: a store would be full before everything is copied to it.
	ErrNoRoom = errors.New("there is no room for what is moved there")
	// ErrLockLost: the lock expired or is another run's: this run could not reach the store for too long.
	ErrLockLost = errors.New("the lock was lost; run it again")
)

// LockKey is the lock's key below the prefix. No API server reads it.
const LockKey = "/fusionctl-etcd-move"

// KeyAt is a key at a revision.
type KeyAt struct {
	Key         string
	ModRevision int64
}

// Move is one key that lies in a store where its owner does not keep it.
type Move struct {
	Key         string `json:"key"` // whole
	From        string `json:"from"`
	To          string `json:"to"`
	ModRevision int64  `json:"modRevision"` // in From
	Bytes       int    `json:"bytes"`       // of the value
	Leased      bool   `json:"leased,omitempty"`
	Encryption  string `json:"encryption,omitempty"` // provider and key of an encrypted value: "aescbc:key1"
	// Conflict is why the key cannot be moved: To holds another object under it, or the same with another lease.
	Conflict string `json:"conflict,omitempty"`
}

func compareMoves(a, b Move) int {
	return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Key, b.Key))
}

// Header describes a plan.
type Header struct {
	Schema    string            `json:"schema"` // fusionctl/etcd-move/v1
	Prefix    string            `json:"prefix"`
	Clusters  map[string]string `json:"clusters"`  // the stores' own ids
	Revisions map[string]int64  `json:"revisions"` // of the stores, at planning
	Options   Options           `json:"options"`
}

// Schema names the format of a plan.
const Schema = "fusionctl/etcd-move/v1"

// Options restrict what is planned. The zero value plans whatever lies where its owner does not keep it.
type Options struct {
	Resources []string `json:"resources,omitempty"` // parts of keys: "deployments", "kubeflow.org/notebooks"
	// From and To, given together with Resources, move these resources from one store to the other whatever the map
	// has: for resources that both sides own, where the map does not decide whose a key is.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// Plan is a plan that may be read several times, in the order of From and Key.
type Plan struct {
	Header Header
	ID     string // identifies the plan
	Moves  func() iter.Seq2[Move, error]
}

// New reads the stores and calls emit with every move, in order. What an API server writes at its start stays where it
// is, and so is what belongs in several stores. A store that is compacted meanwhile is read on at a newer
// revision: Apply reads everything again. Errors: a store cannot be read; options name what does not exist; emit's
// own.
func New(ctx context.Context, m *pair.Map, stores map[string]Store, options Options, emit func(Move) error) (
	Header, error) {
	header := Header{Schema: Schema, Prefix: storage.NormalPrefix(m.Prefix), Clusters: map[string]string{},
		Revisions: map[string]int64{}, Options: options}
	if err := options.validate(m, stores); err != nil {
		return header, err
	}
	p := newPlanner(m, stores, options, emit)
	for _, name := range slices.Sorted(maps.Keys(stores)) {
		cluster, err := stores[name].Cluster(ctx)
		if err != nil {
			return header, fmt.Errorf("store %s: reading its id: %w", name, err)
		}
		header.Clusters[name] = cluster
		if header.Revisions[name], err = p.revision(ctx, name); err != nil {
			return header, err
		}
	}
	return header, p.stores(ctx, header.Revisions, false)
}

// ResolveResources turns names of resources into their parts of keys: "services" into "services/specs". Custom
// resources are named by group and plural, "kubeflow.org/notebooks". Errors: neither version has a resource of the
// name.
func ResolveResources(m *pair.Map, names []string) ([]string, error) {
	var parts []string
	for _, name := range names {
		part := ""
		for i := range m.Resources {
			r := &m.Resources[i]
			switch first, _, _ := strings.Cut(r.Key, "/"); {
			case r.Key == name, first == name && first == "ranges":
				part = name
			case part == "" && (r.Name == name || storage.PlainName(r.Key) == name):
				part = r.Key
			}
		}
		if group, _, ok := strings.Cut(name, "/"); part == "" && ok && strings.Contains(group, ".") {
			part = name
		}
		if part == "" {
			return nil, fmt.Errorf("resource %q: neither version has one of this name", name)
		}
		parts = append(parts, part)
	}
	return parts, nil
}

func (o *Options) validate(m *pair.Map, stores map[string]Store) error {
	if (o.From == "") != (o.To == "") {
		return errors.New("from and to: want both or neither")
	}
	if o.From != "" && len(o.Resources) == 0 {
		return errors.New("from and to: want the resources to move as well")
	}
	if o.From != "" && o.From == o.To {
		return fmt.Errorf("from and to: both are %q", o.From)
	}
	for _, name := range []string{o.From, o.To} {
		if _, ok := stores[name]; name != "" && !ok {
			return fmt.Errorf("store %q: want one of %q", name, m.Stores)
		}
	}
	return nil
}

// planner turns pages of the stores into moves.
type planner struct {
	m          *pair.Map
	classifier *storage.Classifier
	byName     map[string]Store
	options    Options
	keysOnly   bool
	from       string
	emit       func(Move) error
}

func newPlanner(m *pair.Map, stores map[string]Store, options Options, emit func(Move) error) *planner {
	return &planner{m: m, classifier: storage.NewClassifier(m), byName: stores, options: options, emit: emit}
}

// revision reads the newest revision of a store.
func (p *planner) revision(ctx context.Context, store string) (int64, error) {
	newest, err := etcd.NewestRevision(ctx, p.byName[store], storage.NormalPrefix(p.m.Prefix)+"/")
	if err != nil {
		return 0, fmt.Errorf("store %s: %w", store, err)
	}
	return newest, nil
}

// stores plans all stores, each from its revision on. Without values only conflicts about what API servers write by
// themselves are looked for: these decide whether there is a move.
func (p *planner) stores(ctx context.Context, revisions map[string]int64, keysOnly bool) error {
	p.keysOnly = keysOnly
	for _, name := range slices.Sorted(maps.Keys(p.byName)) {
		p.from = name
		if err := p.store(ctx, revisions[name]); err != nil {
			return fmt.Errorf("store %s: planning: %w", name, err)
		}
	}
	return nil
}

func (p *planner) store(ctx context.Context, revision int64) error {
	prefix := storage.NormalPrefix(p.m.Prefix) + "/"
	r := etcd.Request{From: prefix, To: prefix[:len(prefix)-1] + "0", Revision: revision, KeysOnly: p.keysOnly}
	for failed := 0; ; failed++ {
		err := etcd.Pages(ctx, p.byName[p.from], r, etcd.Limits{}, func(page etcd.Page) error {
			if err := p.page(ctx, page); err != nil {
				return err
			}
			if n := len(page.Entries); n > 0 {
				r.From, failed = string(page.Entries[n-1].Key)+"\x00", 0
			}
			return nil
		})
		if !errors.Is(err, etcd.ErrCompacted) || failed == etcd.MostCompactions {
			return err
		}
		if r.Revision, err = p.revision(ctx, p.from); err != nil {
			return err
		}
	}
}

// page emits the moves of one page, after looking whether their destinations are free.
func (p *planner) page(ctx context.Context, page etcd.Page) error {
	var moves []Move
	doubtful := map[string][]string{} // by destination: what to read there
	entries := map[string]*etcd.Entry{}
	for i := range page.Entries {
		e := &page.Entries[i]
		key := string(e.Key)
		to := p.destination(p.classifier.Classify(key), key)
		if to == "" {
			continue
		}
		moves = append(moves, Move{Key: key, From: p.from, To: to, ModRevision: e.ModRevision, Bytes: len(e.Value),
			Leased: e.Lease != 0, Encryption: encryption(e.Value)})
		if !p.keysOnly || p.atStart(key, to) {
			doubtful[to] = append(doubtful[to], key)
			entries[key] = e
		}
	}
	taken := map[string]string{}
	for to, keys := range doubtful {
		if err := p.compare(ctx, to, keys, entries, taken); err != nil {
			return err
		}
	}
	for _, move := range moves {
		// What the other API server has written by itself already need not be moved.
		if move.Conflict = taken[move.Key]; move.Conflict != "" && p.atStart(move.Key, move.To) {
			continue
		}
		if err := p.emit(move); err != nil {
			return err
		}
	}
	return nil
}

// compare notes the keys under which their destination holds something else.
func (p *planner) compare(ctx context.Context, to string, keys []string, entries map[string]*etcd.Entry,
	taken map[string]string) error {
	for chunk := range slices.Chunk(keys, batchKeys) {
		others, err := p.byName[to].Read(ctx, chunk)
		if err != nil {
			return fmt.Errorf("store %s: %w", to, err)
		}
		if p.keysOnly {
			read, err := p.byName[p.from].Read(ctx, chunk)
			if err != nil {
				return fmt.Errorf("store %s: %w", p.from, err)
			}
			for i, e := range read {
				if e != nil {
					entries[chunk[i]] = e
				}
			}
		}
		for i, other := range others {
			switch mine := entries[chunk[i]]; {
			case other == nil:
			case !bytes.Equal(other.Value, mine.Value):
				taken[chunk[i]] = fmt.Sprintf("store %s holds another object under this key", to)
			default:
				if taken[chunk[i]],
					err = lasts(ctx, p.byName, keyPair{Move{From: p.from, To: to}, mine, other}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// encryption is the provider and the name of the key of an encrypted value, "" of others.
func encryption(value []byte) string {
	if !bytes.HasPrefix(value, []byte("k8s:enc:")) {
		return ""
	}
	e, _ := storage.ReadEnvelope(value) // one that is cut off is moved as it is
	return string(e.Provider) + ":" + string(e.KeyName)
}

// destination is where the key belongs, "" when it stays.
func (p *planner) destination(k storage.Key, key string) string {
	if k.Form != storage.FormObject && k.Form != storage.FormGrouped && k.Form != storage.FormThirdParty {
		return ""
	}
	if len(p.options.Resources) > 0 && !slices.Contains(p.options.Resources, k.Resource) {
		return ""
	}
	if p.options.From != "" {
		if p.from == p.options.From {
			return p.options.To
		}
		return ""
	}
	row := storage.RowOf(p.m, k)
	if row == nil {
		return ""
	}
	homes := row.Homes()
	if len(homes) != 1 || homes[0] == p.from || p.byName[homes[0]] == nil || p.atStart(key, p.from) {
		return ""
	}
	return homes[0]
}

// atStart reports whether a side that keeps the resource in the store writes the key by itself.
func (p *planner) atStart(key, store string) bool {
	rest := strings.TrimPrefix(key, storage.NormalPrefix(p.m.Prefix)+"/")
	row := storage.RowOf(p.m, p.classifier.Classify(key))
	return row != nil && slices.ContainsFunc(p.m.Boot, func(b pair.BootKey) bool {
		return b.Matches(rest) && row.View(b.Side).Store == store
	})
}
