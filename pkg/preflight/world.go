package preflight

import (
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// ports judges whether other processes listen where components will.
func (c *check) ports() {
	for _, l := range c.Listeners {
		for _, s := range c.host.World.Listening {
			if s.Port != l.Port || !overlap(s.Address, l.Address) || isComponent(s.Process, l.Component) {
				continue
			}
			process, fix := "a process that could not be read", "run this as root to see which, and stop it, "
			if s.Process != nil {
				process, fix = shortened(s.Process), "stop it, "
			}
			c.report(finding.Finding{Rule: PortInUse, Subject: fmt.Sprintf("port %d", l.Port), Key: l.Component.Name,
				Message: fmt.Sprintf("%s is to listen on it, and %s does", l.Component.Name, process),
				Fix:     fix + "or give the component another port in the spec"})
			break
		}
	}
}

// overlap reports whether two listeners of one port are in each other's way; "" is every address.
func overlap(a, b string) bool {
	if a == "" || b == "" {
		return true
	}
	first, errA := netip.ParseAddr(a)
	second, errB := netip.ParseAddr(b)
	return errA != nil || errB != nil || first.Unmap() == second.Unmap()
}

// shortened is a command line for people.
func shortened(process []string) string {
	const most = 80
	text := strings.Join(process, " ")
	if len(text) > most {
		text = text[:most] + "..."
	}
	return "`" + text + "`"
}

// identifying are the arguments by which one process of a kind is told from another: what it works on.
var identifying = []string{"data-dir", "etcd-servers", "kubeconfig", "plan"}

// versionSuffix is what people append to the name of a program: kube-apiserver-v1.6.13.
var versionSuffix = regexp.MustCompile(`[-_.]v?[0-9]+\.[0-9]+[-+._0-9A-Za-z]*$`)

// isComponent reports whether a process is the component, which was started before.
func isComponent(process []string, c *plan.Component) bool {
	kinds := []string{c.Kind, strings.TrimPrefix(c.Kind, "kube-")} // a hyperkube has the short names too
	switch c.Kind {                                                // verbs of fusionctl
	case plan.JointControllers:
		kinds = []string{"controllers"}
	case plan.JointGateway:
		kinds = []string{"gateway"}
	}
	named := slices.ContainsFunc(process[:min(len(process), 3)], func(word string) bool {
		return slices.Contains(kinds, versionSuffix.ReplaceAllString(path.Base(word), ""))
	})
	if !named {
		return false
	}
	for i, word := range process {
		name, value, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if !strings.HasPrefix(word, "-") || !slices.Contains(identifying, kubever.FlagName(name)) {
			continue
		}
		if !given && i+1 < len(process) {
			value = process[i+1]
		}
		if want, ok := c.Arg(kubever.FlagName(name)); ok && !sameList(value, want) {
			return false
		}
	}
	return true
}

func sameList(a, b string) bool {
	x, y := strings.Split(a, ","), strings.Split(b, ",")
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

// stores judges the stores that exist already: each member has to answer, with a version on which the API servers that
// use the store were run.
func (c *check) stores() {
	for _, s := range c.Stores {
		for _, m := range c.host.World.Stores[s.Name] {
			if m.Problem != "" {
				c.report(finding.Finding{Rule: NoStore, Subject: "store " + s.Name, Key: m.Endpoint,
					Message: m.Endpoint + " cannot be reached from this host: " + m.Problem,
					Fix:     "start the member, open the way to it, or correct spec.stores"})
				continue
			}
			if m.Version == "" {
				continue
			}
			var minors []kubever.Minor
			for _, server := range c.Plan.ServersOf(s.Name) {
				minors = append(minors, c.Plan.Side(server.Side).Version.Minor)
			}
			if message, fix := kubever.UnseenOnEtcd(m.Version, minors...); message != "" {
				c.report(finding.Finding{Rule: UnseenStore, Subject: "store " + s.Name, Key: m.Endpoint,
					Message: m.Endpoint + " is " + message, Fix: fix})
			}
		}
	}
}

// images judges whether the container runtime has the images of the manifests.
func (c *check) images() {
	if c.host.World.Images == nil {
		return
	}
	has := map[string]bool{}
	for _, name := range *c.host.World.Images {
		has[normalImage(name)] = true
	}
	for _, need := range c.Images {
		if has[normalImage(need.Image)] {
			continue
		}
		c.report(finding.Finding{Rule: NoImage, Subject: need.Image,
			Message: fmt.Sprintf("is not on the host; %s does not start before it was pulled",
				strings.Join(need.Components, ", ")),
			Fix: "pull or import it before the manifest is put in its place"})
	}
}

// normalImage is the name of an image as runtimes list it: with a registry and a tag.
func normalImage(name string) string {
	first, rest, within := strings.Cut(name, "/")
	switch {
	case !within:
		name = "docker.io/library/" + name
	case !strings.ContainsAny(first, ".:") && first != "localhost":
		name = "docker.io/" + first + "/" + rest
	}
	if base := path.Base(name); !strings.Contains(base, ":") && !strings.Contains(name, "@") {
		name += ":latest"
	}
	if repository, digest, ok := strings.Cut(name, "@"); ok { // a tag beside a digest says nothing
		directory, base := path.Split(repository)
		base, _, _ = strings.Cut(base, ":")
		name = directory + base + "@" + digest
	}
	return name
}

// kubelet judges whether the kubelet of the host starts what is put into the directory of the manifests.
func (c *check) kubelet() {
	k := c.host.World.Kubelet
	if k == nil || c.Manifests == "" || k.StaticPods != "" && path.Clean(k.StaticPods) == c.Manifests {
		return
	}
	message := fmt.Sprintf("%s: it starts static pods from %s, and the manifests go to %s", k.Where, k.StaticPods,
		c.Manifests)
	if k.StaticPods == "" {
		message = fmt.Sprintf("%s: it starts no static pods, and the manifests go to %s", k.Where, c.Manifests)
	}
	c.report(finding.Finding{Rule: OtherManifests, Subject: "kubelet", Message: message,
		Fix: fmt.Sprintf("set staticPodPath of its configuration, or --pod-manifest-path, to %s; or put the manifests "+
			"where it looks, or link the one to the other", c.Manifests)})
}

// streams judges where the container runtime streams exec, attach and port-forward. Kubelets up to 1.10 send API
// servers there; later ones go there themselves.
func (c *check) streams() {
	address := c.host.World.Streams
	if address == nil || *address == "" { // it chooses one of the host's
		return
	}
	ip, err := netip.ParseAddr(*address)
	if err != nil || ip.IsUnspecified() {
		return
	}
	found := finding.Finding{Rule: NoStreams, Subject: "stream_server_address",
		Fix: `set stream_server_address in the [plugins."io.containerd.grpc.v1.cri"] part of /etc/containerd/config.toml`}
	switch {
	case kubever.Behaves(kubever.BehaviourKubeletRedirectsStreams, c.Plan.Kubelet.Minor):
		if !ip.IsLoopback() {
			return
		}
		found.Message = fmt.Sprintf("the container runtime streams on %s, and kubelets of %s redirect API servers to "+
			"it: exec, attach and port-forward into pods of this host work from no other host", *address,
			c.Plan.Kubelet.Minor)
		found.Fix += " to the address of the host"
	case ip.IsLoopback() || slices.Contains(c.host.World.Addresses, ip.Unmap().String()):
		return
	default:
		found.Message = fmt.Sprintf("the container runtime streams on %s, which is no address of this host: the "+
			"kubelet does not reach it, and exec, attach and port-forward fail", *address)
		found.Fix += " to 127.0.0.1"
	}
	c.report(found)
}
