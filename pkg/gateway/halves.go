package gateway

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// halves ends an upgraded connection of which one end has closed its half, when the other does not follow within the
// limit: a client that hangs, or a side, would hold it for ever. Programs close what they upgrade as a whole.
type halves struct {
	http.ResponseWriter
	limit time.Duration
	end   func() // closes the connection to the side
}

// Hijack implements http.Hijacker.
func (h halves) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	connection, buffer, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &halfClosed{Conn: connection, halves: h}, buffer, nil
}

// Unwrap lets http.ResponseController reach the connection.
func (h halves) Unwrap() http.ResponseWriter { return h.ResponseWriter }

type halfClosed struct {
	net.Conn
	halves

	mu     sync.Mutex
	closed bool
	timers []*time.Timer
}

// Read implements net.Conn: at its end, the client has gone.
func (c *halfClosed) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.within(c.end)
	}
	return n, err
}

// CloseWrite is called when the side has gone.
func (c *halfClosed) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported // which ends it all
	}
	c.within(func() { _ = c.Conn.Close() })
	return half.CloseWrite()
}

// Close implements net.Conn.
func (c *halfClosed) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, timer := range c.timers {
		timer.Stop()
	}
	return c.Conn.Close()
}

func (c *halfClosed) within(end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.timers = append(c.timers, time.AfterFunc(c.limit, end))
	}
}
