package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
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
	return pace("keys", keys, total, keys, elapsed)
}

// pace is "123456 of 1000000 keys, 12 %, 41152 keys/s, 21 s left": how much of the total is done, and how fast the last
// of it was counted.
func pace(noun string, done, total, counted int64, elapsed time.Duration) string {
	rate := float64(counted) / max(elapsed.Seconds(), 0.001)
	if total < done || total == 0 {
		return fmt.Sprintf("%d %s, %.0f %s/s", done, noun, rate, noun)
	}
	line := fmt.Sprintf("%d of %d %s, %d %%, %.0f %s/s", done, total, noun, done*100/total, rate, noun)
	if rate > 0 && elapsed > time.Second {
		line += fmt.Sprintf(", %.0f s left", float64(total-done)/rate)
	}
	return line
}

// stepProgress draws how far a run is that does the same with many things, step by step.
type stepProgress struct {
	noun    string   // what is counted: keys
	steps   []string // all of them in their order; nil where they are not numbered
	between string   // stands for the line before the first thing of a step and after the last; "" for none

	mu      sync.Mutex
	step    string
	walk    int       // of the step
	start   time.Time // of the walk
	first   int64     // what was done then
	done    int64
	total   int64 // 0 for unknown
	refused int64
}

// reach says how much of the total a step has done.
func (p *stepProgress) reach(step string, done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if step != p.step || p.done == 0 {
		p.begin(step, 0, done)
	}
	p.done, p.total = done, total
}

// add says how much more a walk of a step has done; each walk counts from zero.
func (p *stepProgress) add(step string, walk int, done, total, refused int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if step != p.step || walk != p.walk {
		p.begin(step, walk, 0)
	}
	p.done, p.total, p.refused = p.done+done, max(p.total, total), p.refused+refused
}

func (p *stepProgress) begin(step string, walk int, done int64) {
	p.step, p.walk, p.start = step, walk, time.Now()
	p.first, p.done, p.total, p.refused = done, done, 0, 0
}

// line is "copied: 1234 of 5000 keys, 24 %, 812 keys/s, 21 s left, 3 refused; step 2 of 3".
func (p *stepProgress) line(time.Duration) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.between != "" && (p.done == 0 || p.done == p.total):
		return p.between
	case p.step == "":
		return "..."
	}
	line := p.step + ": " + pace(p.noun, p.done, p.total, p.done-p.first, time.Since(p.start))
	if p.refused > 0 {
		line += fmt.Sprintf(", %d refused", p.refused)
	}
	if len(p.steps) > 0 {
		line += fmt.Sprintf("; step %d of %d", slices.Index(p.steps, p.step)+1, len(p.steps))
	}
	return line
}

// reached is "1234 of 5000 keys copied".
func (p *stepProgress) reached() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == 0 {
		return "read only"
	}
	return fmt.Sprintf("%d of %d %s %s", p.done, p.total, p.noun, p.step)
}
