package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/internal/jsontext"
	"github.com/kubefusion/fusionctl/pkg/discovery"
)

// What a request accepts that wants metadata alone. A server that does not know the form sends whole objects, or
// answers 406 (1.6) and gets requests in plain JSON. The form's version v1beta1, of 1.8 to 1.14, is no use: its lists
// have no resource version to watch from, and do not name objects well enough to go on from (seen with 1.10).
const (
	acceptMetadata     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	acceptMetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// acceptFlags are the forms of /flagz for programs; the page for people has another delimiter each time.
const acceptFlags = "application/json;as=Flagz;g=config.k8s.io;v=v1beta1," +
	"application/json;as=Flagz;g=config.k8s.io;v=v1alpha1"

// acceptPage is for pages: those for people are read too, where there is no other form.
const acceptPage = "application/json,text/plain;q=0.5,*/*;q=0.1"

const (
	limitAnswerBytes = 64 << 20 // of what is not a list; metrics are larger than any object
	limitErrorBytes  = 1 << 20
)

// request is one exchange with a server.
type request struct {
	verb        string
	path        discovery.Path
	query       url.Values
	accept      []string // forms of the answer; the next is tried when the server refuses one
	contentType string
	body        []byte
}

// response is an answer of which the body is still to be read.
type response struct {
	io.ReadCloser
	date time.Time
}

// send sends a request once, in the first of its forms that the server does not refuse. The answer begins in time.
// Errors: of the classes of package discovery; a context that has ended is that of ctx.
func (s *Server) send(ctx context.Context, r request, endless bool) (*response, error) {
	if err := r.path.Err(); err != nil {
		return nil, err
	}
	gv := r.path.GroupVersion()
	for i, accept := range r.accept {
		last := i == len(r.accept)-1
		if _, refused := s.whole.Load(gv); refused && !last {
			continue
		}
		response, err := s.sendForm(ctx, r, accept, endless)
		if apierrors.IsNotAcceptable(err) && !last {
			if !r.path.IsPage() {
				s.whole.Store(gv, true)
			}
			continue
		}
		return response, err
	}
	return nil, errors.New("apiserver: internal error: a request without a form")
}

func (s *Server) sendForm(ctx context.Context, r request, accept string, endless bool) (*response, error) {
	if s.limit != nil {
		if err := s.limit.Wait(ctx); err != nil {
			return nil, err
		}
	}
	begun, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(s.timeout, func() { cancel(s.tooLate()) })
	httpResponse, err := s.exchange(begun, r, accept)
	late.Stop()
	if err != nil {
		if cause := context.Cause(begun); cause != nil && ctx.Err() == nil {
			err = cause
		}
		cancel(nil)
		return nil, unanswered(ctx, err)
	}
	body := &pacedBody{ReadCloser: httpResponse.Body, outer: ctx, ctx: begun, cancel: cancel, patience: s.timeout,
		endless: endless}
	answer := &response{ReadCloser: body}
	if at, err := http.ParseTime(httpResponse.Header.Get("Date")); err == nil {
		answer.date = at
	}
	if httpResponse.StatusCode >= 200 && httpResponse.StatusCode < 300 {
		return answer, nil
	}
	defer body.Close()
	body.endless = false
	text, err := io.ReadAll(io.LimitReader(body, limitErrorBytes))
	if err != nil {
		text = nil // the code says enough
	}
	return nil, refused(r, httpResponse, text)
}

func (s *Server) exchange(ctx context.Context, r request, accept string) (*http.Response, error) {
	at := *s.base
	escaped := at.EscapedPath() + r.path.String()
	path, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, err
	}
	at.Path, at.RawPath = path, escaped
	at.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.verb, at.String(), bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	if r.body == nil {
		req.Body, req.GetBody, req.ContentLength = nil, nil, 0
	} else {
		req.Header.Set("Content-Type", r.contentType)
	}
	return s.http.Do(req)
}

func (s *Server) tooLate() error {
	return fmt.Errorf("%s: no answer within %s: %w", s.name, s.timeout, errTooLate)
}

// errTooLate is a timeout of our own.
var errTooLate error = timeoutError{}

type timeoutError struct{}

func (timeoutError) Error() string   { return "timed out" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

// classed is an error of one of the classes of package discovery, in the words of its cause.
type classed struct{ class, cause error }

func (e classed) Error() string   { return e.cause.Error() }
func (e classed) Unwrap() []error { return []error{e.class, e.cause} }

// unanswered classes a failure of the exchange itself. The end of the caller's context is no fault of the server's.
func unanswered(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, discovery.ErrNotKubernetes):
		return err
	}
	return classed{discovery.ErrUnreachable, err}
}

// wrong is an answer that no API server gives.
func wrong(format string, args ...any) error {
	return classed{discovery.ErrNotKubernetes, fmt.Errorf(format, args...)}
}

// refused is what an answer says that is not a success: the server's own Status, or as much as its code does.
func refused(r request, response *http.Response, text []byte) error {
	code := response.StatusCode
	retryAfter, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	var status metav1.Status
	if err := utiljson.Unmarshal(text, &status); err != nil || status.Kind != "Status" ||
		status.Status != metav1.StatusFailure {
		resource := schema.GroupResource{Group: r.path.GroupVersion().Group, Resource: r.path.String()}
		err := apierrors.NewGenericServerResponse(code, strings.ToLower(r.verb), resource, r.path.Name(), excerpt(text),
			retryAfter, true)
		return class(r, err)
	}
	status.Code = int32(code)
	if status.Message == "" {
		status.Message = fmt.Sprintf("answered %d (%s)", code, status.Reason)
	}
	if retryAfter > 0 {
		if status.Details == nil {
			status.Details = &metav1.StatusDetails{}
		}
		status.Details.RetryAfterSeconds = int32(min(retryAfter, 1<<20))
	}
	return class(r, &apierrors.StatusError{ErrStatus: status})
}

// class finds the class of what a server says.
func class(r request, err *apierrors.StatusError) error {
	own := !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	details := err.ErrStatus.Details
	switch code := err.ErrStatus.Code; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return classed{discovery.ErrForbidden, err}
	case code == http.StatusNotFound && own && r.path.Name() != "" && apierrors.IsNotFound(err) &&
		details != nil && details.Name == r.path.Name():
		return classed{discovery.ErrNotFound, err}
	case code == http.StatusNotFound:
		return classed{discovery.ErrNotServed, err}
	}
	return err
}

// excerpt is how much of a text that is no Status is repeated in an error.
func excerpt(text []byte) string {
	const most = 200
	if len(text) > most {
		return string(text[:most]) + "..."
	}
	return string(text)
}

// statusCode is the code with which a server answered; 0 when none did.
func statusCode(err error) int {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return int(status.Status().Code)
	}
	return 0
}

// pacedBody is a body that ends when it comes too slowly. Only the time counts in which it is waited for.
type pacedBody struct {
	io.ReadCloser
	outer    context.Context // of the caller
	ctx      context.Context
	cancel   context.CancelCauseFunc
	patience time.Duration
	endless  bool // it may be silent for as long as it likes: a watch

	waited time.Duration
	bytes  int64
}

// leastBytesPerSecond is what a body must keep up to last longer than the patience.
const leastBytesPerSecond = 16 << 10

func (b *pacedBody) Read(p []byte) (int, error) {
	if b.endless {
		n, err := b.ReadCloser.Read(p)
		return n, b.broken(err)
	}
	left := b.patience + time.Duration(b.bytes/leastBytesPerSecond)*time.Second - b.waited
	slow := fmt.Errorf("the answer comes too slowly: %d bytes within %s: %w", b.bytes, b.patience, errTooLate)
	late := time.AfterFunc(left, func() { b.cancel(slow) })
	begin := time.Now()
	n, err := b.ReadCloser.Read(p)
	late.Stop()
	b.waited += time.Since(begin)
	b.bytes += int64(n)
	return n, b.broken(err)
}

// broken classes the error of a body that breaks off.
func (b *pacedBody) broken(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	if cause := context.Cause(b.ctx); cause != nil {
		err = cause
	}
	return unanswered(b.outer, err)
}

func (b *pacedBody) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

// largeError says that an answer is larger than any of a server in good order.
type largeError string

func (e largeError) Error() string { return string(e) }

// readAll reads a body to its end.
// Errors: one that is larger than the limit.
func readAll(body io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(body, limitAnswerBytes+1))
	if err == nil && len(text) > limitAnswerBytes {
		err = wrong("%w", largeError(fmt.Sprintf("the answer is larger than %d MiB", limitAnswerBytes>>20)))
	}
	return text, err
}

// limitDecodedBytes is what a page of discovery, or an object of a list or a watch, takes at most when it is decoded:
// ten thousand resources take a tenth of it. An empty object takes three bytes of text, and 150 times as many then.
const limitDecodedBytes = 128 << 20

// affordable refuses JSON that would take too much memory.
func affordable(text []byte) error {
	if jsontext.Fits(text, limitDecodedBytes) {
		return nil
	}
	return wrong("%w", largeError(fmt.Sprintf("the answer %q has so many values that it takes more than %d MiB decoded",
		excerpt(text), limitDecodedBytes>>20)))
}

// decode reads JSON with regard to the case of names, as servers do.
func decode(text []byte, into any) error {
	if err := affordable(text); err != nil {
		return err
	}
	if err := utiljson.Unmarshal(text, into); err != nil {
		return wrong("reading the answer %q: %w", excerpt(text), err)
	}
	return nil
}

// jsonForm is the plain form that every version knows.
var jsonForm = []string{runtime.ContentTypeJSON}
