// Package keyindex holds the keys of a store in 16 bytes each, by their hashes, so that stores of any size can be
// compared with each other and searched.
package keyindex

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/storage"
)

// Hasher turns keys and UIDs into numbers. All stores of a scan share one.
type Hasher struct{ Seed maphash.Seed }

// Hash is the hash of a text.
func (h Hasher) Hash(s string) uint64 { return maphash.String(h.Seed, s) }

// ID stands for one key of a store in 16 bytes. Two different keys of one resource with a million keys are taken
// for one with a chance of 2 in 1000; two UIDs among a million references with 1 in 10 million.
type ID struct {
	Key uint64 // 48 bits of the hash of the key below the prefix, and the number of its resource
	// 63 bits of the hash of the object's UID, name and place, all 0 when it has none; and whether an API server writes
	// it at start
	UID uint64
}

// ResourceBits of a key's hash make room for the number of its resource.
const ResourceBits = 16

// NewID is the ID of a key below the prefix; uid is what UIDHash and Placed make of the object's, 0 for none.
func NewID(key string, resource uint16, uid uint64, boot bool, h Hasher) ID {
	id := ID{Key: KeyHash(key, resource, h), UID: uid}
	if boot {
		id.UID |= 1
	}
	return id
}

// KeyHash is ID.Key, by which Find finds an ID.
func KeyHash(key string, resource uint16, h Hasher) uint64 {
	return h.Hash(key)&^(1<<ResourceBits-1) | uint64(resource)
}

// UIDHash is the hash of an object's UID and name: a collector looks an owner up by its name, and then compares the
// UID. It is 0 for no UID.
func UIDHash(uid []byte, name string, h Hasher) uint64 {
	if len(uid) == 0 {
		return 0
	}
	return max(2, (h.Hash(storage.Text(uid))^bits.RotateLeft64(h.Hash(name), 32))&^1)
}

// NamespaceHash is 0 for no namespace.
func (h Hasher) NamespaceHash(namespace string) uint32 {
	if namespace == "" {
		return 0
	}
	return uint32(h.Hash(namespace) >> 32)
}

// Placed mixes where an object is into the hash of its UID. A collector looks an owner up by its kind and in a
// namespace: an object with that UID elsewhere is another one.
func Placed(uid uint64, resource uint16, namespace uint32) uint64 {
	const odd = 0x9e3779b97f4a7c15
	if uid == 0 {
		return 0
	}
	return max(2, (uid^(uint64(namespace)<<ResourceBits|uint64(resource))*odd)&^1)
}

// Resource is the number of the key's resource.
func (id ID) Resource() uint16 { return uint16(id.Key) }

// Boot reports whether an API server writes the key at its start.
func (id ID) Boot() bool { return id.UID&1 != 0 }

// HasUID reports whether the object has a UID.
func (id ID) HasUID() bool { return id.UID > 1 }

// SameObject reports whether both, which have one key, have the same UID.
func (id ID) SameObject(other ID) bool { return id.HasUID() && id.UID&^1 == other.UID&^1 }

// Chunks is a list that grows without copying what it holds, by an eighth at a time.
type Chunks[T any] struct {
	Parts [][]T
	Items int
}

const (
	leastChunk   = 16 // items
	largestChunk = 4096
)

// Add appends the item.
func (c *Chunks[T]) Add(item T) {
	n := len(c.Parts)
	if n == 0 || len(c.Parts[n-1]) == cap(c.Parts[n-1]) {
		c.Parts = append(c.Parts, make([]T, 0, min(max(c.Items/8, leastChunk), largestChunk)))
		n++
	}
	c.Parts[n-1] = append(c.Parts[n-1], item)
	c.Items++
}

// Flat returns the items in one piece and empties the list.
func (c *Chunks[T]) Flat() []T {
	items := slices.Concat(c.Parts...)
	*c = Chunks[T]{}
	return items
}

// Index holds the ids of a store in buckets by their first byte, so that it can be filled from several ranges, sorted
// without a second copy, and compared with another store's.
type Index struct {
	filling [256]Chunks[ID]
	Buckets [256][]ID // sorted
}

// Add puts all of the ids into the index, which is to be sorted again before it is searched.
func (x *Index) Add(ids Chunks[ID]) {
	for _, part := range ids.Parts {
		for _, id := range part {
			x.Put(id)
		}
	}
}

// Put is Add for one id.
func (x *Index) Put(id ID) { x.filling[id.Key>>56].Add(id) }

// Sort makes the index ready to be searched.
func (x *Index) Sort() {
	for i := range x.Buckets {
		x.Buckets[i] = x.filling[i].Flat()
		slices.SortFunc(x.Buckets[i], func(a, b ID) int { return cmp.Compare(a.Key, b.Key) })
	}
}

// Find returns the id of a key in the sorted index.
func (x *Index) Find(key uint64) (ID, bool) {
	bucket := x.Buckets[key>>56]
	i, ok := slices.BinarySearchFunc(bucket, key, func(id ID, key uint64) int { return cmp.Compare(id.Key, key) })
	if !ok {
		return ID{}, false
	}
	return bucket[i], true
}

// InBoth calls visit with the ids of every key that both sorted indexes hold.
func InBoth(a, b *Index, visit func(a, b ID)) {
	for n := range a.Buckets {
		left, right := a.Buckets[n], b.Buckets[n]
		for i, j := 0, 0; i < len(left) && j < len(right); {
			switch {
			case left[i].Key < right[j].Key:
				i++
			case left[i].Key > right[j].Key:
				j++
			default:
				visit(left[i], right[j])
				i, j = i+1, j+1
			}
		}
	}
}

// UIDs turns the sorted index into the set of the UIDs in it, and empties it on the way: both at a time are not held.
func (x *Index) UIDs() *UIDSet {
	set := &UIDSet{}
	for i := range x.Buckets {
		for _, id := range x.Buckets[i] {
			if id.HasUID() {
				set.Add(id.UID &^ 1)
			}
		}
		x.Buckets[i] = nil
	}
	return set
}

// UIDSet is a set of hashes of UIDs. A part of it is sorted when it is first searched, which is seldom.
type UIDSet struct {
	filling [256]Chunks[uint64]
	buckets [256][]uint64
}

// Add puts a UID, as in ID.UID without its last bit, into the set.
func (s *UIDSet) Add(uid uint64) { s.filling[uid>>56].Add(uid) }

// Has reports whether the UID is in the set. It may sort, and is not safe for concurrent use before SortAll.
func (s *UIDSet) Has(uid uint64) bool {
	i := uid >> 56
	s.sort(i)
	_, ok := slices.BinarySearch(s.buckets[i], uid)
	return ok
}

// SortAll makes Has safe for concurrent use, until the next add.
func (s *UIDSet) SortAll() {
	for i := range s.buckets {
		s.sort(uint64(i))
	}
}

func (s *UIDSet) sort(i uint64) {
	if s.filling[i].Items > 0 {
		s.buckets[i] = s.filling[i].Flat()
		slices.Sort(s.buckets[i])
	}
}
