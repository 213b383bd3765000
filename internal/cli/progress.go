package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/scan"
)

// progress draws how far a scan is, on a terminal. Steps only add to counters; a ticker draws.
type progress struct {
	keys atomic.Int64
	done func() // takes the line off the terminal

	mu     sync.Mutex
	totals map[string]int64
}

// newProgress draws on out if that is a terminal, and nothing otherwise.
func newProgress(out io.Writer) *progress {
	p := &progress{totals: map[string]int64{}}
	p.done = drawLine(out, p.line)
	return p
}

// drawLine draws a line ten times a second, if out is a terminal, until the function that it returns takes it off
// again.
func drawLine(out io.Writer, line func(elapsed time.Duration) string) (done func()) {
	if !isTerminal(out) {
		return func() {}
	}
	if shown, ok := out.(*visible.Writer); ok { // the line is drawn with escapes, around text that is shown
		out = shown.Unwrap()
	}
	start, stop := time.Now(), make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				fmt.Fprintf(out, "\r\x1b[K%s", visible.Line(line(time.Since(start))))
			case <-stop:
				fmt.Fprint(out, "\r\x1b[K")
				return
			}
		}
	})
	return func() {
		close(stop)
		ended.Wait()
	}
}

func isTerminal(stream any) bool {
	if shown, ok := stream.(*visible.Writer); ok {
		stream = shown.Unwrap()
	}
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

func (p *progress) step(s scan.Progress) {
	p.keys.Add(s.Keys)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.totals[s.Store] = s.Total
}

// counted is the store, with what is read of it added to the progress.
func (p *progress) counted(s etcd.Store) etcd.Store {
	if s.Pager != nil {
		s.Pager = countedPager{s.Pager, p}
	}
	if s.Walker != nil {
		s.Walker = countedWalker{s.Walker, p}
	}
	return s
}

type countedPager struct {
	etcd.Pager
	p *progress
}

func (c countedPager) Page(ctx context.Context, request etcd.Request) (etcd.Page, error) {
	page, err := c.Pager.Page(ctx, request)
	c.p.keys.Add(int64(len(page.Entries)))
	return page, err
}

type countedWalker struct {
	etcd.Walker
	p *progress
}

func (c countedWalker) Walk(ctx context.Context, workers int, visitor func() func(etcd.Entry) error) (
	etcd.Walked, error) {
	return c.Walker.Walk(ctx, workers, func() func(etcd.Entry) error {
		visit := visitor()
		return func(e etcd.Entry) error {
			c.p.keys.Add(1)
			return visit(e)
		}
	})
}

// line is "123456 of 1000000 keys, 12 %, 41152 keys/s, 21 s left".
func (p *progress) line(elapsed time.Duration) string {
	keys := p.keys.Load()
	var total int64
	p.mu.Lock()
	for _, n := range p.totals {
		total += n
	}
	p.mu.Unlock()
	rate := float64(keys) / max(elapsed.Seconds(), 0.001)
	if total < keys || total == 0 {
		return fmt.Sprintf("%d keys, %.0f keys/s", keys, rate)
	}
	line := fmt.Sprintf("%d of %d keys, %d %%, %.0f keys/s", keys, total, keys*100/total, rate)
	if rate > 0 && elapsed > time.Second {
		line += fmt.Sprintf(", %.0f s left", float64(total-keys)/rate)
	}
	return line
}
