package etcdv3_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
	"github.com/kubefusion/fusionctl/pkg/etcdsplit/etcdv3"
)

func TestWatchSeesEveryChangeInOrder(t *testing.T) {
	server := etcdtest.Start(t)
	server.Put(t, map[string][]byte{"/registry/a": []byte("0"), "/other": []byte("0")})
	client := open(t, etcdv3.Config{Endpoints: []string{"http://" + closedPort(t), server.Endpoint}, Timeout: 2 * time.Second})
	// More revisions than a server hands to a watch that catches up at a time.
	for i := range 1500 {
		if _, err := server.Client(t).Put(t.Context(), fmt.Sprintf("/registry/k-%d", i%7), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := server.Client(t).Delete(t.Context(), "/registry/k-0"); err != nil {
		t.Fatal(err)
	}
	done := errors.New("done")
	n, last := 0, int64(0)
	err := client.Watch(t.Context(), "/registry/", 3, time.Minute, func(revision int64, changes []etcdsplit.Change) error {
		for _, c := range changes {
			if c.ModRevision <= last || c.ModRevision > revision {
				t.Fatalf("revision %d after %d in an answer up to %d", c.ModRevision, last, revision)
			}
			last = c.ModRevision
			if c.Deleted {
				if n != 1500 {
					t.Errorf("%d changes before the deletion, want 1500", n)
				}
				return done
			}
			if string(c.Value) != fmt.Sprint(n) {
				t.Fatalf("change %d is %q", n, c.Value)
			}
			n++
		}
		return nil
	})
	if !errors.Is(err, done) {
		t.Errorf("Watch = %v, want the error of its callback", err)
	}
}

func TestWatchSaysWhenChangesAreGone(t *testing.T) {
	server := etcdtest.Start(t)
	for range 10 {
		server.Put(t, map[string][]byte{"/registry/a": []byte("0")})
	}
	if _, err := server.Client(t).Compact(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	client := open(t, etcdv3.Config{Endpoints: []string{server.Endpoint}})
	err := client.Watch(t.Context(), "/registry/", 3, time.Minute, func(int64, []etcdsplit.Change) error { return nil })
	if !errors.Is(err, etcdsplit.ErrCompacted) {
		t.Errorf("Watch = %v, want %v", err, etcdsplit.ErrCompacted)
	}
}

func TestWatchLosesPatience(t *testing.T) {
	client := open(t, etcdv3.Config{Endpoints: []string{"http://" + closedPort(t)}, Timeout: 100 * time.Millisecond})
	if err := client.Watch(t.Context(), "/registry/", 3, 300*time.Millisecond, func(int64, []etcdsplit.Change) error { return nil }); err == nil {
		t.Error("Watch of nothing ends without an error")
	}
}
