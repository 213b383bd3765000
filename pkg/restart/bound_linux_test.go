package restart

import (
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// TestHashIsFasterThanADump holds the bounds: never slower than go-spew, and 100,000 containers a second on a core, of
// which it grants half to a machine that is busy with something else. It counts the time of this thread on a processor,
// and takes the best of some rounds.
func TestHashIsFasterThanADump(t *testing.T) {
	container, _ := readVectors(t, "testdata/02-web.txtar")
	for _, minor := range []kubever.Minor{12, 20, 36} {
		own := cpuTime(t, func() {
			if _, err := Hash(container, minor, API); err != nil {
				t.Fatal(err)
			}
		})
		dump := cpuTime(t, func() { spewHash(container, minor) })
		t.Logf("%s: %v a container, go-spew %v", minor, own, dump)
		if own > dump {
			t.Errorf("Hash(%s) takes %v, more than %v of go-spew", minor, own, dump)
		}
		if own > 20*time.Microsecond && !raceDetector() {
			t.Errorf("Hash(%s) takes %v, want 10µs and on a busy machine at most 20µs", minor, own)
		}
	}
}

// cpuTime is the time on the processor that a call takes.
func cpuTime(t *testing.T, call func()) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
			t.Fatal(err)
		}
		return time.Duration(ts.Nano())
	}
	const calls = 100
	var rounds []time.Duration
	for range 10 {
		start := now()
		for range calls {
			call()
		}
		rounds = append(rounds, (now()-start)/calls)
	}
	return slices.Min(rounds)
}

func raceDetector() bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
