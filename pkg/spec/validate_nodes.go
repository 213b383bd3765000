package spec

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// modernNodes judges the nodes whose kubelets transitions change.
func (v *validator) modernNodes() {
	k := v.file.Spec.Kubelet.Modern
	if k == nil {
		return
	}
	const at = "spec.kubelet.modern"
	if len(k.Nodes) == 0 {
		if k.Unit+k.Program+k.CA+k.Cert+k.Key+k.Runtime != "" || len(k.Args) > 0 {
			v.addf(at+".nodes", "is empty: the other fields say how the kubelets of these nodes run")
		}
		return
	}
	if name, ok := strings.CutSuffix(k.Unit, ".service"); !ok || !IsLabel(name) {
		v.addf(at+".unit", "%q: want a DNS label and .service", k.Unit)
	}
	for _, file := range []struct{ field, path string }{{"program", k.Program}, {"ca", k.CA}, {"cert", k.Cert},
		{"key", k.Key}} {
		v.absolute(at+"."+file.field, file.path, true)
	}
	if !strings.HasPrefix(k.Runtime, "unix:///") {
		v.addf(at+".runtime", "%q: want a socket, such as unix:///run/containerd/containerd.sock", k.Runtime)
	}
	v.kubeletArgs(at+".args", k.Args, k.Version.Minor)
	names, addresses := seen[string]{}, seen[netip.Addr]{}
	for i := range k.Nodes {
		n, at := &k.Nodes[i], index(at+".nodes", i)
		if !IsNodeName(n.Name) {
			v.addf(at+".name", "%q: want the name of a node: DNS labels, with dots between them", n.Name)
		} else {
			names.once(v, at+".name", n.Name)
		}
		if address, ok := v.address(at+".address", n.Address); ok {
			addresses.once(v, at+".address", address)
		}
		for _, h := range v.file.Spec.Hosts {
			if (h.Name == n.Name) != (h.Address == n.Address) {
				v.addf(at, "{%s, %s}: host %s has the address %s: one machine is called the same in both", n.Name,
					n.Address, h.Name, h.Address)
			}
		}
		v.kubeletArgs(at+".args", n.Args, k.Version.Minor)
	}
}

func (v *validator) kubeletArgs(at string, args []Arg, m kubever.Minor) {
	for i, a := range args {
		field := index(at, i) + ".name"
		v.argName(field, a.Name)
		switch {
		case slices.Contains([]string{"kubeconfig", "bootstrap-kubeconfig"}, a.Name):
			v.addf(field, "%q: the plan writes the kubeconfig, and gives it", a.Name)
		case a.Name == "network-plugin" && !kubever.Behaves(kubever.BehaviourDockershim, m):
			v.addf(field, "%q: kubelets of %s do not know it; it went with dockershim", a.Name, m)
		}
	}
}

// IsNodeName reports whether a text can be the name of a node.
func IsNodeName(name string) bool {
	isNone := func(label string) bool { return !IsLabel(label) }
	return len(name) <= 253 && !slices.ContainsFunc(strings.Split(name, "."), isNone)
}
