package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/convert/client"
	"github.com/kubefusion/fusionctl/pkg/convert/negotiate"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/gateway/routes"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// view is the result of the last discovery of both sides.
type view struct {
	table     *routes.Table
	documents *routes.Documents
	live      map[pair.Side]*client.Live // in which versions each side has a kind
	served    map[pair.Side]*discovery.Result

	mu         sync.Mutex
	aggregated map[string]*page // documents that are made when a client asks for the first of them
}

// page is a document as it is sent, and the tag by which clients see that theirs is the same.
type page struct {
	body []byte
	tag  string
}

func newPage(document any) (*page, error) {
	body, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	return &page{body, `"` + strings.ToUpper(hex.EncodeToString(sum[:])) + `"`}, nil
}

// aggregatedPage is the aggregated document of a version, which has a megabyte: of the core group, or of all others.
func (v *view) aggregatedPage(core bool, version string) (*page, error) {
	key := fmt.Sprint(core, version)
	v.mu.Lock()
	defer v.mu.Unlock()
	if p := v.aggregated[key]; p != nil {
		return p, nil
	}
	list := v.documents.Aggregated(core)
	list.APIVersion = "apidiscovery.k8s.io/" + version
	p, err := newPage(list)
	if err != nil {
		return nil, err
	}
	if v.aggregated == nil {
		v.aggregated = map[string]*page{}
	}
	v.aggregated[key] = p
	return p, nil
}

// known is the last discovery result of a side.
type known struct {
	served routes.Served
	has    bool
	err    error // why what it said is not of now; nil when it is
}

// follow asks the sides again and again what they serve.
func (g *Gateway) follow(ctx context.Context) {
	ticker := time.NewTicker(g.options.DiscoveryInterval)
	defer ticker.Stop()
	for {
		g.refresh(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// refresh asks the sides what they serve. A side that does not say all of it keeps what it said before.
func (g *Gateway) refresh(ctx context.Context) {
	var group sync.WaitGroup
	for _, s := range g.sides {
		group.Go(func() { g.refreshSide(ctx, s) })
	}
	group.Wait()
	if ctx.Err() != nil {
		return
	}
	converts := g.converts()
	sources := routes.Sources{Conversions: converts.conversions}
	v := &view{live: map[pair.Side]*client.Live{}, served: map[pair.Side]*discovery.Result{}}
	stale := map[pair.Side]bool{}
	for name, k := range g.known {
		if !k.has {
			return
		}
		*sources.Of(name), stale[name], v.served[name] = k.served, k.err != nil, k.served.Result
		v.live[name] = client.Fixed(negotiate.Of(serverOf(name), k.served.Result), converts.converter)
	}
	v.table = routes.New(g.plan, sources)
	v.documents = v.table.Documents(stale)
	g.current.Store(v)
	g.lasting.end(v.table)
}

func (g *Gateway) refreshSide(ctx context.Context, s *side) {
	k := g.known[s.name]
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	served, err := Served(ctx, s.own, g.plan.Side(s.name).Version)
	if err == nil && served.Unready != nil && !errors.Is(served.Unready, discovery.ErrForbidden) {
		err = served.Unready // what single groups do not say is in the table
	}
	was := k.err
	if k.err = err; err != nil {
		if was == nil {
			g.log.Error("discovery failed; previous results stay in use", "side", s.name, "err", err)
		}
		g.metrics.stale.WithLabelValues(string(s.name)).Set(1)
		return
	}
	if was != nil || !k.has {
		g.log.Info("discovery succeeded", "side", s.name, "version", served.Identity.GitVersion)
	}
	g.metrics.stale.WithLabelValues(string(s.name)).Set(0)
	k.served, k.has = served, true
}

// ready is why the gateway cannot serve at the moment.
func (g *Gateway) ready() error {
	if g.current.Load() == nil {
		return unavailable("discovery of the API servers has not succeeded yet")
	}
	return nil
}

// serveDiscovery answers for /api, /apis and below.
func (g *Gateway) serveDiscovery(w http.ResponseWriter, r *http.Request, v *view) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return unsupported("want GET")
	}
	segments := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	core := segments[0] == "api"
	var document any
	switch {
	case len(segments) == 1:
		for _, form := range forms(r) {
			aggregated := form.as == "APIGroupDiscoveryList" && form.group == "apidiscovery.k8s.io" &&
				(form.version == "v2" || form.version == "v2beta1")
			if !aggregated {
				continue
			}
			p, err := v.aggregatedPage(core, form.version)
			if err != nil {
				return err
			}
			p.serve(w, r, "application/json;g=apidiscovery.k8s.io;v="+form.version+";as=APIGroupDiscoveryList")
			return nil
		}
		document = any(v.documents.Groups())
		if core {
			document = v.documents.Core(r.Host)
		}
	case len(segments) == 2 && !core:
		if group := v.documents.Group(segments[1]); group != nil {
			document = group
		}
	default:
		gv := schema.GroupVersion{Version: segments[1]}
		if !core {
			gv = schema.GroupVersion{Group: segments[1], Version: segments[2]}
		}
		list, stale := v.documents.Version(gv)
		if stale {
			return unavailable("discovery of %s failed on a side", gv)
		}
		if list != nil {
			document = list
		}
	}
	if document == nil {
		return notFound(r)
	}
	return serveDocument(w, r, document, "application/json")
}

// serveDocument writes a document with its tag.
func serveDocument(w http.ResponseWriter, r *http.Request, document any, contentType string) error {
	p, err := newPage(document)
	if err != nil {
		return err
	}
	p.serve(w, r, contentType)
	return nil
}

func (p *page) serve(w http.ResponseWriter, r *http.Request, contentType string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("ETag", p.tag)
	w.Header().Set("Vary", "Accept")
	w.Header().Set("Cache-Control", "public")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(p.body))
}

func notFound(r *http.Request) error {
	return refusal(http.StatusNotFound, "NotFound", "nothing serves %s", r.URL.Path)
}

// serveOpenAPI3 answers with the list of documents of OpenAPI v3, and passes requests for one to the side that has it.
// What no side describes of built-in kinds that the gateway serves is described here: in a document of its own, or in
// that of a side.
func (g *Gateway) serveOpenAPI3(w http.ResponseWriter, r *http.Request, c *exchange) error {
	at := openAPI3Path
	paths := map[string]map[string]json.RawMessage{}
	memory := g.reserve(c)
	defer memory.Release()
	var refused error
	for _, name := range g.names() {
		if _, err := c.id.at(name); apierrors.IsForbidden(err) { // of a side that does not know the client
			continue
		}
		a, err := g.sides[name].ask(r.Context(), r, c.id, question{method: http.MethodGet, path: at,
			accept: "application/json"}, limitBytes, memory)
		if err != nil {
			return err
		}
		if a.code == http.StatusNotFound { // before 1.23
			continue
		}
		if a.code == http.StatusForbidden { // so does RBAC say of a path that the version does not have
			refused = answered{a}
			continue
		}
		var list struct{ Paths map[string]json.RawMessage }
		if a.code != http.StatusOK {
			return answered{a}
		}
		if err := json.Unmarshal(a.body, &list); err != nil {
			return unreachable(name, fmt.Errorf("%s: %w", at, err))
		}
		paths[string(name)] = list.Paths
	}
	if len(paths) == 0 { // clients look into OpenAPI v2 then
		return cmp.Or(refused, notFound(r))
	}
	if path := strings.TrimPrefix(r.URL.Path, at+"/"); path != r.URL.Path {
		for _, name := range []pair.Side{pair.Modern, pair.Legacy} {
			if _, ok := paths[string(name)][path]; ok {
				rows := c.view.beyond(name, groupVersionAt(path))
				if _, err := accept(r, false, false); len(rows) > 0 && err == nil {
					return g.serveMore3(w, r, c, name, rows, memory)
				}
				return g.pass(w, r, c, name, "page", "")
			}
		}
		gv := groupVersionAt(path)
		rows := rowsOf(c.view.table, gv)
		if len(rows) == 0 {
			return notFound(r)
		}
		if _, err := accept(r, false, false); err != nil {
			return err
		}
		if err := memory.Grow(r.Context(), weigh(rows)); err != nil {
			return unread(err)
		}
		return serveDocument(w, r, g.openAPI3Of(gv, rows), jsonType)
	}
	all := map[string]json.RawMessage{}
	for _, name := range g.names() { // the modern side's replace the legacy side's
		for path, place := range paths[string(name)] {
			all[path] = place
			if rows := c.view.beyond(name, groupVersionAt(path)); len(rows) > 0 {
				of := sha256.Sum256(place)
				if err := g.place3(all, path, hex.EncodeToString(of[:])+g.tagOf(rows)); err != nil {
					return err
				}
			}
		}
	}
	for _, gv := range c.view.table.Versions() {
		path := "apis/" + gv.String()
		if gv.Group == "" {
			path = "api/" + gv.Version
		}
		if _, ok := all[path]; ok {
			continue
		}
		if rows := rowsOf(c.view.table, gv); len(rows) > 0 {
			if err := g.place3(all, path, g.tagOf(rows)); err != nil {
				return err
			}
		}
	}
	return serveDocument(w, r, map[string]any{"paths": all}, jsonType)
}

// place3 lists a document that is made here.
func (g *Gateway) place3(all map[string]json.RawMessage, path, tag string) error {
	place, err := json.Marshal(map[string]string{"serverRelativeURL": openAPI3Path + "/" + path + "?hash=" + tag})
	all[path] = place
	return err
}

// serveMore3 answers with the document of a side, and with rows of its group version that it does not describe.
func (g *Gateway) serveMore3(w http.ResponseWriter, r *http.Request, c *exchange, name pair.Side, rows []*routes.Row,
	memory *webserver.Reservation) error {
	a, err := g.sides[name].ask(r.Context(), r, c.id, question{method: http.MethodGet, path: r.URL.EscapedPath(),
		accept: jsonType}, limitOpenAPIBytes, memory)
	if err != nil {
		return err
	}
	if a.code != http.StatusOK {
		return answered{a}
	}
	const copies = 2 // in parts, and written again
	if err := memory.Grow(r.Context(), copies*int64(len(a.body))+weigh(rows)); err != nil {
		return unread(err)
	}
	document, err := added(a.body, g.openAPI3Of(rows[0].GroupVersion, rows), "paths", "components", "schemas")
	if err != nil {
		return unreachable(name, fmt.Errorf("%s: %w", r.URL.Path, err))
	}
	c.took.by(name)
	return serveDocument(w, r, document, jsonType)
}

// groupVersionAt is the group version of a document of OpenAPI v3; an empty one for what is none.
func groupVersionAt(path string) schema.GroupVersion {
	switch parts := strings.Split(path, "/"); {
	case len(parts) == 2 && parts[0] == "api":
		return schema.GroupVersion{Version: parts[1]}
	case len(parts) == 3 && parts[0] == "apis":
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}
	}
	return schema.GroupVersion{}
}
