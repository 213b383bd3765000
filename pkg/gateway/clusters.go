package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/internal/jsontext"
	"github.com/kubefusion/fusionctl/pkg/convert/client"
	"github.com/kubefusion/fusionctl/pkg/convert/negotiate"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/gateway/routes"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// clustersPath begins the paths of further clusters.
const clustersPath = "/clusters/"

// cluster is an API server beyond the pair. It is trusted with nothing but its own objects: it gets no credential of a
// client, and where it sends clients to is below its own path.
type cluster struct {
	*side
	path    string // /clusters/NAME
	current atomic.Pointer[view]
	failing bool // of the one that asks alone
}

// newCluster makes a client of a further API server. Requests of users go to it with the identity of the configuration,
// which impersonates them.
// Errors: an unusable configuration, and one by which another than the server could read the credential.
func newCluster(name string, config *rest.Config) (*cluster, error) {
	if slices.Contains(pair.Sides(), pair.Side(name)) || name == "" || strings.ContainsAny(name, `/%\ `) {
		return nil, fmt.Errorf("cluster %q: the name is that of a side, or cannot be in a path", name)
	}
	if config.Insecure {
		return nil, fmt.Errorf("cluster %q: the kubeconfig does not verify the server (insecure-skip-tls-verify)", name)
	}
	if config.Impersonate.UserName != "" {
		return nil, fmt.Errorf("cluster %q: the kubeconfig impersonates %q; the gateway impersonates its users", name,
			config.Impersonate.UserName)
	}
	c := &cluster{path: clustersPath + name}
	forward := rest.CopyConfig(config)
	forward.WrapTransport, forward.DisableCompression = nil, true
	var err error
	if c.side, err = sideOf(pair.Side(name), config, forward); err != nil {
		return nil, fmt.Errorf("cluster %q: %w", name, err)
	}
	c.beyond = c
	return c, nil
}

// isCluster reports whether a server is none of the pair.
func isCluster(name pair.Side) bool { return !slices.Contains(pair.Sides(), name) }

// serverOf is how messages call an API server.
func serverOf(name pair.Side) string {
	if isCluster(name) {
		return fmt.Sprintf("the API server of cluster %q", string(name))
	}
	return "the " + string(name) + " API server"
}

// called is how messages call a side, or a cluster.
func called(name pair.Side) string {
	if isCluster(name) {
		return fmt.Sprintf("cluster %q", string(name))
	}
	return "the " + string(name) + " side"
}

// followCluster asks the cluster again and again what it serves: a slow one delays none of the others.
func (g *Gateway) followCluster(ctx context.Context, c *cluster) {
	ticker := time.NewTicker(g.options.DiscoveryInterval)
	defer ticker.Stop()
	for {
		g.refreshCluster(ctx, c)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// refreshCluster asks the cluster what it serves. When it does not say, what it said before stays in use, marked.
func (g *Gateway) refreshCluster(ctx context.Context, c *cluster) {
	asking, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	result, err := c.own.Discover(asking)
	if err == nil && result.Unready != nil && !errors.Is(result.Unready, discovery.ErrForbidden) {
		err = result.Unready
	}
	if ctx.Err() != nil {
		return
	}
	was := c.current.Load()
	stale := g.metrics.clusters.WithLabelValues(string(c.name))
	if err != nil {
		stale.Set(1)
		if !c.failing {
			g.log.Error("discovery failed; previous results stay in use", "cluster", string(c.name), "err", err)
		}
		c.failing = true
		if was != nil {
			c.current.Store(&view{table: was.table, live: was.live, served: was.served,
				documents: was.table.Documents(map[pair.Side]bool{c.name: true})})
		}
		return
	}
	stale.Set(0)
	if c.failing || was == nil {
		g.log.Info("discovery succeeded", "cluster", string(c.name), "version", result.Identity.GitVersion)
	}
	c.failing = false
	c.says(result.Identity.Version)
	converts := g.converts()
	table := routes.Alone(c.name, result, converts.conversions)
	c.current.Store(&view{table: table, documents: table.Documents(nil), live: map[pair.Side]*client.Live{
		c.name: client.Fixed(negotiate.Of(serverOf(c.name), result), converts.converter)}})
}

// withoutCluster is the request as the cluster sees it that the path names, and the name of the cluster; "" where it
// names none.
func withoutCluster(r *http.Request) (*http.Request, string) {
	rest, ok := strings.CutPrefix(r.URL.Path, clustersPath)
	name, rest, more := strings.Cut(rest, "/")
	if !ok || !more || name == "" {
		return r, ""
	}
	inner := *r
	at := *r.URL
	at.Path = "/" + rest
	if at.RawPath != "" {
		at.RawPath = strings.TrimPrefix(at.RawPath, clustersPath+name)
	}
	inner.URL = &at
	return &inner, name
}

// serveCluster answers for a further cluster, of a request without its prefix.
func (g *Gateway) serveCluster(w http.ResponseWriter, r *http.Request, c *exchange, name string) error {
	k := g.clusters[name]
	if k == nil {
		return refusal(http.StatusNotFound, metav1.StatusReasonNotFound, "there is no cluster %q", name)
	}
	c.route(k.name, "")
	if c.view = k.current.Load(); c.view == nil {
		return unavailable("discovery of %s has not succeeded yet", called(k.name))
	}
	if _, err := c.id.beyond(k.name); err != nil {
		return err
	}
	for header := range r.Header { // the gateway's own identity there may impersonate anyone
		if strings.HasPrefix(strings.ToLower(header), "impersonate-") {
			return refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "%s: requests in the name of others "+
				"are not served for further clusters", header)
		}
	}
	if c.info.IsResourceRequest {
		return g.dispatch(w, r, c)
	}
	path := strings.TrimSuffix(r.URL.Path, "/")
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch {
	case g.options.Policy != nil && (first == "sides" || first == "clusters"):
		return refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "%s: the gateway's policy does not judge "+
			"what a gateway in front of %s reads in this path", path, called(k.name))
	case (first == "api" || first == "apis") && strings.Count(path, "/") <= 3:
		return g.serveDiscovery(w, r, c.view)
	case path == "/openapi/v3" && r.Method == http.MethodGet:
		return g.serveClusterOpenAPI3(w, r, c, k)
	}
	return g.pass(w, r, c, k.name, "", "")
}

// serveClusterOpenAPI3 answers with the cluster's list of documents, at their places below its path.
func (g *Gateway) serveClusterOpenAPI3(w http.ResponseWriter, r *http.Request, c *exchange, k *cluster) error {
	memory := c.own.beyond.Reserve()
	defer memory.Release()
	a, err := k.ask(r.Context(), r, c.id, question{method: http.MethodGet, path: "/openapi/v3",
		accept: "application/json"}, limitBytes, memory)
	if err != nil {
		return err
	}
	c.took.by(k.name)
	if a.code != http.StatusOK {
		return answered{a}
	}
	var list struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := memory.Grow(r.Context(), jsontext.DecodedBytes(a.body)); err != nil {
		return unread(err)
	}
	if err := json.Unmarshal(a.body, &list); err != nil {
		return unreachable(k.name, err)
	}
	for _, place := range list.Paths {
		if at, ok := place["serverRelativeURL"].(string); ok && strings.HasPrefix(at, "/openapi/v3") {
			place["serverRelativeURL"] = k.path + at
		} else {
			delete(place, "serverRelativeURL")
		}
	}
	return serveDocument(w, r, list, "application/json")
}

// beyond is who the client is on a further cluster: the name by which both sides know it, and the groups that both say.
// Names and groups of Kubernetes itself are those of their own cluster and stand for no user elsewhere: a service
// account of a name is another one there, and so is system:masters.
// Errors: a Status.
func (i *identity) beyond(name pair.Side) (user.Info, error) {
	var on []user.Info
	for _, side := range pair.Sides() {
		u, err := i.at(side)
		if err != nil && i.silent[side] != nil {
			return nil, err
		}
		if err != nil {
			return nil, refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "%s is told of users whom both "+
				"sides know, and the %s side does not know the client's token", called(name), side)
		}
		on = append(on, u)
	}
	if strings.HasPrefix(i.GetName(), "system:") {
		return nil, refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "%q is a user of this cluster alone: "+
			"%s has users of such names of its own", i.GetName(), called(name))
	}
	u := &user.DefaultInfo{Name: i.GetName()}
	for _, group := range on[0].GetGroups() {
		if slices.Contains(on[1].GetGroups(), group) && !strings.HasPrefix(group, "system:") {
			u.Groups = append(u.Groups, group)
		}
	}
	u.Groups = append(u.Groups, user.AllAuthenticated)
	return u, nil
}

// impersonate says to a further cluster who the client is. What could be the client's credential stays here.
func impersonate(r *http.Request, u user.Info) {
	for name := range r.Header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "impersonate-") || lower == "cookie" {
			delete(r.Header, name)
		}
	}
	r.Header[authenticationv1.ImpersonateUserHeader] = []string{u.GetName()}
	r.Header[authenticationv1.ImpersonateGroupHeader] = slices.Clone(u.GetGroups())
}

// hostHeaders are headers of an answer that are about the whole host of the gateway, or that browsers act on there.
var hostHeaders = []string{"Set-Cookie", "Alt-Svc", "Clear-Site-Data", "Strict-Transport-Security",
	"Public-Key-Pins", "Www-Authenticate", "Proxy-Authenticate", "Refresh", "Content-Location",
	"Service-Worker-Allowed", "Nel", "Report-To", "Reporting-Endpoints", "Accept-Ch", "Use-As-Dictionary"}

// sandboxHeaders tell a browser that what the cluster answers with is no page of the gateway's: a script in it could
// otherwise ask the pair for anything, with the certificate that the browser has for this host.
var sandboxHeaders = map[string]string{"Content-Security-Policy": "sandbox", "X-Content-Type-Options": "nosniff"}

// final are the answers of a cluster without those that stand before them, such as early hints: confine does not see
// their headers.
type final struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (f final) WriteHeader(code int) {
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		f.ResponseWriter.WriteHeader(code)
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (f final) Unwrap() http.ResponseWriter { return f.ResponseWriter }

// confine lets an answer of the cluster speak for itself alone: a client that follows a redirect sends its credential
// along, to whom it is told.
// Errors: a redirect to another place than the cluster's.
func (k *cluster) confine(response *http.Response) error {
	for _, name := range hostHeaders {
		response.Header.Del(name)
	}
	for name, value := range sandboxHeaders {
		response.Header.Set(name, value)
	}
	text := response.Header.Get("Location")
	if text == "" {
		response.Header.Del("Location")
		return nil
	}
	to, err := url.Parse(text)
	if err == nil {
		to = response.Request.URL.ResolveReference(to)
	}
	if err != nil || to.Scheme != k.base.Scheme || to.Host != k.base.Host || to.User != nil || to.Opaque != "" ||
		checkPath(&http.Request{URL: to}) != nil ||
		k.base.Path != "" && !strings.HasPrefix(to.EscapedPath(), k.base.EscapedPath()+"/") {
		return errors.New("it redirects to another place, which is not followed")
	}
	at := k.path + strings.TrimPrefix(to.EscapedPath(), k.base.EscapedPath())
	if to.RawQuery != "" {
		at += "?" + to.RawQuery
	}
	if to.Fragment != "" {
		at += "#" + to.EscapedFragment()
	}
	response.Header["Location"] = []string{at}
	return nil
}
