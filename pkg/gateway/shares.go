package gateway

import (
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubefusion/fusionctl/internal/webserver"
)

const (
	// limitShare bounds what one share holds of all memory, and limitBeyond of that of further clusters.
	limitShare  = limitMemory / 2
	limitBeyond = limitClusterMemory / 2
	// limitBodies bounds what of it bodies take: they are read before a side decides whether the user may send them.
	limitBodies = limitMemory / 4
	// limitReading bounds the bodies that are read at a time.
	limitReading = limitBodies / limitBytes
)

// share is what the requests of one user, or of the service accounts of one namespace, hold together: those of others
// go on, whatever they ask for, and however slowly they read the answers.
type share struct {
	memory, beyond *webserver.Budget
	bodies         *webserver.Budget // as they came and decoded, and what is recorded of requests
	reading        webserver.Slots
	workers        *workers
	watching       atomic.Int64

	requests int
}

// shares are those of requests in flight. The zero value has none.
type shares struct {
	mu sync.Mutex
	by map[string]*share
}

// of is the share of a name, until left is called.
func (s *shares) of(name string) (of *share, left func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.by[name]
	if at == nil {
		at = &share{memory: webserver.NewBudget(limitShare), beyond: webserver.NewBudget(limitBeyond),
			bodies: webserver.NewBudget(limitBodies), reading: webserver.NewSlots(limitReading),
			workers: newWorkers()}
		if s.by == nil {
			s.by = map[string]*share{}
		}
		s.by[name] = at
	}
	at.requests++
	return at, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if at.requests--; at.requests == 0 {
			delete(s.by, name)
		}
	}
}

// shareOf is whose share a user has: who may create service accounts has as many as wanted.
func shareOf(u user.Info) string {
	namespace, _, err := serviceaccount.SplitUsername(u.GetName())
	if err != nil || namespace == metav1.NamespaceSystem {
		return u.GetName()
	}
	return serviceaccount.MakeNamespaceGroupName(namespace)
}

// reserve begins a reservation of the share.
func (g *Gateway) reserve(c *exchange) *webserver.Reservation {
	return g.memory.Reserve().Another(c.own.memory)
}
