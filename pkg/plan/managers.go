package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// modernPort are the ports of the modern controller manager and scheduler, with TLS and without: the legacy ones have
// the usual ones, on the same hosts.
var modernPort = map[string]struct{ secure, insecure int }{
	kubever.ControllerManager: {11257, 11252},
	kubever.Scheduler:         {11259, 11251},
}

// controllerManager is a side's controller manager on a host.
func (b *basis) controllerManager(host spec.Host, at addresses, side pair.Side, elected election,
	configs []Kubeconfig) Component {
	s := b.side(side)
	c := b.component(at, side, kubever.ControllerManager, s.ControllerManager)
	l := &argList{component: kubever.ControllerManager, minor: s.Version.Minor}
	clientArgs(l, at, side, s.ControllerManager)
	if side == pair.Modern {
		b.modernManagerArgs(l, elected)
		if b.retired() {
			b.onlyManagerArgs(l)
		}
	} else {
		b.legacyManagerArgs(l, s.ControllerManager.ExtraArgs)
	}
	l.set("use-service-account-credentials", "true",
		"each controller is its own user, so that the policy can distinguish them")
	b.arguments(host, at, &c, l, s.ControllerManager)
	probe := b.daemonProbe(&c, s.Version.Minor)
	c.Port = probe.Port
	c.Liveness, c.Startup = at.probes(probe, true)
	c.Mounts = mounts(&c, s.ControllerManager.ExtraMounts, configs)
	return c
}

// scheduler is a side's scheduler on a host: the legacy one, which places the pods of both sides, until that side is
// retired.
func (b *basis) scheduler(host spec.Host, at addresses, side pair.Side, configs []Kubeconfig) Component {
	s := b.side(side)
	c := b.component(at, side, kubever.Scheduler, s.Scheduler)
	l := &argList{component: kubever.Scheduler, minor: s.Version.Minor}
	clientArgs(l, at, side, s.Scheduler)
	l.set("leader-elect", "true", "one of the hosts is the leader")
	b.arguments(host, at, &c, l, s.Scheduler)
	probe := b.daemonProbe(&c, s.Version.Minor)
	c.Port = probe.Port
	c.Liveness, c.Startup = at.probes(probe, true)
	c.Mounts = mounts(&c, s.Scheduler.ExtraMounts, configs)
	return c
}

// clientArgs are how a component reaches its API server, and where it serves its own health.
func clientArgs(l *argList, at addresses, side pair.Side, c *spec.Component) {
	config := kubeconfigPath(side, l.component, c)
	l.set("kubeconfig", config, fmt.Sprintf("the %s API server of the same host", side))
	secure, listen := servesSecurely(l.component, l.minor), at.listen(loopback, "no remote clients")
	if secure {
		l.set("authentication-kubeconfig", config, "authentication of requests to its own port")
		l.set("authorization-kubeconfig", config, "authentication of requests to its own port")
		l.set("bind-address", listen.value, listen.why)
	} else {
		l.set("address", listen.value, listen.why)
	}
	if side == pair.Modern {
		why := "the legacy controller manager has the usual port"
		if l.component == kubever.Scheduler {
			why = "the legacy scheduler has the usual port until it stops"
		}
		if secure {
			l.set("secure-port", strconv.Itoa(modernPort[l.component].secure), why)
			l.set("port", "0", "no unauthenticated port")
		} else {
			l.set("port", strconv.Itoa(modernPort[l.component].insecure), why)
		}
	}
	l.set("profiling", "false", "not needed")
}

func (b *basis) legacyManagerArgs(l *argList, extra []spec.Arg) {
	pki, network := b.file.Spec.PKI, b.file.Spec.Network
	l.set("leader-elect", "true", "one of the hosts is the leader")
	if value, why := b.legacyControllersValue(b.controllers, extra); value != "" {
		l.need("controllers", value, why)
	}
	if network.PodCIDR != "" {
		l.set("allocate-node-cidrs", "true", "the spec names a pod CIDR")
		l.set("cluster-cidr", network.PodCIDR, "the spec's")
	}
	l.set("service-cluster-ip-range", strings.Join(network.ServiceCIDRs, ","), "the spec's")
	l.set("service-account-private-key-file", pki.ServiceAccountKey, "signs the tokens that both sides accept")
	l.set("root-ca-file", pki.CA, "what pods trust; the same bundle on both sides")
	l.set("cluster-signing-cert-file", pki.CA, "signs the certificate requests of kubelets")
	l.set("cluster-signing-key-file", pki.CAKey, "signs the certificate requests of kubelets")
}

func (b *basis) modernManagerArgs(l *argList, elected election) {
	if b.retired() {
		l.set("controllers", b.onlyControllersValue(), "all that its version runs by default: no others act")
	} else {
		l.set("controllers", controllersValue(b.controllers),
			"a list without \"*\": controllers that are not named are off")
	}
	l.set("leader-elect", "true", "one of the hosts is the leader")
	for _, arg := range elected.args {
		l.set(arg.Name, arg.Value, arg.Why)
	}
	if publisher := controllerOf(b.controllers, pair.Modern, rootCAPublisher); publisher != nil && publisher.On {
		l.set("root-ca-file", b.servingCA(pair.Legacy), "what pods trust; the same bundle on both sides")
	}
}

// kubeconfigPath is where a component's kubeconfig lies.
func kubeconfigPath(side pair.Side, kind string, c *spec.Component) string {
	if c.Kubeconfig != "" {
		return c.Kubeconfig
	}
	directory := configDirectory
	if side == pair.Modern {
		directory = modernDirectory
	}
	return directory + "/" + strings.TrimPrefix(kind, "kube-") + ".conf"
}

// servesSecurely reports whether a component of the version serves on its secure port by default: 1.10 and 1.11 have
// the flag, but no certificate unless they are given one, and were seen to answer no handshake.
func servesSecurely(kind string, m kubever.Minor) bool {
	port, ok := kubever.Flag(kind, "secure-port").Default(m)
	return ok && port != "0"
}

// daemonProbe asks a controller manager or scheduler whether it is well, on the port that its arguments and its version
// say.
func (b *basis) daemonProbe(c *Component, m kubever.Minor) Probe {
	probe := Probe{Host: loopback, Path: "/healthz", DelaySeconds: 15, TimeoutSeconds: 15, PeriodSeconds: 10,
		FailureThreshold: 8}
	addressFlag := "address"
	if secure := portArg(c, "secure-port", m); secure != 0 {
		probe.Scheme, probe.Port, addressFlag = "HTTPS", secure, "bind-address"
	} else {
		probe.Scheme, probe.Port = "HTTP", portArg(c, "port", m)
	}
	if address, ok := c.Arg(addressFlag); ok && isAddress(address) {
		probe.Host = address
	}
	if b.side(c.Side).Existing && probe.Scheme == "HTTPS" {
		probe.Scheme, probe.Path = "", "" // whether it answers strangers is for its arguments to say
	}
	return probe
}

// portArg is the port that the argument names, or its version's default; 0 when it has none.
func portArg(c *Component, name string, m kubever.Minor) int {
	value, ok := c.Arg(name)
	if !ok {
		value, _ = kubever.Flag(c.Kind, name).Default(m)
	}
	port, err := strconv.Atoi(value)
	if err != nil {
		return 0
	}
	return port
}

// kubeconfigs are the files with which the controller managers and the scheduler of a host reach their API servers. A
// component that runs already has its own.
func (b *basis) kubeconfigs(host spec.Host, joint *duties, pods *Pods) []Kubeconfig {
	at := b.addresses(host, false)
	if at == nil {
		return nil
	}
	var list []Kubeconfig
	for _, side := range b.runningSides() {
		s := b.side(side)
		if s.Existing {
			continue
		}
		for _, of := range []struct {
			kind string
			c    *spec.Component
		}{{kubever.ControllerManager, s.ControllerManager}, {kubever.Scheduler, s.Scheduler}} {
			if of.c == nil {
				continue
			}
			directory := b.file.Spec.PKI.Directory
			if side == pair.Modern {
				directory += "/modern"
			}
			base := directory + "/" + strings.TrimPrefix(of.kind, "kube-")
			list = append(list, Kubeconfig{
				Host: at.host(), Component: componentName(side, of.kind), Path: kubeconfigPath(side, of.kind, of.c),
				Server: "https://" + HostPort(at.server(side), s.APIServer.Port),
				CA:     b.file.Spec.PKI.CA, Cert: base + ".crt", Key: base + ".key", User: "system:" + of.kind,
			})
		}
	}
	list = append(list, webhookKubeconfigs(host, b.file.Spec.PKI.Directory, pods)...)
	if b.joins(host, joint) {
		list = append(list, b.jointKubeconfigs(host, JointControllers, JointKubeconfig)...)
	}
	if b.gatewayRuns(host) {
		list = append(list, b.jointKubeconfigs(host, JointGateway, gatewayKubeconfig)...)
	}
	return list
}

// serverAddress is where components of the same host reach an API server.
func serverAddress(server *spec.APIServer) string {
	if isUnspecified(server.Address) {
		return loopback
	}
	return server.Address
}
