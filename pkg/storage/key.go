package storage

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// Form is the kind of a key.
type Form string

// The forms of keys in a store of Kubernetes 1.6 to 1.36.
const (
	// an object of a resource that the server compiles in: /registry/pods/default/web
	FormObject     Form = "object"
	FormGrouped    Form = "grouped"    // an object whose key names its group: CRDs, APIServices, custom resources
	FormThirdParty Form = "thirdparty" // the data of a third-party resource of 1.6 and 1.7
	FormCompaction Form = "compaction" // compact_rev_key, by which API servers elect who compacts
	FormForeign    Form = "foreign"    // not below the prefix: not written by an API server with this prefix
	FormUnshaped   Form = "unshaped"   // below the prefix, but not the key of an object
)

// CompactRevisionKey is the whole key of FormCompaction.
const CompactRevisionKey = "compact_rev_key"

// MarksResource is the part of keys below which a transition marks what it handed over, in the store where that is.
const MarksResource = "fusionctl-handed-over"

// The parts of keys that name the resources which the product treats by name.
const (
	CRDResource        = "apiextensions.k8s.io/customresourcedefinitions"
	APIServiceResource = "apiregistration.k8s.io/apiservices"
	RangesResource     = "ranges" // of the allocators: "ranges/serviceips", "ranges/servicenodeports"
)

const thirdPartyData = "ThirdPartyResourceData"

// Key is a key taken apart. Its strings are parts of the string that was classified. Shape:
// "/registry/services/specs/default/web" is Form object, Resource "services/specs", Namespace "default", Name "web".
type Key struct {
	Form      Form
	Resource  string // the part that names the resource: "pods", "services/specs", "kubeflow.org/notebooks"
	Group     string // of FormGrouped and FormThirdParty
	Namespace string // "" for cluster-scoped objects
	Name      string
}

// String prints the key without the prefix, for people.
func (k Key) String() string {
	parts := make([]string, 0, 3)
	for _, part := range []string{k.Resource, k.Namespace, k.Name} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "/")
}

// Printable is the key verbatim, or quoted as in Go when it is not printable text: a store may hold any
// bytes, and a report goes to terminals and into JSON.
func Printable(key string) string {
	if !utf8.ValidString(key) || strings.ContainsFunc(key, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(key)
	}
	return key
}

// Classifier takes keys apart. Safe for concurrent use.
type Classifier struct {
	prefix string // with a slash at the end
	scopes map[string]Scope
}

// Scope is whether the keys of a resource hold a namespace.
type Scope int8

// The scopes of keys.
const (
	scopeUnknown Scope = iota // the number of segments decides
	scopeCluster
	scopeNamespaced
)

// irregular are the resources whose keys the rule "first segment is the resource" misreads, in any version.
var irregular = map[string]Scope{
	"services/specs":     scopeNamespaced,
	"services/endpoints": scopeNamespaced,
	"apiextensions.k8s.io/customresourcedefinitions": scopeCluster,
	"apiregistration.k8s.io/apiservices":             scopeCluster,
}

// plainNames are the key segments that differ from the name of the resource, in any version.
var plainNames = map[string]string{
	"controllers":        "replicationcontrollers",
	"ingress":            "ingresses",
	"minions":            "nodes",
	"podsecuritypolicy":  "podsecuritypolicies",
	"services/endpoints": "endpoints",
	"services/specs":     "services",
}

// PlainName is the resource's name in URLs, given its part of the key: "nodes" for "minions".
// Source: SpecialDefaultResourcePrefixes of kubernetes 1.6 to 1.36.
func PlainName(resource string) string {
	if name, ok := plainNames[resource]; ok {
		return name
	}
	if _, name, ok := strings.Cut(resource, "/"); ok {
		return name
	}
	return resource
}

// NewClassifier returns a classifier for keys below the prefix of the map. The resources of the map decide about the
// scope of their keys; keys of other resources are read by their shape.
func NewClassifier(m *pair.Map) *Classifier {
	c := &Classifier{prefix: NormalPrefix(m.Prefix) + "/",
		scopes: make(map[string]Scope, len(m.Resources)+len(irregular))}
	for key, s := range irregular {
		c.scopes[key] = s
	}
	for i := range m.Resources {
		r := &m.Resources[i]
		if strings.HasSuffix(r.Key, "/*") {
			continue
		}
		c.scopes[r.Key] = scopeCluster
		if r.Namespaced {
			c.scopes[r.Key] = scopeNamespaced
		}
	}
	return c
}

// NormalPrefix is the prefix as an API server uses it: one slash in front, none at the end; "" for the root.
func NormalPrefix(prefix string) string {
	prefix = strings.Trim(prefix, "/")
	if prefix == "" {
		return ""
	}
	return "/" + prefix
}

// Prefix is what the keys of objects begin with, with a slash at its end: "/registry/".
func (c *Classifier) Prefix() string { return c.prefix }

// Scope is what is known about the keys of a resource, given its part of the key.
func (c *Classifier) Scope(resource string) Scope { return c.scopes[resource] }

// Below reports whether the key lies below the prefix.
func (c *Classifier) Below(key []byte) bool {
	return len(key) >= len(c.prefix) && string(key[:len(c.prefix)]) == c.prefix
}

// Classify takes a key apart. Every string is a key of some form: there is no error.
// Source: key functions of the generic registry, and the special prefixes, of kubernetes 1.6 to 1.36.
func (c *Classifier) Classify(key string) Key {
	rest, ok := strings.CutPrefix(key, c.prefix)
	if !ok {
		if key == CompactRevisionKey {
			return Key{Form: FormCompaction}
		}
		return Key{Form: FormForeign}
	}
	first, tail, ok := strings.Cut(rest, "/")
	if !ok || first == "" || !utf8.ValidString(rest) { // names are text: no API server reads such a key
		return Key{Form: FormUnshaped}
	}
	if first == thirdPartyData {
		return thirdPartyKey(rest, tail)
	}
	grouped := strings.IndexByte(first, '.') >= 0
	if grouped || first == "services" {
		second, objectPath, ok := strings.Cut(tail, "/")
		resource := rest[:len(first)+1+len(second)]
		if known, listed := c.scopes[resource]; listed || grouped {
			if !ok || second == "" {
				return Key{Form: FormUnshaped, Resource: resource}
			}
			k := objectKey(FormObject, resource, objectPath, known)
			if grouped && k.Form == FormObject {
				k.Form, k.Group = FormGrouped, first
			}
			return k
		}
	}
	return objectKey(FormObject, first, tail, c.scopes[first])
}

// ObjectKeyOf is Classify for a key of FormObject whose resource is known: path is what follows the resource and a
// slash, a name, or a namespace and a name.
func ObjectKeyOf(resource, path string, s Scope) Key { return objectKey(FormObject, resource, path, s) }

// objectKey reads the path behind the resource.
func objectKey(form Form, resource, path string, s Scope) Key {
	namespace, name, namespaced := strings.Cut(path, "/")
	if !namespaced {
		namespace, name = "", path
	}
	wrongScope := (s == scopeCluster && namespaced) || (s == scopeNamespaced && !namespaced)
	if wrongScope || name == "" || (namespaced && namespace == "") || strings.IndexByte(name, '/') >= 0 {
		return Key{Form: FormUnshaped, Resource: resource}
	}
	return Key{Form: form, Resource: resource, Namespace: namespace, Name: name}
}

// thirdPartyKey reads ThirdPartyResourceData/<group>/<plural>/<namespace>/<name>.
// Source: kubernetes 1.6.13 pkg/registry/extensions/thirdpartyresourcedata/storage.
func thirdPartyKey(rest, tail string) Key {
	group, tail, ok := strings.Cut(tail, "/")
	plural, path, ok2 := strings.Cut(tail, "/")
	if !ok || !ok2 || group == "" || plural == "" {
		return Key{Form: FormUnshaped, Resource: thirdPartyData}
	}
	resource := rest[:len(thirdPartyData)+1+len(group)+1+len(plural)]
	k := objectKey(FormThirdParty, resource, path, scopeNamespaced)
	if k.Form == FormThirdParty {
		k.Group = group
	}
	return k
}

// Join is the inverse of Classify for the forms that name objects: the whole key of a classified key.
func (c *Classifier) Join(k Key) (string, error) {
	switch k.Form {
	case FormCompaction:
		return CompactRevisionKey, nil
	case FormObject, FormGrouped, FormThirdParty:
		return c.ObjectKey(k.Resource, k.Namespace, k.Name), nil
	}
	return "", fmt.Errorf("joining a key of form %q: it names no object", k.Form)
}

// ObjectKey is the key of the named object; the namespace is "" for cluster-scoped ones.
func (c *Classifier) ObjectKey(resource, namespace, name string) string {
	if namespace == "" {
		return c.prefix + resource + "/" + name
	}
	return c.prefix + resource + "/" + namespace + "/" + name
}
