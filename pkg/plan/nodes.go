package plan

import (
	"slices"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/policy"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// nodeRestriction is the admission plugin that keeps a kubelet to its own node and pods.
const nodeRestriction = "NodeRestriction"

// kubeProxyUser is the user of kube-proxy, by the bootstrap roles of every version.
const kubeProxyUser = "system:kube-proxy"

// KubeletWrites are the resources, by key, that kubelets of a minor create and change by themselves, the status of
// nodes and pods included. Source: pkg/kubelet of 1.6 to 1.36; csinodes seen with kubelet 1.36.3.
func KubeletWrites(kubelet kubever.Minor) []string {
	keys := []string{"events", "minions", "pods"}
	if kubever.Behaves(kubever.BehaviourKubeletLeaseHeartbeat, kubelet) {
		keys = append(keys, "leases")
	}
	if kubever.Behaves(kubever.BehaviourKubeletWritesCSINodes, kubelet) {
		keys = append(keys, "csinodes")
	}
	return keys
}

// KubeletAt is the minor of the kubelets that are connected to the API server of a side; false for none.
func (p *Plan) KubeletAt(side pair.Side) (kubever.Minor, bool) {
	if side == pair.Legacy {
		return p.Kubelet.Minor, true
	}
	if p.ModernKubelet == nil {
		return 0, false
	}
	return p.ModernKubelet.Minor, true
}

// KubeletMinors are those of the kubelets of both sides.
func (p *Plan) KubeletMinors() []kubever.Minor {
	var minors []kubever.Minor
	for _, side := range pair.Sides() {
		if m, ok := p.KubeletAt(side); ok {
			minors = append(minors, m)
		}
	}
	return minors
}

// Node is a node whose kubelet transitions connect to the modern API server: the unit that runs it gets another command
// line, and keeps its own files.
type Node struct {
	Name    string   `json:"name"`
	Address string   `json:"address"`
	Unit    string   `json:"unit"`
	Program string   `json:"program"`
	Args    []string `json:"args"` // complete, --NAME=VALUE
	// Kubeconfig is how the kubelet reaches the modern API server, and Legacy where the legacy one is.
	Kubeconfig Kubeconfig `json:"kubeconfig"`
	Legacy     string     `json:"legacy"`
	Runtime    string     `json:"runtime"`
}

// nodeKubeconfig is where a node has the kubeconfig of its kubelet at the modern API server.
const nodeKubeconfig = "/etc/kubernetes/kubelet-modern.conf"

func (b *basis) nodes() []Node {
	k := b.file.Spec.Kubelet.Modern
	if k == nil || b.target == Hosted {
		return nil
	}
	at := func(side pair.Side) string {
		return "https://" + HostPort(b.file.Spec.Hosts[0].Address, b.side(side).APIServer.Port)
	}
	var nodes []Node
	for _, n := range k.Nodes {
		args := []string{"--kubeconfig=" + nodeKubeconfig}
		for _, a := range slices.Concat(k.Args, n.Args) {
			args = append(args, "--"+a.Name+"="+a.Value)
		}
		nodes = append(nodes, Node{Name: n.Name, Address: n.Address, Unit: k.Unit, Program: k.Program, Args: args,
			Kubeconfig: Kubeconfig{Host: n.Name, Path: nodeKubeconfig, Server: at(pair.Modern), CA: k.CA, Cert: k.Cert,
				Key: k.Key, User: "system:node:" + n.Name, Component: "kubelet"},
			Legacy: at(pair.Legacy), Runtime: k.Runtime})
	}
	return nodes
}

func kubeletMinors(k spec.Kubelet) []kubever.Minor {
	minors := []kubever.Minor{k.Version.Minor}
	if k.Modern != nil {
		minors = append(minors, k.Modern.Version.Minor)
	}
	return minors
}

func (p *placement) modernKubeletsWrite(key string) bool {
	k := p.file.Spec.Kubelet.Modern
	return k != nil && slices.Contains(KubeletWrites(k.Version.Minor), key)
}

// ModernAuthorization is --authorization-mode of the modern API server, and why.
func ModernAuthorization(nodes bool) (mode, why string) {
	if nodes {
		return "Node,ABAC", "Node allows kubelets what is their node's; everything else is decided by the policy alone"
	}
	return "ABAC", "alone: a second mode would allow what the policy does not"
}

// nodeAccess is what nodes need beside what the Node authorizer allows to their kubelets: kubelets that authorize with
// the API server's help ask it about the certificate by which API servers reach them, and kube-proxy is no kubelet.
func nodeAccess(rows []Resource, m kubever.Minor) []policy.Grant {
	const (
		kubelets = "nodes: kubelets let the API servers in, for logs and exec"
		proxies  = "nodes: kube-proxy"
	)
	proxy := []policy.Subject{{Kind: policy.KindUser, Name: kubeProxyUser}}
	grants := []policy.Grant{{Subjects: []policy.Subject{{Kind: policy.KindUser, Name: KubeletClientUser}},
		APIGroups: []string{""}, Resources: []string{"nodes"}, Namespaces: []string{"*"}, Why: kubelets}}
	for _, key := range []string{"minions", "services/specs", "services/endpoints", "endpointslices", "servicecidrs"} {
		if row := rowOf(rows, key); row != nil {
			grants = append(grants, grantsFor(proxy, row, m, []string{"*"}, true, proxies)...)
		}
	}
	grants = append(grants, policy.Grant{Subjects: proxy, APIGroups: []string{"", "events.k8s.io"},
		Resources: []string{"events"}, Namespaces: []string{"*"}, Why: proxies})
	for i := range grants {
		grants[i].Purpose = policy.ForNodes
	}
	return grants
}
