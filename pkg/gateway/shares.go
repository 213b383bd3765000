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
	// partsOfUsers is how many parts what others leave of the memory of all users has: a share holds one of them.
	partsOfUsers = 4
	// partsOfComponents is the same of the memory of components, and partsBeyond of that of further clusters.
	partsOfComponents, partsBeyond = 2, 2
	// limitShare is what one share holds where there is no other.
	limitShare = limitMemory / partsOfUsers
	// limitBodies bounds what of it bodies take: they are read before a side decides whether the user may send them.
	limitBodies = limitShare
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

// shares are those of requests in flight.
type shares struct {
	mu sync.Mutex
	by map[string]*share

	users, components, beyond *webserver.Budget // what they are shares of
}

// of is the share of a user, until left is called.
func (s *shares) of(u user.Info) (of *share, left func()) {
	name := shareOf(u)
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.by[name]
	if at == nil {
		at = &share{memory: s.users.Share(partsOfUsers), beyond: s.beyond.Share(partsBeyond),
			bodies: webserver.NewBudget(limitBodies), reading: webserver.NewSlots(limitReading),
			workers: newWorkers()}
		if isComponent(u) {
			at.memory = s.components.Share(partsOfComponents)
		}
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
func (g *Gateway) reserve(c *exchange) *webserver.Reservation { return c.own.memory.Reserve() }
