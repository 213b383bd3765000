package api

import (
	"fmt"
	"strconv"

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

// Definition is the CRD as it is applied.
func Definition() map[string]any {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(CRD())
	if err != nil {
		panic(fmt.Sprintf("operator/api: internal error: %v", err))
	}
	delete(object, "status")
	delete(object["metadata"].(map[string]any), "creationTimestamp")
	return object
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
	}
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
