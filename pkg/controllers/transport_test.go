package controllers

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
)

// The second of apimachinery's handlers sleeps until a millisecond after the last error, by the clock that was there
// when the program started: in a bubble, whose time is another, that is years. The first logs.
func init() { utilruntime.ErrorHandlers = nil }

// serverOf is the configuration of a server within the process. It has no sockets, so that tests may run in bubbles of
// testing/synctest, where time passes as soon as every goroutine waits.
func serverOf(handler http.Handler) *rest.Config {
	return &rest.Config{Host: "http://server.test", Transport: within{handler}}
}

// within carries requests to a handler.
type within struct{ handler http.Handler }

func (t within) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	answer := &answer{header: http.Header{}, begun: make(chan struct{}), cancel: cancel}
	answer.more = sync.NewCond(&answer.mutex)
	served := r.Clone(ctx)
	if served.Body == nil {
		served.Body = http.NoBody
	}
	served.RequestURI = r.URL.RequestURI()
	stop := context.AfterFunc(ctx, func() { answer.end(context.Cause(ctx)) })
	go func() {
		defer stop()
		defer func() {
			if lost := recover(); lost == http.ErrAbortHandler {
				answer.end(io.ErrUnexpectedEOF)
			} else if lost != nil {
				panic(lost)
			}
		}()
		t.handler.ServeHTTP(answer, served)
		answer.WriteHeader(http.StatusOK)
		answer.end(io.EOF)
	}()
	select {
	case <-answer.begun:
	case <-ctx.Done():
		cancel()
		return nil, r.Context().Err()
	}
	return &http.Response{Status: http.StatusText(answer.code), StatusCode: answer.code, Header: answer.header,
		Body: answer, ContentLength: -1, Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}, nil
}

// answer is what a handler writes and a client reads.
type answer struct {
	header http.Header
	code   int
	begun  chan struct{}
	cancel context.CancelFunc

	mutex sync.Mutex
	more  *sync.Cond
	text  bytes.Buffer
	ended error
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(code int) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.code == 0 {
		a.code = code
		a.header = a.header.Clone()
		close(a.begun)
	}
}

func (a *answer) Write(text []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.ended != nil {
		return 0, a.ended
	}
	a.more.Broadcast()
	return a.text.Write(text)
}

func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

// end ends the answer once.
func (a *answer) end(why error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.ended == nil {
		a.ended = why
	}
	a.more.Broadcast()
}

func (a *answer) Read(into []byte) (int, error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for a.text.Len() == 0 && a.ended == nil {
		a.more.Wait()
	}
	if a.text.Len() > 0 && (a.ended == nil || errors.Is(a.ended, io.EOF) || errors.Is(a.ended, io.ErrUnexpectedEOF)) {
		return a.text.Read(into)
	}
	return 0, a.ended
}

func (a *answer) Close() error {
	a.cancel()
	return nil
}
