package plan

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Target is where the components of a plan run.
type Target string

const (
	OnHosts Target = ""       // processes or static pods of the hosts
	Hosted  Target = "hosted" // pods of another cluster, in a namespace of the plan's name
)

// HostedName stands for the host of what a hosted plan runs in a cluster: there is one such "host", and what is on it
// runs as often as the plan has hosts.
const HostedName = "hosted"

// The variables in which pods of a hosted plan have their own name and address.
const (
	PodName = "POD_NAME"
	PodIP   = "POD_IP"
)

// storesOf are the stores of the spec, with the endpoints that they have where the components run.
func storesOf(f *spec.File, target Target) []Store {
	var stores []Store
	for _, s := range f.Spec.Stores {
		store := Store{Name: s.Name, Endpoints: s.Endpoints, TLS: s.TLS, Version: s.Version, Managed: s.Managed}
		if target == Hosted && s.Managed != nil {
			store.Endpoints = nil
			for n, endpoint := range s.Endpoints {
				store.Endpoints = append(store.Endpoints, memberURL(f.Metadata.Name, s.Name, strconv.Itoa(n), endpoint))
			}
		}
		stores = append(stores, store)
	}
	return stores
}

// inCluster are the parts of hosts with their components as pods of another cluster: what was a host's address is a
// pod's or a service's. Components that run already stay where they are, and the controllers that see both sides are
// left out. Certificates have the names under which clients reach pods.
func (b *basis) inCluster(onHosts parts) parts {
	first, moved := b.file.Spec.Hosts[0], b.endpointsInCluster()
	var all parts
	for _, c := range onHosts.components {
		switch {
		case c.Side != "" && b.side(c.Side).Existing:
			all.components = append(all.components, c)
		case c.Host == first.Name && c.Kind != JointControllers:
			all.components = append(all.components, hostedComponent(b.file.Metadata.Name, c, moved))
		}
	}
	for _, k := range onHosts.kubeconfigs {
		if k.Host == first.Name && k.Component != JointControllers {
			all.kubeconfigs = append(all.kubeconfigs, b.hostedKubeconfig(k, onHosts.components))
		}
	}
	for _, c := range onHosts.certificates {
		if c.Host == first.Name && c.CommonName != JointControllers {
			all.certificates = append(all.certificates, b.hostedCertificate(c, first, onHosts.components))
		}
	}
	return all
}

// endpointsInCluster maps the endpoints of managed stores to those of their pods.
func (b *basis) endpointsInCluster() map[string]string {
	moved := map[string]string{}
	for i, s := range b.file.Spec.Stores {
		for n, endpoint := range s.Endpoints {
			if s.Managed != nil {
				moved[endpoint] = b.stores[i].Endpoints[n]
			}
		}
	}
	return moved
}

// ServiceName is the DNS name of a service of the plan's namespace, good in every cluster whatever its domain.
func ServiceName(namespace, service string) string { return service + "." + namespace + ".svc" }

// memberName is the DNS name of a member of a managed store.
func memberName(namespace, store, ordinal string) string {
	service := Etcd + "-" + store
	return service + "-" + ordinal + "." + ServiceName(namespace, service)
}

// memberURL is an endpoint with the address of a member for that of a host.
func memberURL(namespace, store, ordinal, endpoint string) string {
	scheme, port := "http", ""
	if s, rest, ok := strings.Cut(endpoint, "://"); ok {
		scheme = s
		port = rest[strings.LastIndexByte(rest, ':')+1:]
	}
	return scheme + "://" + memberName(namespace, store, ordinal) + ":" + port
}

// hostedComponent is a component as the containers of its pods run it.
func hostedComponent(namespace string, c Component, moved map[string]string) Component {
	c.Host = HostedName
	c.Args = slices.Clone(c.Args)
	for i, a := range c.Args {
		if c.Kind == Etcd {
			c.Args[i] = hostedMemberArg(namespace, &c, a)
		} else {
			c.Args[i] = hostedArg(a, moved)
		}
	}
	if c.Liveness != nil {
		probe := *c.Liveness
		probe.Host = ""
		c.Liveness = &probe
		patient := probe
		patient.DelaySeconds, patient.FailureThreshold = 10, 24
		c.Startup = &patient
	}
	return c
}

// hostedArg is an argument with the addresses of a pod. What the spec says stays.
func hostedArg(a Arg, moved map[string]string) Arg {
	switch name := kubever.FlagName(a.Name); {
	case name == "etcd-servers" || name == "etcd-servers-overrides":
		a.Value = replaceEndpoints(a.Value, moved)
	case a.Origin != FromPlan:
	case name == "advertise-address":
		a.Value, a.Why = "$("+PodIP+")", "the pod's"
	case name == "bind-address" || name == "address":
		a.Value, a.Why = "0.0.0.0", "clients are outside of the pod"
	}
	return a
}

// replaceEndpoints replaces whole URLs of a list, whatever separates them.
func replaceEndpoints(value string, moved map[string]string) string {
	var out strings.Builder
	for value != "" {
		end := strings.IndexAny(value, ",;#")
		if end < 0 {
			end = len(value)
		}
		if to, ok := moved[value[:end]]; ok {
			out.WriteString(to)
		} else {
			out.WriteString(value[:end])
		}
		if end < len(value) {
			out.WriteByte(value[end])
			end++
		}
		value = value[end:]
	}
	return out.String()
}

// hostedMemberArg is an argument of a member: it is known by the name of its pod, and listens on every address of it.
func hostedMemberArg(namespace string, c *Component, a Arg) Arg {
	here := func(url string) string {
		scheme, rest, _ := strings.Cut(url, "://")
		return scheme + "://0.0.0.0:" + rest[strings.LastIndexByte(rest, ':')+1:]
	}
	self := "$(" + PodName + ")." + ServiceName(namespace, c.Name)
	named := func(url string) string {
		scheme, rest, _ := strings.Cut(url, "://")
		return scheme + "://" + self + ":" + rest[strings.LastIndexByte(rest, ':')+1:]
	}
	first, _, _ := strings.Cut(a.Value, ",")
	switch a.Name {
	case "name":
		a.Value, a.Why = "$("+PodName+")", "the member's name is the pod's"
	case "listen-client-urls", "listen-peer-urls", "listen-metrics-urls":
		a.Value, a.Why = here(first), "clients are outside of the pod"
	case "advertise-client-urls", "initial-advertise-peer-urls":
		a.Value, a.Why = named(first), "the pod's name stays, its address does not"
	case "initial-cluster":
		var members []string
		for n, member := range strings.Split(a.Value, ",") {
			_, url, _ := strings.Cut(member, "=")
			ordinal := strconv.Itoa(n)
			members = append(members, c.Name+"-"+ordinal+"="+memberURL(namespace, c.Store, ordinal, url))
		}
		a.Value, a.Why = strings.Join(members, ","), "one member in every pod"
	}
	return a
}

// hostedKubeconfig reaches the API server of its side by the server's service.
func (b *basis) hostedKubeconfig(k Kubeconfig, components []Component) Kubeconfig {
	k.Host = HostedName
	side := components[slices.IndexFunc(components, func(c Component) bool { return c.Name == k.Component })].Side
	for _, c := range components {
		if c.Side == side && c.Kind == kubever.APIServer {
			k.Server = "https://" + HostPort(ServiceName(b.file.Metadata.Name, c.Name), b.side(side).APIServer.Port)
		}
	}
	return k
}

// hostedCertificate has the names of services and pods for those of the first host, of which it was.
func (b *basis) hostedCertificate(c Certificate, first spec.Host, components []Component) Certificate {
	namespace := b.file.Metadata.Name
	c.Host = HostedName
	c.DNSNames = slices.DeleteFunc(slices.Clone(c.DNSNames), func(n string) bool { return n == first.Name })
	c.IPs = slices.DeleteFunc(slices.Clone(c.IPs), func(ip string) bool { return ip == first.Address })
	for _, component := range components {
		if component.Host != first.Name || !presents(&component, c.Cert) {
			continue
		}
		c.DNSNames = append(c.DNSNames, component.Name, component.Name+"."+namespace,
			ServiceName(namespace, component.Name))
		if component.Kind == Etcd {
			c.CommonName = component.Name
			for n := range b.file.Spec.Hosts {
				c.DNSNames = append(c.DNSNames, memberName(namespace, component.Store, strconv.Itoa(n)))
			}
		}
	}
	return c
}

// presents reports whether a component serves with a certificate.
func presents(c *Component, file string) bool {
	return slices.ContainsFunc(c.Args, func(a Arg) bool {
		return a.Value == file && slices.Contains([]string{"tls-cert-file", "cert-file", "peer-cert-file"},
			kubever.FlagName(a.Name))
	})
}
