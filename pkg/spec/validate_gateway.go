package spec

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// ofGateway are flags of `fusionctl gateway` that follow from the rest of the file, and what says them.
var ofGateway = map[string]string{
	"client-ca": "spec.pki.ca", "cluster": "spec.gateway.clusters", "cluster-kubeconfig": "spec.gateway.clusters",
	"legacy-kubeconfig": "spec.legacy", "listen": "spec.gateway.port",
	"modern-kubeconfig": "spec.modern", "plan": "the plan itself", "proxy-cert": "spec.pki.proxyClientCert",
	"proxy-key": "spec.pki.proxyClientKey", "tls-cert": "spec.pki.directory", "tls-key": "spec.pki.directory",
}

func (v *validator) gateway() {
	const at = "spec.gateway"
	g := v.file.Spec.Gateway
	if g == nil {
		return
	}
	if !slices.Contains(pair.Sides(), g.Create) {
		v.expect(at+".create", string(g.Create), "want legacy or modern")
	}
	once := seen[string]{}
	for i, c := range g.Clusters {
		at := index(at+".clusters", i)
		if v.label(at+".name", c.Name) && slices.Contains(pair.Sides(), pair.Side(c.Name)) {
			v.expect(at+".name", c.Name, "want another name than that of a side")
		}
		once.once(v, at+".name", c.Name)
		v.absolute(at+".kubeconfig", c.Kubeconfig, true)
	}
	v.image(at+".image", g.Image)
	v.binary(at+".binary", g.Binary)
	v.port(at+".port", g.Port)
	if !g.Disabled {
		v.gatewayPorts(at+".port", g)
	}
	v.someHosts(at+".hosts", g.Hosts)
	v.certSANs(at+".certSANs", g.CertSANs)
	v.serviceType(at+".service", g.Service)
	named := map[string]bool{}
	for i, arg := range g.ExtraArgs {
		at := index(at+".extraArgs", i)
		v.flagOf(at+".name", arg.Name, GatewayFlags, ofGateway)
		named[arg.Name] = true
		switch arg.Name {
		case "policy", "audit-policy-file", "conversion-rules":
			v.absolute(at+".value", arg.Value, true)
		case "audit-log-path":
			if arg.Value != "-" {
				v.absolute(at+".value", arg.Value, true)
			}
		case "metrics-listen":
			v.metricsListen(at+".value", arg.Value)
		}
	}
	if named["audit-log-path"] != named["audit-policy-file"] {
		v.addf(at+".extraArgs", "audit-log-path and audit-policy-file: want both, or none")
	}
}

// certSANs wants names and addresses, each once.
func (v *validator) certSANs(at string, names []string) {
	once := seen[string]{}
	for i, name := range names {
		at := index(at, i)
		if _, err := netip.ParseAddr(name); err != nil && !isSubdomain(name) {
			v.expect(at, name, "want a DNS name or an IP address")
			continue
		}
		once.once(v, at, name)
	}
}

func (v *validator) serviceType(at string, t ServiceType) {
	if t != "" {
		v.oneOf(at, string(t), ServiceTypes)
	}
}

// metricsListen wants an address of loopback.
func (v *validator) metricsListen(at, value string) {
	if to, err := netip.ParseAddrPort(value); err != nil || !to.Addr().IsLoopback() || to.Port() == 0 {
		v.expect(at, value, "want an address on loopback, such as "+GatewayMetrics)
	}
}

// GatewayMetrics is where the gateway serves its metrics when no argument says another place.
const GatewayMetrics = "127.0.0.1:10272"

// ports are those on which the gateway listens: the clients', and that of its metrics.
func (g *Gateway) ports() (clients, metrics int) {
	listen := GatewayMetrics
	for _, a := range g.ExtraArgs {
		if a.Name == "metrics-listen" {
			listen = a.Value
		}
	}
	metrics, _ = strconv.Atoi(listen[strings.LastIndexByte(listen, ':')+1:])
	return g.Port, metrics
}

// gatewayPorts wants ports that nothing else of the same hosts has.
func (v *validator) gatewayPorts(at string, g *Gateway) {
	s := &v.file.Spec
	clients, metrics := g.ports()
	if clients == metrics {
		v.addf(at, "%d: is the port of its metrics, too", clients)
	}
	for _, port := range []int{clients, metrics} {
		taken := func(by string) {
			what := ""
			if port == metrics {
				what = ", where the gateway serves its metrics"
			}
			v.addf(at, "%d%s: is %s too, and both listen on the same hosts", port, what, by)
		}
		if s.Legacy.APIServer != nil && s.Legacy.APIServer.Port == port {
			taken("spec.legacy.apiServer.port")
		}
		if s.Modern.APIServer != nil && s.Modern.APIServer.Port == port {
			taken("spec.modern.apiServer.port")
		}
		if s.Controllers != nil && s.Controllers.Port == port {
			taken("spec.controllers.port")
		}
		if s.Pods != nil && s.Pods.Admission.Port == port {
			taken("spec.pods.admission.port")
		}
	}
}
