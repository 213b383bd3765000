package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubefusion/fusionctl/internal/jsontext"
	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/gateway/merge"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// eventTimeout is how long a client may take to receive an event. A slower one is cut off: what is not received is not
// held.
const eventTimeout = 30 * time.Second

// timed gives a client a time for each write, and none between them: over HTTP/2 a deadline that passes ends the answer
// whether something is written or not. It is set when it has passed: to set and to clear one for each event takes as
// long as to send it.
type timed struct {
	http.ResponseWriter
	limit time.Duration
}

// Write implements http.ResponseWriter. What it writes is sent.
func (t timed) Write(p []byte) (int, error) {
	control := http.NewResponseController(t.ResponseWriter)
	cut := make(chan struct{})
	late := time.AfterFunc(t.limit, func() {
		defer close(cut)
		_ = control.SetWriteDeadline(time.Unix(1, 0)) // what has no deadlines cannot be cut off
	})
	n, err := t.ResponseWriter.Write(p)
	if err == nil {
		err = control.Flush()
	}
	if !late.Stop() {
		<-cut // before the handler returns, with which the writer ends
		err = errors.Join(err, os.ErrDeadlineExceeded)
	}
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (t timed) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// watch merges the watches of both sides. It ends when either of them does: a client watches again from what it has
// seen, on both sides.
func (b *both) watch(w http.ResponseWriter) error {
	form, err := b.accepts()
	if err != nil {
		return err
	}
	query := maps.Clone(b.query)
	version, err := b.version(query)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(b.r.Context())
	b.took.end(cancel)
	if text := query.Get("timeoutSeconds"); text != "" {
		seconds, err := strconv.Atoi(text)
		if err != nil || seconds < 0 {
			return badRequest("timeoutSeconds %q: want a number", text)
		}
	}
	if err := b.endless(w); err != nil {
		return err
	}
	streams := map[pair.Side]io.ReadCloser{}
	for _, name := range pair.Sides() {
		q := maps.Clone(query)
		q.Del("resourceVersion")
		if at := version.Of(name); at != "" {
			q.Set("resourceVersion", at)
		}
		response, err := b.sides[name].send(ctx, b.r, b.id, question{method: http.MethodGet,
			path: b.r.URL.EscapedPath(), query: q, accept: b.formOf(name, form),
			over: b.conversion(b.exchange, b.row, name, b.memory)})
		if err != nil {
			return err
		}
		b.took.end(func() { response.Body.Close() })
		if response.StatusCode != http.StatusOK {
			body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
			if err != nil {
				return unreachable(name, err)
			}
			return b.partly(&answer{name, response.StatusCode, response.Header, body})
		}
		streams[name] = response.Body
	}
	b.took.by(pair.Sides()...)
	m := &merging{merger: merger{version: version, makes: map[pair.Side]func([]byte) ([]byte, error){}}, end: cancel,
		gateway: b.Gateway}
	held := map[pair.Side]*heldEvent{}
	for _, name := range pair.Sides() {
		m.merger.makes[name] = b.makes(name, form)
		held[name] = &heldEvent{memory: b.memory, ctx: ctx, workers: b.own.workers}
		if b.makesTable(name, form) {
			held[name].copies, held[name].made = tableCopies, true
		}
	}
	if r := b.r; asMessages(r) {
		limit := b.eventTimeout
		b.took.rest = func() {
			sendMessages(w, r, limit, cancel, func(out io.Writer) {
				m.out = out
				m.merge(streams, held)
			})
		}
		return nil
	}
	w.Header().Set("Content-Type", form+";stream=watch")
	if !strings.Contains(form, ";") {
		w.Header().Set("Content-Type", form)
	}
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(http.StatusOK)
	if err := http.NewResponseController(w).Flush(); err != nil {
		return nil //nolint:nilerr // the client is gone
	}
	m.out = timed{w, b.eventTimeout}
	b.took.rest = func() { m.merge(streams, held) }
	return nil
}

// merging writes the events of two watches as those of one.
type merging struct {
	gateway *Gateway
	end     context.CancelFunc // both watches end with it

	mu     sync.Mutex
	merger merger
	out    io.Writer
	ended  bool
}

// merge returns when both watches have ended: either ends with the other.
func (m *merging) merge(streams map[pair.Side]io.ReadCloser, held map[pair.Side]*heldEvent) {
	var other sync.WaitGroup
	other.Go(func() { m.read(pair.Legacy, streams[pair.Legacy], held[pair.Legacy]) })
	m.read(pair.Modern, streams[pair.Modern], held[pair.Modern])
	other.Wait()
}

// stop ends both watches.
func (m *merging) stop() {
	m.mu.Lock()
	m.ended = true
	m.mu.Unlock()
	m.end()
}

// write writes an event, and reports whether the watch goes on.
func (m *merging) write(e event, held *heldEvent) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended { // an error behind the last event is that of the other side's end
		return false
	}
	text, last, err := m.show(e, held)
	if err == nil {
		_, err = m.out.Write(text) // the client is gone, or reads too slowly
	}
	m.ended = err != nil || last
	return !m.ended
}

// show is an event as clients see it, and whether it is the last one. It is made in a turn where that takes long.
// Errors: the client has gone.
func (m *merging) show(e event, held *heldEvent) (text []byte, last bool, err error) {
	if held.read > limitKeptBytes || held.made {
		done, err := held.Work()
		if err != nil {
			return nil, false, err
		}
		defer done()
	}
	shown, last := m.merger.show(e)
	text, err = json.Marshal(shown)
	return append(text, '\n'), last, err
}

// event is an event of a side, or what was wrong with its stream.
type event struct {
	side pair.Side
	wireEvent
	err error
}

type wireEvent struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// read writes the events of a side. The end of its stream ends the whole watch.
func (m *merging) read(name pair.Side, stream io.Reader, held *heldEvent) {
	defer m.stop()
	defer m.gateway.spare(name, func(err error) { m.write(event{side: name, err: err}, &heldEvent{}) })
	eachEvent(stream, held, func(read wireEvent, err error) bool {
		return m.write(event{name, read, err}, held)
	})
}

// eachEvent takes the events of a stream one by one, while take reports that there are to be more, and what was wrong
// with the last one.
func eachEvent[T any](stream io.Reader, held *heldEvent, take func(T, error) bool) {
	defer held.End()
	limited := &frames{in: stream, held: held}
	decoder := json.NewDecoder(limited)
	for {
		var e T
		limited.read = 0
		err := decoder.Decode(&e)
		if err != nil && !isGarbage(err) { // the stream has ended, or the connection is gone
			return
		}
		if !take(e, err) || err != nil {
			return
		}
		held.End()
		if limited.read > limitKeptBytes && !more(decoder) {
			decoder = json.NewDecoder(limited)
		}
	}
}

// heldEvent is what is held of an event while it is read, made another one, and taken by the client, who may take half
// a minute for it: a long one counts within the memory of the gateway. Two thousand watches hold one as often.
type heldEvent struct {
	memory  *webserver.Reservation // of whose budget it is
	copies  int64                  // of its values; none where it is text alone
	made    bool                   // it becomes a Table
	ctx     context.Context        // of the watch
	workers *workers               // in whose turns it is made another one

	own            *webserver.Reservation // nil for a short event
	values         jsontext.Values
	read, reserved int64
}

const (
	// eventCopies is about how many times the text of an event is held: as it is read, as an object, as that of another
	// version or side, as it is written.
	eventCopies = 8
	// limitShortEvent is what is held of an event that does not count.
	limitShortEvent = eventCopies * limitKeptBytes
)

// Take counts a piece of an event that was read. Errors: *webserver.RequestError.
func (h *heldEvent) Take(text []byte) error {
	h.read += int64(len(text))
	if h.copies > 0 {
		h.values.Count(text)
	}
	needs := eventCopies*h.read + h.copies*h.values.Bytes()
	if needs <= max(limitShortEvent, h.reserved) {
		return nil
	}
	if h.own == nil {
		h.own = h.memory.Another()
	}
	more := max(needs-h.reserved, h.reserved/2) // not for each piece
	if err := h.own.Grow(context.Background(), more); err != nil {
		return err
	}
	h.reserved += more
	return nil
}

// Work waits for a turn to make another event of it: a user has thousands of watches, each of which makes its own of
// one object that changes. Errors: the client has gone.
func (h *heldEvent) Work() (done func(), err error) { return h.workers.take(h.ctx, 0) }

// End lets go of the event.
func (h *heldEvent) End() {
	h.own.Release()
	h.own, h.values, h.read, h.reserved = nil, jsontext.Values{}, 0, 0
}

// limitKeptBytes is what a decoder of events keeps while it waits: it keeps what its largest event took.
const limitKeptBytes = 4 << 10

// more reports whether the decoder has read of what follows an event, beyond its line.
func more(decoder *json.Decoder) bool {
	var next [2]byte
	n, _ := decoder.Buffered().Read(next[:])
	return n > 1 || n == 1 && next[0] != '\n'
}

func isGarbage(err error) bool {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	return errors.As(err, &syntax) || errors.As(err, &kind) || errors.Is(err, errLongEvent)
}

var errLongEvent = fmt.Errorf("an event has more than %d bytes", limitBytes)

// frames bounds what is read for one event.
type frames struct {
	in   io.Reader
	read int
	held *heldEvent
}

func (f *frames) Read(p []byte) (int, error) {
	if f.read > limitBytes {
		return 0, errLongEvent
	}
	n, err := f.in.Read(p)
	f.read += n
	if held := f.held.Take(p[:n]); held != nil {
		return 0, held
	}
	return n, err
}

// merger makes events of one watch of those of two.
type merger struct {
	version merge.Version // what was shown so far, of both sides
	columns merge.Columns
	makes   map[pair.Side]func([]byte) ([]byte, error) // what clients get of the whole objects of a side
}

// show is an event as clients see it; last: the watch ends with it.
func (m *merger) show(e event) (shown wireEvent, last bool) {
	if e.err == nil && e.Type == string(watch.Error) {
		return e.wireEvent, true
	}
	object, err := e.Object, e.err
	own := ""
	if makes := m.makes[e.side]; err == nil && makes != nil {
		e.Object, err = makes(e.Object)
	}
	switch {
	case err != nil:
	case e.Type == string(watch.Bookmark):
		if object, own, err = merge.ReadBookmark(e.Object, e.side, m.version); err == nil {
			object, err = m.columns.Event(object, e.side)
		}
	case e.Type == string(watch.Added) || e.Type == string(watch.Modified) || e.Type == string(watch.Deleted):
		if object, own, err = merge.Read(e.Object, e.side, m.version); err == nil && own == "" {
			err = errors.New("an object without a resource version")
		}
		if err == nil {
			object, err = m.columns.Event(object, e.side)
		}
	default:
		err = fmt.Errorf("an event of type %q", e.Type)
	}
	if err != nil {
		status, encodeErr := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Reason:  metav1.StatusReasonInternalError,
			Message: fmt.Sprintf("fusionctl gateway: the watch of the %s side: %v", e.side, err)})
		if encodeErr != nil {
			panic("gateway: internal error: " + encodeErr.Error())
		}
		return wireEvent{string(watch.Error), status}, true
	}
	m.version = m.version.With(e.side, own)
	return wireEvent{e.Type, object}, false
}
