package webserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// DefaultRequests is how many requests a webhook serves concurrently: more than API servers send.
const DefaultRequests = 256

// DefaultBytes bounds the bodies of all requests that a webhook holds.
const DefaultBytes = 64 << 20

// waitingTime is how long a request waits for its turn, or for memory: less than an API server waits for an answer.
const waitingTime = 5 * time.Second

// Slots bound how many requests are served concurrently. A handler takes one when it has read the request: a client
// that sends it slowly holds none. Nil has no bound.
type Slots chan struct{}

// NewSlots returns so many slots.
func NewSlots(n int) Slots { return make(Slots, n) }

// Take waits for a slot, for a while. release gives it back.
// Errors: *RequestError: 503 when none becomes free.
func (s Slots) Take(ctx context.Context) (release func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, waitingTime)
	defer cancel()
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, &RequestError{http.StatusServiceUnavailable, fmt.Errorf("%d requests are being served", cap(s))}
	}
}

// RequestError is a request that is refused, with its status.
type RequestError struct {
	Code int
	Err  error
}

func (e *RequestError) Error() string { return e.Err.Error() }
func (e *RequestError) Unwrap() error { return e.Err }

// Refuse answers with the status of a RequestError, 400 for other errors.
func Refuse(w http.ResponseWriter, err error) {
	code := http.StatusBadRequest
	if request := (*RequestError)(nil); errors.As(err, &request) {
		code = request.Code
	}
	if code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	http.Error(w, Brief(err), code)
}

// limitMessageBytes bounds what an answer says of an error: names in it are as long as a client makes them.
const limitMessageBytes = 4 << 10

// Brief is the text of an error, or its beginning.
func Brief(err error) string {
	text := err.Error()
	if len(text) <= limitMessageBytes {
		return text
	}
	return strings.ToValidUTF8(text[:limitMessageBytes], "") + " ..."
}

// Body reads the body of a POST that is not larger than the limit. It is never decompressed: a compressed one is
// refused. What it takes is reserved in the budget as it arrives, so that a client holds no more than it has sent; nil
// for no budget. Errors: *RequestError.
func Body(w http.ResponseWriter, r *http.Request, limitBytes int64, budget *Reservation) ([]byte, error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, &RequestError{http.StatusMethodNotAllowed, errors.New("want POST")}
	}
	for _, coding := range r.Header.Values("Content-Encoding") {
		if coding != "" && coding != "identity" {
			return nil, &RequestError{http.StatusUnsupportedMediaType,
				fmt.Errorf("content encoding %q: want none", coding)}
		}
	}
	tooLarge := &RequestError{http.StatusRequestEntityTooLarge,
		fmt.Errorf("the request has more than %d bytes", limitBytes)}
	if r.ContentLength > limitBytes {
		return nil, tooLarge
	}
	var body bytes.Buffer
	in := http.MaxBytesReader(w, r.Body, limitBytes)
	for {
		const least = 4 << 10 // a client that sends nothing more holds no more
		free := int64(body.Available())
		if free < bytes.MinRead {
			free = min(max(least, int64(body.Cap())), limitBytes+bytes.MinRead) // twice as much as there is
			if err := budget.Grow(r.Context(), free); err != nil {
				return nil, err
			}
			body.Grow(int(free))
		}
		n, err := in.Read(body.AvailableBuffer()[:free:free])
		body.Write(body.AvailableBuffer()[:n])
		var over *http.MaxBytesError
		switch {
		case err == io.EOF:
			return body.Bytes(), nil
		case errors.As(err, &over):
			return nil, tooLarge
		case err != nil:
			return nil, &RequestError{http.StatusBadRequest, fmt.Errorf("reading the request: %w", err)}
		}
	}
}

// Budget bounds the memory that requests hold together.
type Budget struct {
	limitBytes int64
	whole      *Budget // of which this is a share, by whose mutex it is guarded; nil for none
	parts      int64

	mutex   sync.Mutex
	held    int64
	waiting []*wish // in the order in which they came, those of shares among them
}

// wish is what waits for room in a budget.
type wish struct {
	of      *Budget
	bytes   int64
	granted chan struct{} // closed when it has it
}

// NewBudget returns a budget of so many bytes.
func NewBudget(limitBytes int64) *Budget { return &Budget{limitBytes: limitBytes} }

// Share is a budget within b for one of those who use it: of n parts of what others leave, it holds one at most. A few
// shares do not hold all, as they would if each had one of n parts of the whole.
func (b *Budget) Share(parts int64) *Budget {
	return &Budget{limitBytes: b.limitBytes / parts, whole: b, parts: parts}
}

// all is the budget whose mutex guards b, and where wishes wait.
func (b *Budget) all() *Budget { return cmp.Or(b.whole, b) }

// room is how much more b may hold.
func (b *Budget) room() int64 {
	if b.whole == nil {
		return b.limitBytes - b.held
	}
	free := b.whole.limitBytes - b.whole.held
	return min(b.limitBytes-b.held, (free-(b.parts-1)*b.held)/b.parts)
}

func (b *Budget) hold(bytes int64) {
	b.held += bytes
	if b.whole != nil {
		b.whole.held += bytes
	}
}

// take waits for room, but not for long. Errors: there is none.
func (b *Budget) take(ctx context.Context, bytes int64) error {
	all := b.all()
	all.mutex.Lock()
	if b.room() >= bytes {
		b.hold(bytes)
		all.mutex.Unlock()
		return nil
	}
	w := &wish{b, bytes, make(chan struct{})}
	all.waiting = append(all.waiting, w)
	all.mutex.Unlock()
	ctx, cancel := context.WithTimeout(ctx, waitingTime)
	defer cancel()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	all.mutex.Lock()
	at := slices.Index(all.waiting, w)
	if at >= 0 {
		all.waiting = slices.Delete(all.waiting, at, at+1)
	}
	all.mutex.Unlock()
	if at < 0 { // it got it at the last moment
		b.give(bytes)
	}
	return ctx.Err()
}

// give gives back, and has those go on for whom there is room: waiting for much delays no other.
func (b *Budget) give(bytes int64) {
	all := b.all()
	all.mutex.Lock()
	defer all.mutex.Unlock()
	b.hold(-bytes)
	all.waiting = slices.DeleteFunc(all.waiting, func(w *wish) bool {
		if w.of.room() < w.bytes {
			return false
		}
		w.of.hold(w.bytes)
		close(w.granted)
		return true
	})
}

// Reservation is what one request has reserved of a budget. It grows in one goroutine, and may be released in another.
type Reservation struct {
	budgets []*Budget // all of them have room for it

	mutex    sync.Mutex
	held     int64
	released bool
}

// Reserve begins a reservation, of nothing. A nil budget has no bound.
func (b *Budget) Reserve() *Reservation {
	if b == nil {
		return &Reservation{}
	}
	return &Reservation{budgets: []*Budget{b}}
}

// Another begins another reservation of the same budget, and of others.
func (r *Reservation) Another(others ...*Budget) *Reservation {
	if r == nil {
		return nil
	}
	return &Reservation{budgets: slices.Concat(others, r.budgets)}
}

// Grow reserves more bytes. It waits for other requests to end, but not for long: they may be waiting, too.
// Errors: *RequestError: 413 for more than the whole budget, 503 when others hold it.
func (r *Reservation) Grow(ctx context.Context, more int64) error {
	if r == nil || len(r.budgets) == 0 {
		return nil
	}
	r.mutex.Lock()
	held := r.held
	r.mutex.Unlock()
	for _, b := range r.budgets {
		if held+more > b.limitBytes {
			return &RequestError{http.StatusRequestEntityTooLarge,
				fmt.Errorf("the request takes more than %d bytes of memory", b.limitBytes)}
		}
	}
	for i, b := range r.budgets {
		if err := b.take(ctx, more); err != nil {
			give(r.budgets[:i], more)
			return &RequestError{http.StatusServiceUnavailable,
				fmt.Errorf("other requests hold the %d bytes of memory", b.limitBytes)}
		}
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.released {
		give(r.budgets, more)
		return &RequestError{http.StatusServiceUnavailable, errors.New("the request has ended")}
	}
	r.held += more
	return nil
}

func give(budgets []*Budget, bytes int64) {
	for _, b := range budgets {
		b.give(bytes)
	}
}

// Release ends the reservation.
func (r *Reservation) Release() {
	if r == nil {
		return
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	give(r.budgets, r.held)
	r.held, r.released = 0, true
}
