package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kubefusion/fusionctl/internal/spelling"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Catalog knows API groups and their resources: those of every Kubernetes version, those of the presets, and those of the
// CustomResourceDefinitions that are added. It is how a typing error is told from a name nobody has heard of.
type Catalog struct {
	groups   map[string]map[string]catalogEntry
	complete bool // CustomResourceDefinitions were added: what is not known does not exist
}

// openGroups have resources that are made up by whoever serves them: every metric is one.
var openGroups = []string{"custom.metrics.k8s.io", "external.metrics.k8s.io"}

type catalogEntry struct {
	namespaced bool
	source     string // "Kubernetes 1.6-1.36", "preset istio", "crds.yaml"
	builtin    bool
	newest     kubever.Minor // of a built-in resource: the newest version that has it
}

var builtinCatalog = sync.OnceValue(func() *Catalog {
	c := &Catalog{groups: map[string]map[string]catalogEntry{}}
	for _, m := range kubever.Minors() {
		for _, a := range kubever.APIResources(m) {
			c.add(a.Group, a.Name, catalogEntry{namespaced: a.Namespaced, source: "Kubernetes", builtin: true, newest: m})
		}
	}
	// What authorizers are asked about although no server lists it: impersonation, signers, and the metrics API.
	for _, v := range []struct {
		group, resource string
		namespaced      bool
	}{
		{"", "users", false}, {"", "groups", false}, {"authentication.k8s.io", "userextras", false}, {"authentication.k8s.io", "uids", false},
		{"certificates.k8s.io", "signers", false}, {"metrics.k8s.io", "nodes", false}, {"metrics.k8s.io", "pods", true},
	} {
		c.add(v.group, v.resource, catalogEntry{namespaced: v.namespaced, source: "Kubernetes", newest: kubever.Newest, builtin: true})
	}
	for _, p := range Presets() {
		for _, r := range p.Resources {
			if _, known := c.groups[r.APIGroup][r.Resource]; !known {
				c.add(r.APIGroup, r.Resource, catalogEntry{namespaced: r.Namespaced, source: "preset " + p.Name})
			}
		}
	}
	return c
})

// NewCatalog returns what is known without looking at a cluster.
func NewCatalog() *Catalog {
	c := &Catalog{groups: map[string]map[string]catalogEntry{}}
	for group, resources := range builtinCatalog().groups {
		c.groups[group] = maps.Clone(resources)
	}
	return c
}

func (c *Catalog) add(group, resource string, entry catalogEntry) {
	if c.groups[group] == nil {
		c.groups[group] = map[string]catalogEntry{}
	}
	c.groups[group][resource] = entry
}

// AddCRDs adds the CustomResourceDefinitions of a YAML or JSON file: one or several documents, or a List of them. Documents of
// other kinds are skipped. The name is used in errors. From then on a custom resource that is not in the catalog is taken for
// one that does not exist.
// Errors: a document that cannot be read, or a file without any CustomResourceDefinition.
func (c *Catalog) AddCRDs(name string, data []byte) error {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	added := 0
	for number := 1; ; number++ {
		var document crdDocument
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: document %d: %w", name, number, err)
		}
		for _, d := range append(document.Items, document) {
			if d.Kind != "CustomResourceDefinition" {
				continue
			}
			if d.Spec.Group == "" || d.Spec.Names.Plural == "" {
				return fmt.Errorf("%s: document %d: CustomResourceDefinition %q without spec.group or spec.names.plural", name, number, d.Metadata.Name)
			}
			c.add(d.Spec.Group, d.Spec.Names.Plural, catalogEntry{namespaced: d.Spec.Scope == "Namespaced", source: name})
			added++
		}
	}
	if added == 0 {
		return fmt.Errorf("%s: no CustomResourceDefinition in it", name)
	}
	c.complete = true
	return nil
}

// crdDocument is what is read of a CustomResourceDefinition of any version, or of a list of them.
type crdDocument struct {
	Kind     string        `json:"kind"`
	Items    []crdDocument `json:"items"`
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Group string `json:"group"`
		Scope string `json:"scope"`
		Names struct {
			Plural string `json:"plural"`
		} `json:"names"`
	} `json:"spec"`
}

// builtin reports whether the group belongs to Kubernetes itself, whose resources are all known.
func (c *Catalog) builtin(group string) bool {
	for _, entry := range c.groups[group] {
		if entry.builtin {
			return true
		}
	}
	return false
}

// groupsOf lists the groups that have the resource, sorted.
func (c *Catalog) groupsOf(resource string) []string {
	var groups []string
	for group, resources := range c.groups {
		if _, ok := resources[resource]; ok {
			groups = append(groups, group)
		}
	}
	slices.Sort(groups)
	return groups
}

// nearGroup finds the known group that was probably meant.
func (c *Catalog) nearGroup(group string) (string, bool) {
	candidates := slices.Sorted(maps.Keys(c.groups))
	if !strings.Contains(group, ".") { // short names are near to everything: compare them with short names only
		candidates = slices.DeleteFunc(candidates, func(g string) bool { return g == "" || strings.Contains(g, ".") })
	} else {
		candidates = slices.DeleteFunc(candidates, func(g string) bool { return !strings.Contains(g, ".") })
	}
	return spelling.Nearest(group, candidates)
}

// nearResource finds the resource of the group that was probably meant.
func (c *Catalog) nearResource(group, resource string) (string, bool) {
	return spelling.Nearest(resource, slices.Sorted(maps.Keys(c.groups[group])))
}

// ResolveResource reads a resource as people write it: RESOURCE[.GROUP][/SUBRESOURCE]. One without a group is in the core group
// if that has it; otherwise it is in the one group that does, of several the one of the newest Kubernetes version. A trailing dot
// ("deployments.") names the core group as it is. "*" and "*.GROUP" are all resources; "*" alone is those of every group.
// Errors: an empty name, or several groups that are equally likely.
func (c *Catalog) ResolveResource(text string) (apiGroup, resource, subresource string, err error) {
	name, subresource, hasSub := strings.Cut(text, "/")
	resource, apiGroup, hasGroup := strings.Cut(name, ".")
	if resource == "" || hasSub && subresource == "" {
		return "", "", "", fmt.Errorf("%q: want RESOURCE[.GROUP][/SUBRESOURCE]", text)
	}
	switch {
	case resource == "*" && !hasGroup:
		return "*", "*", subresource, nil
	case hasGroup:
		return apiGroup, resource, subresource, nil
	}
	if _, core := c.groups[""][resource]; core {
		return "", resource, subresource, nil
	}
	groups := c.groupsOf(resource)
	if len(groups) > 1 {
		newest := kubever.Minor(0)
		for _, g := range groups {
			newest = max(newest, c.groups[g][resource].newest)
		}
		if newest > 0 {
			groups = slices.DeleteFunc(groups, func(g string) bool { return c.groups[g][resource].newest < newest })
		}
	}
	switch len(groups) {
	case 0:
		return "", resource, subresource, nil
	case 1:
		return groups[0], resource, subresource, nil
	}
	return "", "", "", fmt.Errorf("%q: in several groups; want one of %s.%s", text, resource, strings.Join(groups, ", "+resource+"."))
}

// Has reports whether the catalog knows the resource in the group.
func (c *Catalog) Has(apiGroup, resource string) bool {
	_, ok := c.groups[apiGroup][resource]
	return ok
}

// Namespaced reports whether the resource is in namespaces, and whether the catalog knows it.
func (c *Catalog) Namespaced(apiGroup, resource string) (namespaced, known bool) {
	entry, known := c.groups[apiGroup][resource]
	return entry.namespaced, known
}
