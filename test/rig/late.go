package rig

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// Where there is a limit to the time of all tests, those that have not begun within it are left out: a machine may be
// half as fast as the one that the limit was chosen for. What begins, ends and is left out is written to a file as it
// happens, since go test tells of a package when all of it has ended.
const (
	withinEnv   = "FUSIONCTL_E2E_WITHIN"
	progressEnv = "FUSIONCTL_E2E_PROGRESS"
)

// A test with nodes takes up to half an hour, others a quarter of one: so they begin within this part of the limit.
const withinForNodes = 2. / 3

var (
	began = time.Now()
	begun sync.Map // the names of the tests that were not left out
)

// leaveOutLate skips a test that begins later than in this part of the limit. The parts of a test that has begun go on;
// those of a test that does nothing itself begin each for itself, since they may wait long for their turns.
func leaveOutLate(t testing.TB, part float64) {
	t.Helper()
	if _, inside := Sandboxed(); inside || hasBegun(t.Name()) {
		return
	}
	if text := os.Getenv(withinEnv); text != "" {
		within, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("%s: %v", withinEnv, err)
		}
		if time.Since(began).Seconds() >= part*within.Seconds() {
			writeProgress(t, "is left out")
			t.Skipf("it has not begun within its part of %s=%s", withinEnv, text)
		}
	}
	begun.Store(t.Name(), true)
	writeProgress(t, "begins")
	start := time.Now()
	t.Cleanup(func() {
		how := "has passed"
		if t.Failed() {
			how = "has failed"
		} else if t.Skipped() {
			how = "was skipped"
		}
		begun.Delete(t.Name()) // with -count it begins again
		writeProgress(t, fmt.Sprintf("%s after %.0f s", how, time.Since(start).Seconds()))
	})
}

// hasBegun reports whether a test or one that it is a part of has.
func hasBegun(name string) bool {
	for {
		if _, ok := begun.Load(name); ok {
			return true
		}
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			return false
		}
		name = name[:i]
	}
}

// writeProgress appends a line to the file of the progress, if there is one.
func writeProgress(t testing.TB, what string) {
	t.Helper()
	file := os.Getenv(progressEnv)
	if file == "" {
		return
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintf(f, "%s %s %s\n", time.Now().UTC().Format(time.TimeOnly), t.Name(), what)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Error(err)
	}
}
