// Package preflight judges a host before anything of a plan starts on it: what the plan needs of the host against what
// was read of it. Reading the host is pkg/preflight/host.
package preflight

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
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Needs are what a plan needs of one of its hosts.
type Needs struct {
	Plan      *plan.Plan
	Host      string
	Target    render.Target
	Files     []FileNeed // by path
	Listeners []Listener // of the components to be started
	Stores    []plan.Store
	Images    []ImageNeed // none of units, which start programs
	// Manifests is the directory from which the kubelet of the host is to start static pods; "" where units start
	// everything.
	Manifests string
}

// FileNeed is a file of the host that components to be started need.
type FileNeed struct {
	Path        string
	Users       []string // who needs it: "--tls-cert-file of kube-apiserver-modern"
	Directory   bool     // it is a directory
	Program     bool     // it is executed
	Listed      bool     // transitions put it there: the spec says where it comes from
	Certificate bool     // it holds at least one
	Secret      bool     // it holds credentials that are no PEM key
	Rendered    []byte   // what render writes there; nil of a file that it does not write
}

// Listener is an address on which a component will listen.
type Listener struct {
	Component *plan.Component
	Address   string // "" is all of them
	Port      int
}

// ImageNeed is an image that a manifest names.
type ImageNeed struct {
	Image      string
	Components []string
}

// New lists what the components that the plan starts on a host need of it. A legacy side that runs already needs
// nothing. Errors: no such host; those of render.Parts.
func New(p *plan.Plan, host string, target render.Target) (*Needs, error) {
	if !slices.ContainsFunc(p.Components, func(c plan.Component) bool { return c.Host == host }) {
		var names []string
		for _, h := range p.Hosts {
			names = append(names, h.Name)
		}
		return nil, fmt.Errorf("host %q: the plan has %s", host, strings.Join(names, ", "))
	}
	parts, err := render.Parts(p, target)
	if err != nil {
		return nil, err
	}
	n := &Needs{Plan: p, Host: host, Target: target}
	if target == render.StaticPod {
		n.Manifests = render.ManifestDirectory
	}
	for i := range parts {
		part := &parts[i]
		if part.Component.Host != host {
			continue
		}
		n.rendered(part)
		n.arguments(part.Component)
		n.kubeconfigs(part.Component)
		n.mounts(part)
		n.image(part.Component)
		n.Listeners = append(n.Listeners, listeners(part.Component)...)
	}
	slices.SortFunc(n.Files, func(a, b FileNeed) int { return cmp.Compare(a.Path, b.Path) })
	for _, s := range p.Stores {
		if s.Managed == nil {
			n.Stores = append(n.Stores, s)
		}
	}
	return n, nil
}

// file adds a user to the need of a file, and returns it.
func (n *Needs) file(name, user string) *FileNeed {
	name = path.Clean(name)
	i := slices.IndexFunc(n.Files, func(f FileNeed) bool { return f.Path == name })
	if i < 0 {
		i = len(n.Files)
		n.Files = append(n.Files, FileNeed{Path: name})
	}
	if f := &n.Files[i]; !slices.Contains(f.Users, user) {
		f.Users = append(f.Users, user)
	}
	return &n.Files[i]
}

// rendered are the files beside a component that render writes.
func (n *Needs) rendered(part *render.Part) {
	for _, f := range part.Beside {
		need := n.file(f.Path, part.Component.Name)
		need.Rendered, need.Secret = f.Data, true
	}
}

// credentials are the flags whose files hold credentials in another form than a PEM key.
var credentials = []string{"basic-auth-file", "cluster-kubeconfig", "encryption-provider-config",
	"experimental-encryption-provider-config", "kubeconfig", "token-auth-file"}

// certificateFlags are the ends of flags whose files hold certificates.
var certificateFlags = []string{"ca-file", "cafile", "cert-file", "certfile", "client-certificate",
	"certificate-authority", "client-ca", "proxy-cert", "tls-cert", "webhook-ca", "webhook-cert"}

// arguments are the files that arguments name.
func (n *Needs) arguments(c *plan.Component) {
	for _, a := range c.Args {
		if !path.IsAbs(a.Value) || !readsFile(c, a.Name) {
			continue
		}
		need := n.file(n.onHost(c, a.Value), fmt.Sprintf("--%s of %s", a.Name, c.Name))
		name := kubever.FlagName(a.Name)
		need.Secret = need.Secret || slices.Contains(credentials, name)
		need.Certificate = need.Certificate || slices.ContainsFunc(certificateFlags, func(suffix string) bool {
			return strings.HasSuffix(name, suffix)
		})
	}
}

func readsFile(c *plan.Component, flag string) bool {
	if c.Kind == plan.Etcd {
		return strings.HasSuffix(flag, "-file")
	}
	return plan.ReadsFile(flag)
}

// onHost is where a file of a component lies on its host. What a unit starts sees the host's own files; one in an
// object of the cluster is copied to the same path of the hosts, where components of the plan read it.
func (n *Needs) onHost(c *plan.Component, file string) string {
	if n.Target == render.Systemd {
		return file
	}
	var inner *plan.Mount
	for i := range c.Mounts {
		m := &c.Mounts[i]
		at := strings.TrimSuffix(m.Seen(), "/")
		if (file == at || strings.HasPrefix(file, at+"/")) &&
			(inner == nil || len(at) > len(strings.TrimSuffix(inner.Seen(), "/"))) {
			inner = m
		}
	}
	if inner == nil || inner.Path == "" {
		return file
	}
	return path.Join(inner.Path, strings.TrimPrefix(file, strings.TrimSuffix(inner.Seen(), "/")))
}

// kubeconfigs are the files that the kubeconfigs of a component refer to.
func (n *Needs) kubeconfigs(c *plan.Component) {
	for _, k := range n.Plan.Kubeconfigs {
		if k.Host != c.Host || k.Component != c.Name {
			continue
		}
		for _, file := range []string{k.CA, k.Cert, k.Key} {
			if file != "" {
				n.file(file, "the kubeconfig "+k.Path)
			}
		}
	}
}

// listed reports whether the spec says where a program comes from.
func (n *Needs) listed(file string) bool {
	return slices.ContainsFunc(n.Plan.Programs, func(p spec.Program) bool { return p.Path == file && p.On(n.Host) })
}

// mounts are the files and directories that a pod does not start without, and the program that a unit starts.
func (n *Needs) mounts(part *render.Part) {
	c := part.Component
	if n.Target == render.Systemd {
		need := n.file(part.Program, "unit "+part.Unit)
		need.Program, need.Listed = true, n.listed(part.Program)
		return
	}
	for _, m := range c.Mounts {
		switch {
		case m.Path == "" || m.Directory && !m.Required:
		case m.Path == c.Program:
			need := n.file(m.Path, "mount "+m.Name+" of "+c.Name)
			need.Program, need.Listed = true, n.listed(m.Path)
		default:
			n.file(m.Path, "mount "+m.Name+" of "+c.Name).Directory = m.Directory
		}
	}
}

func (n *Needs) image(c *plan.Component) {
	if n.Target == render.Systemd {
		return
	}
	for i := range n.Images {
		if n.Images[i].Image == c.Image {
			n.Images[i].Components = append(n.Images[i].Components, c.Name)
			return
		}
	}
	n.Images = append(n.Images, ImageNeed{Image: c.Image, Components: []string{c.Name}})
}

// addressFlags say on which address the port of a flag is.
var addressFlags = map[string]string{"secure-port": "bind-address", "insecure-port": "insecure-bind-address",
	"port": "address"}

// listeners are the addresses on which a component listens: what its arguments say and, where they say nothing, the
// port that the plan knows it by.
func listeners(c *plan.Component) []Listener {
	var list []Listener
	add := func(address string, port int) {
		if ip, err := netip.ParseAddr(address); err == nil && ip.IsUnspecified() {
			address = ""
		}
		l := Listener{Component: c, Address: address, Port: port}
		if port > 0 && !slices.Contains(list, l) {
			list = append(list, l)
		}
	}
	for _, a := range c.Args {
		name := kubever.FlagName(a.Name)
		switch addressFlag, isPort := addressFlags[name]; {
		case isPort:
			port, _ := strconv.Atoi(a.Value)
			address, _ := c.Arg(addressFlag)
			add(address, port)
		case name == "listen" || name == "metrics-listen":
			if u, err := url.Parse("tcp://" + a.Value); err == nil {
				port, _ := strconv.Atoi(u.Port())
				add(u.Hostname(), port)
			}
		case c.Kind == plan.Etcd && strings.HasPrefix(name, "listen-"):
			for text := range strings.SplitSeq(a.Value, ",") {
				if u, err := url.Parse(text); err == nil {
					port, _ := strconv.Atoi(u.Port())
					add(u.Hostname(), port)
				}
			}
		}
	}
	if c.Port > 0 && !slices.ContainsFunc(list, func(l Listener) bool { return l.Port == c.Port }) {
		add("", c.Port)
	}
	return list
}

// Identity is where on the host the files lie with which the modern API server reaches a store; empty where it needs
// none.
func (n *Needs) Identity(s *plan.Store) (ca, cert, key string) {
	if s.TLS == nil {
		return "", "", ""
	}
	files := []string{s.TLS.CA, s.TLS.Cert, s.TLS.Key}
	for i := range n.Plan.Components {
		if c := &n.Plan.Components[i]; c.Host == n.Host && c.Side == pair.Modern && c.Kind == kubever.APIServer {
			for j, flag := range []string{"etcd-cafile", "etcd-certfile", "etcd-keyfile"} {
				if value, ok := c.Arg(flag); ok {
					files[j] = n.onHost(c, value)
				}
			}
		}
	}
	return files[0], files[1], files[2]
}

// Paths lists what has to be read of the host: the files that are needed and, of a legacy side that runs already, those
// with which certificates and tokens are compared.
func (n *Needs) Paths() []string {
	var paths []string
	for _, f := range n.Files {
		paths = append(paths, f.Path)
	}
	for i := range n.Plan.Components {
		c := &n.Plan.Components[i]
		if c.Host != n.Host || c.Side != pair.Legacy {
			continue
		}
		for _, a := range c.Args {
			if slices.Contains(compared(c), kubever.FlagName(a.Name)) && path.IsAbs(a.Value) {
				paths = append(paths, n.onHost(c, a.Value))
			}
		}
	}
	for _, c := range n.Plan.Certificates {
		if c.Host == n.Host && n.needs(c.Cert) && !c.Authority {
			paths = append(paths, c.CA)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// compared are flags of a component of the legacy side whose files are compared with those of the modern one.
func compared(c *plan.Component) []string {
	return append([]string{"client-ca-file", "service-account-private-key-file", "service-account-signing-key-file",
		"tls-cert-file"}, verifies(c))
}

// verifies is the flag whose files hold the keys by which an API server verifies tokens: up to 1.20 its own, where it
// is given none.
func verifies(c *plan.Component) string {
	const flag = "service-account-key-file"
	if _, given := c.Arg(flag); !given {
		return "tls-private-key-file"
	}
	return flag
}

// needs reports whether a component that is to be started names the file.
func (n *Needs) needs(file string) bool {
	return slices.ContainsFunc(n.Files, func(f FileNeed) bool { return f.Path == file })
}
