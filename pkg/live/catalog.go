package live

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// kind is a resource in one version.
type kind struct {
	group, version, resource, name string
	namespaced                     bool
	lists                          bool
}

func (k *kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.group, Resource: k.resource}
}

// path is the URL of the collection, or of an object in it.
func (k *kind) path(namespace, object string) string {
	elements := []string{"/apis", k.group, k.version}
	if k.group == "" {
		elements = []string{"/api", k.version}
	}
	if k.namespaced && namespace != "" {
		elements = append(elements, "namespaces", namespace)
	}
	return path.Join(append(elements, k.resource, object)...)
}

// catalog is what a side serves.
type catalog struct {
	kinds  []kind           // by group, preferred versions first
	failed map[string]error // groups about which nothing can be said
}

// readCatalog asks a server what it serves, in the words of 1.6 that every version understands.
func readCatalog(ctx context.Context, side pair.Side, s Server) (*catalog, error) {
	c := &catalog{failed: map[string]error{}}
	var groups metav1.APIGroupList
	answer, err := s.Read(ctx, "/apis")
	if err == nil {
		err = utiljson.Unmarshal(answer.Body, &groups)
	}
	if err != nil {
		return nil, fmt.Errorf("asking the %s side what it serves: %w", side, err)
	}
	core := metav1.APIGroup{Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "v1", Version: "v1"}}}
	for _, group := range append([]metav1.APIGroup{core}, groups.Groups...) {
		slices.SortStableFunc(group.Versions, func(a, b metav1.GroupVersionForDiscovery) int {
			preferred := func(v metav1.GroupVersionForDiscovery) int {
				if v.Version == group.PreferredVersion.Version {
					return 0
				}
				return 1
			}
			return preferred(a) - preferred(b)
		})
		for _, version := range group.Versions {
			if err := c.readVersion(ctx, s, schema.GroupVersion{Group: group.Name, Version: version.Version}); err != nil {
				c.failed[group.Name] = fmt.Errorf("asking the %s side what it serves of %s: %w", side, version.GroupVersion, err)
			}
		}
	}
	if err := c.failed[""]; err != nil {
		return nil, err
	}
	return c, nil
}

func (c *catalog) readVersion(ctx context.Context, s Server, gv schema.GroupVersion) error {
	url := "/apis/" + gv.String()
	if gv.Group == "" {
		url = "/api/" + gv.Version
	}
	answer, err := s.Read(ctx, url)
	if err != nil {
		return err
	}
	var list metav1.APIResourceList
	if err := utiljson.Unmarshal(answer.Body, &list); err != nil {
		return err
	}
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") {
			c.kinds = append(c.kinds, kind{group: gv.Group, version: gv.Version, resource: r.Name, name: r.Kind, namespaced: r.Namespaced, lists: slices.Contains(r.Verbs, "list")})
		}
	}
	return nil
}

// listable are the resources to list: one version of each, one group of those that keep the same objects, and no events, which come in
// masses, own nothing and go by themselves.
func (c *catalog) listable() []kind {
	var list []kind
	at := map[string]int{}
	for _, k := range c.kinds {
		if !k.lists || k.resource == "events" && (k.group == "" || k.group == "events.k8s.io") {
			continue
		}
		key := k.groupResource().String()
		if fact, known := kubever.ResourceFor(k.groupResource()); known {
			key = fact.Key
		}
		switch i, taken := at[key]; {
		case !taken:
			at[key] = len(list)
			list = append(list, k)
		case list[i].group == "extensions" && k.group != "extensions": // which is on its way out
			list[i] = k
		}
	}
	slices.SortStableFunc(list, func(a, b kind) int { return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.resource, b.resource)) })
	return list
}

// find lists the versions in which a side serves a kind.
func (c *catalog) find(gk schema.GroupKind) []kind {
	var found []kind
	for _, k := range c.kinds {
		if k.group == gk.Group && k.name == gk.Kind {
			found = append(found, k)
		}
	}
	return found
}
