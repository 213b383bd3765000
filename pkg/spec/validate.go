package spec

import (
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/kubefusion/fusionctl/internal/spelling"
	"github.com/kubefusion/fusionctl/internal/strictyaml"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Validate judges a file whose defaults are filled: every value by itself, and what the values say together. Whether
// the two versions can live together is not judged here; that takes a plan and rules. Errors: every problem is
// reported, joined; each names the field path, and its line where the Lines know it. The zero Lines will do for a File
// that was made by a program.
func Validate(f *File, lines Lines) error {
	ps := &strictyaml.Problems{Lines: lines}
	validate(f, ps)
	return ps.Err()
}

func validate(f *File, ps *strictyaml.Problems) {
	v := &validator{Problems: ps, file: f}
	s := &f.Spec
	v.header()
	v.oneOf("spec.layout", string(s.Layout), Layouts)
	v.hosts()
	v.network()
	v.pki()
	v.hostFiles()
	v.programs()
	v.operation()
	v.gateway()
	v.stores()
	v.side("spec.legacy", &s.Legacy)
	v.side("spec.modern", &s.Modern)
	v.together()
	v.pods()
	v.controllers()
	v.owners()
	v.handedOver()
	v.access()
	v.accepts()
}

// validator holds what the checks of the parts need of each other.
type validator struct {
	*strictyaml.Problems
	file  *File
	names []string // machines, once they were asked for
}

// nearest is what was probably meant, of a problem that is reported: where there are many more, it is not looked for.
func (v *validator) nearest(word string, candidates []string) (string, bool) {
	if v.Full() {
		return "", false
	}
	return spelling.Nearest(word, candidates)
}

// addf reports a problem unless the field, or one above or below it, was not even decoded: that has been reported, and
// what follows from it would be noise.
func (v *validator) addf(path, format string, args ...any) {
	if v.Lines.Trusts(path) {
		v.Problems.Addf(path, format, args...)
	}
}

func (v *validator) header() {
	f := v.file
	if f.APIVersion != APIVersion {
		v.expect("apiVersion", f.APIVersion, "want "+APIVersion)
	}
	if f.Kind != Kind {
		v.expect("kind", f.Kind, "want "+Kind)
	}
	v.label("metadata.name", f.Metadata.Name)
}

// expect reports a missing or a wrong value.
func (v *validator) expect(path, value, want string) {
	if value == "" && !strings.HasSuffix(path, "]") {
		v.addf(path, "is missing; %s", want)
		return
	}
	v.addf(path, "%q: %s", strictyaml.Shorten(value), want)
}

// limitWordBytes is far above any name, and keeps a whole rule of a policy below the server's 64 KiB for each line.
const limitWordBytes = 1024

// word checks what a rule of a policy names, as far as no request could carry it or no line hold it.
func (v *validator) word(path, value string) bool {
	switch {
	case strings.ContainsFunc(value, unicode.IsControl):
		v.expect(path, value, "want a text without control characters")
	case len(value) > limitWordBytes:
		v.addf(path, "%d bytes: want at most %d", len(value), limitWordBytes)
	default:
		return true
	}
	return false
}

func (v *validator) oneOf(path, value string, words []string) {
	if slices.Contains(words, value) {
		return
	}
	want := "want one of " + strings.Join(words, ", ")
	if near, ok := v.nearest(value, words); ok {
		want += fmt.Sprintf("; did you mean %q?", near)
	}
	v.expect(path, value, want)
}

// LabelPattern is the grammar of DNS labels, as the names of hosts and stores are.
const LabelPattern = `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`

var labelPattern = regexp.MustCompile(LabelPattern)

// IsLabel reports whether a text is a DNS label, as the names of hosts and stores are.
func IsLabel(text string) bool { return labelPattern.MatchString(text) }

// label checks a DNS label.
func (v *validator) label(path, value string) bool {
	ok := labelPattern.MatchString(value)
	if !ok {
		v.expect(path, value, "want lower-case letters, digits and dashes between them, at most 63")
	}
	return ok
}

// isSubdomain accepts DNS labels with dots between them.
func isSubdomain(value string) bool {
	if len(value) > 253 {
		return false
	}
	for label := range strings.SplitSeq(value, ".") {
		if !labelPattern.MatchString(label) {
			return false
		}
	}
	return true
}

// absolute checks a path of a file or directory of the host. An empty one is reported only when it is required.
func (v *validator) absolute(at, value string, required bool) bool {
	switch {
	case value == "" && !required:
		return true
	case !strings.HasPrefix(value, "/"):
		v.expect(at, value, "want an absolute path")
	case strings.ContainsFunc(value, unicode.IsControl):
		v.expect(at, value, "want a path without control characters")
	case strings.ContainsAny(value, `"\`):
		v.expect(at, value, `want a path without " and \, which units cannot say`)
	case path.Clean(value) != value && path.Clean(value)+"/" != value:
		v.expect(at, value, fmt.Sprintf("want a path without detours, such as %q", path.Clean(value)))
	default:
		return true
	}
	return false
}

func (v *validator) port(path string, port int) bool {
	ok := port >= 1 && port <= 65535
	if !ok {
		v.addf(path, "%d: want a port from 1 to 65535", port)
	}
	return ok
}

// address checks an IP address and returns it in its canonical form.
func (v *validator) address(path, value string) (netip.Addr, bool) {
	address, err := netip.ParseAddr(value)
	if err != nil || address.Zone() != "" || address.Is4In6() {
		v.expect(path, value, "want an IP address, such as 10.0.0.11")
		return netip.Addr{}, false
	}
	return address, true
}

func (v *validator) hosts() {
	hosts := v.file.Spec.Hosts
	if len(hosts) == 0 {
		v.addf("spec.hosts", "is empty; want the machines that run the control plane, such as {name: cp-1, address: "+
			"10.0.0.11}")
	}
	names, addresses := seen[string]{}, seen[netip.Addr]{}
	for i, host := range hosts {
		at := index("spec.hosts", i)
		if v.label(at+".name", host.Name) {
			names.once(v, at+".name", host.Name)
		}
		address, ok := v.address(at+".address", host.Address)
		switch {
		case !ok:
		case address.IsUnspecified() || address.IsMulticast():
			v.addf(at+".address", "%q: want the address at which others reach this host", host.Address)
		default:
			addresses.once(v, at+".address", address)
		}
		if l := host.Legacy; l != nil {
			existing := v.file.Spec.Legacy.Existing
			v.changes(at+".legacy.apiServer", l.APIServer, existing)
			v.changes(at+".legacy.controllerManager", l.ControllerManager, existing)
			v.changes(at+".legacy.scheduler", l.Scheduler, existing)
			if l.Images != nil && !existing {
				v.addf(at+".legacy.images", "goes with spec.legacy.existing: true; of a side that does not run yet, "+
					"every host has its images")
			}
			for _, image := range []struct{ kind, field string }{{kubever.APIServer, "apiServer"},
				{kubever.ControllerManager, "controllerManager"}, {kubever.Scheduler, "scheduler"}} {
				v.imageOf(at+".legacy.images."+image.field, host.Image(image.kind), v.file.Spec.Legacy.Version)
			}
		}
	}
}

// seen remembers where a value that must be unique was written first.
type seen[T comparable] map[T]string

func (s seen[T]) once(v *validator, at string, value T) {
	if first, ok := s[value]; ok {
		v.addf(at, `"%v": is a duplicate of %s`, value, first)
		return
	}
	s[value] = at
}

func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

func (v *validator) network() {
	n := &v.file.Spec.Network
	services := v.cidrs("spec.network.serviceCIDRs", n.ServiceCIDRs, func(i int) string {
		return index("spec.network.serviceCIDRs", i)
	})
	own := v.cidrs("spec.network.modernServiceCIDRs", n.ModernServiceCIDRs, func(i int) string {
		return index("spec.network.modernServiceCIDRs", i)
	})
	for _, modern := range own {
		for _, service := range services {
			if modern.Overlaps(service) {
				v.addf("spec.network.modernServiceCIDRs", "%q: overlaps %s of serviceCIDRs; want a range from which "+
					"the legacy side does not allocate, or leave it out for one range", modern, service)
			}
		}
	}
	services = append(services, own...)
	var pods []netip.Prefix
	if n.PodCIDR != "" {
		pods = v.cidrs("spec.network.podCIDR", strings.Split(n.PodCIDR, ","), func(int) string {
			return "spec.network.podCIDR"
		})
	}
	for _, pod := range pods {
		for _, service := range services {
			if pod.Overlaps(service) {
				v.addf("spec.network.podCIDR",
					"%q: overlaps the service addresses %s; a pod and a service could have one address; leave "+
						"podCIDR out where something else allocates pod "+
						"addresses", pod, service)
			}
		}
	}
	if !isSubdomain(n.ClusterDomain) {
		v.expect("spec.network.clusterDomain", n.ClusterDomain, "want a DNS domain, such as cluster.local")
	}
	v.portRange("spec.network.nodePortRange", n.NodePortRange)
}

// cidrs checks one range of addresses, or one of each family.
func (v *validator) cidrs(all string, texts []string, at func(i int) string) []netip.Prefix {
	var prefixes []netip.Prefix
	for i, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		switch {
		case err != nil || prefix.Addr().Is4In6():
			v.expect(at(i), text, "want a range of addresses, such as 10.96.0.0/12")
		case prefix != prefix.Masked():
			v.addf(at(i), "%q: has bits behind the mask; the range is %s", text, prefix.Masked())
		default:
			prefixes = append(prefixes, prefix)
		}
	}
	switch {
	case len(texts) > 2:
		v.addf(all, "%d ranges: want one, or one IPv4 and one IPv6", len(texts))
	case len(prefixes) == 2 && prefixes[0].Addr().Is4() == prefixes[1].Addr().Is4():
		v.addf(all, "%s and %s are of one family: want one range, or one IPv4 and one IPv6", prefixes[0], prefixes[1])
	}
	return prefixes
}

func (v *validator) portRange(path, value string) {
	from, to, _ := strings.Cut(value, "-")
	low, errLow := strconv.ParseUint(from, 10, 16)
	high, errHigh := strconv.ParseUint(to, 10, 16)
	if errLow != nil || errHigh != nil || low == 0 || low > high {
		v.expect(path, value, "want FROM-TO, such as 30000-32767")
	}
}

func (v *validator) hostFiles() {
	for i, file := range v.file.Spec.HostFiles {
		v.absolute(index("spec.hostFiles", i), file, true)
	}
}

func (v *validator) pki() {
	p := &v.file.Spec.PKI
	if !v.absolute("spec.pki.directory", p.Directory, true) {
		return // the defaults below it would be reported too
	}
	for _, file := range []struct{ name, value string }{
		{"ca", p.CA}, {"caKey", p.CAKey},
		{"serviceAccountKey", p.ServiceAccountKey},
		{"requestHeaderCA", p.RequestHeaderCA}, {"proxyClientCert", p.ProxyClientCert},
		{"proxyClientKey", p.ProxyClientKey},
		{"kubeletClientCert", p.KubeletClientCert}, {"kubeletClientKey", p.KubeletClientKey},
		{"encryptionConfiguration", p.EncryptionConfiguration},
	} {
		v.absolute("spec.pki."+file.name, file.value, false)
	}
	for i, file := range p.ServiceAccountPublic {
		v.absolute(index("spec.pki.serviceAccountPublicKeys", i), file, true)
	}
	if strings.ContainsFunc(p.ServiceAccountIssuer, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}) {
		v.expect("spec.pki.serviceAccountIssuer", p.ServiceAccountIssuer,
			"want an issuer without spaces, such as https://kubernetes.default.svc.cluster.local")
	}
}

// tls checks the files of one end of a connection. A client of a store may have no certificate: the two files are there
// or are not, together.
func (v *validator) tls(at string, t *TLS, identified bool) {
	if t == nil {
		return
	}
	v.absolute(at+".ca", t.CA, true)
	if identified || t.Cert != "" || t.Key != "" {
		v.absolute(at+".cert", t.Cert, true)
		v.absolute(at+".key", t.Key, true)
	}
}
