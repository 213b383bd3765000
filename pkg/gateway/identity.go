package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/transport"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

const (
	// How long what a side said of a token counts.
	tokenTTL   = 10 * time.Second
	noTokenTTL = 5 * time.Second
	// limitReviews bounds the reviews of tokens that each side does at a time.
	limitReviews = 64
	// limitStrangers bounds the requests of one address with tokens that are not known yet.
	limitStrangers = 32
	// limitKnown bounds the tokens that are remembered, so that they do not count as strange.
	limitKnown = 4096
)

// identity is who a client is on each side. A name that a side was not told of by its own means stands for no user
// there: what is called alice on one side may be another alice on the other.
type identity struct {
	user.Info                         // for what concerns the gateway alone
	on        map[pair.Side]user.Info // by the sides that vouch for the client
	silent    map[pair.Side]error     // why it is not known whether the side vouches
}

// at is the user that the client is on the side. Errors: a Status, 403 where the side does not vouch for the client,
// 503 where it could not be asked.
func (i *identity) at(side pair.Side) (user.Info, error) {
	if u, ok := i.on[side]; ok {
		return u, nil
	}
	if err := i.silent[side]; err != nil {
		return nil, unavailable("the %s side could not review the client's token", side)
	}
	return nil, refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "the %s side does not know the client's "+
		"token, so %q of the %s side has no permission there; /sides/%s needs that side alone", side, i.GetName(),
		side.Other(), side.Other())
}

// authenticators know a client by its certificate, or by a token, in the order in which API servers look.
// shared: a user that one side vouches for is the user of that name on the other.
func authenticators(servers map[pair.Side]*apiserver.Server, shared bool) []authenticator.Request {
	v := vouchers{by: map[pair.Side]authenticator.Token{}, shared: shared,
		strangers: &flights{of: map[string]*flight{}}, known: utilcache.NewLRUExpireCache(limitKnown)}
	for side, server := range servers {
		v.by[side] = cache.New(&reviewer{side, server, webserver.NewSlots(limitReviews)}, false, tokenTTL, noTokenTTL)
	}
	return []authenticator.Request{authenticator.RequestFunc(byCertificate), bearertoken.New(v),
		authenticator.RequestFunc(v.byProtocol)}
}

// byCertificate takes the certificate that the TLS server has verified, as long as it is valid. Plans give both API
// servers one CA of clients, so that a subject is the same user on both.
func byCertificate(r *http.Request) (*authenticator.Response, bool, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil, false, nil
	}
	chain := r.TLS.VerifiedChains[0]
	if now := time.Now(); now.After(chain[0].NotAfter) {
		return nil, false, errors.New("the client's certificate has expired")
	}
	response, ok, err := x509request.CommonNameUserConversion(chain)
	if !ok || err != nil {
		return nil, ok, err
	}
	u := response.User
	response.User = &identity{Info: u, on: map[pair.Side]user.Info{pair.Legacy: u, pair.Modern: u}}
	return response, true, nil
}

// vouchers ask each side whether it knows a token.
type vouchers struct {
	by        map[pair.Side]authenticator.Token
	shared    bool
	strangers *flights                  // of networks
	known     *utilcache.LRUExpireCache // sums of tokens that a side knew a moment ago
}

// networkKey is that of the client's network in the context of a request.
type networkKey struct{}

// AuthenticateToken implements authenticator.Token. The user is an *identity. A client whose token was known a moment
// ago is none of the strangers of its address, who may wait for their reviews.
// Errors: a Status, 429 for one of too many strangers; a side that was not asked, where no other knows the token; a
// token of two users.
func (v vouchers) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	sum := sha256.Sum256([]byte(token))
	if _, ok := v.known.Get(sum); !ok {
		of, _ := ctx.Value(networkKey{}).(string)
		leave, err := v.strangers.enter(of, false, limitStrangers)
		if err != nil {
			return nil, false, err
		}
		defer leave()
	}
	response, ok, err := v.vouch(ctx, token)
	if ok {
		v.known.Add(sum, nil, tokenTTL)
	}
	return response, ok, err
}

func (v vouchers) vouch(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	id := &identity{on: map[pair.Side]user.Info{}, silent: map[pair.Side]error{}}
	var mu sync.Mutex
	var group sync.WaitGroup
	for side, by := range v.by {
		group.Go(func() {
			response, ok, err := by.AuthenticateToken(ctx, token)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				id.silent[side] = err
			} else if ok {
				id.on[side] = response.User
			}
		})
	}
	group.Wait()
	for _, side := range []pair.Side{pair.Modern, pair.Legacy} {
		u, ok := id.on[side]
		if !ok {
			continue
		}
		if id.Info != nil && id.GetName() != u.GetName() {
			return nil, false, refusal(http.StatusUnauthorized, metav1.StatusReasonUnauthorized,
				"the token is that of %q on the modern side and of %q on the legacy side", id.GetName(), u.GetName())
		}
		if id.Info == nil {
			id.Info = u
		}
		if _, ok := id.on[side.Other()]; !ok && v.shared {
			id.on[side.Other()] = u
		}
	}
	if id.Info == nil {
		return nil, false, errors.Join(id.silent[pair.Modern], id.silent[pair.Legacy])
	}
	return &authenticator.Response{User: id}, true, nil
}

// reviewer asks one side who a token stands for.
type reviewer struct {
	side   pair.Side
	server *apiserver.Server
	slots  webserver.Slots
}

var tokenReviews = discovery.Resource{GroupVersion: authenticationv1.SchemeGroupVersion, Name: "tokenreviews",
	Kind: "TokenReview"}

// AuthenticateToken implements authenticator.Token. Errors: the side was not asked.
func (v *reviewer) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	review := authenticationv1.TokenReview{TypeMeta: metav1.TypeMeta{Kind: "TokenReview",
		APIVersion: authenticationv1.SchemeGroupVersion.String()},
		Spec: authenticationv1.TokenReviewSpec{Token: token}}
	body, err := json.Marshal(review)
	if err != nil {
		return nil, false, err
	}
	release, err := v.slots.Take(ctx)
	if err != nil {
		return nil, false, err
	}
	defer release()
	// A review changes nothing, so it may be repeated.
	text, err := v.server.Send(ctx, apiserver.Write{Verb: http.MethodPost, Path: tokenReviews.Objects(""), Body: body,
		Repeatable: true})
	var got authenticationv1.TokenReview
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	if err != nil {
		return nil, false, fmt.Errorf("asking the %s side about a token: %w", v.side, err)
	}
	u := got.Status.User
	if !got.Status.Authenticated || u.Username == "" {
		return nil, false, nil
	}
	extra := map[string][]string{}
	for key, values := range u.Extra {
		extra[key] = values
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups,
		Extra: extra}}, true, nil
}

// authenticate finds out who sends the request. Errors: a Status, 401 for a client that is not known, 429 for one of
// too many from its address, 503 where that could not be found out.
func (g *Gateway) authenticate(r *http.Request) (*identity, error) {
	address, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		address = r.RemoteAddr
	}
	r = r.WithContext(context.WithValue(r.Context(), networkKey{}, network(address)))
	for i, by := range g.authenticators {
		response, ok, err := by.AuthenticateRequest(r)
		if ok {
			id := response.User.(*identity)
			for _, u := range id.on {
				if err := sayable(u); err != nil {
					return nil, err
				}
			}
			return id, nil
		}
		switch refused, ours := err.(*apierrors.StatusError); { //nolint:errorlint // within others are those of a side
		case err == nil || i == 0 || isNoToken(err):
		case ours:
			return nil, refused
		default:
			g.log.Warn("authentication failed", "err", err)
			return nil, unavailable("the client's token could not be reviewed")
		}
	}
	return nil, refusal(http.StatusUnauthorized, metav1.StatusReasonUnauthorized,
		"want a client certificate of the cluster's CA, or a bearer token that a side knows")
}

// network is what one client has of addresses: of IPv6 64 bits of them, since each host may take any of the others.
func network(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if ip = ip.Unmap(); ip.Is4() {
		return ip.String()
	}
	const bits = 64
	of, err := ip.Prefix(bits)
	if err != nil {
		return address
	}
	return of.String()
}

// isNoToken reports whether the client has shown no token that a side knows, and all sides were asked: an error of API
// machinery that has no type.
func isNoToken(err error) bool { return err.Error() == "invalid bearer token" }

// tokenProtocol begins the name of a WebSocket protocol that is a bearer token: browsers can send no other header.
const (
	protocols     = "Sec-Websocket-Protocol"
	tokenProtocol = "base64url.bearer.authorization.k8s.io."
)

// byProtocol knows a client by a token among the WebSocket protocols that it offers. identify takes it out of them.
func (v vouchers) byProtocol(r *http.Request) (*authenticator.Response, bool, error) {
	token := ""
	for protocol := range strings.SplitSeq(strings.Join(r.Header.Values(protocols), ","), ",") {
		encoded, ok := strings.CutPrefix(strings.TrimSpace(protocol), tokenProtocol)
		if !ok {
			continue
		}
		text, err := base64.RawURLEncoding.DecodeString(encoded)
		if err != nil || !utf8.Valid(text) || len(text) == 0 || token != "" {
			return nil, false, refusal(http.StatusUnauthorized, metav1.StatusReasonUnauthorized,
				"want one bearer token among the WebSocket protocols, in base64url without padding")
		}
		token = string(text)
	}
	if token == "" {
		return nil, false, nil
	}
	return v.AuthenticateToken(r.Context(), token)
}

// believed are the headers in which API servers believe a front proxy, beside the usual ones.
func believed(servers *plan.APIServers) plan.ProxyHeaders {
	if servers.ProxyHeaders == nil {
		return plan.ProxyHeaders{}
	}
	return *servers.ProxyHeaders
}

// claims are headers by which a client could say who it is: those that either side believes of a front proxy.
type claims struct{ names, prefixes []string }

func claimsOf(believed ...plan.ProxyHeaders) claims {
	c := claims{names: []string{"X-Real-Ip"}, prefixes: []string{"X-Remote-", "X-Forwarded-"}}
	for _, h := range believed {
		c.names = slices.Concat(c.names, h.User, h.Group, h.UID)
		c.prefixes = append(c.prefixes, h.Extra...)
	}
	return c
}

// has reports whether a header is one of them. API servers do not look at the case either.
func (c *claims) has(name string) bool {
	for _, claimed := range c.names {
		if strings.EqualFold(name, claimed) {
			return true
		}
	}
	for _, prefix := range c.prefixes {
		if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
			return true
		}
	}
	return false
}

// identify replaces the identity that the client claims by the one that it has, in the headers that the plan's API
// servers believe. Impersonation is the client's own request: the server decides.
func (s *side) identify(r *http.Request, u user.Info) {
	for name := range r.Header {
		if s.claims.has(name) || strings.EqualFold(name, "Authorization") || strings.EqualFold(name, "Forwarded") {
			delete(r.Header, name)
		}
	}
	if offered := r.Header.Values(protocols); len(offered) > 0 {
		r.Header.Del(protocols)
		var kept []string
		for protocol := range strings.SplitSeq(strings.Join(offered, ","), ",") {
			if protocol = strings.TrimSpace(protocol); !strings.HasPrefix(protocol, tokenProtocol) {
				kept = append(kept, protocol)
			}
		}
		if len(kept) > 0 {
			r.Header.Set(protocols, strings.Join(kept, ", "))
		}
	}
	if s.beyond != nil {
		impersonate(r, u)
		return
	}
	transport.SetAuthProxyHeaders(r, u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra())
	s.identifyInMore(r.Header)
}

// identifyInMore says it in the headers that the side believes beside the usual ones.
func (s *side) identifyInMore(header http.Header) {
	const extra = "X-Remote-Extra-"
	if len(s.headers.Extra) > 0 {
		for name, values := range maps.Clone(header) {
			if key, ok := strings.CutPrefix(name, extra); ok {
				for _, prefix := range s.headers.Extra {
					header[http.CanonicalHeaderKey(prefix+key)] = values
				}
			}
		}
	}
	say := func(usual string, names []string) {
		if values := header[usual]; values != nil {
			for _, name := range names {
				header[http.CanonicalHeaderKey(name)] = values
			}
		}
	}
	say("X-Remote-User", s.headers.User)
	say("X-Remote-Group", s.headers.Group)
	say("X-Remote-Uid", s.headers.UID)
}

// sayable returns why an identity cannot be sent in headers; nil when it can. Spaces around a value are lost on the
// way: " admin" would become another user.
func sayable(u user.Info) error {
	values := append([]string{u.GetName(), u.GetUID()}, u.GetGroups()...)
	for _, more := range u.GetExtra() {
		values = append(values, more...)
	}
	for _, value := range values {
		if strings.TrimSpace(value) != value || strings.ContainsFunc(value, unicode.IsControl) {
			return refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "%q, of the client's name, groups, UID "+
				"and extra values, cannot be sent in a header", value)
		}
	}
	return nil
}
