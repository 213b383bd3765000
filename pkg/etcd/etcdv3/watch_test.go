package etcdv3_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
)

func TestWatchSeesEveryChangeInOrder(t *testing.T) {
	server := etcdtest.Start(t)
	server.Put(t, map[string][]byte{"/registry/a": []byte("0"), "/other": []byte("0")})
	client := open(t, etcdv3.Config{Endpoints: []string{"http://" + closedPort(t), server.Endpoint},
		Timeout: 2 * time.Second})
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
	err := client.Watch(t.Context(), "/registry/", 3, time.Minute,
		func(revision int64, changes []etcd.Change) error {
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
	err := client.Watch(t.Context(), "/registry/", 3, time.Minute, func(int64, []etcd.Change) error { return nil })
	if !errors.Is(err, etcd.ErrCompacted) {
		t.Errorf("Watch = %v, want %v", err, etcd.ErrCompacted)
	}
}

func TestWatchLosesPatience(t *testing.T) {
	client := open(t, etcdv3.Config{Endpoints: []string{"http://" + closedPort(t)}, Timeout: 100 * time.Millisecond})
	if err := client.Watch(t.Context(), "/registry/", 3, 300*time.Millisecond, func(int64, []etcd.Change) error {
		return nil
	}); err == nil {
		t.Error("Watch of nothing ends without an error")
	}
}

// link is a way to a member that can be cut, as when the member's machine dies.
type link struct {
	listener net.Listener
	mu       sync.Mutex
	conns    []net.Conn
}

func newLink(t *testing.T, server *etcdtest.Server) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener}
	t.Cleanup(l.cut)
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", strings.TrimPrefix(server.Endpoint, "http://"))
			if err != nil {
				from.Close()
				continue
			}
			l.mu.Lock()
			l.conns = append(l.conns, from, to)
			l.mu.Unlock()
			go func() { _, _ = io.Copy(to, from); to.Close() }()
			go func() { _, _ = io.Copy(from, to); from.Close() }()
		}
	}()
	return l
}

func (l *link) endpoint() string { return "http://" + l.listener.Addr().String() }

func (l *link) cut() {
	l.listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
}

// TestWatchGoesOnWithAnotherMember cuts the way to the member that is watched, in the middle: no change is lost, none
// comes twice, and it is told.
func TestWatchGoesOnWithAnotherMember(t *testing.T) {
	server := etcdtest.Start(t)
	first, second := newLink(t, server), newLink(t, server)
	var mu sync.Mutex
	var said []string
	client := open(t, etcdv3.Config{Endpoints: []string{first.endpoint(), second.endpoint()}, Timeout: time.Second,
		Log: func(msg string) { mu.Lock(); said = append(said, msg); mu.Unlock() }})
	put := func(i int) {
		if _, err := server.Client(t).Put(t.Context(), "/registry/k", fmt.Sprint(i)); err != nil {
			t.Error(err)
		}
	}
	put(0)
	done := errors.New("done")
	n := 0
	err := client.Watch(t.Context(), "/registry/", 1, time.Minute, func(_ int64, changes []etcd.Change) error {
		for _, c := range changes {
			if string(c.Value) != fmt.Sprint(n) {
				t.Fatalf("change %d is %q", n, c.Value)
			}
			if n++; n == 200 {
				return done
			}
			if n == 100 {
				first.cut()
			}
			put(n)
		}
		return nil
	})
	if !errors.Is(err, done) {
		t.Errorf("Watch = %v after %d changes, want 200", err, n)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(said) == 0 || !strings.Contains(said[0], "going on with "+second.endpoint()) {
		t.Errorf("failovers = %q, want the one to the second member", said)
	}
}
