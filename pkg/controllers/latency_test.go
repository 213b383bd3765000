package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// The bound that is promised: among a hundred thousand pods, a dependent is gone within five seconds of its owner. The
// time is that of a bubble: what the controllers wait, whatever the machine takes to compute.
func TestDependentsGoWithinSecondsAmongHundredThousandPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if testing.Short() {
			t.Skip("fills a store with a hundred thousand pods")
		}
		const owners, podsOfEach = 10_000, 10
		w := newWorld(t)
		w.put("", "namespaces", "", "demo")
		var last metav1.OwnerReference
		for i := range owners {
			last = w.put(modern, "replicasets", "demo", fmt.Sprintf("set-%d", i))
			for n := range podsOfEach {
				w.put("", "pods", "demo", fmt.Sprintf("pod-%d-%d", i, n), last)
			}
		}
		events := make(chan []byte)
		w.watches = func(side pair.Side, rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(rw).Flush()
			if side != modern || !strings.HasSuffix(r.URL.Path, "/replicasets") {
				<-r.Context().Done()
				return
			}
			for {
				select {
				case <-r.Context().Done():
					return
				case event := <-events:
					_, _ = rw.Write(event)
					_ = http.NewResponseController(rw).Flush()
				}
			}
		}
		deleted := make(chan string, 2*podsOfEach)
		w.refuse = func(_ pair.Side, r *http.Request) int {
			if r.Method == http.MethodDelete {
				deleted <- r.URL.Path
			}
			return 0
		}
		_, m := w.collector(Options{Collect: true, Workers: 20})
		m.started = false
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		if err := m.guard.since(ctx, m.now()); err != nil { // as a process does before it leads
			t.Fatal(err)
		}
		start := time.Now()
		go func() { ended <- m.run(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		event, err := json.Marshal(
			map[string]any{"type": "DELETED", "object": map[string]any{"metadata": map[string]any{
				"name": last.Name, "namespace": "demo", "uid": last.UID, "resourceVersion": "99999999"}}})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the controllers act", func() bool { return m.ready() == nil })
		t.Logf("acts %s after the start, with %d objects", time.Since(start).Round(time.Millisecond), m.graph.size())
		w.drop(modern, "replicasets", "demo", last.Name)
		gone := time.Now()
		events <- event
		for range podsOfEach {
			select {
			case path := <-deleted:
				if !strings.Contains(path, fmt.Sprintf("/pod-%d-", owners-1)) {
					t.Errorf("deletes %s", path)
				}
			case <-time.After(5 * time.Second):
				t.Fatal("after five seconds not every dependent is gone")
			}
		}
		t.Logf("%d dependents went within %s of their owner", podsOfEach, time.Since(gone).Round(time.Millisecond))
	})
}
