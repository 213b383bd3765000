package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/policy"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// JointGateway is the kind, and the name, of the component that is one endpoint over both sides: fusionctl gateway. Its
// user is called so too.
const JointGateway = "fusionctl-gateway"

// SeesBoth reports whether components of a kind reach the API servers of both sides: they are fusionctl's own.
func SeesBoth(kind string) bool { return kind == JointControllers || kind == JointGateway }

// gatewayPlan is where a host has what the plan says to its gateway. The controllers have a file of their own: what is
// decided about the gateway alone restarts no controller.
const gatewayPlan = modernDirectory + "/gateway.json"

// Gateway is what one endpoint over both sides does where there is a choice, and how it runs.
type Gateway struct {
	Create           pair.Side `json:"create"` // where objects are created of which each side has its own
	SharedIdentities bool      `json:"sharedIdentities,omitempty"`
	// Clusters are further API servers that it serves below /clusters/NAME.
	Clusters []spec.GatewayCluster `json:"clusters,omitempty"`
	// Component is nil where the gateway is no component of the plan.
	Component *GatewayComponent `json:"component,omitempty"`
}

// GatewayComponent is what the plan says about its components of kind JointGateway, one on each of some hosts. They
// share nothing, and each serves by itself.
type GatewayComponent struct {
	User     string       `json:"user"`     // the name in their certificate, on both sides
	PlanFile string       `json:"planFile"` // where they find the plan, on each of their hosts
	Server   string       `json:"server"`   // the URL by which clients reach one of them
	Legacy   LegacyAccess `json:"legacy"`
}

// Serves reports whether the gateway is a component of the plan.
func (g *Gateway) Serves() bool { return g != nil && g.Component != nil }

// gatewayRuns reports whether a gateway runs on a host, or for it in a cluster.
func (b *basis) gatewayRuns(host spec.Host) bool {
	s := b.file.Spec.Gateway
	if b.target == Hosted {
		return b.gatewayServes() && b.addresses(host, false) != nil
	}
	return b.gatewayWanted() && (len(s.Hosts) == 0 || slices.Contains(s.Hosts, host.Name))
}

// gatewayServes reports whether the gateway is a component where the plan runs: a pod has no program of a host.
func (b *basis) gatewayServes() bool {
	return b.gatewayWanted() && (b.target != Hosted || b.file.Spec.Gateway.Image != "")
}

func (b *basis) gatewayWanted() bool {
	s := b.file.Spec.Gateway
	return s != nil && !s.Disabled
}

// gateway is what the plan says about it, beside a legacy API server that is one of the components. Where that side is
// retired, the gateway serves old clients what is converted.
func (b *basis) gateway(components []Component) *Gateway {
	s := b.file.Spec.Gateway
	if s == nil {
		return nil
	}
	g := &Gateway{Create: s.Create, SharedIdentities: s.SharedIdentities, Clusters: slices.Clone(s.Clusters)}
	if !b.gatewayServes() {
		return g
	}
	g.Component = &GatewayComponent{User: JointGateway, PlanFile: gatewayPlan}
	if !b.retired() {
		g.Component.Legacy = LegacyAccess{Modes: legacyModes(components), RBACVersion: b.rbacVersion(), Rules: []Right{
			{NonResourcePaths: bothSidesPaths, Verbs: []string{"get"}, Why: "what the API server serves, and whether " +
				"it does"},
			{APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"},
				Verbs: []string{"get", "list"}, Why: gatewayLists},
			{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"},
				Verbs: []string{"create"}, Why: gatewayReviews},
		}}
	}
	address := ""
	for _, host := range b.file.Spec.Hosts {
		if address == "" && b.gatewayRuns(host) {
			address = host.Address
		}
	}
	if b.target == Hosted {
		address = ServiceName(b.file.Metadata.Name, JointGateway)
	}
	if len(s.CertSANs) > 0 {
		address = s.CertSANs[0]
	}
	g.Component.Server = "https://" + HostPort(address, s.Port)
	return g
}

// bothSidesPaths are what components that see both sides ask of each API server itself.
var bothSidesPaths = []string{"/api", "/api/*", "/apis", "/apis/*", "/healthz", "/readyz", "/version"}

// The reasons of what the gateway itself may do. What its clients may do is theirs.
const (
	gatewayLists   = "groups of extension API servers that do not answer are not absent"
	gatewayReviews = "whom the bearer tokens of its clients stand for"
)

// gatewayGrants is what the gateway itself needs of the modern API server, beside what every client may read.
func gatewayGrants() []policy.Grant {
	grant := func(group, resource, why string, readOnly bool) policy.Grant {
		return policy.Grant{Subjects: []policy.Subject{{Kind: policy.KindUser, Name: JointGateway}},
			APIGroups: []string{group}, Resources: []string{resource}, Namespaces: []string{"*"}, ReadOnly: readOnly,
			Purpose: policy.ForControllers, Why: "fusionctl gateway: " + why}
	}
	return []policy.Grant{grant("apiregistration.k8s.io", "apiservices", gatewayLists, true),
		grant("authentication.k8s.io", "tokenreviews", gatewayReviews, false)}
}

// jointGateway is the component on a host.
func (b *basis) jointGateway(host spec.Host, configs []Kubeconfig) Component {
	s, pki := b.file.Spec.Gateway, b.file.Spec.PKI
	at := b.addresses(host, false)
	c := b.ofFusionctl(at, JointGateway, "gateway", s.Image, s.Binary, s.Port)
	c.Service = b.serviceOf(s.Service)
	l := &argList{}
	say := func(name, value, why string) {
		l.args = append(l.args, wantedArg{Arg: Arg{Name: name, Value: value, Why: why, Origin: FromPlan}})
	}
	say("plan", gatewayPlan, "which side has what, as it was when this was rendered")
	for _, side := range b.runningSides() {
		say(string(side)+"-kubeconfig", gatewayKubeconfig(side), b.whyServer(side))
	}
	proxy := "both API servers believe this front proxy who its clients are"
	if b.retired() {
		proxy = "the API server believes this front proxy who its clients are"
	}
	say("proxy-cert", pki.ProxyClientCert, proxy)
	say("proxy-key", pki.ProxyClientKey, proxy)
	for _, further := range s.Clusters {
		say("cluster", further.Name, "a further cluster, below /clusters/"+further.Name)
		say("cluster-kubeconfig", further.Kubeconfig, "the identity by which its users are impersonated there")
	}
	cert, key := b.gatewayServing()
	say("tls-cert", cert, "serving certificate")
	say("tls-key", key, "serving certificate")
	say("client-ca", pki.CA, "one CA for the clients of both sides")
	every := everywhere
	if strings.Contains(host.Address, ":") {
		every = "::"
	}
	clients := at.listen(every, "clients are on other machines")
	say("listen", HostPort(clients.value, s.Port), clients.why)
	say("metrics-listen", spec.GatewayMetrics, "metrics; no remote clients")
	c.Args = l.with(s.ExtraArgs)
	b.filesOn(host, c.Args)
	c.Liveness, c.Startup = at.probes(Probe{Scheme: "HTTPS", Host: loopback, Port: s.Port,
		Path: "/healthz", DelaySeconds: 15, TimeoutSeconds: 15, PeriodSeconds: 10, FailureThreshold: 8}, true)
	c.Mounts = named(append(c.Mounts, mounts(&c, nil, configs)...))
	return c
}

// ofFusionctl starts a component that is a verb of fusionctl: everything but arguments, probes and mounts of these.
// Without an image of its own a pod runs the host's program in the image of the modern API server.
func (b *basis) ofFusionctl(at addresses, kind, verb, image, binary string, port int) Component {
	c := Component{Host: at.host(), Kind: kind, Name: kind, Image: image, Program: binary,
		Command: []string{"fusionctl", verb}, Port: port}
	if image == "" {
		c.Image, c.Command[0] = imageOf(&b.file.Spec.Modern, &b.file.Spec.Modern.APIServer.Component,
			kubever.APIServer), binary
		c.Mounts = append(c.Mounts, Mount{Path: binary, ReadOnly: true})
	}
	return c
}

// gatewayKubeconfig is the path of the file by which the gateway reaches a side's API server.
func gatewayKubeconfig(side pair.Side) string {
	return fmt.Sprintf("%s/gateway-%s.conf", modernDirectory, side)
}

// gatewayServing is where the serving certificate of the gateway and its key lie.
func (b *basis) gatewayServing() (cert, key string) {
	base := b.file.Spec.PKI.Directory + "/modern/gateway"
	return base + ".crt", base + ".key"
}

// gatewayCertificate is for every name and address by which clients reach the gateway.
func (b *basis) gatewayCertificate(at addresses, components []Component) Certificate {
	cert, key := b.gatewayServing()
	c := Certificate{Cert: cert, Key: key, CA: b.file.Spec.PKI.CA, CommonName: JointGateway,
		Usages: []string{UsageServer}, DNSNames: at.serverNames(cert, components),
		IPs: append([]string{loopback}, at.ips()...), Why: "serving certificate of the gateway"}
	c.DNSNames, c.IPs = withNames(c.DNSNames, c.IPs, b.file.Spec.Gateway.CertSANs)
	return c
}
