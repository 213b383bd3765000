package etcd

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// Found is a key that a store holds.
type Found struct {
	Store string
	*Entry
}

// compacted is a key of API servers that is not below the prefix.
const compacted = "compact_rev_key"

// Find looks in every store for the key that a name most likely means, of those that Paths names.
// Errors: those of the stores, joined. A store that cannot be read does not hide what the others hold.
func Find(ctx context.Context, m *pair.Map, stores []Store, typed string) (found []Found, err error) {
	keys := []string{typed}
	if typed != compacted {
		keys, _ = Paths(m, typed)
		for i := range keys {
			keys[i] = storage.NormalPrefix(m.Prefix) + "/" + keys[i]
		}
	}
	for _, s := range stores {
		entries := map[string]*Entry{}
		failed := GetEach(ctx, s, 0, keys, func(e Entry) error {
			e.Key, e.Value = slices.Clone(e.Key), slices.Clone(e.Value)
			entries[string(e.Key)] = &e
			return nil
		})
		err = errors.Join(err, failed)
		for _, key := range keys {
			if entry := entries[key]; entry != nil {
				found = append(found, Found{s.Name, entry})
				break
			}
		}
	}
	return found, err
}

// ListedStore sums up what was listed of a store.
type ListedStore struct {
	Name     string `json:"name"`
	Revision int64  `json:"revision"`
	Keys     int64  `json:"keys"`
	Bytes    int64  `json:"bytes"`
}

// Listing is what several stores hold.
type Listing struct {
	Stores    []ListedStore `json:"stores"` // that were read
	Resources []Listed      `json:"resources"`
}

// ListAll lists what several stores hold below what a name most likely means: the first of its Paths below which there
// is something. Without a name it lists all. It sets options.Under.
// Errors: one for each store that cannot be read, which does not keep the others from being listed.
func ListAll(ctx context.Context, m *pair.Map, stores []Store, typed string, options ListOptions) (listing Listing,
	failed []error) {
	paths, _ := Paths(m, typed)
	for _, path := range paths {
		options.Under = path
		listing, failed = listAll(ctx, m, stores, options)
		if len(failed) > 0 || len(listing.Resources) > 0 {
			break
		}
	}
	return listing, failed
}

func listAll(ctx context.Context, m *pair.Map, stores []Store, options ListOptions) (Listing, []error) {
	listing, failed := Listing{Stores: []ListedStore{}, Resources: []Listed{}}, []error(nil)
	for _, s := range stores {
		lines, revision, err := List(ctx, m, s, options)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		total := ListedStore{Name: s.Name, Revision: revision}
		for _, l := range lines {
			total.Keys += l.Keys
			total.Bytes += l.Bytes
		}
		listing.Stores = append(listing.Stores, total)
		listing.Resources = append(listing.Resources, lines...)
	}
	return listing, failed
}

// Sort orders the resources of each store: by "bytes" or by "keys", the largest first; any other word leaves them in
// the order of their names.
func (l *Listing) Sort(by string) {
	place := map[string]int{}
	for i, s := range l.Stores {
		place[s.Name] = i
	}
	slices.SortStableFunc(l.Resources, func(a, b Listed) int {
		order := cmp.Compare(place[a.Store], place[b.Store])
		switch by {
		case "bytes":
			return cmp.Or(order, -cmp.Compare(a.Bytes, b.Bytes))
		case "keys":
			return cmp.Or(order, -cmp.Compare(a.Keys, b.Keys))
		}
		return order
	})
}
