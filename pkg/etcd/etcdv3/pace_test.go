package etcdv3

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
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

func TestPageKeepsTheRate(t *testing.T) {
	server := etcdtest.Start(t)
	values := map[string][]byte{}
	for i := range 300 {
		values[fmt.Sprintf("/registry/pods/default/p-%04d", i)] = nil
	}
	server.Put(t, values)
	client, err := Open(Config{Endpoints: []string{server.Endpoint}, KeysPerSecond: 50})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if l := client.limiter; l.Limit() != 50 || l.Burst() != 50 {
		t.Errorf("50 keys a second are limited to %v, %d at once", l.Limit(), l.Burst())
	}
	// The second page would have to wait until the context has ended, which is known at once.
	client.limiter.SetLimit(rate.Every(time.Hour))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	n := 0
	err = etcd.Pages(ctx, client, etcd.Request{From: "/registry/", To: "/registry0"}, etcd.Limits{Keys: 50},
		func(p etcd.Page) error {
			n += len(p.Entries)
			return nil
		})
	if err == nil || ctx.Err() != nil || n != 50 {
		t.Fatalf("read %d of 300 keys, of which 50 are allowed at once: %v; want 50 and no more", n, err)
	}
}
