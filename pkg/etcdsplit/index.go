package etcdsplit

import (
	"cmp"
	"hash/maphash"
	"slices"
)

// hasher turns keys and UIDs into numbers. All stores of a scan share one.
type hasher struct{ seed maphash.Seed }

func (h hasher) hash(s string) uint64 { return maphash.String(h.seed, s) }

// objectID stands for one key of a store in 16 bytes. Two different keys of one resource with a million keys are taken for
// one with a chance of 2 in 1000; two UIDs among a million references with 1 in 10 million.
type objectID struct {
	key uint64 // 48 bits of the hash of the key below the prefix, and the number of its resource
	uid uint64 // 63 bits of the hash of the object's UID, all 0 when it has none; and whether an API server writes it at start
}

const resourceBits = 16

func newObjectID(key string, resource uint16, uid string, boot bool, h hasher) objectID {
	id := objectID{key: keyHash(key, resource, h)}
	if uid != "" {
		id.uid = uidHash(uid, h)
	}
	if boot {
		id.uid |= 1
	}
	return id
}

func keyHash(key string, resource uint16, h hasher) uint64 {
	return h.hash(key)&^(1<<resourceBits-1) | uint64(resource)
}

func uidHash(uid string, h hasher) uint64 { return h.hash(uid) &^ 1 }

func (id objectID) resource() uint16 { return uint16(id.key) }
func (id objectID) boot() bool       { return id.uid&1 != 0 }
func (id objectID) hasUID() bool     { return id.uid > 1 }

// sameObject reports whether both have the same UID.
func (id objectID) sameObject(other objectID) bool { return id.hasUID() && id.uid&^1 == other.uid&^1 }

// index holds the ids of a store in buckets by their first byte, so that it can be filled from several ranges, sorted in
// place and compared with another store's without a second copy.
type index struct{ buckets [256][]objectID }

func (x *index) add(ids []objectID) {
	for _, id := range ids {
		b := &x.buckets[id.key>>56]
		*b = append(*b, id)
	}
}

func (x *index) sort() {
	for i := range x.buckets {
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

// has reports whether the sorted index holds the key.
func (x *index) has(key uint64) bool {
	_, ok := x.find(key)
	return ok
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

// uids turns the index into the sorted set of the UIDs in it, and empties it on the way: both at a time are not held.
func (x *index) uids() *uidSet {
	set := &uidSet{}
	for i := range x.buckets {
		set.add(x.buckets[i])
		x.buckets[i] = nil
	}
	set.sort()
	return set
}

// uidSet is a sorted set of hashes of UIDs.
type uidSet struct{ buckets [256][]uint64 }

func (s *uidSet) add(ids []objectID) {
	for _, id := range ids {
		if id.hasUID() {
			b := &s.buckets[id.uid>>56]
			*b = append(*b, id.uid&^1)
		}
	}
}

func (s *uidSet) sort() {
	for i := range s.buckets {
		slices.Sort(s.buckets[i])
	}
}

func (s *uidSet) has(uid uint64) bool {
	_, ok := slices.BinarySearch(s.buckets[uid>>56], uid)
	return ok
}
