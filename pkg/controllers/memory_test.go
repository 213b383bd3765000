package controllers

import (
	"runtime"
	runtimemetrics "runtime/metrics"
	"sync/atomic"
	"testing"
	"time"
)

// peakMemory is the most that the heap held above what it held before, garbage included, and logs what stays.
func peakMemory(t *testing.T, work func() any) uint64 {
	t.Helper()
	heap := func() uint64 {
		sample := []runtimemetrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		runtimemetrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	runtime.GC()
	before := heap()
	var peak atomic.Uint64
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				peak.Store(max(peak.Load(), heap()))
			}
		}
	}()
	kept := work()
	close(done)
	<-stopped
	runtime.GC()
	after := heap()
	t.Logf("%d MiB at the peak, %d MiB stay", (peak.Load()-min(before, peak.Load()))>>20,
		(after-min(before, after))>>20)
	runtime.KeepAlive(kept)
	return peak.Load() - min(before, peak.Load())
}
