package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/internal/visible"
)

// What is drawn says how far a run is; a message takes its line, and keeps escapes of its own visible.
func TestObjectsAreCountedOnALine(t *testing.T) {
	var read objectsRead
	if got, want := read.line(0), "0 objects, 0s"; got != want {
		t.Errorf("line at the start = %q, want %q", got, want)
	}
	name := "a.yaml"
	read.count.Add(3)
	read.file.Store(&name)
	if got, want := read.line(2*time.Second), "3 objects, 2s a.yaml"; got != want {
		t.Errorf("line = %q, want %q", got, want)
	}
	var terminal strings.Builder
	visible.Fprintf(visible.NewWriter(aboveLine{&terminal}), "%s is lost\n", "a\x1b[2Jb")
	if got := terminal.String(); !strings.HasPrefix(got, "\r\x1b[K") || strings.Count(got, "\x1b") != 1 ||
		!strings.HasSuffix(got, " is lost\n") {
		t.Errorf("written %q, want the line cleared once and no escape of the message", got)
	}
}

// Where nothing is a terminal, nothing is drawn.
func TestNothingIsDrawnIntoFiles(t *testing.T) {
	var out, errs strings.Builder
	streams, done := showObjects(Streams{Out: &out, Err: &errs}, &objectsRead{})
	done()
	if streams.Err != &errs || errs.Len() > 0 {
		t.Errorf("standard error = %q in %T, want nothing in what it was", errs.String(), streams.Err)
	}
}
