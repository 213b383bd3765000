package scan

import "testing"

func TestAddressesInABitmap(t *testing.T) {
	for _, test := range []struct {
		span, address string
		place         int // -1: none
	}{
		{"10.96.0.0/24", "10.96.0.1", 0}, {"10.96.0.0/24", "10.96.0.254", 253}, {"10.96.0.0/24", "10.96.0.0", -1},
		{"10.96.0.0/24", "10.96.1.1", -1}, {"10.96.0.0/12", "10.97.0.1", 65536}, {"10.0.0.0/8", "10.16.0.2", -1},
		{"fd00::/108", "fd00::ffff", 65534}, {"fd00::/64", "fd00::1:0:0:1", -1}, {"10.96.0.0/24", "fd00::1", -1},
		{"30000-32767", "0.0.117.48", -1}, {"x", "10.96.0.1", -1}, {"10.96.0.0/24", "None", -1},
		{"10.96.0.0/24", "", -1},
	} {
		got, in := AddressBit(test.span, test.address)
		if in != (test.place >= 0) || in && got != test.place {
			t.Errorf("AddressBit(%s, %s) = %d, %v; want %d", test.span, test.address, got, in, test.place)
		}
	}
}
