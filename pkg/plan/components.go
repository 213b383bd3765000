package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Etcd is the kind of a component that is a member of a managed store; the other kinds are kubever's.
const Etcd = "etcd"

// modernDirectory is where the files of the modern side lie on every host, kubeconfigs and the policy.
const (
	configDirectory = "/etc/kubernetes"
	modernDirectory = configDirectory + "/modern"
	policyFile      = modernDirectory + "/policy.jsonl"
)

// loopback is where components of one host reach each other.
const loopback = "127.0.0.1"

// basis is what the parts of a plan are computed from, once it is decided who owns what and which controllers run. It
// is complete, and nothing changes it.
type basis struct {
	*placement
	target      Target
	stores      []Store
	rows        []Resource
	controllers []Controller
}

// components lists what runs on a host, or for it in a cluster: members of managed stores, then the legacy side, then
// the modern one, then what sees both.
func (b *basis) components(host spec.Host, elected election, joint *duties, pods *Pods, configs []Kubeconfig) (
	[]Component, error) {
	var list []Component
	for i := range b.file.Spec.Stores {
		store := &b.file.Spec.Stores[i]
		if store.Managed == nil {
			continue
		}
		endpoint, err := b.endpointOn(host, store)
		if err != nil {
			return nil, err
		}
		if at := b.addresses(host, false); at != nil {
			list = append(list, b.etcd(at, store, endpoint))
		}
	}
	for _, side := range b.runningSides() {
		s := b.side(side)
		at := b.addresses(host, s.Existing)
		if at == nil {
			continue
		}
		list = append(list, b.apiServer(host, at, side, pods))
		if s.ControllerManager != nil {
			list = append(list, b.controllerManager(host, at, side, elected, configs))
		}
		if s.Scheduler != nil {
			list = append(list, b.scheduler(host, at, side, configs))
		}
	}
	if b.joins(host, joint) {
		list = append(list, b.jointControllers(host, joint, pods, configs))
	}
	if b.gatewayRuns(host) {
		list = append(list, b.jointGateway(host, configs))
	}
	return list, nil
}

func (b *basis) side(name pair.Side) *spec.Side {
	if name == pair.Legacy {
		return &b.file.Spec.Legacy
	}
	return &b.file.Spec.Modern
}

func (b *basis) minor(name pair.Side) kubever.Minor { return b.side(name).Version.Minor }

// component starts a component of a side: everything but arguments, probes and mounts.
func (b *basis) component(at addresses, side pair.Side, kind string, c *spec.Component) Component {
	s := b.side(side)
	image := imageOf(s, c, kind)
	for i := range b.file.Spec.Hosts {
		if h := &b.file.Spec.Hosts[i]; s.Existing && side == pair.Legacy && h.Name == at.host() {
			image = cmp.Or(h.Image(kind), image)
		}
	}
	command := c.Command
	if len(command) == 0 {
		command = commandOf(image, kind)
	}
	return Component{
		Host: at.host(), Side: side, Kind: kind, Name: componentName(side, kind),
		Version: s.Version.String(), Image: image, Command: command, Env: c.ExtraEnv,
	}
}

// componentName distinguishes the components of the two sides, which run on the same hosts.
func componentName(side pair.Side, kind string) string {
	if side == pair.Modern {
		return kind + "-modern"
	}
	return kind
}

// commandOf is how a component is started in an image: by its own name, or as a part of the hyperkube, which takes the
// components' full names in every version that has one (read in cmd/hyperkube of 1.6.13, 1.10.13 and 1.15.12).
func commandOf(image, kind string) []string {
	repository, _, _ := strings.Cut(image, "@")
	repository, _, _ = strings.Cut(path.Base(repository), ":")
	if strings.HasPrefix(repository, "hyperkube") {
		return []string{"/hyperkube", kind}
	}
	return []string{kind}
}

// imageOf is the component's image: its own, its side's, or the release's.
func imageOf(s *spec.Side, c *spec.Component, kind string) string {
	switch {
	case c.Image != "":
		return c.Image
	case s.Image != "":
		return s.Image
	default:
		return "registry.k8s.io/" + kind + ":v" + s.Version.String()
	}
}

// arguments merges what the plan wants of a component with what the spec says of it.
func (b *basis) arguments(host spec.Host, at addresses, into *Component, l *argList, c *spec.Component) {
	if !b.side(into.Side).Existing {
		into.Args = l.with(at.stores(c.ExtraArgs))
		b.filesOn(host, into.Args)
		return
	}
	running := b.runsWith(host, into.Kind)
	into.Args = l.onto(running, c.ChangeArgs)
	for _, change := range c.ChangeArgs {
		for _, a := range running {
			if change.Remove && kubever.FlagName(a.Name) == kubever.FlagName(change.Name) {
				into.Removed = append(into.Removed,
					Arg{Name: a.Name, Value: a.Value, Why: whyChanged, Origin: FromPlan})
			}
		}
	}
}

// onHost puts a host's own address where the arguments of a running component have that of another: the spec holds one
// list, read on one host, and an API server advertises the address of the host that it runs on.
func (b *basis) onHost(host spec.Host, running []spec.Arg) []spec.Arg {
	list := slices.Clone(running)
	for i, arg := range list {
		if slices.ContainsFunc(b.file.Spec.Hosts, func(h spec.Host) bool { return h.Address == arg.Value }) {
			list[i].Value = host.Address
		}
	}
	return list
}

// clusterState is the argument of a member that says what it does without a data directory.
const clusterState = "initial-cluster-state"

// etcdName is the name of the members of a managed store.
func etcdName(store string) string { return Etcd + "-" + store }

// etcd is a member of a managed store, which has the endpoint on its host.
func (b *basis) etcd(at addresses, store *spec.Store, endpoint *url.URL) Component {
	managed := store.Managed
	port, _ := strconv.Atoi(endpoint.Port())
	m := member{store: store, endpoint: endpoint, client: port, peer: managed.PeerPort,
		metrics: metricsPort(port, managed.PeerPort)}
	var args []Arg
	set := func(name, value, why string) {
		args = append(args, Arg{Name: name, Value: value, Why: why, Origin: FromPlan})
	}
	here := at.member(m)
	set("name", here.name.value, here.name.why)
	set("data-dir", managed.DataDir, "the spec's")
	set("listen-client-urls", here.listenClients.value, here.listenClients.why)
	set("advertise-client-urls", here.advertiseClients.value, here.advertiseClients.why)
	set("listen-peer-urls", here.listenPeers.value, here.listenPeers.why)
	set("initial-advertise-peer-urls", here.advertisePeers.value, here.advertisePeers.why)
	set("initial-cluster", here.cluster.value, here.cluster.why)
	set("initial-cluster-token", etcdName(store.Name), "members of another store are refused")
	if here.state.value != "" {
		set(clusterState, here.state.value, here.state.why)
	}
	set("listen-metrics-urls", here.listenMetrics.value, here.listenMetrics.why)
	if endpoint.Scheme == "https" {
		set("cert-file", managed.ServerTLS.Cert, "serving certificate")
		set("key-file", managed.ServerTLS.Key, "serving certificate")
		set("trusted-ca-file", managed.ServerTLS.CA, "clients have certificates of this CA")
		set("client-cert-auth", "true", "no client without a certificate reads or writes the store")
		set("peer-cert-file", managed.PeerTLS.Cert, "between members")
		set("peer-key-file", managed.PeerTLS.Key, "between members")
		set("peer-trusted-ca-file", managed.PeerTLS.CA, "between members")
		set("peer-client-cert-auth", "true", "between members")
	}
	image := managed.Image
	if image == "" {
		image = "registry.k8s.io/etcd:" + managed.Version + "-0"
	}
	c := Component{
		Host: at.host(), Kind: Etcd, Name: etcdName(store.Name), Version: managed.Version, Image: image,
		Command: []string{Etcd}, Args: args, Port: port, Store: store.Name,
	}
	c.Liveness, c.Startup = at.probes(Probe{Scheme: "HTTP", Host: loopback, Port: m.metrics, Path: "/health",
		DelaySeconds: 15, TimeoutSeconds: 15, PeriodSeconds: 10, FailureThreshold: 8}, false)
	c.Mounts = append(c.Mounts, Mount{Name: "data", Path: managed.DataDir, Directory: true})
	if endpoint.Scheme == "https" {
		c.Mounts = append(c.Mounts, directories(managed.ServerTLS.Cert, managed.ServerTLS.Key, managed.ServerTLS.CA,
			managed.PeerTLS.Cert, managed.PeerTLS.Key, managed.PeerTLS.CA)...)
	}
	c.Mounts = named(c.Mounts)
	return c
}

// metricsPort is the next port that is neither the clients' nor the peers'.
func metricsPort(client, peer int) int {
	port := client + 2
	if port == peer {
		port++
	}
	return port
}

// endpointOn finds the endpoint of a managed store that is the host's own.
func (b *basis) endpointOn(host spec.Host, store *spec.Store) (*url.URL, error) {
	for _, endpoint := range store.Endpoints {
		if u, err := url.Parse(endpoint); err == nil && b.file.Spec.OnHost(u, host) {
			return u, nil
		}
	}
	return nil, b.file.Errorf("spec.stores",
		"store %q is managed, so host %q needs a member: add https://%s to its endpoints",
		store.Name, host.Name, HostPort(host.Address, 2379))
}

// listenAddress is where a member listens for its endpoint: etcd does not listen on a name.
func listenAddress(host spec.Host, endpoint *url.URL) string {
	address, err := netip.ParseAddr(endpoint.Hostname())
	switch {
	case err == nil && address.IsLoopback():
		return address.String()
	case endpoint.Hostname() == "localhost" && host.Name != "localhost":
		return loopback
	}
	return host.Address
}

// servers is the value of a flag that lists the members of a store: this host's own first where there is one, since it
// is the nearest; the client fails over to the others.
func (b *basis) servers(host spec.Host, storeName string) []string {
	store := storeOf(b.stores, storeName)
	rank := func(endpoint string) int {
		if u, err := url.Parse(endpoint); err == nil && b.file.Spec.OnHost(u, host) {
			return 0
		}
		return 1
	}
	servers := slices.Clone(store.Endpoints)
	slices.SortStableFunc(servers, func(x, y string) int { return rank(x) - rank(y) })
	return servers
}

// ofTheImage are directories that every image has of its own: mounting the host's over one would hide what the program
// needs.
var ofTheImage = []string{"/", "/bin", "/etc", "/etc/ssl", "/lib", "/lib64", "/opt", "/run", "/sbin", "/tmp", "/usr",
	"/usr/local", "/usr/local/bin", "/var", "/var/run"}

// directories are read-only mounts of the directories in which the files lie; of a file in a directory that the image
// has of its own, the file alone.
func directories(files ...string) []Mount {
	var mounts []Mount
	for _, file := range files {
		if file == "" || !path.IsAbs(file) {
			continue
		}
		mount := Mount{Path: path.Dir(file), ReadOnly: true, Directory: true, Required: true}
		if slices.Contains(ofTheImage, mount.Path) {
			mount = Mount{Path: path.Clean(file), ReadOnly: true}
		}
		mounts = append(mounts, mount)
	}
	return mounts
}

// named drops mounts that lie within others, sorts by path and gives each a name that is a DNS label.
func named(mounts []Mount) []Mount {
	slices.SortStableFunc(mounts, func(a, b Mount) int { return strings.Compare(a.Seen(), b.Seen()) })
	var kept []Mount
	at := map[string]int{} // of those that are kept, by where they are seen
	for _, m := range mounts {
		if outer, within := holder(m, kept, at); within {
			kept[outer].join(m)
			continue
		}
		at[m.Seen()] = len(kept)
		kept = append(kept, m)
	}
	taken := map[string]bool{}
	for i := range kept {
		if kept[i].Name == "" {
			kept[i].Name = label(kept[i].Seen())
		}
		for base, n := kept[i].Name, 2; taken[kept[i].Name]; n++ {
			kept[i].Name = fmt.Sprintf("%s-%d", base, n)
		}
		taken[kept[i].Name] = true
	}
	return kept
}

// holder is the first of some mounts in which another one lies, or that is seen at the same place.
func holder(m Mount, kept []Mount, at map[string]int) (outer int, within bool) {
	for i := 0; m.Seen() == m.Path && i < len(m.Path); i++ {
		if m.Path[i] != '/' {
			continue
		}
		for _, above := range []string{m.Path[:i], m.Path[:i+1]} {
			if outer, there := at[above]; there && above != m.Path && (m.ReadOnly || !kept[outer].ReadOnly) {
				return outer, true
			}
		}
	}
	outer, within = at[m.Seen()]
	return outer, within
}

// join takes a mount that lies within this one, which is then known to be a directory, or is this one.
func (m *Mount) join(within Mount) {
	m.Required = m.Required || within.Required
	switch {
	case m.Seen() != within.Seen():
		m.Unchecked = false
	case !within.Unchecked && m.Unchecked:
		m.Unchecked, m.Directory = false, within.Directory
	}
}

// label turns a path into a DNS label: /etc/kubernetes/pki is etc-kubernetes-pki.
func label(file string) string {
	mapped := spec.DNSLabel(file)
	if len(mapped) > 50 {
		mapped = strings.Trim(mapped[len(mapped)-50:], "-")
	}
	if mapped == "" {
		return "root"
	}
	return mapped
}

// mounts are the files that arguments name, what the spec adds, and the trust store of the host.
func mounts(c *Component, extra []spec.Mount, configs []Kubeconfig) []Mount {
	var list []Mount
	for _, m := range extra {
		if m.Volume != "" {
			continue // what fills it is not in the plan
		}
		mount := Mount{Name: m.Name, Path: m.HostPath, ReadOnly: m.ReadOnly, Directory: m.HostPath != "",
			Unchecked: m.HostPath != "", Secret: m.Secret, ConfigMap: m.ConfigMap}
		if m.At() != m.HostPath {
			mount.At = m.At()
		}
		list = append(list, mount)
	}
	for _, arg := range c.Args {
		if ReadsFile(arg.Name) {
			list = append(list, directories(arg.Value)...)
		} else if ReadsDirectory(arg.Name) {
			list = append(list, Mount{Path: arg.Value, ReadOnly: true, Directory: true})
		} else if writtenFlags[kubever.FlagName(arg.Name)] {
			if path.IsAbs(arg.Value) {
				list = append(list, Mount{Path: path.Dir(arg.Value), Directory: true})
			}
		}
	}
	for _, k := range configs {
		if k.Host == c.Host && k.Component == c.Name {
			list = append(list, directories(k.CA, k.Cert, k.Key)...)
		}
	}
	return named(list)
}

// ownFileFlags are the flags of fusionctl's own components whose value is a file that they read.
var ownFileFlags = map[string]bool{
	"legacy-kubeconfig": true, "modern-kubeconfig": true, "cluster-kubeconfig": true, "plan": true, "client-ca": true,
	"policy":     true,
	"proxy-cert": true, "proxy-key": true, "tls-cert": true, "tls-key": true, "webhook-ca": true, "webhook-cert": true,
	"webhook-client-ca": true, "webhook-key": true,
}

// ReadsFile reports whether the value of a flag is a file that a component reads.
func ReadsFile(flag string) bool {
	return kubever.ReadsFile(flag) || ownFileFlags[kubever.FlagName(flag)]
}

// readDirectoryFlags are the flags whose value is a directory that the component reads.
var readDirectoryFlags = map[string]bool{"conversion-rules": true}

// ReadsDirectory reports whether the value of a flag is a directory that a component reads.
func ReadsDirectory(flag string) bool { return readDirectoryFlags[kubever.FlagName(flag)] }

// writtenFlags are the flags whose value is a file that the component writes.
var writtenFlags = map[string]bool{"audit-log-path": true, "log-file": true}

// HostPort joins an address and a port as a URL wants them: an IPv6 address stands in brackets.
func HostPort(address string, port int) string {
	if strings.Contains(address, ":") {
		return fmt.Sprintf("[%s]:%d", address, port)
	}
	return fmt.Sprintf("%s:%d", address, port)
}
