package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
)

// events is a watch whose events are converted while they are read: no goroutine, and one event in memory.
type events struct {
	source    io.ReadCloser
	bounded   *bounded
	decoder   *json.Decoder // nil: it keeps what its longest event took, and is made anew
	translate func(map[string]any) (map[string]any, error)
	rest      []byte // of the converted event that is being read
	err       error
}

// newEvents converts the events of a watch. holding is told of what is held of each; nil for none.
func newEvents(source io.ReadCloser, holding Holding,
	translate func(map[string]any) (map[string]any, error)) *events {
	return &events{source: source, bounded: &bounded{in: source, holding: holding}, translate: translate}
}

// limitEventBytes bounds what is read for one event: more than any API server stores of one object.
const limitEventBytes = 16 << 20

// bounded ends a stream of which one event has too many bytes.
type bounded struct {
	in      io.Reader
	before  []byte // that was read already
	read    int
	holding Holding // nil for none
}

func (b *bounded) Read(p []byte) (int, error) {
	if len(b.before) == 0 && b.read > limitEventBytes {
		return 0, fmt.Errorf("an event has more than %d bytes", limitEventBytes)
	}
	if len(b.before) > 0 {
		n := copy(p, b.before)
		b.before = b.before[n:]
		return n, nil
	}
	n, err := b.in.Read(p)
	if held := b.take(p[:n]); held != nil {
		return 0, held
	}
	return n, err
}

// take counts what is read of an event.
func (b *bounded) take(text []byte) error {
	b.read += len(text)
	if b.holding == nil {
		return nil
	}
	return b.holding.Take(text)
}

// end is called when an event is gone.
func (b *bounded) end() {
	b.read = 0
	if b.holding != nil {
		b.holding.End()
	}
}

// Close may come while something is read, so it lets nothing go: who holds does, when the watch is over.
func (e *events) Close() error { return e.source.Close() }

func (e *events) Read(p []byte) (int, error) {
	if len(e.rest) == 0 && e.err == nil {
		e.next()
	}
	n := copy(p, e.rest)
	if e.rest = e.rest[n:]; len(e.rest) == 0 {
		e.rest = nil
		e.forget()
	}
	if n == 0 {
		return 0, e.err
	}
	return n, nil
}

// limitKeptBytes is what is kept of an event while the next one is waited for.
const limitKeptBytes = 4 << 10

// forget lets go of an event that was read. What has come of the next one is kept, and counts as read.
func (e *events) forget() {
	long := e.bounded.read > limitKeptBytes
	e.bounded.end()
	if !long || e.decoder == nil || e.err != nil {
		return
	}
	text, _ := io.ReadAll(e.decoder.Buffered()) // it is in memory
	text = append(bytes.TrimLeft(text, "\n"), e.bounded.before...)
	e.decoder, e.bounded.before = nil, text
	e.err = e.bounded.take(text)
}

type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// next reads and converts an event. One that does not convert ends the watch with an event of type ERROR, as a server's
// own trouble does: who watches must not take the object for absent.
func (e *events) next() {
	var read event
	if e.decoder == nil {
		e.decoder = json.NewDecoder(e.bounded)
	}
	if err := e.decoder.Decode(&read); err != nil {
		e.err = err
		return
	}
	if holding := e.bounded.holding; holding != nil {
		done, err := holding.Work()
		if err != nil {
			e.err = err
			return
		}
		defer done()
	}
	converted, err := e.converted(read)
	if err != nil {
		status := apierrors.NewInternalError(fmt.Errorf("converting an event: %w", err)).Status()
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		status.Code = http.StatusInternalServerError
		object, marshalErr := json.Marshal(&status)
		if marshalErr != nil {
			e.err = errors.Join(err, marshalErr)
			return
		}
		read, e.err = event{Type: string(watch.Error), Object: object}, io.EOF
	} else {
		read.Object = converted
	}
	if e.rest, err = json.Marshal(read); err != nil {
		e.err = err
	}
	e.rest = append(e.rest, '\n')
}

func (e *events) converted(read event) (json.RawMessage, error) {
	var object map[string]any
	if err := utiljson.Unmarshal(read.Object, &object); err != nil {
		return nil, err
	}
	object, err := e.translate(object)
	if err != nil {
		return nil, err
	}
	return json.Marshal(object)
}
