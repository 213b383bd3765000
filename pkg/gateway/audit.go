package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/uuid"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"

	"github.com/kubefusion/fusionctl/internal/jsontext"
	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/gateway/merge"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// Audit is what is recorded of requests and where, in the format of API servers (audit.k8s.io/v1).
type Audit struct {
	// Policy decides what is recorded of a request, by its client, verb and path without /sides/...
	Policy audit.PolicyRuleEvaluator
	// Log gets one line for each event.
	Log io.Writer
	// LimitBytes bounds an event; one that is longer is written without bodies. Default: 10 MiB, as of API servers.
	LimitBytes int64
	// Mode is how events are written: one of AuditModes. Default: AuditBlocking.
	Mode string
	// Batch is how they are buffered in mode AuditBatch.
	Batch buffered.BatchConfig
}

// The modes of an audit log, as of API servers.
const (
	// AuditBlocking writes an event before the request goes on.
	AuditBlocking = "blocking"
	// AuditStrict does so, too, and refuses requests of which the first event cannot be written.
	AuditStrict = "blocking-strict"
	// AuditBatch buffers events, so that no request waits for the log. Those for which there is no room are dropped.
	AuditBatch = "batch"
)

// AuditModes are all of them.
var AuditModes = []string{AuditBatch, AuditBlocking, AuditStrict}

// The annotations of events.
const (
	// AuditSideAnnotation names the sides whose answers the answer is, separated by commas.
	AuditSideAnnotation = "kubefusion.dev/side"
	// AuditClusterAnnotation names the further cluster whose answer the answer is.
	AuditClusterAnnotation = "kubefusion.dev/cluster"
	// AuditRouteAnnotation is how the request was served, as in the metrics.
	AuditRouteAnnotation = "kubefusion.dev/route"
	// auditTruncated is on events whose bodies are left out for their length, as API servers mark them.
	auditTruncated = "audit.k8s.io/truncated"
	// auditUnread is why a body that the policy wants is not in the event.
	auditUnread = "kubefusion.dev/body-left-out"
)

const (
	limitEventBytes = 10 << 20
	// limitQueuedBytes bounds the bodies of the events that are buffered, and twice of it with what else clients say.
	limitQueuedBytes = 64 << 20
	// limitStatusBytes bounds the answers that are read for their Status alone.
	limitStatusBytes = 64 << 10
)

// auditLog writes events.
type auditLog struct {
	Audit
	log       *slog.Logger
	events    prometheus.Counter
	errors    prometheus.Counter
	encoder   runtime.Encoder
	memory    *webserver.Budget
	converter *convert.Converter

	mu      sync.Mutex
	failing bool

	queue       audit.Backend // nil for none
	stopped     chan struct{} // the queue takes no more
	queued      atomic.Int64  // events that are not written yet
	queuedBytes atomic.Int64  // of their bodies
	full        atomic.Bool
}

func newAuditLog(g *Gateway) *auditLog {
	if g.options.Audit == nil {
		return nil
	}
	a := &auditLog{Audit: *g.options.Audit, log: g.log, events: g.metrics.audited, errors: g.metrics.unaudited,
		encoder: audit.Codecs.LegacyCodec(auditv1.SchemeGroupVersion), memory: g.shares.users,
		converter: g.converting.converter}
	if a.LimitBytes <= 0 {
		a.LimitBytes = limitEventBytes
	}
	if a.Mode == AuditBatch {
		a.queue, a.stopped = buffered.NewBackend(queueWriter{a}, a.Batch), make(chan struct{})
		_ = a.queue.Run(a.stopped) // that of the writer, which has no error
	}
	return a
}

// Close writes the events that are buffered. It is called once, when no request is served any more.
func (g *Gateway) Close() {
	if g.audit != nil && g.audit.queue != nil {
		close(g.audit.stopped)
		g.audit.queue.Shutdown()
	}
}

// enqueue has an event written later. It is dropped, and counted, when there is no room for it: the queue drops without
// a word, so that it never gets more than it holds.
func (a *auditLog) enqueue(e *auditinternal.Event) {
	select {
	case <-a.stopped: // of a request that did not end in time
		_ = a.write(e) // which counts it
		return
	default:
	}
	texts, bodies := textBytes(e), bodyBytes(e)
	held := a.queuedBytes.Add(texts + bodies)
	if a.queued.Add(1) > int64(a.Batch.BufferSize) || held-bodies > 2*limitQueuedBytes {
		a.queued.Add(-1)
		a.queuedBytes.Add(-texts - bodies)
		a.errors.Inc()
		if !a.full.Swap(true) {
			a.log.Error("audit events are dropped: the buffer is full", "events", a.Batch.BufferSize)
		}
		return
	}
	if held > limitQueuedBytes && bodies > 0 {
		a.queuedBytes.Add(-bodies)
		short := *e
		short.RequestObject, short.ResponseObject = nil, nil
		short.Annotations = maps.Clone(e.Annotations)
		annotate(&short, auditTruncated, "true")
		e = &short
	}
	a.queue.ProcessEvents(e) // which copies it
}

func bodyBytes(e *auditinternal.Event) (size int64) {
	for _, body := range []*runtime.Unknown{e.RequestObject, e.ResponseObject} {
		if body != nil {
			size += int64(len(body.Raw))
		}
	}
	return size
}

// textBytes is what clients and sides say in an event beside the bodies: headers of a request have 64 KiB, and name
// thousands of addresses.
func textBytes(e *auditinternal.Event) int64 {
	size := len(e.AuditID) + len(e.Verb) + len(e.RequestURI) + len(e.UserAgent)
	const each = 16 // of a string in a list
	for _, address := range e.SourceIPs {
		size += len(address) + each
	}
	for _, u := range []*authenticationv1.UserInfo{&e.User, e.ImpersonatedUser} {
		if u == nil {
			continue
		}
		size += len(u.Username) + len(u.UID)
		for _, group := range u.Groups {
			size += len(group) + each
		}
		for key, values := range u.Extra {
			size += len(key)
			for _, value := range values {
				size += len(value) + each
			}
		}
	}
	if o := e.ObjectRef; o != nil {
		size += len(o.Resource) + len(o.Namespace) + len(o.Name) + len(o.UID) + len(o.APIGroup) + len(o.APIVersion) +
			len(o.ResourceVersion) + len(o.Subresource)
	}
	if s := e.ResponseStatus; s != nil {
		size += len(s.Message) + len(s.Reason)
		if s.Details != nil {
			for _, cause := range s.Details.Causes {
				size += len(cause.Type) + len(cause.Message) + len(cause.Field) + 3*each
			}
		}
	}
	return int64(size)
}

// queueWriter writes what comes out of the queue.
type queueWriter struct{ *auditLog }

// ProcessEvents implements audit.Sink.
func (w queueWriter) ProcessEvents(events ...*auditinternal.Event) bool {
	written := true
	for _, e := range events {
		written = w.write(e) == nil && written
		w.queuedBytes.Add(-textBytes(e) - bodyBytes(e))
		if w.queued.Add(-1) < int64(w.Batch.BufferSize)/2 && w.full.Swap(false) {
			w.auditLog.log.Info("audit events are buffered again")
		}
	}
	return written
}

// Run implements audit.Backend.
func (queueWriter) Run(<-chan struct{}) error { return nil }

// Shutdown implements audit.Backend.
func (queueWriter) Shutdown() {}

// String implements audit.Backend.
func (queueWriter) String() string { return "log" }

// write writes one event. What went wrong is counted, and logged when it begins.
func (a *auditLog) write(e *auditinternal.Event) error {
	line, err := runtime.Encode(a.encoder, e)
	if err == nil && int64(len(line)) > a.LimitBytes {
		short := *e
		short.RequestObject, short.ResponseObject = nil, nil
		short.Annotations = maps.Clone(e.Annotations)
		annotate(&short, auditTruncated, "true")
		line, err = runtime.Encode(a.encoder, &short)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		_, err = a.Log.Write(line)
	}
	if err != nil {
		a.errors.Inc()
		if !a.failing {
			a.log.Error("audit events cannot be written", "err", err)
		}
	} else {
		a.events.Inc()
		if a.failing {
			a.log.Info("audit events are written again")
		}
	}
	a.failing = err != nil
	return err
}

func annotate(e *auditinternal.Event, key, value string) {
	if e.Annotations == nil {
		e.Annotations = map[string]string{}
	}
	e.Annotations[key] = value
}

// record is what the audit log gets of one request.
type record struct {
	*auditLog
	ctx      context.Context // with what was recorded so far
	took     *took
	id       string
	streams  bool
	object   bool   // the request is about objects
	own      *share // of the user; nil where the client is not known
	config   audit.RequestAuditConfig
	verb     string
	body     *capture // of the request; nil where it is not read
	answer   *capture // nil where it is not read
	header   http.Header
	kind     string // content type of the request
	code     int    // 0 while there is no answer
	unknown  bool   // the client: the event with the answer is the only one
	finished bool   // the next event is the last one
}

// begin records that a request was received, of a client that is known or, without an identity, is not. The request
// that comes back is to be served in place of the other. Errors: a Status, when the event cannot be written and has to.
func (a *auditLog) begin(w *counter, r *http.Request, c *exchange, t *took) (*http.Request, error) {
	if a == nil {
		return r, nil
	}
	info := c.info
	var u user.Info
	if c.id != nil {
		u = c.id
	}
	attributes := attributesOf(u, info)
	config := a.Policy.EvaluatePolicyRule(attributes)
	if config.Level == auditinternal.LevelNone {
		return r, nil
	}
	e := &record{auditLog: a, ctx: audit.WithAuditContext(r.Context()), took: t, id: r.Header.Get("Audit-Id"),
		config: config, streams: c.streams(r), object: info.IsResourceRequest, own: c.own, verb: info.Verb,
		kind: r.Header.Get("Content-Type")}
	if e.id == "" { // by which the events of the sides are found
		e.id = string(uuid.NewUUID())
		r.Header.Set("Audit-Id", e.id)
	}
	ac := audit.AuditContextFrom(e.ctx)
	if err := ac.Init(config, e); err != nil {
		return nil, err
	}
	audit.WithAuditID(e.ctx, types.UID(e.id))
	audit.LogRequestMetadata(e.ctx, r, t.began, attributes)
	if as := impersonated(r.Header); as != nil {
		audit.LogImpersonatedUser(e.ctx, as, "")
	}
	if u == nil {
		w.audit, e.unknown = e, true
		ac.SetEventResponseStatus(&metav1.Status{Message: attempted(r)})
		return r, nil
	}
	if !ac.ProcessEventStage(e.ctx, auditinternal.StageRequestReceived) && a.Mode == AuditStrict {
		return nil, refusal(http.StatusInternalServerError, metav1.StatusReasonInternalError,
			"the audit event cannot be stored")
	}
	w.audit = e
	if e.streams || !info.IsResourceRequest {
		return r, nil
	}
	named := slices.Contains([]string{"create", "update"}, info.Verb) // names are metadata
	whole := config.Level.GreaterOrEqual(auditinternal.LevelRequest) &&
		slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, info.Verb)
	if (named || whole) && r.Body != nil && r.Body != http.NoBody {
		e.body = e.capture(a.LimitBytes)
		inner := *r
		inner.Body = &captured{r.Body, e.body}
		r = &inner
	}
	return r, nil
}

// attributesOf are those by which policies decide.
func attributesOf(u user.Info, info *request.RequestInfo) authorizer.AttributesRecord {
	a := authorizer.AttributesRecord{Verb: info.Verb, Namespace: info.Namespace, APIGroup: info.APIGroup,
		APIVersion: info.APIVersion, Resource: info.Resource, Subresource: info.Subresource, Name: info.Name,
		ResourceRequest: info.IsResourceRequest, Path: info.Path}
	if u != nil {
		a.User = authenticated{u}
	}
	return a
}

// impersonated is the user in whose name a request asks to be served; nil for none.
func impersonated(header http.Header) user.Info {
	name := header.Get(authenticationv1.ImpersonateUserHeader)
	if name == "" {
		return nil
	}
	as := &user.DefaultInfo{Name: name, UID: header.Get(authenticationv1.ImpersonateUIDHeader),
		Groups: header.Values(authenticationv1.ImpersonateGroupHeader), Extra: map[string][]string{}}
	for name, values := range header {
		if key, ok := strings.CutPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix); ok {
			key = strings.ToLower(key)
			if plain, err := url.PathUnescape(key); err == nil {
				key = plain
			}
			as.Extra[key] = values
		}
	}
	return as
}

// attempted says by what a client that is not known wanted to be, in the words of API servers.
func attempted(r *http.Request) string {
	var ways []string
	if scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "bearer") {
		ways = append(ways, "bearer")
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		ways = append(ways, "x509")
	}
	if len(ways) == 0 {
		return "Authentication failed, no credentials provided"
	}
	return "Authentication failed, attempted: " + strings.Join(ways, ", ")
}

// answers is called before an answer begins.
func (e *record) answers(code int, header http.Header) {
	header.Set("Audit-Id", e.id)
	e.code, e.header = code, header.Clone()
	ac := audit.AuditContextFrom(e.ctx)
	ac.SetEventResponseStatusCode(int32(code))
	if e.streams || e.unknown {
		ac.ProcessEventStage(e.ctx, auditinternal.StageResponseStarted)
		return
	}
	switch {
	case e.config.Level == auditinternal.LevelRequestResponse && e.object:
		e.answer = e.capture(e.LimitBytes)
	case code >= http.StatusBadRequest || e.verb == "delete":
		e.answer = e.capture(limitStatusBytes)
	}
}

// end records how the request ended. broken: a side broke its answer off.
func (e *record) end(broken bool) {
	if e == nil || e.unknown {
		return
	}
	defer e.body.release()
	defer e.answer.release()
	ac := audit.AuditContextFrom(e.ctx)
	e.finished = true
	switch {
	case broken:
		ac.SetEventResponseStatus(&metav1.Status{Code: http.StatusInternalServerError,
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError,
			Message: "the answer was broken off"})
		ac.ProcessEventStage(e.ctx, auditinternal.StagePanic)
		return
	case e.code == 0:
		ac.SetEventResponseStatus(&metav1.Status{Code: http.StatusOK, Status: metav1.StatusSuccess,
			Message: "Connection closed early"})
		if e.streams {
			ac.ProcessEventStage(e.ctx, auditinternal.StageResponseStarted)
		}
	}
	ac.ProcessEventStage(e.ctx, auditinternal.StageResponseComplete)
}

// ProcessEvents implements audit.Sink: it completes an event by what is known only at its end.
func (e *record) ProcessEvents(events ...*auditinternal.Event) bool {
	written := true
	for _, event := range events {
		if event.Stage != auditinternal.StageRequestReceived && !e.unknown {
			annotate(event, AuditRouteAnnotation, e.took.route)
			if sides := e.took.sides; len(sides) == 1 && isCluster(sides[0]) {
				annotate(event, AuditClusterAnnotation, string(sides[0]))
			} else if len(sides) > 0 {
				var names []string
				for _, side := range sides {
					names = append(names, string(side))
				}
				annotate(event, AuditSideAnnotation, strings.Join(names, ","))
			}
		}
		if e.took.decision != "" {
			annotate(event, "authorization.k8s.io/decision", e.took.decision)
			annotate(event, "authorization.k8s.io/reason", e.took.reason)
		}
		if e.finished {
			e.fill(event)
		}
		if e.queue != nil {
			e.enqueue(event)
			continue
		}
		written = e.write(event) == nil && written
	}
	return written
}

// fill puts into an event what the bodies say, as far as the policy wants it.
func (e *record) fill(event *auditinternal.Event) {
	read := func(name string, c *capture, header http.Header, wanted bool) []byte {
		if c == nil {
			return nil
		}
		text, err := e.readable(c, header)
		switch tooLarge := (*http.MaxBytesError)(nil); {
		case !wanted:
		case errors.As(err, &tooLarge):
			annotate(event, auditTruncated, "true")
		case err != nil:
			annotate(event, auditUnread, fmt.Sprintf("%s: %v", name, err))
		}
		return text
	}
	wantsBody := event.Level.GreaterOrEqual(auditinternal.LevelRequest)
	body := read("request", e.body, http.Header{"Content-Type": {e.kind}}, wantsBody)
	if body != nil && event.ObjectRef != nil && (e.verb == "create" || e.verb == "update") {
		var object merge.Meta
		if utiljson.Unmarshal(body, &object) == nil { // as API servers: a "Name" is not the name
			o, m := event.ObjectRef, object.Metadata
			if o.Name == "" {
				o.Name = m.Name
			}
			if o.Namespace == "" {
				o.Namespace = m.Namespace
			}
			o.UID, o.ResourceVersion = types.UID(m.UID), m.ResourceVersion
		}
	}
	if body != nil && wantsBody {
		event.RequestObject = &runtime.Unknown{Raw: body, ContentType: runtime.ContentTypeJSON}
	}
	wantsAnswer := event.Level.GreaterOrEqual(auditinternal.LevelRequestResponse)
	answer := read("response", e.answer, e.header, wantsAnswer)
	if answer == nil {
		return
	}
	var status metav1.Status
	if json.Unmarshal(answer, &status) == nil && status.Kind == "Status" && status.APIVersion == "v1" {
		event.ResponseStatus = &metav1.Status{Status: status.Status, Message: status.Message, Reason: status.Reason,
			Details: status.Details, Code: int32(e.code)}
	}
	if wantsAnswer {
		event.ResponseObject = &runtime.Unknown{Raw: answer, ContentType: runtime.ContentTypeJSON}
	}
}

// readable is a body as JSON, nil for an empty one. Errors: *http.MaxBytesError; what is not read.
func (e *record) readable(c *capture, header http.Header) ([]byte, error) {
	body, err := c.bytes()
	if err != nil || len(body) == 0 {
		return nil, err
	}
	switch coding := header.Get("Content-Encoding"); coding {
	case "", "identity":
	case "gzip":
		in, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, errors.New("the body is no gzip")
		}
		if body, err = readAll(e.ctx, in, c.limit, c.memory); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("of content encoding %q", coding)
	}
	media, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if header.Get("Content-Type") == "" {
		media, err = "application/json", nil
	}
	switch {
	case err != nil:
		return nil, errors.New("of a content type that cannot be read")
	case media == "application/json" || strings.HasSuffix(media, "+json"):
		if !json.Valid(body) { // by json.RawMessage it would be no event any more
			return nil, errors.New("not JSON")
		}
	case media == "application/yaml" || media == applyPatch:
		if err := c.memory.Grow(e.ctx, yamlBytes(body)); err != nil {
			return nil, err
		}
		leave := e.work()
		body, _, err = readYAML(body)
		if leave(); err != nil {
			return nil, errors.New("not YAML")
		}
	default:
		if body, err = e.decoded(media, body, c.memory); err != nil {
			return nil, err
		}
	}
	if !e.config.OmitManagedFields {
		return body, nil
	}
	if err := c.memory.Grow(e.ctx, jsontext.DecodedBytes(body)); err != nil {
		return nil, err
	}
	return withoutManagedFields(body)
}

// work waits for a turn of the share, until it has one: no user hides what is recorded behind other requests.
func (e *record) work() (leave func()) {
	leave, err := e.own.workers.take(context.WithoutCancel(e.ctx), 0)
	if err != nil {
		panic("gateway: internal error: " + err.Error())
	}
	return leave
}

// decoded is a body in a binary form, as JSON.
func (e *record) decoded(media string, body []byte, memory *webserver.Reservation) ([]byte, error) {
	const copies = 72 // of the message, as values of Go and as text: an empty map is a byte of it
	needed := copies * int64(len(body))
	if media == runtime.ContentTypeProtobuf {
		var err error
		if needed, err = convert.ProtobufBytes(body); err != nil {
			return nil, err
		}
	}
	if err := memory.Grow(e.ctx, needed); err != nil {
		return nil, err
	}
	defer e.work()()
	switch media {
	case runtime.ContentTypeProtobuf:
		object, err := e.converter.DecodeProtobuf(body)
		if err != nil {
			return nil, errors.New("a message of protobuf of an unknown kind, or with an unknown field")
		}
		return json.Marshal(object.Object)
	case runtime.ContentTypeCBOR, applyPatchCBOR:
		var value any
		if err := direct.Unmarshal(body, &value); err != nil {
			return nil, errors.New("not CBOR")
		}
		return json.Marshal(value)
	}
	return nil, fmt.Errorf("of content type %q", media)
}

// withoutManagedFields leaves out the owners of fields, of an object, a list, or the objects in a Table.
func withoutManagedFields(body []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	omit := func(object any) {
		fields, _ := object.(map[string]any)
		metadata, _ := fields["metadata"].(map[string]any)
		delete(metadata, "managedFields")
	}
	omit(value)
	fields, _ := value.(map[string]any)
	for _, name := range []string{"items", "rows"} {
		list, _ := fields[name].([]any)
		for _, item := range list {
			omit(item)
			row, _ := item.(map[string]any)
			omit(row["object"])
		}
	}
	return json.Marshal(value)
}

// capture holds what passes of a body, up to a limit, in memory of the gateway's budget.
type capture struct {
	limit    int64
	ctx      context.Context
	memory   *webserver.Reservation
	mu       sync.Mutex // a transport may still read a request when it is answered
	text     []byte
	reserved int64
	err      error // why it is not whole
}

func (e *record) capture(limit int64) *capture {
	c := &capture{limit: limit, ctx: context.Background(), memory: e.memory.Reserve()}
	if e.own != nil {
		c.memory = e.own.memory.Reserve().Another(e.own.bodies)
	}
	return c
}

func (c *capture) add(p []byte) {
	if c == nil || len(p) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	if int64(len(c.text)+len(p)) > c.limit {
		c.text, c.err = nil, &http.MaxBytesError{Limit: c.limit}
		return
	}
	// Twice, because what grows is copied.
	if more := 2*int64(len(c.text)+len(p)) - c.reserved; more > 0 {
		const piece = 64 << 10
		more = max(more, piece)
		if err := c.memory.Grow(c.ctx, more); err != nil {
			c.text, c.err = nil, err
			return
		}
		c.reserved += more
	}
	c.text = append(c.text, p...)
}

func (c *capture) bytes() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text, c.err
}

func (c *capture) release() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text, c.err = nil, context.Canceled // what still comes is not held
	c.memory.Release()
}

// captured is a body of which a capture gets what is read.
type captured struct {
	io.ReadCloser
	into *capture
}

// Read implements io.Reader.
func (c *captured) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.into.add(p[:n])
	return n, err
}

// by notes whose answer the answer is. Both sides may refuse at once: then it is that of either.
func (t *took) by(sides ...pair.Side) {
	t.decided.Lock()
	defer t.decided.Unlock()
	t.sides = sides
}
