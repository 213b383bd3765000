package gateway

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apiserver/pkg/authentication/user"
)

// seated says of requests of users in which order they get a seat.
type seated struct {
	t     *testing.T
	seats *seats
	mu    sync.Mutex
	order []string
	leave map[string][]func()
}

// comes lets a request of a user come, and waits until it has a seat or waits for one. Components are in capitals.
func (s *seated) comes(name string) {
	s.t.Helper()
	go func() {
		leave, err := s.seats.take(s.t.Context(), name, strings.ToUpper(name) == name)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			s.order = append(s.order, "no "+name)
			return
		}
		s.order = append(s.order, name)
		s.leave[name] = append(s.leave[name], leave)
	}()
	synctest.Wait()
}

func (s *seated) goes(name string) {
	s.t.Helper()
	s.mu.Lock()
	leave := s.leave[name][0]
	s.leave[name] = s.leave[name][1:]
	s.mu.Unlock()
	leave()
	synctest.Wait()
}

// served is who got a seat, in order.
func (s *seated) served() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.order, " ")
}

// Who has the fewest seats gets the next one, whatever waits before; components get it before all, but not all of them.
func TestSeatsAreSharedFairly(t *testing.T) {
	for _, tc := range []struct {
		name, steps string // a name comes; -name goes
		limit       int
		want        string
	}{
		{"in the order in which they come", "a a a -a -a", 2, "a a a"},
		{"who has the fewest is next", "a a a a a b -a -a", 2, "a a b a"},
		{"two share", "a a a a a b b b b -a -a -a -b", 2, "a a b a a b"},
		{"a long queue gets one turn", "a b a a a b b b c -a -b -a", 2, "a b a b c"},
		{"components are next", "a a a b C -a", 2, "a a C"},
		{"components do not take all", "C C C a a -C", 2, "C C a"},
		{"a tenth is for components", "a a a a a a a a a a C", 10, "a a a a a a a a a C"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seats := newSeats(tc.limit, newMetrics(prometheus.NewRegistry()))
				s := &seated{t: t, seats: seats, leave: map[string][]func(){}}
				for step := range strings.FieldsSeq(tc.steps) {
					if name, goes := strings.CutPrefix(step, "-"); goes {
						s.goes(name)
					} else {
						s.comes(step)
					}
				}
				if got := s.served(); got != tc.want {
					t.Errorf("served %s, want %s", got, tc.want)
				}
				if s.seats.waits() > 0 { // they give up
					time.Sleep(seatWait)
					synctest.Wait()
					if got := s.served(); !strings.HasPrefix(got, tc.want+" no ") {
						t.Errorf("served %s, want %s and refusals", got, tc.want)
					}
				}
				for name, leave := range s.leave {
					for range leave {
						s.goes(name)
					}
				}
				if s.seats.taken != 0 || s.seats.components != 0 || len(s.seats.of) != 0 || s.seats.waits() != 0 {
					t.Errorf("after all have gone: %+v", s.seats)
				}
			})
		})
	}
}

// waits is how many wait; what is left of their queues counts too.
func (s *seats) waits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.users.waiting, len(s.users.of), len(s.users.turns)) + max(s.parts.waiting, len(s.parts.of),
		len(s.parts.turns))
}

// TestTurnsOfMany: of thousands that wait, come and go, the next is always whom a look at all of them finds.
func TestTurnsOfMany(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var q queues
	var waiting []*waiter
	has := map[string]int{}
	for came := range uint64(20_000) {
		user := fmt.Sprint(random.IntN(300))
		switch at := 0; {
		case random.IntN(5) == 0:
			has[user] = random.IntN(4)
			q.has(user, has[user])
		case random.IntN(3) == 0 && len(waiting) > 0: // one gives up
			at = random.IntN(len(waiting))
			q.remove(waiting[at])
			waiting = slices.Delete(waiting, at, at+1)
		default:
			w := &waiter{user: user, came: came}
			q.add(w, has[user])
			waiting = append(waiting, w)
		}
		if came%50 > 0 {
			continue
		}
		var want *waiter
		for _, w := range waiting {
			if want == nil || has[w.user] < has[want.user] {
				want = w
			}
		}
		if got := q.first(); got != want || q.waiting != len(waiting) {
			t.Fatalf("at %d the next of %d is %+v, want %+v of %d", came, q.waiting, got, want, len(waiting))
		}
	}
}

// BenchmarkManyWait: 20,000 users wait, and one after the other gets a seat.
func BenchmarkManyWait(b *testing.B) {
	s := newSeats(100, newMetrics(prometheus.NewRegistry()))
	for i := range 20_000 {
		s.came++
		s.users.add(&waiter{user: fmt.Sprint(i), came: s.came, seat: make(chan struct{})}, 0)
	}
	for b.Loop() {
		s.mu.Lock()
		w := s.users.first()
		s.users.remove(w)
		s.has(w.user, 1)
		s.has(w.user, 0)
		s.came++
		w.came = s.came
		s.users.add(w, 0)
		s.mu.Unlock()
	}
}

// A client that goes while it waits leaves no seat behind, also when it gets one at that moment.
func TestClientsThatGoTakeNoSeat(t *testing.T) {
	s := newSeats(1, newMetrics(prometheus.NewRegistry()))
	var all sync.WaitGroup
	for i := range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		all.Go(func() {
			if leave, err := s.take(ctx, fmt.Sprint(i%3), false); err == nil {
				leave()
			}
		})
		all.Go(cancel)
	}
	all.Wait()
	if s.taken != 0 || len(s.of) != 0 || s.waits() != 0 {
		t.Errorf("taken %d, of %v, waiting %d", s.taken, s.of, s.waits())
	}
	for _, gauge := range []*prometheus.GaugeVec{s.metrics.waiting, s.metrics.executing} {
		if got := testutil.ToFloat64(gauge.WithLabelValues("users")); got != 0 {
			t.Errorf("%v requests are counted in the end", got)
		}
	}
}

// Metrics say how many wait and are served, and why others were refused.
func TestRequestsThatWaitAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		s := &seated{t: t, seats: newSeats(1, newMetrics(registry)), leave: map[string][]func(){}}
		for _, name := range []string{"a", "b", "C"} {
			s.comes(name)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = s.seats.take(ctx, "d", false) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		time.Sleep(seatWait / 2)
		s.goes("a")
		time.Sleep(seatWait)
		synctest.Wait()
		const name = "fusionctl_gateway_flowcontrol_"
		if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP `+name+`current_executing_requests Requests that are served, watches, streams and slow ones left out, `+
			`by priority level.
# TYPE `+name+`current_executing_requests gauge
`+name+`current_executing_requests{priority_level="components"} 1
`+name+`current_executing_requests{priority_level="users"} 0
# HELP `+name+`current_inqueue_requests Requests that wait for their turn, by priority level.
# TYPE `+name+`current_inqueue_requests gauge
`+name+`current_inqueue_requests{priority_level="components"} 0
`+name+`current_inqueue_requests{priority_level="users"} 0
`), name+"current_inqueue_requests", name+"current_executing_requests"); err != nil {
			t.Error(err)
		}
		for reason, want := range map[string]float64{"time-out": 1, "cancelled": 1, "concurrency-limit": 0} {
			if got := testutil.ToFloat64(s.seats.metrics.refused.WithLabelValues("users", reason)); got != want {
				t.Errorf("%v requests were refused for %s, want %v", got, reason, want)
			}
		}
		if got := testutil.CollectAndCount(s.seats.metrics.wait); got != 3 {
			t.Errorf("%d series of waiting, want 3: served of both levels, and not served of one", got)
		}
	})
}

func TestComponentsAreKnown(t *testing.T) {
	for name, want := range map[string]bool{"system:kube-scheduler": true, "system:node:a system:nodes": true,
		"root system:masters": true, "alice developers": false,
		"system:serviceaccount:kube-system:replicaset-controller system:serviceaccounts:kube-system": true,
		"system:serviceaccount:shop:web system:serviceaccounts:shop":                                 false} {
		fields := strings.Fields(name)
		if got := isComponent(&user.DefaultInfo{Name: fields[0], Groups: fields[1:]}); got != want {
			t.Errorf("%s is a component: %t, want %t", name, got, want)
		}
	}
}

// A flood of some users is in no other's way: of those who wait, the one with the fewest requests in flight is next.
func TestAFloodStarvesNoOther(t *testing.T) {
	const taken, flood = 4, 40
	s := newSeats(taken, newMetrics(prometheus.NewRegistry()))
	s.wait = time.Hour
	type seat struct {
		who   string
		leave func()
	}
	granted := make(chan seat)
	arrives := func(who string, waits int) {
		t.Helper()
		go func() {
			leave, err := s.take(t.Context(), who, false)
			if err != nil {
				return // the test has ended
			}
			granted <- seat{who, leave}
		}()
		for waiting := -1; waits > 0 && waiting != waits; { // in the order in which they come
			waiting = s.waits()
			runtime.Gosched()
		}
	}
	var first []seat
	for i := range 2 * flood {
		arrives([]string{"mallory", "trudy"}[i%2], i+1-taken)
		if i < taken {
			first = append(first, <-granted)
		}
	}
	arrives("bob", 2*flood+1-taken)
	first[0].leave()
	if next := <-granted; next.who != "bob" {
		t.Errorf("%s has the seat that became free, and bob has none", next.who)
	}
	first[1].leave() // mallory has one seat, trudy two
	if next := <-granted; next.who != "trudy" && next.who != "mallory" {
		t.Errorf("%s has the next seat", next.who)
	}
}

// Requests that wait for a side, or for their client, are in no other user's way: a few users could hold all seats by
// them.
func TestSlowRequestsLeaveTheirSeats(t *testing.T) {
	x := newFixture(t, func(o *Options) { o.InFlight = 2 })
	x.gateway.seats.slow = time.Millisecond
	hang, hanging := make(chan struct{}), make(chan struct{}, 2)
	x.modern.page("GET /api/v1/namespaces/a/pods", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Remote-User") != "bob" {
			hanging <- struct{}{}
			<-hang
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","items":[]}`)
	})
	x.legacy.pages["GET /api/v1/namespaces/a/pods"] = x.modern.pages["GET /api/v1/namespaces/a/pods"]
	get := func(who string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, x.url+"/api/v1/namespaces/a/pods", nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		r.Header.Set("Test-Certificate", who)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return 0
		}
		response.Body.Close()
		return response.StatusCode
	}
	var all sync.WaitGroup
	for _, who := range []string{"mallory", "trudy"} {
		all.Go(func() {
			if code := get(who); code != http.StatusOK {
				t.Errorf("%s: %d", who, code)
			}
		})
		<-hanging
	}
	if code := get("bob"); code != http.StatusOK {
		t.Errorf("bob: %d, while two requests of others wait for a side", code)
	}
	close(hang)
	all.Wait()
	taken := func() int {
		x.gateway.seats.mu.Lock()
		defer x.gateway.seats.mu.Unlock()
		return x.gateway.seats.taken
	}
	for deadline := time.Now().Add(time.Minute); taken() != 0; time.Sleep(time.Millisecond) { // handlers end
		if time.Now().After(deadline) {
			t.Fatalf("%d seats are taken after all", taken())
		}
	}
}
