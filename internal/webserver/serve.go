package webserver

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// grace is how long answers that have begun may take when the server ends: as long as an API server waits for one.
const grace = 30 * time.Second

// Serve answers on the listener until the context ends, and then lets answers that have begun end. What goes wrong with a connection is
// logged; nil for no log.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return server.Shutdown(last)
}
