package api

import (
	"fmt"
	"strconv"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Install says how the operator runs in the management cluster.
type Install struct {
	Name      string // of everything
	Namespace string
	Image     string // whose entry point is fusionctl
	Replicas  int
}

// HealthPort is where the operator's pods answer the kubelet.
const HealthPort = 10272

// Definitions are the CRDs as they are applied: that of control planes, and that of their hosts.
func Definitions() []map[string]any {
	var objects []map[string]any
	for _, crd := range []*apiextensions.CustomResourceDefinition{CRD(), HostCRD()} {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
		if err != nil {
			panic(fmt.Sprintf("operator/api: internal error: %v", err))
		}
		delete(object, "status")
		delete(object["metadata"].(map[string]any), "creationTimestamp")
		objects = append(objects, object)
	}
	return objects
}

// right is a rule of a role.
func right(groups, resources, verbs []any) map[string]any {
	return map[string]any{"apiGroups": groups, "resources": resources, "verbs": verbs}
}

// rights are what the operator does in the namespaces of control planes. No verb reads Secrets but get, so that it
// lists none of what it does not know by name.
func rights() []any {
	list := func(words ...any) []any { return words }
	return []any{
		right(list(Group), list(Plural), list("get", "list", "watch", "patch")),
		right(list(Group), list(Plural+"/status"), list("update")),
		// what an agent may do of its own host, the operator has to be allowed, too: it gives no more than it has
		right(list(Group), list(HostPlural), list("get", "list", "watch", "create", "update", "delete")),
		right(list(Group), list(HostPlural+"/status"), list("get", "update", "patch")),
		right(list("rbac.authorization.k8s.io"), list("roles", "rolebindings"), list("get", "create", "patch")),
		right(list("rbac.authorization.k8s.io"), list("rolebindings"), list("delete")),
		right(list(""), list("namespaces"), list("get", "create", "delete")),
		right(list(""), list("secrets"), list("get", "create", "update", "patch")),
		right(list(""), list("configmaps", "services"), list("get", "create", "patch", "delete")),
		right(list("apps"), list("deployments", "statefulsets"),
			list("get", "list", "watch", "create", "patch", "delete")),
		right(list(""), list("persistentvolumeclaims"), list("get", "create", "patch")),
		right(list("batch"), list("cronjobs", "jobs"), list("get", "create", "patch", "delete")),
		right(list("policy"), list("poddisruptionbudgets"), list("get", "create", "patch", "delete")),
		right(list(""), list("pods"), list("list")),
		right(list("events.k8s.io"), list("events"), list("create", "patch")),
		// agents renew their certificates; the signer is that of client certificates, and gives none of system:masters
		right(list("certificates.k8s.io"), list("certificatesigningrequests"), list("get", "list", "watch")),
		right(list("certificates.k8s.io"), list("certificatesigningrequests/approval"), list("update")),
		map[string]any{"apiGroups": list("certificates.k8s.io"), "resources": list("signers"),
			"resourceNames": list("kubernetes.io/kube-apiserver-client"), "verbs": list("approve")},
	}
}

// agentRights are what every agent may do, beside what its own role allows: ask for its next certificate.
func agentRights() []any {
	return []any{right([]any{"certificates.k8s.io"}, []any{"certificatesigningrequests"},
		[]any{"create", "get", "list", "watch"})}
}

// Objects lists what runs the operator: a namespace, an account with its roles, and a Deployment.
func (i Install) Objects() []map[string]any {
	labels := map[string]any{"app.kubernetes.io/name": i.Name}
	metadata := func(namespaced bool) map[string]any {
		m := map[string]any{"name": i.Name, "labels": labels}
		if namespaced {
			m["namespace"] = i.Namespace
		}
		return m
	}
	object := func(apiVersion, kind string, namespaced bool, more map[string]any) map[string]any {
		o := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata(namespaced)}
		for key, value := range more {
			o[key] = value
		}
		return o
	}
	const rbac = "rbac.authorization.k8s.io"
	subjects := []any{map[string]any{"kind": "ServiceAccount", "name": i.Name, "namespace": i.Namespace}}
	role := func(kind string) map[string]any {
		return map[string]any{"apiGroup": rbac, "kind": kind, "name": i.Name}
	}
	agents := func(kind string, more map[string]any) map[string]any {
		o := object(rbac+"/v1", kind, false, more)
		o["metadata"] = map[string]any{"name": i.Name + "-agents", "labels": labels}
		return o
	}
	probe := func(path string) map[string]any {
		return map[string]any{"httpGet": map[string]any{"path": path, "port": "health"}}
	}
	container := map[string]any{
		"name": "operator", "image": i.Image,
		"args": []any{"operator", "--namespace=" + i.Namespace,
			"--health-listen=:" + strconv.Itoa(HealthPort)},
		"ports":          []any{map[string]any{"name": "health", "containerPort": HealthPort}},
		"readinessProbe": probe("/readyz"), "livenessProbe": probe("/healthz"),
		"resources": map[string]any{"requests": map[string]any{"cpu": "100m", "memory": "128Mi"},
			"limits": map[string]any{"memory": "1Gi"}},
		"securityContext": map[string]any{
			"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true, "runAsUser": 65532,
			"capabilities":   map[string]any{"drop": []any{"ALL"}},
			"seccompProfile": map[string]any{"type": "RuntimeDefault"},
		},
		// files with which stores are read, which no disk keeps
		"volumeMounts": []any{map[string]any{"name": "tmp", "mountPath": "/tmp"}},
	}
	pod := map[string]any{"serviceAccountName": i.Name, "containers": []any{container},
		"volumes": []any{map[string]any{"name": "tmp", "emptyDir": map[string]any{"medium": "Memory"}}}}
	return []map[string]any{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": i.Namespace}},
		object("v1", "ServiceAccount", true, nil),
		object(rbac+"/v1", "ClusterRole", false, map[string]any{"rules": rights()}),
		object(rbac+"/v1", "ClusterRoleBinding", false,
			map[string]any{"roleRef": role("ClusterRole"), "subjects": subjects}),
		agents("ClusterRole", map[string]any{"rules": agentRights()}),
		agents("ClusterRoleBinding", map[string]any{
			"roleRef":  map[string]any{"apiGroup": rbac, "kind": "ClusterRole", "name": i.Name + "-agents"},
			"subjects": []any{map[string]any{"apiGroup": rbac, "kind": "Group", "name": AgentGroup}}}),
		object(rbac+"/v1", "Role", true, map[string]any{"rules": []any{
			right([]any{"coordination.k8s.io"}, []any{"leases"}, []any{"create", "get", "update"}),
			right([]any{"events.k8s.io", ""}, []any{"events"}, []any{"create", "patch"}),
		}}),
		object(rbac+"/v1", "RoleBinding", true, map[string]any{"roleRef": role("Role"), "subjects": subjects}),
		object("apps/v1", "Deployment", true, map[string]any{"spec": map[string]any{
			"replicas": i.Replicas, "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": pod},
		}}),
	}
}
