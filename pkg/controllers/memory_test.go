package controllers

import (
	"runtime"
	runtimemetrics "runtime/metrics"
	"sync/atomic"
	"testing"
)

// peakMemory is the most that the heap held above what it held before, garbage included, whenever the work called look,
// which is safe for concurrent use. It logs what stays.
func peakMemory(t *testing.T, work func(look func()) any) uint64 {
	t.Helper()
	heap := func() uint64 {
		sample := []runtimemetrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		runtimemetrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	runtime.GC()
	before := heap()
	var peak atomic.Uint64
	look := func() {
		now := heap()
		for seen := peak.Load(); now > seen && !peak.CompareAndSwap(seen, now); seen = peak.Load() {
		}
	}
	kept := work(look)
	look()
	runtime.GC()
	after := heap()
	t.Logf("%d MiB at the peak, %d MiB stay", (peak.Load()-min(before, peak.Load()))>>20,
		(after-min(before, after))>>20)
	runtime.KeepAlive(kept)
	return peak.Load() - min(before, peak.Load())
}
