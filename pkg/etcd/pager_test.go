package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
)

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
			pager := &storetest.Pager{T: t, Keys: keys, Revision: 7, MaxKeys: 500}
			var got []string
			request := etcd.Request{From: "/registry/", To: etcd.PrefixEnd("/registry/"), Revision: 7, KeysOnly: true}
			err := etcd.Pages(t.Context(), pager, request, etcd.Limits{Keys: 500}, func(p etcd.Page) error {
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
			if limit := int64(16 * len(keys)); pager.KeysCounted > limit {
				t.Errorf("the server walked over %d keys to hand out %d, want at most %d", pager.KeysCounted, len(keys),
					limit)
			}
			if pager.Requests > len(keys)/100 {
				t.Errorf("%d requests for %d keys in pages of 500", pager.Requests, len(keys))
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
	pager := &storetest.Pager{T: t, Keys: keys, Revision: 7, MaxBytes: 8 << 20, Value: func(key string) []byte {
		if key > "/registry/secrets/default/s-002" {
			return large // after 2000 small ones
		}
		return large[:100]
	}}
	n := 0
	request := etcd.Request{From: "/registry/", To: etcd.PrefixEnd("/registry/"), Revision: 7}
	err := etcd.Pages(t.Context(), pager, request, etcd.Limits{}, func(p etcd.Page) error {
		n += len(p.Entries)
		return nil
	})
	if err != nil || n != len(keys) {
		t.Fatalf("read %d of %d keys: %v", n, len(keys), err)
	}
	if pager.Values > 8<<20 {
		t.Errorf("the largest page holds %d bytes of values, want at most what the pager takes in", pager.Values)
	}
}

func TestPagesStopsAtTheErrorOfThePager(t *testing.T) {
	broken := errors.New("disk on fire")
	pager := &storetest.Pager{T: t, Keys: shapes()["random names"], Revision: 7,
		OnPage: func(f *storetest.Pager, _ etcd.Request) error {
			if f.Requests > 3 {
				return broken
			}
			return nil
		}}
	err := etcd.Pages(t.Context(), pager, etcd.Request{From: "/", Revision: 7}, etcd.Limits{}, func(etcd.Page) error {
		return nil
	})
	if !errors.Is(err, broken) {
		t.Errorf("Pages = %v, want %v", err, broken)
	}
}

func TestPrefixEnd(t *testing.T) {
	for prefix, want := range map[string]string{"a": "b", "a/": "a0", "a\xff": "b", "\xff\xff": "", "": ""} {
		if got := etcd.PrefixEnd(prefix); got != want {
			t.Errorf("PrefixEnd(%q) = %q, want %q", prefix, got, want)
		}
	}
}

func TestPagesRefusesAnswersThatDoNotLeadOn(t *testing.T) {
	for says, pager := range storetest.NoEtcd() {
		request := etcd.Request{From: "/registry/", To: etcd.PrefixEnd("/registry/"), Revision: 7}
		if err := etcd.Pages(t.Context(), pager, request, etcd.Limits{}, func(etcd.Page) error {
			return nil
		}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Pages = %v, want an error that says %s", err, says)
		}
		if _, err := etcd.Entries(t.Context(), etcd.Store{Name: "core", Pager: pager}, request, func(etcd.Entry) error {
			return nil
		}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Entries = %v, want an error that says %s", err, says)
		}
	}
}

// TestPagesRefusesKeysThatWereNotRequested: of each answer the last key lies in the range, and leads on.
func TestPagesRefusesKeysThatWereNotRequested(t *testing.T) {
	for says, keys := range map[string][]string{
		`has the key "/registry/clusterrolebindings/x"`: {"/registry/clusterrolebindings/x", "/registry/pods/b"},
		`has the key "/z"`:               {"/registry/pods/a", "/z", "/registry/pods/b"},
		`has the key "/registry/pods/b"`: {"/registry/pods/c", "/registry/pods/b", "/registry/pods/d"},
		`has the key "/registry/pods/a"`: {"/registry/pods/a", "/registry/pods/a", "/registry/pods/d"},
		`ends with the key`:              {"/registry/pods/d", "/registry/pods/a"},
		"more=false and 1 of 3 keys":     {"/registry/pods/a"},
	} {
		pager := fixed{Revision: 7, RangeKeys: 3}
		for _, key := range keys {
			pager.Entries = append(pager.Entries, etcd.Entry{Key: []byte(key)})
		}
		request := etcd.Request{From: "/registry/pods/", To: etcd.PrefixEnd("/registry/pods/"), Revision: 7}
		if err := etcd.Pages(t.Context(), pager, request, etcd.Limits{}, func(p etcd.Page) error {
			t.Errorf("visits %d entries, want %s", len(p.Entries), says)
			return nil
		}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Pages = %v, want an error that says %s", err, says)
		}
	}
}

// fixed is the only answer of a store.
type fixed etcd.Page

func (f fixed) Page(context.Context, etcd.Request) (etcd.Page, error) { return etcd.Page(f), nil }

// A store whose every revision is gone before a page of it is read is given up.
// endless is a store that has a next key for ever, in order.
type endless struct{}

func (endless) Page(_ context.Context, r etcd.Request) (etcd.Page, error) {
	page := etcd.Page{Revision: 7, More: true, RangeKeys: 1 << 40}
	for i := range r.LimitKeys {
		page.Entries = append(page.Entries,
			etcd.Entry{Key: fmt.Appendf(nil, "%s%06d", r.From, i)})
	}
	return page, nil
}

func TestPagesOfAStoreWithoutEnd(t *testing.T) {
	pager, read := endless{}, 0
	request := etcd.Request{From: "/registry/", To: etcd.PrefixEnd("/registry/"), Revision: 7, KeysOnly: true}
	err := etcd.Pages(t.Context(), pager, request, etcd.Limits{Keys: 100, Total: 1000}, func(p etcd.Page) error {
		read += len(p.Entries)
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "more than 1000 keys") || read != 1000 {
		t.Errorf("Pages = %v after %d keys, want an error after 1000", err, read)
	}
}

func TestReadingGivesUpWhenNoRevisionLastsForAPage(t *testing.T) {
	_, err := etcd.Entries(t.Context(), etcd.Store{Name: "core", Pager: storetest.Compacted(t)},
		etcd.Request{From: "/registry/pods/", To: "/registry/pods0"}, func(etcd.Entry) error {
			return nil
		})
	if !errors.Is(err, etcd.ErrCompacted) {
		t.Errorf("Entries = %v, want %v", err, etcd.ErrCompacted)
	}
}
