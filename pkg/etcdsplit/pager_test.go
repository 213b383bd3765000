package etcdsplit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
)

// fakePager serves sorted keys as a server does, and polices its caller: no page over the limit, one revision, no call
// after the context ended.
type fakePager struct {
	t             *testing.T
	keys          []string
	value         func(key string) []byte
	revision      int64 // of the store
	maxKeys       int   // 0: any limit
	maxBytes      int   // 0: any size
	keysCounted   int64 // what a server would have walked over
	requests      int
	compactBefore int64 // revisions below are gone
	onPage        func(f *fakePager, r Request) error
	values        int64 // bytes of the largest page
	mu            sync.Mutex
}

func (f *fakePager) Page(ctx context.Context, r Request) (Page, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	if ctx.Err() != nil {
		f.t.Errorf("Page called after the context ended")
	}
	if r.LimitKeys < 1 || (f.maxKeys > 0 && r.LimitKeys > f.maxKeys) {
		f.t.Errorf("Page(limit %d), want 1 to %d", r.LimitKeys, f.maxKeys)
	}
	if r.From == "" {
		f.t.Errorf("Page(from %q): an empty key is refused by a server", r.From)
	}
	if f.onPage != nil {
		if err := f.onPage(f, r); err != nil {
			return Page{}, err
		}
	}
	if r.Revision != 0 && r.Revision < f.compactBefore {
		return Page{}, fmt.Errorf("reading: %w", ErrCompacted)
	}
	revision := r.Revision
	if revision == 0 {
		revision = f.revision
	}
	start := sort.SearchStrings(f.keys, r.From)
	end := len(f.keys)
	if r.To != "" {
		end = max(start, sort.SearchStrings(f.keys, r.To))
	}
	f.keysCounted += int64(end - start)
	page := Page{Revision: revision, RangeKeys: int64(end - start), More: end-start > r.LimitKeys}
	size := 0
	for _, key := range f.keys[start:min(end, start+r.LimitKeys)] {
		e := Entry{Key: []byte(key), ModRevision: 1, CreateRevision: 1, Version: 1}
		if !r.KeysOnly && f.value != nil {
			e.Value = f.value(key)
		}
		size += len(e.Value)
		page.Entries = append(page.Entries, e)
	}
	if f.maxBytes > 0 && size > f.maxBytes && r.LimitKeys > 1 {
		return Page{}, fmt.Errorf("reading: %w", ErrPageTooLarge)
	}
	f.values = max(f.values, int64(size))
	return page, nil
}

// shapes are key sets that differ in how dense the key space is.
func shapes() map[string][]string {
	shapes := map[string][]string{}
	for i := range 40_000 {
		shapes["one namespace"] = append(shapes["one namespace"], fmt.Sprintf("/registry/pods/default/web-%06d", i))
		shapes["many small namespaces"] = append(shapes["many small namespaces"],
			fmt.Sprintf("/registry/pods/team-%04d/web-%d", i/10, i%10))
		shapes["namespaces of 500"] = append(shapes["namespaces of 500"],
			fmt.Sprintf("/registry/pods/team-%04d/web-%d", i/500, i%500))
		shapes["random names"] = append(shapes["random names"],
			fmt.Sprintf("/registry/pods/default/%016x", uint64(i+1)*0x9E3779B97F4A7C15))
		shapes["big and tiny by turns"] = append(shapes["big and tiny by turns"],
			fmt.Sprintf("/registry/pods/team-%03d/web-%05d", i/5000*2+i%5000/4980, i))
		shapes["long common stem"] = append(shapes["long common stem"],
			fmt.Sprintf("/registry/events/a-rather-long-namespace/a-rather-long-deployment-name-7f9c4d5b6-%05d.17f3a",
				i))
	}
	for name := range shapes {
		slices.Sort(shapes[name])
	}
	return shapes
}

func TestPagesReadsEveryKeyOnceInLinearWork(t *testing.T) {
	for name, keys := range shapes() {
		t.Run(name, func(t *testing.T) {
			pager := &fakePager{t: t, keys: keys, revision: 7, maxKeys: 500}
			var got []string
			request := Request{From: "/registry/", To: prefixEnd("/registry/"), Revision: 7, KeysOnly: true}
			err := Pages(t.Context(), pager, request, Limits{Keys: 500}, func(p Page) error {
				for _, e := range p.Entries {
					got = append(got, string(e.Key))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, keys) {
				t.Fatalf("read %d keys, want the %d of the store, each once and in order", len(got), len(keys))
			}
			if limit := int64(16 * len(keys)); pager.keysCounted > limit {
				t.Errorf("the server walked over %d keys to hand out %d, want at most %d", pager.keysCounted, len(keys),
					limit)
			}
			if pager.requests > len(keys)/100 {
				t.Errorf("%d requests for %d keys in pages of 500", pager.requests, len(keys))
			}
		})
	}
}

func TestPagesHoldsFewBytesWhateverTheSizeOfValues(t *testing.T) {
	var keys []string
	for i := range 3000 {
		keys = append(keys, fmt.Sprintf("/registry/secrets/default/s-%06d", i))
	}
	large := make([]byte, 1<<20)
	pager := &fakePager{t: t, keys: keys, revision: 7, maxBytes: 8 << 20, value: func(key string) []byte {
		if key > "/registry/secrets/default/s-002" {
			return large // after 2000 small ones
		}
		return large[:100]
	}}
	n := 0
	request := Request{From: "/registry/", To: prefixEnd("/registry/"), Revision: 7}
	err := Pages(t.Context(), pager, request, Limits{}, func(p Page) error { n += len(p.Entries); return nil })
	if err != nil || n != len(keys) {
		t.Fatalf("read %d of %d keys: %v", n, len(keys), err)
	}
	if pager.values > 8<<20 {
		t.Errorf("the largest page holds %d bytes of values, want at most what the pager takes in", pager.values)
	}
}

func TestPagesStopsAtTheErrorOfThePager(t *testing.T) {
	broken := errors.New("disk on fire")
	pager := &fakePager{t: t, keys: shapes()["random names"], revision: 7, onPage: func(f *fakePager, _ Request) error {
		if f.requests > 3 {
			return broken
		}
		return nil
	}}
	err := Pages(t.Context(), pager, Request{From: "/", Revision: 7}, Limits{}, func(Page) error { return nil })
	if !errors.Is(err, broken) {
		t.Errorf("Pages = %v, want %v", err, broken)
	}
}

func TestPrefixEnd(t *testing.T) {
	for prefix, want := range map[string]string{"a": "b", "a/": "a0", "a\xff": "b", "\xff\xff": "", "": ""} {
		if got := prefixEnd(prefix); got != want {
			t.Errorf("prefixEnd(%q) = %q, want %q", prefix, got, want)
		}
	}
}

// pagerFunc answers as no etcd does.
type pagerFunc func(Request) Page

func (f pagerFunc) Page(_ context.Context, r Request) (Page, error) { return f(r), nil }

func TestPagesRefusesAnswersThatDoNotLeadOn(t *testing.T) {
	one := func(key string, more bool) pagerFunc {
		return func(Request) Page {
			return Page{Revision: 7, More: more, RangeKeys: 2, Entries: []Entry{{Key: []byte(key)}}}
		}
	}
	for name, test := range map[string]struct {
		pager Pager
		says  string
	}{
		"more, but none": {pagerFunc(func(Request) Page {
			return Page{Revision: 7, More: true, RangeKeys: 2}
		}), "says that more keys follow, and holds none"},
		"the same key again": {one("/registry/pods/a", true), `ends with the key "/registry/pods/a"`},
		"a key before":       {one("/a", false), `ends with the key "/a"`},
		"a key behind":       {one("/z", true), `ends with the key "/z"`},
	} {
		t.Run(name, func(t *testing.T) {
			request := Request{From: "/registry/", To: prefixEnd("/registry/"), Revision: 7}
			if err := Pages(t.Context(), test.pager, request, Limits{}, func(Page) error {
				return nil
			}); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("Pages = %v, want an error that says %s", err, test.says)
			}
			if _, err := Entries(t.Context(), Store{Name: "core", Pager: test.pager}, request, func(Entry) error {
				return nil
			}); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("Entries = %v, want an error that says %s", err, test.says)
			}
			report, err := Scan(t.Context(), splitMap(), []Store{{Name: "core", Pager: test.pager}}, Options{})
			if err != nil || report.Complete || !strings.Contains(strings.Join(report.Incomplete, "\n"), test.says) {
				t.Errorf("Scan = %v, incomplete %q, want it to say %s", err, report.Incomplete, test.says)
			}
		})
	}
}

// A store whose every revision is gone before a page of it is read is given up.
func TestReadingGivesUpWhenNoRevisionLastsForAPage(t *testing.T) {
	newPager := func() *fakePager {
		pager := clean()["core"].pager(t)
		pager.onPage = func(f *fakePager, r Request) error {
			if f.requests > 1000 {
				t.Fatal("1000 requests and no end")
			}
			if r.Revision != 0 && strings.HasPrefix(r.From, "/registry/pods/") {
				f.revision++
				f.compactBefore = f.revision
			}
			return nil
		}
		return pager
	}
	_, err := Entries(t.Context(), Store{Name: "core", Pager: newPager()},
		Request{From: "/registry/pods/", To: "/registry/pods0"}, func(Entry) error {
			return nil
		})
	if !errors.Is(err, ErrCompacted) {
		t.Errorf("Entries = %v, want %v", err, ErrCompacted)
	}
	report, err := Scan(t.Context(), splitMap(), []Store{{Name: "core", Pager: newPager()}}, Options{Parallel: 1})
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(report.Cause, ErrCompacted) || report.Complete {
		t.Errorf("complete %v, cause %v; want an incomplete report because of %v", report.Complete, report.Cause,
			ErrCompacted)
	}
	if notes := report.Stores[0].Notes; len(notes) > restarts+1 { // and one of the range behind it
		t.Errorf("%d notes %q, want at most %d", len(notes), notes, restarts+1)
	}
}
