package etcdsplit

import (
	"context"
	"errors"
	"fmt"
)

// Entries visits every key of the store from request.From up to request.To and returns the revision at which they were
// read: one page of a live store at a time and in the order of keys, a file in the file's own order. When the revision of a
// live store is compacted meanwhile, the rest is read at a newer one, which is returned.
// Errors: those of the store, and visit's own.
func Entries(ctx context.Context, store Store, request Request, visit func(Entry) error) (revision int64, err error) {
	if store.Walker != nil {
		within := func(e Entry) error {
			if key := text(e.Key); key < request.From || (request.To != "" && key >= request.To) {
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
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if request.Revision == 0 {
			head, err := store.Pager.Page(ctx, Request{From: "\x00", To: "\x01", LimitKeys: 1, KeysOnly: true})
			if err != nil {
				return 0, fmt.Errorf("store %s: reading the newest revision: %w", store.Name, err)
			}
			request.Revision = head.Revision
		}
		err := Pages(ctx, store.Pager, request, Limits{}, func(p Page) error {
			for i := range p.Entries {
				if err := visit(p.Entries[i]); err != nil {
					return err
				}
			}
			if n := len(p.Entries); n > 0 {
				request.From = string(p.Entries[n-1].Key) + "\x00"
			}
			return nil
		})
		if !errors.Is(err, ErrCompacted) {
			if err != nil {
				return 0, fmt.Errorf("store %s: reading from %q at revision %d: %w", store.Name, request.From, request.Revision, err)
			}
			return request.Revision, nil
		}
		request.Revision = 0
	}
}

// Get reads one key of the store; nil when the store does not hold it. The entry's bytes are its own.
func Get(ctx context.Context, store Store, key string) (*Entry, error) {
	var found *Entry
	_, err := Entries(ctx, store, Request{From: key, To: key + "\x00"}, func(e Entry) error {
		e.Key, e.Value = append([]byte(nil), e.Key...), append([]byte(nil), e.Value...)
		found = &e
		return nil
	})
	return found, err
}
