package webserver

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestHeapsGrowToAFloorAndByAQuarter(t *testing.T) {
	const mib = 1 << 20
	for _, tc := range []struct {
		heap
		want int
	}{
		{heap{}, 400},
		{heap{live: 10 * mib, roots: 2 * mib}, 400},
		{heap{live: 32 * mib}, 100},
		{heap{live: 60 * mib}, 25},
		{heap{live: 400 * mib}, 25},
		{heap{live: 70 * mib, stacks: 60 * mib, roots: 10 * mib}, 40},
		{heap{live: 1 * mib, stacks: 63 * mib, roots: 200 * mib}, 10},
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

// TestHeapsAreAdjusted after a collection, and are as they were at the end.
func TestHeapsAreAdjusted(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	defer debug.SetGCPercent(debug.SetGCPercent(77))
	percent := func() uint64 {
		sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(); runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatalf("%s: GOGC is %d", what, percent())
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan bool)
	go func() {
		PaceHeap(ctx)
		close(done)
	}()
	until("a small heap", func() bool { return percent() > 200 })
	held := make([]byte, 256<<20)
	runtime.GC()
	until("a large heap", func() bool { return percent() < 30 })
	runtime.KeepAlive(held)
	cancel()
	<-done
	if got := percent(); got != defaultPercent {
		t.Errorf("GOGC is %d at the end", got)
	}
}
