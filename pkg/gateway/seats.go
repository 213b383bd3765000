package gateway

import (
	"container/list"
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// seats are for requests of all users that have an end. When all are taken, requests wait for one that becomes free:
// those of components first, then those of the user who has the fewest, and of these in turns.
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
	came              uint64         // how many, and how many were served
	users, parts      queues         // those who wait: users, and components
}

type waiter struct {
	user      string
	component bool
	seat      chan struct{} // closed when it has one
	came      uint64
	at        *list.Element // of the queue of its user; nil when it waits no more
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
	s.came++
	w.came = s.came
	s.queuesOf(component).add(w, s.of[user])
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
	if w.at != nil {
		s.queuesOf(component).remove(w)
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
	s.has(w.user, s.of[w.user]-1)
	s.seat()
}

// has is how many seats a user has from now on.
func (s *seats) has(user string, n int) {
	if s.of[user] = n; n == 0 {
		delete(s.of, user)
	}
	s.users.has(user, n)
	s.parts.has(user, n)
}

func (s *seats) queuesOf(component bool) *queues {
	if component {
		return &s.parts
	}
	return &s.users
}

// seat gives what seats there are to those who wait.
func (s *seats) seat() {
	for w := s.next(); w != nil; w = s.next() {
		s.came++
		s.queuesOf(w.component).serve(w, s.came)
		s.taken++
		s.metrics.waiting.WithLabelValues(level(w.component)).Dec()
		s.metrics.executing.WithLabelValues(level(w.component)).Inc()
		if w.component {
			s.components++
		}
		s.has(w.user, s.of[w.user]+1)
		close(w.seat)
	}
}

// next is the waiter whose turn it is; nil when there is no seat for any. Components wait for others when they have
// half of all seats.
func (s *seats) next() *waiter {
	if s.taken == s.limit {
		return nil
	}
	part, other := s.parts.first(), s.users.first()
	if s.taken-s.components >= s.limit-s.kept() {
		other = nil
	}
	if other == nil || part != nil && s.components < (s.limit+1)/2 {
		return part
	}
	return other
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
