package etcdsplit

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// DifferenceKind says how two stores differ in a key.
type DifferenceKind string

// The ways in which two stores differ in a key.
const (
	OnlyLeft  DifferenceKind = "left"    // the right store does not hold the key
	OnlyRight DifferenceKind = "right"   // the left store does not hold the key
	Changed   DifferenceKind = "changed" // the values differ
)

// Difference is one key in which two stores differ. Key is below the prefix.
type Difference struct {
	Kind  DifferenceKind `json:"kind"`
	Key   string         `json:"key"`
	Left  *ListedKey     `json:"left,omitempty"`
	Right *ListedKey     `json:"right,omitempty"`
	// Values says how the values differ, when EachDifference is asked to compare them.
	Values string `json:"values,omitempty"`

	path string // Key as it stands in the store
}

// DiffReport is how two stores differ.
type DiffReport struct {
	LeftRevision  int64        `json:"leftRevision"`
	RightRevision int64        `json:"rightRevision"`
	Same          int64        `json:"same"`
	OnlyLeft      int64        `json:"onlyLeft"`
	OnlyRight     int64        `json:"onlyRight"`
	Changed       int64        `json:"changed"`
	Differences   []Difference `json:"differences"` // by key, the first ones up to the limit
}

// Differs reports whether there is any difference.
func (r *DiffReport) Differs() bool { return r.OnlyLeft+r.OnlyRight+r.Changed > 0 }

// Diff compares two stores, live or from files: the key at a path below the prefix and all below it. It reads the left
// store once and the right one twice, and holds 16 bytes per key of each; up to limit differences are named.
//
// When the revision of the right store is compacted between the two times that it is read, both stores are compared
// anew. Errors: those of the stores; that the revision was compacted again and again.
func Diff(ctx context.Context, m *pair.Map, left, right Store, path string, limit int) (*DiffReport, error) {
	for range 3 {
		if report, err := diffOnce(ctx, m, left, right, path, limit); report != nil || err != nil {
			return report, err
		}
	}
	return nil, fmt.Errorf("comparing with store %s: %w again and again: compare with a snapshot of it", right.Name,
		ErrCompacted)
}

// diffOnce is Diff; nil when the right store could not be read twice at one revision.
func diffOnce(ctx context.Context, m *pair.Map, left, right Store, path string, limit int) (*DiffReport, error) {
	request, contains := under(m, path)
	d := differ{seed: maphash.MakeSeed(), report: &DiffReport{Differences: []Difference{}}, limit: limit,
		strip: len(NormalPrefix(m.Prefix)) + 1}
	each := func(visit func(Entry)) func(Entry) error {
		return func(e Entry) error {
			if contains(e.Key) {
				visit(e)
			}
			return nil
		}
	}
	var err error
	// First what is on the right, in hashes; then the left against it, which names what is missing or changed on the
	// right; then the right against the hashes of the left.
	if d.report.RightRevision, err = Entries(ctx, right, request, each(func(e Entry) {
		d.right.put(d.id(e))
	})); err != nil {
		return nil, err
	}
	d.right.sort()
	if d.report.LeftRevision, err = Entries(ctx, left, request, each(d.leftEntry)); err != nil {
		return nil, err
	}
	d.left.sort()
	d.right = index{}
	atRevision := request
	atRevision.Revision = d.report.RightRevision
	again, err := Entries(ctx, right, atRevision, each(d.rightEntry))
	if err != nil || again != d.report.RightRevision {
		return nil, err
	}
	for i := range d.report.Differences {
		difference := &d.report.Differences[i]
		difference.path, difference.Key = difference.Key, Printable(difference.Key)
		for _, side := range []*ListedKey{difference.Left, difference.Right} {
			if side != nil {
				side.Key = Printable(side.Key)
			}
		}
	}
	return d.report, nil
}

// comparedBytes is how many bytes of values EachDifference holds, about, unless one key has more.
const comparedBytes = 4 << 20

// EachDifference visits the differences that a report names, in the order of keys. With compare it reads the values of
// the changed ones again, at the report's revisions and some at a time, and adds what compare says of them. Errors:
// those of the stores, and visit's own.
func EachDifference(ctx context.Context, m *pair.Map, left, right Store, report *DiffReport,
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
func compareValues(ctx context.Context, m *pair.Map, left, right Store, report *DiffReport, batch []Difference,
	compare func(path string, left, right []byte) string) error {
	prefix := NormalPrefix(m.Prefix) + "/"
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
	if err := GetEach(ctx, left, report.LeftRevision, keys, func(e Entry) error {
		values[at[text(e.Key)]] = slices.Clone(e.Value)
		return nil
	}); err != nil {
		return err
	}
	return GetEach(ctx, right, report.RightRevision, keys, func(e Entry) error {
		if i := at[text(e.Key)]; values[i] != nil {
			batch[i].Values = compare(batch[i].path, values[i], e.Value)
		}
		return nil
	})
}

type differ struct {
	seed        maphash.Seed
	left, right index
	report      *DiffReport
	limit       int
	strip       int
}

// id stands for a key and its value: here the second half is the hash of the value.
func (d *differ) id(e Entry) objectID {
	return objectID{maphash.Bytes(d.seed, e.Key), maphash.Bytes(d.seed, e.Value)}
}

func (d *differ) listed(e Entry) *ListedKey {
	return &ListedKey{Key: string(e.Key[d.strip:]), Bytes: int64(len(e.Value)), ModRevision: e.ModRevision,
		Version: e.Version}
}

// leftEntry counts a key of the left store that is the same, and names one that the right store lacks or holds
// differently.
func (d *differ) leftEntry(e Entry) {
	id := d.id(e)
	d.left.put(id)
	other, ok := d.right.find(id.key)
	switch {
	case !ok:
		d.report.OnlyLeft++
		d.name(Difference{Kind: OnlyLeft, Left: d.listed(e)})
	case other.uid == id.uid:
		d.report.Same++
	default:
		d.report.Changed++
		d.name(Difference{Kind: Changed, Left: d.listed(e)})
	}
}

// rightEntry names a key that the left store lacks, and completes one that it holds differently.
func (d *differ) rightEntry(e Entry) {
	id := d.id(e)
	other, ok := d.left.find(id.key)
	switch {
	case !ok:
		d.report.OnlyRight++
		d.name(Difference{Kind: OnlyRight, Right: d.listed(e)})
	case other.uid != id.uid:
		if at, ok := d.find(text(e.Key[d.strip:])); ok {
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
