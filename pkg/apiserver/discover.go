package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// acceptDiscovery asks for all groups in one answer, and for what this server serves itself, not its peers. The
// parameters have the order that servers want. 1.6 answers 406, and gets requests in plain JSON like all that do not
// know the form.
var acceptDiscovery = []string{
	"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer," +
		"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
		"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
	runtime.ContentTypeJSON,
}

const (
	groupVersionsAtOnce = 4
	limitGroupVersions  = 10_000
	limitResources      = 100_000
	// limitOfGroupVersion is for what an extension API server lists: one that lists more fails alone.
	limitOfGroupVersion = 10_000
)

// Discover asks the server which version it is and what it serves. Errors: a server that does not answer, or that lists
// no resources of the core group or no other group at all, as to a user who may not ask: everything would look absent.
// What single groups fail to list is in the result.
func (s *Server) Discover(ctx context.Context) (*discovery.Result, error) {
	result := &discovery.Result{Asked: time.Now(), Announced: map[schema.GroupVersion]bool{},
		Preferred: map[string]string{}, Failed: map[schema.GroupVersion]error{}}
	var err error
	if result.Identity, err = s.Identify(ctx, false); err != nil {
		return nil, err
	}
	if result.Unready = s.Ready(ctx, result.Identity); ctx.Err() != nil {
		return nil, ctx.Err()
	}
	d := &discoverer{server: s, result: result}
	for _, root := range []string{"api", "apis"} {
		if err := d.root(ctx, root); err != nil {
			return nil, fmt.Errorf("asking %s what it serves: /%s: %w", s.name, root, err)
		}
	}
	if err := d.rest(ctx); err != nil {
		return nil, err
	}
	d.sort()
	core := schema.GroupVersion{Version: "v1"}
	switch err := result.Failed[core]; {
	case err != nil:
		return nil, fmt.Errorf("asking %s what it serves: /api/v1: %w", s.name, err)
	case len(result.Named(schema.GroupResource{Resource: "namespaces"})) == 0 || len(d.order) < 2:
		return nil, wrong("asking %s what it serves: it lists %d groups and %d resources; has this user permission "+
			"to get /api and /apis?",
			s.name, len(d.order), len(result.Resources))
	}
	// A server that was ready before and is ready now has not started in between, or was asked by way of several.
	if result.Unready == nil {
		result.Unready = s.Ready(ctx, result.Identity)
	}
	return result, ctx.Err()
}

// Ready asks the server whether it is ready to answer for all that it has: /readyz, or /healthz where that is not
// served. Errors: what the server says of its checks.
func (s *Server) Ready(ctx context.Context, identity discovery.Identity) error {
	at := discovery.Page("healthz")
	if identity.Behaves(kubever.BehaviourReadyzServed) {
		at = discovery.Page("readyz")
	}
	if _, _, err := s.read(ctx, at, []string{acceptPage}, once); err != nil {
		return fmt.Errorf("%s is not ready: %s: %w", s.name, at, err)
	}
	return nil
}

// discoverer is one question to a server.
type discoverer struct {
	server *Server
	result *discovery.Result
	order  []string              // of the groups as they are announced
	asked  []schema.GroupVersion // announced, and still to be listed
}

// discoveryRoot is the answer of /api and /apis in any of their forms.
type discoveryRoot struct {
	Kind     string            `json:"kind"`
	Versions []string          `json:"versions"` // APIVersions
	Groups   []metav1.APIGroup `json:"groups"`   // APIGroupList
	Items    []groupDiscovery  `json:"items"`    // APIGroupDiscoveryList
}

// groupDiscovery is an APIGroupDiscovery of v2 and v2beta1.
type groupDiscovery struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Versions []struct {
		Version   string              `json:"version"`
		Freshness string              `json:"freshness"`
		Resources []resourceDiscovery `json:"resources"`
	} `json:"versions"`
}

type resourceDiscovery struct {
	Resource     string                   `json:"resource"`
	Singular     string                   `json:"singularResource"`
	ResponseKind *metav1.GroupVersionKind `json:"responseKind"`
	Scope        string                   `json:"scope"`
	Verbs        []string                 `json:"verbs"`
	ShortNames   []string                 `json:"shortNames"`
	Categories   []string                 `json:"categories"`
	Subresources []struct {
		Subresource  string                   `json:"subresource"`
		ResponseKind *metav1.GroupVersionKind `json:"responseKind"`
		Verbs        []string                 `json:"verbs"`
	} `json:"subresources"`
}

// root asks for the groups below /api or /apis, and takes what the form of the answer has.
func (d *discoverer) root(ctx context.Context, name string) error {
	root, err := d.page(ctx, name, acceptDiscovery)
	if _, large := errors.AsType[largeError](err); large {
		// What one extension API server lists may make the answer of all too large: asked alone, it fails alone.
		root, err = d.page(ctx, name, jsonForm)
	}
	if err != nil {
		return err
	}
	switch {
	case root.Kind == "APIVersions" && name == "api":
		root.Groups = []metav1.APIGroup{{}}
		for _, version := range root.Versions {
			root.Groups[0].Versions = append(root.Groups[0].Versions, metav1.GroupVersionForDiscovery{Version: version})
		}
		d.groups(root.Groups)
	case root.Kind == "APIGroupList" && name == "apis":
		d.groups(root.Groups)
	case root.Kind == "APIGroupDiscoveryList":
		d.aggregated(root.Items)
	default:
		return wrong("the answer is a %q", root.Kind)
	}
	if len(d.asked)+len(d.result.Resources) > limitResources {
		return wrong("it lists more than %d resources", limitResources)
	}
	return nil
}

func (d *discoverer) page(ctx context.Context, name string, accept []string) (root discoveryRoot, err error) {
	text, _, err := d.server.read(ctx, discovery.Page(name), accept, d.server.retry)
	if err != nil {
		return root, err
	}
	err = decode(text, &root)
	return root, err
}

// groups takes a list that names groups and versions alone.
func (d *discoverer) groups(groups []metav1.APIGroup) {
	for _, group := range groups {
		d.announce(group.Name, group.PreferredVersion.Version, len(group.Versions))
		for _, version := range group.Versions {
			if d.result.Preferred[group.Name] == "" {
				d.result.Preferred[group.Name] = version.Version
			}
			gv := schema.GroupVersion{Group: group.Name, Version: version.Version}
			d.asked, d.result.Announced[gv] = append(d.asked, gv), true
		}
	}
}

// aggregated takes a list that has the resources, too; the preferred version comes first. A group of too many fails
// alone.
func (d *discoverer) aggregated(groups []groupDiscovery) {
	for _, group := range groups {
		listed := 0
		for i, version := range group.Versions {
			if i == 0 {
				d.announce(group.Metadata.Name, version.Version, len(group.Versions))
			}
			gv := schema.GroupVersion{Group: group.Metadata.Name, Version: version.Version}
			d.result.Announced[gv] = true
			if version.Freshness == "Stale" {
				d.result.Failed[gv] = errors.New(
					"the server calls what it lists of it stale: its API service does not answer")
				continue
			}
			if len(version.Resources) == 0 {
				d.asked = append(d.asked, gv) // whether it has none, or is not listed yet, its own page says
				continue
			}
			if listed += len(version.Resources); listed > limitOfGroupVersion {
				d.result.Failed[gv] = wrong("%s lists more than %d resources", gv, limitOfGroupVersion)
				continue
			}
			for _, r := range version.Resources {
				d.result.Resources = append(d.result.Resources, r.resource(gv))
			}
		}
	}
}

func (r resourceDiscovery) resource(gv schema.GroupVersion) discovery.Resource {
	resource := discovery.Resource{GroupVersion: gv, Name: r.Resource, Singular: r.Singular,
		Namespaced: r.Scope == "Namespaced", Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories}
	if r.ResponseKind != nil {
		resource.Kind = r.ResponseKind.Kind
	}
	for _, sub := range r.Subresources {
		subresource := discovery.Subresource{Name: sub.Subresource, Verbs: sub.Verbs}
		if k := sub.ResponseKind; k != nil {
			subresource.Kind = schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind}
		}
		resource.Subresources = append(resource.Subresources, subresource)
	}
	return resource
}

func (d *discoverer) announce(group, preferred string, versions int) {
	if versions == 0 {
		return
	}
	if _, known := d.result.Preferred[group]; !known {
		d.order = append(d.order, group)
	}
	d.result.Preferred[group] = preferred
}

// rest lists the resources of the versions that were announced without any.
func (d *discoverer) rest(ctx context.Context) error {
	if len(d.asked) > limitGroupVersions {
		return wrong("asking %s what it serves: it announces %d versions of groups, want %d at most", d.server.name,
			len(d.asked),
			limitGroupVersions)
	}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(groupVersionsAtOnce)
	for _, gv := range d.asked {
		group.Go(func() error {
			resources, err := d.server.GroupVersion(ctx, gv)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				d.result.Failed[gv] = err
			}
			if d.result.Resources = append(d.result.Resources, resources...); len(d.result.Resources) > limitResources {
				return wrong("asking %s what it serves: it lists more than %d resources", d.server.name, limitResources)
			}
			return nil
		})
	}
	return group.Wait()
}

// sort puts the preferred version of each group first, in the order in which groups are announced.
func (d *discoverer) sort() {
	rank := map[string]int{}
	for i, group := range d.order {
		rank[group] = i
	}
	unpreferred := func(r discovery.Resource) int {
		if d.result.Preferred[r.Group] == r.Version {
			return 0
		}
		return 1
	}
	announced := map[schema.GroupVersion]int{}
	for i, gv := range d.asked {
		announced[gv] = i
	}
	slices.SortStableFunc(d.result.Resources, func(a, b discovery.Resource) int {
		return cmp.Or(cmp.Compare(rank[a.Group], rank[b.Group]), cmp.Compare(unpreferred(a), unpreferred(b)),
			cmp.Compare(announced[a.GroupVersion], announced[b.GroupVersion]))
	})
}

// GroupVersion lists the resources of a group's version.
// Errors: discovery.ErrNotServed; of a version that the server announces that says nothing about what it has.
func (s *Server) GroupVersion(ctx context.Context, gv schema.GroupVersion) ([]discovery.Resource, error) {
	text, _, err := s.read(ctx, discovery.GroupVersionPage(gv), jsonForm, s.retryUnanswered)
	if err != nil {
		return nil, err
	}
	var list metav1.APIResourceList
	if err := decode(text, &list); err != nil {
		return nil, err
	}
	if list.Kind != "APIResourceList" || list.GroupVersion != gv.String() {
		return nil, wrong("asked for the resources of %s and got a %q of %q", gv, list.Kind, list.GroupVersion)
	}
	if len(list.APIResources) > limitOfGroupVersion {
		return nil, wrong("asked for the resources of %s and got %d of them, want %d at most", gv,
			len(list.APIResources), limitOfGroupVersion)
	}
	return resourcesOf(gv, list.APIResources), nil
}

// Versions lists the API versions of a group by the server's own list of groups; none: it does not have the group. That
// a page is not found says less: an address that is no API server's has none of them, nor has a proxy before one.
func (s *Server) Versions(ctx context.Context, group string) ([]string, error) {
	name, kind := "apis", "APIGroupList"
	if group == "" {
		name, kind = "api", "APIVersions"
	}
	text, _, err := s.read(ctx, discovery.Page(name), jsonForm, s.retry)
	var root discoveryRoot
	if err == nil {
		err = decode(text, &root)
	}
	if err == nil && root.Kind != kind {
		err = wrong("the answer is a %q: it is no API server", root.Kind)
	}
	if err != nil {
		return nil, fmt.Errorf("asking %s for its API groups: %w", s.name, err)
	}
	versions := root.Versions
	for _, g := range root.Groups {
		for _, v := range g.Versions {
			if g.Name == group {
				versions = append(versions, v.Version)
			}
		}
	}
	return versions, nil
}

// resourcesOf puts subresources below their resources.
func resourcesOf(gv schema.GroupVersion, listed []metav1.APIResource) []discovery.Resource {
	var resources []discovery.Resource
	subresources := map[string][]discovery.Subresource{}
	for _, r := range listed {
		if parent, name, ok := strings.Cut(r.Name, "/"); ok {
			kind := schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
			subresources[parent] = append(subresources[parent], discovery.Subresource{Name: name, Kind: kind,
				Verbs: r.Verbs})
			continue
		}
		resources = append(resources, discovery.Resource{
			GroupVersion: gv, Name: r.Name, Singular: r.SingularName, Kind: r.Kind, Namespaced: r.Namespaced,
			Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
			StorageVersionHash: r.StorageVersionHash,
		})
	}
	for i := range resources {
		resources[i].Subresources = subresources[resources[i].Name]
	}
	return resources
}
