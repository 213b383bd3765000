package plan

import (
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// What a certificate may be used for.
const (
	UsageServer = "server"
	UsageClient = "client"
)

// certificates lists what the components of a plan present and trust on a host, or for it in a cluster. None is in a
// group that a server trusts without asking its policy.
func (b *basis) certificates(host spec.Host, pods, served *Pods, configs []Kubeconfig,
	components []Component) []Certificate {
	at := b.addresses(host, false)
	if at == nil {
		return nil
	}
	pki := b.file.Spec.PKI
	var list []Certificate
	for _, side := range b.runningSides() {
		s := b.side(side)
		reached := at.serverNames(b.fileOn(host, s.APIServer.Cert), components)
		dnsNames, ips := withNames(append(b.servedNames(side, served), reached...), b.serverIPs(at, side, served),
			s.APIServer.CertSANs)
		list = append(list, Certificate{
			Cert: s.APIServer.Cert, Key: s.APIServer.Key, CA: pki.CA, CommonName: "kube-apiserver",
			Usages:   []string{UsageServer},
			DNSNames: dnsNames, IPs: ips,
			Existing: s.Existing,
			Why:      "serving certificate of the " + string(side) + " API server",
		})
	}
	for _, k := range configs {
		list = append(list, Certificate{Cert: k.Cert, Key: k.Key, CA: pki.CA, CommonName: k.User,
			Usages: []string{UsageClient}, Why: "the " + k.Component + " identifies itself by it"})
	}
	if b.file.Spec.Legacy.Existing && !b.exists(host, b.fileOn(host, pki.CA)) {
		list = append(list, Certificate{Cert: pki.CA, Key: pki.CAKey, CA: pki.CA, CommonName: "kubernetes-ca",
			Authority: true,
			Why: "clients of the modern side are known by its certificates: no argument of the legacy side " +
				"names a CA"})
	}
	list = append(list, Certificate{Cert: pki.KubeletClientCert, Key: pki.KubeletClientKey, CA: pki.CA,
		CommonName: KubeletClientUser, Usages: []string{UsageClient},
		Existing: b.exists(host, b.fileOn(host, pki.KubeletClientCert), b.fileOn(host, pki.KubeletClientKey)),
		Why:      "client certificate of the API servers at kubelets"})
	if pki.RequestHeaderCA != pki.CA {
		list = append(list, Certificate{Cert: pki.RequestHeaderCA, Key: keyBeside(pki.RequestHeaderCA),
			CA: pki.RequestHeaderCA, CommonName: "front-proxy-ca", Authority: true,
			Existing: b.exists(host, b.fileOn(host, pki.RequestHeaderCA)),
			Why:      "extension API servers trust it, and it signs nothing else"})
	}
	list = append(list, Certificate{Cert: pki.ProxyClientCert, Key: pki.ProxyClientKey, CA: pki.RequestHeaderCA,
		CommonName: b.requestHeaders(host).commonName, Usages: []string{UsageClient},
		Existing: b.exists(host, b.fileOn(host, pki.ProxyClientCert), b.fileOn(host, pki.ProxyClientKey)),
		Why:      "client certificate of the API servers at extension API servers"})
	if pods != nil && pods.Admission.By == ByWebhook {
		list = append(list, Certificate{Cert: pods.Admission.Cert, Key: pods.Admission.Key, CA: pods.Admission.CA,
			CommonName: "pods-webhook",
			DNSNames:   []string{"localhost"}, IPs: []string{loopback}, Usages: []string{UsageServer},
			Why: "the modern API server sends admission requests for pods to the webhook"})
	}
	if b.gatewayRuns(host) {
		list = append(list, b.gatewayCertificate(at, components))
	}
	list = append(list, b.storeCertificates(host, at, components)...)
	for i := range list {
		c := &list[i]
		c.Host, c.Cert, c.Key, c.CA = at.host(), b.fileOn(host, c.Cert), b.fileOn(host, c.Key), b.fileOn(host, c.CA)
	}
	slices.SortStableFunc(list, func(a, b Certificate) int { return strings.Compare(a.Cert, b.Cert) })
	return slices.CompactFunc(list, func(a, b Certificate) bool { return a.Cert == b.Cert })
}

// withNames adds names and addresses of the spec that are not there yet.
func withNames(dnsNames, ips, names []string) (withDNS, withIPs []string) {
	for _, name := range names {
		list := &dnsNames
		if _, err := netip.ParseAddr(name); err == nil {
			list = &ips
		}
		if !slices.Contains(*list, name) {
			*list = append(*list, name)
		}
	}
	return dnsNames, ips
}

// keyBeside is where the key of a certificate lies when nothing says otherwise.
func keyBeside(cert string) string { return strings.TrimSuffix(cert, path.Ext(cert)) + ".key" }

// KubeletClientUser is the name in the kubelet client certificate that pki issues. It is in no group.
const KubeletClientUser = "kube-apiserver-kubelet-client"

// TokenKey is the pair of keys with which tokens of service accounts are signed and verified that pki makes.
type TokenKey struct {
	Private string `json:"private"`
	Public  string `json:"public"`
}

// tokenKey is nil where the running legacy side signs with a key that the modern side uses too.
func (b *basis) tokenKey() *TokenKey {
	pki := b.file.Spec.PKI
	if b.exists(b.file.Spec.Hosts[0], pki.ServiceAccountKey) {
		return nil
	}
	if !b.file.Spec.Legacy.Existing {
		return &TokenKey{Private: pki.ServiceAccountKey, Public: pki.ServiceAccountPublic[0]}
	}
	return &TokenKey{Private: pki.ServiceAccountKey,
		Public: strings.TrimSuffix(pki.ServiceAccountKey, path.Ext(pki.ServiceAccountKey)) + ".pub"}
}

// KubeletAccess is what kubelets have to allow to the API servers: those with --authorization-mode=Webhook ask the
// legacy API server, which has to know the user.
type KubeletAccess struct {
	User        string   `json:"user"`
	Modes       []string `json:"modes"`          // the legacy API server's authorization modes
	RBACVersion string   `json:"rbac,omitempty"` // the group and version in which it takes roles
}

// kubeletAccess is nil where the API servers reach the kubelets with a certificate that the legacy side has already.
func (b *basis) kubeletAccess(components []Component, certificates []Certificate) *KubeletAccess {
	pki := b.file.Spec.PKI
	issued := slices.ContainsFunc(certificates, func(c Certificate) bool {
		return c.Cert == pki.KubeletClientCert && !c.Existing
	})
	if !issued || b.retired() {
		return nil
	}
	return &KubeletAccess{User: KubeletClientUser, Modes: legacyModes(components), RBACVersion: b.rbacVersion()}
}

// storeCertificates are those of managed members, and the client identity of the API servers.
func (b *basis) storeCertificates(host spec.Host, at addresses, components []Component) []Certificate {
	var list []Certificate
	existing := func(file string) bool { // of stores that others run
		return slices.ContainsFunc(b.file.Spec.Stores, func(s spec.Store) bool {
			return s.TLS != nil && s.Managed == nil && slices.Contains(s.TLS.Files(), file)
		})
	}
	for _, store := range b.file.Spec.Stores {
		if store.TLS == nil {
			continue
		}
		if store.TLS.Identifies() {
			list = append(list, Certificate{Cert: store.TLS.Cert, Key: store.TLS.Key, CA: store.TLS.CA,
				CommonName: "kube-apiserver-etcd-client",
				Usages:     []string{UsageClient}, Existing: existing(store.TLS.Cert),
				Why: "client certificate of the API servers at every store"})
		}
		if store.TLS.CA != b.file.Spec.PKI.CA {
			list = append(list, Certificate{Cert: store.TLS.CA, Key: keyBeside(store.TLS.CA), CA: store.TLS.CA,
				CommonName: "etcd-ca",
				Authority:  true, Existing: existing(store.TLS.CA),
				Why: "the members of the stores and the API servers trust it"})
		}
		if store.Managed == nil {
			continue
		}
		served, peer := store.Managed.ServerTLS, store.Managed.PeerTLS
		ips := append([]string{loopback}, at.ips()...)
		servedNames, servedIPs := b.memberNames(&store, at.memberNames(b.fileOn(host, served.Cert), components), ips)
		list = append(list,
			Certificate{Cert: served.Cert, Key: served.Key, CA: served.CA, CommonName: at.memberUser(store.Name),
				DNSNames: servedNames, IPs: servedIPs, Usages: []string{UsageServer, UsageClient},
				Why: "serving certificate of the member of store " + store.Name},
			Certificate{Cert: peer.Cert, Key: peer.Key, CA: peer.CA, CommonName: at.memberUser(store.Name),
				DNSNames: at.memberNames(b.fileOn(host, peer.Cert), components), IPs: ips,
				Usages: []string{UsageServer, UsageClient},
				Why:    "the member of store " + store.Name + " identifies itself to the others by it"})
	}
	return list
}

// memberNames are those of a member's serving certificate: its own, and of all endpoints where an API server of the
// store verifies every member by the name of the first.
func (b *basis) memberNames(store *spec.Store, names, ips []string) (withNames, withIPs []string) {
	byFirst := func(minor kubever.Minor) bool { return kubever.Behaves(kubever.BehaviourEtcdFirstName, minor) }
	ofLegacy := store.Name == b.side(pair.Legacy).Store && byFirst(b.legacy)
	if b.target == Hosted || !ofLegacy && !byFirst(b.modern) { // in a cluster they have the names of all in any case
		return names, ips
	}
	withNames, withIPs = slices.Clone(names), slices.Clone(ips)
	for _, endpoint := range store.Endpoints {
		u, err := url.Parse(endpoint)
		if err != nil {
			continue // the spec is refused with it
		}
		list := &withNames
		if _, err := netip.ParseAddr(u.Hostname()); err == nil {
			list = &withIPs
		}
		if !slices.Contains(*list, u.Hostname()) {
			*list = append(*list, u.Hostname())
		}
	}
	return withNames, withIPs
}

// servedNames are the DNS names of services of the cluster by which clients reach an API server: those of the service
// kubernetes, and for the modern one those of its own service too.
func (b *basis) servedNames(side pair.Side, pods *Pods) []string {
	domain := b.file.Spec.Network.ClusterDomain
	names := serviceNames("default", "kubernetes", domain)
	if pods != nil && side == pair.Modern {
		names = append(names, serviceNames(pods.Service.Namespace, pods.Service.Name, domain)...)
	}
	return names
}

func serviceNames(namespace, name, domain string) []string {
	qualified := name + "." + namespace
	return []string{name, qualified, qualified + ".svc", qualified + ".svc." + domain}
}

// serverIPs are the addresses under which clients reach an API server: its own, loopback, and the first address of
// each service range, which is that of the service kubernetes when the range's own server made it; for the modern one
// that of its own service too.
func (b *basis) serverIPs(at addresses, side pair.Side, pods *Pods) []string {
	ips := append([]string{loopback}, at.ips()...)
	for _, cidr := range slices.Concat(b.file.Spec.Network.ServiceCIDRs, b.file.Spec.Network.ModernServiceCIDRs) {
		if prefix, err := netip.ParsePrefix(cidr); err == nil {
			ips = append(ips, prefix.Masked().Addr().Next().String())
		}
	}
	if pods != nil && side == pair.Modern {
		ips = append(ips, pods.Service.ClusterIP)
	}
	return ips
}
