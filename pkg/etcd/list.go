package etcd

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// ListedKey is one key of a listing. Bytes counts the value.
type ListedKey struct {
	Key         string `json:"key"` // below the prefix
	Bytes       int64  `json:"bytes"`
	ModRevision int64  `json:"modRevision"`
	Version     int64  `json:"version"`
}

// Listed is what a store holds of a resource, or of one namespace of it.
type Listed struct {
	Store     string      `json:"store"`
	Resource  string      `json:"resource"`
	Namespace string      `json:"namespace,omitempty"`
	Owner     pair.Owner  `json:"owner,omitempty"`
	Keys      int64       `json:"keys"`
	Bytes     int64       `json:"bytes"`
	Largest   []ListedKey `json:"largest,omitempty"` // the largest first
	Newest    []ListedKey `json:"newest,omitempty"`  // the last written first
}

// ListOptions restrict a listing.
type ListOptions struct {
	Under        string // a path below the prefix: the key of that name, and all below it; "" for all
	ByNamespace  bool   // one line per namespace of each resource
	NumberOfKeys int    // how many of the largest and of the newest keys to name
}

// List sums up what a store holds, by resource, and returns the revision. It holds one page and the lines of the
// answer.
func List(ctx context.Context, m *pair.Map, store Store, options ListOptions) (lines []Listed, revision int64,
	err error) {
	classifier := storage.NewClassifier(m)
	byID := map[[2]string]*Listed{}
	request, contains := Under(m, options.Under)
	revision, err = Entries(ctx, store, request, func(e Entry) error {
		if !contains(e.Key) {
			return nil
		}
		k := classifier.Classify(storage.Text(e.Key))
		rest := storage.Text(e.Key[len(classifier.Prefix()):])
		resource := k.Resource
		if resource == "" {
			resource, _, _ = strings.Cut(rest, "/")
		}
		id := [2]string{resource}
		if options.ByNamespace {
			id[1] = k.Namespace
		}
		line, ok := byID[id]
		if !ok {
			id = [2]string{strings.Clone(id[0]), strings.Clone(id[1])}
			line = &Listed{Store: store.Name, Resource: id[0], Namespace: id[1]}
			if row := storage.RowOf(m, k); row != nil {
				line.Owner = row.Owner
			}
			byID[id] = line
		}
		line.add(rest, e, options.NumberOfKeys)
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	lines = make([]Listed, 0, len(byID))
	for _, line := range byID {
		line.Resource, line.Namespace = storage.Printable(line.Resource), storage.Printable(line.Namespace)
		for _, keys := range [][]ListedKey{line.Largest, line.Newest} {
			for i := range keys {
				keys[i].Key = storage.Printable(keys[i].Key)
			}
		}
		lines = append(lines, *line)
	}
	slices.SortFunc(lines, func(a, b Listed) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Namespace, b.Namespace))
	})
	return lines, revision, nil
}

func (l *Listed) add(rest string, e Entry, limit int) {
	l.Keys++
	l.Bytes += int64(len(e.Value))
	key := ListedKey{rest, int64(len(e.Value)), e.ModRevision, e.Version}
	l.Largest = keepGreatest(l.Largest, key, limit, func(a, b ListedKey) int {
		return cmp.Or(-cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Key, b.Key))
	})
	l.Newest = keepGreatest(l.Newest, key, limit, func(a, b ListedKey) int {
		return cmp.Or(-cmp.Compare(a.ModRevision, b.ModRevision), cmp.Compare(a.Key, b.Key))
	})
}

// keepGreatest keeps the first few of all keys in the given order. The key's text is copied only when it is kept.
func keepGreatest(kept []ListedKey, key ListedKey, limit int, order func(a, b ListedKey) int) []ListedKey {
	at, _ := slices.BinarySearchFunc(kept, key, order)
	if at >= limit {
		return kept
	}
	key.Key = strings.Clone(key.Key)
	return slices.Insert(kept, at, key)[:min(len(kept)+1, limit)]
}

// Under asks for the key at a path below the prefix and for everything below it: those keys of the range that contains
// counts.
func Under(m *pair.Map, path string) (request Request, contains func(key []byte) bool) {
	prefix := storage.NormalPrefix(m.Prefix) + "/"
	path = strings.TrimSuffix(path, "/")
	if path == "" {
		return Request{From: prefix, To: PrefixEnd(prefix)}, func([]byte) bool { return true }
	}
	whole := prefix + path
	return Request{From: whole, To: PrefixEnd(whole + "/")}, func(key []byte) bool {
		return within(storage.Text(key), whole)
	}
}
