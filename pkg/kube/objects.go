package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"path"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubefusion/fusionctl/pkg/live"
)

var _ live.Server = (*Client)(nil)

// limitAnswerBytes bounds the answer to a question about one object; metrics are larger than any.
const limitAnswerBytes = 64 << 20

// answerWithin bounds the wait for one object, or for a page to begin.
const answerWithin = time.Minute

// accepts is what a read accepts: pages for people are read too, where there is no other form.
func accepts(url string) string {
	if path.Base(url) == "flagz" {
		return "application/json;as=Flagz;g=config.k8s.io;v=v1beta1,application/json;as=Flagz;g=config.k8s.io;v=v1alpha1"
	}
	return "application/json,text/plain;q=0.5,*/*;q=0.1"
}

// Read returns what is at a path: one object, or a page such as /version.
// Errors: live.ErrAbsent when, and only when, the server itself says that there is no such object: a path that is not served, or a proxy
// on the way, answers 404 too. Failures that pass were retried.
func (c *Client) Read(ctx context.Context, url string) (live.Answer, error) {
	var answer live.Answer
	err := c.retry(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		var date atomic.Value
		body, err := c.rest.Get().AbsPath(url).SetHeader("Accept", accepts(url)).Stream(withDate(ctx, &date))
		if err != nil {
			return err
		}
		defer body.Close()
		answer.Date, _ = date.Load().(time.Time)
		answer.Body, err = io.ReadAll(io.LimitReader(body, limitAnswerBytes))
		return err
	})
	if status := apierrors.APIStatus(nil); apierrors.IsNotFound(err) && errors.As(err, &status) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		if details := status.Status().Details; details != nil && details.Name == path.Base(url) {
			err = live.ErrAbsent
		}
	}
	return answer, err
}

// What lists accept: metadata alone, in the words that a server understands. One that does not know the form sends whole objects, or
// answers 406 (1.6) and is asked in plain words. The form's version v1beta1, of 1.8 to 1.14, is no use: its lists do not name objects
// well enough to go on from.
const acceptMetadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

// List yields the objects of a collection as JSON, in pages. Of a page one object is held at a time: servers before 1.9 answer with all
// of them, whatever is asked.
// Errors: the first one ends the list; failures that pass were retried until a page began. When the server has forgotten the state of
// the first page the list goes on in the present state, as that of Pods does.
func (c *Client) List(ctx context.Context, url string, metadataAlone bool) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		options := metav1.ListOptions{Limit: pagePods}
		for {
			body, err := c.page(ctx, url, options, metadataAlone)
			if again := continuation(err); again != "" && again != options.Continue {
				options.Continue = again
				continue
			}
			if err != nil {
				yield(nil, err)
				return
			}
			next, done, err := items(body, yield)
			body.Close()
			switch {
			case done:
				return
			case err != nil:
				yield(nil, err)
				return
			}
			if options.Continue = next; next == "" {
				return
			}
		}
	}
}

// page opens a page. It must begin in time; how long the rest takes is the server's to say.
func (c *Client) page(ctx context.Context, url string, options metav1.ListOptions, metadataAlone bool) (io.ReadCloser, error) {
	accept := []string{runtime.ContentTypeJSON}
	if metadataAlone {
		accept = []string{acceptMetadata, runtime.ContentTypeJSON}
	}
	var page io.ReadCloser
	err := c.retry(ctx, func() error {
		begun, cancel := context.WithCancelCause(ctx)
		late := time.AfterFunc(answerWithin, func() { cancel(fmt.Errorf("no answer within %s", answerWithin)) })
		for _, words := range accept {
			body, err := c.rest.Get().AbsPath(url).VersionedParams(&options, c.parameters).SetHeader("Accept", words).Stream(begun)
			if apierrors.IsNotAcceptable(err) && words != runtime.ContentTypeJSON {
				continue
			}
			if err != nil {
				if cause := context.Cause(begun); cause != nil && ctx.Err() == nil {
					err = cause
				}
				cancel(nil)
			}
			page = opened{body, cancel}
			late.Stop()
			return err
		}
		return nil
	})
	return page, err
}

// opened is a page that is being read.
type opened struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (o opened) Close() error {
	defer o.cancel(nil)
	return o.ReadCloser.Close()
}

// items reads a list as it arrives. A list that does not end is an error, not a shorter list.
func items(body io.Reader, yield func([]byte, error) bool) (next string, done bool, err error) {
	decoder := json.NewDecoder(body)
	if err := expect(decoder, json.Delim('{')); err != nil {
		return "", false, err
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return "", false, err
		}
		switch name {
		case "metadata":
			var meta metav1.ListMeta
			err = decoder.Decode(&meta)
			next = meta.Continue
		case "items":
			done, err = each(decoder, yield)
		default:
			var skipped json.RawMessage
			err = decoder.Decode(&skipped)
		}
		if done || err != nil {
			return "", done, err
		}
	}
	return next, false, expect(decoder, json.Delim('}'))
}

func each(decoder *json.Decoder, yield func([]byte, error) bool) (done bool, err error) {
	token, err := decoder.Token()
	if err != nil || token == nil { // null is an empty list
		return false, err
	}
	if token != json.Delim('[') {
		return false, fmt.Errorf("reading the list: items are %v, want a list", token)
	}
	for decoder.More() {
		var item json.RawMessage
		if err := decoder.Decode(&item); err != nil {
			return false, fmt.Errorf("reading the list: %w", err)
		}
		if !yield(item, nil) {
			return true, nil
		}
	}
	return false, expect(decoder, json.Delim(']'))
}

func expect(decoder *json.Decoder, want json.Delim) error {
	token, err := decoder.Token()
	if err != nil {
		return fmt.Errorf("reading the list: %w", noEOF(err))
	}
	if token != want {
		return fmt.Errorf("reading the list: %v, want %v", token, want)
	}
	return nil
}

// noEOF: an end before the end is an error of its own, not the end.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// dateKey is where a request's context holds what the date of the answer goes into.
type dateKey struct{}

func withDate(ctx context.Context, date *atomic.Value) context.Context {
	return context.WithValue(ctx, dateKey{}, date)
}

// datedTransport keeps the date of answers: client-go shows no headers.
type datedTransport struct{ http.RoundTripper }

func (t datedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(request)
	if date, wanted := request.Context().Value(dateKey{}).(*atomic.Value); wanted && err == nil {
		if at, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			date.Store(at)
		}
	}
	return response, err
}
