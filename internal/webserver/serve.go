package webserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// grace is how long answers that have begun may take when the server ends: as long as an API server waits for one.
const grace = 30 * time.Second

// What a connection may cost. API servers give up on a webhook after 30 seconds.
const (
	headerTimeout    = 10 * time.Second // the TLS handshake, too
	exchangeTimeout  = 30 * time.Second // to read a request, and to write its answer
	idleTimeout      = 2 * time.Minute
	limitHeaderBytes = 64 << 10
	// limitUnreadBytes bounds what a client sends of a request over HTTP/2 that its handler does not read: while it
	// waits for its turn or for memory, or passes the body on to a program that reads slowly. By default it is a
	// megabyte, which no budget counts.
	limitUnreadBytes = 64 << 10
)

// New returns a server whose connections cost no more than that. What goes wrong with one is logged; nil for no log.
func New(handler http.Handler, log *slog.Logger) *http.Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: exchangeTimeout, WriteTimeout: exchangeTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: limitHeaderBytes,
		HTTP2:          &http.HTTP2Config{MaxReceiveBufferPerStream: limitUnreadBytes},
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// Serve serves requests on the listener until the context ends, and then lets those that have begun end within 30
// seconds. What goes wrong with a connection is logged; nil for no log.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	server := New(handler, log)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := server.Shutdown(last); err != nil {
		return errors.Join(fmt.Errorf("requests did not end within %v: %w", grace, err), server.Close())
	}
	return nil
}
