package etcd

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubefusion/fusionctl/pkg/storage"
)

// MostCompactions is how often in a row, with nothing read in between, the revision of a store may be compacted before
// reading fails. A store that is compacted continuously still lets some pages through.
const MostCompactions = 20

// Entries visits every key of the store from request.From up to request.To and returns the revision at which they were
// read: one page of a live store at a time and in the order of keys, a file in the file's own order. When the revision
// of a live store is compacted meanwhile, the rest is read at a newer one, which is returned. Errors: those of the
// store, and visit's own; ErrCompacted, wrapped, when that happens repeatedly before a page is read.
func Entries(ctx context.Context, store Store, request Request, visit func(Entry) error) (revision int64, err error) {
	if store.Walker != nil {
		within := func(e Entry) error {
			if key := storage.Text(e.Key); key < request.From || (request.To != "" && key >= request.To) {
				return nil
			}
			return visit(e)
		}
		walked, err := store.Walker.Walk(ctx, 1, func() func(Entry) error { return within })
		if err != nil {
			return 0, fmt.Errorf("store %s: %w", store.Name, err)
		}
		return walked.Revision, nil
	}
	for failed := 0; ; failed++ {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if request.Revision == 0 {
			newest, err := NewestRevision(ctx, store.Pager, max(request.From, "\x00"))
			if err != nil {
				return 0, fmt.Errorf("store %s: %w", store.Name, err)
			}
			request.Revision = newest
		}
		err := Pages(ctx, store.Pager, request, Limits{}, func(p Page) error {
			for i := range p.Entries {
				if err := visit(p.Entries[i]); err != nil {
					return err
				}
			}
			if n := len(p.Entries); n > 0 {
				request.From, failed = string(p.Entries[n-1].Key)+"\x00", 0
			}
			return nil
		})
		if !errors.Is(err, ErrCompacted) || failed == MostCompactions {
			if err != nil {
				return 0, fmt.Errorf("store %s: reading from %q at revision %d: %w", store.Name, request.From,
					request.Revision, err)
			}
			return request.Revision, nil
		}
		request.Revision = 0
	}
}

// GetEach visits those of the keys that the store holds: of a live store at the revision (0 is the newest) with a
// request for each, of a file in one walk. When the revision was compacted meanwhile, the newest counts. Errors: those
// of the store, and visit's own.
func GetEach(ctx context.Context, store Store, revision int64, keys []string, visit func(Entry) error) error {
	if store.Walker != nil {
		wanted := make(map[string]bool, len(keys))
		for _, key := range keys {
			wanted[key] = true
		}
		_, err := Entries(ctx, store, Request{}, func(e Entry) error {
			if !wanted[storage.Text(e.Key)] {
				return nil
			}
			return visit(e)
		})
		return err
	}
	for _, key := range keys {
		request := Request{From: key, To: key + "\x00", Revision: revision, LimitKeys: 1}
		page, err := store.Pager.Page(ctx, request)
		if errors.Is(err, ErrCompacted) {
			request.Revision = 0
			page, err = store.Pager.Page(ctx, request)
		}
		if err != nil {
			return fmt.Errorf("store %s: reading %s: %w", store.Name, storage.Printable(key), err)
		}
		for _, e := range page.Entries {
			if err := visit(e); err != nil {
				return err
			}
		}
	}
	return nil
}
