package gateway

import (
	"context"
	"net/http"
	"runtime"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// workers give the requests of a share turns in which they read, convert and merge bodies. A small body takes a
// processor as long as a hundred reads that are passed on, and a large one for seconds, before a side says whether its
// sender may write it. A share has half of the processors for that, and no other waits for it.
type workers struct {
	turns chan struct{}
	wait  time.Duration // of a request that no side was asked about
}

func newWorkers() *workers {
	return &workers{make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), seatWait}
}

// take waits for a turn; without a limit as long as the request lasts. Errors: a Status, 429, or 503 when the client
// has gone.
func (w *workers) take(ctx context.Context, limit time.Duration) (leave func(), err error) {
	leave = func() { <-w.turns }
	select {
	case w.turns <- struct{}{}:
		return leave, nil
	default:
	}
	var late <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case w.turns <- struct{}{}:
		return leave, nil
	case <-ctx.Done():
		return nil, unavailable("the client has gone: %v", context.Cause(ctx))
	case <-late:
		busy := refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
			"%d bodies of a user are read and converted at a time, and this one has waited for %s", cap(w.turns), limit)
		busy.ErrStatus.Details = unavailableDetails()
		return nil, busy
	}
}

// turn is that of one request, which ends while it waits for a side or a client. One goroutine uses it.
type turn struct {
	*workers
	leave func() // nil while there is none
}

// begin waits for the turn; with a limit where nothing was sent yet. Errors: those of take.
func (t *turn) begin(ctx context.Context, limit time.Duration) (err error) {
	if t.leave == nil {
		t.leave, err = t.take(ctx, limit)
	}
	return err
}

// end ends the turn, where there is one.
func (t *turn) end() {
	if t.leave != nil {
		t.leave()
		t.leave = nil
	}
}

// do works on what a client sent, before a side is asked to write it. Errors: those of take, and of the work.
func (w *workers) do(ctx context.Context, work func() error) error {
	leave, err := w.take(ctx, w.wait)
	if err != nil {
		return err
	}
	defer leave()
	return work()
}
