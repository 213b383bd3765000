package webserver

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// heapFloorBytes is what heap and stacks may grow to whatever lives of it: a small heap would be collected again
	// and again.
	heapFloorBytes = 64 << 20
	// heapLook is how often it is looked at whether there was a collection.
	heapLook = 100 * time.Millisecond
	// heapRest is how long a process rests before it gives back what it does not need.
	heapRest = 10 * time.Second
	// heapRestBytes is how much that has to be.
	heapRestBytes = 8 << 20
)

// PaceHeap keeps a server small that holds thousands of connections, and quick while it holds few, until the context
// ends. Go lets a heap grow to twice what lives in it; this lets it grow to 64 MiB, and beyond that by a quarter. What
// is not needed when nothing has been collected for ten seconds goes back to the system. It does nothing where the
// environment says how to collect, by GOGC or GOMEMLIMIT.
func PaceHeap(ctx context.Context) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	p := &heapPacer{}
	// A finalizer would run after each collection, but on a busy machine long after it: when the next one is near.
	ticker := time.NewTicker(heapLook)
	defer ticker.Stop()
	defer debug.SetGCPercent(defaultPercent)
	cycles, since := uint64(0), time.Now()
	for {
		h := readHeap()
		switch {
		case h.cycles != cycles || p.percent == 0:
			p.adjust(h)
			cycles, since = h.cycles, time.Now()
		case time.Since(since) > heapRest && h.idle():
			debug.FreeOSMemory()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// defaultPercent is GOGC where the environment does not say it.
const defaultPercent = 100

// heapPacer sets GOGC after each collection.
type heapPacer struct{ percent int }

func (p *heapPacer) adjust(h heap) {
	percent := h.percent()
	if difference := percent - p.percent; difference*8 < p.percent && -difference*8 < p.percent {
		return // to set it stops the world
	}
	p.percent = percent
	debug.SetGCPercent(percent)
}

// heap is what the runtime says of its memory, in bytes.
type heap struct {
	cycles  uint64 // collections so far
	live    uint64 // objects that lived at the last one
	objects uint64 // all objects
	free    uint64 // memory without objects that the system has not got back
	stacks  uint64 // of goroutines
	roots   uint64 // what of stacks and globals the runtime takes for live
}

func readHeap() heap {
	samples := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	of := func(i int) uint64 { return samples[i].Value.Uint64() }
	return heap{cycles: of(0), live: of(1), objects: of(2), free: of(3), stacks: of(4), roots: of(5) + of(6)}
}

// percent is the GOGC by which heap and stacks grow to heapFloorBytes, or by a quarter.
func (h heap) percent() int {
	const least, most = 10, 400
	grows := (h.live + h.stacks) / 4
	if h.live+h.stacks < heapFloorBytes {
		grows = max(grows, heapFloorBytes-h.live-h.stacks)
	}
	return int(min(max(100*grows/max(h.live+h.roots, 1), least), most))
}

// idle reports whether there is something to give back.
func (h heap) idle() bool { return h.objects > h.live+heapRestBytes || h.free > heapRestBytes }
