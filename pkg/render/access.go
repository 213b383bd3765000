package render

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

// kubeletRole names the role and its binding by which kubelets let the API servers in. Kubelets that authorize with
// --authorization-mode=Webhook ask the legacy API server.
const kubeletRole = "kubefusion:kubelet-client"

// kubeletResources are what kubelets ask about, in every version.
var kubeletResources = []string{"nodes/checkpoint", "nodes/configz", "nodes/healthz", "nodes/log", "nodes/metrics",
	"nodes/pods", "nodes/proxy", "nodes/spec", "nodes/stats"}

// legacyAccess is what the legacy side has to allow, in the words of its authorization modes: to components that see
// both sides, and to the certificate with which the API servers reach the kubelets. A mode that has no words of its
// own, a webhook, has the roles to go by.
func legacyAccess(p *plan.Plan) ([]File, error) {
	modes := legacyModes(p)
	if len(modes) == 0 || slices.Contains(modes, "AlwaysAllow") {
		return nil, nil
	}
	if slices.Contains(modes, "ABAC") && !slices.Contains(modes, "RBAC") {
		data, err := legacyPolicy(p)
		if err != nil {
			return nil, fmt.Errorf("policy of the legacy side: %w", err)
		}
		return []File{{Path: legacyPolicyFile, Mode: public, Data: data}}, nil
	}
	var out bytes.Buffer
	for _, u := range legacyUsers(p) {
		data, err := legacyRoles(p, &u)
		if err != nil {
			return nil, err
		}
		if out.Len() > 0 {
			out.WriteString("---\n")
		}
		out.Write(data)
	}
	if p.Kubelets != nil {
		if out.Len() > 0 {
			out.WriteString("---\n")
		}
		data, err := kubeletRoles(p.Kubelets)
		if err != nil {
			return nil, err
		}
		out.Write(data)
	}
	return []File{{Path: legacyRolesFile, Mode: public, Data: out.Bytes()}}, nil
}

// legacyModes are the authorization modes of the legacy API server where it has to allow something; nil where it has
// not.
func legacyModes(p *plan.Plan) []string {
	switch users := legacyUsers(p); {
	case len(users) > 0:
		return users[0].Access.Modes
	case p.Kubelets != nil:
		return p.Kubelets.Modes
	}
	return nil
}

// kubeletRoles are the cluster role and the binding of the kubelet client certificate's user.
func kubeletRoles(k *plan.KubeletAccess) ([]byte, error) {
	const group = "rbac.authorization.k8s.io"
	rule := object(
		field{"apiGroups", flow([]string{""})},
		field{"resources", flow(kubeletResources)},
		field{"verbs", flow([]string{"*"})},
	)
	role, err := document("Written by fusionctl render: kubelets let the API servers in, for logs, exec, "+
		"port-forward and metrics.\n", object(
		field{"apiVersion", text(k.RBACVersion)},
		field{"kind", text("ClusterRole")},
		field{"metadata", object(field{"name", text(kubeletRole)})},
		field{"rules", list(rule)},
	))
	if err != nil {
		return nil, err
	}
	subject := object(field{"apiGroup", text(group)}, field{"kind", text("User")}, field{"name", text(k.User)})
	binding, err := document("", object(
		field{"apiVersion", text(k.RBACVersion)},
		field{"kind", text("ClusterRoleBinding")},
		field{"metadata", object(field{"name", text(kubeletRole)})},
		field{"roleRef", object(field{"apiGroup", text(group)}, field{"kind", text("ClusterRole")},
			field{"name", text(kubeletRole)})},
		field{"subjects", list(subject)},
	))
	return slices.Concat(role, []byte("---\n"), binding), err
}

// kubeletGrant is the same as a line of an ABAC policy.
func kubeletGrant(k *plan.KubeletAccess) policy.Grant {
	return policy.Grant{Subjects: []policy.Subject{{Kind: policy.KindUser, Name: k.User}}, APIGroups: []string{""},
		Resources: []string{"nodes"}, Namespaces: []string{"*"}, Why: "kubelets let the API servers in"}
}

// auditPolicy is the audit policy of the modern API server: every request, without bodies, which may hold secrets.
func auditPolicy() ([]byte, error) {
	return document("Written by fusionctl render: every request is recorded, its body is not.\n"+
		"For a policy of your own set audit-policy-file in the extraArgs of spec.modern.apiServer.\n", object(
		field{"apiVersion", text("audit.k8s.io/v1")},
		field{"kind", text("Policy")},
		field{"omitStages", list(text("RequestReceived"))},
		field{"rules", list(object(field{"level", text("Metadata")}))},
	))
}

// permitKubelets are the words and the commands of the runbook about the kubelet client certificate.
func permitKubelets(p *plan.Plan) permit {
	if p.Kubelets == nil {
		return permit{}
	}
	v := permit{
		Words: []string{"The modern API server reaches kubelets with a certificate of `" + p.Kubelets.User + "`. " +
			"Kubelets with `--authorization-mode=Webhook` ask the legacy API server whether they may let it in."}}
	switch modes := p.Kubelets.Modes; {
	case slices.Contains(modes, "AlwaysAllow"):
		return permit{}
	case slices.Contains(modes, "RBAC"):
		v.Commands = []string{"legacy apply -f " + legacyRolesFile,
			"legacy get clusterrolebinding " + kubeletRole + "    # one"}
	case slices.Contains(modes, "ABAC"):
		v.Words = append(v.Words, "Add the line about it in `"+legacyPolicyFile+"` to the file of the legacy API "+
			"server's `--authorization-policy-file`, and restart it, one host after the other.")
	default:
		v.Words = append(v.Words, "Have it allow what `"+legacyRolesFile+"` says.")
	}
	return v
}
