package rig

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// Where there is a limit to the time of all tests, those that have not begun within it are left out, and listed in a
// file: a machine may be half as fast as the one that the limit was chosen for.
const (
	withinEnv = "FUSIONCTL_E2E_WITHIN"
	leftEnv   = "FUSIONCTL_E2E_LEFT"
)

var began = time.Now()

// leaveOutLate skips a test that begins too late, whole: a part of one that has begun goes on.
func leaveOutLate(t testing.TB) {
	t.Helper()
	text := os.Getenv(withinEnv)
	_, inside := Sandboxed()
	if text == "" || inside {
		return
	}
	within, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", withinEnv, err)
	}
	if time.Since(began) < within {
		return
	}
	if file := os.Getenv(leftEnv); file != "" {
		left, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = fmt.Fprintln(left, t.Name())
			err = errors.Join(err, left.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Skipf("it has not begun within %s=%s", withinEnv, text)
}

// isPart reports whether a test is a part of another one.
func isPart(t testing.TB) bool { return strings.Contains(t.Name(), "/") }
