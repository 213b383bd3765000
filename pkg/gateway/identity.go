package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/transport"

	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// How long what a side said of a token counts.
const (
	tokenTTL   = 10 * time.Second
	noTokenTTL = 5 * time.Second
)

// authenticators know a client by its certificate, or by a token, in the order in which API servers look.
func authenticators(servers map[pair.Side]*apiserver.Server) []authenticator.Request {
	tokens := cache.New(reviewer(servers), false, tokenTTL, noTokenTTL)
	return []authenticator.Request{authenticator.RequestFunc(byCertificate), bearertoken.New(tokens)}
}

// byCertificate takes the certificate that the TLS server has verified, as long as it is valid.
func byCertificate(r *http.Request) (*authenticator.Response, bool, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil, false, nil
	}
	chain := r.TLS.VerifiedChains[0]
	if now := time.Now(); now.After(chain[0].NotAfter) {
		return nil, false, errors.New("the client's certificate has expired")
	}
	return x509request.CommonNameUserConversion(chain)
}

// reviewer asks the sides whether they know a token: the modern one, and then the legacy one.
type reviewer map[pair.Side]*apiserver.Server

var tokenReviews = discovery.Resource{GroupVersion: authenticationv1.SchemeGroupVersion, Name: "tokenreviews",
	Kind: "TokenReview"}

// AuthenticateToken implements authenticator.Token. Errors: a side that was not asked, where the other does not know
// the token.
func (v reviewer) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	review := authenticationv1.TokenReview{TypeMeta: metav1.TypeMeta{Kind: "TokenReview",
		APIVersion: authenticationv1.SchemeGroupVersion.String()},
		Spec: authenticationv1.TokenReviewSpec{Token: token}}
	body, err := json.Marshal(review)
	if err != nil {
		return nil, false, err
	}
	var silent error
	for _, side := range []pair.Side{pair.Modern, pair.Legacy} {
		// A review changes nothing, so it may be repeated.
		text, err := v[side].Send(ctx, apiserver.Write{Verb: http.MethodPost, Path: tokenReviews.Objects(""),
			Body:       body,
			Repeatable: true})
		var got authenticationv1.TokenReview
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err != nil {
			silent = errors.Join(silent, fmt.Errorf("asking the %s side about a token: %w", side, err))
			continue
		}
		if u := got.Status.User; got.Status.Authenticated && u.Username != "" {
			extra := map[string][]string{}
			for key, values := range u.Extra {
				extra[key] = values
			}
			return &authenticator.Response{User: &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups,
				Extra: extra}}, true, nil
		}
	}
	return nil, false, silent
}

// authenticate finds out who sends the request. Errors: a Status, 401 for a client that is not known, 503 where that
// could not be found out.
func (g *Gateway) authenticate(r *http.Request) (user.Info, error) {
	for i, by := range g.authenticators {
		response, ok, err := by.AuthenticateRequest(r)
		switch {
		case ok:
			return response.User, nil
		case err != nil && i > 0 && !isInvalidToken(err):
			g.log.Warn("authentication failed", "err", err)
			return nil, unavailable("the client's token could not be reviewed")
		}
	}
	return nil, refusal(http.StatusUnauthorized, metav1.StatusReasonUnauthorized,
		"want a client certificate of the cluster's CA, or a bearer token that a side knows")
}

func isInvalidToken(err error) bool { return err.Error() == "invalid bearer token" }

// identify replaces the identity that the client claims by the one that it has, in the headers that the plan's API
// servers believe. Impersonation is the client's own request: the server decides.
func identify(r *http.Request, u user.Info) {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Remote-") || strings.HasPrefix(name, "X-Forwarded-") {
			r.Header.Del(name)
		}
	}
	r.Header.Del("Authorization")
	r.Header.Del("Forwarded")
	transport.SetAuthProxyHeaders(r, u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra())
}
