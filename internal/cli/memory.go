package cli

import (
	"context"
	"os"
	"runtime/debug"
)

// memoryBytes is what a verb that reads stores should get by with. The collector works harder near it; nothing fails.
const memoryBytes = 52 << 20

// memoryShared marks the context of a process that does more than to read stores, and needs its memory for that.
type memoryShared struct{}

// limitMemory sets the limit, unless the environment has one or the process does more.
func limitMemory(ctx context.Context) {
	if os.Getenv("GOMEMLIMIT") == "" && ctx.Value(memoryShared{}) == nil {
		debug.SetMemoryLimit(memoryBytes)
	}
}

// collectLess lets garbage grow to a few times of what is held, which is little: collecting it takes a quarter of the
// time otherwise. The caller's environment counts before. It returns what undoes it.
func collectLess() func() {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(400)
	return func() { debug.SetGCPercent(before) }
}
