// Package freeport finds ports for servers that tests start, and start again at the same place.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports are taken from below the ephemeral range of systems (32768 and up on Linux): a port that is free now is then
// not taken by an outgoing connection before the server that it is meant for listens on it.
const (
	firstPort = 20000
	lastPort  = 32767
)

var ports struct {
	mutex sync.Mutex
	taken map[int]bool
}

// Next is a port on which nothing listens, another one at each call. Errors: there is none.
func Next() (int, error) {
	ports.mutex.Lock()
	defer ports.mutex.Unlock()
	if ports.taken == nil {
		ports.taken = make(map[int]bool)
	}
	for range lastPort - firstPort {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if ports.taken[port] {
			continue
		}
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port)) // on every address: the strictest check
		if err != nil {
			continue
		}
		listener.Close()
		ports.taken[port] = true
		return port, nil
	}
	return 0, fmt.Errorf("no free port between %d and %d", firstPort, lastPort)
}
