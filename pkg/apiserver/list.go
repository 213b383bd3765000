package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubefusion/fusionctl/pkg/discovery"
)

const (
	pageObjects    = 500
	limitItemBytes = 32 << 20 // far more than etcd's default limit of a request, 1.5 MiB
	// limitObjects is far more than API servers can serve of one resource: Kubernetes is tested with 150,000 pods, and
	// 8 GiB, the largest store that etcd suggests, are 860 bytes for each.
	limitObjects = 10_000_000
	// limitIdlePages is how many pages in a row may bring nothing that comes after what came before: a list in the
	// order of its names has none.
	limitIdlePages = 200
)

// List yields the objects of a collection as JSON, in pages. Of a page one object is held at a time. Errors: the first
// one ends the list, which is then not known to be whole. Failures that pass were retried until a page began.
func (s *Server) List(ctx context.Context, at discovery.Path, o discovery.ListOptions) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		progress := progress{seed: maphash.MakeSeed(), tokens: map[uint64]bool{}}
		for {
			meta, err := s.readPage(ctx, at, o, nil, func(of header, item []byte) error {
				if err := progress.object(of); err != nil {
					return err
				}
				if !yield(item, nil) {
					return errEnough
				}
				return nil
			})
			if errors.Is(err, errEnough) {
				return
			}
			if again := Continuation(err); again != "" && again != o.Continue && !o.Consistent {
				meta.Continue, err = again, nil
			} else if err == nil {
				err = progress.page()
			}
			if err == nil && meta.Continue != "" {
				err = progress.token(meta.Continue)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if o.Continue = meta.Continue; o.Continue == "" {
				return
			}
			o.ResourceVersion, o.ResourceVersionMatch = "", "" // the token has its own
		}
	}
}

// errEnough ends a list whose reader has read enough.
var errEnough = errors.New("enough was read")

// Continuation is the token with which a list may go on in the present state, out of the error that its own state is
// forgotten; "" when the error is another, or the server offers none.
func Continuation(err error) string {
	if status := apierrors.APIStatus(nil); apierrors.IsResourceExpired(err) && errors.As(err, &status) {
		return status.Status().ListMeta.Continue
	}
	return ""
}

// progress notices a list that does not end.
type progress struct {
	seed     maphash.Seed
	tokens   map[uint64]bool // hashes of those that came
	greatest string          // of the names of objects, as they are ordered in the store
	moved    bool            // within this page
	idle     int             // pages in a row
	objects  int
}

func (p *progress) object(of header) error {
	if p.objects++; p.objects > limitObjects {
		return wrong("the list has more than %d objects", limitObjects)
	}
	if name := of.Metadata.Namespace + "/" + of.Metadata.Name; name > p.greatest {
		p.greatest, p.moved = name, true
	}
	return nil
}

func (p *progress) page() error {
	if p.idle++; p.moved {
		p.idle, p.moved = 0, false
	}
	if p.idle > limitIdlePages {
		return wrong("the list does not end: %d pages without a new object", p.idle)
	}
	return nil
}

func (p *progress) token(text string) error {
	hash := maphash.String(p.seed, text)
	if p.tokens[hash] {
		return wrong("the list does not end: the server repeats a continue token")
	}
	p.tokens[hash] = true
	return nil
}

// ReadPage reads one page of a collection, or all of it, and hands over its objects as JSON, one at a time; each is the
// callee's to keep. A page that broke off is read again from its beginning when restart is given, which is called
// before each attempt. Errors: that of item, which ends the page, wrapped.
func (s *Server) ReadPage(ctx context.Context, at discovery.Path, o discovery.ListOptions, restart func(),
	item func([]byte) error) (metav1.ListMeta, error) {
	return s.readPage(ctx, at, o, restart, func(_ header, text []byte) error { return item(text) })
}

func (s *Server) readPage(ctx context.Context, at discovery.Path, o discovery.ListOptions, restart func(),
	item func(header, []byte) error) (metav1.ListMeta, error) {
	var meta metav1.ListMeta
	var fatal error // of a page that is not to be read again
	err := s.retry(ctx, true, func() error {
		if restart != nil {
			restart()
		}
		answer, err := s.send(
			ctx, request{verb: http.MethodGet, path: at, query: listQuery(o), accept: listForms(o.Metadata)}, false)
		if err != nil {
			return err
		}
		defer answer.Close()
		l := newList(answer, at, item)
		err = l.read()
		meta = l.meta
		if err != nil && (l.ended != nil || l.begun && restart == nil) {
			fatal = err
			return nil
		}
		return err
	})
	if err = errors.Join(fatal, err); err != nil && statusCode(err) == 0 {
		err = fmt.Errorf("reading the list %s: %w", at, err)
	}
	return meta, err
}

func listForms(metadata bool) []string {
	if metadata {
		return []string{acceptMetadataList, runtime.ContentTypeJSON}
	}
	return jsonForm
}

func listQuery(o discovery.ListOptions) url.Values {
	query := url.Values{}
	for name, value := range map[string]string{
		"labelSelector": o.LabelSelector, "fieldSelector": o.FieldSelector, "continue": o.Continue,
		"resourceVersion": o.ResourceVersion, "resourceVersionMatch": o.ResourceVersionMatch,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	switch {
	case o.Limit > 0:
		query.Set("limit", strconv.Itoa(o.Limit))
	case o.Limit == 0:
		query.Set("limit", strconv.Itoa(pageObjects))
	}
	return query
}

// list reads a list as it arrives.
type list struct {
	body    *bounded
	decoder *json.Decoder
	at      discovery.Path
	item    func(header, []byte) error

	header header // of the list
	meta   metav1.ListMeta
	begun  bool  // an item was handed over
	ended  error // what item said
}

func newList(body io.Reader, at discovery.Path, item func(header, []byte) error) *list {
	bounded := &bounded{reader: body}
	return &list{body: bounded, decoder: json.NewDecoder(bounded), at: at, item: item}
}

// bounded is a reader that ends where one item is too large.
type bounded struct {
	reader io.Reader
	bytes  int // since the last item
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.bytes > limitItemBytes {
		return 0, wrong("a list with an object of more than %d MiB", limitItemBytes>>20)
	}
	n, err := b.reader.Read(p)
	b.bytes += n
	return n, err
}

// read reads the list to its end.
func (l *list) read() error {
	err := l.object()
	if err == nil {
		err = l.judge()
	}
	switch syntax := (*json.SyntaxError)(nil); {
	case l.ended != nil:
		return l.ended
	case errors.Is(err, io.EOF):
		return classed{discovery.ErrUnreachable, io.ErrUnexpectedEOF}
	case errors.As(err, &syntax):
		return wrong("%w", err)
	}
	return err
}

func (l *list) object() error {
	if err := l.expect('{'); err != nil {
		return err
	}
	seen := map[json.Token]bool{}
	for l.decoder.More() {
		name, err := l.decoder.Token()
		if err != nil {
			return err
		}
		if seen[name] {
			return wrong("the list has two fields %q", name)
		}
		seen[name] = true
		switch name {
		case "apiVersion":
			err = l.decoder.Decode(&l.header.APIVersion)
		case "kind":
			err = l.decoder.Decode(&l.header.Kind)
		case "metadata":
			err = l.decodeExactly(&l.meta)
		case "items":
			err = l.items()
		default:
			var skipped json.RawMessage
			err = l.decoder.Decode(&skipped)
		}
		if err != nil {
			return err
		}
	}
	if err := l.expect('}'); err != nil {
		return err
	}
	if token, err := l.decoder.Token(); err != io.EOF {
		if err == nil {
			err = fmt.Errorf("it goes on with %v", token)
		}
		return wrong("behind the list: %w", err)
	}
	return nil
}

// decodeExactly reads a value with regard to the case of names.
func (l *list) decodeExactly(into any) error {
	var raw json.RawMessage
	if err := l.decoder.Decode(&raw); err != nil {
		return err
	}
	return decode(raw, into)
}

// judge holds the list against what was asked for. Its kind may come behind its items.
func (l *list) judge() error {
	kind, apiVersion := l.header.Kind, l.header.APIVersion
	if kind == "PartialObjectMetadataList" && metadataVersion(apiVersion) {
		return nil
	}
	// The definition of a custom resource names the kind of its lists as it likes.
	if kind == "" || kind == "Status" || kind == l.at.Kind() || apiVersion != l.at.GroupVersion().String() {
		return wrong("asked for a list at %s and got a %q of %q", l.at, kind, apiVersion)
	}
	return nil
}

func (l *list) items() error {
	token, err := l.decoder.Token()
	if err != nil || token == nil { // null is an empty list
		return err
	}
	if token != json.Delim('[') {
		return wrong("the items are %v, want a list", token)
	}
	for l.decoder.More() {
		var raw json.RawMessage
		if err := l.decoder.Decode(&raw); err != nil {
			return err
		}
		l.body.bytes = 0
		of, err := l.itemHeader(raw)
		if err != nil {
			return err
		}
		l.begun = true
		if l.ended = l.item(of, raw); l.ended != nil {
			return l.ended
		}
	}
	return l.expect(']')
}

// itemHeader holds an item against what was asked for.
func (l *list) itemHeader(raw []byte) (of header, err error) {
	if err := decode(raw, &of); err != nil {
		return of, err
	}
	name, namespace := of.Metadata.Name, of.Metadata.Namespace
	switch {
	case name == "":
		return of, wrong("an item has no name")
	case len(content.IsPathSegmentName(name)) > 0 || len(content.IsPathSegmentName(namespace)) > 0:
		return of, wrong("an item has the name %q in namespace %q, which no object can have", name, namespace)
	case l.at.Namespace() != "" && namespace != l.at.Namespace():
		return of, wrong("asked for namespace %q and got %q of namespace %q", l.at.Namespace(), name, namespace)
	case of.Kind != "" && of.Kind != "PartialObjectMetadata" && l.at.Kind() != "" && of.Kind != l.at.Kind():
		return of, wrong("asked for a list of %s and got the %q %q", l.at.Kind(), of.Kind, name)
	}
	return of, nil
}

func (l *list) expect(want json.Delim) error {
	token, err := l.decoder.Token()
	if err == nil && token != want {
		err = wrong("the list has %v, want %v", token, want)
	}
	return err
}
