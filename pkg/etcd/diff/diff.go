// Package diff compares two stores key by key: what one of them does not hold, and what they hold differently.
package diff

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/keyindex"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// Kind is how two stores differ in a key.
type Kind string

// The ways in which two stores differ in a key.
const (
	OnlyLeft  Kind = "left"    // the right store does not hold the key
	OnlyRight Kind = "right"   // the left store does not hold the key
	Changed   Kind = "changed" // the values differ
)

// Difference is one key in which two stores differ. Key is below the prefix.
type Difference struct {
	Kind  Kind            `json:"kind"`
	Key   string          `json:"key"`
	Left  *etcd.ListedKey `json:"left,omitempty"`
	Right *etcd.ListedKey `json:"right,omitempty"`
	// Values describes how the values differ, when Each compares them.
	Values string `json:"values,omitempty"`

	path string // Key as it stands in the store
}

// Report is how two stores differ.
type Report struct {
	LeftRevision  int64        `json:"leftRevision"`
	RightRevision int64        `json:"rightRevision"`
	Same          int64        `json:"same"`
	OnlyLeft      int64        `json:"onlyLeft"`
	OnlyRight     int64        `json:"onlyRight"`
	Changed       int64        `json:"changed"`
	Differences   []Difference `json:"differences"` // by key, the first ones up to the limit
}

// Differs reports whether there is any difference.
func (r *Report) Differs() bool { return r.OnlyLeft+r.OnlyRight+r.Changed > 0 }

// Stores compares two stores, live or from files: the key at a path below the prefix and all below it. It reads the
// left store once and the right one twice, and holds 16 bytes per key of each; up to limit differences are named.
//
// When the revision of the right store is compacted between the two times that it is read, both stores are compared
// anew. Errors: those of the stores; repeated compaction of the revision.
func Stores(ctx context.Context, m *pair.Map, left, right etcd.Store, path string, limit int) (*Report, error) {
	for range 3 {
		if report, err := diffOnce(ctx, m, left, right, path, limit); report != nil || err != nil {
			return report, err
		}
	}
	return nil, fmt.Errorf("comparing with store %s: %w repeatedly: compare with a snapshot of it", right.Name,
		etcd.ErrCompacted)
}

// diffOnce is Stores; nil when the right store could not be read twice at one revision.
func diffOnce(ctx context.Context, m *pair.Map, left, right etcd.Store, path string, limit int) (*Report, error) {
	request, contains := etcd.Under(m, path)
	d := differ{seed: maphash.MakeSeed(), report: &Report{Differences: []Difference{}}, limit: limit,
		strip: len(storage.NormalPrefix(m.Prefix)) + 1}
	each := func(visit func(etcd.Entry)) func(etcd.Entry) error {
		return func(e etcd.Entry) error {
			if contains(e.Key) {
				visit(e)
			}
			return nil
		}
	}
	var err error
	// First what is on the right, in hashes; then the left against it, which names what is missing or changed on the
	// right; then the right against the hashes of the left.
	if d.report.RightRevision, err = etcd.Entries(ctx, right, request, each(func(e etcd.Entry) {
		d.right.Put(d.id(e))
	})); err != nil {
		return nil, err
	}
	d.right.Sort()
	if d.report.LeftRevision, err = etcd.Entries(ctx, left, request, each(d.leftEntry)); err != nil {
		return nil, err
	}
	d.left.Sort()
	d.right = keyindex.Index{}
	atRevision := request
	atRevision.Revision = d.report.RightRevision
	again, err := etcd.Entries(ctx, right, atRevision, each(d.rightEntry))
	if err != nil || again != d.report.RightRevision {
		return nil, err
	}
	for i := range d.report.Differences {
		difference := &d.report.Differences[i]
		difference.path, difference.Key = difference.Key, storage.Printable(difference.Key)
		for _, side := range []*etcd.ListedKey{difference.Left, difference.Right} {
			if side != nil {
				side.Key = storage.Printable(side.Key)
			}
		}
	}
	return d.report, nil
}

// comparedBytes is how many bytes of values Each holds, about, unless one key has more.
const comparedBytes = 4 << 20

// Each visits the differences that a report names, in the order of keys. With compare it reads the values of
// the changed ones again, at the report's revisions and some at a time, and adds what compare returns. Errors:
// those of the stores, and visit's own.
func Each(ctx context.Context, m *pair.Map, left, right etcd.Store, report *Report,
	compare func(path string, left, right []byte) string, visit func(Difference) error) error {
	for start := 0; start < len(report.Differences); {
		end, bytes := start, int64(0)
		for ; end < len(report.Differences); end++ {
			d := &report.Differences[end]
			if d.Kind == Changed && compare != nil {
				bytes += d.Left.Bytes
			}
			if bytes > comparedBytes && end > start {
				break
			}
		}
		batch := slices.Clone(report.Differences[start:end])
		if compare != nil {
			if err := compareValues(ctx, m, left, right, report, batch, compare); err != nil {
				return err
			}
		}
		for _, d := range batch {
			if err := visit(d); err != nil {
				return err
			}
		}
		start = end
	}
	return nil
}

// compareValues fills in how the values of the changed keys among the differences differ.
func compareValues(ctx context.Context, m *pair.Map, left, right etcd.Store, report *Report, batch []Difference,
	compare func(path string, left, right []byte) string) error {
	prefix := storage.NormalPrefix(m.Prefix) + "/"
	at := map[string]int{}
	var keys []string
	for i := range batch {
		if d := &batch[i]; d.Kind == Changed {
			d.Values = "changed again, or deleted, since they were compared"
			at[prefix+d.path] = i
			keys = append(keys, prefix+d.path)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	values := make([][]byte, len(batch))
	if err := etcd.GetEach(ctx, left, report.LeftRevision, keys, func(e etcd.Entry) error {
		values[at[storage.Text(e.Key)]] = slices.Clone(e.Value)
		return nil
	}); err != nil {
		return err
	}
	return etcd.GetEach(ctx, right, report.RightRevision, keys, func(e etcd.Entry) error {
		if i := at[storage.Text(e.Key)]; values[i] != nil {
			batch[i].Values = compare(batch[i].path, values[i], e.Value)
		}
		return nil
	})
}

type differ struct {
	seed        maphash.Seed
	left, right keyindex.Index
	report      *Report
	limit       int
	strip       int
}

// id stands for a key and its value: here the second half is the hash of the value.
func (d *differ) id(e etcd.Entry) keyindex.ID {
	return keyindex.ID{Key: maphash.Bytes(d.seed, e.Key), UID: maphash.Bytes(d.seed, e.Value)}
}

func (d *differ) listed(e etcd.Entry) *etcd.ListedKey {
	return &etcd.ListedKey{Key: string(e.Key[d.strip:]), Bytes: int64(len(e.Value)), ModRevision: e.ModRevision,
		Version: e.Version}
}

// leftEntry counts a key of the left store that is the same, and names one that the right store lacks or holds
// differently.
func (d *differ) leftEntry(e etcd.Entry) {
	id := d.id(e)
	d.left.Put(id)
	other, ok := d.right.Find(id.Key)
	switch {
	case !ok:
		d.report.OnlyLeft++
		d.name(Difference{Kind: OnlyLeft, Left: d.listed(e)})
	case other.UID == id.UID:
		d.report.Same++
	default:
		d.report.Changed++
		d.name(Difference{Kind: Changed, Left: d.listed(e)})
	}
}

// rightEntry names a key that the left store lacks, and completes one that it holds differently.
func (d *differ) rightEntry(e etcd.Entry) {
	id := d.id(e)
	other, ok := d.left.Find(id.Key)
	switch {
	case !ok:
		d.report.OnlyRight++
		d.name(Difference{Kind: OnlyRight, Right: d.listed(e)})
	case other.UID != id.UID:
		if at, ok := d.find(storage.Text(e.Key[d.strip:])); ok {
			d.report.Differences[at].Right = d.listed(e)
		}
	}
}

// find is where the difference in a key is named, or would be.
func (d *differ) find(key string) (at int, ok bool) {
	return slices.BinarySearchFunc(d.report.Differences, key, func(x Difference, key string) int {
		return strings.Compare(x.Key, key)
	})
}

func (d *differ) name(difference Difference) {
	if difference.Left != nil {
		difference.Key = difference.Left.Key
	} else {
		difference.Key = difference.Right.Key
	}
	at, _ := d.find(difference.Key)
	if at >= d.limit {
		return
	}
	d.report.Differences = slices.Insert(d.report.Differences, at, difference)
	if len(d.report.Differences) > d.limit {
		d.report.Differences = d.report.Differences[:d.limit]
	}
}
