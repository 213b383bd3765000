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
