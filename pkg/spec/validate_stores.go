package spec

import (
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

func (v *validator) stores() {
	stores := v.file.Spec.Stores
	if len(stores) == 0 {
		v.addf("spec.stores", "is empty; want the etcd clusters, such as {name: core, endpoints: [...]}")
	}
	names, endpoints := seen[string]{}, seen[string]{}
	for i := range stores {
		at, s := index("spec.stores", i), &stores[i]
		if v.label(at+".name", s.Name) {
			names.once(v, at+".name", s.Name)
		}
		v.prefix(at+".prefix", s.Prefix)
		v.endpoints(at, s, endpoints)
		// Members that the plan runs want a certificate of every client.
		v.tls(at+".tls", s.TLS, s.Managed != nil)
		if s.Version != "" && !etcdVersionPattern.MatchString(s.Version) {
			v.expect(at+".version", s.Version, "want a version of etcd, such as 3.4.23")
		}
		if s.Managed != nil {
			v.managed(at, s)
		}
	}
	v.onePrefix()
	v.oneIdentity()
}

var (
	etcdVersionPattern = regexp.MustCompile(`^v?[23]\.[0-9]{1,3}(\.[0-9]{1,3}([-+.][-+.0-9A-Za-z]+)?)?$`)
	etcdReleasePattern = regexp.MustCompile(`^3\.[0-9]{1,3}\.[0-9]{1,3}([-+.][-+.0-9A-Za-z]+)?$`)
)

func (v *validator) prefix(at, prefix string) {
	if v.absolute(at, prefix, true) && (prefix == "/" || strings.HasSuffix(prefix, "/")) {
		v.addf(at, "%q: want a path without a slash at its end, such as /registry", prefix)
	}
}

// onePrefix refuses stores with different prefixes.
func (v *validator) onePrefix() {
	stores := v.file.Spec.Stores
	for i := 1; i < len(stores); i++ {
		if stores[i].Prefix != stores[0].Prefix {
			v.addf(index("spec.stores", i)+".prefix", "%q: store %q has %q; --etcd-servers-overrides changes the "+
				"servers of a resource, never the prefix, so it must be the same in every store",
				stores[i].Prefix, stores[0].Name, stores[0].Prefix)
		}
	}
}

// oneIdentity refuses stores that want different certificates of an API server, which has one set of --etcd-cafile,
// --etcd-certfile and --etcd-keyfile for its own store and for those of its overrides. A store that asks for no
// certificate does not mind one.
func (v *validator) oneIdentity() {
	var first, identified *Store
	for i := range v.file.Spec.Stores {
		s := &v.file.Spec.Stores[i]
		differs := func(other *Store) {
			v.addf(index("spec.stores", i)+".tls", "differs from that of store %q: an API server has one client "+
				"certificate and one CA file for all its stores; use the same three files, with a bundle of both CAs "+
				"where they differ", other.Name)
		}
		switch {
		case s.TLS == nil:
			continue
		case first != nil && s.TLS.CA != first.TLS.CA:
			differs(first)
			continue
		case s.TLS.Identifies() && identified != nil && *s.TLS != *identified.TLS:
			differs(identified)
			continue
		}
		if first == nil {
			first = s
		}
		if s.TLS.Identifies() && identified == nil {
			identified = s
		}
	}
}

// endpoints checks the URLs of a store; no two may name the same server, in one store or in two.
func (v *validator) endpoints(at string, s *Store, known seen[string]) {
	if len(s.Endpoints) == 0 {
		v.addf(at+".endpoints", "is empty; want the client URLs of the etcd members, such as https://10.0.0.11:2379")
	}
	schemes := map[string]bool{}
	for i, endpoint := range s.Endpoints {
		at := index(at+".endpoints", i)
		u, ok := v.endpoint(at, endpoint)
		if !ok {
			continue
		}
		schemes[u.Scheme] = true
		if first, ok := known[server(u)]; ok {
			v.addf(at, "%q: is the server of %s too; two members, or two stores with one prefix, cannot be on one "+
				"server", endpoint, first)
			continue
		}
		known[server(u)] = at
	}
	switch {
	case len(schemes) > 1:
		v.addf(at+".endpoints", "http and https: want one of them for all members of a store")
	case schemes["https"] && s.TLS == nil:
		v.addf(at+".tls", "is missing; https endpoints need {ca: ..., cert: ..., key: ...}, "+
			"or {ca: ...} of an etcd that asks no client for a certificate")
	case schemes["http"] && s.TLS != nil:
		v.addf(at+".tls", "has no effect with http endpoints; use https endpoints or leave it out")
	}
}

func (v *validator) endpoint(at, endpoint string) (*url.URL, bool) {
	u, err := url.Parse(endpoint)
	const want = "want a URL with a port, such as https://10.0.0.11:2379"
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "" || u.Port() == "":
		v.expect(at, endpoint, want)
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		v.expect(at, u.Redacted(), "want a URL of nothing but scheme, host and port")
	case !isHost(u.Hostname()):
		v.expect(at, endpoint, "want a host name or an IP address; "+want)
	default:
		port, err := strconv.Atoi(u.Port())
		return u, err == nil && v.port(at, port)
	}
	return nil, false
}

func isHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return isSubdomain(strings.ToLower(strings.TrimSuffix(host, ".")))
}

// server is the host and port of a URL, the same for every spelling of them.
func server(u *url.URL) string {
	host := strings.ToLower(u.Hostname())
	if address, err := netip.ParseAddr(host); err == nil {
		host = address.String()
	}
	return host + " " + u.Port()
}

// managed checks a store whose members fusionctl renders, one on every host.
func (v *validator) managed(at string, s *Store) {
	m := s.Managed
	if !etcdReleasePattern.MatchString(m.Version) {
		v.expect(at+".managed.version", m.Version, "want a release of etcd, such as 3.6.8")
	} else if s.Version != m.Version {
		v.addf(at+".version", "%q: managed.version is %q; leave this one out", s.Version, m.Version)
	}
	v.absolute(at+".managed.dataDir", m.DataDir, true)
	v.image(at+".managed.image", m.Image)
	v.tls(at+".managed.serverTLS", m.ServerTLS, true)
	v.tls(at+".managed.peerTLS", m.PeerTLS, true)
	if m.PeerPort != 0 || len(s.Endpoints) > 0 {
		v.port(at+".managed.peerPort", m.PeerPort)
	}
	v.members(at, s)
}

// members wants one endpoint for every host, by its address or name, all on one port.
func (v *validator) members(at string, s *Store) {
	hosts := v.file.Spec.Hosts
	if !v.Lines.Trusts("spec.hosts") || len(hosts) == 0 || len(s.Endpoints) == 0 {
		return
	}
	served, ports := map[string]bool{}, map[string]bool{}
	for i, endpoint := range s.Endpoints {
		u, err := url.Parse(endpoint)
		if err != nil {
			return // reported
		}
		ports[u.Port()] = true
		host := slices.IndexFunc(hosts, func(h Host) bool { return v.file.Spec.OnHost(u, h) })
		if host < 0 {
			v.addf(index(at+".endpoints", i),
				"%q: is on none of spec.hosts; a managed store has one member on every host", endpoint)
			continue
		}
		served[hosts[host].Name] = true
	}
	for _, host := range hosts {
		if !served[host.Name] {
			v.addf(at+".endpoints", "no endpoint on host %q (%s); a managed store has one member on every host",
				host.Name, host.Address)
		}
	}
	if len(ports) > 1 {
		v.addf(at+".endpoints", "several ports: want one for all members of a managed store")
	}
}

// OnHost reports whether a URL's host is one of the machines: by its name or address, or by a loopback address when
// there is only one.
func (s *Spec) OnHost(u *url.URL, host Host) bool {
	name, only := u.Hostname(), len(s.Hosts) == 1
	if name == host.Name {
		return true
	}
	address, err := netip.ParseAddr(name)
	if err != nil {
		return only && name == "localhost"
	}
	own, err := netip.ParseAddr(host.Address)
	return err == nil && own == address || only && address.IsLoopback()
}

// image checks a reference to an image as far as a registry's client would refuse any other.
func (v *validator) image(at, image string) {
	if strings.ContainsFunc(image, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}) || strings.HasPrefix(image, "-") {
		v.expect(at, image, "want an image, such as registry.example.com/kube/hyperkube:v1.6.13")
	}
}
