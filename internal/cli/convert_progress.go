package cli

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/kubefusion/fusionctl/internal/visible"
)

// objectsRead says how many objects were read, and which file is.
type objectsRead struct {
	count atomic.Int64
	file  atomic.Pointer[string]
}

func (o *objectsRead) line(elapsed time.Duration) string {
	name := ""
	if file := o.file.Load(); file != nil {
		name = " " + *file
	}
	return fmt.Sprintf("%d objects, %s%s", o.count.Load(), elapsed.Round(time.Second), name)
}

// showObjects draws how far a run is while standard error is a terminal and standard output is not, and returns the
// streams for all that is written meanwhile.
func showObjects(streams Streams, read *objectsRead) (Streams, func()) {
	if isTerminal(streams.Out) || !isTerminal(streams.Err) {
		return streams, func() {}
	}
	done := drawLine(streams.Err, read.line)
	terminal := streams.Err
	if shown, ok := terminal.(*visible.Writer); ok {
		terminal = shown.Unwrap()
	}
	streams.Err = visible.NewWriter(aboveLine{terminal})
	return streams, done
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

// aboveLine writes messages where a line is drawn, which is drawn below them again. A message is one write.
type aboveLine struct{ terminal io.Writer }

func (a aboveLine) Write(message []byte) (int, error) {
	if _, err := a.terminal.Write(append([]byte("\r\x1b[K"), message...)); err != nil {
		return 0, err
	}
	return len(message), nil
}
