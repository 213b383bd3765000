package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// gatewayRole names the role of the gateway and its binding, on the legacy side.
const gatewayRole = "kubefusion:gateway"

// ownPlan is the file in which a component of fusionctl finds the plan, and what is in it; "" for other components.
func ownPlan(p *plan.Plan, c *plan.Component) (file string, data []byte, err error) {
	if !plan.SeesBoth(c.Kind) {
		return "", nil, nil
	}
	r := p.Runtime()
	if c.Kind == plan.JointGateway {
		file = p.Gateway.Component.PlanFile
	} else { // which decisions about the gateway do not restart
		file, r.Gateway = p.Joint.PlanFile, nil
	}
	data, err = r.Format()
	return file, data, err
}

// legacyUser is a component that sees both sides, as the legacy side knows it.
type legacyUser struct {
	Name, Role string
	Access     plan.LegacyAccess
}

// legacyUsers are those to whom the legacy side has to allow something, but for the kubelet client certificate's.
func legacyUsers(p *plan.Plan) []legacyUser {
	if p.Legacy.Retired {
		return nil
	}
	var users []legacyUser
	if p.Joint != nil {
		users = append(users, legacyUser{p.Joint.User, jointRole, p.Joint.Legacy})
	}
	if p.Gateway.Serves() {
		g := p.Gateway.Component
		users = append(users, legacyUser{g.User, gatewayRole, g.Legacy})
	}
	return users
}

// gatewayView is what the runbook says of the gateway.
type gatewayView struct {
	phase
	Server, Program string
	Words, Commands []string // what the legacy side has to allow
	Borrowed        bool     // a pod runs the host's program in another image
	Client          []string // make a kubeconfig of a client
}

func newGatewayView(p *plan.Plan, target Target) gatewayView {
	components := p.ComponentsOf("", plan.JointGateway)
	if !p.Gateway.Serves() || len(components) == 0 {
		return gatewayView{}
	}
	g, first := p.Gateway.Component, &components[0]
	v := gatewayView{
		phase:    phaseOf(p, target, false, func(c *plan.Component) bool { return c.Kind == plan.JointGateway }),
		Server:   g.Server,
		Program:  inline(first.Program),
		Borrowed: target == StaticPod && first.Command[0] == first.Program,
		Client: []string{
			"cp \"$MODERN\" gateway.conf    # the same user, at another server",
			fmt.Sprintf("kubectl --kubeconfig gateway.conf config set-cluster \"$(kubectl --kubeconfig gateway.conf "+
				"config view --minify -o jsonpath='{.contexts[0].context.cluster}')\" --server=%s", shell(g.Server)),
		},
	}
	v.Words, v.Commands = permitUser(&legacyUser{g.User, gatewayRole, g.Legacy})
	return v
}

// permitUser are the words and the commands by which the legacy API server is told what to allow to the gateway.
func permitUser(u *legacyUser) (words, commands []string) {
	switch modes := u.Access.Modes; {
	case slices.Contains(modes, "AlwaysAllow"):
		return []string{"The legacy API server allows every request."}, nil
	case slices.Contains(modes, "RBAC"):
		return []string{fmt.Sprintf("The legacy API server must allow it what `%s` has for it: discovery, "+
				"APIServices, token reviews. From your machine:", legacyRolesFile)},
			[]string{"legacy apply -f " + legacyRolesFile, "legacy get clusterrolebinding " + u.Role + "    # one"}
	case slices.Contains(modes, "ABAC"):
		return []string{fmt.Sprintf("The legacy API server must allow it what the lines of `%s` about it allow: add "+
			"them to the file of its `--authorization-policy-file`, and restart it, one host after the other.",
			legacyPolicyFile)}, nil
	default:
		return []string{fmt.Sprintf("The legacy API server authorizes by %s: it must allow it what `%s` has for it.",
			strings.Join(modes, ", "), legacyRolesFile)}, nil
	}
}

// gatewayReady asks the gateway of a host, as itself, whether it knows what both API servers serve, and what it serves.
func gatewayReady(p *plan.Plan, c *plan.Component) []string {
	base := fmt.Sprintf("curl -s --cacert %s https://%s", shell(p.PKI.CA), plan.HostPort(c.Liveness.Host, c.Port))
	lines := []string{base + "/readyz    # ok"}
	for _, k := range p.Kubeconfigs {
		if k.Host == c.Host && k.Component == c.Name {
			return append(lines, fmt.Sprintf("curl -s --cacert %s --cert %s --key %s https://%s/version | grep "+
				"gitVersion    # v%s: the modern API server's", shell(p.PKI.CA), shell(k.Cert), shell(k.Key),
				plan.HostPort(c.Liveness.Host, c.Port), p.Side(pair.Modern).Version))
		}
	}
	return lines
}
