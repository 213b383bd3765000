package controllers

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// finalizersOf a namespace; ok is false when it is gone.
func (w *world) finalizersOf(name string) (finalizers []string, ok bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	o := w.shared.objects["namespaces//"+name]
	if o == nil {
		return nil, false
	}
	return o.Spec.Finalizers, true
}

func (w *world) setNamespace(name string, deleting bool, finalizers ...string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	o := *w.shared.objects["namespaces//"+name]
	if now := metav1.Now(); deleting {
		o.Metadata.DeletionTimestamp = &now
	}
	o.Spec = &storedNamespaceSpec{Finalizers: finalizers}
	w.shared.objects["namespaces//"+name] = &o
}

func TestNamespacesWaitForBothSides(t *testing.T) {
	w := newWorld(t)
	_, m := w.collector(Options{})
	w.put("", "namespaces", "", "demo")
	w.put("", "pods", "demo", "shared")
	w.put(legacy, "replicasets", "demo", "old")
	w.put(modern, "replicasets", "demo", "new")
	w.put(modern, "widgets", "demo", "one")
	w.put(modern, "reports", "demo", "one") // which nobody can watch
	w.put(modern, "widgets", "other", "one")
	step := func() error { return m.namespaces.process(context.Background(), "demo") }

	if err := step(); err != nil {
		t.Fatal(err)
	}
	if got, _ := w.finalizersOf("demo"); !slices.Equal(got, []string{nativeFinalizer, NamespaceFinalizer}) {
		t.Fatalf("finalizers %q of a namespace that lives", got)
	}
	w.setNamespace("demo", true, nativeFinalizer, NamespaceFinalizer)
	if err := step(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(w.deletions)
	if want := []string{"replicasets/demo/new", "reports/demo/one", "widgets/demo/one"}; !slices.Equal(
		w.deletions, want) {
		t.Errorf("before Kubernetes' own controller is done, deleted %q, want %q", w.deletions, want)
	}
	if got, _ := w.finalizersOf("demo"); len(got) != 2 {
		t.Fatalf("finalizers %q while Kubernetes' own controller is not done", got)
	}

	w.setNamespace("demo", true, NamespaceFinalizer)
	w.refuse = func(side pair.Side, r *http.Request) int {
		return code(side == legacy && strings.HasSuffix(r.URL.Path, "/replicasets"), 500)
	}
	if err := step(); err == nil {
		t.Error("a list failed and nobody says so")
	}
	w.refuse = func(pair.Side, *http.Request) int { return 0 }
	if err := step(); err != nil {
		t.Fatal(err)
	}
	if _, there := w.finalizersOf("demo"); !there {
		t.Error("the namespace is finalized by the look that still saw objects in it")
	}
	if err := step(); err != nil {
		t.Fatal(err)
	}
	if _, there := w.finalizersOf("demo"); there {
		t.Error("the namespace stays although both sides are empty of it")
	}
	if w.has("", "pods", "demo", "shared") || w.has(legacy, "replicasets", "demo", "old") ||
		!w.has(modern, "widgets", "other", "one") {
		t.Errorf("deleted %q", w.deletions)
	}
}

// A store that forgets while it is listed is empty of everything: the stores are compared after that, too.
func TestNamespacesStayWhenAStoreForgetsMeanwhile(t *testing.T) {
	w := newWorld(t)
	_, m := w.collector(Options{})
	w.put("", "namespaces", "", "demo")
	w.setNamespace("demo", true, NamespaceFinalizer)
	w.put(modern, "widgets", "demo", "one")
	if err := m.guard.since(t.Context(), m.now()); err != nil {
		t.Fatal(err)
	}
	forgot := false
	w.refuse = func(side pair.Side, r *http.Request) int {
		if !forgot && side == modern && strings.HasSuffix(r.URL.Path, "/namespaces/demo/widgets") {
			forgot = true
			forgetting["it was emptied, and its API server has written what it always writes"](w, modern)
		}
		return 0
	}
	if err := m.namespaces.process(t.Context(), "demo"); !errors.Is(err, errStopped) || !forgot {
		t.Errorf("process = %v, listed: %t; want deletions stopped", err, forgot)
	}
	if _, there := w.finalizersOf("demo"); !there {
		t.Error("the namespace is finalized")
	}
}

// In a backup that is restored a namespace may be one that is being deleted: nothing of it goes before the stores are
// compared.
func TestNamespacesOfARestoredStoreKeepTheirObjects(t *testing.T) {
	w := newWorld(t)
	_, m := w.collector(Options{})
	w.put("", "namespaces", "", "demo")
	w.put(modern, "widgets", "demo", "one")
	w.put(modern, "replicasets", "demo", "set")
	if err := m.guard.since(t.Context(), m.now()); err != nil {
		t.Fatal(err)
	}
	forgetting["it was emptied, and its API server has written what it always writes"](w, modern)
	w.put(modern, "widgets", "demo", "one")
	w.setNamespace("demo", true, nativeFinalizer, NamespaceFinalizer)
	if err := m.namespaces.process(t.Context(), "demo"); !errors.Is(err, errStopped) || len(w.deletions) > 0 {
		t.Errorf("process = %v, deleted %q; want deletions stopped", err, w.deletions)
	}
}

// A namespace that a restored store has not yet is not one that was deleted, and one that is created meanwhile is
// there.
func TestOrphansAreThoseOfNamespacesThatAreGone(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"a backup was restored": func(w *world) {
			delete(w.shared.objects, "namespaces//demo")
			w.version -= 3
		},
		"it is created meanwhile": func(w *world) {
			again := w.shared.objects["namespaces//demo"]
			delete(w.shared.objects, "namespaces//demo")
			w.refuse = func(_ pair.Side, r *http.Request) int {
				if strings.HasSuffix(r.URL.Path, "/namespaces/demo/widgets/one") && r.Method == http.MethodGet {
					w.shared.objects["namespaces//demo"] = again
				}
				return 0
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			_, m := w.collector(Options{DeleteOrphans: true})
			w.put("", "namespaces", "", "demo")
			w.put(modern, "widgets", "demo", "one")
			if err := m.guard.since(t.Context(), m.now()); err != nil {
				t.Fatal(err)
			}
			change(w)
			w.see(t.Context(), m)
			_ = m.namespaces.reportOrphans(t.Context())
			if len(w.deletions) > 0 {
				t.Errorf("deleted %q", w.deletions)
			}
		})
	}
}

// A namespace that was deleted before the controllers saw it waits for them all the same.
func TestNamespacesThatAreBeingDeletedGetTheFinalizer(t *testing.T) {
	w := newWorld(t)
	_, m := w.collector(Options{})
	w.put("", "namespaces", "", "demo")
	w.setNamespace("demo", true, nativeFinalizer)
	if err := m.namespaces.process(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
	if got, _ := w.finalizersOf("demo"); !slices.Contains(got, NamespaceFinalizer) {
		t.Errorf("finalizers %q", got)
	}
	if len(w.deletions) > 0 {
		t.Errorf("deleted %q", w.deletions)
	}
}

// A developer may create namespaces that never become empty; each look at one is a list of every resource.
func TestNamespacesThatStayAreLookedAtLessOften(t *testing.T) {
	n := &namespaces{}
	var got []time.Duration
	for _, left := range []int{5, 5, 5, 5, 5, 5, 4, 4, 4} {
		got = append(got, n.pause("a", left)/time.Second)
	}
	if want := []time.Duration{2, 4, 8, 16, 16, 16, 2, 4, 8}; !slices.Equal(got, want) {
		t.Errorf("pauses %d, want %d", got, want)
	}
	if n.forget("a"); len(n.waits) > 0 || n.pause("a", 9) != lookAgain {
		t.Error("a namespace that is gone is remembered")
	}
}

func TestOrphansOfNamespacesAreDeletedOnlyWithTheFlag(t *testing.T) {
	for _, test := range []struct {
		name   string
		delete bool
		refuse func(pair.Side, *http.Request) int
		want   int
	}{
		{"reported", false, nil, 0},
		{"deleted", true, nil, 2},
		{"one side does not answer", true, func(side pair.Side, r *http.Request) int {
			return code(side == legacy && strings.HasSuffix(r.URL.Path, "/namespaces/gone"), 500)
		}, 0},
		{"a proxy says 404", true, func(_ pair.Side, r *http.Request) int {
			return code(strings.HasSuffix(r.URL.Path, "/namespaces/gone"), 404)
		}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			_, m := w.collector(Options{DeleteOrphans: test.delete})
			w.put("", "namespaces", "", "demo")
			w.put(modern, "widgets", "demo", "stays")
			w.put(modern, "widgets", "gone", "one")
			w.put(legacy, "replicasets", "gone", "two")
			w.see(t.Context(), m)
			if test.refuse != nil {
				w.refuse = test.refuse
			}
			if err := m.namespaces.reportOrphans(t.Context()); (err != nil) != (test.refuse != nil) {
				t.Errorf("reportOrphans = %v", err)
			}
			if len(w.deletions) != test.want || !w.has(modern, "widgets", "demo", "stays") {
				t.Errorf("deleted %q, want %d objects", w.deletions, test.want)
			}
			if test.refuse == nil && !test.delete && len(m.namespaces.reported) != 2 {
				t.Errorf("reported %v, want two objects", m.namespaces.reported)
			}
		})
	}
}

// A namespace that was made again under its name, while its predecessor was being emptied, keeps its objects.
func TestNamespacesThatAreMadeAgainKeepTheirObjects(t *testing.T) {
	w := newWorld(t)
	_, m := w.collector(Options{})
	w.put("", "namespaces", "", "demo")
	w.setNamespace("demo", true, NamespaceFinalizer)
	w.put(modern, "widgets", "demo", "one")
	listed := false
	w.refuse = func(side pair.Side, r *http.Request) int { // called with the lock
		if strings.HasSuffix(r.URL.Path, "/demo/widgets") && !listed {
			listed = true
			o := *w.shared.objects["namespaces//demo"]
			o.Metadata.UID, o.Metadata.DeletionTimestamp = "another", nil
			w.shared.objects["namespaces//demo"] = &o
		}
		return 0
	}
	if err := m.namespaces.process(t.Context(), "demo"); err == nil || !listed {
		t.Errorf("process = %v, listed = %v, want an error after a list", err, listed)
	}
	if len(w.deletions) > 0 {
		t.Errorf("deleted %q of another namespace", w.deletions)
	}
}

// The lock is written over what was read, never over what somebody else has written since.
func TestLockIsWrittenByOneAlone(t *testing.T) {
	w := newWorld(t)
	w.put("", "namespaces", "", "demo")
	_, m := w.collector(Options{})
	one, two := &lock{client: m.client(modern), identity: "one"}, &lock{client: m.client(modern), identity: "two"}
	record := func(l *lock) resourcelock.LeaderElectionRecord {
		return resourcelock.LeaderElectionRecord{HolderIdentity: l.identity}
	}
	if _, _, err := one.Get(t.Context()); !apierrors.IsNotFound(err) {
		t.Fatalf("Get = %v, want not found", err)
	}
	if err := one.Create(t.Context(), record(one)); err != nil {
		t.Fatal(err)
	}
	if err := two.Create(t.Context(), record(two)); err == nil {
		t.Fatal("two processes made the lock")
	}
	if held, _, err := two.Get(t.Context()); err != nil || held.HolderIdentity != "one" {
		t.Fatalf("Get = %+v, %v, want one", held, err)
	}
	if err := one.Update(t.Context(), record(one)); err != nil {
		t.Fatal(err)
	}
	if err := two.Update(t.Context(), record(two)); !apierrors.IsConflict(err) {
		t.Fatalf("Update over what was not read = %v, want a conflict", err)
	}
	if err := one.Update(t.Context(), record(one)); err != nil {
		t.Errorf("the holder cannot renew: %v", err)
	}
}

// process leads over the two servers, with a short lease.
func (w *world) process() (p *process, stop func() error) {
	_, m := w.collector(Options{Collect: true, Workers: 2, LeaderElect: true})
	p = newProcess(m.cluster, w.options)
	p.lease = lease{3 * time.Second, 2 * time.Second, 200 * time.Millisecond}
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx) }()
	return p, func() error { cancel(); return <-ended }
}

// acts waits until the process acts.
func acts(t *testing.T, p *process) {
	t.Helper()
	eventually(t, "it acts", func() bool { return p.ready() == nil })
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for range 600 { // in a bubble: the time of the controllers, not of the machine
		if synctest.Wait(); condition() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("not within a minute: %s", what)
}

// A leader that loses its lock, because the server that keeps it is away, stays up, stands by, and leads again.
func TestALeaderThatLosesItsLockLeadsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		set := w.put(modern, "replicasets", "demo", "set")
		w.put("", "pods", "demo", "one", set)
		w.watches = func(_ pair.Side, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		p, stop := w.process()
		acts(t, p)
		away := func(is bool) {
			w.mutex.Lock()
			defer w.mutex.Unlock()
			w.refuse = func(side pair.Side, _ *http.Request) int {
				return code(is && side == modern, http.StatusServiceUnavailable)
			}
		}
		away(true)
		eventually(t, "it stands by", func() bool { return p.current() == nil })
		if err := p.elector.Check(nil); err != nil {
			t.Errorf("it is restarted while it stands by: %v", err)
		}
		w.drop(modern, "replicasets", "demo", "set")
		away(false)
		acts(t, p)
		eventually(t, "it collects", func() bool { return !w.has("", "pods", "demo", "one") })
		if err := stop(); err != nil {
			t.Errorf("it ends with %v", err)
		}
	})
}

// A leader that is stopped stops acting first and lets go of the lock then; the next one acts.
func TestTheNextLeaderActsWhenTheFirstHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		set := w.put(modern, "replicasets", "demo", "set")
		w.put("", "pods", "demo", "one", set)
		w.watches = func(_ pair.Side, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		first, stopFirst := w.process()
		acts(t, first)
		second, stopSecond := w.process()
		time.Sleep(time.Minute)
		synctest.Wait()
		if second.ready() == nil {
			t.Error("the second acts beside the first")
		}
		if err := stopFirst(); err != nil {
			t.Errorf("the first ends with %v", err)
		}
		acts(t, second)
		w.drop(modern, "replicasets", "demo", "set")
		unsee(second.current().graph, set.UID) // as a watch would say
		eventually(t, "the second collects", func() bool { return !w.has("", "pods", "demo", "one") })
		if err := stopSecond(); err != nil {
			t.Errorf("the second ends with %v", err)
		}
		if len(w.wrong) > 0 {
			t.Errorf("%q", w.wrong)
		}
	})
}

// waiting counts what is put off.
type waiting struct {
	workqueue.TypedRateLimitingInterface[string]
	times int
}

func (w *waiting) AddAfter(string, time.Duration) { w.times++ }

// A dry run says once what it would delete of a namespace, not every two seconds.
func TestDryRunDoesNotGoOnAboutANamespace(t *testing.T) {
	for dry, want := range map[bool]int{true: 0, false: 1} {
		w := newWorld(t)
		var trail strings.Builder
		_, m := w.collector(Options{DryRun: dry, Audit: slog.New(slog.NewTextHandler(&trail, nil))})
		queue := &waiting{TypedRateLimitingInterface: m.namespaces.queue}
		m.namespaces.queue = queue
		w.put("", "namespaces", "", "demo")
		w.put(modern, "widgets", "demo", "one")
		w.setNamespace("demo", true, nativeFinalizer, NamespaceFinalizer)
		if err := m.namespaces.process(t.Context(), "demo"); err != nil {
			t.Fatal(err)
		}
		if queue.times != want || strings.Count(trail.String(), "its namespace is being deleted") != 1 {
			t.Errorf("dry run %t: looks again %d times, want %d; says %s", dry, queue.times, want, trail.String())
		}
		if w.has(modern, "widgets", "demo", "one") != dry {
			t.Errorf("dry run %t: deleted %q", dry, w.deletions)
		}
	}
}
