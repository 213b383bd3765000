package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"testing"
)

// A test's process that is killed cannot clean up; what it started must not outlive it.
func TestProcessesEndWhenTheTestIsKilled(t *testing.T) {
	r := New(t)
	parent := startChild(r, "parent")
	announced := regexp.MustCompile(`child (\d+)`)
	awaitOutput(parent, "child ")
	match := announced.FindStringSubmatch(parent.Log())
	if match == nil {
		t.Fatalf("the parent said %q, want the id of its child", parent.Log())
	}
	parent.Kill()
	r.Eventually("waiting for the child of the killed process to end", func(context.Context) error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", match[1]))
		if errors.Is(err, os.ErrNotExist) || bytes.Contains(stat, []byte(") Z ")) {
			return nil
		}
		return fmt.Errorf("it lives: %s %v", stat, err)
	})
}
