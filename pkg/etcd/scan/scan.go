// Package scan compares what stores hold with the ownership map of a plan, of package pair, and
// reports each difference as a finding: keys in the wrong store, values that a reader cannot decode, objects that a
// garbage collector deletes, addresses that are allocated twice.
//
// The package is pure: it reads stores through the Pager or the Walker that it is given.
package scan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/kubefusion/fusionctl/internal/keyindex"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// Options of a scan. The zero value is the default scan.
type Options struct {
	Depth    Depth          // default DepthEnvelope
	Parallel int            // ranges of a store that are read at a time; default 2
	Limits   etcd.Limits    //
	Fields   FieldFinder    // finds fields for DepthObjects; nil: no fields are looked for
	Progress func(Progress) // called after every page, from several goroutines; nil: no progress
}

// Progress is one step of a scan.
type Progress struct {
	Store string
	Total int64 // keys below the prefix, as the store counted them at the start; 0 when it cannot say
	Keys  int64 // read by this step; negative when a range is read again
	Note  string
}

// Stores reads the stores, compares them with the map and reports what does not match. It only reads.
//
// Memory is bounded: a page per worker, 16 bytes per key (8 when there is one store only) and 16 per owner reference.
// Errors: the map or the stores are unusable. A store that could not be read, or not to its end, is no error: the
// report says what is missing and is not Complete. When ctx ends, the report holds what was seen until then.
func Stores(ctx context.Context, m *pair.Map, stores []etcd.Store, options Options) (*Report, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if options.Depth == "" {
		options.Depth = DepthEnvelope
	}
	if options.Parallel == 0 {
		options.Parallel = 2
	}
	s := &scan{common: newCommon(m, options), options: options}
	s.compare = len(stores) > 1
	for _, store := range stores {
		if !slices.Contains(m.Stores, store.Name) {
			return nil, fmt.Errorf("store %q: the map knows %q", store.Name, m.Stores)
		}
		if slices.ContainsFunc(s.stores, func(other *storeScan) bool { return other.Name == store.Name }) {
			return nil, fmt.Errorf("store %q: given twice", store.Name)
		}
		s.stores = append(s.stores, &storeScan{Store: store, scan: s, total: newTally()})
	}
	slices.SortFunc(s.stores, func(a, b *storeScan) int {
		return cmp.Compare(slices.Index(m.Stores, a.Name), slices.Index(m.Stores, b.Name))
	})
	s.read(ctx)
	return s.report(ctx), nil
}

// scan is one run of Stores.
type scan struct {
	*common
	options Options
	stores  []*storeScan
}

func newCommon(m *pair.Map, options Options) *common {
	c := &common{
		m: m, classifier: storage.NewClassifier(m), hasher: keyindex.Hasher{Seed: maphash.MakeSeed()},
		depth:  options.Depth,
		fields: options.Fields,
		locks:  map[string]bool{}, numbers: map[string]uint16{}, kindOf: map[referenceKind]uint16{},
		kinds: make([]referenceKind, 1),
	}
	for i := range m.Locks {
		c.locks[m.Locks[i].Key()] = true
	}
	return c
}

// read reads all stores at the same time: the closer together their revisions, the fewer differences are mere timing.
func (s *scan) read(ctx context.Context) {
	var group errgroup.Group
	for _, store := range s.stores {
		group.Go(func() error {
			if store.Walker != nil {
				store.walk(ctx)
			} else {
				store.page(ctx)
			}
			return nil // what went wrong is part of the report
		})
	}
	_ = group.Wait()
}

// storeScan is the scan of one store.
type storeScan struct {
	etcd.Store
	scan  *scan
	total *tally

	mu         sync.Mutex
	index      keyindex.Index  // of the keys, when there is another store to compare with
	uids       keyindex.UIDSet // otherwise
	revision   int64
	keysBelow  int64 // the prefix, as the store counts them
	outside    counted
	notes      []string
	incomplete []error
	// outsideHidden: the user of the store has no permission to read outside the prefix.
	outsideHidden bool
}

func (s *storeScan) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	note := fmt.Sprintf(format, args...)
	s.notes = append(s.notes, note)
	s.progress(0, note)
}

func (s *storeScan) missing(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.incomplete = append(s.incomplete, fmt.Errorf(format, args...))
}

func (s *storeScan) progress(keys int64, note string) {
	if s.scan.options.Progress != nil {
		s.scan.options.Progress(Progress{Store: s.Name, Total: s.keysBelow, Keys: keys, Note: note})
	}
}

func (s *storeScan) newObserver() *observer {
	return &observer{common: s.scan.common, store: s.Name, t: newTally()}
}

// walk reads an offline store with a worker per range that would be read of a live one.
func (s *storeScan) walk(ctx context.Context) {
	var workers []*walkWorker
	walked, err := s.Walker.Walk(ctx, s.scan.options.Parallel, func() func(etcd.Entry) error {
		w := &walkWorker{storeScan: s, observer: s.newObserver()}
		workers = append(workers, w)
		return w.visit
	})
	for _, w := range workers {
		w.flush()
	}
	s.revision = walked.Revision
	if walked.Note != "" {
		s.note("%s", walked.Note)
	}
	if err != nil {
		s.missing("reading the file: %w", err)
	}
}

// walkWorker observes what one worker visits. It is merged periodically, so that nothing is held twice.
type walkWorker struct {
	*storeScan
	observer *observer
	outside  counted
}

const walkFlushKeys = 1 << 17

func (w *walkWorker) visit(e etcd.Entry) error {
	if !w.scan.classifier.Below(e.Key) {
		w.outside.add(storage.Text(e.Key))
		return nil
	}
	w.observer.observe(&e)
	if w.observer.t.keys >= walkFlushKeys {
		w.flush()
	}
	return nil
}

func (w *walkWorker) flush() {
	w.progress(w.observer.t.keys, "")
	w.merge(w.observer.t)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.storeScan.outside.merge(&w.outside)
	w.observer, w.outside = w.newObserver(), counted{}
}

// page reads a live store, range by range.
func (s *storeScan) page(ctx context.Context) {
	if err := s.head(ctx); err != nil {
		s.missing("%w", err)
		return
	}
	ranges, err := s.ranges(ctx)
	if err != nil {
		s.missing("%w", err)
		return
	}
	var group errgroup.Group
	var failed, unread atomic.Int64
	next := make(chan etcd.Request)
	group.Go(func() error {
		defer close(next)
		for _, r := range ranges {
			select {
			case next <- r:
			case <-ctx.Done():
				return nil
			}
		}
		return nil
	})
	for range s.scan.options.Parallel {
		group.Go(func() error {
			for r := range next {
				if failed.Load() < toleratedFailures {
					s.readRange(ctx, r, &failed)
				} else {
					unread.Add(1)
				}
			}
			return nil
		})
	}
	_ = group.Wait()
	if n := unread.Load(); n > 0 {
		s.missing("%d further ranges were not tried", n)
	}
	if ctx.Err() != nil {
		s.missing("reading was interrupted")
	}
}

// head fixes the revision and counts the keys below and outside the prefix.
func (s *storeScan) head(ctx context.Context) error {
	prefix := s.scan.classifier.Prefix()
	everything, err := s.Pager.Page(ctx, etcd.Request{From: "\x00", LimitKeys: 1, KeysOnly: true})
	if errors.Is(err, etcd.ErrDenied) { // an etcd user needs no more than read permission below the prefix
		s.outsideHidden = true
		s.note("the user of this store may not read all of it: keys outside %q are not counted", prefix)
		everything, err = s.Pager.Page(ctx, etcd.Request{From: prefix, To: etcd.PrefixEnd(prefix), LimitKeys: 1,
			KeysOnly: true})
	}
	if err != nil {
		return fmt.Errorf("reading the newest revision: %w", err)
	}
	s.revision = everything.Revision
	below, err := s.count(ctx, etcd.Request{From: prefix, To: etcd.PrefixEnd(prefix), LimitKeys: 1})
	if err != nil {
		return fmt.Errorf("counting the keys below %q: %w", prefix, err)
	}
	s.keysBelow = below.RangeKeys
	if s.outsideHidden || everything.RangeKeys == below.RangeKeys {
		return nil
	}
	for _, around := range []etcd.Request{{From: "\x00", To: prefix}, {From: etcd.PrefixEnd(prefix)}} {
		around.LimitKeys = sampleKeys + 1
		page, err := s.count(ctx, around)
		if err != nil {
			return fmt.Errorf("counting the keys outside %q: %w", prefix, err)
		}
		for _, e := range page.Entries {
			s.outside.samples.add(storage.Text(e.Key))
		}
		s.outside.keys += page.RangeKeys
	}
	return nil
}

// count reads the keys of a range at the revision of the scan or, when that is compacted already, at the newest one.
func (s *storeScan) count(ctx context.Context, r etcd.Request) (etcd.Page, error) {
	r.KeysOnly, r.Revision = true, s.revision
	page, err := s.Pager.Page(ctx, r)
	if errors.Is(err, etcd.ErrCompacted) {
		r.Revision = 0
		page, err = s.Pager.Page(ctx, r)
	}
	return page, err
}

// ranges cuts the keys below the prefix at every resource of the map and, in a store that is not small, the namespaced
// resources at some namespaces as well, so that workers share a resource that makes up most of the store.
func (s *storeScan) ranges(ctx context.Context) ([]etcd.Request, error) {
	prefix := s.scan.classifier.Prefix()
	cuts := []string{prefix}
	var namespaces []string
	if s.keysBelow >= smallStoreKeys {
		from := prefix + "namespaces/"
		request := etcd.Request{From: from, To: etcd.PrefixEnd(from), Revision: s.revision, KeysOnly: true}
		err := etcd.Pages(ctx, s.Pager, request, s.scan.options.Limits, func(p etcd.Page) error {
			for _, e := range p.Entries {
				namespaces = append(namespaces, string(e.Key[len(from):]))
			}
			return nil
		})
		if err != nil && !errors.Is(err, etcd.ErrCompacted) { // without namespaces the ranges are larger, which is all
			return nil, fmt.Errorf("listing namespaces: %w", err)
		}
	}
	for i := range s.scan.m.Resources {
		r := &s.scan.m.Resources[i]
		start := prefix + r.Key + "/"
		cuts = append(cuts, start)
		for n := 1; r.Namespaced && n < namespaceCuts && n < len(namespaces); n++ {
			cuts = append(cuts, start+namespaces[n*len(namespaces)/min(namespaceCuts, len(namespaces))]+"/")
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	ranges := make([]etcd.Request, len(cuts))
	for i, cut := range cuts {
		ranges[i] = etcd.Request{From: cut, To: etcd.PrefixEnd(prefix), KeysOnly: s.scan.depth == DepthKeys}
		if i+1 < len(cuts) {
			ranges[i].To = cuts[i+1]
		}
	}
	return ranges, nil
}

const (
	toleratedFailures = 3 // ranges; the pager has tried everything before it fails
	smallStoreKeys    = 20_000
	namespaceCuts     = 8
	// restarts of one range before it is read on at a newer revision from where it was: a store that is compacted
	// faster than a range can be read would never be read otherwise.
	restarts = 3
)

// readRange reads a range, all of it at one revision: when that is compacted meanwhile, it starts over at a newer one,
// and after some restarts it reads on. After repeated compactions before a page is read, the range fails.
func (s *storeScan) readRange(ctx context.Context, r etcd.Request, failed *atomic.Int64) {
	o := s.newObserver()
	start := r.From
	for attempt, unread := 1, 0; ctx.Err() == nil; attempt, unread = attempt+1, unread+1 {
		r.Revision = s.currentRevision()
		err := etcd.Pages(ctx, s.Pager, r, s.scan.options.Limits, func(p etcd.Page) error {
			for i := range p.Entries {
				o.observe(&p.Entries[i])
			}
			if n := len(p.Entries); n > 0 {
				r.From, unread = string(p.Entries[n-1].Key)+"\x00", 0
				s.progress(int64(n), "")
			}
			return nil
		})
		if err == nil {
			s.merge(o.t)
			return
		}
		if !errors.Is(err, etcd.ErrCompacted) || unread == etcd.MostCompactions {
			if ctx.Err() == nil {
				failed.Add(1)
				s.missing("reading %q to %q at revision %d: %w", r.From, r.To, r.Revision, err)
			}
			break
		}
		if err := s.renewRevision(ctx, r.Revision); err != nil {
			s.missing("reading %q to %q: %w", r.From, r.To, err)
			break
		}
		if attempt <= restarts {
			s.progress(-o.t.keys, "")
			s.note("revision %d was compacted: %q to %q is read again at revision %d", r.Revision, start, r.To,
				s.currentRevision())
			r.From, o = start, s.newObserver()
		} else if unread == 0 { // otherwise it is reported already
			s.note("revision %d was compacted: %q to %q is read on at revision %d", r.Revision, r.From, r.To,
				s.currentRevision())
		}
	}
	s.merge(o.t) // what was read is valid; the rest is reported as incomplete
}

func (s *storeScan) currentRevision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// renewRevision replaces a revision that was compacted.
func (s *storeScan) renewRevision(ctx context.Context, compacted int64) error {
	if s.currentRevision() != compacted {
		return nil // another range did
	}
	newest, err := etcd.NewestRevision(ctx, s.Pager, s.scan.classifier.Prefix())
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision = max(s.revision, newest)
	return nil
}

// merge adds what a range held to what the store holds.
func (s *storeScan) merge(t *tally) {
	s.mu.Lock()
	defer s.mu.Unlock()
	total := s.total
	total.keys += t.keys
	total.bytes += t.bytes
	for name, r := range t.resources {
		if into, ok := total.resources[name]; ok {
			into.merge(r)
		} else {
			total.resources[name] = r
		}
	}
	s.index.Add(t.ids)
	for _, part := range t.uids.Parts {
		for _, uid := range part {
			s.uids.Add(uid)
		}
	}
	total.references.Parts = append(total.references.Parts, t.references.Parts...)
	total.facts.merge(&t.facts)
}
