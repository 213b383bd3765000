// Package etcd reads stores of Kubernetes: every key of one at one revision, in pages of bounded size, with what to do
// when the revision is compacted meanwhile. On it stand the listing of a store and the places that a name may
// mean.
//
// The package is pure: a live etcd stands behind its Pager in package etcdv3, an offline file behind its Walker in
// package snapshot. What a key and a value mean is the matter of package storage; whether they are as planned, of
// package scan.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/storage"
)

// Entry is one key of a store. Key and Value are valid until the next page or, in a walk, until the callback returns.
type Entry struct {
	Key            []byte `json:"key"`
	Value          []byte `json:"value"` // nil when only keys were asked for
	CreateRevision int64  `json:"createRevision"`
	ModRevision    int64  `json:"modRevision"`
	Version        int64  `json:"version"`         // how often the key was written since it was created
	Lease          int64  `json:"lease,omitempty"` // 0 for none
}

// Request asks for the keys from From up to, and without, To.
type Request struct {
	From, To  string // To "" is the end of the store
	Revision  int64  // 0 is the newest
	LimitKeys int    // at least 1
	KeysOnly  bool
}

// Page is a part of a store at one revision, in the order of keys.
type Page struct {
	Revision  int64 // at which the page was read
	Entries   []Entry
	More      bool  // keys of the requested range remain behind the last entry
	RangeKeys int64 // how many keys the requested range holds, with those of this page
}

// Store is one store: a live one behind a Pager, or a file behind a Walker.
type Store struct {
	Name   string
	Pager  Pager
	Walker Walker
}

// Pager reads pages of a live store. It retries and fails over by itself: an error is final for the range.
// Errors: ErrCompacted, ErrPageTooLarge and ErrDenied, wrapped, have a way out that the scan takes.
type Pager interface {
	Page(ctx context.Context, request Request) (Page, error)
}

// Noter is a Pager with notes on how the store was read: which members did not answer, for example. Notes returns each
// once.
type Noter interface {
	Notes() []string
}

// Walker visits every live key of an offline store once, in no particular order. It calls visitor up to workers times,
// before it visits anything, and each of the functions that it gets from one goroutine, so that what they write to need
// not be shared. An error of one of them stops the walk and is returned.
type Walker interface {
	Walk(ctx context.Context, workers int, visitor func() func(Entry) error) (Walked, error)
}

// Walked describes the store of a walk as a whole.
type Walked struct {
	Revision int64  // the newest revision in the file
	Note     string // a caveat about the file: "" or one sentence
}

var (
	// ErrCompacted: the revision of a request was compacted; the range must be read again at a newer one.
	ErrCompacted = errors.New("the revision was compacted")
	// ErrPageTooLarge: the values of a page exceed the limit of the pager; the request needs a lower limit of keys.
	ErrPageTooLarge = errors.New("the page is too large")
	// ErrDenied: the user of the store has no permission to read the range.
	ErrDenied = errors.New("permission denied")
)

// NewestRevision reads the newest revision of a live store by asking for one key, which need not exist: a key that the
// store's user may read.
func NewestRevision(ctx context.Context, pager Pager, key string) (int64, error) {
	page, err := pager.Page(ctx, Request{From: key, To: key + "\x00", LimitKeys: 1, KeysOnly: true})
	if err != nil {
		return 0, fmt.Errorf("reading the newest revision: %w", err)
	}
	return page.Revision, nil
}

// PrefixEnd is the smallest string greater than every string with the prefix; "" when there is none.
func PrefixEnd(prefix string) string {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return string(end[:i+1])
		}
	}
	return ""
}

// before reports whether the bound a lies before the bound b, where "" is the end of the store.
func before(a, b string) bool {
	return a != "" && (b == "" || a < b)
}

// Pages reads every entry of the range at one revision and calls visit with each page.
//
// A server counts the whole range that is requested on every page, so asking for "from here to the end" costs time that
// grows with the square of the number of keys. Pages asks for blocks instead: all keys that share the first depth bytes
// with the key that is next, where depth follows the count of the block that the server returns. Units: limits.Keys
// bounds the entries of a page, limits.Bytes is what a page of values should come to. Errors: those of the pager;
// visit's own; an answer that does not fit the request.
func Pages(ctx context.Context, pager Pager, request Request, limits Limits, visit func(Page) error) error {
	limits = limits.orDefaults(request.KeysOnly)
	at, depth := max(request.From, "\x00"), len(request.From)
	limit := min(limits.Keys, firstPageKeys)
	if request.KeysOnly {
		limit = limits.Keys
	}
	total := 0
	for before(at, request.To) {
		to := request.To
		if bound := PrefixEnd(at[:depth]); before(bound, to) {
			to = bound
		}
		page, err := pager.Page(ctx, Request{From: at, To: to, Revision: request.Revision, LimitKeys: limit,
			KeysOnly: request.KeysOnly})
		if errors.Is(err, ErrPageTooLarge) && limit > 1 {
			limit = max(1, limit/4)
			continue
		}
		if err != nil {
			return err
		}
		if err := page.Check(at, to); err != nil {
			return err
		}
		if total += len(page.Entries); total > limits.Total {
			return fmt.Errorf("the range from %q has more than %d keys: the server is not a conforming etcd",
				request.From, limits.Total)
		}
		if err := visit(page); err != nil {
			return err
		}
		switch {
		case page.More:
			at = string(page.Entries[len(page.Entries)-1].Key) + "\x00"
			if page.RangeKeys > int64(crowdedPages*limit) {
				depth = deeper(page.Entries, depth)
			}
		case to == "":
			return nil
		case !strings.HasPrefix(to, request.From):
			at, depth = to, 0 // behind the resource that the range starts with there is next to nothing
		default:
			at, depth = to, min(depth, len(to))
			if page.RangeKeys < int64(limit/2) {
				depth = max(depth-1, 0)
			}
		}
		if !request.KeysOnly {
			limit = nextLimit(page, limit, limits)
		}
	}
	return nil
}

// Check refuses a response that is none to a request for the keys from one up to another. One that makes no progress
// would be read forever; one that is out of order passes over keys; and a key from elsewhere would be moved, or copied
// into another store, as an object of the resource that was requested. To "" is the end of the store.
func (p *Page) Check(from, to string) error {
	if len(p.Entries) == 0 && p.More {
		return fmt.Errorf("the answer to %q up to %q has more=true and no keys: the server is not a conforming etcd",
			from, to)
	}
	for i, next := 0, from; i < len(p.Entries); i++ {
		key := storage.Text(p.Entries[i].Key)
		if key < next || !before(key, to) || i > 0 && key == next {
			if i == len(p.Entries)-1 {
				return fmt.Errorf("the answer to %q up to %q ends with the key %q: the server is not a conforming etcd",
					from, to, key)
			}
			return fmt.Errorf("the answer to %q up to %q has the key %q, out of order or of another range: the server "+
				"is not a conforming etcd", from, to, key)
		}
		next = key
	}
	if !p.More && p.RangeKeys > int64(len(p.Entries)) {
		return fmt.Errorf("the answer to %q up to %q has more=false and %d of %d keys: the server is not a conforming "+
			"etcd", from, to, len(p.Entries), p.RangeKeys)
	}
	return nil
}

// deeper is the depth at which blocks around the last entry are smaller than at the given one: just behind the first
// byte in which the entries of the page, or the page and what follows, can differ.
func deeper(entries []Entry, depth int) int {
	first, last := entries[0].Key, entries[len(entries)-1].Key
	common := 0
	for common < len(first) && common < len(last) && first[common] == last[common] {
		common++
	}
	return min(max(depth+1, common), len(last))
}

const (
	firstPageKeys = 64
	crowdedPages  = 16 // pages that a block may come to before smaller blocks are requested
)

// nextLimit aims at pages of limits.Bytes. It grows slowly: the next values may be larger.
func nextLimit(page Page, limit int, limits Limits) int {
	if len(page.Entries) == 0 {
		return limit
	}
	size := 0
	for i := range page.Entries {
		size += len(page.Entries[i].Key) + len(page.Entries[i].Value)
	}
	fitting := limits.Bytes / max(1, size/len(page.Entries))
	return max(1, min(fitting, 4*limit, limits.Keys))
}

// Limits bounds what a scan holds at a time. The zero value means the defaults.
type Limits struct {
	Keys  int // entries of a page; default 1000, and 4000 when only keys are read
	Bytes int // what a page of values should come to; default 1 MiB
	Total int // entries of the whole range, which a server may not end; default 100 million
}

func (l Limits) orDefaults(keysOnly bool) Limits {
	if l.Keys == 0 {
		l.Keys = 1000
		if keysOnly {
			l.Keys = 4000
		}
	}
	if l.Bytes == 0 {
		l.Bytes = 1 << 20
	}
	if l.Total == 0 {
		l.Total = 100_000_000 // in 8 GiB, the largest store that etcd suggests, 86 bytes for each
	}
	return l
}
