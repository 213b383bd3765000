package restart

import (
	"strconv"
	"sync"
)

// FNV-1a takes a multiplication for each byte and each waits for the one before, which is most of the time that a hash
// costs: a container is some kilobytes of text. But most of that text is the same for every container: the names of
// fields and types in a dump, the keys of JSON. What hashing a fixed text does to a state can be known beforehand. With
// p the prime of FNV,
//
//	state' = (state ^ b) * p                                    for one byte b
//	state ^ b = state + ((low ^ b) - low)                       where low is state % 256, the only bits that b touches
//	state' = state * p^n + f(low)                               for n bytes, f being the same for every state
//
// since the low bits of state' depend on the low bits of state alone. So a table of 256 numbers stands for a whole
// text.

const (
	fnvOffset uint32 = 2166136261
	fnvPrime  uint32 = 16777619
)

// fnvText continues the hash with a text.
func fnvText(state uint32, text string) uint32 {
	for i := range len(text) {
		state = (state ^ uint32(text[i])) * fnvPrime
	}
	return state
}

// segment is a text that is hashed again and again.
type segment struct {
	text  string
	once  sync.Once
	power uint32
	add   [256]uint32
}

func (s *segment) fill() {
	s.power = 1
	for range len(s.text) {
		s.power *= fnvPrime
	}
	for low := range uint32(256) {
		s.add[low] = fnvText(low, s.text) - low*s.power
	}
}

// after is the hash continued with the segment.
func (s *segment) after(state uint32) uint32 {
	s.once.Do(s.fill)
	return state*s.power + s.add[uint8(state)]
}

// decimals does the same for the texts " 0" to " 255", which is how a dump shows the bytes of JSON. low holds the low
// bits of the next state, by which the long wait for a multiplication becomes a short one for a table.
type decimals struct {
	power [256]uint32
	add   [256][256]uint32
	low   [256][256]uint8
}

var byteDecimals = sync.OnceValue(func() *decimals {
	d := new(decimals)
	for b := range 256 {
		s := segment{text: decimalsOf(string([]byte{byte(b)}))}
		s.fill()
		d.power[b], d.add[b] = s.power, s.add
		for low := range uint32(256) {
			d.low[b][low] = uint8(s.after(low))
		}
	}
	return d
})

// decimalsOf is how a dump shows bytes that are not the first.
func decimalsOf(text string) string {
	var dump []byte
	for i := range len(text) {
		dump = append(dump, ' ')
		dump = strconv.AppendUint(dump, uint64(text[i]), 10)
	}
	return string(dump)
}

// after is the hash continued with the decimals of some bytes.
func (d *decimals) after(state uint32, data []byte) uint32 {
	low := uint8(state)
	for _, b := range data {
		state = state*d.power[b] + d.add[b][low]
		low = d.low[b][low]
	}
	return state
}
