package webserver

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestHeapsGrowToAFloorAndByAQuarter(t *testing.T) {
	const mib = 1 << 20
	for _, tc := range []struct {
		heap
		want int
	}{
		{heap{}, 400},
		{heap{live: 10 * mib, roots: 2 * mib}, 400},
		{heap{live: 48 * mib}, 100},
		{heap{live: 80 * mib}, 25},
		{heap{live: 400 * mib}, 25},
		{heap{live: 70 * mib, stacks: 60 * mib, roots: 10 * mib}, 40},
		{heap{live: 1 * mib, stacks: 95 * mib, roots: 200 * mib}, 11},
	} {
		if got := tc.percent(); got != tc.want {
			t.Errorf("%+v: GOGC %d, want %d", tc.heap, got, tc.want)
		}
	}
}

// TestHeapsAreMeasured: each of the names is one that this Go has, and live memory counts.
func TestHeapsAreMeasured(t *testing.T) {
	held := make([]byte, 64<<20)
	runtime.GC()
	h := readHeap()
	if h.cycles == 0 || h.live < uint64(len(held)) || h.objects < uint64(len(held)) || h.stacks == 0 || h.roots == 0 {
		t.Errorf("%+v", h)
	}
	runtime.KeepAlive(held)
	runtime.GC()
	if after := readHeap(); after.live > h.live/2 {
		t.Errorf("%+v, and nothing is held", after)
	}
}

// TestHeapsAreAdjusted after a collection.
func TestHeapsAreAdjusted(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(77))
	p := &heapPacer{}
	done := make(chan int)
	p.arm(t.Context())
	go func() {
		for {
			runtime.GC()
			if got := debug.SetGCPercent(77); got != 77 {
				done <- got
				return
			}
		}
	}()
	if got := <-done; got < 10 || got > 400 {
		t.Errorf("GOGC is %d", got)
	}
}
