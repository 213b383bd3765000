package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/kubefusion/fusionctl/internal/jsontext"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/hub"
)

// Handler answers ConversionReviews of apiextensions.k8s.io, v1 and v1beta1, in the version of the question.
//
// Either all objects of a review are converted, or the review fails with a message that names the object and the rule.
// What is no review is answered 400, what is too large 413, what is too much at once 503. Safe for concurrent use.
type Handler struct {
	Converters   func() Converters // those of the moment
	LimitBytes   int64             // of a review
	LimitObjects int               // of a review; 0 for no bound
	Timeout      time.Duration     // of a review; API servers wait 30 seconds
	Slots        webserver.Slots   // as many reviews are answered at once; nil for no bound
	Memory       *webserver.Budget // of all reviews that are held in memory; nil for no bound
	Metrics      *Metrics
	Logger       *slog.Logger // nil for none
}

// Converters are the converters by what they convert.
type Converters map[schema.GroupKind]*hub.Converter

const (
	reviewKind    = "ConversionReview"
	reviewV1      = "apiextensions.k8s.io/v1"
	reviewV1beta1 = "apiextensions.k8s.io/v1beta1"
)

// review is a ConversionReview; both versions have the same fields.
type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID               string           `json:"uid"`
	DesiredAPIVersion string           `json:"desiredAPIVersion"`
	Objects           []map[string]any `json:"objects"`
}

type response struct {
	UID              string           `json:"uid"`
	ConvertedObjects []map[string]any `json:"convertedObjects"`
	Result           result           `json:"result"`
}

type result struct {
	Status  string `json:"status"`
	Message string `json:"message,omitempty"`
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
	defer cancel()
	memory := h.Memory.Reserve()
	defer memory.Release()
	body, err := webserver.Body(w, r, h.LimitBytes, memory)
	if err != nil {
		h.refuse(w, err)
		return
	}
	// A body that comes slowly holds the memory that it took so far, and no slot.
	free, err := h.Slots.Take(ctx)
	if err != nil {
		h.refuse(w, err)
		return
	}
	defer free()
	const copies = 2 // as it came, and converted
	if err := memory.Grow(ctx, copies*jsontext.DecodedBytes(body)+2*int64(len(body))); err != nil {
		h.refuse(w, err)
		return
	}
	asked, err := parseReview(body)
	if err == nil && h.LimitObjects > 0 && len(asked.Request.Objects) > h.LimitObjects {
		err = &webserver.RequestError{Code: http.StatusRequestEntityTooLarge,
			Err: fmt.Errorf("%d objects, want at most %d", len(asked.Request.Objects), h.LimitObjects)}
	}
	if err != nil {
		h.refuse(w, err)
		return
	}
	answer := h.answer(ctx, asked)
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // it would be six times as long as what was asked
	if err := encoder.Encode(answer); err != nil {
		h.refuse(w, &webserver.RequestError{Code: http.StatusInternalServerError,
			Err: fmt.Errorf("writing the answer: %w", err)})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(text.Bytes()); err != nil {
		h.logger().Debug("writing the review failed", "err", err)
	}
	h.Metrics.answered(answer.Response, time.Since(start))
}

func (h *Handler) refuse(w http.ResponseWriter, err error) {
	h.Metrics.Bad.Inc()
	h.logger().Info("review refused", "err", err)
	webserver.Refuse(w, err)
}

func (h *Handler) logger() *slog.Logger {
	if h.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return h.Logger
}

func parseReview(body []byte) (*review, error) {
	if !utf8.Valid(body) { // what is not would be three times as long when it is read
		return nil, errors.New("reading the review: it is not UTF-8")
	}
	var r review
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &r); err != nil {
		return nil, fmt.Errorf("reading the review: %w", err)
	}
	switch {
	case r.Kind != reviewKind:
		return nil, fmt.Errorf("kind %q: want %s", r.Kind, reviewKind)
	case r.APIVersion != reviewV1 && r.APIVersion != reviewV1beta1:
		return nil, fmt.Errorf("apiVersion %q: want %s or %s", r.APIVersion, reviewV1, reviewV1beta1)
	case r.Request == nil:
		return nil, errors.New("the review has no request")
	}
	return &r, nil
}

func (h *Handler) answer(ctx context.Context, asked *review) *review {
	answer := &response{UID: asked.Request.UID, ConvertedObjects: []map[string]any{}, Result: result{Status: "Success"}}
	converted, err := h.convert(ctx, asked.Request)
	if err != nil {
		answer.Result = result{Status: "Failure", Message: webserver.Brief(err)}
		h.logger().Warn("conversion failed", "err", err)
	} else {
		answer.ConvertedObjects = converted
	}
	return &review{APIVersion: asked.APIVersion, Kind: asked.Kind, Response: answer}
}

func (h *Handler) convert(ctx context.Context, asked *request) ([]map[string]any, error) {
	gv, err := schema.ParseGroupVersion(asked.DesiredAPIVersion)
	if err != nil {
		return nil, fmt.Errorf("desiredAPIVersion %q: %w", asked.DesiredAPIVersion, err)
	}
	converters := h.Converters()
	converted := make([]map[string]any, len(asked.Objects))
	refused, first := 0, ""
	defer func() {
		if refused > 0 { // one line for a review: each object of a list may have thousands
			h.Metrics.refused.Add(float64(refused))
			h.logger().Warn("kept values refused", "count", refused, "first", first)
		}
	}()
	for i, object := range asked.Objects {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%d of %d objects were converted in %v", i, len(asked.Objects), h.Timeout)
		}
		kind, _ := object["kind"].(string)
		converter, ok := converters[schema.GroupKind{Group: gv.Group, Kind: kind}]
		if !ok {
			return nil, fmt.Errorf("object %d: there are no rules for the kind %q of the group %q", i, kind, gv.Group)
		}
		converted[i], err = converter.ConvertNoting(object, gv.Version, func(r hub.Refusal) {
			if refused++; refused == 1 {
				first = visible.Line(webserver.Brief(fmt.Errorf("%s to %s", converter.Describe(object), r)))
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return converted, nil
}
