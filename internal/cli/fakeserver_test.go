package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type object = map[string]any

// fakeServer is an API server of today with a CRD, pizzas.g.example, and an object of each kind. What a developer can
// name in them ends with the mark.
func fakeServer(t *testing.T, mark string) (kubeconfig string) {
	t.Helper()
	resource := func(plural, kind string, namespaced bool) object {
		return object{"name": plural, "kind": kind, "namespaced": namespaced,
			"verbs": []string{"get", "list", "watch", "update", "delete"}}
	}
	resources := map[string][]object{
		"v1": {resource("pods", "Pod", true), resource("namespaces", "Namespace", false),
			resource("configmaps", "ConfigMap", true),
			resource("secrets", "Secret", true), resource("services", "Service", true),
			resource("nodes", "Node", false)},
		"apps/v1":                 {resource("deployments", "Deployment", true)},
		"extensions/v1beta1":      {resource("ingresses", "Ingress", true)},
		"policy/v1":               {resource("poddisruptionbudgets", "PodDisruptionBudget", true)},
		"apiextensions.k8s.io/v1": {resource("customresourcedefinitions", "CustomResourceDefinition", false)},
		"g.example/v1":            {resource("pizzas", "Pizza", true)},
		"g.example/v1beta1":       {resource("pizzas", "Pizza", true)},
	}
	version := func(name string, storage bool) object {
		return object{"name": name, "served": true, "storage": storage,
			"schema": object{"openAPIV3Schema": object{"type": "object",
				"description": "of pizzas" + mark, "x-kubernetes-preserve-unknown-fields": true}}}
	}
	crd := object{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": object{"name": "pizzas.g.example", "uid": "1", "resourceVersion": "1", "generation": 1,
			"annotations": object{"note": "a note" + mark}},
		"spec": object{"group": "g.example", "scope": "Namespaced",
			"names":      object{"plural": "pizzas", "kind": "Pizza", "singular": "pizza" + mark},
			"versions":   []object{version("v1beta1", true), version("v1", false)},
			"conversion": object{"strategy": "None"}},
		"status": object{"storedVersions": []string{"v1beta1"},
			"conditions": []object{{"type": "Established", "status": "True", "message": "well" + mark},
				{"type": "NamesAccepted", "status": "True"}}}}
	answer := func(w http.ResponseWriter, code int, value any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(value)
	}
	groups := map[string][]object{}
	for gv := range resources {
		if group, version, ok := strings.Cut(gv, "/"); ok {
			groups[group] = append(groups[group], object{"groupVersion": gv, "version": version})
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.Trim(r.URL.Path, "/")
		gv, plain := strings.CutPrefix(path, "apis/")
		if !plain {
			gv = strings.TrimPrefix(path, "api/")
		}
		switch {
		case path == "version":
			answer(w, 200, object{"major": "1", "minor": "36", "gitVersion": "v1.36.3"})
		case path == "api":
			answer(w, 200, object{"kind": "APIVersions", "versions": []string{"v1"}})
		case path == "apis":
			var list []object
			for name, versions := range groups {
				list = append(list, object{"name": name, "versions": versions, "preferredVersion": versions[0]})
			}
			answer(w, 200, object{"kind": "APIGroupList", "apiVersion": "v1", "groups": list})
		case groups[gv] != nil:
			answer(w, 200, object{"kind": "APIGroup", "apiVersion": "v1", "name": gv, "versions": groups[gv],
				"preferredVersion": groups[gv][0]})
		case resources[gv] != nil:
			answer(w, 200, object{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": gv,
				"resources": resources[gv]})
		case strings.HasSuffix(path, "/customresourcedefinitions/pizzas.g.example"):
			answer(w, 200, crd)
		case path == "api/v1/namespaces/kube-system":
			answer(w, 200, object{"kind": "Namespace", "apiVersion": "v1",
				"metadata": object{"name": "kube-system", "uid": "2", "resourceVersion": "2"}})
		default:
			for gv, kinds := range resources {
				for _, kind := range kinds {
					if strings.HasSuffix(path, "/"+kind["name"].(string)) && strings.Contains("/"+path, "/"+gv+"/") {
						item := object{"apiVersion": gv, "kind": kind["kind"],
							"metadata": object{"name": "name" + mark, "namespace": "team" + mark, "uid": gv + "1",
								"resourceVersion": "7",
								"annotations":     object{"kubectl.kubernetes.io/last-applied-configuration": `{"apiVersion":"extensions/v1beta1"}`},
								"ownerReferences": []object{{"apiVersion": "apps/v1", "kind": "ReplicaSet",
									"name": "owner" + mark, "uid": "u"}},
								"managedFields": []object{{"manager": "manager" + mark,
									"apiVersion": "extensions/v1beta1", "operation": "Update"}}},
							"spec": object{"nodeName": "node" + mark,
								"containers": []object{{"name": "c" + mark, "image": "image" + mark}}}}
						if kind["kind"] == "CustomResourceDefinition" {
							item = crd
						}
						answer(w, 200, object{"kind": kind["kind"].(string) + "List", "apiVersion": gv,
							"metadata": object{"resourceVersion": "9"}, "items": []object{item}})
						return
					}
				}
			}
			answer(w, 404, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
				"code": 404, "message": "there is nothing" + mark})
		}
	}))
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "admin.conf")
	text, err := json.Marshal(object{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"contexts": []object{{"name": "c", "context": object{"cluster": "k", "user": "u"}}},
		"clusters": []object{{"name": "k", "cluster": object{"server": server.URL}}},
		"users":    []object{{"name": "u", "user": object{}}}})
	if err == nil {
		err = os.WriteFile(kubeconfig, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}
