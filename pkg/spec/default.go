package spec

import (
	"net/netip"
	"net/url"
	"path"
	"strconv"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// Default fills what the file leaves out, as the comments of the types say. It changes f, and changes nothing when it
// is called again. Values that cannot be derived stay empty; Validate says so.
func (f *File) Default() {
	s := &f.Spec
	setDefault(&s.Layout, LayoutSplit)
	if s.Kubelet.Version.Minor == 0 {
		s.Kubelet.Version = s.Legacy.Version
	}
	if k := s.Kubelet.Modern; k != nil && k.Version.Minor == 0 {
		k.Version = s.Modern.Version
	}
	s.Network.setDefaults()
	s.PKI.setDefaults(&s.Legacy, s.Network.ClusterDomain)
	if k := s.Kubelet.Modern; k != nil && len(k.Nodes) > 0 {
		k.setDefaults(s.PKI.CA)
	}
	s.defaultTLS()
	for i := range s.Stores {
		s.Stores[i].setDefaults(s.PKI.Directory)
	}
	modernStore := "modern"
	if s.Layout == LayoutShared {
		modernStore = "core"
	}
	s.Legacy.setDefaults("core", 6443, path.Join(s.PKI.Directory, "apiserver"), bindAddress(s.Hosts))
	s.Modern.setDefaults(modernStore, 7443, path.Join(s.PKI.Directory, "modern/apiserver"), bindAddress(s.Hosts))
	if s.Pods != nil {
		s.Pods.setDefaults(&s.Network)
	}
	if s.Gateway != nil {
		setDefault(&s.Gateway.Create, pair.Modern)
		setDefault(&s.Gateway.Binary, "/usr/local/bin/fusionctl")
		setDefault(&s.Gateway.Port, 8443)
	}
	if s.Controllers == nil {
		s.Controllers = &Controllers{}
	}
	setDefault(&s.Controllers.Binary, "/usr/local/bin/fusionctl")
	setDefault(&s.Controllers.Port, 10270)
	if s.Backup != nil {
		setDefault(&s.Backup.Keep, DefaultBackupsKept)
		setDefault(&s.Backup.Claim, "fusionctl-backup")
		setDefault(&s.Backup.Size, defaultBackupSize)
	}
	for i := range s.Access {
		if a := &s.Access[i]; len(a.Resources) > 0 && len(a.Namespaces) == 0 {
			a.Namespaces = []string{"*"}
		}
	}
}

// defaultBackupSize has room for seven snapshots of stores of the example.
const defaultBackupSize = "20Gi"

func (k *ModernKubelet) setDefaults(ca string) {
	setDefault(&k.Unit, "kubelet.service")
	setDefault(&k.Program, "/opt/kubernetes/"+k.Version.String()+"/bin/kubelet")
	setDefault(&k.CA, ca)
	setDefault(&k.Cert, "/var/lib/kubelet/pki/kubelet-client-current.pem")
	setDefault(&k.Key, k.Cert)
	setDefault(&k.Runtime, "unix:///run/containerd/containerd.sock")
}

func (n *Network) setDefaults() {
	if len(n.ServiceCIDRs) == 0 {
		n.ServiceCIDRs = []string{"10.96.0.0/12"}
	}
	setDefault(&n.NodePortRange, "30000-32767")
	setDefault(&n.ClusterDomain, "cluster.local")
}

func (p *Pods) setDefaults(n *Network) {
	setDefault(&p.Service.Namespace, "default")
	setDefault(&p.Service.Name, "kubernetes-modern")
	setDefault(&p.SideLabel, "kubefusion.dev/side")
	setDefault(&p.Admission.FailurePolicy, FailurePolicyFail)
	setDefault(&p.Admission.TimeoutSeconds, 5)
	setDefault(&p.Admission.Port, 10271)
	setDefault(&p.UnknownFields, UnknownFieldsWarn)
	if p.Service.ClusterIP != "" {
		return
	}
	ranges := n.ModernServiceCIDRs
	if len(ranges) == 0 {
		ranges = n.ServiceCIDRs
	}
	// The first address of a range is that of the service kubernetes. The one after it is in the part of the range that
	// allocators leave alone as long as they can.
	if prefix, err := netip.ParsePrefix(ranges[0]); err == nil {
		p.Service.ClusterIP = prefix.Masked().Addr().Next().Next().String()
	}
}

func (p *PKI) setDefaults(legacy *Side, clusterDomain string) {
	setDefault(&p.Directory, "/etc/kubernetes/pki")
	directory := p.Directory
	if legacy.Existing {
		p.Adopt(legacy)
		directory = path.Join(p.Directory, "modern")
	}
	for file, field := range map[string]*string{
		"ca.crt":                       &p.CA,
		"ca.key":                       &p.CAKey,
		"sa.key":                       &p.ServiceAccountKey,
		"front-proxy-ca.crt":           &p.RequestHeaderCA,
		"front-proxy-client.crt":       &p.ProxyClientCert,
		"front-proxy-client.key":       &p.ProxyClientKey,
		"apiserver-kubelet-client.crt": &p.KubeletClientCert,
		"apiserver-kubelet-client.key": &p.KubeletClientKey,
	} {
		setDefault(field, path.Join(directory, file))
	}
	if len(p.ServiceAccountPublic) == 0 {
		p.ServiceAccountPublic = []string{path.Join(directory, "sa.pub")}
	}
	setDefault(&p.ServiceAccountIssuer, "https://kubernetes.default.svc."+clusterDomain)
}

func (s *Store) setDefaults(pki string) {
	setDefault(&s.Prefix, "/registry")
	if s.Managed == nil {
		return
	}
	m := s.Managed
	if m.Image == "" && m.Version != "" {
		m.Image = "registry.k8s.io/etcd:" + m.Version + "-0"
	}
	setDefault(&s.Version, m.Version)
	client := s.endpoint()
	if port, err := strconv.Atoi(client.Port()); err == nil && m.PeerPort == 0 {
		m.PeerPort = port + 1
	}
	if client.Scheme != "https" {
		return
	}
	directory := path.Join(pki, "etcd-"+s.Name)
	trusted := directory + "/ca.crt"
	if s.TLS != nil {
		trusted = s.TLS.CA // an API server trusts one file for all its stores
	}
	if m.ServerTLS == nil {
		m.ServerTLS = &TLS{CA: trusted, Cert: directory + "/server.crt", Key: directory + "/server.key"}
	}
	if m.PeerTLS == nil {
		m.PeerTLS = &TLS{CA: trusted, Cert: directory + "/peer.crt", Key: directory + "/peer.key"}
	}
}

// defaultTLS gives https stores without files of their own those of the first store that has some: an API server shows
// one identity to all its stores.
func (s *Spec) defaultTLS() {
	var first *TLS
	for i := range s.Stores {
		t := s.Stores[i].TLS // one that will be refused is refused once
		if t != nil && path.IsAbs(t.CA) && (path.IsAbs(t.Cert) && path.IsAbs(t.Key) || t.Cert+t.Key == "") &&
			(first == nil || !first.Identifies() && t.Identifies()) {
			first = t
		}
	}
	if first == nil {
		return
	}
	for i := range s.Stores {
		if store := &s.Stores[i]; store.TLS == nil && store.scheme() == "https" {
			identity := *first
			store.TLS = &identity
		}
	}
}

func (s *Store) scheme() string {
	u := s.endpoint()
	return u.Scheme
}

// endpoint is the first endpoint, the zero URL when there is none that can be read.
func (s *Store) endpoint() url.URL {
	if len(s.Endpoints) > 0 {
		if u, err := url.Parse(s.Endpoints[0]); err == nil {
			return *u
		}
	}
	return url.URL{}
}

func (s *Side) setDefaults(store string, port int, certificate, address string) {
	setDefault(&s.Store, store)
	if s.APIServer == nil {
		return
	}
	setDefault(&s.APIServer.Port, port)
	setDefault(&s.APIServer.Cert, certificate+".crt")
	setDefault(&s.APIServer.Key, certificate+".key")
	setDefault(&s.APIServer.Address, address)
}

// bindAddress is the wildcard that serves every host's address: Go listens on both families only for the IPv6 one.
func bindAddress(hosts []Host) string {
	for _, host := range hosts {
		if address, err := netip.ParseAddr(host.Address); err == nil && address.Is6() {
			return "::"
		}
	}
	return "0.0.0.0"
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
