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
