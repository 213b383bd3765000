package restart

import (
	"fmt"
	"hash/fnv"
	"strings"
	"testing"
)

func TestSegmentHashesLikeFNV(t *testing.T) {
	for _, text := range []string{"", "a", " VolumeMounts:([]v1.VolumeMount)", "\x00\xff\x80",
		strings.Repeat("é", 100)} {
		s := &segment{text: text}
		for state := uint32(1); state != 0; state <<= 1 {
			for low := range uint32(256) {
				start := state ^ low
				if got, want := s.after(start), fnvText(start, text); got != want {
					t.Fatalf("%q after %x = %x, want %x", text, start, got, want)
				}
			}
		}
	}
}

func TestDecimalsHashLikeTheDumpOfBytes(t *testing.T) {
	var data []byte
	for i := range 1 << 16 {
		data = append(data, byte(i), byte(i>>8))
	}
	dump := fmt.Sprint(data) // [0 0 1 0 ...]
	h := fnv.New32a()
	h.Write([]byte(dump[:len(dump)-1]))
	got := byteDecimals().after(fnvText(fnvOffset, "[0"), data[1:])
	if want := h.Sum32(); got != want {
		t.Errorf("decimals after = %x, want %x", got, want)
	}
}
