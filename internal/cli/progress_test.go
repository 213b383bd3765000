package cli

import (
	"strings"
	"testing"
	"time"
)

func TestPaceSaysHowFarAndHowFast(t *testing.T) {
	for _, test := range []struct {
		done, total, counted int64
		elapsed              time.Duration
		want                 string
	}{
		{50, 100, 50, 2 * time.Second, "50 of 100 keys, 50 %, 25 keys/s, 2 s left"},
		{50, 100, 10, 2 * time.Second, "50 of 100 keys, 50 %, 5 keys/s, 10 s left"}, // resumed at 40
		{50, 100, 50, time.Second / 2, "50 of 100 keys, 50 %, 100 keys/s"},          // too early to tell
		{50, 100, 0, 2 * time.Second, "50 of 100 keys, 50 %, 0 keys/s"},
		{50, 0, 50, 2 * time.Second, "50 keys, 25 keys/s"},
		{50, 40, 50, 2 * time.Second, "50 keys, 25 keys/s"},
	} {
		if got := pace("keys", test.done, test.total, test.counted, test.elapsed); got != test.want {
			t.Errorf("pace(%d of %d, %d in %s) = %q, want %q", test.done, test.total, test.counted, test.elapsed, got,
				test.want)
		}
	}
}

func TestStepsAreCountedOneByOne(t *testing.T) {
	move := &stepProgress{noun: "keys", steps: []string{"saved", "copied"}, between: "checking"}
	if got := move.line(0) + ", " + move.reached(); got != "checking, read only" {
		t.Errorf("before the first key: %q", got)
	}
	move.reach("copied", 10, 100)
	if got, want := move.line(0), "copied: 10 of 100 keys, 10 %, 0 keys/s; step 2 of 2"; got != want {
		t.Errorf("line = %q, want %q", got, want)
	}
	if got, want := move.reached(), "10 of 100 keys copied"; got != want {
		t.Errorf("reached = %q, want %q", got, want)
	}
	if move.reach("copied", 100, 100); move.line(0) != "checking" {
		t.Errorf("after the last key: %q", move.line(0))
	}

	rewrite := &stepProgress{noun: "objects"}
	if got := rewrite.line(0); got != "..." {
		t.Errorf("before the first step: %q", got)
	}
	rewrite.add("rewrite v1", 1, 3, 10, 1)
	rewrite.add("rewrite v1", 1, 2, 0, 0)
	if got := rewrite.line(0); !strings.HasPrefix(got, "rewrite v1: 5 of 10 objects, 50 %, ") ||
		!strings.HasSuffix(got, ", 1 refused") {
		t.Errorf("line = %q, want 5 of 10 and 1 refused", got)
	}
	if rewrite.add("rewrite v1", 2, 1, 0, 0); !strings.HasPrefix(rewrite.line(0), "rewrite v1: 1 objects, ") {
		t.Errorf("the next walk: %q, want it to count from zero", rewrite.line(0))
	}
}
