package kube

import (
	"context"
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

	"github.com/kubefusion/fusionctl/internal/rawapi"
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
	if rawapi.Absent(err, path.Base(url)) {
		err = live.ErrAbsent
	}
	return answer, err
}

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
			meta, err := rawapi.ReadList(body, func(item []byte) error {
				if !yield(item, nil) {
					return errEnough
				}
				return nil
			})
			body.Close()
			switch {
			case errors.Is(err, errEnough):
				return
			case err != nil:
				yield(nil, err)
				return
			}
			if options.Continue = meta.Continue; options.Continue == "" {
				return
			}
		}
	}
}

// errEnough ends a list whose reader has read enough.
var errEnough = errors.New("enough was read")

// page opens a page. It must begin in time; how long the rest takes is the server's to say.
func (c *Client) page(ctx context.Context, url string, options metav1.ListOptions, metadataAlone bool) (io.ReadCloser, error) {
	accept := []string{runtime.ContentTypeJSON}
	if metadataAlone {
		accept = []string{rawapi.AcceptMetadataList, runtime.ContentTypeJSON}
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
