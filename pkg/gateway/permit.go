package gateway

import (
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// permit asks the gateway's policy, which can only take away: each side still decides for itself. Where the sides see
// a client with different groups, each of its identities has to be allowed.
func (g *Gateway) permit(r *http.Request, c *exchange, view pair.Side) error {
	if g.options.Policy == nil {
		return nil
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			c.took.decision = "forbid"
			return refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "%s: the gateway's policy does not "+
				"allow impersonation", name)
		}
	}
	info := c.info
	decider := g.options.Policy()
	c.took.decision = "forbid"
	for _, side := range pair.Sides() {
		u, ok := c.id.on[side]
		if !ok || view != "" && side != view {
			continue
		}
		decision, reason, err := decider.Authorize(r.Context(), attributesOf(u, info))
		if err != nil {
			return unavailable("evaluating the gateway's policy: %v", err)
		}
		c.took.reason = reason
		if decision != authorizer.DecisionAllow {
			return refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "the gateway's policy does not let "+
				"%q %s %s", u.GetName(), info.Verb, info.Path)
		}
	}
	c.took.decision = "allow"
	return nil
}

// PolicyRead is told whether the file of the gateway's policy is good: nil when it was loaded.
func (g *Gateway) PolicyRead(err error) {
	g.metrics.policy.Set(1)
	if err != nil {
		g.metrics.policy.Set(0)
	}
}

// authenticated is a user with the group that API servers give to everyone whom they know.
type authenticated struct{ user.Info }

// GetGroups implements user.Info.
func (a authenticated) GetGroups() []string {
	if groups := a.Info.GetGroups(); slices.Contains(groups, user.AllAuthenticated) {
		return groups
	}
	return append(slices.Clone(a.Info.GetGroups()), user.AllAuthenticated)
}
