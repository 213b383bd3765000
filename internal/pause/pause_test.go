package pause

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, tries := time.Now(), 0
		err := Until(t.Context(), time.Minute, func() (bool, error) { tries++; return tries == 4, nil })
		if err != nil || tries != 4 || time.Since(start) != 3*time.Minute {
			t.Errorf("done at the fourth try: %v after %d tries and %s, want 3m", err, tries, time.Since(start))
		}
		broken := errors.New("broken")
		if err := Until(t.Context(), time.Minute, func() (bool, error) { return false, broken }); err != broken {
			t.Errorf("a try that fails: %v, want its error", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		start, tries = time.Now(), 0
		err = Until(ctx, time.Minute, func() (bool, error) { tries++; return false, nil })
		if !errors.Is(err, context.DeadlineExceeded) || tries != 2 || time.Since(start) != 90*time.Second {
			t.Errorf("never done: %v after %d tries and %s, want 2 tries and 90s", err, tries, time.Since(start))
		}
		cancel()
		if err := Until(ctx, time.Minute, func() (bool, error) { return true, nil }); err != nil {
			t.Errorf("done at once, in a context that has ended: %v", err)
		}
	})
}

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := For(t.Context(), time.Hour); err != nil || time.Since(start) != time.Hour {
			t.Errorf("For an hour = %v after %s", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start = time.Now()
		if err := For(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("For an hour of a context of a minute = %v after %s", err, time.Since(start))
		}
	})
}
