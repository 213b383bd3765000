package apiserver

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubefusion/fusionctl/pkg/discovery"
)

// WatchOptions say from where a collection is watched, and for how long.
type WatchOptions struct {
	Metadata                     bool // metadata is enough; the server may send whole objects all the same
	LabelSelector, FieldSelector string
	ResourceVersion              string
	Bookmarks                    bool
	Within                       time.Duration // 0 for as long as the server likes
}

// Event is one of a watch.
type Event struct {
	Type   string          `json:"type"` // ADDED, MODIFIED, DELETED, BOOKMARK, ERROR
	Object json.RawMessage `json:"object"`
}

// Events are those of a watch, in their order.
type Events struct {
	body    io.ReadCloser
	bounded *bounded
	decoder *json.Decoder
}

// Watch follows the objects of a collection. It is not retried: the caller lists again first. Errors: those of the
// server, for the functions of k8s.io/apimachinery/pkg/api/errors.
func (s *Server) Watch(ctx context.Context, at discovery.Path, o WatchOptions) (*Events, error) {
	query := url.Values{"watch": {"true"}}
	for name, value := range map[string]string{
		"labelSelector": o.LabelSelector, "fieldSelector": o.FieldSelector, "resourceVersion": o.ResourceVersion,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if o.Bookmarks {
		query.Set("allowWatchBookmarks", "true")
	}
	if o.Within > 0 {
		query.Set("timeoutSeconds", strconv.Itoa(max(1, int(o.Within/time.Second))))
	}
	accept := jsonForm
	if o.Metadata {
		accept = []string{acceptMetadata, runtime.ContentTypeJSON}
	}
	answer, err := s.send(ctx, request{verb: http.MethodGet, path: at, query: query, accept: accept}, true)
	if err != nil {
		return nil, err
	}
	b := &bounded{reader: answer}
	return &Events{body: answer, bounded: b, decoder: json.NewDecoder(b)}, nil
}

// Next waits for the next event.
// Errors: io.EOF when the server has ended the watch.
func (e *Events) Next() (Event, error) {
	var event Event
	err := e.decoder.Decode(&event)
	e.bounded.bytes = 0
	if err == nil {
		err = affordable(event.Object)
	}
	return event, err
}

// Close ends the watch, and a Next that waits.
func (e *Events) Close() error { return e.body.Close() }
