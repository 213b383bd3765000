package apiserver

import (
	"context"
	"net/http"
	"path"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubefusion/fusionctl/pkg/discovery"
)

// Read returns what is at a path: the JSON of one object, or a page such as /version. An object is read from the store.
// Errors: discovery.ErrNotFound when, and only when, the server itself says that there is no such object; another
// object, or one of another kind, is discovery.ErrNotKubernetes. Failures that pass were retried.
func (s *Server) Read(ctx context.Context, at discovery.Path) ([]byte, error) {
	text, _, err := s.read(ctx, at, acceptsOf(at), s.retry)
	return text, err
}

// ReadMetadata is Read of an object of which the metadata is enough: the server may leave out everything else.
func (s *Server) ReadMetadata(ctx context.Context, at discovery.Path) ([]byte, error) {
	text, _, err := s.read(ctx, at, []string{acceptMetadata, runtime.ContentTypeJSON}, s.retry)
	if err == nil {
		err = affordable(text)
	}
	return text, err
}

func acceptsOf(at discovery.Path) []string {
	switch {
	case !at.IsPage():
		return jsonForm
	case path.Base(at.String()) == "flagz":
		return []string{acceptFlags}
	}
	return []string{acceptPage}
}

// retrier is retry, or once.
type retrier func(ctx context.Context, repeatable bool, request func() error) error

func once(_ context.Context, _ bool, request func() error) error { return request() }

func (s *Server) read(ctx context.Context, at discovery.Path, accept []string, retry retrier) (
	text []byte, date time.Time, err error) {
	err = retry(ctx, true, func() error {
		answer, err := s.send(ctx, request{verb: http.MethodGet, path: at, accept: accept}, false)
		if err != nil {
			return err
		}
		defer answer.Close()
		date = answer.date
		text, err = readAll(answer)
		return err
	})
	if err == nil && !at.IsPage() {
		err = isObject(text, at)
	}
	if err != nil {
		return nil, date, err
	}
	return text, date, nil
}

// header is what every object begins with, in whatever order.
type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

// metadataVersion reports whether the apiVersion is that of metadata alone.
func metadataVersion(apiVersion string) bool {
	return apiVersion == "meta.k8s.io/v1" || apiVersion == "meta.k8s.io/v1beta1"
}

// isObject holds an answer against the path that was asked for.
func isObject(text []byte, at discovery.Path) error {
	var got header
	if err := decode(text, &got); err != nil {
		return err
	}
	partial := got.Kind == "PartialObjectMetadata" && metadataVersion(got.APIVersion)
	if want := at.Kind(); want != "" && !partial && (got.Kind != want || got.APIVersion != at.GroupVersion().String()) {
		return wrong("asked for a %s of %s at %s and got a %q of %q", want, at.GroupVersion(), at, got.Kind,
			got.APIVersion)
	}
	if got.Metadata.Name != at.Name() || got.Metadata.Namespace != at.Namespace() {
		return wrong("asked for %s and got the object %q in namespace %q", at, got.Metadata.Name,
			got.Metadata.Namespace)
	}
	return nil
}

// Write is a request that changes something.
type Write struct {
	Verb        string // POST, PUT, PATCH, DELETE
	Path        discovery.Path
	ContentType string // of the body; JSON when it is empty
	Body        []byte
	// Repeatable: the write may be sent twice, because its body names the state that it replaces or because it says the
	// same both times. Another is repeated only when the server did not begin it.
	Repeatable bool
	// Metadata: the metadata of what the server made of it is enough.
	Metadata bool
}

// Send writes and returns what the server made of it. The answer may be another object than was sent: a Status, for
// deletions. Errors: those of the server, for the functions of k8s.io/apimachinery/pkg/api/errors. A write that was not
// answered may have happened.
func (s *Server) Send(ctx context.Context, w Write) ([]byte, error) {
	if w.ContentType == "" {
		w.ContentType = runtime.ContentTypeJSON
	}
	accept := jsonForm
	if w.Metadata {
		accept = []string{acceptMetadata, runtime.ContentTypeJSON}
	}
	var text []byte
	err := s.retry(ctx, w.Repeatable, func() error {
		answer, err := s.send(ctx, request{verb: w.Verb, path: w.Path, accept: accept, contentType: w.ContentType,
			body: w.Body}, false)
		if err != nil {
			return err
		}
		defer answer.Close()
		text, err = readAll(answer)
		return err
	})
	return text, err
}
