package spec

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

func (v *validator) pods() {
	p := v.file.Spec.Pods
	if p == nil {
		return
	}
	const at = "spec.pods"
	v.label(at+".service.namespace", p.Service.Namespace)
	if v.label(at+".service.name", p.Service.Name) && p.Service.Name == "kubernetes" &&
		p.Service.Namespace == "default" {
		v.addf(at+".service.name", "%q: is the service of the legacy API server; want another name", p.Service.Name)
	}
	v.clusterIP(at+".service.clusterIP", p.Service.ClusterIP)
	v.labelKey(at+".sideLabel", p.SideLabel)
	v.oneOf(at+".admission.failurePolicy", string(p.Admission.FailurePolicy), FailurePolicies)
	if seconds := p.Admission.TimeoutSeconds; seconds < 1 || seconds > 30 {
		v.addf(at+".admission.timeoutSeconds", "%d: want 1 to 30", seconds)
	}
	v.port(at+".admission.port", p.Admission.Port)
	for _, side := range []struct {
		name   string
		server *APIServer
	}{{"legacy", v.file.Spec.Legacy.APIServer}, {"modern", v.file.Spec.Modern.APIServer}} {
		if side.server != nil && side.server.Port == p.Admission.Port {
			v.addf(at+".admission.port", "%d: is also the port of the %s API server, which runs on the same hosts",
				p.Admission.Port, side.name)
		}
	}
	if c := v.file.Spec.Controllers; c != nil && c.Port == p.Admission.Port {
		v.addf(at+".admission.port", "%d: is also spec.controllers.port, of the same program", p.Admission.Port)
	}
	v.oneOf(at+".unknownFields", string(p.UnknownFields), UnknownFieldsWords)
}

// clusterIP wants an address that an API server of the pair can give to a service, and of which the hosts' addresses
// can be endpoints.
func (v *validator) clusterIP(at, text string) {
	n := &v.file.Spec.Network
	ranges := slices.Concat(n.ServiceCIDRs, n.ModernServiceCIDRs)
	if !v.Lines.Trusts("spec.network.serviceCIDRs") || !v.Lines.Trusts("spec.network.modernServiceCIDRs") {
		return
	}
	for _, text := range ranges {
		if _, err := netip.ParsePrefix(text); err != nil {
			return // reported
		}
	}
	address, ok := v.address(at, text)
	if !ok {
		return
	}
	i := slices.IndexFunc(ranges, func(text string) bool {
		return netip.MustParsePrefix(text).Masked().Contains(address)
	})
	if i < 0 {
		v.addf(at, "%q: is in none of the service ranges %s", text, strings.Join(ranges, ", "))
		return
	}
	within := netip.MustParsePrefix(ranges[i]).Masked()
	switch {
	case address == within.Addr() || address.Is4() && !within.Contains(address.Next()):
		v.addf(at, "%q: is the first or the last address of %s, which no service can have", text, within)
	case address == within.Addr().Next():
		v.addf(at, "%q: is the address of the service kubernetes, the first of %s", text, within)
	}
	for i, host := range v.file.Spec.Hosts {
		if of, err := netip.ParseAddr(host.Address); err == nil && of.Is4() != address.Is4() {
			v.addf(index("spec.hosts", i)+".address", "%q: is of another IP family than spec.pods.service.clusterIP "+
				"%s; the endpoints of a service have its family", host.Address, address)
		}
	}
}

var labelNamePattern = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)

// labelKey checks the key of a label.
func (v *validator) labelKey(at, key string) {
	prefix, name, found := strings.Cut(key, "/")
	if !found {
		prefix, name = "", key
	}
	if found && !isSubdomain(prefix) || !labelNamePattern.MatchString(name) {
		v.expect(at, key, fmt.Sprintf("want the key of a label, such as %q", "kubefusion.dev/side"))
	}
}
