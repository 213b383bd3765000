package plan

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// addresses are the names and addresses under which what a plan runs listens and is reached: those of a host, or of
// pods of another cluster. They are chosen once, by the target: nothing is computed for a host and then changed for a
// cluster.
type addresses interface {
	// host is the Host of components, kubeconfigs and certificates.
	host() string
	// advertise is the address under which an API server is known to others.
	advertise() because
	// listen is where a component listens that on a host listens at the address, for the reason.
	listen(address, why string) because
	// probes are those of a component that is probed at the address in the probe on a host, and there at its start only
	// if atStart.
	probes(probe Probe, atStart bool) (liveness, startup *Probe)
	// server is the name or address under which components reach the API server of a side.
	server(side pair.Side) string
	// stores are arguments that the spec gives to an API server, with the endpoints that managed stores have here.
	stores(args []spec.Arg) []spec.Arg
	// member is how a member of a managed store is called, where it listens, and how it is reached.
	member(m member) memberArgs
	// memberUser is the common name in the certificates of a member.
	memberUser(store string) string
	// serverNames and memberNames are the DNS names in a certificate of an API server or a member, localhost among
	// them, under which clients reach those of the components that present it; ips are the addresses besides loopback.
	serverNames(cert string, components []Component) []string
	memberNames(cert string, components []Component) []string
	ips() []string
}

// because is the value of an argument, and why it has it.
type because struct{ value, why string }

// member is a member of a managed store, with its ports.
type member struct {
	store                 *spec.Store
	endpoint              *url.URL // of the store, on the member's host
	client, peer, metrics int
}

// url is a URL of the member.
func (m *member) url(address string, port int) string {
	return m.endpoint.Scheme + "://" + HostPort(address, port)
}

// memberArgs are the arguments of a member that have names and addresses, and what it is to a cluster that it does not
// find in its data directory: "" where its environment says so.
type memberArgs struct {
	name, listenClients, advertiseClients, listenPeers, advertisePeers, cluster, state, listenMetrics because
}

// newMember begins a cluster. etcd refuses one whose peers know its cluster already.
var newMember = because{"new", "has no effect once the data directory exists"}

// addresses are those of a host, for components that run on it already, and for what the plan starts. In a cluster,
// that runs once, for the first host; for the others they are nil.
func (b *basis) addresses(host spec.Host, existing bool) addresses {
	switch {
	case b.target != Hosted || existing:
		return onHost{b, host}
	case host.Name == b.file.Spec.Hosts[0].Name:
		return inCluster{b}
	}
	return nil
}

// onHost are the addresses of a host.
type onHost struct {
	*basis
	spec.Host
}

func (o onHost) host() string { return o.Name }

func (o onHost) advertise() because { return because{o.Address, "the host's"} }

func (o onHost) listen(address, why string) because { return because{address, why} }

func (o onHost) probes(probe Probe, atStart bool) (liveness, startup *Probe) {
	if atStart && kubever.Field("v1.Container", "startupProbe").Has(o.file.Spec.Kubelet.Version.Minor) {
		startup = patient(probe)
	}
	return &probe, startup
}

// patient is the same question at the start of a component, which may take its time.
func patient(probe Probe) *Probe {
	probe.DelaySeconds, probe.FailureThreshold = 10, 24
	return &probe
}

func (o onHost) server(side pair.Side) string { return serverAddress(o.side(side).APIServer) }

func (o onHost) stores(args []spec.Arg) []spec.Arg { return args }

func (o onHost) member(m member) memberArgs {
	clients := []string{m.url(loopback, m.client)}
	if own := listenAddress(o.Host, m.endpoint); own != loopback {
		clients = slices.Insert(clients, 0, m.url(own, m.client))
	}
	var cluster []string
	for _, h := range o.file.Spec.Hosts {
		cluster = append(cluster, h.Name+"="+m.url(h.Address, m.peer))
	}
	peers := because{m.url(o.Address, m.peer), "another port than the core store's"}
	return memberArgs{
		name:             because{o.Name, "the member's name is the host's"},
		listenClients:    because{strings.Join(clients, ","), "the store's endpoint, and this host's own components"},
		advertiseClients: because{m.endpoint.Scheme + "://" + m.endpoint.Host, "the store's endpoint"},
		listenPeers:      peers,
		advertisePeers:   peers,
		cluster:          because{strings.Join(cluster, ","), "one member on every host"},
		state:            newMember,
		listenMetrics: because{fmt.Sprintf("http://%s:%d", loopback, m.metrics),
			"the probe's endpoint, without a certificate"},
	}
}

func (o onHost) memberUser(string) string { return o.Name }

func (o onHost) serverNames(string, []Component) []string { return []string{"localhost", o.Name} }

func (o onHost) memberNames(string, []Component) []string { return []string{o.Name, "localhost"} }

func (o onHost) ips() []string { return []string{o.Address} }
