package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kubefusion/fusionctl/internal/jsontext"
	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/client"
	"github.com/kubefusion/fusionctl/pkg/gateway/routes"
	"github.com/kubefusion/fusionctl/pkg/hub"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// AllowLossAnnotation on an object that is written, with the value "true", lets the write go on although the version in
// which the side has the object cannot say all of it. What is lost is then said in warnings.
const AllowLossAnnotation = "kubefusion.dev/allow-loss"

// conversion converts one request to a side that serves the resource in another version.
type conversion struct {
	http.RoundTripper
	turn
	said []string // of what is lost
	more int      // that is not said
}

// limitWarnings bounds the warnings of one answer: a list may have one for each object.
const limitWarnings = 5

// conversion is how the side is queried for the resource of the row; nil where it serves the version itself. What is
// read of it is held in the reservation, several times: as bytes, as values, and as bytes of another version.
func (g *Gateway) conversion(c *exchange, row *routes.Row, name pair.Side,
	memory *webserver.Reservation) *conversion {
	if _, ok := row.As[name]; !ok {
		return nil
	}
	s := g.at(name)
	v := &conversion{turn: turn{workers: c.own.workers}}
	next := held{s.forward, memory, v, c.info.Verb == "watch"}
	v.RoundTripper = client.Transport(next, c.view.live[name], s.base.Path, client.Options{
		Judge: func(object map[string]any, loss *client.LossError) error {
			metadata, _ := object["metadata"].(map[string]any)
			annotations, _ := metadata["annotations"].(map[string]any)
			if annotations[AllowLossAnnotation] != "true" {
				return loss
			}
			v.says(loss.Object, loss.Losses)
			return nil
		},
		OnRead: v.says, Kept: []string{hub.KeptAnnotation},
		Hold: func(ctx context.Context) client.Holding {
			held := &heldEvent{memory: memory, copies: 1, ctx: ctx, workers: c.own.workers}
			c.took.end(held.End)
			return held
		},
	})
	return v
}

func (v *conversion) says(object string, losses []convert.Loss) {
	for _, loss := range losses {
		text := fmt.Sprintf("%s: %s is lost by conversion: %s", object, loss.Path, loss.Meaning)
		switch {
		case slices.Contains(v.said, text): // a write is converted again after a conflict
		case len(v.said) == limitWarnings:
			v.more++
		default:
			v.said = append(v.said, text)
		}
	}
}

// warn says in the header of an answer what was lost.
func (v *conversion) warn(header http.Header) {
	if v.more > 0 {
		v.said = append(v.said, fmt.Sprintf("%d more fields are lost by conversion", v.more))
	}
	for _, text := range v.said {
		if warning, err := utilnet.NewWarningHeader(299, "fusionctl", text); err == nil {
			header.Add("Warning", warning)
		}
	}
	v.said, v.more = nil, 0
}

// held bounds what is read of answers that are converted as a whole. The work goes on when an answer is there.
type held struct {
	next   http.RoundTripper
	memory *webserver.Reservation
	over   *conversion
	watch  bool // which is bounded event by event
}

// RoundTrip implements http.RoundTripper.
func (h held) RoundTrip(r *http.Request) (*http.Response, error) {
	h.over.end()
	response, err := h.next.RoundTrip(r)
	if err == nil && !h.watch {
		response.Body = &heldBody{ReadCloser: response.Body, request: r, memory: h.memory, over: h.over}
	}
	return response, err
}

type heldBody struct {
	io.ReadCloser
	request        *http.Request
	memory         *webserver.Reservation
	over           *conversion
	values         jsontext.Values
	read, reserved int64
}

// textCopies is how many times the text of an answer is held while it is converted, beside its values.
const textCopies = 3

// Read implements io.Reader.
func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.read += int64(n); b.read > limitListBytes {
		return 0, &http.MaxBytesError{Limit: limitListBytes}
	}
	b.values.Count(p[:n])
	if more := textCopies*b.read + b.values.Bytes() - b.reserved; more > 0 {
		const piece = 256 << 10
		more = max(more, piece)
		if err := b.memory.Grow(b.request.Context(), more); err != nil {
			return 0, err
		}
		b.reserved += more
	}
	if err != nil && !errors.Is(err, io.EOF) && b.request.Method != http.MethodGet {
		err = begunError{err}
	}
	if errors.Is(err, io.EOF) {
		if late := b.over.begin(b.request.Context(), 0); late != nil {
			return n, late
		}
	}
	return n, err
}

// unsent is the Status for a request that no side answered.
func unsent(side pair.Side, method string, err error) error {
	var loss *client.LossError
	var unsupported *client.UnsupportedError
	var unfaithful *client.UnfaithfulError
	var content *convert.ContentError
	var none *convert.UnsupportedError
	var ours *apierrors.StatusError
	switch {
	case errors.As(err, &ours):
		return ours
	case errors.As(err, &loss):
		return refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "%s; annotation %s: \"true\" on "+
			"the object lets it be written all the same", webserver.Brief(err), AllowLossAnnotation)
	case errors.As(err, &unsupported), errors.As(err, &none):
		return notImplemented("%v", err)
	case errors.As(err, &unfaithful):
		return badRequest("%v", err)
	case errors.As(err, &content) && method != http.MethodGet:
		return invalid("%v", err)
	case errors.As(err, &content): // as API servers say of an object that a webhook does not convert
		return refusal(http.StatusInternalServerError, metav1.StatusReasonInternalError, "%v", err)
	}
	if errors.As(err, &begunError{}) {
		return unfinished(side, method, err)
	}
	return unreachable(side, err)
}

// serveConverted answers for a resource of one side, which has it in another version.
func (g *Gateway) serveConverted(w http.ResponseWriter, r *http.Request, c *exchange, row *routes.Row, name pair.Side,
	memory *webserver.Reservation) error {
	c.route(name, "converted")
	if oldWatch(r, c) {
		return notImplemented("paths with /watch/ are not served for what is converted; watch=true is")
	}
	if c.info.Verb == "watch" && asMessages(r) {
		return g.watchMessages(w, r, c, name, row, memory)
	}
	over := g.conversion(c, row, name, memory)
	if c.info.Verb == "watch" {
		return g.passOver(timed{w, g.eventTimeout}, r, c, name, passing{done: c.done, over: over})
	}
	transforms := g.at(name).behaves(kubever.BehaviourMetadataAnswered)
	form, err := accept(r, transforms, transforms)
	if err != nil {
		return err
	}
	body, kind, err := g.readBody(w, r, c, memory)
	if err == nil {
		err = g.judgeTwice(w, r, c, name)
	}
	if err != nil {
		return err
	}
	a, err := g.at(name).ask(r.Context(), r, c.id, question{method: r.Method, path: r.URL.EscapedPath(),
		query: r.URL.Query(), accept: form, contentType: kind, body: body, over: over}, limitListBytes, memory)
	if err != nil {
		return err
	}
	c.took.by(name)
	a.copyTo(w, a.body)
	return nil
}

// oldWatch reports whether the path is of the form that watches had before they were lists with watch=true.
func oldWatch(r *http.Request, c *exchange) bool {
	return strings.HasPrefix(r.URL.Path, "/api/"+c.info.APIVersion+"/watch/") ||
		strings.HasPrefix(r.URL.Path, "/apis/"+c.info.APIGroup+"/"+c.info.APIVersion+"/watch/")
}
