package snapshot

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/kubefusion/fusionctl/pkg/etcd"
)

// Walk visits every live key once, those written last first: of each key the newest revision counts, and none if that
// is a deletion. It holds about 12 bytes per key, and of the file what is being visited. Beside the walk it compares a
// snapshot with the hash at its end.
func (f *File) Walk(ctx context.Context, workers int, visitor func() func(etcd.Entry) error) (etcd.Walked,
	error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hashed := make(chan error, 1)
	go func() { hashed <- f.VerifyHash(ctx) }()
	walked, err := f.walk(ctx, workers, visitor)
	if err != nil {
		cancel() // the walk's own error is more specific
		<-hashed
		return walked, fmt.Errorf("%s: %w", f.name, err)
	}
	switch {
	case f.trailer == nil:
		walked.Note = "a member's own file: its write-ahead log may hold newer writes, and no hash shows whether " +
			"values are whole"
	case f.trusted:
		walked.Note = "a snapshot: the hash at its end was not checked"
	}
	return walked, <-hashed
}

func (f *File) walk(ctx context.Context, workers int, visitor func() func(etcd.Entry) error) (etcd.Walked,
	error) {
	var walked etcd.Walked
	before, err := readMeta(f.file, f.sizeBytes)
	if err != nil {
		return walked, err
	}
	w := walker{meta: before, file: readSource{f.file}, seen: newKeySet(f.keys.Load())}
	w.advanced.L = &w.mu
	if mapped, mapErr := mapFile(f.file, f.sizeBytes); mapErr == nil {
		defer mapped.close()
		w.file, w.mapped = mapped, &mapped
	}
	err = w.walk(ctx, workers, visitor)
	f.keys.Store(w.seen.len())
	walked.Revision = int64(w.newest.main)
	// Between two commits of a writer the pages that were read may have become others'.
	if after, metaErr := readMeta(f.file, f.sizeBytes); metaErr != nil || after.txid != before.txid {
		return walked, damaged("an etcd writes to it: stop the member, or take a snapshot")
	}
	if err == nil && before.alone {
		err = damaged("one of its two meta pages is: what was written last may be missing")
	}
	return walked, err
}

// walker passes the parts of a tree to workers, the newest first. A worker reads the keys of its part, waits until
// it is known which keys the parts before it hold, and visits what is the newest of its key: nearly all of the work is
// done concurrently, although only the order of revisions decides which entry counts.
type walker struct {
	meta   meta
	file   pageSource
	mapped *mappedFile  // nil: the file is read
	held   atomic.Int64 // bytes of the mapped file that workers brought into memory since it was released, about

	mu       sync.Mutex
	upper    tree  // down to the roots of parts
	depth    int   // of these
	parts    int64 // passed to workers
	visits   uint64
	done     atomic.Int64 // parts of which the keys are in seen
	advanced sync.Cond    // done is another, or stopped is set
	stopped  bool
	seen     *keySet
	newest   revision // of all
	oldest   revision // of the parts that are done
}

func (w *walker) walk(ctx context.Context, workers int, visitor func() func(etcd.Entry) error) error {
	var inline page
	err := faultsAsErrors(func() (err error) {
		inline, err = w.start()
		return err
	})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for range workers {
		worker := worker{walker: w, tree: tree{file: w.file, meta: w.meta}, visit: visitor()}
		leaf := inline
		inline = page{} // is for the first
		group.Go(func() error {
			err := faultsAsErrors(func() error { return worker.work(ctx, leaf) })
			if err != nil {
				w.stop()
			}
			return err
		})
	}
	return group.Wait()
}

// start finds the bucket of revisions and cuts its tree into parts: what lies below a page whose children are leaves.
func (w *walker) start() (inline page, err error) {
	w.upper = tree{file: w.file, meta: w.meta}
	root, inline, err := w.upper.bucket("key")
	if err != nil || root == 0 {
		return inline, err
	}
	w.upper.start(root)
	height, err := w.upper.height()
	if err != nil {
		return inline, err
	}
	w.depth = max(height-1, 1)
	if w.mapped == nil {
		w.depth = maxDepth + 1 // what is read stays in memory until the part is done: only a leaf
	}
	w.upper.start(root)
	return inline, nil
}

// next is the root of the next part, and the number of the part; 0 when there is none.
func (w *walker) next(visits uint64) (root uint64, part int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.visits += visits; w.visits > w.meta.pages {
		return 0, 0, errCircle
	}
	if w.stopped {
		return 0, 0, nil
	}
	root, _, err = w.upper.next(w.depth)
	w.parts++
	return root, w.parts - 1, err
}

func (w *walker) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.advanced.Broadcast()
}

// worker works on one part after the other.
type worker struct {
	*walker
	tree  tree
	visit func(etcd.Entry) error

	entries     []etcd.Entry // of the part: the newest of each key in it, at first
	hashes      []uint64     // of their keys
	deleted     []bool
	first, last revision
	leafs       []page
	sum         byte // of what was looked at, so that the compiler does not leave that out
}

const (
	shortWait  = 200     // times that another goroutine may run
	faultBytes = 1 << 16 // the system brings in up to so much with each page that is looked at
	heldBytes  = 8 << 20 // of the file are held in memory at a time, about
	closePages = 4       // from one child to the next, on average: brought into memory together
)

func (w *worker) work(ctx context.Context, inline page) error {
	if inline.data != nil {
		return w.part(func() error { return w.leaf(&inline) }, 0)
	}
	for ctx.Err() == nil {
		root, part, err := w.next(w.tree.visits)
		if err != nil || root == 0 {
			return err
		}
		w.tree.visits = 0
		w.tree.start(root)
		w.fetchChildren(root)
		if err := w.part(w.leaves, part); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// part reads the keys of a part, keeps what is the newest, and visits it.
func (w *worker) part(read func() error, number int64) error {
	w.entries, w.hashes, w.deleted = w.entries[:0], w.hashes[:0], w.deleted[:0]
	w.first, w.last = revision{}, revision{}
	readErr := read()
	if err := w.keepNewest(number); err != nil {
		return err
	}
	// What was read before something was found damaged is true.
	for i := range w.entries {
		if n := len(w.entries[i].Value); n > faultBytes {
			w.hold(int64(n)) // a visitor may read all of it
		}
		if err := w.visit(w.entries[i]); err != nil {
			return err
		}
	}
	return readErr
}

// hold counts bytes that came into memory, and releases all of them periodically. To release each part by itself
// takes longer than to bring in once more what other workers are still looking at.
func (w *worker) hold(bytes int64) {
	if w.mapped != nil && w.held.Add(bytes) > heldBytes {
		w.held.Store(0)
		w.mapped.release()
	}
}

// holdLarge counts a leaf with large values before it is looked at: Linux 6.18 brings in a whole folio of its cache,
// and where much was written at once these are as large as what was written.
func (w *worker) holdLarge(leaf *page) {
	if n := len(leaf.data); n > faultBytes {
		w.hold(int64(n))
	}
}

// leaves reads the keys of all leaves of a part.
func (w *worker) leaves() error {
	w.leafs = w.leafs[:0]
	var err error
	var from, to, apart int64 // where the leaves lie, and what they bring into memory when none is near another
	for {
		var id uint64
		var leaf page
		if id, leaf, err = w.tree.next(maxDepth + 1); err != nil || id == 0 {
			break // what was found before is read
		}
		at := int64(id) * w.meta.pageBytes
		if len(w.leafs) == 0 {
			from = at
		}
		from, to = min(from, at), max(to, at+int64(len(leaf.data)))
		apart += min(int64(len(leaf.data)), int64(leaf.count)*2*faultBytes) + 2*faultBytes
		w.holdLarge(&leaf)
		w.leafs = append(w.leafs, leaf)
	}
	w.hold(min(to-from, apart) + 2*faultBytes)
	for i := range w.leafs {
		if len(w.leafs[i].data) <= faultBytes {
			w.fetch(&w.leafs[i])
		}
	}
	for i := range w.leafs {
		w.holdLarge(&w.leafs[i])
		if err := w.leaf(&w.leafs[i]); err != nil {
			return err
		}
	}
	return err
}

// Nearly all of the time is spent waiting for memory. Reading one byte of each cache line that will be read, for many
// entries in a row, lets the processor fetch them concurrently.
const (
	lineBytes    = 64
	fetchedLines = 8 // of an entry: its key, and the metadata at the start of its value
)

// fetch looks at what will be read of the entries of a leaf.
func (w *worker) fetch(leaf *page) {
	for i := range leaf.count {
		key, value, _, err := leaf.item(i)
		if err != nil {
			return // leaf reports it
		}
		if len(value) == 0 {
			continue
		}
		w.sum += key[:1][0] + value[len(value)-1]
		for at := 0; at < min(len(value), fetchedLines*lineBytes); at += lineBytes {
			w.sum += value[at]
		}
	}
}

// fetchChildren brings the children of a page into memory, at once when they lie close to each other, and looks at the
// first byte of each.
func (w *worker) fetchChildren(id uint64) {
	if w.mapped == nil || id >= w.meta.pages {
		return // the walk reports it
	}
	data, err := w.file.bytes(int64(id)*w.meta.pageBytes, w.meta.pageBytes)
	if err != nil {
		return
	}
	branch, err := parsePage(data, id)
	if err != nil || branch.leaf {
		return
	}
	first, last := branch.child(0), branch.child(0)
	for i := range branch.count {
		first, last = min(first, branch.child(i)), max(last, branch.child(i))
	}
	if last < w.meta.pages && last-first < uint64(branch.count)*closePages {
		if data, err := w.file.bytes(int64(first)*w.meta.pageBytes, int64(last-first+1)*w.meta.pageBytes); err == nil {
			populate(data)
		}
	}
	for i := branch.count - 1; i >= 0; i-- {
		if child := branch.child(i); child < w.meta.pages {
			if data, err := w.file.bytes(int64(child)*w.meta.pageBytes, w.meta.pageBytes); err == nil {
				w.sum += data[0]
				if overflow := int64(binary.LittleEndian.Uint32(data[12:])); overflow*w.meta.pageBytes > faultBytes {
					return // large values: leaves counts them one by one
				}
			}
		}
	}
}

func (w *worker) leaf(leaf *page) error {
	for i := leaf.count - 1; i >= 0; i-- {
		key, value, bucket, err := leaf.item(i)
		if err != nil {
			return err
		}
		at, deleted, err := parseRevision(key)
		switch {
		case err != nil:
			return err
		case bucket:
			return damaged("there is a bucket among its revisions")
		case len(w.entries) == 0:
			w.first = at
		case !at.before(w.last):
			return errOrder
		}
		w.last = at
		n := len(w.entries)
		w.entries = append(w.entries, etcd.Entry{})
		if len(value) == 0 { // what a restore with --bump-revision writes, to raise the revision: it is no key
			deleted = true
		} else if err := parseKeyValue(value, &w.entries[n]); err != nil {
			w.entries = w.entries[:n]
			return damaged("the entry at revision %d: %v", at.main, err)
		}
		w.hashes = append(w.hashes, w.seen.hash(w.entries[n].Key))
		w.deleted = append(w.deleted, deleted)
	}
	return nil
}

// keepNewest waits for the parts before and keeps the entries whose keys none of them holds.
func (w *worker) keepNewest(part int64) error {
	for range shortWait { // it is nearly always this worker's turn: sleeping and being woken takes longer
		if w.done.Load() == part {
			break
		}
		runtime.Gosched()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.done.Load() != part && !w.stopped {
		w.advanced.Wait()
	}
	if w.stopped {
		w.entries = w.entries[:0]
		return nil
	}
	defer w.done.Add(1)
	defer w.advanced.Broadcast()
	if len(w.entries) == 0 {
		return nil
	}
	if w.newest == (revision{}) {
		w.newest = w.first
	} else if !w.first.before(w.oldest) {
		w.entries = w.entries[:0]
		return errOrder
	}
	w.oldest = w.last
	for _, hash := range w.hashes {
		w.sum += w.seen.fetch(hash)
	}
	kept := 0
	for i, hash := range w.hashes {
		if !w.seen.add(hash) || w.deleted[i] {
			continue
		}
		if kept != i {
			w.entries[kept] = w.entries[i]
		}
		kept++
	}
	w.entries = w.entries[:kept]
	return nil
}

var (
	errOrder  = damaged("its revisions are out of order")
	errCircle = damaged("its pages form a circle")
)

// faultsAsErrors runs f, which reads a mapped file: where the file has become shorter, or the disk fails, reading
// memory faults, and that is an error about the file and not the end of the program.
func faultsAsErrors(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recovered := recover(); recovered != nil {
			fault, ok := recovered.(interface {
				runtime.Error
				Addr() uintptr
			})
			if !ok {
				panic(recovered)
			}
			err = damaged("it cannot be read any more: %v", fault)
		}
	}()
	return f()
}
