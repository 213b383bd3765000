package cli

import (
	"fmt"
	"io"
	"iter"
	"sync/atomic"
	"time"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/convert/manifest"
	"github.com/kubefusion/fusionctl/pkg/convert/stream"
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

// aboveLine writes messages where a line is drawn, which is drawn below them again. A message is one write.
type aboveLine struct{ terminal io.Writer }

func (a aboveLine) Write(message []byte) (int, error) {
	if _, err := a.terminal.Write(append([]byte("\r\x1b[K"), message...)); err != nil {
		return 0, err
	}
	return len(message), nil
}

// warnTwice reports a field that is given twice.
func warnTwice(w io.Writer, file string, twice manifest.Duplicate) {
	visible.Fprintf(w, "%s:%d: field %q is given twice; the last one counts, as for kubectl\n", file, twice.Line,
		twice.Field)
}

// filesOf are files, and those of directories, to be opened when their turn comes; read says which one it is.
func filesOf(names []string, streams Streams, read *objectsRead) iter.Seq2[stream.File, error] {
	return func(yield func(stream.File, error) bool) {
		for name, err := range inputFiles(names) {
			open := func() (io.ReadCloser, error) {
				read.file.Store(&name)
				return openInput(streams, name)
			}
			if !yield(stream.File{Name: name, Open: open}, err) {
				return
			}
		}
	}
}
