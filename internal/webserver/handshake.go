package webserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
)

// Handshakes is a listener for TLS whose connections have shaken hands when they are accepted. http.Server does that
// where it serves a connection from then on: the stack that it takes, twice as large, stays as long as the connection
// of HTTP/2, 16 MiB for two thousand of them.
type Handshakes struct {
	net.Listener
	config *tls.Config
	log    *slog.Logger
	done   chan struct{} // closed with the listener
	close  func() error
	ready  chan accepted
}

// accepted is a connection, or why none comes any more.
type accepted struct {
	net.Conn
	err error
}

// NewHandshakes listens with the listener. A handshake that fails is logged.
func NewHandshakes(listener net.Listener, config *tls.Config, log *slog.Logger) *Handshakes {
	h := &Handshakes{Listener: listener, config: config, log: log, done: make(chan struct{}),
		ready: make(chan accepted)}
	h.close = sync.OnceValue(func() error {
		close(h.done)
		return listener.Close()
	})
	go h.accept()
	return h
}

func (h *Handshakes) accept() {
	for {
		connection, err := h.Listener.Accept()
		if err != nil {
			select {
			case h.ready <- accepted{err: err}:
				continue // after too many open files, for example, the server waits and accepts again
			case <-h.done:
				return
			}
		}
		go h.shake(connection)
	}
}

func (h *Handshakes) shake(connection net.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), headerTimeout)
	defer cancel()
	shaken := tls.Server(connection, h.config)
	if err := shaken.HandshakeContext(ctx); err != nil {
		if !errors.Is(err, io.EOF) { // a probe of the port
			h.log.Warn(fmt.Sprintf("http: TLS handshake error from %s: %v", connection.RemoteAddr(), err))
		}
		connection.Close()
		return
	}
	h.pass(accepted{Conn: shaken})
}

// pass hands on what Accept returns.
func (h *Handshakes) pass(a accepted) {
	select {
	case h.ready <- a:
	case <-h.done:
		if a.Conn != nil {
			a.Close()
		}
	}
}

// Accept implements net.Listener.
func (h *Handshakes) Accept() (net.Conn, error) {
	select {
	case a := <-h.ready:
		return a.Conn, a.err
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *Handshakes) Close() error { return h.close() }
