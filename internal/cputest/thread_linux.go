// Package cputest measures processor time, which is the same on a machine that is busy with something else.
package cputest

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Thread is the least time on a processor that one of some calls takes, in its own goroutine alone.
func Thread(t testing.TB, call func()) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() time.Duration {
		var spec unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &spec); err != nil {
			t.Fatal(err)
		}
		return time.Duration(spec.Nano())
	}
	least := time.Hour
	for range 3 {
		before := now()
		call()
		least = min(least, now()-before)
	}
	return least
}
