package routes

import (
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// Documents are what clients read of a table: which groups, versions and resources there are, in the forms that API
// servers have. What no row serves is in none of them.
type Documents struct {
	versions []groupVersion
}

type groupVersion struct {
	schema.GroupVersion
	rows  []*Row
	stale bool // a side that the version needs was not asked lately, or failed to
}

// Documents are those of the table. stale are sides that do not answer at the moment: what they serve is shown as
// it was, and marked.
func (t *Table) Documents(stale map[pair.Side]bool) *Documents {
	d := &Documents{}
	for i := range t.Rows {
		row := &t.Rows[i]
		if row.Way == None {
			continue
		}
		at := slices.IndexFunc(d.versions, func(v groupVersion) bool { return v.GroupVersion == row.GroupVersion })
		if at < 0 {
			at = len(d.versions)
			d.versions = append(d.versions, groupVersion{GroupVersion: row.GroupVersion})
		}
		v := &d.versions[at]
		if row.Way == Unknown {
			v.stale = true
			continue
		}
		v.rows = append(v.rows, row)
		v.stale = v.stale || slices.ContainsFunc(row.Sides(), func(side pair.Side) bool { return stale[side] })
	}
	for _, s := range t.silent { // announced by a side, and not to be left out because no other has it
		known := slices.ContainsFunc(d.versions,
			func(v groupVersion) bool { return v.GroupVersion == s.GroupVersion })
		if s.Version != "" && !known {
			d.versions = append(d.versions, groupVersion{GroupVersion: s.GroupVersion, stale: true})
		}
	}
	// Versions of a group stand together, the group where its first one does.
	first := map[string]int{}
	for i, v := range d.versions {
		if _, known := first[v.Group]; !known {
			first[v.Group] = i
		}
	}
	slices.SortStableFunc(d.versions, func(a, b groupVersion) int { return first[a.Group] - first[b.Group] })
	d.nameOnce()
	return d
}

// nameOnce leaves a resource its short names in the group alone that comes first: kubectl of today warns, at each use
// of one, that it could be deployments.extensions, too, which is the same resource.
func (d *Documents) nameOnce() {
	groups := map[[2]string]string{} // by name and kind of the resource
	for i := range d.versions {
		v := &d.versions[i]
		for j, row := range v.rows {
			of := [2]string{row.Name, row.Kind}
			first, known := groups[of]
			if !known {
				groups[of] = v.Group
			}
			if known && first != v.Group && len(row.ShortNames) > 0 {
				unnamed := *row
				unnamed.ShortNames = nil
				v.rows[j] = &unnamed
			}
		}
	}
}

// Core is the document of /api.
func (d *Documents) Core(address string) *metav1.APIVersions {
	document := &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{
			{ClientCIDR: "0.0.0.0/0", ServerAddress: address}}}
	for _, v := range d.versions {
		if v.Group == "" {
			document.Versions = append(document.Versions, v.Version)
		}
	}
	return document
}

// Groups is the document of /apis.
func (d *Documents) Groups() *metav1.APIGroupList {
	document := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
		Groups: []metav1.APIGroup{}}
	for i := range d.versions { // those of a group stand together
		v := &d.versions[i]
		if v.Group == "" {
			continue
		}
		version := metav1.GroupVersionForDiscovery{GroupVersion: v.String(), Version: v.Version}
		if n := len(document.Groups); n == 0 || document.Groups[n-1].Name != v.Group {
			document.Groups = append(document.Groups, metav1.APIGroup{Name: v.Group, PreferredVersion: version})
		}
		group := &document.Groups[len(document.Groups)-1]
		group.Versions = append(group.Versions, version)
	}
	return document
}

// Group is the document of a group; nil where there is none.
func (d *Documents) Group(name string) *metav1.APIGroup {
	group := &metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: name}
	for _, v := range d.versions {
		if v.Group != name {
			continue
		}
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: v.String(),
			Version: v.Version})
	}
	if len(group.Versions) == 0 {
		return nil
	}
	group.PreferredVersion = group.Versions[0]
	return group
}

// Version is the document of a group's version; nil where there is none. stale: it lacks what a side does not say.
func (d *Documents) Version(gv schema.GroupVersion) (document *metav1.APIResourceList, stale bool) {
	i := slices.IndexFunc(d.versions, func(v groupVersion) bool { return v.GroupVersion == gv })
	if i < 0 {
		return nil, false
	}
	document = &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: gv.String(), APIResources: []metav1.APIResource{}}
	for _, row := range d.versions[i].rows {
		document.APIResources = append(document.APIResources, metav1.APIResource{Name: row.Name,
			SingularName: row.Singular, Namespaced: row.Namespaced, Kind: row.Kind, Verbs: verbs(row.Verbs),
			ShortNames: row.ShortNames, Categories: row.Categories, StorageVersionHash: row.StorageVersionHash})
		for _, sub := range row.Subresources {
			document.APIResources = append(document.APIResources, metav1.APIResource{Name: row.Name + "/" + sub.Name,
				Namespaced: row.Namespaced, Group: sub.Kind.Group, Version: sub.Kind.Version, Kind: sub.Kind.Kind,
				Verbs: verbs(sub.Verbs)})
		}
	}
	return document, d.versions[i].stale
}

func verbs(list []string) metav1.Verbs { return append(metav1.Verbs{}, list...) }

// Aggregated is the document of /api, or of /apis, that holds all groups, as version v2 of apidiscovery.k8s.io has it.
func (d *Documents) Aggregated(core bool) *apidiscovery.APIGroupDiscoveryList {
	list := &apidiscovery.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList",
		APIVersion: apidiscovery.SchemeGroupVersion.String()}, Items: []apidiscovery.APIGroupDiscovery{}}
	for _, v := range d.versions {
		if (v.Group == "") != core {
			continue
		}
		if n := len(list.Items); n == 0 || list.Items[n-1].Name != v.Group {
			list.Items = append(
				list.Items, apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: v.Group}})
		}
		version := apidiscovery.APIVersionDiscovery{Version: v.Version,
			Freshness: apidiscovery.DiscoveryFreshnessCurrent}
		if v.stale {
			version.Freshness = apidiscovery.DiscoveryFreshnessStale
		}
		for _, row := range v.rows {
			version.Resources = append(version.Resources, aggregated(row))
		}
		group := &list.Items[len(list.Items)-1]
		group.Versions = append(group.Versions, version)
	}
	return list
}

func aggregated(row *Row) apidiscovery.APIResourceDiscovery {
	r := apidiscovery.APIResourceDiscovery{Resource: row.Name, SingularResource: row.Singular, Verbs: verbs(row.Verbs),
		ShortNames: row.ShortNames, Categories: row.Categories, Scope: apidiscovery.ScopeCluster,
		ResponseKind: &metav1.GroupVersionKind{Group: row.Group, Version: row.Version, Kind: row.Kind}}
	if row.Singular == "" { // servers before 1.27 leave it out; a client of today takes the kind's
		r.SingularResource = strings.ToLower(row.Kind)
	}
	if row.Namespaced {
		r.Scope = apidiscovery.ScopeNamespace
	}
	for _, sub := range row.Subresources {
		r.Subresources = append(r.Subresources, apidiscovery.APISubresourceDiscovery{Subresource: sub.Name,
			ResponseKind: kindOf(row, sub), Verbs: verbs(sub.Verbs)})
	}
	return r
}

// kindOf is the kind of a subresource; servers leave out a group and version that are those of the resource.
func kindOf(row *Row, sub discovery.Subresource) *metav1.GroupVersionKind {
	k := sub.Kind
	if k.Kind == "" {
		return nil
	}
	if k.Version == "" {
		k.Group, k.Version = row.Group, row.Version
	}
	return &metav1.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind}
}
