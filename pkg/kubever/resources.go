package kubever

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is what an API server keeps under one prefix of etcd keys. Several API groups may serve it: Deployments of
// extensions and of apps are one Resource.
// Shape: {Name: nodes, Kind: Node, Key: minions}, {Name: services, Kind: Service, Namespaced, Key: services/specs}.
type Resource struct {
	Name       string // plural, as in a URL: "deployments"
	Kind       string
	Namespaced bool
	Key        string // below --etcd-prefix, no slashes at the ends
	Source     string

	pseudo     Ranges // minors that write a pseudo resource by default; nil for an API resource
	stored     []during[schema.GroupVersion]
	cohabiting []during[[]string]
	location   string // "own", "main", or the Key whose override this one follows
	api        []APIResource
	versions   []schema.GroupVersion
}

// APIResource is one resource in one group and version.
// Shape: {apps/v1 deployments Deployment namespaced 1.9-1.36}.
type APIResource struct {
	schema.GroupVersion
	Name       string
	Kind       string
	Namespaced bool
	Minors     Ranges // minors that compile it in; alpha and beta versions may need --runtime-config
	DefaultOn  Ranges // minors that serve it without any --runtime-config
	Source     string

	subresources []during[string]
}

// In reports whether the minor compiles the resource in.
func (a APIResource) In(m Minor) bool { return a.Minors.Has(m) }

// Subresources lists the subresources at the minor, such as "status", by name.
func (a APIResource) Subresources(m Minor) []string {
	var names []string
	for _, s := range a.subresources {
		if s.minors.Has(m) && a.In(m) {
			names = append(names, s.value)
		}
	}
	return names
}

// GroupKind names the kind of the resource.
func (a APIResource) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: a.Group, Kind: a.Kind}
}

// GroupResource names the resource without its version.
func (a APIResource) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: a.Group, Resource: a.Name}
}

const (
	apiSource      = "OpenAPI description and DefaultAPIResourceConfigSource of each minor, see Release"
	resourceSource = "test/integration/etcd/data.go, pkg/apis/*/install and AddCohabitatingResources of each minor, " +
		"see Release"
)

var apiTable = sync.OnceValue(decodeAPI)

func decodeAPI() []APIResource {
	rows := readTable("api.tsv", 7)
	resources := make([]APIResource, 0, len(rows))
	for _, r := range rows {
		a := APIResource{
			GroupVersion: r.groupVersion(0), Name: r.text(1), Kind: r.text(2), Namespaced: r.yes(3),
			Minors: r.ranges(4), DefaultOn: r.ranges(5), Source: apiSource,
		}
		for _, word := range r.words(6) {
			name, minors, _ := strings.Cut(word, "=")
			a.subresources = append(a.subresources, during[string]{r.parseRanges(minors), name})
		}
		resources = append(resources, a)
	}
	return resources
}

// ByNameAlone reports whether API servers of the minor turn a version on by its own name in --runtime-config, and by
// nothing else that is written there: api/all, api/alpha and the like do not reach it.
func ByNameAlone(gv schema.GroupVersion, m Minor) bool {
	return slices.ContainsFunc(byNameTable(), func(v during[schema.GroupVersion]) bool {
		return v.value == gv && v.minors.Has(m)
	})
}

var byNameTable = sync.OnceValue(decodeByName)

func decodeByName() (versions []during[schema.GroupVersion]) {
	for _, r := range readTable("api-by-name.tsv", 3) {
		v := during[schema.GroupVersion]{r.ranges(1), r.groupVersion(0)}
		for _, a := range apiTable() {
			if a.GroupVersion == v.value && overlap(v.minors, a.DefaultOn) {
				r.fail("%s is on by default in one of these minors", v.value)
			}
		}
		if r.text(2) == "" {
			r.fail("want to know why")
		}
		versions = append(versions, v)
	}
	return versions
}

type resourceIndex struct {
	byKey           []Resource // sorted by Key
	byGroupResource map[schema.GroupResource]int
}

var resourceTable = sync.OnceValue(decodeResources)

func decodeResources() resourceIndex {
	rows := readTable("resources.tsv", 8)
	index := resourceIndex{byGroupResource: make(map[schema.GroupResource]int)}
	type named struct{ name, kind string }
	apis := make(map[named][]APIResource)
	for _, a := range apiTable() {
		name := named{a.Name, a.Kind}
		// the name that cronjobs had before 1.5; served beside it, under the same key, until 1.7
		if a.Name == "scheduledjobs" {
			name = named{"cronjobs", "CronJob"}
		}
		apis[name] = append(apis[name], a)
	}
	for i, r := range rows {
		resource := Resource{
			Key: r.text(0), Name: r.text(1), Kind: r.text(2), Namespaced: r.yes(3), pseudo: r.ranges(4),
			location:   r.text(7),
			stored:     timeline(r, 5, func(s string) schema.GroupVersion { return r.parseGroupVersion(s) }),
			cohabiting: timeline(r, 6, splitGroups), api: apis[named{r.text(1), r.text(2)}], Source: resourceSource,
		}
		if i > 0 && index.byKey[i-1].Key >= resource.Key {
			r.fail("keys do not ascend")
		}
		if !resource.Pseudo() && len(resource.api) == 0 {
			r.fail("no API serves %s", resource.Name)
		}
		resource.versions = resource.groupVersions()
		index.byKey = append(index.byKey, resource)
		index.byGroupResource[schema.GroupResource{Resource: resource.Name}] = i
	}
	for i, resource := range index.byKey {
		if !resource.Pseudo() {
			delete(index.byGroupResource, schema.GroupResource{Resource: resource.Name})
		}
		for _, a := range resource.api {
			index.byGroupResource[a.GroupResource()] = i
		}
		for _, span := range resource.cohabiting {
			for _, group := range span.value {
				index.byGroupResource[schema.GroupResource{Group: group, Resource: resource.Name}] = i
			}
		}
	}
	return index
}

// groupVersion reads a column that holds "v1" or "apps/v1".
func (r row) groupVersion(column int) schema.GroupVersion { return r.parseGroupVersion(r.text(column)) }

func (r row) parseGroupVersion(s string) schema.GroupVersion {
	gv, err := schema.ParseGroupVersion(s)
	if err != nil || gv.Version == "" {
		r.fail("%q is not a group and version", s)
	}
	return gv
}

// splitGroups reads "core,events.k8s.io".
func splitGroups(s string) []string {
	groups := strings.Split(s, ",")
	for i, group := range groups {
		if group == "core" {
			groups[i] = ""
		}
	}
	return groups
}

// Resources lists everything that an API server of any known minor stores under keys of its own, sorted by Key: alpha
// and beta resources that are off by default too, CustomResourceDefinitions and APIServices, and the pseudo resources.
// The objects of custom resources are not in it: their keys depend on the CustomResourceDefinitions.
func Resources() []Resource { return slices.Clone(resourceTable().byKey) }

// ResourceByKey finds the resource that is stored under exactly this key prefix.
func ResourceByKey(key string) (Resource, bool) {
	all := resourceTable().byKey
	i, found := slices.BinarySearchFunc(all, key, func(r Resource, key string) int {
		return strings.Compare(r.Key, key)
	})
	if !found {
		return Resource{}, false
	}
	return all[i], true
}

// ResourceFor finds the resource by any of the groups that ever served it: {apps deployments} and {extensions
// deployments} are the same one.
func ResourceFor(gr schema.GroupResource) (Resource, bool) {
	i, found := resourceTable().byGroupResource[gr]
	if !found {
		return Resource{}, false
	}
	return resourceTable().byKey[i], true
}

// Pseudo reports whether the resource is no API resource: the leases of API servers and the allocators' ranges, which
// the server keeps in etcd for itself.
func (r Resource) Pseudo() bool { return r.pseudo != nil }

// Groups lists every group that served the resource in some minor, "" for the core group; sorted.
func (r Resource) Groups() []string {
	if r.Pseudo() {
		return []string{""}
	}
	var groups []string
	for _, a := range r.api {
		groups = append(groups, a.Group)
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// GroupVersions lists every group and version under which some minor served or stored the resource, sorted.
func (r Resource) GroupVersions() []schema.GroupVersion { return slices.Clone(r.versions) }

func (r Resource) groupVersions() []schema.GroupVersion {
	var versions []schema.GroupVersion
	for _, a := range r.api {
		versions = append(versions, a.GroupVersion)
	}
	for _, span := range r.stored {
		versions = append(versions, span.value)
	}
	slices.SortFunc(versions, func(a, b schema.GroupVersion) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version))
	})
	return slices.Compact(versions)
}

// In reports whether the minor compiles in some version of the resource.
func (r Resource) In(m Minor) bool { _, ok := at(r.stored, m); return ok }

// OnByDefault reports whether the minor serves the resource without any --runtime-config or --feature-gates: stable
// versions, beta versions that arrived before 1.24, and rbac and settings v1alpha1 in 1.6 and 1.7.
// Pseudo resources are on when the server writes them by default.
func (r Resource) OnByDefault(m Minor) bool {
	if r.Pseudo() {
		return r.pseudo.Has(m)
	}
	return slices.ContainsFunc(r.api, func(a APIResource) bool { return a.DefaultOn.Has(m) })
}

// Served lists the versions in which the minor serves the resource by default, groups in order, and within a group as
// in the table (v1 before v1beta1).
func (r Resource) Served(m Minor) []schema.GroupVersion {
	var served []schema.GroupVersion
	for _, a := range r.api {
		if a.DefaultOn.Has(m) && a.Name == r.Name {
			served = append(served, a.GroupVersion)
		}
	}
	return served
}

// CohabitingGroups lists the groups under which the minor's storage factory looks for the resource, in its order; a
// single group when the resource has one home.
func (r Resource) CohabitingGroups(m Minor) []string {
	if groups, ok := at(r.cohabiting, m); ok {
		return slices.Clone(groups)
	}
	if r.Pseudo() {
		return []string{""}
	}
	var groups []string
	for _, a := range r.api {
		if a.In(m) && !slices.Contains(groups, a.Group) {
			groups = append(groups, a.Group)
		}
	}
	return groups
}

// ChosenGroup names the group under which an entry of --etcd-servers-overrides must name the resource at the minor: the
// first of CohabitingGroups that the minor serves by default. An entry under another group is silently ignored.
// Disabling a whole group by --runtime-config moves the choice to the next.
func (r Resource) ChosenGroup(m Minor) string {
	groups := r.CohabitingGroups(m)
	for _, group := range groups {
		if slices.ContainsFunc(r.api, func(a APIResource) bool { return a.Group == group && a.DefaultOn.Has(m) }) {
			return group
		}
	}
	if len(groups) > 0 {
		return groups[0]
	}
	return ""
}

// StoredAs names the group, version and kind in which the minor writes the resource to etcd; false when it does not
// know the resource. Storage versions can be changed by --storage-versions up to 1.13, and by --emulated-version from
// 1.31 on.
func (r Resource) StoredAs(m Minor) (schema.GroupVersionKind, bool) {
	gv, ok := at(r.stored, m)
	if !ok {
		return schema.GroupVersionKind{}, false
	}
	return gv.WithKind(r.Kind), true
}

// OverrideName is the resource name in an entry of --etcd-servers-overrides: "pods", "apiServerIPInfo". Its group is
// ChosenGroup; entries of the core group start with a slash.
func (r Resource) OverrideName() string { return r.Name }

// Overridable reports whether an entry of --etcd-servers-overrides can move the resource.
// CustomResourceDefinitions and APIServices always stay with --etcd-servers; ranges follow another resource.
func (r Resource) Overridable() bool { return r.location == "own" }

// Follows names the Key of the resource whose override moves this one too; "" for most.
func (r Resource) Follows() string {
	if r.location == "own" || r.location == "main" {
		return ""
	}
	return r.location
}

// APIResources lists what the minor compiles in, by group, resource and version, as its API description does.
func APIResources(m Minor) []APIResource { return slices.Clone(apiResourcesIn(m)) }

// AllAPIResources lists what some minor compiles in, in the order of the table.
func AllAPIResources() []APIResource { return slices.Clone(apiTable()) }

// KindOf is the kind of a resource, as the newest minor has it that has the resource; "" when none has.
func KindOf(gvr schema.GroupVersionResource) string {
	kind, last := "", Minor(0)
	for _, api := range apiTable() {
		if api.GroupVersion == gvr.GroupVersion() && api.Name == gvr.Resource && len(api.Minors) > 0 &&
			api.Minors[len(api.Minors)-1].To > last {
			kind, last = api.Kind, api.Minors[len(api.Minors)-1].To
		}
	}
	return kind
}

var apiResourcesIn = remembered(func(m Minor) []APIResource {
	return slices.DeleteFunc(slices.Clone(apiTable()), func(a APIResource) bool { return !a.In(m) })
})

// servesKind reports whether discovery of the minor shows the kind in some version of the group by default.
func servesKind(gk schema.GroupKind, m Minor) bool {
	return slices.ContainsFunc(apiTable(), func(a APIResource) bool {
		return a.GroupKind() == gk && a.DefaultOn.Has(m)
	})
}

// ServesGVK reports whether discovery of the minor shows the kind in exactly this version by default.
func ServesGVK(gvk schema.GroupVersionKind, m Minor) bool { return LifecycleOf(gvk).DefaultOn.Has(m) }

var kindTable = sync.OnceValue(decodeKinds)

func decodeKinds() map[schema.GroupVersionKind]Ranges {
	rows := readTable("kinds.tsv", 3)
	kinds := make(map[schema.GroupVersionKind]Ranges, len(rows))
	for _, r := range rows {
		kinds[r.groupVersion(0).WithKind(r.text(1))] = r.ranges(2)
	}
	return kinds
}

// CanDecode reports whether the minor's API server can decode a stored object of this group, version and kind. That is
// not the same as serving it: 1.36 decodes a Deployment of extensions/v1beta1. One object that cannot be decoded makes
// every list of its resource fail.
func CanDecode(gvk schema.GroupVersionKind, m Minor) bool { return kindTable()[gvk].Has(m) }

// CanWatch reports whether a watch of the resource by the minor survives an object stored as gvk. Before 1.11 a watch
// ends at every object that is stored in another group than the one this minor stores, although a list decodes it; so
// do the first releases of 1.11 to 1.13, see BehavesIn and BehaviourDecodeCoercingWatch.
func CanWatch(gvk schema.GroupVersionKind, r Resource, m Minor) bool {
	if !CanDecode(gvk, m) {
		return false
	}
	return gvk.Group == r.ChosenGroup(m) || Behaves(BehaviourDecodeCoercingWatch, m)
}

var deprecatedTable = sync.OnceValue(decodeDeprecated)

func decodeDeprecated() map[schema.GroupVersionKind]Minor {
	rows := readTable("api-deprecated.tsv", 3)
	deprecated := make(map[schema.GroupVersionKind]Minor, len(rows))
	for _, r := range rows {
		deprecated[r.groupVersion(0).WithKind(r.text(1))] = r.ranges(2)[0].From
	}
	return deprecated
}

// Lifecycle is when a version of a kind came, was deprecated and went.
type Lifecycle struct {
	Minors     Ranges // that compile it in; nil for a kind that the tables do not know
	DefaultOn  Ranges // that serve it without --runtime-config
	Deprecated Minor  // 0 when it is not, or never was before it went
	Alpha      bool
}

// LifecycleOf tells the life of a version of a kind. A kind that several resources of a version carry has the life of
// them all.
func LifecycleOf(gvk schema.GroupVersionKind) Lifecycle {
	if life, ok := lifecycles()[gvk]; ok {
		return life
	}
	return Lifecycle{Deprecated: deprecatedTable()[gvk], Alpha: strings.Contains(gvk.Version, "alpha")}
}

var lifecycles = sync.OnceValue(func() map[schema.GroupVersionKind]Lifecycle {
	lives := map[schema.GroupVersionKind]Lifecycle{}
	for _, a := range apiTable() {
		gvk := a.GroupVersion.WithKind(a.Kind)
		life, ok := lives[gvk]
		if !ok {
			life = Lifecycle{Deprecated: deprecatedTable()[gvk], Alpha: strings.Contains(gvk.Version, "alpha")}
		}
		life.Minors, life.DefaultOn = union(life.Minors, a.Minors), union(life.DefaultOn, a.DefaultOn)
		lives[gvk] = life
	}
	return lives
})

func union(a, b Ranges) Ranges {
	return Spans(slices.DeleteFunc(Minors(), func(m Minor) bool { return !a.Has(m) && !b.Has(m) }))
}

// Began is the first minor that serves a version by default, or has it if none does; 0 for a kind that the tables do
// not know.
func (l Lifecycle) Began() Minor {
	for _, minors := range []Ranges{l.DefaultOn, l.Minors} {
		if len(minors) > 0 {
			return minors[0].From
		}
	}
	return 0
}

// Ended is the minor from which on a version is removed, 0 while the newest known one has it. A stable or beta version
// is removed when plain servers no longer serve it: some stay for a while for those who ask by --runtime-config. An
// alpha version, which is off anyway, and what never was served by default are removed with their code.
func (l Lifecycle) Ended() Minor {
	served := l.DefaultOn
	if l.Alpha || len(served) == 0 {
		served = l.Minors
	}
	if len(served) == 0 || served[len(served)-1].To == Newest {
		return 0
	}
	return served[len(served)-1].To + 1
}

// Namespaced reports whether objects of a kind are in namespaces, as the newest minor has them that has the kind; known
// is false for kinds of no minor.
func Namespaced(gvk schema.GroupVersionKind) (namespaced, known bool) {
	namespaced, known = namespacedKinds()[gvk]
	return namespaced, known
}

var namespacedKinds = sync.OnceValue(func() map[schema.GroupVersionKind]bool {
	kinds := map[schema.GroupVersionKind]bool{}
	for _, minor := range Minors() {
		for _, api := range slices.Backward(APIResources(minor)) { // the first of a minor counts
			kinds[api.GroupVersion.WithKind(api.Kind)] = api.Namespaced
		}
	}
	return kinds
})
