package etcdv3

import (
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Client{limiter: rate.NewLimiter(200, 200)}
		start := time.Now()
		for range 6 {
			if err := c.pace(t.Context(), 50); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took != 500*time.Millisecond {
			t.Errorf("300 keys at 200 a second, 200 of them at once, take %s; want half a second", took)
		}
		start = time.Now()
		if err := c.pace(t.Context(), 500); err != nil || time.Since(start) != 2500*time.Millisecond {
			t.Errorf("a page of more keys than a second has takes %s, %v; want 2.5 s", time.Since(start), err)
		}
	})
}
