// Package move moves keys between stores so that what they hold matches an ownership map: an existing shared store is split,
// or a mistake repaired. A plan lists the moves; Apply copies, verifies and then deletes; Undo brings everything back.
//
// Killed at any moment and run again, it loses nothing and leaves nothing twice: a key is created only where it is absent,
// deleted only when its copy was read back and it has not changed since the plan, and everything that decides is read from
// the stores. The journal says how far a run came, so that the next one need not look at everything again.
package move

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
)

// Store is a live store that keys are moved from and to.
type Store interface {
	etcdsplit.Pager
	// Read reads keys at one revision, in their order; nil for a key that the store does not hold.
	Read(ctx context.Context, keys []string) ([]*etcdsplit.Entry, error)
	// Create puts the entries with their leases, all of them, or none when one of the keys exists already.
	Create(ctx context.Context, entries []etcdsplit.Entry) (created bool, err error)
	// Delete deletes the keys, all of them, or none when one of them is not at its revision any more.
	Delete(ctx context.Context, keys []KeyAt) (deleted bool, err error)
	// Grant makes a lease that lasts so long, and returns its id.
	Grant(ctx context.Context, seconds int64) (lease int64, err error)
	// TimeToLive is how many seconds a lease still lasts, at most 0 when it is gone.
	TimeToLive(ctx context.Context, lease int64) (seconds int64, err error)
}

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
	// Conflict says why the key cannot be moved: To holds another object under it.
	Conflict string `json:"conflict,omitempty"`
}

func compareMoves(a, b Move) int {
	return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Key, b.Key))
}

// Header is what a plan says about itself.
type Header struct {
	Schema    string           `json:"schema"` // fusionctl/etcd-move/v1
	Prefix    string           `json:"prefix"`
	Revisions map[string]int64 `json:"revisions"` // of the stores, when the plan was made
	Options   Options          `json:"options"`
}

// Schema names the format of a plan.
const Schema = "fusionctl/etcd-move/v1"

// Options restrict what is planned. The zero value plans whatever lies where its owner does not keep it.
type Options struct {
	Resources []string `json:"resources,omitempty"` // parts of keys: "deployments", "kubeflow.org/notebooks"
	// From and To, given together with Resources, move these resources from one store to the other whatever the map says: for
	// resources that both sides own, where the map cannot say whose a key is.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// Plan is a plan that may be read several times, in the order of From and Key.
type Plan struct {
	Header Header
	Moves  func() iter.Seq2[Move, error]
}

// New reads the stores and hands every move to emit, in order. What an API server writes by itself at its start is left
// where it is, and so is what belongs in several stores.
// Errors: a store cannot be read; options name what does not exist; emit's own.
func New(ctx context.Context, m *etcdsplit.Map, stores map[string]Store, options Options, emit func(Move) error) (Header, error) {
	header := Header{Schema: Schema, Prefix: etcdsplit.NormalPrefix(m.Prefix), Revisions: map[string]int64{}, Options: options}
	if err := options.validate(m, stores); err != nil {
		return header, err
	}
	names := make([]string, 0, len(stores))
	for name := range stores {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		newest, err := etcdsplit.NewestRevision(ctx, stores[name], header.Prefix+"/")
		if err != nil {
			return header, fmt.Errorf("store %s: %w", name, err)
		}
		header.Revisions[name] = newest
	}
	p := planner{m: m, classifier: etcdsplit.NewClassifier(m), stores: stores, options: options, emit: emit}
	for _, name := range names {
		prefix := header.Prefix + "/"
		request := etcdsplit.Request{From: prefix, To: prefix[:len(prefix)-1] + "0", Revision: header.Revisions[name]}
		p.from = name
		if err := etcdsplit.Pages(ctx, stores[name], request, etcdsplit.Limits{}, func(page etcdsplit.Page) error { return p.page(ctx, page) }); err != nil {
			return header, fmt.Errorf("store %s: planning: %w", name, err)
		}
	}
	return header, nil
}

func (o *Options) validate(m *etcdsplit.Map, stores map[string]Store) error {
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

// planner turns pages of one store into moves.
type planner struct {
	m          *etcdsplit.Map
	classifier *etcdsplit.Classifier
	stores     map[string]Store
	options    Options
	from       string
	emit       func(Move) error
}

// page emits the moves of one page, after looking whether their destinations are free.
func (p *planner) page(ctx context.Context, page etcdsplit.Page) error {
	var moves []Move
	values := map[string][]byte{}
	byStore := map[string][]string{}
	for i := range page.Entries {
		e := &page.Entries[i]
		key := string(e.Key)
		to := p.destination(p.classifier.Classify(key), key)
		if to == "" {
			continue
		}
		moves = append(moves, Move{Key: key, From: p.from, To: to, ModRevision: e.ModRevision, Bytes: len(e.Value), Leased: e.Lease != 0})
		values[key] = e.Value
		byStore[to] = append(byStore[to], key)
	}
	taken := map[string]string{}
	for to, keys := range byStore {
		for chunk := range slices.Chunk(keys, batchKeys) {
			entries, err := p.stores[to].Read(ctx, chunk)
			if err != nil {
				return fmt.Errorf("store %s: %w", to, err)
			}
			for i, other := range entries {
				if other != nil && !bytes.Equal(other.Value, values[chunk[i]]) {
					taken[chunk[i]] = fmt.Sprintf("store %s holds another object under this key", to)
				}
			}
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

// destination is where the key belongs, "" when it stays.
func (p *planner) destination(k etcdsplit.Key, key string) string {
	if k.Form != etcdsplit.FormObject && k.Form != etcdsplit.FormGrouped && k.Form != etcdsplit.FormThirdParty {
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
	row := p.m.Row(k)
	if row == nil {
		return ""
	}
	homes := row.Homes()
	if len(homes) != 1 || homes[0] == p.from || p.stores[homes[0]] == nil || p.atStart(key, p.from) {
		return ""
	}
	return homes[0]
}

// atStart reports whether a side that keeps the resource in the store writes the key by itself.
func (p *planner) atStart(key, store string) bool {
	rest := strings.TrimPrefix(key, etcdsplit.NormalPrefix(p.m.Prefix)+"/")
	row := p.m.Row(p.classifier.Classify(key))
	return row != nil && slices.ContainsFunc(p.m.Boot, func(b etcdsplit.BootKey) bool { return b.Matches(rest) && row.Side(b.Side).Store == store })
}
