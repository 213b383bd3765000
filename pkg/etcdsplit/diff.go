package etcdsplit

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"
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

// Diff compares the keys below under in two stores, live or from files. It reads the left store once and the right one
// twice, and holds 16 bytes per key of each; up to limit differences are named.
func Diff(ctx context.Context, m *Map, left, right Store, under string, limit int) (*DiffReport, error) {
	prefix := NormalPrefix(m.Prefix) + "/"
	request := Request{From: prefix + under, To: prefixEnd(prefix + under)}
	d := differ{seed: maphash.MakeSeed(), report: &DiffReport{Differences: []Difference{}}, limit: limit, strip: len(prefix)}
	var err error
	// First what is on the right, in hashes; then the left against it, which names what is missing or changed on the right;
	// then the right against the hashes of the left.
	if d.report.RightRevision, err = Entries(ctx, right, request, func(e Entry) error { d.right.put(d.id(e)); return nil }); err != nil {
		return nil, err
	}
	d.right.sort()
	if d.report.LeftRevision, err = Entries(ctx, left, request, d.leftEntry); err != nil {
		return nil, err
	}
	d.left.sort()
	d.right = index{}
	atRevision := request
	atRevision.Revision = d.report.RightRevision
	if _, err := Entries(ctx, right, atRevision, d.rightEntry); err != nil {
		return nil, err
	}
	for i := range d.report.Differences {
		difference := &d.report.Differences[i]
		difference.Key = Printable(difference.Key)
		for _, side := range []*ListedKey{difference.Left, difference.Right} {
			if side != nil {
				side.Key = Printable(side.Key)
			}
		}
	}
	slices.SortFunc(d.report.Differences, func(a, b Difference) int { return strings.Compare(a.Key, b.Key) })
	return d.report, nil
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
	return &ListedKey{Key: string(e.Key[d.strip:]), Bytes: int64(len(e.Value)), ModRevision: e.ModRevision, Version: e.Version}
}

// leftEntry counts a key of the left store that is the same, and names one that the right store lacks. A changed one is
// named when its right half is seen.
func (d *differ) leftEntry(e Entry) error {
	id := d.id(e)
	d.left.put(id)
	other, ok := d.right.find(id.key)
	switch {
	case !ok:
		d.report.OnlyLeft++
		d.name(Difference{Kind: OnlyLeft, Left: d.listed(e)})
	case other.uid == id.uid:
		d.report.Same++
	}
	return nil
}

func (d *differ) rightEntry(e Entry) error {
	id := d.id(e)
	other, ok := d.left.find(id.key)
	switch {
	case !ok:
		d.report.OnlyRight++
		d.name(Difference{Kind: OnlyRight, Right: d.listed(e)})
	case other.uid != id.uid:
		d.report.Changed++
		d.name(Difference{Kind: Changed, Right: d.listed(e)})
	}
	return nil
}

func (d *differ) name(difference Difference) {
	if difference.Left != nil {
		difference.Key = difference.Left.Key
	} else {
		difference.Key = difference.Right.Key
	}
	at, _ := slices.BinarySearchFunc(d.report.Differences, difference.Key, func(x Difference, key string) int { return strings.Compare(x.Key, key) })
	if at >= d.limit {
		return
	}
	d.report.Differences = slices.Insert(d.report.Differences, at, difference)
	if len(d.report.Differences) > d.limit {
		d.report.Differences = d.report.Differences[:d.limit]
	}
}
