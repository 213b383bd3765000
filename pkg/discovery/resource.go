package discovery

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is a resource of an API server in one version.
type Resource struct {
	schema.GroupVersion
	Name         string // plural, as in a URL: "deployments"
	Singular     string // "deployment"; "" where the server leaves it out
	Kind         string // "" when it is not known; answers are not held against it then
	Namespaced   bool
	ShortNames   []string // "deploy"
	Categories   []string // "all"
	Verbs        []string
	Subresources []Subresource
	// StorageVersionHash names the version in which the server stores it; "" where the form of discovery that was used
	// does not say.
	StorageVersionHash string
}

// Subresource is what a resource has beside its objects: "status", "scale".
type Subresource struct {
	Name  string
	Kind  schema.GroupVersionKind // group and version are empty where the server leaves them out
	Verbs []string
}

// Can reports whether the server serves the resource with all of the verbs.
func (r Resource) Can(verbs ...string) bool {
	return !slices.ContainsFunc(verbs, func(verb string) bool { return !slices.Contains(r.Verbs, verb) })
}

// GroupVersionKind, GroupKind, GroupVersionResource and GroupResource name it as other tables do.
func (r Resource) GroupVersionKind() schema.GroupVersionKind { return r.WithKind(r.Kind) }
func (r Resource) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: r.Group, Kind: r.Kind}
}
func (r Resource) GroupVersionResource() schema.GroupVersionResource { return r.WithResource(r.Name) }
func (r Resource) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Name}
}

// String is the resource as access rules name it: deployments.apps.
func (r Resource) String() string { return r.GroupResource().String() }

// Objects is the path of the resource's objects in a namespace, or with "" in all.
func (r Resource) Objects(namespace string) Path {
	p := r.root()
	if namespace != "" && r.Namespaced {
		p.namespace = namespace
		p.append("namespaces")
		p.append(namespace)
	}
	p.append(r.Name)
	return p
}

// Object is the path of an object; subresource names something that it has, such as "status".
func (r Resource) Object(namespace, name string, subresource ...string) Path {
	p := r.Objects(namespace)
	p.name = name
	p.append(name)
	for _, segment := range subresource {
		p.append(segment)
	}
	if len(subresource) > 0 && subresource[0] != "status" {
		p.groupVersion, p.kind = schema.GroupVersion{}, ""
	}
	return p
}

// root is the path of the resource's group and version.
func (r Resource) root() Path {
	p := GroupVersionPage(r.GroupVersion)
	p.groupVersion, p.kind = r.GroupVersion, r.Kind
	return p
}

// GroupVersionPage is the path under which a group's version lists its resources.
func GroupVersionPage(gv schema.GroupVersion) Path {
	if gv.Group == "" {
		return Page("api", gv.Version)
	}
	return Page("apis", gv.Group, gv.Version)
}
