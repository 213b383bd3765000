package webserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener of connections within the process.
type pipes struct {
	made chan net.Conn
	once sync.Once
	end  chan struct{}
}

func newPipes() *pipes { return &pipes{made: make(chan net.Conn), end: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.made:
		return c, nil
	case <-p.end:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.end) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.made <- theirs
	return ours
}

// TestServeGivesUpOnSlowClients: a client that sends its request by the byte does not hold a connection.
func TestServeGivesUpOnSlowClients(t *testing.T) {
	for name, test := range map[string]struct {
		send string
		most time.Duration
	}{
		"nothing at all":     {"", headerTimeout},
		"half of the header": {"POST / HTTP/1.1\r\nHost: x\r\nX-", headerTimeout},
		"half of the body":   {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", exchangeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := newPipes()
				served := make(chan error, 1)
				handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, err := Body(w, r, 1<<20, nil); err != nil {
						Refuse(w, err)
					}
				})
				go func() { served <- Serve(t.Context(), listener, handler, nil) }()
				connection := listener.dial()
				if _, err := io.WriteString(connection, test.send); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				io.Copy(io.Discard, connection)
				if took := time.Since(start); took > test.most+time.Second {
					t.Errorf("the connection ends after %v, want %v", took, test.most)
				}
				listener.Close()
				if err := <-served; !errors.Is(err, net.ErrClosed) {
					t.Errorf("Serve = %v", err)
				}
			})
		})
	}
}

func TestSlotsServeSoManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		slots := NewSlots(2)
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			free, err := slots.Take(r.Context())
			if err != nil {
				Refuse(w, err)
				return
			}
			defer free()
			<-release
		})
		codes, began := make(chan int, 3), time.Now()
		for range 3 {
			go func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
				codes <- w.Code
			}()
		}
		if code := <-codes; code != http.StatusServiceUnavailable {
			t.Errorf("the third of two: %d, want %d", code, http.StatusServiceUnavailable)
		}
		if took := time.Since(began); took != waitingTime {
			t.Errorf("the third of two waits for %s, want %s", took, waitingTime)
		}
		close(release)
		for range 2 {
			if code := <-codes; code != http.StatusOK {
				t.Errorf("one of two: %d", code)
			}
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil)); w.Code != http.StatusOK {
			t.Errorf("when the others have ended: %d", w.Code)
		}
	})
}

func TestBodyReadsWhatItMay(t *testing.T) {
	const limit = 1 << 20
	request := func(size int, known bool) *http.Request {
		var body io.Reader = bytes.NewReader(bytes.Repeat([]byte("x"), size))
		if !known {
			body = io.MultiReader(body)
		}
		return httptest.NewRequest(http.MethodPost, "/", body)
	}
	for _, size := range []int{0, 1, 511, 512, 64 << 10, 64<<10 + 1, limit - 1, limit} {
		for _, known := range []bool{true, false} {
			budget := NewBudget(4 * limit)
			r := budget.Reserve()
			body, err := Body(httptest.NewRecorder(), request(size, known), limit, r)
			if err != nil || len(body) != size || int64(cap(body)) > r.held+512 {
				t.Errorf("%d bytes: %d, %v, with %d reserved for %d", size, len(body), err, r.held, cap(body))
			}
			r.Release()
			if budget.held != 0 {
				t.Errorf("%d bytes: not all is given back", size)
			}
		}
	}
	for name, test := range map[string]struct {
		request *http.Request
		budget  int64
		code    int
	}{
		"one byte too many":          {request(limit+1, true), 0, http.StatusRequestEntityTooLarge},
		"one byte too many, unknown": {request(limit+1, false), 0, http.StatusRequestEntityTooLarge},
		"more than the budget":       {request(limit, false), limit / 2, http.StatusRequestEntityTooLarge},
		"a GET": {httptest.NewRequest(http.MethodGet, "/", nil), 0,
			http.StatusMethodNotAllowed},
		"a body that ends in the midst": {httptest.NewRequest(http.MethodPost, "/",
			io.MultiReader(strings.NewReader("x"), broken{})), 0, http.StatusBadRequest},
	} {
		var r *Reservation
		if test.budget > 0 {
			r = NewBudget(test.budget).Reserve()
		}
		_, err := Body(httptest.NewRecorder(), test.request, limit, r)
		w := httptest.NewRecorder()
		if Refuse(w, err); err == nil || w.Code != test.code {
			t.Errorf("%s: %v, answered %d, want %d", name, err, w.Code, test.code)
		}
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("reset") }

// TestServeGivesUpOnClientsThatDoNotRead: neither an answer that is not read nor a connection without requests is held.
func TestServeGivesUpOnClientsThatDoNotRead(t *testing.T) {
	for name, test := range map[string]struct {
		reads bool
		after time.Duration
	}{
		"an answer is not read": {false, exchangeTimeout},
		"no further request":    {true, idleTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener, written := newPipes(), make(chan error, 1)
				ctx, cancel := context.WithCancel(t.Context())
				served := make(chan error, 1)
				handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, err := w.Write(make([]byte, 64<<10)) // more than a buffer holds
					written <- err
				})
				go func() { served <- Serve(ctx, listener, handler, nil) }()
				client, began := listener.dial(), time.Now()
				if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				if test.reads {
					if _, err := io.Copy(io.Discard, client); err != nil { // until the server closes the connection
						t.Error(err)
					}
				} else if err := <-written; err == nil {
					t.Error("the answer was written, and the client read nothing")
				}
				if took := time.Since(began); took != test.after {
					t.Errorf("given up after %s, want %s", took, test.after)
				}
				client.Close()
				cancel()
				if err := <-served; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// What a request reserves after it has ended would be held for ever.
func TestAReservationThatIsReleasedDoesNotGrow(t *testing.T) {
	budget := NewBudget(100)
	reserved := budget.Reserve()
	if err := reserved.Grow(t.Context(), 60); err != nil {
		t.Fatal(err)
	}
	reserved.Release()
	if err := reserved.Grow(t.Context(), 60); err == nil {
		t.Error("it grows after its release")
	}
	if err := budget.Reserve().Grow(t.Context(), 100); err != nil {
		t.Errorf("of a budget that nothing holds: %v", err)
	}
}

// TestSharesLeaveRoomForOthers: a share holds a quarter of what others leave, however many have theirs already, and
// goes on when another one gives back.
func TestSharesLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := NewBudget(1 << 20)
		var first *Reservation
		left := int64(1 << 20)
		for i := range 12 {
			share := budget.Share(4)
			of := share.Reserve()
			if i == 0 {
				first = of
			}
			var refused *RequestError
			if err := share.Reserve().Grow(t.Context(), left/4+1); !errors.As(err, &refused) {
				t.Fatalf("share %d holds more than a quarter of %d bytes", i, left)
			}
			if err := of.Grow(t.Context(), left/4); err != nil {
				t.Fatalf("share %d, of %d bytes: %v", i, left, err)
			}
			if left -= left / 4; budget.held != 1<<20-left {
				t.Fatalf("%d bytes are held, want %d", budget.held, 1<<20-left)
			}
		}
		if left < 1<<20/32 {
			t.Errorf("twelve shares leave %d bytes", left)
		}
		waited := make(chan error)
		go func() { waited <- budget.Share(4).Reserve().Grow(t.Context(), 1<<16) }()
		synctest.Wait()
		first.Release()
		if err := <-waited; err != nil {
			t.Errorf("after the first has given back: %v", err)
		}
	})
}

// TestWhoWaitsForMuchIsInNobodysWay: small requests would wait behind a large one for as long as there are some.
func TestWhoWaitsForMuchIsInNobodysWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := NewBudget(100)
		some, much, own := budget.Reserve(), budget.Reserve(), NewBudget(50)
		if err := some.Grow(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		waited := make(chan error)
		go func() { waited <- much.Grow(t.Context(), 100) }()
		synctest.Wait()
		small := budget.Reserve().Another(own)
		if err := small.Grow(t.Context(), 50); err != nil {
			t.Errorf("while another waits: %v", err)
		}
		var refused *RequestError
		if err := budget.Reserve().Another(own).Grow(t.Context(), 10); !errors.As(err, &refused) ||
			refused.Code != http.StatusServiceUnavailable {
			t.Errorf("more than its own budget has: %v", err)
		}
		if err := <-waited; !errors.As(err, &refused) || refused.Code != http.StatusServiceUnavailable {
			t.Errorf("what is not there: %v", err)
		}
		go func() { waited <- much.Grow(t.Context(), 100) }()
		synctest.Wait()
		small.Release()
		some.Release()
		if err := <-waited; err != nil {
			t.Errorf("when it is there: %v", err)
		}
		if much.Release(); budget.held != 0 || own.held != 0 || len(budget.waiting) != 0 {
			t.Errorf("held %d and %d, %d wait", budget.held, own.held, len(budget.waiting))
		}
	})
}

// counting is a body without end, which counts what is read of it.
type counting struct{ bytes atomic.Int64 }

func (c *counting) Read(p []byte) (int, error) {
	c.bytes.Add(int64(len(p)))
	return len(p), nil
}

// TestBodiesThatAreNotReadAreSmall: of a request over HTTP/2 little is held that its handler does not read, and other
// requests of the same connection go on.
func TestBodiesThatAreNotReadAreSmall(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	server := httptest.NewUnstartedServer(nil)
	server.Config = New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/waits" {
			begun <- r.ProtoMajor == 2
			<-end
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	}), nil)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	body := &counting{}
	ctx, cancel := context.WithCancel(t.Context())
	var asked sync.WaitGroup
	asked.Go(func() {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/waits", body)
		if err != nil {
			t.Error(err)
			return
		}
		if response, err := server.Client().Do(r); err == nil {
			response.Body.Close()
		}
	})
	if !<-begun {
		t.Error("the request is none over HTTP/2")
	}
	const other = 4 << 20 // which takes longer than what can be sent of the body
	response, err := server.Client().Post(server.URL, "", io.LimitReader(&counting{}, other))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || string(text) != fmt.Sprint(other) {
		t.Errorf("beside it %q bytes of another body are read, %v", text, err)
	}
	const client = 64 << 10 // what the client reads ahead
	if got := body.bytes.Load(); got > limitUnreadBytes+client {
		t.Errorf("%d bytes of a body are sent that is not read, want %d at most", got, limitUnreadBytes+client)
	}
	cancel()
	close(end)
	asked.Wait()
}
