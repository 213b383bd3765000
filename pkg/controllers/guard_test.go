package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/witness"
	"github.com/kubefusion/fusionctl/pkg/witness/statedir"
)

// forgetting are the ways in which a store may forget, or be another one; seen by a process that looked at it before.
var forgetting = map[string]func(w *world, side pair.Side){
	"it was emptied": func(w *world, side pair.Side) { w.empty(w.own[side]) },
	"it was emptied, and its API server has written what it always writes": func(w *world, side pair.Side) {
		w.empty(w.own[side])
		for _, custom := range fakeCustom[side] {
			w.define(side, custom.name+"."+custom.group())
		}
		for _, o := range w.own[side].objects {
			o.Metadata.UID += "-anew"
		}
	},
	"its backup was restored": func(w *world, side pair.Side) {
		delete(w.own[side].objects, "replicasets/demo/set")
		w.version -= 3
	},
	"its backup was restored, with a revision that is raised": func(w *world, side pair.Side) {
		delete(w.own[side].objects, "replicasets/demo/set")
		w.version += 1_000_000_000
	},
}

// empty takes everything out of a store.
func (w *world) empty(s store) {
	for key := range s.objects {
		delete(s.objects, key)
	}
}

// A store that lost everything, or something, is not one in which somebody has deleted: nothing goes, through a
// restart of the process, until the stop is acknowledged; then what is left without an owner does.
func TestStoresThatForgetStopDeletions(t *testing.T) {
	for name, forgets := range forgetting {
		for _, restarted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restarted %t", name, restarted), func(t *testing.T) {
				w := newWorld(t)
				options := Options{StateDirectory: t.TempDir()}
				c, m := w.collector(options)
				w.put("", "pods", "demo", "one", w.put(modern, "replicasets", "demo", "set"))
				w.see(t.Context(), m)
				if err := c.guard.since(t.Context(), c.now()); err != nil {
					t.Fatal(err)
				}
				c.guard.saved = time.Time{} // the next look is brought to the disk
				if err := c.guard.since(t.Context(), c.now()); err != nil {
					t.Fatal(err)
				}
				forgets(w, modern)
				if restarted {
					c, m = w.collector(options)
				}
				collectAll(t, w, c, m)
				if len(w.deletions) > 0 {
					t.Fatalf("deleted %q", w.deletions)
				}
				if err := c.guard.stopped(); err == nil || !strings.Contains(err.Error(), "modern side, store modern") {
					t.Fatalf("stopped() = %v, want the store's name", err)
				}
				c, m = w.collector(options) // a restart is no way out
				collectAll(t, w, c, m)
				if len(w.deletions) > 0 {
					t.Fatalf("deleted %q after a restart", w.deletions)
				}
				acknowledge(t, options.StateDirectory)
				c.guard.listen()
				collectAll(t, w, c, m)
				if len(w.deletions) != 1 {
					t.Errorf("deleted %q after a person has said so, want the pod", w.deletions)
				}
			})
		}
	}
}

// A store that an argument names for single resources is remembered as well, by its revision: what owned something in
// it has gone with it, whether a process saw it there before or not.
func TestStoresOfSingleResourcesAreRemembered(t *testing.T) {
	w := newWorld(t)
	const third = "http://192.0.2.1:2579"
	w.spec = strings.NewReplacer("  legacy:", "  - {name: third, endpoints: ['"+third+"']}\n  legacy:",
		"store: core, apiServer: {}", "store: core, apiServer: {extraArgs: [{name: etcd-servers-overrides, value: "+
			"'apps/replicasets#"+third+"'}]}").Replace(pairSpec)
	options, revision := Options{StateDirectory: t.TempDir()}, 1000
	host := func() (*collector, *manager) {
		c, m := w.collector(options)
		server, err := apiserver.New(serverOf(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			recorder := httptest.NewRecorder()
			w.serve(legacy, recorder, r)
			text := recorder.Body.String()
			if strings.HasSuffix(r.URL.Path, "/replicasets") {
				text = listVersion.ReplaceAllString(text, fmt.Sprintf(`"metadata":{"resourceVersion":"%d"}`, revision))
			}
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(recorder.Code)
			fmt.Fprint(rw, text)
		})), apiserver.Options{Attempts: 1, QPS: -1})
		if err != nil {
			t.Fatal(err)
		}
		c.clients[legacy].server = server
		return c, m
	}
	c, m := host()
	w.put("", "pods", "demo", "one", w.put(legacy, "replicasets", "demo", "set"))
	w.see(t.Context(), m)
	if err := c.guard.since(t.Context(), c.now()); err != nil {
		t.Fatal(err)
	}
	w.drop(legacy, "replicasets", "demo", "set")
	revision = 12 // of a backup, or of a new member
	c, m = host()
	collectAll(t, w, c, m)
	if err := c.guard.stopped(); err == nil || !strings.Contains(err.Error(), "legacy side, store third") {
		t.Errorf("stopped() = %v, want the store's name", err)
	}
	if len(w.deletions) > 0 {
		t.Errorf("deleted %q", w.deletions)
	}
}

var listVersion = regexp.MustCompile(`"metadata":\{"resourceVersion":"[0-9]+"\}`)

// acknowledge says what a person says.
func acknowledge(t *testing.T, path string) {
	t.Helper()
	directory, err := statedir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	known, err := directory.Load()
	if err != nil || known == nil || known.Stop == nil {
		t.Fatalf("remembered %+v (%v), want a stop", known, err)
	}
	if err := directory.Acknowledge(witness.Acknowledgement{Stop: known.Stop.ID, By: "a person"}); err != nil {
		t.Fatal(err)
	}
}

// The word of a person is about one stop, and not about the next.
func TestAnAcknowledgementIsGoodForOneStop(t *testing.T) {
	w := newWorld(t)
	options := Options{StateDirectory: t.TempDir()}
	c, _ := w.collector(options)
	c.guard.stop("one")
	acknowledge(t, options.StateDirectory)
	c.guard.listen()
	if err := c.guard.stopped(); err != nil {
		t.Fatalf("stopped() = %v after an acknowledgement", err)
	}
	c.guard.stop("two")
	c.guard.listen()
	if c.guard.stopped() == nil {
		t.Error("an old acknowledgement lets deletions go on")
	}
}

// A process that leads after one that stopped has not seen why. It stops as well, until an operator acknowledges on its
// host.
func TestTheNextLeaderIsStoppedAsTheLastOne(t *testing.T) {
	w := newWorld(t)
	w.put("", "namespaces", "", "demo")
	host := func() (*collector, *manager, *lock, Options) {
		options := Options{StateDirectory: t.TempDir()}
		c, m := w.collector(options)
		return c, m, &lock{client: m.client(modern), identity: options.StateDirectory, guard: c.guard}, options
	}
	write := func(l *lock, write func(context.Context, resourcelock.LeaderElectionRecord) error) {
		t.Helper()
		if err := write(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: l.identity}); err != nil {
			t.Fatal(err)
		}
	}
	read := func(l *lock) {
		t.Helper()
		if _, _, err := l.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	first, _, held, firstHost := host()
	first.guard.stop("many owners vanished")
	write(held, held.Create)

	next, m, taken, nextHost := host()
	read(taken)
	gone := w.put(modern, "replicasets", "demo", "set")
	w.put("", "pods", "demo", "one", gone)
	delete(w.own[modern].objects, "replicasets/demo/set")
	collectAll(t, w, next, m)
	if err := next.guard.stopped(); err == nil || !strings.Contains(err.Error(), "many owners vanished") ||
		len(w.deletions) > 0 {
		t.Fatalf("the next leader: stopped() = %v, deleted %q; want stopped as the first", err, w.deletions)
	}
	acknowledge(t, nextHost.StateDirectory)
	next.guard.listen()
	if read(taken); next.guard.stopped() != nil {
		t.Errorf("stopped() = %v after an acknowledgement on its host", next.guard.stopped())
	}

	acknowledge(t, firstHost.StateDirectory)
	first.guard.listen()
	read(held)
	write(held, held.Update)
	last, _, later, _ := host()
	if read(later); last.guard.stopped() != nil {
		t.Errorf("stopped() = %v, of a stop that was acknowledged where it began", last.guard.stopped())
	}

	for _, text := range []string{"{", "{}", "null"} {
		unread, _, _, _ := host()
		if unread.guard.takeOver(text); unread.guard.stopped() == nil {
			t.Errorf("%s on the lock: deletions go on", text)
		}
	}
}

// A leader may end at any moment after it has stopped: the stop is on the lock at once, and not with the next renewal.
func TestAStopIsOnTheLockAtOnce(t *testing.T) {
	directory := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put("", "namespaces", "", "demo")
		w.watches = func(_ pair.Side, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		_, m := w.collector(Options{Collect: true, Workers: 1, LeaderElect: true, StateDirectory: directory})
		p := newProcess(m.cluster, w.options)
		p.lease = lease{15 * time.Minute, 10 * time.Minute, 5 * time.Minute} // no renewal meanwhile
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.run(ctx) }()
		acts(t, p)
		p.guard.stop("a test")
		synctest.Wait()
		w.mutex.Lock()
		held := w.own[modern].objects["configmaps/"+LockNamespace+"/"+LockName]
		text := held.Metadata.Annotations[StopAnnotation]
		record := held.Metadata.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]
		w.mutex.Unlock()
		if !strings.Contains(text, "a test") || !strings.Contains(record, `"holderIdentity":"`) {
			t.Errorf("the lock has the stop %q and the record %s, want both", text, record)
		}
		eventually(t, "the leader leads", func() bool { return p.current() != nil })
		time.Sleep(10 * time.Minute) // its renewals go on
		synctest.Wait()
		if p.current() == nil {
			t.Error("the leader has lost its lock by writing the stop")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// What a store has lost counts as gone neither for the finalizer of a foreground deletion nor for the release of
// dependents: the store is compared after they were looked for.
func TestFinalizersStayWhileAStoreHasForgotten(t *testing.T) {
	for _, finalizer := range []string{metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents} {
		t.Run(finalizer, func(t *testing.T) {
			w := newWorld(t)
			c, m := w.collector(Options{})
			set := w.put(legacy, "replicasets", "demo", "set")
			finalized(w, legacy, "replicasets/demo/set", finalizer)
			w.see(t.Context(), m)
			if err := c.guard.since(t.Context(), c.now()); err != nil {
				t.Fatal(err)
			}
			forgetting["it was emptied, and its API server has written what it always writes"](w, modern)
			if err := c.process(t.Context(), set.UID); !errors.Is(err, errStopped) ||
				!w.has(legacy, "replicasets", "demo", "set") {
				t.Errorf("process = %v, object there %t; want deletions stopped and the object kept", err,
					w.has(legacy, "replicasets", "demo", "set"))
			}
		})
	}
}

// A request that waits for the rate limit is not sent when deletions were stopped meanwhile.
func TestAStopCountsForRequestsThatWait(t *testing.T) {
	w := newWorld(t)
	c, _ := w.collector(Options{})
	if err := c.mayChange(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.guard.stop("a test")
	if err := c.mayChange(t.Context()); !errors.Is(err, errStopped) {
		t.Errorf("mayChange = %v, want that deletions are stopped", err)
	}
}

// While they are stopped nothing is deleted, changed or finalized, whoever wants to.
func TestNothingIsChangedWhileStopped(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{DeleteOrphans: true})
	stays, goes := w.put(legacy, "replicasets", "demo", "stays"), w.put(modern, "replicasets", "demo", "goes")
	w.put("", "pods", "demo", "two-owners", stays, goes)
	w.put("", "namespaces", "", "going")
	w.setNamespace("going", true, NamespaceFinalizer)
	w.put("", "pods", "nowhere", "orphan")
	foreground := w.put(modern, "replicasets", "demo", "foreground")
	finalized(w, modern, "replicasets/demo/foreground", metav1.FinalizerDeleteDependents)
	orphaning := w.put(modern, "replicasets", "demo", "orphaning")
	finalized(w, modern, "replicasets/demo/orphaning", metav1.FinalizerOrphanDependents)
	w.put("", "pods", "demo", "dependent", orphaning)
	w.drop(modern, "replicasets", "demo", "goes")
	w.see(t.Context(), m)
	c.guard.stop("a test")
	w.refuse = func(_ pair.Side, r *http.Request) int {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		return 0
	}
	for _, uid := range append(m.graph.suspects(), foreground.UID, orphaning.UID) {
		_ = c.process(t.Context(), uid)
	}
	if err := m.namespaces.process(t.Context(), "going"); err == nil {
		t.Error("the namespace goes on")
	}
	_ = m.namespaces.reportOrphans(t.Context())
	if err := newProcess(c.cluster, Options{}).ready(); err == nil || !strings.Contains(err.Error(), "a test") {
		t.Errorf("ready() = %v, want why deletions have stopped", err)
	}
}

// TestMetricsAreNotForTheKubelet: where health checks are served to other machines, metrics are not.
func TestMetricsAreNotForTheKubelet(t *testing.T) {
	w := newWorld(t)
	c, _ := w.collector(Options{})
	p := newProcess(c.cluster, Options{})
	for path, want := range map[string][2]int{"/healthz": {200, 200}, "/readyz": {500, 500}, "/metrics": {404, 200}} {
		for i, metrics := range []bool{false, true} {
			answer := httptest.NewRecorder()
			p.checks(metrics).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
			if answer.Code != want[i] {
				t.Errorf("%s, metrics %v: %d, want %d", path, metrics, answer.Code, want[i])
			}
		}
	}
}

// Owners that vanish together, without anybody having deleted them one by one, are not believed to be gone.
func TestManyOwnersThatVanishAtOnceStopDeletions(t *testing.T) {
	for name, test := range map[string]struct {
		of, gone int
		how      func(w *world, m *manager, refs []metav1.OwnerReference)
		stops    bool
	}{
		"a third of them":   {of: 30, gone: 10, stops: true},
		"a few of them":     {of: 30, gone: 9},
		"many of very many": {of: 100, gone: 20},
		"a third, being deleted": {of: 30, gone: 10, how: func(w *world, m *manager, refs []metav1.OwnerReference) {
			for _, ref := range refs {
				finalized(w, modern, "replicasets/demo/"+ref.Name, metav1.FinalizerDeleteDependents)
			}
			w.see(t.Context(), m)
		}},
		"a third, with their namespace": {of: 30, gone: 10, how: func(w *world, m *manager, _ []metav1.OwnerReference) {
			w.setNamespace("demo", true, NamespaceFinalizer)
			w.see(t.Context(), m)
		}},
		"a third, by the collector itself": {of: 30, gone: 10,
			how: func(w *world, m *manager, refs []metav1.OwnerReference) {
				for _, ref := range refs {
					m.graph.expect(ref.UID, true)
				}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c, m := w.collector(Options{})
			w.put("", "namespaces", "", "demo")
			var refs []metav1.OwnerReference
			for i := range test.of {
				ref := w.put(modern, "replicasets", "demo", fmt.Sprintf("set-%d", i))
				w.put("", "pods", "demo", fmt.Sprintf("pod-%d", i), ref)
				refs = append(refs, ref)
			}
			w.see(t.Context(), m)
			if test.how != nil {
				test.how(w, m, refs[:test.gone])
			}
			for _, ref := range refs[:test.gone] {
				w.drop(modern, "replicasets", "demo", ref.Name)
			}
			collectAll(t, w, c, m)
			if stopped := c.guard.stopped() != nil; stopped != test.stops || (len(w.deletions) == 0) != test.stops {
				t.Errorf("stopped %t (%v), %d deletions; want stopped %t", stopped, c.guard.stopped(), len(w.deletions),
					test.stops)
			}
		})
	}
}

// An owner that is there by its watch and absent by a read is in doubt: an etcd may have been exchanged below its API
// server.
func TestOwnersThatAWatchStillHasAreInDoubt(t *testing.T) {
	w := newWorld(t)
	c, m := w.collector(Options{})
	ref := w.put(modern, "replicasets", "demo", "set")
	w.put("", "pods", "demo", "one", ref)
	w.see(t.Context(), m)
	w.drop(modern, "replicasets", "demo", "set")
	if err := c.process(t.Context(), types.UID("uid-3")); err == nil || len(w.deletions) > 0 {
		t.Errorf("process = %v, deleted %q; want a doubt", err, w.deletions)
	}
	unsee(m.graph, ref.UID)
	if err := c.process(t.Context(), types.UID("uid-3")); err != nil || len(w.deletions) != 1 {
		t.Errorf("process = %v, deleted %q; want the pod to go", err, w.deletions)
	}
}

// A person hears of a stop by an event.
func TestAStopIsAnEvent(t *testing.T) {
	w := newWorld(t)
	c, _ := w.collector(Options{})
	var asked []string
	w.refuse = func(side pair.Side, r *http.Request) int {
		asked = append(asked, fmt.Sprint(side, " ", r.Method, " ", r.URL.Path))
		return http.StatusOK
	}
	c.guard.stop("a test")
	c.guard.announce(t.Context())
	c.guard.announce(t.Context())
	if len(asked) != 1 || !strings.HasSuffix(asked[0], "POST /api/v1/namespaces/kube-system/events") {
		t.Errorf("asked %q, want one event", asked)
	}
}

// What is remembered and cannot be read, or is about another pair, stops deletions as well.
func TestAMemoryThatIsNoneStopsDeletions(t *testing.T) {
	for name, remembered := range map[string]*witness.Memory{"of another pair": {Pair: "another"}, "unreadable": nil} {
		t.Run(name, func(t *testing.T) {
			options := Options{StateDirectory: t.TempDir()}
			directory, err := statedir.Open(options.StateDirectory)
			if err == nil && remembered != nil {
				err = directory.Save(remembered)
			} else if err == nil {
				err = directory.Acknowledge(witness.Acknowledgement{})
			}
			if err != nil {
				t.Fatal(err)
			}
			if remembered == nil {
				damage(t, options.StateDirectory)
			}
			c, _ := newWorld(t).collector(options)
			if c.guard.stopped() == nil {
				t.Fatal("deletions go on")
			}
			acknowledge(t, options.StateDirectory)
			c.guard.listen()
			if err := c.guard.since(t.Context(), c.now()); err != nil {
				t.Errorf("since = %v after an acknowledgement", err)
			}
		})
	}
}

// damage makes what is remembered unreadable.
func damage(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(path, "witness.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
}
