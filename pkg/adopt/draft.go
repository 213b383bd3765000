package adopt

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Options say what the files of the legacy side cannot.
type Options struct {
	Layout spec.Layout
	Legacy kubever.Version // zero: the version is that of the API server's image
	Modern kubever.Version
	Name   string // of the cluster; "": the files tell, or the machine has one
}

// ErrVersion says that no image tells the legacy version and the options do not either.
var ErrVersion = errors.New("the version of the legacy side is not in its files")

// Draft is a spec as far as the files tell.
type Draft struct {
	File     *spec.File
	Comments map[string]string // by field path, as spec.MarshalWithComments wants them
	Missing  []Note            // what a person has to fill in; Place is the field path
	Notes    []Note            // what a person should know, above all about what is not in the draft
}

// Draft writes down what the files say. Every argument of the user becomes one of extraArgs, in order.
// Errors: ErrVersion; a version without facts; a version that contradicts the image.
func (r *Running) Draft(o Options) (*Draft, error) { return DraftHosts([]Host{{Running: r}}, o) }

func (r *Running) draft(o Options, hosts []Host) (*Draft, error) {
	server := r.Process(kubever.APIServer)
	for i := range server.Words {
		backend, servers := flagOf(server.Words, i, "storage-backend"), flagOf(server.Words, i, "etcd-servers")
		if config := flagOf(server.Words, i, "openshift-config"); config != "" {
			return nil, fmt.Errorf("%s: --openshift-config=%s: the arguments of this API server are in that file, "+
				"which an operator of OpenShift 4 writes and keeps as it is: such a control plane cannot be adopted",
				server.Place, config)
		}
		if err := storeRefused(server.Place, backend, servers); err != nil {
			return nil, err
		}
	}
	legacy, err := r.version(server, o.Legacy)
	if err != nil {
		return nil, err
	}
	if o.Modern.Minor < legacy.Minor {
		return nil, fmt.Errorf("the modern version %s is older than the legacy version %s", o.Modern, legacy)
	}
	w := &writer{running: r, options: o, minor: legacy.Minor, values: map[string]map[string][]string{}}
	w.Draft = Draft{Comments: map[string]string{}, Notes: unasked(r.Notes, r.Processes), File: &spec.File{
		APIVersion: spec.APIVersion,
		Kind:       spec.Kind,
	}}
	w.comment("apiVersion", "Drafted from the files of a running control plane. FILL IN marks what they do not "+
		"contain, CHECK what was assumed.\ndocs/spec.md describes every field; `fusionctl check` reports what is "+
		"missing.")
	w.arguments()
	s := &w.File.Spec
	s.Layout = o.Layout
	s.Legacy.Version, s.Legacy.Existing = legacy, true
	s.Modern.Version = released(o.Modern)
	w.hosts(hosts)
	w.network()
	w.stores()
	w.legacy()
	w.pki()
	w.modern()
	if err := w.otherHosts(hosts); err != nil {
		return nil, err
	}
	w.File.Metadata.Name = w.clusterName(hosts)
	w.asked()
	w.comment("spec.access", "FILL IN what users may do through the modern API server, for example:\n- subjects: "+
		"[{kind: Group, name: \"platform:developers\"}]\n  apiGroups: [apps]\n  resources: [deployments, replicasets]")
	w.missing("spec.access", "what users may do through the modern API server")
	return &w.Draft, nil
}

// flagOf is the value of a flag that stands at a place of a command line, "" for another flag.
func flagOf(words []string, at int, flag string) string {
	name, ok := argName(words[at])
	if !ok {
		return ""
	}
	name, value, given := strings.Cut(name, "=")
	switch {
	case kubever.FlagName(name) != flag:
		return ""
	case given || at+1 == len(words):
		return value
	}
	return words[at+1]
}

// version is the one of the options, or else of the API server's image.
func (r *Running) version(server *Process, given kubever.Version) (kubever.Version, error) {
	tagged, err := versionOf(server.Image)
	if server.release != "" && server.Image == "" {
		tagged, err = kubever.Parse(server.release)
	}
	switch {
	case given.Minor == 0 && err != nil:
		return given, fmt.Errorf("%s: %w", server.Place, err)
	case given.Minor == 0 && tagged.Minor == 0 && server.Image == "":
		return given, fmt.Errorf("%s: %w: it is started without an image", server.Place, ErrVersion)
	case given.Minor == 0 && tagged.Minor == 0:
		return given, fmt.Errorf("%s: %w: the tag of image %q is no version", server.Place, ErrVersion, server.Image)
	case given.Minor == 0:
		return tagged, nil
	case err == nil && tagged.Minor != 0 && tagged.Minor != given.Minor:
		return given, fmt.Errorf("%s: the image %q is of %s, not of %s", server.Place, server.Image, tagged.Minor,
			given.Minor)
	}
	return given, nil
}

var versionPattern = regexp.MustCompile(`^v?1\.[0-9]+(\.[0-9]+)?([-+_.].*)?$`)

// released completes a version without a patch to a release. The modern side is new: any release of the minor will do.
func released(v kubever.Version) kubever.Version {
	if v.HasPatch || v.Suffix != "" {
		return v
	}
	if release, err := kubever.Parse(kubever.Release(v.Minor)); err == nil {
		return release
	}
	return v
}

// versionOf reads the version from an image's tag; the zero version when the tag tells none. In tags an underscore
// stands for the plus of a version.
func versionOf(image string) (kubever.Version, error) {
	tag := tagOf(image)
	if !versionPattern.MatchString(tag) {
		return kubever.Version{}, nil
	}
	version, err := kubever.Parse(strings.Replace(tag, "_", "+", 1))
	if err != nil {
		return kubever.Version{}, fmt.Errorf("the tag of image %q: %w", image, err)
	}
	return version, nil
}

// tagOf returns the tag of an image without its digest, "" for none.
func tagOf(image string) string {
	name, _, _ := strings.Cut(path.Base(image), "@")
	_, tag, _ := strings.Cut(name, ":")
	return tag
}

// writer fills a draft.
type writer struct {
	Draft
	running *Running
	options Options
	minor   kubever.Minor
	values  map[string]map[string][]string // component -> argument -> its values, in order
	args    map[string][]spec.Arg
}

func (w *writer) comment(path, text string) { w.Comments[path] = text }

func (w *writer) missing(path, format string, args ...any) {
	w.Missing = append(w.Missing, Note{Place: path, Text: fmt.Sprintf(format, args...)})
}

func (w *writer) note(place, format string, args ...any) {
	w.Notes = append(w.Notes, Note{Place: place, Text: fmt.Sprintf(format, args...)})
}

func (w *writer) arguments() {
	w.args = map[string][]spec.Arg{}
	if w.values == nil {
		w.values = map[string]map[string][]string{}
	}
	for i := range w.running.Processes {
		p := &w.running.Processes[i]
		if w.args[p.Component] != nil {
			continue
		}
		if a, lacks := p.lacksFlags(w.minor); lacks {
			p.asks = append(p.asks, a)
		}
		args, notes := p.Args(w.minor)
		w.args[p.Component] = args
		w.values[p.Component] = map[string][]string{}
		for _, arg := range args {
			name := kubever.Meant(p.Component, arg.Name, w.minor)
			w.values[p.Component][name] = append(w.values[p.Component][name], arg.Value)
		}
		if len(kubever.Flags(p.Component, w.minor)) > 0 {
			w.Notes = append(w.Notes, notes...)
		}
	}
}

// value is the last one given for an argument, as the parsers have it; "" for none.
func (w *writer) value(component, name string) string {
	values := w.values[component][name]
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// server is the value of an argument of the API server.
func (w *writer) server(name string) string { return w.value(kubever.APIServer, name) }

// serverOrDefault is the value of an argument of the API server, or its default at the version.
func (w *writer) serverOrDefault(name string) string {
	if value := w.server(name); value != "" {
		return value
	}
	value, _ := kubever.Flag(kubever.APIServer, name).Default(w.minor)
	return value
}

// from says where a value stands.
func (w *writer) from(component, flag string) string {
	return "From --" + flag + " of " + component + "."
}

func (w *writer) hosts(hosts []Host) {
	host := spec.Host{Name: defaultHost, Address: w.address()}
	if hosts[0].Name != "" {
		host.Name = hosts[0].Name
		w.comment("spec.hosts", "The machines that these files are from. Arguments that are others on one of them "+
			"than in extraArgs stand under it.")
		if host.Address == "" {
			w.missing("spec.hosts[0].address", "the address at which others reach the API servers of %s", host.Name)
		}
		w.File.Spec.Hosts = []spec.Host{host}
		return
	}
	for _, name := range []string{w.value(Kubelet, "hostname-override"), w.etcdName()} {
		if spec.IsLabel(name) && name != "default" && !strings.Contains(name, "etcd") { // a member's name, not a host's
			host.Name = name
			break
		}
	}
	w.File.Spec.Hosts = []spec.Host{host}
	comment := "The machine of these files; add the others of the control plane. The name is that of its directory " +
		"of manifests."
	if count, why := w.others(); count > 1 {
		comment += fmt.Sprintf("\nFILL IN the others: %s names %d hosts. fusionctl init --from HOST1 HOST2 ... "+
			"reads them all.", why, count)
		w.missing("spec.hosts", "the other hosts of the control plane: %s names %d; fusionctl init --from HOST1 "+
			"HOST2 ... reads them all; where there is but one: accept: [{rule: FUS253, reason: ...}]", why, count)
	}
	if host.Address == "" {
		comment += "\nFILL IN the address at which others reach its API servers: the files do not contain it."
		w.missing("spec.hosts[0].address", "the address at which others reach the API servers of this machine")
	}
	w.comment("spec.hosts", comment)
}

// etcdName is that of the host's etcd member, which kubeadm takes from the host; "" for none or several.
func (w *writer) etcdName() string {
	members := 0
	for _, p := range w.running.Processes {
		if p.Component == Etcd {
			members++
		}
	}
	if members != 1 {
		return ""
	}
	return w.value(Etcd, "name")
}

// address is what the API server advertises, as far as the files tell.
func (w *writer) address() string {
	candidates := []string{w.server("advertise-address")}
	if bind := w.server("bind-address"); !isUnspecified(bind) {
		candidates = append(candidates, bind)
	}
	for _, candidate := range append(candidates, w.running.Process(kubever.APIServer).advertised) {
		if address, err := netip.ParseAddr(candidate); err == nil && !address.IsUnspecified() &&
			!address.IsMulticast() {
			return address.String()
		}
	}
	return ""
}

func isUnspecified(text string) bool {
	address, err := netip.ParseAddr(text)
	return err != nil || address.IsUnspecified()
}

func (w *writer) network() {
	n := &w.File.Spec.Network
	// The API server's own default, though its help does not show it in every version. Read: pkg/master/services.go of
	// 1.6.13, pkg/kubeapiserver/options/options.go of 1.10.13, 1.15.12 and 1.36.3.
	services, comment := "10.0.0.0/24", "The API server has no --service-cluster-ip-range; this is its default."
	if value := w.server("service-cluster-ip-range"); value != "" {
		services, comment = value, w.from(kubever.APIServer, "service-cluster-ip-range")
	}
	w.comment("spec.network.serviceCIDRs", comment)
	for text := range strings.SplitSeq(services, ",") {
		n.ServiceCIDRs = append(n.ServiceCIDRs, w.masked("--service-cluster-ip-range", strings.TrimSpace(text)))
	}
	n.NodePortRange = w.portRange(w.serverOrDefault("service-node-port-range"))
	if value := w.value(kubever.ControllerManager, "cluster-cidr"); value != "" {
		var ranges []string
		for text := range strings.SplitSeq(value, ",") {
			ranges = append(ranges, w.masked("--cluster-cidr", strings.TrimSpace(text)))
		}
		n.PodCIDR = strings.Join(ranges, ",")
		if overlap(ranges, n.ServiceCIDRs) && w.value(kubever.ControllerManager, "allocate-node-cidrs") != "true" {
			n.PodCIDR = ""
			w.note(w.running.Process(kubever.ControllerManager).Place, "--cluster-cidr=%s overlaps the addresses of "+
				"services; it is left out of spec.network, for this controller manager allocates no pod addresses",
				value)
		} else {
			w.comment("spec.network.podCIDR", w.from(kubever.ControllerManager, "cluster-cidr"))
		}
	}
	domain, comment := w.clusterDomain()
	n.ClusterDomain = domain
	w.comment("spec.network.clusterDomain", comment)
}

// overlap reports whether an address is in a range of both lists.
func overlap(some, others []string) bool {
	return slices.ContainsFunc(some, func(a string) bool {
		return slices.ContainsFunc(others, func(b string) bool {
			first, errFirst := netip.ParsePrefix(a)
			second, errSecond := netip.ParsePrefix(b)
			return errFirst == nil && errSecond == nil && first.Overlaps(second)
		})
	})
}

// masked writes a range of addresses without the bits behind the mask, as the servers take it.
func (w *writer) masked(flag, text string) string {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return text // what is wrong with it, the spec's validation says
	}
	if prefix != prefix.Masked() {
		w.note("", "%s=%s has bits behind the mask; the servers take it as %s", flag, text, prefix.Masked())
	}
	return prefix.Masked().String()
}

// portRange turns the forms that the API server accepts into FROM-TO: FROM+SIZE and a single port.
func (w *writer) portRange(text string) string {
	if from, size, ok := strings.Cut(text, "+"); ok {
		low, errLow := strconv.Atoi(strings.TrimSpace(from))
		count, errCount := strconv.Atoi(strings.TrimSpace(size))
		if errLow == nil && errCount == nil {
			return fmt.Sprintf("%d-%d", low, min(low+count, 65535))
		}
	}
	if _, err := strconv.Atoi(text); err == nil {
		return text + "-" + text
	}
	return strings.ReplaceAll(text, " ", "")
}

func (w *writer) clusterDomain() (domain, comment string) {
	if value := w.value(Kubelet, "cluster-domain"); value != "" {
		return strings.TrimSuffix(value, "."), w.from(Kubelet, "cluster-domain")
	}
	if domain, ok := strings.CutPrefix(w.server("service-account-issuer"), "https://kubernetes.default.svc."); ok &&
		domain != "" {
		return domain, w.from(kubever.APIServer, "service-account-issuer")
	}
	return "cluster.local", "The usual one; the files do not contain it. CHECK that the kubelets have it as " +
		"--cluster-domain."
}

// pki writes down the files that the arguments name. What they do not name is the modern side's own.
func (w *writer) pki() {
	p := &w.File.Spec.PKI
	for _, file := range []string{
		w.hostFile(kubever.APIServer, "client-ca-file"), w.hostFile(kubever.APIServer, "tls-cert-file"),
		w.managerFile("root-ca-file"), w.managerFile("service-account-private-key-file"),
	} {
		if strings.HasPrefix(file, "/") {
			p.Directory = path.Dir(file)
			break
		}
	}
	if p.Directory == "" {
		p.Directory = "/etc/kubernetes/pki"
		w.comment("spec.pki.directory", "The usual one; no argument sets it. CHECK it.")
	}
	p.Adopt(&w.File.Spec.Legacy)
	if len(w.values[kubever.APIServer]["service-account-key-file"]) == 0 && w.server("tls-private-key-file") != "" {
		w.comment("spec.pki.serviceAccountPublicKeys",
			"The API server has no --service-account-key-file; it uses the key of its serving certificate then.")
	}
	var own []string
	for _, file := range []struct{ field, value string }{
		{"ca", p.CA}, {"serviceAccountKey", p.ServiceAccountKey}, {"requestHeaderCA", p.RequestHeaderCA},
		{"proxyClientCert", p.ProxyClientCert}, {"proxyClientKey", p.ProxyClientKey},
		{"kubeletClientCert", p.KubeletClientCert}, {"kubeletClientKey", p.KubeletClientKey},
	} {
		if file.value == "" {
			own = append(own, file.field)
		}
	}
	comment := "Directory of the certificates and keys. The modern side uses them too."
	if len(own) > 0 {
		comment += "\nNo argument names " + strings.Join(own, ", ") +
			": fusionctl pki makes them for the modern side, in DIRECTORY/modern."
	}
	w.comment("spec.pki", comment)
}

// managerFile is hostFile of the controller manager, "" where the files start none.
func (w *writer) managerFile(flag string) string {
	if w.running.Process(kubever.ControllerManager) == nil {
		return ""
	}
	return w.hostFile(kubever.ControllerManager, flag)
}

func (w *writer) stores() {
	core := spec.Store{Name: "core"}
	for endpoint := range strings.SplitSeq(w.server("etcd-servers"), ",") {
		if endpoint = w.endpoint(endpoint); endpoint != "" {
			core.Endpoints = append(core.Endpoints, endpoint)
		}
	}
	w.comment("spec.stores[0]", "The etcd of the legacy side. "+w.from(kubever.APIServer, "etcd-servers"))
	if len(core.Endpoints) == 0 {
		w.comment("spec.stores[0]", "The etcd of the legacy side. FILL IN its client URLs: there is no --etcd-servers.")
		w.missing("spec.stores[0].endpoints", "the client URLs of the legacy side's etcd")
	}
	core.Version = w.etcdVersion()
	core.Prefix = w.prefix()
	core.TLS = w.etcdTLS(core.Endpoints)
	w.File.Spec.Stores = []spec.Store{core}
	w.File.Spec.Legacy.Store, w.File.Spec.Modern.Store = "core", "core"
	if w.options.Layout == spec.LayoutSplit {
		w.File.Spec.Modern.Store = "modern"
		w.File.Spec.Stores = append(w.File.Spec.Stores, spec.Store{Name: "modern", Prefix: core.Prefix, TLS: core.TLS})
		identity := "tls is the same as above."
		if core.TLS != nil && !core.TLS.Identifies() {
			identity = "the legacy side has none, and its etcd asks for none.\nA rendered etcd does: add cert and " +
				"key to tls here, and fusionctl pki issues them."
		}
		w.comment("spec.stores[1]", "The etcd of the modern side: a new one. FILL IN its client URLs. To have it "+
			"rendered too, with a member on every host, add\nmanaged: {version: 3.6.8, dataDir: "+
			"/var/lib/etcd-modern}\nThe API server has one client certificate for all of its stores: "+identity)
		w.missing("spec.stores[1].endpoints", "the client URLs of the modern side's etcd")
	}
	w.overriddenStores()
}

var etcdPattern = regexp.MustCompile(`^[23]\.[0-9]+\.[0-9]+$`)

// etcdVersion is that of the etcd images, "" when they tell none or several.
func (w *writer) etcdVersion() string {
	var versions []string
	for _, p := range w.running.Processes {
		if p.Component == Etcd {
			version, _, _ := strings.Cut(strings.TrimPrefix(tagOf(p.Image), "v"), "-")
			versions = append(versions, version)
		}
	}
	if versions = slices.Compact(versions); len(versions) != 1 || !etcdPattern.MatchString(versions[0]) {
		return ""
	}
	return versions[0]
}

// prefix is --etcd-prefix as a path: the servers take registry for /registry.
func (w *writer) prefix() string {
	prefix := path.Join("/", w.serverOrDefault("etcd-prefix"))
	if prefix == "/" {
		return ""
	}
	return prefix
}

func (w *writer) etcdTLS(endpoints []string) *spec.TLS {
	tls := *w.tlsFiles()
	if !slices.ContainsFunc(endpoints, func(endpoint string) bool { return strings.HasPrefix(endpoint, "https:") }) {
		if tls != (spec.TLS{}) {
			w.note("", "--etcd-cafile, --etcd-certfile and --etcd-keyfile have no effect: the URLs of etcd are http; "+
				"they are kept as arguments")
		}
		return nil
	}
	for _, file := range []struct{ field, value, flag string }{
		{"ca", tls.CA, "etcd-cafile"}, {"cert", tls.Cert, "etcd-certfile"}, {"key", tls.Key, "etcd-keyfile"},
	} {
		if file.value == "" && (file.field == "ca" || tls.Cert+tls.Key != "") {
			w.missing("spec.stores[0].tls."+file.field, "a file for the etcd client: there is no --%s", file.flag)
		}
	}
	return &tls
}

// tlsFiles are those of the API server for its stores.
func (w *writer) tlsFiles() *spec.TLS {
	file := func(flag string) string { return w.hostFile(kubever.APIServer, flag) }
	return &spec.TLS{CA: file("etcd-cafile"), Cert: file("etcd-certfile"), Key: file("etcd-keyfile")}
}

func (w *writer) legacy() {
	l := &w.File.Spec.Legacy
	w.comment("spec.legacy", "As it runs now. existing: true keeps these arguments as they are, in this order; a "+
		"plan changes only what must change, and gives the reason.")
	server := w.component(kubever.APIServer)
	l.APIServer = &spec.APIServer{
		Component: *server,
		Port:      w.number("secure-port"),
		Cert:      w.hostFile(kubever.APIServer, "tls-cert-file"),
		Key:       w.hostFile(kubever.APIServer, "tls-private-key-file"),
		Address:   w.serverOrDefault("bind-address"),
	}
	if l.APIServer.Port == 0 {
		w.note(w.running.Process(kubever.APIServer).Place, "--secure-port=%s: the spec has the default port, for a "+
			"legacy side has to have one", w.server("secure-port"))
	}
	if l.APIServer.Cert == "" {
		directory := w.serverOrDefault("cert-dir")
		l.APIServer.Cert, l.APIServer.Key = path.Join(directory, "apiserver.crt"), path.Join(directory, "apiserver.key")
		w.comment("spec.legacy.apiServer.cert",
			"There is no --tls-cert-file: the API server creates a self-signed certificate.")
	}
	l.ControllerManager = w.component(kubever.ControllerManager)
	l.Scheduler = w.component(kubever.Scheduler)
	for _, absent := range []struct {
		component string
		found     bool
	}{{kubever.ControllerManager, l.ControllerManager != nil}, {kubever.Scheduler, l.Scheduler != nil}} {
		if !absent.found {
			w.note("", "there is no %s among the files; the spec has none on the legacy side, so the plan cannot "+
				"take its behaviour into account", absent.component)
		}
	}
	w.objects()
	w.images()
	w.comment("spec.kubelet", "The files do not show what the nodes run; CHECK the version.")
	w.File.Spec.Kubelet.Version = l.Version
}

// objects asks for the files that the components have from objects of the cluster: static pods cannot have them from
// there.
func (w *writer) objects() {
	var asked []string
	objects := map[string][]string{} // by where they are mounted: two components may have two at one path
	for _, kind := range programs[:3] {
		p := w.running.Process(kind)
		if p == nil {
			continue
		}
		for _, m := range p.Mounts {
			if m.Secret+m.ConfigMap == "" {
				continue
			}
			if !slices.Contains(asked, m.MountPath) {
				asked = append(asked, m.MountPath)
			}
			for _, object := range p.objects[m.MountPath] {
				if !slices.Contains(objects[m.MountPath], object) {
					objects[m.MountPath] = append(objects[m.MountPath], object)
				}
			}
		}
	}
	for _, at := range asked {
		those := "that object"
		if len(objects[at]) > 1 {
			those = "those objects"
		}
		w.missing("spec.hostFiles", "%s, when the files of %s are there on every host with mode 0600: the legacy "+
			"side has them in %s, and no static pod can", at, strings.Join(objects[at], ", "), those)
	}
	for _, kind := range programs[:3] {
		p := w.running.Process(kind)
		if p == nil {
			continue
		}
		for _, m := range w.filled(p) {
			if slices.Contains(asked, m.MountPath) {
				continue
			}
			asked = append(asked, m.MountPath)
			w.missing("spec.hostFiles", "%s, when the files that the arguments of %s name there are on every host "+
				"with mode 0600: the legacy side has them in its %s %q, which is on no host", m.MountPath, kind,
				m.Volume, m.Name)
		}
	}
	if len(asked) > 0 {
		w.comment("spec.hostFiles", "FILL IN "+strings.Join(asked, ", ")+" when the files are on every host.")
	}
}

// number is a numeric argument of the API server or its default.
func (w *writer) number(name string) int {
	n, err := strconv.Atoi(w.serverOrDefault(name))
	if err != nil {
		return 0
	}
	return n
}

// component is what the spec says of a component, nil when the files do not start it.
// filled are the volumes on no host in which an argument of the component names files.
func (w *writer) filled(p *Process) []spec.Mount {
	var list []spec.Mount
	for _, m := range p.unseen {
		if slices.ContainsFunc(w.args[p.Component], func(a spec.Arg) bool {
			return kubever.ReadsFile(a.Name) && strings.HasPrefix(a.Value, m.MountPath+"/")
		}) {
			list = append(list, m)
		}
	}
	return list
}

func (w *writer) component(name string) *spec.Component {
	p := w.running.Process(name)
	if p == nil {
		return nil
	}
	c := &spec.Component{
		Image:       p.Image,
		ExtraArgs:   w.args[name],
		ExtraMounts: append(slices.Clone(p.Mounts), w.filled(p)...),
		ExtraEnv:    p.Env,
		Kubeconfig:  w.value(name, "kubeconfig"),
	}
	if len(p.Command) > 0 && !slices.Equal(p.Command, []string{name}) {
		c.Command = p.Command
	}
	return c
}

// images writes an image that all components share once, and reports components of another version.
func (w *writer) images() {
	l := &w.File.Spec.Legacy
	components := []*spec.Component{&l.APIServer.Component, l.ControllerManager, l.Scheduler}
	components = slices.DeleteFunc(components, func(c *spec.Component) bool { return c == nil })
	image := components[0].Image
	same := len(components) > 1
	for _, c := range components {
		if version, err := versionOf(c.Image); err == nil && version.Minor != 0 && version.Minor != l.Version.Minor {
			w.note("", "image %q is of %s, and the side is of %s; a side has one version", c.Image, version.Minor,
				l.Version)
		}
		same = same && c.Image == image
	}
	if same {
		l.Image = image
		for _, c := range components {
			c.Image = ""
		}
	}
}

func (w *writer) modern() {
	m := &w.File.Spec.Modern
	m.APIServer = &spec.APIServer{Port: 7443}
	comment := "The new side."
	for w.taken(m.APIServer.Port) {
		m.APIServer.Port++
		comment = "The side that is new. Its port is one that the legacy side does not have."
	}
	if w.options.Layout == spec.LayoutSplit {
		m.ControllerManager = &spec.Component{}
		comment += " Its controller manager runs the controllers of the resources that it owns; leave " +
			"controllerManager out to run none."
	}
	w.comment("spec.modern", comment)
}

// taken reports whether something that the files start has a port.
func (w *writer) taken(port int) bool {
	if w.File.Spec.Legacy.APIServer.Port == port {
		return true
	}
	text := strconv.Itoa(port)
	return slices.ContainsFunc(w.args[kubever.APIServer], func(a spec.Arg) bool {
		return strings.HasSuffix(a.Name, "port") && a.Value == text
	}) || slices.ContainsFunc(w.File.Spec.Stores, func(s spec.Store) bool {
		return slices.ContainsFunc(s.Endpoints, func(e string) bool { return strings.HasSuffix(e, ":"+text) })
	})
}

// Text prints the draft as a commented spec.
func (d *Draft) Text() ([]byte, error) { return spec.MarshalWithComments(d.File, d.Comments) }
