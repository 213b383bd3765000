package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

const (
	// answerTimeout bounds how long a side may take to begin an answer: API servers give up on their own after a
	// minute.
	answerTimeout = 70 * time.Second
	// limitBodyBytes bounds a body of a client that is not passed through: MaxRequestBodyBytes of API servers, in
	// k8s.io/apiserver pkg/server/config.go@0.36.3. Decoding it takes time before a side says who may send it.
	limitBodyBytes = 3 << 20
	// limitBytes bounds an object in an answer that is not passed through.
	limitBytes = 16 << 20
	// limitListBytes bounds one side's part of a list that is merged.
	limitListBytes = 256 << 20
	// idleConnections is how many connections to a server are kept for the next reads.
	idleConnections = 256
	// limitAheadBytes bounds what a side sends of a watch before its client takes it: users have thousands of watches,
	// and by default each would hold 4 MiB.
	limitAheadBytes = 64 << 10
	// limitOptionsBytes bounds the options of a deletion.
	limitOptionsBytes = 1 << 20
	// limitHeaderBytes bounds the headers of an answer: those of API servers have a few kilobytes, cookies of services
	// behind their proxy more.
	limitHeaderBytes = 256 << 10
)

// side is one API server, as the gateway forwards requests to it.
type side struct {
	name    pair.Side // of a further cluster: its own
	beyond  *cluster  // nil for a side of the pair
	version atomic.Pointer[kubever.Version]
	base    *url.URL
	forward http.RoundTripper // with the certificate of the front proxy, or, beyond the pair, the kubeconfig's identity
	streams http.RoundTripper // the same, each with a connection to itself
	upgrade http.RoundTripper // the same, a connection for each request
	own     *apiserver.Server // with the gateway's own identity

	answerTimeout time.Duration
	headers       plan.ProxyHeaders // in which it believes the front proxy, beside the usual ones
	claims        claims            // of a client, by which neither side may know it
}

// newSide makes clients of an API server: own is the gateway's own identity; cert and key are the files of the front
// proxy's certificate.
func newSide(name pair.Side, own *rest.Config, cert, key string) (*side, error) {
	return sideOf(name, own, &rest.Config{Host: own.Host, APIPath: own.APIPath, DisableCompression: true,
		TLSClientConfig: rest.TLSClientConfig{
			ServerName: own.ServerName, CAFile: own.CAFile, CAData: own.CAData, CertFile: cert, KeyFile: key}})
}

// sideOf makes clients of an API server: own is for what the gateway asks itself, config for the requests of users.
func sideOf(name pair.Side, own, config *rest.Config) (*side, error) {
	s := &side{name: name, claims: claimsOf(), answerTimeout: answerTimeout}
	var err error
	if s.own, err = apiserver.New(own, apiserver.Options{Timeout: 20 * time.Second, Attempts: 2}); err != nil {
		return nil, err
	}
	if s.base, _, err = rest.DefaultServerUrlFor(config); err != nil {
		return nil, err
	}
	if s.base.Scheme != "https" {
		return nil, fmt.Errorf("%s: want https: the gateway sends a credential", s.base.Redacted())
	}
	s.base.Path = strings.TrimSuffix(s.base.Path, "/")
	if s.forward, err = rest.TransportFor(limitHeaders(config)); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	s.upgrade = upgrading{config}
	if s.streams, err = rest.TransportFor(limitHeaders(config)); err != nil {
		return nil, err
	}
	s.forward = reading{s.streams, s.forward}
	return s, nil
}

// limitHeaders is the configuration for a transport of its own, which keeps idleConnections open and reads no more of
// the headers of an answer than limitHeaderBytes: they are held for each request, and sent on, and by default they are
// 10 MiB.
func limitHeaders(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	if config.Proxy == nil {
		config.Proxy = http.ProxyFromEnvironment // a transport with one is not shared
	}
	config.Wrap(func(made http.RoundTripper) http.RoundTripper {
		for of := made; ; {
			if t, ok := of.(*http.Transport); ok {
				return limited{limitedOf(t), made}
			}
			outer, ok := of.(utilnet.RoundTripperWrapper)
			if !ok {
				panic(fmt.Sprintf("gateway: internal error: a transport of type %T", of)) // not of a limit
			}
			of = outer.WrappedRoundTripper()
		}
	})
	return config
}

// limited is a transport, and that from which it was made: it ends the renewal of certificates when it is collected.
type limited struct {
	http.RoundTripper
	of http.RoundTripper
}

func limitedOf(t *http.Transport) *http.Transport {
	c := t.Clone()
	c.MaxIdleConnsPerHost, c.MaxResponseHeaderBytes = idleConnections, limitHeaderBytes
	if len(c.TLSNextProto) > 0 { // net/http's own HTTP/2 takes the limit; these are those of the API machinery
		c.TLSNextProto, c.ForceAttemptHTTP2 = nil, true
		c.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second,
			MaxReceiveBufferPerStream: limitAheadBytes}
	}
	return c
}

// reading gives what a client reads a connection to itself while it lasts: it is copied at once, not in frames of
// 16 KiB, and waits for no other's. Watches share connections, so that two thousand are not as many. Writes do, too:
// one that met an idle connection in the moment in which the server closed it could not be sent again as a read is.
type reading struct{ reads, others http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t reading) RoundTrip(r *http.Request) (*http.Response, error) {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if reads && !discovery.Flag(r.URL.Query(), "watch") {
		return t.reads.RoundTrip(r)
	}
	if reads {
		return t.others.RoundTrip(r)
	}
	var begun atomic.Bool
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		WroteHeaders: func() { begun.Store(true) }}))
	response, err := t.others.RoundTrip(r)
	if err != nil && begun.Load() {
		err = begunError{err}
	}
	return response, err
}

// begunError is of a write that a server may have got: it may have been done.
type begunError struct{ error }

func (e begunError) Unwrap() error { return e.error }

// upgrading opens a connection for each request. API servers before 1.10.11, 1.11.5 and 1.12.3 pass what comes on a
// connection whose upgrade was refused on to the kubelet, with their own certificate (CVE-2018-1002105): the next
// client's request would go there.
type upgrading struct{ config *rest.Config }

// RoundTrip implements http.RoundTripper.
func (u upgrading) RoundTrip(r *http.Request) (*http.Response, error) {
	config, err := rest.TLSConfigFor(u.config) // of the files as they are now
	if err != nil {
		return nil, err
	}
	transport := utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: config, DisableKeepAlives: true,
		DisableCompression: true, TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: limitHeaderBytes})
	credential, err := rest.HTTPWrappersForConfig(u.config, transport)
	if err != nil {
		return nil, err
	}
	return credential.RoundTrip(r)
}

// says remembers of which version the server is.
func (s *side) says(v kubever.Version) { s.version.Store(&v) }

// minor is the release of the server; the newest that there are facts about for one that is newer.
func (s *side) minor() kubever.Minor {
	if v := s.version.Load(); v != nil && v.Minor.Known() {
		return v.Minor
	}
	return kubever.Newest
}

// behaves reports whether the server behaves as named.
func (s *side) behaves(b kubever.Behaviour) bool { return kubever.Behaves(b, s.minor()) }

// user is who the client is there. Errors: a Status.
func (s *side) user(id *identity) (user.Info, error) {
	if s.beyond != nil {
		return id.beyond(s.name)
	}
	return id.at(s.name)
}

// unbelieved is said where the server does not know who sends the requests.
func (s *side) unbelieved() error {
	if s.beyond != nil {
		return unavailable("%s does not accept the identity of the gateway's kubeconfig", serverOf(s.name))
	}
	return unavailable("%s does not accept the gateway's front-proxy certificate", serverOf(s.name))
}

// timely gives up on a server that does not begin to answer.
type timely struct {
	http.RoundTripper
	limit time.Duration
}

func (t timely) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(t.limit, func() { cancel(errNoAnswer) })
	response, err := t.RoundTripper.RoundTrip(r.WithContext(ctx))
	if !timer.Stop() && err != nil {
		begun := errors.As(err, &begunError{})
		if err = fmt.Errorf("%w within %v", errNoAnswer, t.limit); begun {
			err = begunError{err}
		}
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	response.Body = &released{response.Body, cancel}
	return response, nil
}

var errNoAnswer = errors.New("no answer")

// released frees the context of a request when its answer is closed.
type released struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (r *released) Close() error {
	err := r.ReadCloser.Close()
	r.cancel(nil)
	return err
}

// passing says how a request is passed on.
type passing struct {
	prefix  string          // cut off the path
	proxied bool            // on to another program
	long    bool            // the answer has no end of its own: the connection may be upgraded
	over    *conversion     // the way, where the side has another version; nil for straight
	done    context.Context // a watch ends with it; nil for what has an end of its own
}

// pass sends the request to the side as it is, but for who sends it, and its answer back, whatever it is: a stream, an
// upgraded connection. Of a watch it sends the headers: the events are still to be copied, by copyEvents.
func (s *side) pass(w http.ResponseWriter, r *http.Request, u user.Info, how passing) (events *endless) {
	upgrades := how.long && how.over == nil && r.Header.Get("Upgrade") != ""
	var transport http.RoundTripper = timely{s.forward, s.answerTimeout}
	switch {
	case upgrades:
		transport = reading{s.upgrade, s.upgrade}
	case how.proxied:
		transport = reading{s.streams, s.streams}
	}
	if how.over != nil {
		transport = timely{how.over, s.answerTimeout}
	}
	flush := time.Duration(0) // the proxy flushes what has no length of its own
	if how.proxied || upgrades {
		flush = -1
	}
	sent := &sentBody{ReadCloser: r.Body}
	if r.Body != nil && r.Body != http.NoBody {
		inner := *r
		inner.Body = sent
		r = &inner
	}
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: flush, BufferPool: wholeBuffers,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = s.base.Scheme, s.base.Host
			p.Out.URL.Path = s.base.Path + strings.TrimPrefix(p.In.URL.Path, how.prefix)
			p.Out.URL.RawPath = s.base.EscapedPath() + strings.TrimPrefix(p.In.URL.EscapedPath(), how.prefix)
			p.Out.URL.RawQuery = p.In.URL.RawQuery
			p.Out.Host = ""
			if !upgrades { // what is converted, and what has an end, is read as the text that it is
				p.Out.Header.Del("Connection")
				p.Out.Header.Del("Upgrade")
			}
			s.identify(p.Out, u)
		},
		ModifyResponse: func(response *http.Response) error {
			if response.StatusCode == http.StatusUnauthorized && !how.proxied {
				return s.unbelieved()
			}
			if s.beyond != nil {
				if err := s.beyond.confine(response); err != nil {
					return err
				}
			}
			if how.done != nil && response.StatusCode == http.StatusOK {
				media, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
				events = &endless{response.Body, how.done, err == nil && media == "application/json"}
				response.Body = http.NoBody
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			switch {
			case r.Context().Err() != nil:
			case sent.failed() != nil:
				refuse(w, unread(sent.failed()))
			default:
				refuse(w, unsent(s.name, r.Method, err))
			}
		},
		ErrorLog: discard,
	}
	if s.beyond != nil {
		w = final{w}
	}
	proxy.ServeHTTP(w, r)
	return events
}

// copyEvents copies the events of a watch. While none comes it holds no buffer but a little one. What is written is
// sent at once, as by a timed writer: an event of which more is sure to come is written with it, because to send costs
// most of what an event costs. An answer that breaks off is a panic, as of a reverse proxy.
func copyEvents(w io.Writer, events *endless) {
	defer events.Close()
	write := func(p []byte) {
		if _, err := w.Write(p); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	write(nil) // the headers
	little := make([]byte, littleBytes)
	for {
		n, err := events.Read(little)
		begun := little[:n]
		if n > 0 && (err != nil || n < len(little) || !events.lines || little[n-1] == '\n') {
			write(begun)
			begun = nil
		}
		if n == len(little) && err == nil { // there is more of it
			err = copyEvent(write, begun, events)
		}
		switch {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			panic(http.ErrAbortHandler)
		}
	}
}

// copyEvent copies what has come already, behind what has begun.
func copyEvent(write func([]byte), begun []byte, events io.Reader) error {
	buffer := wholeBuffers.Get()
	defer wholeBuffers.Put(buffer)
	held := copy(buffer, begun)
	for {
		n, err := events.Read(buffer[held:])
		if n += held; n > 0 {
			write(buffer[:n])
		}
		if held = 0; err != nil || n < len(buffer) {
			return err
		}
	}
}

// sentBody is the body of a client. When it cannot be read, it is not the side that is at fault.
type sentBody struct {
	io.ReadCloser
	err atomic.Pointer[error]
}

// Read implements io.Reader.
func (b *sentBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err.Store(&err)
	}
	return n, err
}

// failed is why the body could not be read; nil where it could.
func (b *sentBody) failed() error {
	if err := b.err.Load(); err != nil {
		return *err
	}
	return nil
}

// littleBytes is what a watch holds while it waits for events.
const littleBytes = 512

// buffers are those by which answers are copied.
type buffers struct {
	sync.Pool
	bytes int
}

var wholeBuffers = &buffers{bytes: 32 << 10}

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if p, ok := b.Pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, b.bytes)
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(p []byte) { b.Pool.Put(&p) }

// endless is the body of a watch. When the gateway ends it has ended, and is not broken off.
type endless struct {
	io.ReadCloser
	done  context.Context
	lines bool // each event ends with a new line
}

// Read implements io.Reader.
func (e *endless) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if errors.Is(err, context.Canceled) && e.done.Err() != nil {
		err = io.EOF
	}
	return n, err
}

// question is a request to a side on behalf of a client.
type question struct {
	method, path string // the path is escaped
	query        url.Values
	accept       string
	contentType  string
	tag          string // the answer is wanted only if it has another one; "" for always
	body         []byte
	over         *conversion // the way, where the side has another version; nil for straight
}

// answer is an answer of a side.
type answer struct {
	side   pair.Side
	code   int
	header http.Header
	body   []byte
}

// send asks the side in the name of the client. The caller closes the answer. Errors: a Status.
func (s *side) send(ctx context.Context, r *http.Request, id *identity, q question) (*http.Response, error) {
	u, err := s.user(id)
	if err != nil {
		return nil, err
	}
	target := s.base.Scheme + "://" + s.base.Host + s.base.EscapedPath() + q.path
	if len(q.query) > 0 {
		target += "?" + q.query.Encode()
	}
	out, err := http.NewRequestWithContext(ctx, q.method, target, bytes.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"User-Agent", "Audit-Id"} {
		out.Header[name] = r.Header[name]
	}
	for name, values := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			out.Header[name] = values
		}
	}
	out.Header.Set("Accept", q.accept)
	if q.contentType != "" {
		out.Header.Set("Content-Type", q.contentType)
	}
	if q.tag != "" {
		out.Header.Set("If-None-Match", q.tag)
	}
	s.identify(out, u)
	transport := timely{s.forward, s.answerTimeout}
	if q.over != nil {
		transport = timely{q.over, s.answerTimeout}
		if len(q.body) > 0 {
			if err := q.over.begin(ctx, q.over.workers.wait); err != nil {
				return nil, err
			}
		}
	}
	response, err := transport.RoundTrip(out)
	if err != nil {
		return nil, unsent(s.name, q.method, err)
	}
	return response, nil
}

// ask sends a question and reads the whole answer. Errors: a Status, 503 where there is no answer.
func (s *side) ask(ctx context.Context, r *http.Request, id *identity, q question, limit int64,
	memory *webserver.Reservation) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.answerTimeout)
	defer cancel()
	if q.over != nil {
		defer q.over.end()
	}
	response, err := s.send(ctx, r, id, q)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := readAll(ctx, response.Body, limit, memory)
	if err == nil && s.beyond != nil {
		err = s.beyond.confine(response)
	}
	if err != nil {
		return nil, unfinished(s.name, q.method, err)
	}
	a := &answer{s.name, response.StatusCode, response.Header, body}
	if q.over != nil {
		q.over.warn(a.header)
	}
	if a.code == http.StatusUnauthorized {
		return nil, s.unbelieved()
	}
	return a, nil
}

// readAll reads a body of bounded length; what is read of it is held in the reservation.
// Errors: *http.MaxBytesError, *webserver.RequestError.
func readAll(ctx context.Context, body io.Reader, limit int64, memory *webserver.Reservation) ([]byte, error) {
	var buf bytes.Buffer
	in := io.LimitReader(body, limit+1)
	for {
		const piece = 64 << 10
		if buf.Available() < bytes.MinRead {
			more := max(piece, buf.Cap())
			if err := memory.Grow(ctx, int64(more)); err != nil {
				return nil, err
			}
			buf.Grow(more)
		}
		n, err := in.Read(buf.AvailableBuffer()[:buf.Available()])
		buf.Write(buf.AvailableBuffer()[:n])
		switch {
		case int64(buf.Len()) > limit:
			return nil, &http.MaxBytesError{Limit: limit}
		case errors.Is(err, io.EOF):
			return buf.Bytes(), nil
		case err != nil:
			return nil, err
		}
	}
}

// isJSON reports whether the answer is JSON of whatever form.
func (a *answer) isJSON() bool {
	media, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	return err == nil && media == "application/json"
}

// lacksPath reports whether the side says that it does not serve the path, and so nothing of the object there: API
// servers before 1.23 say so of custom resources for a moment after they have begun.
func (a *answer) lacksPath() bool { return a.code == http.StatusNotFound && !a.isJSON() }

// copyTo writes the answer, with another body.
func (a *answer) copyTo(w http.ResponseWriter, body []byte) {
	for _, name := range []string{"Content-Type", "Warning", "Retry-After", "Audit-Id", "Location", "Cache-Control",
		"Content-Security-Policy", "X-Content-Type-Options", "X-Kubernetes-Pf-Flowschema-Uid",
		"X-Kubernetes-Pf-Prioritylevel-Uid"} {
		for _, value := range a.header.Values(name) {
			w.Header().Add(name, value)
		}
	}
	w.WriteHeader(a.code)
	_, _ = w.Write(body) // a client that is gone
}
