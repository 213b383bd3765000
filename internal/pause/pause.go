// Package pause waits, for a time or as long as a context lasts.
package pause

import (
	"context"
	"time"
)

// For waits for the span. Errors: of ctx, when it ends before.
func For(ctx context.Context, span time.Duration) error {
	timer := time.NewTimer(span)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Until tries at least once, and again after every span, until try reports that it is done. Errors: of try, which ends
// the waiting; of ctx, when it ends before.
func Until(ctx context.Context, every time.Duration, try func() (done bool, err error)) error {
	for {
		if done, err := try(); done || err != nil {
			return err
		}
		if err := For(ctx, every); err != nil {
			return err
		}
	}
}
