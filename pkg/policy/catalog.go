package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/internal/crdfile"
	"github.com/kubefusion/fusionctl/internal/spelling"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Catalog knows API groups and their resources: those of every Kubernetes version, those of the presets, and those of
// the CustomResourceDefinitions that are added. It distinguishes a misspelled name from an unknown one.
type Catalog struct {
	groups   map[string]map[string]catalogEntry
	complete bool // CustomResourceDefinitions were added: what is not known does not exist
}

// openGroups have resources whose names depend on their server: every metric is one.
var openGroups = []string{"custom.metrics.k8s.io", "external.metrics.k8s.io"}

type catalogEntry struct {
	namespaced bool
	defined    bool   // by a CustomResourceDefinition
	source     string // "Kubernetes 1.6-1.36", "preset istio", "crds.yaml"
	builtin    bool
	kind       string // "" where only the name of the resource is known
	// aliases are the other words for the resource, in lower case: its singular, its kind and its short names.
	aliases      []string
	subresources []string      // of a built-in resource, of any version
	newest       kubever.Minor // of a built-in resource: the newest version that has it
}

var builtinCatalog = sync.OnceValue(func() *Catalog {
	c := &Catalog{groups: map[string]map[string]catalogEntry{}}
	for _, m := range kubever.Minors() {
		for _, a := range kubever.APIResources(m) {
			entry := c.groups[a.Group][a.Name]
			c.add(a.Group, a.Name, catalogEntry{namespaced: a.Namespaced, source: "Kubernetes", builtin: true,
				kind: a.Kind, newest: m,
				aliases:      []string{strings.ToLower(a.Kind)},
				subresources: append(entry.subresources, a.Subresources(m)...)})
		}
	}
	// What authorizers decide on although no server lists it: impersonation, signers, and the metrics API.
	for _, v := range []struct {
		group, resource, kind string
		namespaced            bool
	}{
		{"", "users", "", false}, {"", "groups", "", false}, {"authentication.k8s.io", "userextras", "", false},
		{"authentication.k8s.io", "uids", "", false},
		{"certificates.k8s.io", "signers", "", false}, {"metrics.k8s.io", "nodes", "NodeMetrics", false},
		{"metrics.k8s.io", "pods", "PodMetrics", true},
	} {
		c.add(v.group, v.resource, catalogEntry{namespaced: v.namespaced, source: "Kubernetes", newest: kubever.Newest,
			builtin: true, kind: v.kind})
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

// AddCRDs adds the CustomResourceDefinitions of a YAML or JSON file: one or several documents, or a List of them.
// Documents of other kinds are skipped, and definitions of what is built in. The name is used in errors. From then on a
// custom resource that is not in the catalog is taken for one that does not exist. Errors: a document that cannot be
// read, or a file without any CustomResourceDefinition.
func (c *Catalog) AddCRDs(name string, data []byte) error {
	added := 0
	if err := crdfile.Read(data, func(text []byte) error {
		var d definition
		if err := utiljson.Unmarshal(text, &d); err != nil {
			return err
		}
		names := d.Spec.Names
		if d.Spec.Group == "" || names.Plural == "" {
			return fmt.Errorf("CustomResourceDefinition %q without spec.group or spec.names.plural", d.Metadata.Name)
		}
		if added++; c.groups[d.Spec.Group][names.Plural].builtin { // API servers serve their own, and nothing by it
			return nil
		}
		aliases := append([]string{strings.ToLower(names.Kind), strings.ToLower(names.Singular)}, names.ShortNames...)
		c.add(d.Spec.Group, names.Plural, catalogEntry{namespaced: d.Spec.Scope == "Namespaced", defined: true,
			source: name, kind: names.Kind, aliases: aliases})
		return nil
	}); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if added == 0 {
		return fmt.Errorf("%s: no CustomResourceDefinition in it", name)
	}
	c.complete = true
	return nil
}

// definition is what is read of a CustomResourceDefinition of any version.
type definition struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Group string `json:"group"`
		Scope string `json:"scope"`
		Names struct {
			Plural     string   `json:"plural"`
			Singular   string   `json:"singular"`
			Kind       string   `json:"kind"`
			ShortNames []string `json:"shortNames"`
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

// ResolveResource reads a resource as people write it: RESOURCE[.GROUP][/SUBRESOURCE]. One without a group is in the
// core group if that has it; otherwise it is in the one group that does, of several the one of the newest Kubernetes
// version. A trailing dot ("deployments.") names the core group as it is. "*" and "*.GROUP" are all resources; "*"
// alone is those of every group. Errors: an empty name, or several groups that are equally likely.
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
	return "", "", "", fmt.Errorf("%q: in several groups; want one of %s.%s", text, resource,
		strings.Join(groups, ", "+resource+"."))
}

// claimed reads what a claim is about, in the way of kubectl: the resource by its name, singular, kind or short name,
// in every group that has that kind. With newest it is in one group only, that which ResolveResource chooses. Errors: a
// word, a group or a subresource that no API has, with what was probably meant; words for several resources.
func (c *Catalog) claimed(text string, newest bool) (groups []string, resource, subresource string, err error) {
	name, subresource, hasSub := strings.Cut(text, "/")
	word, group, hasGroup := strings.Cut(name, ".")
	if word == "" || hasSub && subresource == "" {
		return nil, "", "", fmt.Errorf("%q: want RESOURCE[.GROUP][/SUBRESOURCE]", text)
	}
	open := slices.Contains(openGroups, group)
	if hasGroup && c.groups[group] == nil && !open {
		return nil, "", "", c.unknownGroup(group)
	}
	if word == "*" {
		if !hasGroup {
			group = "*"
		}
		return []string{group}, "*", subresource, nil
	}
	candidates := []string{group}
	if !hasGroup {
		candidates = slices.Sorted(maps.Keys(c.groups))
	}
	if resource, err = c.plural(word, candidates); err != nil {
		return nil, "", "", err
	}
	if resource == "" && open {
		resource = word
	}
	if resource == "" {
		return nil, "", "", c.unknownResource(word, group, hasGroup)
	}
	if groups = []string{group}; !hasGroup {
		if groups, err = c.groupsOfKind(resource, newest); err != nil {
			return nil, "", "", err
		}
	}
	return groups, resource, subresource, c.checkSubresource(groups[0], resource, subresource)
}

// plural is the name of the resource that a word stands for in one of the groups; "" when there is none. A name of
// Kubernetes' own is before all other words; that of a custom resource, such as "secret", is not.
func (c *Catalog) plural(word string, groups []string) (string, error) {
	word = strings.ToLower(word)
	short, _ := kubever.ResourceOfShortName(word)
	found := map[string]bool{}
	for _, group := range groups {
		if c.groups[group][word].builtin {
			return word, nil
		}
		for resource, entry := range c.groups[group] {
			if resource == word || slices.Contains(entry.aliases, word) || resource == short && entry.builtin {
				found[resource] = true
			}
		}
	}
	names := slices.Sorted(maps.Keys(found))
	switch len(names) {
	case 0:
		return "", nil
	case 1:
		return names[0], nil
	}
	return "", fmt.Errorf("%q: stands for several resources; want one of %s", word, strings.Join(names, ", "))
}

// groupsOfKind lists the groups with the resource, but for those where the name is that of another kind: pods of
// metrics.k8s.io are none. With newest it is the one that ResolveResource chooses.
func (c *Catalog) groupsOfKind(resource string, newest bool) ([]string, error) {
	all := c.groupsOf(resource)
	first, _, _, err := c.ResolveResource(resource)
	if newest && err != nil {
		return nil, err
	}
	if newest {
		return []string{first}, nil
	}
	if err != nil { // none is before the others
		return all, nil
	}
	kind := c.groups[first][resource].kind
	return slices.DeleteFunc(all, func(group string) bool {
		other := c.groups[group][resource].kind
		return kind != "" && other != "" && other != kind
	}), nil
}

func (c *Catalog) checkSubresource(group, resource, subresource string) error {
	entry := c.groups[group][resource]
	if subresource == "" || !entry.builtin || slices.Contains(entry.subresources, subresource) {
		return nil
	}
	known := slices.Compact(slices.Sorted(slices.Values(entry.subresources)))
	if near, ok := spelling.Nearest(subresource, known); ok {
		return fmt.Errorf("%s has no subresource %q; did you mean %q?", qualified(resource, group), subresource, near)
	}
	return fmt.Errorf("%s has no subresource %q; it has %s", qualified(resource, group), subresource,
		cmp.Or(strings.Join(known, ", "), "none"))
}

func (c *Catalog) unknownGroup(group string) error {
	if near, ok := c.nearGroup(group); ok {
		return fmt.Errorf("no API has the group %q; did you mean %q? --crd FILE names the groups of custom resources",
			group, near)
	}
	return fmt.Errorf("no API has the group %q; --crd FILE names the groups of custom resources", group)
}

func (c *Catalog) unknownResource(word, group string, hasGroup bool) error {
	var known []string
	for _, of := range slices.Sorted(maps.Keys(c.groups)) {
		if !hasGroup || of == group {
			known = append(known, slices.Sorted(maps.Keys(c.groups[of]))...)
		}
	}
	what := fmt.Sprintf("no API has the resource %q", word)
	if elsewhere := c.groupsOf(word); hasGroup && len(elsewhere) > 0 {
		return fmt.Errorf("%s in the group %q; did you mean %s?", what, group, qualified(word, elsewhere[0]))
	}
	if near, ok := spelling.Nearest(word, known); ok {
		return fmt.Errorf("%s; did you mean %q?", what, near)
	}
	return fmt.Errorf("%s; --crd FILE names custom resources", what)
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

// clusterWide reports whether a resource is known not to be in namespaces, but for namespaces: each of them is in
// itself, for authorizers.
func (c *Catalog) clusterWide(apiGroup, resource string) bool {
	namespaced, known := c.Namespaced(apiGroup, resource)
	return known && !namespaced && resource != "namespaces"
}

// allClusterWide names, sorted, the resources of a group that are clusterWide; for "*" those of every group, and as
// nodes.* those that every group which has them has so.
func (c *Catalog) allClusterWide(apiGroup string) []string {
	var all []string
	everywhere := map[string]bool{}
	for group, resources := range c.groups {
		for resource := range resources {
			wide := c.clusterWide(group, resource)
			if before, seen := everywhere[resource]; !seen || before {
				everywhere[resource] = wide
			}
			if wide && star(apiGroup).covers(equals(group)) {
				all = append(all, qualified(resource, group))
			}
		}
	}
	for resource, wide := range everywhere {
		if wide && apiGroup == "*" {
			all = append(all, qualified(resource, "*"))
		}
	}
	slices.Sort(all)
	return all
}

// Complete fills in the object of a request, by the resource as people write it: RESOURCE[.GROUP][/SUBRESOURCE]. A
// namespaced resource without a namespace is in "default", with allNamespaces in every one; a cluster-scoped one is in
// none, and a request for one namespace carries its name. It returns notes about what was read otherwise than written.
// Errors: those of ResolveResource; another subresource than the one that the request has.
func (c *Catalog) Complete(q Request, written string, allNamespaces bool) (_ Request, notes []string, err error) {
	apiGroup, resource, subresource, err := c.ResolveResource(written)
	if err != nil {
		return q, nil, err
	}
	q.APIGroup, q.Resource = apiGroup, resource
	if subresource != "" {
		if q.Subresource != "" && q.Subresource != subresource {
			return q, nil, fmt.Errorf("two subresources, %q and %q", subresource, q.Subresource)
		}
		q.Subresource = subresource
	}
	if !c.Has(apiGroup, resource) && resource != "*" {
		notes = append(notes, "no Kubernetes version and no preset has "+written)
	}
	if named := strings.ContainsAny(written, "."); !named && apiGroup != "" && resource != "*" {
		notes = append(notes, fmt.Sprintf("%s is read as %s.%s", written, resource, apiGroup))
	}
	namespaced, known := c.Namespaced(apiGroup, resource)
	switch {
	case allNamespaces:
		q.Namespace = ""
	case known && !namespaced && resource != "namespaces":
		if q.Namespace != "" {
			notes = append(notes, resource+" are cluster-scoped; -n has no effect")
		}
		q.Namespace = ""
	case known && !namespaced:
		if q.Namespace == "" {
			q.Namespace = q.ObjectName
		}
	case q.Namespace == "":
		q.Namespace = "default"
	}
	return q, notes, nil
}
