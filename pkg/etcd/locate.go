package etcd

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// Paths are the places below the prefix that a name may mean, the likeliest first, and whether the map knows the
// resource that comes first. The name is a path as it stands in the store ("services/specs/default/web"), a whole
// key ("/registry/minions/n1"), a key as reports quote it, or a resource by any of its names ("pods", "po",
// "Pod", "deployments.apps", "notebooks.kubeflow.org") with a namespace and a name behind it. Shape: "svc/default/web"
// is ["services/specs/default/web"], known; "" is [""].
func Paths(m *pair.Map, typed string) (paths []string, known bool) {
	if unquoted, err := strconv.Unquote(typed); err == nil && typed[0] == '"' {
		typed = unquoted
	}
	prefix := storage.NormalPrefix(m.Prefix) + "/"
	if rest, ok := strings.CutPrefix(typed, prefix); ok {
		rest = strings.TrimSuffix(rest, "/")
		return []string{rest}, holds(m, rest)
	}
	typed = strings.Trim(typed, "/")
	if typed == "" || holds(m, typed) {
		return []string{typed}, true
	}
	first, rest, more := strings.Cut(typed, "/")
	path := func(resource string) string {
		if more {
			return resource + "/" + rest
		}
		return resource
	}
	for i := range m.Resources {
		if r := &m.Resources[i]; called(r, first) {
			paths = append(paths, path(r.Key))
		}
	}
	known = len(paths) > 0
	paths = append(paths, typed)
	if plural, group, ok := strings.Cut(first, "."); ok && strings.Contains(group, ".") {
		paths = append(paths, path(group+"/"+plural)) // a custom resource, named as its CRD is
	}
	return slices.Compact(paths), known
}

// holds reports whether the path begins with the key of a resource.
func holds(m *pair.Map, path string) bool {
	return slices.ContainsFunc(m.Resources, func(r pair.Resource) bool {
		return within(path, r.Key) || within(r.Key, path)
	})
}

// within reports whether the path is another one, or below it.
func within(path, above string) bool {
	rest, ok := strings.CutPrefix(path, above)
	return ok && (rest == "" || rest[0] == '/' || above == "")
}

// called reports whether the name is one of the resource's: plural, singular or short, with or without its group.
func called(r *pair.Resource, name string) bool {
	name = strings.ToLower(name)
	name, group, grouped := strings.Cut(name, ".")
	if grouped && !slices.Contains(r.Groups, group) {
		return false
	}
	plural := r.Name
	if plural == "" {
		plural = storage.PlainName(r.Key)
	}
	return name == plural || name == strings.ToLower(r.Kind) || shortNames[name] == plural
}

// shortNames are the short names in the discovery of API servers.
// Source: the ShortNames functions of the registries of kubernetes 1.6 to 1.36.
var shortNames = map[string]string{
	"cj": "cronjobs", "cm": "configmaps", "crd": "customresourcedefinitions", "crds": "customresourcedefinitions",
	"csr":    "certificatesigningrequests",
	"deploy": "deployments", "ds": "daemonsets", "ep": "endpoints", "ev": "events", "hpa": "horizontalpodautoscalers",
	"ing": "ingresses",
	"ip":  "ipaddresses", "limits": "limitranges", "netpol": "networkpolicies", "no": "nodes", "ns": "namespaces",
	"pc":  "priorityclasses",
	"pdb": "poddisruptionbudgets", "po": "pods", "psp": "podsecuritypolicies", "pv": "persistentvolumes",
	"pvc":   "persistentvolumeclaims",
	"quota": "resourcequotas", "rc": "replicationcontrollers", "rs": "replicasets", "sa": "serviceaccounts",
	"sc":  "storageclasses",
	"sts": "statefulsets", "svc": "services", "vac": "volumeattributesclasses",
}
