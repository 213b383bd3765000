package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/convert/client"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/gateway/merge"
	"github.com/kubefusion/fusionctl/pkg/gateway/routes"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// serveBoth answers for a resource of which each side has objects of its own.
func (g *Gateway) serveBoth(w http.ResponseWriter, r *http.Request, c *exchange, row *routes.Row,
	memory *webserver.Reservation) error {
	info := c.info
	if info.Subresource == "" && !slices.Contains(row.Verbs, info.Verb) {
		return unsupported("%s of %s is not served for both sides at once; /sides/legacy and /sides/modern serve it",
			info.Verb, row.GroupResource())
	}
	b := &both{Gateway: g, exchange: c, row: row, r: r, query: r.URL.Query(), memory: memory}
	switch {
	case oldWatch(r, c):
		return notImplemented("paths with /watch/ are not served for both sides; watch=true is")
	case discovery.Flag(b.query, "sendInitialEvents"):
		// Each side ends its first events for itself: a client would take those of one side for all.
		return invalid("sendInitialEvents is not served for what both sides have: list and watch")
	case b.query.Has("shardSelector"):
		// A side that does not know it, as most do not, would list, or delete, everything.
		return invalid("shardSelector is not served for what both sides have")
	case info.Verb == "watch":
		return b.watch(w)
	case info.Verb == "list":
		return b.list(w)
	case info.Verb == "create" && info.Subresource == "" && info.Name == "":
		return b.create(w)
	case info.Verb == "deletecollection" && info.Subresource == "":
		return b.deleteCollection(w)
	case info.Name == "":
		return unsupported("%s wants a name", info.Verb)
	case info.Verb == "get" && info.Subresource == "":
		return b.get(w)
	}
	return b.change(w)
}

// both is one request for objects of both sides.
type both struct {
	*Gateway
	*exchange
	row    *routes.Row
	r      *http.Request
	query  url.Values
	memory *webserver.Reservation
}

// accepts is the form in which the client is answered. Tables and metadata alone are made here of what a side does not
// answer with so.
func (b *both) accepts() (string, error) { return accept(b.r, true, true) }

// transforms reports whether the side answers with Tables and metadata alone.
func (b *both) transforms(name pair.Side) bool {
	return b.sides[name].behaves(kubever.BehaviourMetadataAnswered)
}

// reduces reports whether metadata alone is to be made of what the side answers with.
func (b *both) reduces(name pair.Side, form string) bool {
	return isMetadata(form) && !b.transforms(name)
}

// makesTable reports whether a Table is to be made of what the side answers with.
func (b *both) makesTable(name pair.Side, form string) bool {
	return strings.Contains(form, tableForm) && !b.transforms(name)
}

// makes is how what the side answers with becomes what the client gets in the form; nil where it is that already.
func (b *both) makes(name pair.Side, form string) func([]byte) ([]byte, error) {
	switch {
	case b.reduces(name, form):
		return merge.MetadataAlone
	case b.makesTable(name, form):
		return func(object []byte) ([]byte, error) { return b.tableOf(object, false, form) }
	}
	return nil
}

// formOf is the form in which a side is queried for what the client gets in the form.
func (b *both) formOf(name pair.Side, form string) string {
	if b.makes(name, form) != nil {
		return "application/json"
	}
	return form
}

// each asks some sides at the same time.
func (b *both) each(names []pair.Side, question func(pair.Side) question, limit int64) (map[pair.Side]*answer,
	map[pair.Side]error) {
	answers, errs := make([]*answer, len(names)), make([]error, len(names))
	var group errgroup.Group
	for i, name := range names {
		// A reservation grows in one place at a time, so each question has its own; they are let go together.
		group.Go(func() error {
			defer b.spare(name, func(err error) { errs[i] = err })
			memory := b.reserve(b.exchange)
			context.AfterFunc(b.r.Context(), memory.Release)
			answers[i], errs[i] = b.put(name, question(name), limit, memory)
			return nil
		})
	}
	_ = group.Wait() // it returns what the functions do
	got, failed := map[pair.Side]*answer{}, map[pair.Side]error{}
	for i, name := range names {
		if errs[i] != nil {
			failed[name] = errs[i]
		} else {
			got[name] = answers[i]
		}
	}
	return got, failed
}

// put sends a request to a side, in the version that it serves.
func (b *both) put(name pair.Side, q question, limit int64, memory *webserver.Reservation) (*answer, error) {
	q.over = b.conversion(b.exchange, b.row, name, memory)
	return b.sides[name].ask(b.r.Context(), b.r, b.id, q, limit, memory)
}

// list merges the lists of both sides. Unless both are whole it is an error: half of a list looks like all of it.
func (b *both) list(w http.ResponseWriter) error {
	form, err := b.accepts()
	if err != nil {
		return err
	}
	names, ask, token, err := b.parts(form)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", form)
	w.Header().Set("Cache-Control", "no-cache, private")
	if strings.Contains(form, tableForm) {
		return b.tables(w, names, form, ask, token)
	}
	return b.stream(w, names, form, ask, token)
}

// parts are the sides that have something of what the query lists, and what each is asked for its part.
func (b *both) parts(form string) (names []pair.Side, ask func(pair.Side) question, token merge.Token, err error) {
	query := maps.Clone(b.query)
	names = pair.Sides()
	if text := query.Get("continue"); text != "" {
		if token, err = merge.ParseToken(text); err != nil {
			return nil, nil, token, badRequest("%v", err)
		}
		names = slices.DeleteFunc(names, func(name pair.Side) bool { return token.Of(name) == "" })
	}
	version, err := b.version(query)
	if err != nil {
		return nil, nil, token, err
	}
	limit, err := strconv.ParseInt(cmp.Or(query.Get("limit"), "0"), 10, 64)
	if err != nil || limit < 0 {
		return nil, nil, token, badRequest("limit %q: want a number", query.Get("limit"))
	}
	if match := query.Get("resourceVersionMatch"); match == string(metav1.ResourceVersionMatchExact) {
		if version != (merge.Version{}) && (version.Legacy == "" || version.Modern == "") {
			return nil, nil, token, invalid("resourceVersion %q is of one object: no list is exactly at it", version)
		}
		for _, name := range names {
			if !b.sides[name].behaves(kubever.BehaviourListMatchHeeded) {
				return nil, nil, token, invalid("resourceVersionMatch=Exact is not served: %s is of version %s, which "+
					"would list what is newer", called(name), b.sides[name].minor())
			}
		}
	}
	share := limit/int64(len(names)) + min(limit%int64(len(names)), 1)
	ask = func(name pair.Side) question {
		q := maps.Clone(query)
		q.Del("continue")
		set(q, "limit", share, limit > 0)
		q.Del("resourceVersion")
		if at := token.Of(name); at != "" {
			q.Set("continue", at)
		} else if at := version.Of(name); at != "" {
			q.Set("resourceVersion", at)
		} else if version != (merge.Version{}) { // that of an object of the other side
			q.Del("resourceVersionMatch")
		}
		return question{method: http.MethodGet, path: b.r.URL.EscapedPath(), query: q, accept: b.formOf(name, form)}
	}
	return names, ask, token, nil
}

// tables merges the Tables of both sides, which are held whole: what columns there are says each of them.
func (b *both) tables(w http.ResponseWriter, names []pair.Side, form string, ask func(pair.Side) question,
	token merge.Token) error {
	answers, errs := b.each(names, ask, limitListBytes)
	tables := make([]*merge.Table, 0, len(names))
	turn := &turn{workers: b.own.workers} // none is held while memory is waited for
	defer turn.end()
	for _, name := range names {
		if err := errs[name]; err != nil {
			return err
		}
		a := answers[name]
		if a.code != http.StatusOK {
			return b.partly(a)
		}
		if b.makesTable(name, form) {
			var err error
			if a.body, err = b.tabled(a.body, true, form); err != nil {
				return unreachable(name, err)
			}
		}
		if err := turn.begin(b.r.Context(), turn.wait); err != nil {
			return err
		}
		text, err := merge.ReadText(a.body)
		turn.end()
		if err != nil {
			return unreachable(name, err)
		}
		if err := b.memory.Grow(b.r.Context(), text.HeldBytes()); err != nil {
			return unavailable("the list of the %s side: %v", name, err)
		}
		if err := turn.begin(b.r.Context(), turn.wait); err != nil {
			return err
		}
		t, err := merge.ParseTable(text, name)
		turn.end()
		if err != nil {
			return unreachable(name, err)
		}
		tables = append(tables, t)
		addWarnings(w, a.header)
	}
	if err := b.memory.Grow(b.r.Context(), merge.MergedBytes(tables)); err != nil {
		return unavailable("merging the lists of the two sides: %v", err)
	}
	if err := turn.begin(b.r.Context(), turn.wait); err != nil {
		return err
	}
	body, err := merge.Tables(tables, token)
	turn.end()
	if err != nil {
		return unavailable("merging the lists of the two sides: %v", err)
	}
	b.took.by(pair.Sides()...)
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body) // a client that is gone
	return nil
}

func addWarnings(w http.ResponseWriter, from http.Header) {
	for _, warning := range from.Values("Warning") {
		w.Header().Add("Warning", warning)
	}
}

// stream merges the lists of both sides while they come. What has begun to be written can only be broken off.
func (b *both) stream(w http.ResponseWriter, names []pair.Side, form string, ask func(pair.Side) question,
	token merge.Token) error {
	ctx, cancel := context.WithTimeout(b.r.Context(), 2*answerTimeout)
	defer cancel()
	streams, errs := make([]*merge.Stream, len(names)), make([]error, len(names))
	headers, bodies := make([]http.Header, len(names)), make([]io.ReadCloser, len(names))
	defer func() {
		for _, body := range bodies {
			if body != nil {
				body.Close()
			}
		}
	}()
	var group sync.WaitGroup
	turn := &turn{workers: b.own.workers}
	defer turn.end()
	for i, name := range names {
		memory := b.reserve(b.exchange) // one for each: it grows in one place at a time
		b.took.end(memory.Release)
		group.Go(func() {
			defer b.spare(name, func(err error) { errs[i] = err })
			if bodies[i], headers[i], errs[i] = b.opened(ctx, name, ask(name), memory); errs[i] != nil {
				return
			}
			grow := func(more int64) error { return memory.Grow(ctx, more) }
			read := merge.NewStream
			if b.reduces(name, form) {
				read = merge.NewMetadataStream
			}
			bodies[i] = &pieces{ReadCloser: bodies[i], ctx: ctx, turn: turn}
			if streams[i], errs[i] = read(bodies[i], name, grow); errs[i] != nil {
				errs[i] = unreachable(name, errs[i])
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	for _, header := range headers {
		addWarnings(w, header)
	}
	b.took.by(pair.Sides()...)
	if err := turn.begin(ctx, turn.wait); err != nil {
		return err
	}
	for _, body := range bodies {
		body.(*pieces).merged = true
	}
	out := &begun{ResponseWriter: w, ctx: ctx, turn: turn}
	if err := merge.Streams(out, streams, token); err != nil {
		if out.begun && out.err == nil {
			b.log.Warn("merged list aborted", "path", b.info.Path, "err", webserver.Brief(err))
		}
		if out.begun {
			panic(http.ErrAbortHandler)
		}
		return unavailable("merging the lists of the two sides: %v", err)
	}
	return nil
}

// begun knows whether something was written, and why it could not be. The turn ends while it is written.
type begun struct {
	http.ResponseWriter
	ctx   context.Context
	turn  *turn
	begun bool
	err   error
}

// Write implements io.Writer.
func (b *begun) Write(p []byte) (n int, err error) {
	b.begun = true
	b.turn.end()
	if n, b.err = b.ResponseWriter.Write(p); b.err == nil {
		b.err = b.turn.begin(b.ctx, 0)
	}
	return n, b.err
}

// pieces is a side's list. While it is merged, the turn ends for as long as a piece of it takes to come.
type pieces struct {
	io.ReadCloser
	ctx    context.Context
	turn   *turn
	merged bool
}

// Read implements io.Reader.
func (p *pieces) Read(into []byte) (int, error) {
	if !p.merged {
		return p.ReadCloser.Read(into)
	}
	p.turn.end()
	n, err := p.ReadCloser.Read(into)
	if late := p.turn.begin(p.ctx, 0); late != nil {
		return n, late
	}
	return n, err
}

// opened is the body of a side's list. What is converted is held whole: what it loses is said before it.
func (b *both) opened(ctx context.Context, name pair.Side, q question,
	memory *webserver.Reservation) (io.ReadCloser, http.Header, error) {
	var a *answer
	if q.over = b.conversion(b.exchange, b.row, name, memory); q.over != nil {
		var err error
		if a, err = b.sides[name].ask(ctx, b.r, b.id, q, limitListBytes, memory); err != nil {
			return nil, nil, err
		}
	} else {
		response, err := b.sides[name].send(ctx, b.r, b.id, q)
		if err != nil {
			return nil, nil, err
		}
		if response.StatusCode == http.StatusOK {
			return response.Body, response.Header, nil
		}
		defer response.Body.Close()
		body, err := readAll(ctx, response.Body, limitStatusBytes, memory)
		if err != nil {
			return nil, nil, unreachable(name, err)
		}
		if response.StatusCode == http.StatusUnauthorized {
			return nil, nil, b.sides[name].unbelieved()
		}
		a = &answer{name, response.StatusCode, response.Header, body}
	}
	if a.code != http.StatusOK {
		return nil, nil, b.partly(a)
	}
	return io.NopCloser(bytes.NewReader(a.body)), a.header, nil
}

func set(q url.Values, name string, value int64, on bool) {
	q.Del(name)
	if on {
		q.Set(name, strconv.FormatInt(value, 10))
	}
}

// version is the resource version that a client asks for. One of an API server is expired: a client may have read it
// when one side alone had such objects, and lists again when it hears so.
func (b *both) version(query url.Values) (merge.Version, error) {
	version, err := merge.ParseVersion(query.Get("resourceVersion"))
	switch {
	case errors.Is(err, merge.ErrForeignVersion):
		return version, expired("resourceVersion %v: both sides have such objects now; list them again", err)
	case err != nil:
		return version, invalid("resourceVersion: %v: it is that of a list or an object that was read here", err)
	}
	return version, nil
}

// limitText bounds what is shown of an answer that is no Status.
const limitText = 1 << 10

// partly is the error when one side refuses its part: its own Status, naming the side. A continue token in it
// would go on with that side's part alone.
func (b *both) partly(a *answer) error {
	b.took.by(a.side)
	if a.lacksPath() {
		return unavailable("the %s API server does not serve %s yet, or no more", a.side, b.row.GroupResource())
	}
	var status metav1.Status
	if json.Unmarshal(a.body, &status) != nil || status.Kind != "Status" || status.Status != metav1.StatusFailure {
		if a.code < 400 || a.code >= 500 {
			return unavailable("the %s API server answers %d", a.side, a.code)
		}
		// Old releases refuse some requests with a text alone, as who may not speak for others before 1.7.
		text := strings.ToValidUTF8(strings.Join(strings.Fields(string(a.body[:min(len(a.body), limitText)])), " "), "")
		of := apierrors.NewGenericServerResponse(a.code, "", schema.GroupResource{}, "", "", 0, false)
		return refusal(a.code, of.ErrStatus.Reason, "the %s side: %s", a.side, text)
	}
	refused := refusal(a.code, status.Reason, "the %s side: %s", a.side, status.Message)
	refused.ErrStatus.Details = status.Details
	return refused
}

func (b *both) get(w http.ResponseWriter) error {
	form, err := b.accepts()
	if err != nil {
		return err
	}
	uid, err := b.uidSelected()
	if err != nil {
		return err
	}
	p, err := b.locate(form, uid, false)
	if err != nil {
		return err
	}
	return b.show(w, p.answer)
}

// show writes a side's answer as clients of both sides see it.
func (b *both) show(w http.ResponseWriter, a *answer) error {
	b.took.by(a.side)
	body := a.body
	if a.isJSON() && len(body) > 0 {
		shown, _, err := merge.Read(body, a.side, merge.Version{})
		if err != nil {
			return unfinished(a.side, b.r.Method, err)
		}
		body = shown
	}
	a.copyTo(w, body)
	return nil
}

// jsonSubresources are those whose requests and answers are objects.
var jsonSubresources = []string{"status", "scale", "approval", "finalize"}

// change sends a request about one object to the side that has it.
func (b *both) change(w http.ResponseWriter) error {
	if b.info.Subresource != "" && !slices.ContainsFunc(b.row.Subresources,
		func(s discovery.Subresource) bool { return s.Name == b.info.Subresource }) {
		return notFound(b.r)
	}
	uid, err := b.uidSelected()
	if err != nil {
		return err
	}
	if b.info.Subresource != "" && !slices.Contains(jsonSubresources, b.info.Subresource) {
		p, err := b.locate("", uid, true)
		if err == nil {
			err = b.heeds(b.r, b.info.Subresource, b.exchange, b.memory, p.side)
		}
		if err != nil {
			return err
		}
		return b.pass(w, b.r, b.exchange, p.side, "both", "")
	}
	form, err := accept(b.r, false, false)
	if err != nil {
		return err
	}
	body, kind, err := b.readBody(w, b.r, b.exchange, b.memory)
	if err != nil {
		return err
	}
	var deletion []byte
	if b.r.Method == http.MethodDelete {
		if body, kind, err = b.deletionOf(body, kind, false); err != nil {
			return err
		}
		deletion = body
		var options metav1.DeleteOptions
		if uid == "" && len(body) > 0 && utiljson.Unmarshal(body, &options) == nil && options.Preconditions != nil &&
			options.Preconditions.UID != nil {
			uid = string(*options.Preconditions.UID)
		} else if uid != "" { // it may be deleted, and created again, until the side is asked
			if body, err = tiedTo(uid, body, kind); err != nil {
				return err
			}
			kind = "application/json"
		}
	}
	target := b.row.Creates(b.info.Namespace, b.options.Create)
	reads := b.r.Method == http.MethodGet || b.r.Method == http.MethodHead
	switch p, err := b.locate("", uid, !reads); {
	case err == nil:
		target = p.side
	case b.creates(err, kind):
	default:
		return err
	}
	if err := b.heedsOptions(b.query, deletion, target); err != nil {
		return err
	}
	if err := b.heedsBody(w, body, target); err != nil {
		return err
	}
	if len(body) > 0 {
		if body, err = b.written(body, kind, target); err != nil {
			return err
		}
	}
	q := maps.Clone(b.query)
	q.Del("fieldSelector")
	a, err := b.put(target, question{method: b.r.Method, path: b.r.URL.EscapedPath(),
		query: q, accept: form, contentType: kind, body: body}, limitBytes, b.memory)
	if err != nil {
		return err
	}
	return b.show(w, a)
}

// deletionOf is the body of a deletion. Where it has none it is made of the options in the query, and the query is left
// without them: API servers do not read them there as soon as the gateway adds a body.
func (b *both) deletionOf(body []byte, kind string, collection bool) ([]byte, string, error) {
	if len(body) > 0 {
		return body, kind, nil
	}
	b.query = maps.Clone(b.query)
	options, err := client.OptionsOfDeletion(b.query, collection)
	if err != nil {
		return nil, "", badRequest("%v", err)
	}
	if len(options) == 0 {
		return nil, kind, nil
	}
	body, err = json.Marshal(options)
	return body, jsonType, err
}

// tiedTo adds to the options of a deletion that the object has to have the UID.
func tiedTo(uid string, body []byte, kind string) ([]byte, error) {
	options := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions"}
	if len(body) > 0 {
		if err := utiljson.Unmarshal(body, &options); err != nil || options == nil || kind != "application/json" {
			return nil, badRequest("the options of a deletion by fieldSelector are no object of JSON, YAML or protobuf")
		}
	}
	wanted, ok := options["preconditions"].(map[string]any)
	if options["preconditions"] != nil && !ok {
		return nil, badRequest("preconditions: want an object")
	}
	if wanted == nil {
		wanted = map[string]any{}
	}
	if wanted["uid"] != nil && wanted["uid"] != uid {
		return nil, badRequest("preconditions.uid and fieldSelector are of two objects")
	}
	wanted["uid"] = uid
	options["preconditions"] = wanted
	return json.Marshal(options)
}

// creates reports whether the request creates an object that neither side has: an apply patch does, and for some
// resources a PUT, which the side decides.
func (b *both) creates(err error, kind string) bool {
	passed := answered{}
	if b.info.Subresource != "" || !errors.As(err, &passed) || passed.code != http.StatusNotFound {
		return false
	}
	return b.r.Method == http.MethodPut || b.r.Method == http.MethodPatch && kind == applyPatch
}

// heedsBody refuses a body that the side would read in another way.
func (b *both) heedsBody(w http.ResponseWriter, body []byte, target pair.Side) error {
	err := b.own.workers.do(b.r.Context(), func() error { return b.heedsCase(body, target) })
	if err != nil {
		return err
	}
	return b.judgeTwice(w, b.r, b.exchange, target)
}

// written is a body as the side stores it. Errors: a Status.
func (b *both) written(body []byte, kind string, target pair.Side) (out []byte, err error) {
	err = b.own.workers.do(b.r.Context(), func() error {
		switch out, err = b.writes(body, kind, target); {
		case errors.Is(err, merge.ErrTestFailed):
			return invalid("%v", err)
		case errors.Is(err, merge.ErrForeignVersion) && b.info.Name != "":
			return refusal(http.StatusConflict, metav1.StatusReasonConflict, "%v: the object has to be read again", err)
		case err != nil:
			return badRequest("%v", err)
		}
		return nil
	})
	return out, err
}

func (b *both) writes(body []byte, kind string, target pair.Side) ([]byte, error) {
	if b.r.Method != http.MethodDelete {
		return merge.WritePatch(body, kind, target)
	}
	var options map[string]any
	if err := json.Unmarshal(body, &options); err != nil {
		return nil, err
	}
	if p, ok := options["preconditions"].(map[string]any); ok {
		if text, ok := p["resourceVersion"].(string); ok && text != "" {
			version, err := merge.ParseVersion(text)
			if err != nil {
				return nil, fmt.Errorf("preconditions.resourceVersion: %w", err)
			}
			p["resourceVersion"] = version.Of(target)
		}
	}
	return json.Marshal(options)
}

// create creates an object on the side of the options, or on the one that has taken over those of the other, unless the
// other side has one of that name.
func (b *both) create(w http.ResponseWriter) error {
	form, err := accept(b.r, false, false)
	if err != nil {
		return err
	}
	body, kind, err := b.readBody(w, b.r, b.exchange, b.memory)
	if err != nil {
		return err
	}
	var meta merge.Meta
	err = b.own.workers.do(b.r.Context(), func() error {
		if err := utiljson.Unmarshal(body, &meta); err != nil { // as API servers: a "Name" is not the name
			return badRequest("the object: %v", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	target := b.row.Creates(b.info.Namespace, b.options.Create)
	if err := b.heedsOptions(b.query, nil, target); err != nil {
		return err
	}
	if err := b.heedsBody(w, body, target); err != nil {
		return err
	}
	if name := meta.Metadata.Name; name != "" {
		if problems := content.IsPathSegmentName(name); len(problems) > 0 {
			return invalid("metadata.name %q: %s", name, strings.Join(problems, ", "))
		}
		other := target.Other()
		a, err := b.put(other, question{method: http.MethodGet,
			path: b.r.URL.EscapedPath() + "/" + url.PathEscape(name), accept: "application/json"}, limitBytes, b.memory)
		if err != nil {
			return err
		}
		switch {
		case a.lacksPath():
			return b.partly(a)
		case a.code == http.StatusNotFound:
		case a.code == http.StatusBadRequest: // the side that creates it says what is wrong with the name
		case a.code == http.StatusForbidden:
			return b.unseen(a)
		case a.code == http.StatusOK:
			return refusal(http.StatusConflict, metav1.StatusReasonAlreadyExists, "%s %q already exists on the %s side",
				b.row.GroupResource(), name, other)
		default:
			return b.partly(a)
		}
	}
	if body, err = b.written(body, "application/json", target); err != nil {
		return err
	}
	a, err := b.put(target, question{method: http.MethodPost,
		path: b.r.URL.EscapedPath(), query: b.query, accept: form, contentType: kind, body: body}, limitBytes, b.memory)
	if err != nil {
		return err
	}
	return b.show(w, a)
}
