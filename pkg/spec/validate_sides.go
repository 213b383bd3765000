package spec

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/kubefusion/fusionctl/internal/strictyaml"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

func (v *validator) side(at string, s *Side) {
	if s.Version.Minor == 0 {
		v.addf(at+".version", "is missing; want a version from %s to %s", kubever.Oldest, kubever.Newest)
	}
	v.imageOf(at+".image", s.Image, s.Version)
	v.storeName(at+".store", s.Store)
	if s.APIServer == nil {
		v.addf(at+".apiServer", "is missing; want {} for one with the defaults")
	} else {
		v.apiServer(at+".apiServer", s)
	}
	if s.ControllerManager != nil {
		v.component(at+".controllerManager", s.ControllerManager, s)
	}
	if s.Scheduler != nil {
		v.component(at+".scheduler", s.Scheduler, s)
	}
}

// storeName wants the name of one of the stores.
func (v *validator) storeName(at, name string) {
	var names []string
	for _, store := range v.file.Spec.Stores {
		names = append(names, store.Name)
	}
	if slices.Contains(names, name) || len(names) == 0 || !v.Lines.Trusts("spec.stores") {
		return
	}
	if !v.Lines.Written(at) && !v.knowsLayout() {
		return // the default depends on it
	}
	want := "want one of spec.stores: " + strings.Join(names, ", ")
	if near, ok := v.nearest(name, names); ok {
		want += fmt.Sprintf("; did you mean %q?", near)
	}
	v.expect(at, name, want)
}

func (v *validator) apiServer(at string, s *Side) {
	a := s.APIServer
	v.component(at, &a.Component, s)
	v.port(at+".port", a.Port)
	v.address(at+".bindAddress", a.Address)
	v.certSANs(at+".certSANs", a.CertSANs)
	v.serviceType(at+".service", a.Service)
	if s.Existing && len(a.CertSANs) > 0 {
		v.addf(at+".certSANs", "has no effect: the serving certificate of a side that runs already is left alone")
	}
	if s.Existing && a.Service != "" {
		v.addf(at+".service", "has no effect: a side that runs already is not run as pods")
	}
	if v.file.Spec.PKI.Directory != "" && strings.HasPrefix(v.file.Spec.PKI.Directory, "/") {
		v.absolute(at+".cert", a.Cert, true)
		v.absolute(at+".key", a.Key, true)
	}
	if s.Existing && len(a.ExtraArgs) == 0 {
		v.addf(at+".extraArgs", "is empty, and the side is existing: want the arguments with which the server runs; "+
			"fusionctl init --from reads them from its manifests")
	}
}

var (
	argPattern = regexp.MustCompile(`^[A-Za-z0-9][-._A-Za-z0-9]*$`)
	envPattern = regexp.MustCompile(`^[A-Za-z_][-._A-Za-z0-9]*$`)
)

func (v *validator) component(at string, c *Component, s *Side) {
	v.imageOf(at+".image", c.Image, s.Version)
	for i, word := range c.Command {
		switch {
		case word == "":
			v.addf(index(at+".command", i), "is empty")
		case i == 0 && strings.Contains(word, "$"):
			v.expect(index(at+".command", i), word, "want a program without $ in its name, which units cannot say")
		case strings.ContainsFunc(word, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }):
			v.expect(index(at+".command", i), word, "want a word without control characters")
		}
	}
	for i, arg := range c.ExtraArgs {
		v.argName(index(at+".extraArgs", i)+".name", arg.Name)
	}
	v.changes(at+".changeArgs", c.ChangeArgs, s.Existing)
	mounts, env := seen[string]{}, seen[string]{}
	for i, mount := range c.ExtraMounts {
		at := index(at+".extraMounts", i)
		if v.label(at+".name", mount.Name) {
			mounts.once(v, at+".name", mount.Name)
		}
		v.mount(at, mount, s)
	}
	for i, variable := range c.ExtraEnv {
		at := index(at+".extraEnv", i) + ".name"
		if !envPattern.MatchString(variable.Name) {
			v.expect(at, variable.Name, "want the name of an environment variable")
			continue
		}
		env.once(v, at, variable.Name)
	}
	v.absolute(at+".kubeconfig", c.Kubeconfig, false)
}

// mount checks what a component sees of its host, or of the cluster.
func (v *validator) mount(at string, m Mount, s *Side) {
	given := 0
	for _, source := range []string{m.HostPath, m.Secret, m.ConfigMap, m.Volume} {
		if source != "" {
			given++
		}
	}
	if m.Secret == "" && m.ConfigMap == "" && m.Volume == "" {
		v.absolute(at+".hostPath", m.HostPath, true)
		v.absolute(at+".mountPath", m.MountPath, false)
		return
	}
	v.absolute(at+".mountPath", m.MountPath, true)
	switch {
	case given > 1:
		v.addf(at, "want one of hostPath, secret, configMap and volume")
	case !s.Existing:
		v.addf(at, "%q: only a component that runs already may mount what is on no host; a kubelet starts no static "+
			"pod that refers to an object, and nothing fills another volume: want a hostPath", m.Name)
	}
}

// changes checks arguments of components that run already.
func (v *validator) changes(at string, list []Change, existing bool) {
	if len(list) > 0 && !existing {
		v.addf(at, "is for components that run already: want the arguments in extraArgs, or existing: true")
		return
	}
	for i, c := range list {
		v.argName(index(at, i)+".name", c.Name)
		if c.Remove && c.Value != "" {
			v.addf(index(at, i)+".value", "%q: remove: true takes the argument away; want a value or that", c.Value)
		}
	}
}

func (v *validator) argName(at, name string) {
	switch {
	case strings.HasPrefix(name, "-"):
		v.addf(at, "%q: want the name without dashes in front", strictyaml.Shorten(name))
	case strings.Contains(name, "="):
		v.addf(at, "%q: want the name alone; what follows = goes under value", strictyaml.Shorten(name))
	case !argPattern.MatchString(name):
		v.expect(at, name, "want the name of a flag, such as audit-log-path")
	}
}

// tagPattern finds the release in the tag of an image. Tags that are not written like Kubernetes' own are a vendor's
// numbering.
var tagPattern = regexp.MustCompile(`:(v1\.[0-9]+\.[0-9]+[^:/@]*)(@[^/]*)?$`)

// imageOf checks an image of a component; one whose tag tells another minor than the side's version is a mistake in one
// of the two.
func (v *validator) imageOf(at, image string, version kubever.Version) {
	v.image(at, image)
	tag := tagPattern.FindStringSubmatch(image)
	if tag == nil {
		return
	}
	tagged, err := kubever.Parse(tag[1])
	if err == nil && version.Minor != 0 && tagged.Minor != version.Minor {
		v.addf(at, "%q: the tag is %s, and the side's version is %s", image, tagged.Minor, version)
	}
}

// together judges what the two sides say of each other.
func (v *validator) together() {
	s := &v.file.Spec
	if s.Modern.Existing {
		v.addf("spec.modern.existing", "true: only the legacy side may be existing")
	}
	v.retired()
	if s.Legacy.Version.Minor > s.Modern.Version.Minor && s.Modern.Version.Minor != 0 {
		v.addf("spec.modern.version", "%q: is older than the legacy version %s; the modern side is the newer one",
			s.Modern.Version, s.Legacy.Version)
	}
	if k := s.Kubelet.Modern; k != nil && s.Modern.Version.Minor != 0 && k.Version.Minor > s.Modern.Version.Minor {
		v.addf("spec.kubelet.modern.version", "%q: is newer than the modern API server, %s; no kubelet works with an "+
			"older API server", k.Version, s.Modern.Version)
	}
	v.modernNodes()
	v.layout()
	legacy, modern := s.Legacy.APIServer, s.Modern.APIServer
	if v.Lines.Trusts("spec.legacy.apiServer") && legacy != nil && modern != nil && legacy.Port == modern.Port &&
		sameListener(legacy.Address, modern.Address) {
		v.addf("spec.modern.apiServer.port",
			"%d: is also the port of the legacy API server, which runs on the same hosts", modern.Port)
	}
	v.ports()
	v.arguments()
}

// layout wants the default stores that the layout is about.
func (v *validator) layout() {
	s := &v.file.Spec
	if !v.knowsLayout() || !v.Lines.Trusts("spec.stores") {
		return
	}
	switch same := s.Legacy.Store == s.Modern.Store; {
	case s.Layout == LayoutShared && !same:
		v.addf("spec.modern.store", "%q: layout shared keeps both sides in one store, and the legacy side's is %q",
			s.Modern.Store, s.Legacy.Store)
	case s.Layout == LayoutSplit && same:
		v.addf("spec.modern.store", "%q: is also the legacy side's; layout split needs another store for the modern "+
			"side", s.Modern.Store)
	}
}

// knowsLayout reports whether the layout is what the user wrote, or the default of who wrote none.
func (v *validator) knowsLayout() bool {
	return v.Lines.Trusts("spec.layout") && slices.Contains(Layouts, string(v.file.Spec.Layout))
}

// sameListener reports whether two bind addresses get in each other's way.
func sameListener(a, b string) bool {
	first, errFirst := netip.ParseAddr(a)
	second, errSecond := netip.ParseAddr(b)
	if errFirst != nil || errSecond != nil {
		return false // reported
	}
	return first == second || first.IsUnspecified() || second.IsUnspecified()
}

// ports refuses a managed etcd on a port that something else on its host has.
func (v *validator) ports() {
	s := &v.file.Spec
	taken := map[int]string{}
	for _, side := range []struct {
		name   string
		server *APIServer
	}{{"legacy", s.Legacy.APIServer}, {"modern", s.Modern.APIServer}} {
		if side.server != nil {
			taken[side.server.Port] = "the " + side.name + " API server"
		}
	}
	if s.Pods != nil {
		taken[s.Pods.Admission.Port] = "the admission webhook"
	}
	if s.Gateway != nil && !s.Gateway.Disabled {
		clients, metrics := s.Gateway.ports()
		taken[clients], taken[metrics] = "the gateway", "the gateway's metrics"
	}
	for i := range s.Stores {
		store, at := &s.Stores[i], index("spec.stores", i)
		if store.Managed == nil {
			continue
		}
		client := 0
		if endpoint := store.endpoint(); endpoint.Port() != "" {
			fmt.Sscan(endpoint.Port(), &client)
		}
		for _, use := range []struct {
			path, what string
			port       int
		}{
			{at + ".endpoints", "clients", client},
			{at + ".managed.peerPort", "peers", store.Managed.PeerPort},
		} {
			if other, ok := taken[use.port]; ok {
				v.addf(use.path, "%d: is also the port of %s, which runs on the same hosts", use.port, other)
				continue
			}
			if use.port != 0 {
				taken[use.port] = fmt.Sprintf("etcd %q for its %s", store.Name, use.what)
			}
		}
	}
}
