package client

import (
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
	decoder   *json.Decoder
	translate func(map[string]any) (map[string]any, error)
	rest      []byte // of the converted event that is being read
	err       error
}

func newEvents(source io.ReadCloser, translate func(map[string]any) (map[string]any, error)) *events {
	b := &bounded{in: source}
	return &events{source: source, bounded: b, decoder: json.NewDecoder(b), translate: translate}
}

// limitEventBytes bounds what is read for one event: more than any API server stores of one object.
const limitEventBytes = 16 << 20

// bounded ends a stream of which one event has too many bytes.
type bounded struct {
	in   io.Reader
	read int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.read > limitEventBytes {
		return 0, fmt.Errorf("an event has more than %d bytes", limitEventBytes)
	}
	n, err := b.in.Read(p)
	b.read += n
	return n, err
}

func (e *events) Close() error { return e.source.Close() }

func (e *events) Read(p []byte) (int, error) {
	if len(e.rest) == 0 && e.err == nil {
		e.next()
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	if n == 0 {
		return 0, e.err
	}
	return n, nil
}

type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// next reads and converts an event. One that does not convert ends the watch with an event of type ERROR, as a server's
// own trouble does: who watches must not take the object for absent.
func (e *events) next() {
	var read event
	e.bounded.read = 0
	if err := e.decoder.Decode(&read); err != nil {
		e.err = err
		return
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
