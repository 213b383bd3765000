package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/gateway/routes"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// Options say how the gateway reaches the API servers and what it lets its clients do.
type Options struct {
	// Legacy and Modern lead to the API servers, with the gateway's own identity: it reads what they serve and reviews
	// tokens.
	Legacy, Modern *rest.Config
	// ProxyCert and ProxyKey are files: the certificate of a front proxy, which both API servers believe.
	ProxyCert, ProxyKey string
	// Create is the side on which objects are created that each side may have; "" for the modern one.
	Create pair.Side
	// DiscoveryInterval is how often the sides are asked what they serve. Default: five seconds.
	DiscoveryInterval time.Duration
	// Requests and Watches bound what one user may have in flight. Defaults: 200 and 2000.
	Requests, Watches int
	Log               *slog.Logger // nil for none
}

// Gateway is one endpoint over both API servers: an http.Handler behind TLS with optional client certificates.
type Gateway struct {
	plan           *plan.Runtime
	options        Options
	sides          map[pair.Side]*side
	authenticators []authenticator.Request
	log            *slog.Logger
	metrics        *metrics
	memory         *webserver.Budget
	flights        flights
	infos          request.RequestInfoFactory

	known   map[pair.Side]*known // of refresh alone
	current atomic.Pointer[view]
	done    context.Context // ends with the gateway: watches end then
}

// limitMemory bounds what lists and objects that are made one hold at a time.
const limitMemory = 1 << 30

var discard = log.New(io.Discard, "", 0)

// New makes a gateway over the API servers of a plan. Errors: unusable configurations. No server is asked yet.
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
	g := &Gateway{plan: p, options: o, sides: map[pair.Side]*side{}, log: o.Log, metrics: newMetrics(registry),
		memory: webserver.NewBudget(limitMemory), known: map[pair.Side]*known{}, done: context.Background(),
		flights: flights{users: map[string]*flight{}},
		infos: request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
			GrouplessAPIPrefixes: sets.NewString("api")}}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	servers := map[pair.Side]*apiserver.Server{}
	for name, config := range map[pair.Side]*rest.Config{pair.Legacy: o.Legacy, pair.Modern: o.Modern} {
		s, err := newSide(name, config, o.ProxyCert, o.ProxyKey)
		if err != nil {
			return nil, err
		}
		g.sides[name], servers[name], g.known[name] = s, s.own, &known{}
	}
	g.authenticators = authenticators(servers)
	return g, nil
}

// Run follows what the sides serve until the context ends. Watches end with it, so that their clients go on elsewhere.
func (g *Gateway) Run(ctx context.Context) { g.follow(ctx) }

// EndWith lets watches and streams end with the context. It is called before anything is served.
func (g *Gateway) EndWith(ctx context.Context) { g.done = ctx }

// Ready is why the gateway cannot serve at the moment; nil when it can.
func (g *Gateway) Ready() error { return g.ready() }

// client is who sends a request, and which.
type client struct {
	user user.Info
	info *request.RequestInfo
	view *view
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	counted := &counter{ResponseWriter: w, code: http.StatusOK}
	began := time.Now()
	route := "refused"
	defer func() { g.metrics.count(route, counted.code, time.Since(began)) }()
	var err error
	if route, err = g.serve(counted, r); err != nil {
		refuse(counted, err)
	}
}

// serve answers, or returns why it is refused; route names how for the metrics.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request) (route string, err error) {
	const refused = "refused"
	if err := checkPath(r); err != nil {
		return refused, err
	}
	switch r.URL.Path {
	case "/healthz", "/livez":
		_, _ = io.WriteString(w, "ok")
		return "health", nil
	case "/readyz":
		if err := g.ready(); err != nil {
			return "health", err
		}
		_, _ = io.WriteString(w, "ok")
		return "health", nil
	}
	u, err := g.authenticate(r)
	if err != nil {
		return refused, err
	}
	inner, view := withoutView(r)
	info, err := g.infos.NewRequestInfo(inner)
	if err != nil {
		return refused, badRequest("%v", err)
	}
	long := info.Verb == "watch" || r.Header.Get("Upgrade") != "" || strings.Contains(r.URL.Path, "/proxy") ||
		info.Subresource == "log"
	leave, err := g.flights.enter(u.GetName(), long, g.options)
	if err != nil {
		return refused, err
	}
	defer leave()
	if long { // no deadline of the server's; each write of a stream has its own where the gateway makes it
		control := http.NewResponseController(w)
		if err := errors.Join(control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{})); err != nil {
			return refused, err
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(g.done, cancel)()
		r = r.WithContext(ctx)
	}
	if view != "" {
		g.sides[view].pass(w, r, u, viewPrefix(view))
		return "view-" + string(view), nil
	}
	v := g.current.Load()
	if v == nil {
		return refused, g.ready()
	}
	return g.dispatch(w, r, &client{user: u, info: info, view: v})
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
func (g *Gateway) dispatch(w http.ResponseWriter, r *http.Request, c *client) (route string, err error) {
	if !c.info.IsResourceRequest {
		return "page", g.servePage(w, r, c)
	}
	info := c.info
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	row := c.view.table.Row(gvr)
	if row == nil {
		return "none", notFound(r)
	}
	switch row.Way {
	case routes.None:
		return "none", notImplemented("%s: %s", gvr.GroupResource(), row.Why)
	case routes.Unknown:
		return "none", unavailable("%s: %s", gvr.GroupResource(), row.Why)
	}
	if r.Method == http.MethodOptions || r.Method == http.MethodConnect || r.Method == http.MethodTrace {
		return "none", unsupported("%s is not served", r.Method)
	}
	if row.Way == routes.Both {
		return "both", g.serveBoth(w, r, c, row)
	}
	name := row.Side(info.Verb, info.Subresource)
	if name == "" {
		return "none", unsupported("%s of %s is not served: %s", info.Verb, gvr.GroupResource(), row.Why)
	}
	if err := g.heeds(r, name); err != nil {
		return "none", err
	}
	g.sides[name].pass(w, r, c.user, "")
	return string(name), nil
}

// heeds refuses what the version of a side would not understand, and so do something else, or never end.
func (g *Gateway) heeds(r *http.Request, sides ...pair.Side) error {
	query := r.URL.Query()
	if len(sides) > 1 && query.Get("sendInitialEvents") == "true" {
		// Each side ends its first events for itself: a client would take those of one side for all.
		return invalid("sendInitialEvents is not served for what both sides have: list and watch")
	}
	for _, name := range sides {
		minor := g.plan.Side(name).Version.Minor
		dry, err := query.Has("dryRun"), error(nil)
		if !dry && r.Method == http.MethodDelete && !kubever.Behaves(kubever.BehaviourDryRunHeeded, minor) {
			if dry, err = dryDelete(r); err != nil {
				return err
			}
		}
		if dry && !kubever.Behaves(kubever.BehaviourDryRunHeeded, minor) {
			return badRequest("the %s side is of version %s, which does not know dryRun and would do it",
				name, g.plan.Side(name).Version)
		}
		if query.Get("sendInitialEvents") == "true" && !kubever.Behaves(kubever.BehaviourWatchListHeeded, minor) {
			return invalid("sendInitialEvents is not served: the %s side is of version %s, which would not end it; "+
				"list and watch", name, g.plan.Side(name).Version)
		}
	}
	return nil
}

// dryDelete reports whether the options in the body of a deletion may ask for a dry run.
func dryDelete(r *http.Request) (bool, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, limitBytes+1))
	if err != nil || len(body) > limitBytes {
		return false, badRequest("the options of the deletion cannot be read")
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return bytes.Contains(body, []byte("dryRun")) || bytes.Contains(body, []byte("All")), nil
}

func invalid(format string, args ...any) error {
	return refusal(http.StatusUnprocessableEntity, "Invalid", format, args...)
}

// servePage answers for what is no resource.
func (g *Gateway) servePage(w http.ResponseWriter, r *http.Request, c *client) error {
	path := r.URL.Path
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch {
	case (first == "api" || first == "apis") && strings.Count(strings.TrimSuffix(path, "/"), "/") <= 3:
		return g.serveDiscovery(w, r, c.view)
	case path == "/version":
		g.sides[pair.Modern].pass(w, r, c.user, "")
		return nil
	case path == "/openapi/v3" || strings.HasPrefix(path, "/openapi/v3/"):
		return g.serveOpenAPI3(w, r, c)
	}
	return notImplemented("%s is not served for both sides; /sides/legacy%s and /sides/modern%s are", path, path, path)
}

// flights bounds what each user has in flight.
type flights struct {
	mu    sync.Mutex
	users map[string]*flight
}

type flight struct{ short, long int }

func (f *flights) enter(name string, long bool, o Options) (leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.users[name]
	if at == nil {
		at = &flight{}
		f.users[name] = at
	}
	count, limit := &at.short, o.Requests
	if long {
		count, limit = &at.long, o.Watches
	}
	if *count >= limit {
		busy := refusal(http.StatusTooManyRequests, "TooManyRequests", "%d requests of this user are in flight", limit)
		busy.ErrStatus.Details = unavailableDetails()
		return nil, busy
	}
	*count++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if *count--; at.short+at.long == 0 {
			delete(f.users, name)
		}
	}, nil
}
