package snapshot

import (
	"hash/maphash"
	"math/bits"
)

// keySet remembers keys by 64 bits of hash, in tables without pointers. That two keys of a million are taken for one,
// so that the older is overlooked, has a chance of 3 in 100 million. There are many tables so that only one at a time
// is held twice while it grows.
type keySet struct {
	seed   maphash.Seed
	shards [256]keyTable
}

// newKeySet returns an empty set with room for the number of keys.
func newKeySet(keys int64) *keySet {
	s := &keySet{seed: maphash.MakeSeed()}
	if perShard := int(keys) / len(s.shards); perShard > 0 {
		for i := range s.shards {
			s.shards[i].slots = make([]uint64, perShard*4/3+64)
		}
	}
	return s
}

// len is the number of keys in the set.
func (s *keySet) len() (keys int64) {
	for i := range s.shards {
		keys += int64(s.shards[i].used)
	}
	return keys
}

// hash is what the set knows of a key.
func (s *keySet) hash(key []byte) uint64 { return maphash.Bytes(s.seed, key) }

// add reports whether a key with the hash is new to the set.
func (s *keySet) add(hash uint64) bool { return s.shards[hash>>56].add(hash) }

// keyTable is a hash table with linear probing. A slot of 0 is free, so no hash is 0.
type keyTable struct {
	slots []uint64
	used  int
}

func (t *keyTable) add(h uint64) bool {
	if t.used*6 >= len(t.slots)*5 {
		t.grow()
	}
	if !t.insert(max(h, 1)) {
		return false
	}
	t.used++
	return true
}

// fetch looks at where the hash would be.
func (s *keySet) fetch(hash uint64) byte {
	t := &s.shards[hash>>56]
	if len(t.slots) == 0 {
		return 0
	}
	return byte(t.slots[t.slot(hash)])
}

// slot is where a hash is looked for at first: the bits below those that chose the table, spread over a size that is no
// power of two.
func (t *keyTable) slot(hash uint64) int {
	high, _ := bits.Mul64(hash<<8, uint64(len(t.slots)))
	return int(high)
}

func (t *keyTable) insert(h uint64) bool {
	for i := t.slot(h); ; i++ {
		if i == len(t.slots) {
			i = 0
		}
		switch t.slots[i] {
		case 0:
			t.slots[i] = h
			return true
		case h:
			return false
		}
	}
}

func (t *keyTable) grow() {
	old := t.slots
	t.slots = make([]uint64, 64+len(old)*3/2)
	for _, h := range old {
		if h != 0 {
			t.insert(h)
		}
	}
}
