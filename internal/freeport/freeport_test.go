package freeport

import "testing"

func TestNextIsBelowTheEphemeralRange(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		port, err := Next()
		if err != nil {
			t.Fatal(err)
		}
		if port < firstPort || port >= 32768 || seen[port] {
			t.Errorf("Next = %d, want a new one from %d to %d", port, firstPort, lastPort)
		}
		seen[port] = true
	}
}
