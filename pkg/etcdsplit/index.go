package etcdsplit

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"slices"
)

// hasher turns keys and UIDs into numbers. All stores of a scan share one.
type hasher struct{ seed maphash.Seed }

func (h hasher) hash(s string) uint64 { return maphash.String(h.seed, s) }

// objectID stands for one key of a store in 16 bytes. Two different keys of one resource with a million keys are taken
// for one with a chance of 2 in 1000; two UIDs among a million references with 1 in 10 million.
type objectID struct {
	key uint64 // 48 bits of the hash of the key below the prefix, and the number of its resource
	// 63 bits of the hash of the object's UID, name and place, all 0 when it has none; and whether an API server writes
	// it at start
	uid uint64
}

const resourceBits = 16

func newObjectID(key string, resource uint16, uid uint64, boot bool, h hasher) objectID {
	id := objectID{key: keyHash(key, resource, h), uid: uid}
	if boot {
		id.uid |= 1
	}
	return id
}

func keyHash(key string, resource uint16, h hasher) uint64 {
	return h.hash(key)&^(1<<resourceBits-1) | uint64(resource)
}

// uidHash is the hash of an object's UID and name: who looks for an owner asks for its name, and then compares the UID.
// It is 0 for no UID.
func uidHash(uid []byte, name string, h hasher) uint64 {
	if len(uid) == 0 {
		return 0
	}
	return max(2, (h.hash(text(uid))^bits.RotateLeft64(h.hash(name), 32))&^1)
}

// namespaceHash is 0 for no namespace.
func (h hasher) namespaceHash(namespace string) uint32 {
	if namespace == "" {
		return 0
	}
	return uint32(h.hash(namespace) >> 32)
}

// placed mixes where an object is into the hash of its UID. A collector asks for an owner by its kind and in a
// namespace: an object with that UID elsewhere is none.
func placed(uid uint64, resource uint16, namespace uint32) uint64 {
	const odd = 0x9e3779b97f4a7c15
	if uid == 0 {
		return 0
	}
	return max(2, (uid^(uint64(namespace)<<resourceBits|uint64(resource))*odd)&^1)
}

func (id objectID) resource() uint16 { return uint16(id.key) }
func (id objectID) boot() bool       { return id.uid&1 != 0 }
func (id objectID) hasUID() bool     { return id.uid > 1 }

// sameObject reports whether both, which have one key, have the same UID.
func (id objectID) sameObject(other objectID) bool { return id.hasUID() && id.uid&^1 == other.uid&^1 }

// chunks is a list that grows without copying what it holds, by an eighth at a time.
type chunks[T any] struct {
	parts [][]T
	items int
}

const (
	leastChunk   = 16 // items
	largestChunk = 4096
)

func (c *chunks[T]) add(item T) {
	n := len(c.parts)
	if n == 0 || len(c.parts[n-1]) == cap(c.parts[n-1]) {
		c.parts = append(c.parts, make([]T, 0, min(max(c.items/8, leastChunk), largestChunk)))
		n++
	}
	c.parts[n-1] = append(c.parts[n-1], item)
	c.items++
}

// flat returns the items in one piece and empties the list.
func (c *chunks[T]) flat() []T {
	items := slices.Concat(c.parts...)
	*c = chunks[T]{}
	return items
}

// index holds the ids of a store in buckets by their first byte, so that it can be filled from several ranges, sorted
// without a second copy, and compared with another store's.
type index struct {
	filling [256]chunks[objectID]
	buckets [256][]objectID // sorted
}

func (x *index) add(ids chunks[objectID]) {
	for _, part := range ids.parts {
		for _, id := range part {
			x.put(id)
		}
	}
}

func (x *index) put(id objectID) { x.filling[id.key>>56].add(id) }

func (x *index) sort() {
	for i := range x.buckets {
		x.buckets[i] = x.filling[i].flat()
		slices.SortFunc(x.buckets[i], func(a, b objectID) int { return cmp.Compare(a.key, b.key) })
	}
}

// find returns the id of a key in the sorted index.
func (x *index) find(key uint64) (objectID, bool) {
	bucket := x.buckets[key>>56]
	i, ok := slices.BinarySearchFunc(bucket, key, func(id objectID, key uint64) int { return cmp.Compare(id.key, key) })
	if !ok {
		return objectID{}, false
	}
	return bucket[i], true
}

// inBoth calls visit with the ids of every key that both sorted indexes hold.
func inBoth(a, b *index, visit func(a, b objectID)) {
	for n := range a.buckets {
		left, right := a.buckets[n], b.buckets[n]
		for i, j := 0, 0; i < len(left) && j < len(right); {
			switch {
			case left[i].key < right[j].key:
				i++
			case left[i].key > right[j].key:
				j++
			default:
				visit(left[i], right[j])
				i, j = i+1, j+1
			}
		}
	}
}

// uids turns the sorted index into the set of the UIDs in it, and empties it on the way: both at a time are not held.
func (x *index) uids() *uidSet {
	set := &uidSet{}
	for i := range x.buckets {
		for _, id := range x.buckets[i] {
			if id.hasUID() {
				set.add(id.uid &^ 1)
			}
		}
		x.buckets[i] = nil
	}
	return set
}

// uidSet is a set of hashes of UIDs. A part of it is sorted when it is first asked: often nobody does.
type uidSet struct {
	filling [256]chunks[uint64]
	buckets [256][]uint64
}

func (s *uidSet) add(uid uint64) { s.filling[uid>>56].add(uid) }

func (s *uidSet) has(uid uint64) bool {
	i := uid >> 56
	s.sort(i)
	_, ok := slices.BinarySearch(s.buckets[i], uid)
	return ok
}

// sortAll makes has safe for concurrent use, until the next add.
func (s *uidSet) sortAll() {
	for i := range s.buckets {
		s.sort(uint64(i))
	}
}

func (s *uidSet) sort(i uint64) {
	if s.filling[i].items > 0 {
		s.buckets[i] = s.filling[i].flat()
		slices.Sort(s.buckets[i])
	}
}
