package spec

import (
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// arguments refuses extraArgs that contradict a field of the file: the field is what everything else is planned from,
// and the argument is what the component obeys.
func (v *validator) arguments() {
	s := &v.file.Spec
	if v.Lines.Trusts("spec.stores") && v.Lines.Trusts("spec.legacy") {
		v.legacyStore()
	}
	if s.Legacy.APIServer != nil {
		v.agree("spec.legacy.apiServer", &s.Legacy.APIServer.Component, []saidTwice{
			{"secure-port", strconv.Itoa(s.Legacy.APIServer.Port), "spec.legacy.apiServer.port", sameText},
			{"service-cluster-ip-range", strings.Join(s.Network.ServiceCIDRs, ","), "spec.network.serviceCIDRs",
				sameRanges},
			{"service-node-port-range", s.Network.NodePortRange, "spec.network.nodePortRange", samePorts},
		})
	}
	if s.Modern.APIServer == nil {
		return
	}
	ranges, from := s.Network.ModernServiceCIDRs, "spec.network.modernServiceCIDRs"
	if len(ranges) == 0 {
		ranges, from = s.Network.ServiceCIDRs, "spec.network.serviceCIDRs"
	}
	v.agree("spec.modern.apiServer", &s.Modern.APIServer.Component, []saidTwice{
		{"secure-port", strconv.Itoa(s.Modern.APIServer.Port), "spec.modern.apiServer.port", sameText},
		{"tls-cert-file", s.Modern.APIServer.Cert, "spec.modern.apiServer.cert", sameText},
		{"tls-private-key-file", s.Modern.APIServer.Key, "spec.modern.apiServer.key", sameText},
		{"service-cluster-ip-range", strings.Join(ranges, ","), from, sameRanges},
		{"service-node-port-range", s.Network.NodePortRange, "spec.network.nodePortRange", samePorts},
	})
	if s.Modern.ControllerManager != nil {
		v.modernKubeconfig("spec.modern.controllerManager", s.Modern.ControllerManager)
	}
}

// saidTwice is an argument whose value a field of the file says too.
type saidTwice struct {
	name, value string
	path        string // of the field
	same        func(given, said string) bool
}

func (v *validator) agree(at string, c *Component, list []saidTwice) {
	for _, said := range list {
		if i, ok := lastArg(c, said.name); ok && !said.same(c.ExtraArgs[i].Value, said.value) &&
			v.Lines.Trusts(said.path) {
			v.addf(index(at+".extraArgs", i)+".value", "--%s=%s: %s has %q, on which the plan is based; want the "+
				"same in both", said.name, c.ExtraArgs[i].Value, said.path, said.value)
		}
	}
}

// legacyStore wants the legacy API server's own arguments to lead where legacy.store says its objects are. Everything
// that is said about what both sides see rests on it.
func (v *validator) legacyStore() {
	side := &v.file.Spec.Legacy
	var store *Store
	at := ""
	for i := range v.file.Spec.Stores {
		if v.file.Spec.Stores[i].Name == side.Store {
			store, at = &v.file.Spec.Stores[i], index("spec.stores", i)
		}
	}
	if side.APIServer == nil || store == nil {
		return // reported
	}
	c := &side.APIServer.Component
	i, given := lastArg(c, "etcd-prefix")
	prefix := "/registry" // of a server that is not told
	if given {
		prefix = path.Join("/", c.ExtraArgs[i].Value)
	}
	switch {
	case prefix == store.Prefix:
	case given:
		v.addf(index("spec.legacy.apiServer.extraArgs", i)+".value", "--etcd-prefix=%s: store %q has the prefix %q; "+
			"want the same in both, or each side reads where the other writes nothing: set prefix: %s for every "+
			"store", c.ExtraArgs[i].Value, store.Name, store.Prefix, prefix)
	case side.Existing:
		v.addf(at+".prefix", "%q: the legacy API server runs without --etcd-prefix, so its keys are under /registry",
			store.Prefix)
	}
	i, given = lastArg(c, "etcd-servers")
	if !given {
		return
	}
	for server := range strings.SplitSeq(c.ExtraArgs[i].Value, ",") {
		for _, endpoint := range store.Endpoints {
			if sameMember(strings.TrimSpace(server), endpoint) {
				return
			}
		}
	}
	v.addf(index("spec.legacy.apiServer.extraArgs", i)+".value", "--etcd-servers=%s: none of them is an endpoint of "+
		"store %q (%s), the legacy side's; list them under the store as they are written here", c.ExtraArgs[i].Value,
		store.Name, strings.Join(store.Endpoints, ", "))
}

// modernKubeconfig keeps the modern controllers away from the legacy API server, where no policy holds them back.
func (v *validator) modernKubeconfig(at string, c *Component) {
	for _, name := range []string{"kubeconfig", "master"} {
		if i, ok := lastArg(c, name); ok && !(name == "kubeconfig" && c.ExtraArgs[i].Value == c.Kubeconfig) {
			v.addf(index(at+".extraArgs", i)+".name", "%q: is the kubeconfig of an API server that is not in the "+
				"plan; set the path of the right one as %s.kubeconfig", name, at)
		}
	}
	legacy := map[string]string{"/etc/kubernetes/controller-manager.conf": "the legacy controller manager",
		"/etc/kubernetes/scheduler.conf": "the legacy scheduler",
		"/etc/kubernetes/admin.conf":     "the administrator, whom no policy limits"}
	for _, other := range []struct {
		name string
		c    *Component
	}{{"the legacy controller manager", v.file.Spec.Legacy.ControllerManager},
		{"the legacy scheduler", v.file.Spec.Legacy.Scheduler}} {
		if other.c == nil {
			continue
		}
		legacy[other.c.Kubeconfig] = other.name
		if i, ok := lastArg(other.c, "kubeconfig"); ok {
			legacy[other.c.ExtraArgs[i].Value] = other.name
		}
	}
	if whose, taken := legacy[c.Kubeconfig]; taken && c.Kubeconfig != "" {
		v.addf(at+".kubeconfig", "%q: is the kubeconfig of %s; the modern controllers need another one, of the "+
			"modern API server", c.Kubeconfig, whose)
	}
}

// lastArg finds the argument that counts: of several of one name the last. The components take underscores for dashes.
func lastArg(c *Component, name string) (int, bool) {
	for i := len(c.ExtraArgs) - 1; i >= 0; i-- {
		if kubever.FlagName(c.ExtraArgs[i].Name) == name {
			return i, true
		}
	}
	return 0, false
}

func sameText(given, said string) bool { return strings.TrimSpace(given) == said }

// sameRanges compares lists of address ranges however they are spelled. A server takes a range with bits behind the
// mask.
func sameRanges(given, said string) bool {
	a, b := strings.Split(given, ","), strings.Split(said, ",")
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, errX := netip.ParsePrefix(strings.TrimSpace(a[i]))
		y, errY := netip.ParsePrefix(strings.TrimSpace(b[i]))
		if errX != nil || errY != nil || x.Masked() != y.Masked() {
			return false
		}
	}
	return true
}

// samePorts compares ranges of ports: FROM+MORE is the same as FROM-(FROM+MORE), and one port is a range of one.
func samePorts(given, said string) bool {
	given = strings.TrimSpace(given)
	if from, more, ok := strings.Cut(given, "+"); ok {
		low, errLow := strconv.Atoi(strings.TrimSpace(from))
		size, errSize := strconv.Atoi(strings.TrimSpace(more))
		if errLow == nil && errSize == nil {
			given = strconv.Itoa(low) + "-" + strconv.Itoa(min(low+size, 65535))
		}
	} else if !strings.Contains(given, "-") {
		given += "-" + given
	}
	return given == said
}

// sameMember reports whether two URLs are one member of an etcd, as far as they tell: a server on the same host may
// call it by a loopback address, another scheme is a proxy's or a mistake of its own.
func sameMember(a, b string) bool {
	x, errX := url.Parse(WithScheme(a))
	y, errY := url.Parse(WithScheme(b))
	if errX != nil || errY != nil {
		return false
	}
	return server(x) == server(y) || x.Port() == y.Port() && (isLoopback(x.Hostname()) || isLoopback(y.Hostname()))
}

// WithScheme completes the address of an etcd member: API servers take HOST:PORT for http://HOST:PORT.
func WithScheme(endpoint string) string {
	if strings.Contains(endpoint, "://") {
		return endpoint
	}
	return "http://" + endpoint
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}
