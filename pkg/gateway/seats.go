package gateway

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// seats are for requests of all users that have an end. When all are taken, requests wait for one that becomes free:
// those of components first, then those of the user who has the fewest, in the order in which they came.
//
// It is less than API priority and fairness of API servers, whose queue sets share queues by hashes of users, in levels
// of fixed shares that objects of one API server configure.
type seats struct {
	limit int
	wait  time.Duration // how long a request waits
	slow  time.Duration // how long it has its seat

	metrics *metrics

	mu                sync.Mutex
	taken, components int
	of                map[string]int // taken, by user
	waiting           []*waiter      // in the order in which they came
}

type waiter struct {
	user      string
	component bool
	seat      chan struct{} // closed when it has one
}

// seatWait is how long a request waits, as at API servers: a quarter of the time that they have for one.
const seatWait = 15 * time.Second

// seatSlow is how long a request has its seat: less than others wait. One that takes longer is no work for the gateway,
// it waits for a side, or for a client that sends and reads slowly: it stays one of those of its user alone.
const seatSlow = 5 * time.Second

func newSeats(limit int, m *metrics) *seats {
	return &seats{limit: limit, wait: seatWait, slow: seatSlow, metrics: m, of: map[string]int{}}
}

// level is the priority level of a request, in metrics.
func level(component bool) string {
	if component {
		return "components"
	}
	return "users"
}

// lend is leave, which is called when the request has had its seat for long, too.
func (s *seats) lend(leave func()) func() {
	leave = sync.OnceFunc(leave)
	late := time.AfterFunc(s.slow, leave)
	return func() {
		late.Stop()
		leave()
	}
}

// kept is how many seats others than components leave free.
func (s *seats) kept() int { return s.limit / 10 }

// take waits for a seat. Errors: 429 when none becomes free in time, 503 when the client has gone.
func (s *seats) take(ctx context.Context, user string, component bool) (leave func(), err error) {
	w := &waiter{user: user, component: component, seat: make(chan struct{})}
	came := time.Now()
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.metrics.waiting.WithLabelValues(level(component)).Inc()
	s.seat()
	s.mu.Unlock()
	leave = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.leave(w)
	}
	served := func() (func(), error) {
		s.metrics.waited(component, true, time.Since(came))
		return leave, nil
	}
	select {
	case <-w.seat:
		return served()
	default:
	}
	timer := time.NewTimer(s.wait)
	defer timer.Stop()
	select {
	case <-w.seat:
		return served()
	case <-ctx.Done():
		s.metrics.refuses(component, "cancelled")
		err = unavailable("the client has gone: %v", context.Cause(ctx))
	case <-timer.C:
		s.metrics.refuses(component, "time-out")
		busy := refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "%d requests are served, and "+
			"this one has waited for %s", s.limit, s.wait)
		busy.ErrStatus.Details = unavailableDetails()
		err = busy
	}
	s.metrics.waited(component, false, time.Since(came))
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.waiting, w); at >= 0 {
		s.waiting = slices.Delete(s.waiting, at, at+1)
		s.metrics.waiting.WithLabelValues(level(component)).Dec()
	} else { // it got one at the last moment
		s.leave(w)
	}
	return nil, err
}

// leave frees the seat of a waiter that has one.
func (s *seats) leave(w *waiter) {
	s.taken--
	s.metrics.executing.WithLabelValues(level(w.component)).Dec()
	if w.component {
		s.components--
	}
	if s.of[w.user]--; s.of[w.user] == 0 {
		delete(s.of, w.user)
	}
	s.seat()
}

// seat gives what seats there are to those who wait.
func (s *seats) seat() {
	for next := s.next(); next >= 0; next = s.next() {
		w := s.waiting[next]
		s.waiting = slices.Delete(s.waiting, next, next+1)
		s.taken++
		s.metrics.waiting.WithLabelValues(level(w.component)).Dec()
		s.metrics.executing.WithLabelValues(level(w.component)).Inc()
		if w.component {
			s.components++
		}
		s.of[w.user]++
		close(w.seat)
	}
}

// next is the place of the waiter whose turn it is; -1 when there is no seat for any. Components wait for others when
// they have half of all seats.
func (s *seats) next() int {
	best := -1
	for i, w := range s.waiting {
		if s.taken == s.limit || !w.component && s.taken-s.components >= s.limit-s.kept() {
			continue
		}
		if best < 0 || s.before(w, s.waiting[best]) {
			best = i
		}
	}
	return best
}

func (s *seats) before(w, other *waiter) bool {
	if w.component != other.component {
		return w.component == (s.components < (s.limit+1)/2)
	}
	return s.of[w.user] < s.of[other.user]
}

// isComponent reports whether the user is a part of a control plane or a node: what others need to go on.
func isComponent(u user.Info) bool {
	for _, group := range u.GetGroups() {
		switch group {
		case user.SystemPrivilegedGroup, user.NodesGroup, "system:serviceaccounts:" + metav1.NamespaceSystem:
			return true
		}
	}
	return strings.HasPrefix(u.GetName(), "system:kube-")
}
