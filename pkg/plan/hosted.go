package plan

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
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

// BegunStores is the ConfigMap of a hosted plan in which the operator notes the stores that have begun, by name. The
// only member of a store reads its --initial-cluster-state there: when its volume was lost it would begin again with
// nothing, and the kubelets of its nodes would end every pod; with "existing" it does not start. Members with peers are
// refused by these, and would join with "existing", having forgotten what they voted for.
const BegunStores = "fusionctl-stores"

// ReadsBegunStores reports whether the component is a member that finds its --initial-cluster-state there.
func (c *Component) ReadsBegunStores() bool {
	_, said := c.Arg(clusterState)
	return c.Host == HostedName && c.Kind == Etcd && !said
}

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

// ServiceName is the DNS name of a service of the plan's namespace, good in every cluster whatever its domain.
func ServiceName(namespace, service string) string { return service + "." + namespace + ".svc" }

// serviceOf is what a component of a cluster notes of the type of its Service: nothing of the default.
func (b *basis) serviceOf(t spec.ServiceType) spec.ServiceType {
	if b.target != Hosted || t == spec.ServiceClusterIP {
		return ""
	}
	return t
}

// memberName is the DNS name of a member of a managed store.
func memberName(namespace, store, ordinal string) string {
	service := etcdName(store)
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

// replaceEndpoints replaces, in an argument of the spec, whole URLs of a list, whatever separates them.
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

// inCluster are the addresses of pods of another cluster: they are reached by the names of their services, and listen
// on every address that they have.
type inCluster struct{ *basis }

// everywhere is every address of a pod.
const everywhere = "0.0.0.0"

const whyEverywhere = "clients are outside of the pod"

func (c inCluster) namespace() string { return c.file.Metadata.Name }

func (inCluster) host() string { return HostedName }

func (inCluster) advertise() because { return because{"$(" + PodIP + ")", "the pod's"} }

func (inCluster) listen(_, _ string) because { return because{everywhere, whyEverywhere} }

func (inCluster) probes(probe Probe, _ bool) (liveness, startup *Probe) {
	probe.Host = "" // the pod's
	return &probe, patient(probe)
}

func (c inCluster) server(side pair.Side) string {
	return ServiceName(c.namespace(), componentName(side, kubever.APIServer))
}

func (c inCluster) stores(args []spec.Arg) []spec.Arg {
	moved := map[string]string{}
	for i, s := range c.file.Spec.Stores {
		for n, endpoint := range s.Endpoints {
			moved[endpoint] = c.basis.stores[i].Endpoints[n]
		}
	}
	list := slices.Clone(args)
	for i, a := range list {
		if name := kubever.FlagName(a.Name); name == "etcd-servers" || name == "etcd-servers-overrides" {
			list[i].Value = replaceEndpoints(a.Value, moved)
		}
	}
	return list
}

func (c inCluster) member(m member) memberArgs {
	component := etcdName(m.store.Name)
	self := "$(" + PodName + ")." + ServiceName(c.namespace(), component)
	var cluster []string
	for n := range c.file.Spec.Hosts {
		name := memberName(c.namespace(), m.store.Name, strconv.Itoa(n))
		cluster = append(cluster, component+"-"+strconv.Itoa(n)+"="+m.url(name, m.peer))
	}
	const whyNamed = "the pod's name stays, its address does not"
	state := newMember
	if len(c.file.Spec.Hosts) == 1 {
		state = because{}
	}
	return memberArgs{
		name:             because{"$(" + PodName + ")", "the member's name is the pod's"},
		listenClients:    because{m.url(everywhere, m.client), whyEverywhere},
		advertiseClients: because{m.url(self, m.client), whyNamed},
		listenPeers:      because{m.url(everywhere, m.peer), whyEverywhere},
		advertisePeers:   because{m.url(self, m.peer), whyNamed},
		cluster:          because{strings.Join(cluster, ","), "one member in every pod"},
		state:            state,
		listenMetrics:    because{"http://" + HostPort(everywhere, m.metrics), whyEverywhere},
	}
}

func (inCluster) memberUser(store string) string { return etcdName(store) }

func (c inCluster) serverNames(cert string, components []Component) []string {
	names := []string{"localhost"}
	for i := range components {
		component := &components[i]
		if !presents(component, cert) {
			continue
		}
		names = append(names, component.Name, component.Name+"."+c.namespace(),
			ServiceName(c.namespace(), component.Name))
		if component.Kind == Etcd {
			for n := range c.file.Spec.Hosts {
				names = append(names, memberName(c.namespace(), component.Store, strconv.Itoa(n)))
			}
		}
	}
	return names
}

func (c inCluster) memberNames(cert string, components []Component) []string {
	return c.serverNames(cert, components)
}

func (inCluster) ips() []string { return nil }

// presents reports whether a component serves with a certificate.
func presents(c *Component, file string) bool {
	return slices.ContainsFunc(c.Args, func(a Arg) bool {
		return a.Value == file && slices.Contains([]string{"tls-cert-file", "tls-cert", "cert-file", "peer-cert-file"},
			kubever.FlagName(a.Name))
	})
}
