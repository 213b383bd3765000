package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/gateway/merge"
	"github.com/kubefusion/fusionctl/pkg/gateway/routes"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// Options say how the gateway reaches the API servers and what it lets its clients do.
type Options struct {
	// Legacy and Modern lead to the API servers, with the gateway's own identity: it reads what they serve and reviews
	// tokens. Legacy is nil where that side is retired.
	Legacy, Modern *rest.Config
	// Clusters lead to further API servers, by the names that they have in paths, each with an identity that may
	// impersonate users and groups there.
	Clusters map[string]*rest.Config
	// ProxyCert and ProxyKey are files: the certificate of a front proxy, which both API servers believe.
	ProxyCert, ProxyKey string
	// Create is the side on which objects are created that each side may have; "" for the modern one.
	Create pair.Side
	// DiscoveryInterval is how often the sides are queried for what they serve. Default: five seconds.
	DiscoveryInterval time.Duration
	// SharedIdentities: a user that one side's token stands for is the user of that name on the other side, too.
	SharedIdentities bool
	// Rules are those of the moment by which custom resources are converted; nil for none.
	Rules func() Rules
	// Policy decides about every request of a known client before anything is forwarded; nil allows all, so that the
	// sides alone decide.
	Policy func() authorizer.Authorizer
	// Requests and Watches bound what one user may have in flight. Defaults: 200 and 2000.
	Requests, Watches int
	// InFlight bounds the requests of all users that are served at a time; more wait for their turn. Default: 400.
	InFlight int
	// Audit says what is recorded of requests; nil for nothing.
	Audit *Audit
	Log   *slog.Logger // nil for none
}

// Gateway is one endpoint over both API servers: an http.Handler behind TLS with optional client certificates.
type Gateway struct {
	plan           *plan.Runtime
	options        Options
	sides          map[pair.Side]*side
	clusters       map[string]*cluster
	authenticators []authenticator.Request
	log            *slog.Logger
	metrics        *metrics
	audit          *auditLog         // nil for none
	flights        flights           // of users
	shares         shares            // of memory
	documents      *webserver.Budget // what documents of both sides take while they are merged
	seats          *seats            // of all users
	watching       atomic.Int64
	infos          request.RequestInfoFactory

	convertingMu sync.Mutex
	converting   *converting
	messages     *convert.Converter // of protobuf

	openAPI2 openAPI2

	known   map[pair.Side]*known // of refresh alone
	current atomic.Pointer[view]
	done    context.Context // ends with the gateway: watches end then
	lasting lasting         // watches of routes

	eventTimeout time.Duration
}

const (
	// limitMemory bounds what lists and objects that are made one hold at a time, for all users.
	limitMemory = 1 << 30
	// limitComponents bounds the same for components: they go on whatever users hold.
	limitComponents = 512 << 20
	// limitClusterMemory bounds the same of all further clusters: one that sends without end is in no side's way.
	limitClusterMemory = 512 << 20
	// limitDocuments bounds what merging documents of OpenAPI takes, which one request does for all.
	limitDocuments = 512 << 20
)

var discard = log.New(io.Discard, "", 0)

// New makes a gateway over the API servers of a plan. Errors: unusable configurations. No server is queried yet.
func New(p *plan.Runtime, o Options, registry prometheus.Registerer) (*Gateway, error) {
	if o.Create == "" {
		o.Create = pair.Modern
	}
	if o.DiscoveryInterval <= 0 {
		o.DiscoveryInterval = 5 * time.Second
	}
	if o.Requests <= 0 {
		o.Requests = 200
	}
	if o.Watches <= 0 {
		o.Watches = 2000
	}
	if o.InFlight <= 0 {
		o.InFlight = 400
	}
	g := &Gateway{plan: p, options: o, sides: map[pair.Side]*side{}, log: o.Log, metrics: newMetrics(registry),
		clusters: map[string]*cluster{}, known: map[pair.Side]*known{}, done: context.Background(),
		eventTimeout: eventTimeout,
		flights:      flights{of: map[string]*flight{}}, documents: webserver.NewBudget(limitDocuments),
		shares: shares{users: webserver.NewBudget(limitMemory), components: webserver.NewBudget(limitComponents),
			beyond: webserver.NewBudget(limitClusterMemory)},
		infos: request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
			GrouplessAPIPrefixes: sets.NewString("api")}}
	g.seats = newSeats(o.InFlight, g.metrics)
	g.converting = &converting{}
	if o.Rules != nil {
		g.converting.rules = o.Rules()
	}
	var err error
	if g.converting.converter, g.converting.conversions, err = Converting(g.converting.rules); err != nil {
		return nil, err
	}
	g.messages = g.converting.converter
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	servers := map[pair.Side]*apiserver.Server{}
	for _, name := range g.names() {
		config := map[pair.Side]*rest.Config{pair.Legacy: o.Legacy, pair.Modern: o.Modern}[name]
		if config == nil {
			return nil, fmt.Errorf("no kubeconfig leads to %s", serverOf(name))
		}
		s, err := newSide(name, config, o.ProxyCert, o.ProxyKey)
		if err != nil {
			return nil, err
		}
		s.headers = believed(p.Side(name))
		s.claims = claimsOf(s.headers, believed(p.Side(name.Other())))
		s.says(p.Side(name).Version)
		g.sides[name], servers[name], g.known[name] = s, s.own, &known{}
	}
	for name, config := range o.Clusters {
		if g.clusters[name], err = newCluster(name, config); err != nil {
			return nil, err
		}
	}
	g.openAPI2 = openAPI2{said: map[pair.Side]*document2{}, merged: map[string]*merged2{}}
	g.authenticators = authenticators(servers, o.SharedIdentities || g.alone()) // no other side has users of its own
	g.audit = newAuditLog(g)
	return g, nil
}

// Run follows what the sides serve until the context ends. Watches end with it, so that their clients go on elsewhere.
func (g *Gateway) Run(ctx context.Context) {
	var following sync.WaitGroup
	for _, c := range g.clusters {
		following.Go(func() { g.followCluster(ctx, c) })
	}
	g.follow(ctx)
	following.Wait()
}

// names are the sides that run.
func (g *Gateway) names() []pair.Side { return g.plan.RunningSides() }

// alone reports whether the legacy side is retired: the modern one serves all, and old versions are converted.
func (g *Gateway) alone() bool { return g.plan.Legacy.Retired }

// at is the server of a name in rows of routes.
func (g *Gateway) at(name pair.Side) *side {
	if s := g.sides[name]; s != nil {
		return s
	}
	return g.clusters[string(name)].side
}

// EndWith lets watches and streams end with the context. It is called before anything is served.
func (g *Gateway) EndWith(ctx context.Context) { g.done = ctx }

// Ready is why the gateway cannot serve at the moment; nil when it can.
func (g *Gateway) Ready() error { return g.ready() }

// exchange is a request of a known client.
type exchange struct {
	id   *identity
	info *request.RequestInfo
	view *view
	took *took
	// long: the answer has no end of its own
	long   bool
	cancel context.CancelFunc // ends an answer that has no end of its own
	done   context.Context    // watches end with it
	own    *share             // of the user; nil where the client is not known
	twice  []string           // what the body says more than once
}

// endless takes the deadlines of the server from a request that is passed on and whose answer has no end of its own;
// each write of a stream has its own where the gateway makes it. What the gateway reads itself keeps them, whatever
// the client asks for: a body that never ends would hold its memory.
func (c *exchange) endless(w http.ResponseWriter) error {
	if !c.long {
		return nil
	}
	control := http.NewResponseController(w)
	return errors.Join(control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{}))
}

// streams reports whether the answer has no end of its own.
func (c *exchange) streams(r *http.Request) bool {
	return c.info.Verb == "watch" || c.proxied() || c.upgrades(r) || c.info.Subresource == "log"
}

// upgraded are the subresources whose connections clients upgrade by other methods than GET.
var upgraded = []string{"exec", "attach", "portforward"}

// upgrades reports whether the connection may be upgraded. API servers write an object, and list objects, whatever the
// header Upgrade says, so that such a request is none: it is recorded, bounded and waits for its turn like any other.
func (c *exchange) upgrades(r *http.Request) bool {
	if r.Header.Get("Upgrade") == "" || !c.info.IsResourceRequest {
		return false
	}
	sub := c.info.Subresource
	return slices.Contains(upgraded, sub) ||
		r.Method == http.MethodGet && sub != "" && !slices.Contains(jsonSubresources, sub)
}

// proxied reports whether the request goes through the API server to another program.
func (c *exchange) proxied() bool {
	return c.info.IsResourceRequest && (c.info.Subresource == "proxy" || c.info.Verb == "proxy")
}

// took is what is counted and recorded of a request.
type took struct {
	route            string
	began            time.Time
	decided          sync.Mutex
	sides            []pair.Side // whose answers the answer is
	decision, reason string      // of the gateway's policy

	// rest copies what is still to come of an answer without end, nil for nothing. It is called when all that it took
	// to begin the answer is off the stack: two thousand watches wait with what they need to wait alone.
	rest func()
	ends []func() // what is done when the request ends, the last one first
}

// end has something done when the request ends.
func (t *took) end(what func()) { t.ends = append(t.ends, what) }

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	counted := &counter{ResponseWriter: w, code: http.StatusOK}
	t := &took{route: "refused", began: time.Now()}
	end, ctx := "aborted", r.Context()
	defer func() { // an answer that breaks off is a panic, by which the client's connection breaks off, too
		if end == "aborted" && ctx.Err() != nil {
			end = "gone"
		}
		for _, each := range slices.Backward(t.ends) {
			each()
		}
		g.metrics.count(t.route, end, time.Since(t.began))
		counted.audit.end(end == "aborted")
	}()
	if err := g.serve(counted, r, t); err != nil {
		if passed := (answered{}); errors.As(err, &passed) {
			t.by(passed.side)
		}
		refuse(counted, err)
	}
	if t.rest != nil {
		t.rest()
	}
	end = strconv.Itoa(counted.code)
}

// serve answers, or returns why it is refused.
func (g *Gateway) serve(w *counter, r *http.Request, t *took) error {
	if err := checkPath(r); err != nil {
		return err
	}
	if err := checkConnection(r); err != nil {
		return err
	}
	switch r.URL.Path {
	case "/healthz", "/livez":
		t.route = "health"
		_, _ = io.WriteString(w, "ok")
		return nil
	case "/readyz":
		t.route = "health"
		if err := g.ready(); err != nil {
			return err
		}
		_, _ = io.WriteString(w, "ok")
		return nil
	}
	inner, view := withoutView(r)
	beyond := ""
	if view == "" {
		inner, beyond = withoutCluster(r)
	}
	info, err := g.infos.NewRequestInfo(inner)
	if err != nil {
		return badRequest("%v", err)
	}
	id, err := g.authenticate(r)
	if err != nil {
		if _, failed := g.audit.begin(w, r, &exchange{info: info}, t); failed != nil {
			return failed
		}
		return err
	}
	c := &exchange{id: id, info: info, view: g.current.Load(), took: t, done: g.done}
	var left func()
	c.own, left = g.shares.of(id.Info)
	t.end(left)
	if r, err = g.audit.begin(w, r, c, t); err != nil {
		return err
	}
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil && !c.proxied() { // an older server reads another one in it
		return badRequest("the query cannot be read: %v", err)
	}
	c.long = c.streams(r)
	limit := g.options.Requests
	if c.long {
		limit = g.options.Watches
	} else {
		var end func()
		w.extension, end = startExtension(w.ResponseWriter, r)
		t.end(end)
	}
	component := isComponent(id.Info)
	leave, err := g.flights.enter(id.GetName(), c.long, limit)
	if err != nil {
		g.metrics.refuses(component, "concurrency-limit")
		return err
	}
	t.end(leave)
	if share := shareOf(id.Info); !c.long && share != id.GetName() {
		leave, err := g.flights.enter(share, false, limit*limitAccounts)
		if err != nil {
			g.metrics.refuses(component, "concurrency-limit")
			return err
		}
		t.end(leave)
	}
	if c.long {
		if err := g.watches(c, component); err != nil {
			g.metrics.refuses(component, "concurrency-limit")
			return err
		}
	}
	if err := g.permit(r, c, view); err != nil {
		return err
	}
	if !c.long {
		leave, err := g.seats.take(r.Context(), shareOf(id.Info), component)
		if err != nil {
			return err
		}
		t.end(g.seats.lend(leave))
	} else {
		ctx, cancel := context.WithCancel(r.Context())
		t.end(cancel)
		stop := context.AfterFunc(g.done, cancel)
		t.end(func() { stop() })
		r, c.cancel = r.WithContext(ctx), cancel
	}
	if view != "" {
		if g.sides[view] == nil {
			return refusal(http.StatusNotFound, metav1.StatusReasonNotFound, "the %s side is retired", view)
		}
		return g.pass(w, r, c, view, "view-"+string(view), viewPrefix(view))
	}
	if beyond != "" {
		inner, _ = withoutCluster(r)
		return g.serveCluster(w, inner, c, beyond)
	}
	if c.view == nil {
		return g.ready()
	}
	return g.dispatch(w, r, c)
}

// pass hands a request on to a side, in the name of its client there.
func (g *Gateway) pass(w http.ResponseWriter, r *http.Request, c *exchange, name pair.Side,
	route, prefix string) error {
	c.route(name, route)
	how := passing{prefix: prefix, proxied: c.proxied()}
	if c.info.Verb == "watch" {
		how.done, w = c.done, timed{w, g.eventTimeout}
	}
	return g.passOver(w, r, c, name, how)
}

func (g *Gateway) passOver(w http.ResponseWriter, r *http.Request, c *exchange, name pair.Side, how passing) error {
	s := g.at(name)
	how.long = c.long
	u, err := s.user(c.id)
	if err == nil {
		err = c.endless(w)
	}
	if err != nil {
		return err
	}
	c.took.by(name)
	if c.long && r.Header.Get("Upgrade") != "" {
		w = halves{w, g.eventTimeout, c.cancel}
	}
	if events := s.pass(w, r, u, how); events != nil {
		c.took.rest = func() { copyEvents(w, events) }
	}
	return nil
}

// route says how a request is served; all ways to a further cluster are one.
func (c *exchange) route(name pair.Side, route string) {
	if isCluster(name) {
		route = "cluster-" + string(name)
	}
	c.took.route = route
}

func viewPrefix(name pair.Side) string { return "/sides/" + string(name) }

// withoutView is the request as the side sees it whose view the path names; "" where it names none.
func withoutView(r *http.Request) (*http.Request, pair.Side) {
	for _, name := range pair.Sides() {
		if rest, ok := strings.CutPrefix(r.URL.Path, viewPrefix(name)); ok && strings.HasPrefix(rest, "/") {
			inner := *r
			at := *r.URL
			at.Path, at.RawPath = rest, ""
			inner.URL = &at
			return &inner, name
		}
	}
	return r, ""
}

// dispatch answers a request of a known client.
func (g *Gateway) dispatch(w http.ResponseWriter, r *http.Request, c *exchange) error {
	if !c.info.IsResourceRequest {
		c.took.route = "page"
		return g.servePage(w, r, c)
	}
	info := c.info
	if c.took.route == "refused" {
		c.took.route = "none"
	}
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	row := c.view.table.Row(gvr)
	if row == nil {
		if side, err := c.view.table.Silent(gvr.GroupVersion()); err != nil {
			return unavailable("%s: discovery failed on %s: %v", gvr.GroupVersion(), called(side), err)
		}
		return notFound(r)
	}
	switch row.Way {
	case routes.None:
		return notImplemented("%s: %s", gvr.GroupResource(), row.Why)
	case routes.Unknown:
		return unavailable("%s: %s", gvr.GroupResource(), row.Why)
	}
	if r.Method == http.MethodOptions || r.Method == http.MethodConnect || r.Method == http.MethodTrace {
		return unsupported("%s is not served", r.Method)
	}
	if row.Way != routes.Both && slices.Contains([]string{"get", "list", "watch"}, info.Verb) {
		query := r.URL.Query()
		if at := query.Get("resourceVersion"); merge.IsComposite(at) {
			return expired("resourceVersion %q is of objects of both sides, which one side alone has now; list them "+
				"again", at)
		}
		if _, err := merge.ParseToken(query.Get("continue")); err == nil {
			return expired("the continue token is of objects of both sides, which one side alone has now; list " +
				"them again")
		}
	}
	if info.Verb == "watch" {
		c.done = g.lasting.as(g.done, row)
		stop := context.AfterFunc(c.done, c.cancel)
		c.took.end(func() { stop() })
	}
	memory := g.reserve(c)
	if isCluster(row.Read) && row.Way != routes.Both {
		memory = c.own.beyond.Reserve()
	}
	c.took.end(memory.Release)
	if row.Way == routes.Both {
		c.took.route = "both"
		return g.serveBoth(w, r, c, row, memory)
	}
	name := row.Side(info.Verb, info.Subresource)
	if name == "" {
		return unsupported("%s of %s is not served: %s", info.Verb, gvr.GroupResource(), row.Why)
	}
	if err := g.heeds(r, info.Subresource, c, memory, name); err != nil {
		return err
	}
	if _, ok := row.As[name]; ok {
		return g.serveConverted(w, r, c, row, name, memory)
	}
	return g.pass(w, r, c, name, string(name), "")
}

// heeds refuses what the version of a side would not understand, and so do something else, or never end.
func (g *Gateway) heeds(r *http.Request, subresource string, c *exchange, memory *webserver.Reservation,
	name pair.Side) error {
	query := r.URL.Query()
	var options []byte
	// An eviction has the options of a deletion in it.
	deletes := r.Method == http.MethodDelete || r.Method == http.MethodPost && subresource == "eviction"
	if deletes && !query.Has("dryRun") && !knowsVersionsOfDeletions(g.at(name).minor()) { // older ones know no dryRun
		var err error
		if options, err = readAll(r.Context(), r.Body, limitOptionsBytes, memory); err != nil {
			return unread(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(options))
		if options, err = g.optionsAsJSON(r, options, memory, c); err != nil {
			return err
		}
	}
	if err := g.heedsOptions(query, options, name); err != nil {
		return err
	}
	if discovery.Flag(query, "sendInitialEvents") && !g.at(name).behaves(kubever.BehaviourWatchListHeeded) {
		return invalid("sendInitialEvents is not served: %s is of version %s, which would not end it; "+
			"list and watch", called(name), g.at(name).minor())
	}
	return nil
}

// optionsAsJSON is a body as JSON, whose words say what its fields are: protobuf has numbers of fields, and YAML spells
// them in many ways.
func (g *Gateway) optionsAsJSON(r *http.Request, body []byte, memory *webserver.Reservation,
	c *exchange) ([]byte, error) {
	kind, _, err := mime.ParseMediaType(cmp.Or(r.Header.Get("Content-Type"), "application/json"))
	switch {
	case len(body) == 0:
		return nil, nil
	case err != nil:
		return nil, badRequest("content type: %v", err)
	case kind == runtime.ContentTypeProtobuf:
		// The same message everywhere, whatever group and version a client writes there.
		var message runtime.Unknown
		var options metav1.DeleteOptions
		if text, is := bytes.CutPrefix(body, []byte("k8s\x00")); is && message.Unmarshal(text) == nil &&
			message.Kind == "DeleteOptions" && options.Unmarshal(message.Raw) == nil {
			return json.Marshal(options)
		}
		return g.protobufToJSON(r.Context(), body, memory, c.own.workers)
	case kind == "application/yaml":
		body, _, err = yamlToJSON(r.Context(), body, memory, c.own.workers)
		return body, err
	}
	return body, nil
}

// heedsOptions refuses what a side's version does not know: a dry run, which it would do, and the resource version that
// what is deleted has to have. options are those of a deletion.
func (g *Gateway) heedsOptions(query url.Values, options []byte, name pair.Side) error {
	dry := query.Has("dryRun")
	for _, word := range []string{"dryRun", "All", `\u`} { // JSON may spell either of them with escapes
		dry = dry || bytes.Contains(options, []byte(word))
	}
	if dry && !g.at(name).behaves(kubever.BehaviourDryRunHeeded) {
		return badRequest("%s is of version %s, which does not know dryRun and would do it", called(name),
			g.at(name).minor())
	}
	tied := bytes.Contains(options, []byte("resourceVersion")) || bytes.Contains(options, []byte(`\u`))
	if tied && !knowsVersionsOfDeletions(g.at(name).minor()) {
		return badRequest("%s is of version %s, which does not know preconditions.resourceVersion and would delete "+
			"what was changed since; preconditions.uid it knows", called(name), g.at(name).minor())
	}
	return nil
}

// knowsVersionsOfDeletions reports whether a release deletes an object only if it has the resource version that the
// options name.
func knowsVersionsOfDeletions(minor kubever.Minor) bool {
	return kubever.Field("meta.v1.Preconditions", "resourceVersion").Has(minor)
}

func invalid(format string, args ...any) error {
	return refusal(http.StatusUnprocessableEntity, "Invalid", format, args...)
}

// servePage answers for what is no resource.
func (g *Gateway) servePage(w http.ResponseWriter, r *http.Request, c *exchange) error {
	path := r.URL.Path
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch {
	case (first == "api" || first == "apis") && strings.Count(strings.TrimSuffix(path, "/"), "/") <= 3:
		return g.serveDiscovery(w, r, c.view)
	case path == "/version":
		return g.pass(w, r, c, c.anySide(), "page", "")
	case path == openAPI2Path:
		return g.serveOpenAPI2(w, r, c, "")
	case path == "/swagger.json" || path == "/swagger-2.0.0.json": // of clients and servers before 1.10
		return g.serveOpenAPI2(w, r, c, jsonType)
	case path == "/swagger-2.0.0.pb-v1":
		return g.serveOpenAPI2(w, r, c, openAPI2Types[0])
	case first == "swaggerapi": // of clients before 1.8; only the legacy side may have it
		side := pair.Legacy
		if c.id.on[side] == nil || g.alone() {
			side = pair.Modern
		}
		return g.pass(w, r, c, side, "page", "")
	case path == "/openapi/v3" || strings.HasPrefix(path, "/openapi/v3/"):
		return g.serveOpenAPI3(w, r, c)
	}
	if g.alone() {
		return notImplemented("%s is not served; /sides/modern%s is", path, path)
	}
	return notImplemented("%s is not served for both sides; /sides/legacy%s and /sides/modern%s are", path, path, path)
}

// anySide is a side that knows the client, the modern one if it does.
func (c *exchange) anySide() pair.Side {
	if _, ok := c.id.on[pair.Modern]; !ok && c.id.on[pair.Legacy] != nil {
		return pair.Legacy
	}
	return pair.Modern
}

const (
	// limitWatchers is how many users may have as many watches as one may have: each namespace has as many users as its
	// developers create service accounts.
	limitWatchers = 10
	// limitAccounts is how many users the service accounts of one namespace count as, for what they have in flight: who
	// may create them has as many as wanted.
	limitAccounts = 2
	// fewWatches is the part of what one user may have that each gets when others have all.
	fewWatches = 20
)

// watches counts an answer that has no end of its own, until the request ends. A few shares may have all that there
// are: others get few all the same, up to a quarter of these. Components have their own bound alone, for there are as
// many as there are nodes. Errors: 429 where there are too many.
func (g *Gateway) watches(c *exchange, component bool) error {
	count := func(of *atomic.Int64) int {
		c.took.end(func() { of.Add(-1) })
		return int(of.Add(1))
	}
	busy := func(limit int, whose string) error {
		refused := refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
			"%d watches and streams of %s are in flight", limit, whose)
		refused.ErrStatus.Details = unavailableDetails()
		return refused
	}
	own, limit := count(&c.own.watching), g.options.Watches*limitAccounts
	if own > limit {
		return busy(limit, shareOf(c.id.Info))
	}
	if component {
		return nil
	}
	all, few := g.options.Watches*limitWatchers, max(1, g.options.Watches/fewWatches)
	if in := count(&g.watching); in > all && (own > few || in > all+all/4) {
		return busy(all, "all users")
	}
	return nil
}

// flights bounds what each user, or each address, has in flight.
type flights struct {
	mu sync.Mutex
	of map[string]*flight
}

type flight struct{ short, long int }

func (f *flights) enter(name string, long bool, limit int) (leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.of[name]
	if at == nil {
		at = &flight{}
		f.of[name] = at
	}
	count := &at.short
	if long {
		count = &at.long
	}
	if *count >= limit {
		busy := refusal(http.StatusTooManyRequests, "TooManyRequests", "%d requests of %s are in flight", limit, name)
		busy.ErrStatus.Details = unavailableDetails()
		return nil, busy
	}
	*count++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if *count--; at.short+at.long == 0 {
			delete(f.of, name)
		}
	}, nil
}
