// Package routes decides for every resource and version that clients may ask for through which API server of a pair its
// objects are read and written, and why. A table is computed from the plan of the pair and from what both API servers
// say that they serve; it is plain data, and nothing here sends a request.
package routes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/convert/negotiate"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// Way is how requests for a resource in one version are served.
type Way string

// The ways.
const (
	Owner     Way = "owner"     // by the side that the plan has for it, which serves the version
	Other     Way = "other"     // by the other side, because that alone serves the version
	Converted Way = "converted" // by the side that has the objects, in a version of its own
	Both      Way = "both"      // each side has objects of its own: both are queried, and their answers are merged
	None      Way = "none"      // not at all
	Unknown   Way = "unknown"   // not at the moment: discovery failed on a side
)

// Row says how requests for one resource in one version are served.
type Row struct {
	// Resource is as the gateway shows it: with the verbs and subresources that it serves.
	discovery.Resource
	Way Way
	// Read and Write are the sides whose API servers are queried, for objects. Empty with Both, and where the Way
	// serves nothing; Write is also empty where no side that may write serves the version.
	Read, Write pair.Side
	// Stream is the side through which exec, attach and port-forward go; "" for Write.
	Stream pair.Side
	// As are the versions of the requests to sides that do not serve the one of the row: requests and answers are
	// converted.
	As  map[pair.Side]schema.GroupVersionResource
	Why string // one sentence

	shown  *discovery.Resource // as a side serves the version of the row, where others are converted
	stored *pair.Resource      // nil for what is no resource of the plan
}

// Creates is the side on which objects are created of which each side may have some: the modern one where it has taken
// over those of the namespace, and otherwise the one that is given.
func (r *Row) Creates(namespace string, otherwise pair.Side) pair.Side {
	if r.stored != nil && (r.stored.HandedOver || slices.Contains(r.stored.HandedOverIn, namespace)) {
		return pair.Modern
	}
	return otherwise
}

// Side is the side whose API server serves a request, as request infos have its verb and subresource; "" where each
// side may have the object, and where none serves the request.
func (r *Row) Side(verb, subresource string) pair.Side {
	switch {
	case r.Stream != "" && slices.Contains(streams, subresource):
		return r.Stream
	case subresource == "" && slices.Contains(reads, verb):
		return r.Read
	}
	return r.Write
}

var (
	streams = []string{"exec", "attach", "portforward"}
	reads   = []string{"get", "list", "watch"}
)

// Sides lists the sides that the row needs, in their order.
func (r *Row) Sides() []pair.Side {
	if r.Way == Both {
		return pair.Sides()
	}
	sides := []pair.Side{r.Read, r.Write}
	slices.Sort(sides) // legacy before modern
	return slices.DeleteFunc(slices.Compact(sides), func(s pair.Side) bool { return s == "" })
}

// Served is what one side serves.
type Served struct {
	*discovery.Result
	// Extensions are the group versions that extension API servers behind the side serve.
	Extensions map[schema.GroupVersion]bool
}

// Sources are what both sides serve.
type Sources struct {
	Legacy, Modern Served
	Conversions
}

// Conversions are what is converted. The zero value is nothing.
type Conversions struct {
	// Equivalents are the kinds to and from which one is converted; nil for no conversion.
	Equivalents func(schema.GroupVersionKind) []schema.GroupVersionKind
	// Custom are the custom resources among them. Those of a server are in no table of facts, so that the versions that
	// no side serves have to be named.
	Custom []Custom
}

// Custom is a custom resource that is converted between its versions.
type Custom struct {
	schema.GroupResource
	Kind       string
	Namespaced bool
	Versions   []string // the newest first
}

// Of returns what the side serves.
func (s *Sources) Of(side pair.Side) *Served {
	if side == pair.Legacy {
		return &s.Legacy
	}
	return &s.Modern
}

// Table is how requests are served, for every resource in every version that a side serves.
type Table struct {
	// Rows are in the order in which the modern side announces groups, versions and resources, then the legacy side;
	// behind them are the versions that no side serves.
	Rows []Row

	index    map[schema.GroupVersionResource]int
	versions []schema.GroupVersion // in the order of the rows
	within   map[schema.GroupVersion][]int
	silent   []silence
}

// silence is what a side announces of a group and does not list.
type silence struct {
	schema.GroupVersion
	side pair.Side
	err  error
}

// Silent is the side that announces the version of a group and does not say at the moment what is in it, and why; nil
// where there is none. What has no row in such a version may be there all the same.
func (t *Table) Silent(gv schema.GroupVersion) (pair.Side, error) {
	for _, s := range t.silent {
		if s.GroupVersion == gv || s.Version == "" && s.Group == gv.Group {
			return s.side, s.err
		}
	}
	return "", nil
}

// Row looks a resource up; nil when no side serves it.
func (t *Table) Row(gvr schema.GroupVersionResource) *Row {
	if i, ok := t.index[gvr]; ok {
		return &t.Rows[i]
	}
	return nil
}

// New computes the table. Where the legacy side is retired, it is that of the modern one alone.
func New(p *plan.Runtime, s Sources) *Table {
	if p.Legacy.Retired {
		return alone(pair.Modern, "the modern side", s.Modern.Result, s.Conversions)
	}
	b := builder{plan: p, sources: s, stored: map[schema.GroupResource]*pair.Resource{},
		lists: map[pair.Side]*lists{}, servers: map[pair.Side]*negotiate.Server{}}
	for _, side := range pair.Sides() {
		b.lists[side] = listsOf(s.Of(side).Result)
		b.servers[side] = negotiate.Of("the "+string(side)+" side", s.Of(side).Result)
	}
	for i := range p.Resources {
		row := &p.Resources[i]
		for _, group := range row.Groups {
			b.stored[schema.GroupResource{Group: group, Resource: row.Name}] = row
		}
	}
	t := newTable()
	for _, side := range []pair.Side{pair.Modern, pair.Legacy} {
		for _, r := range s.Of(side).Resources {
			if _, known := t.index[r.GroupVersionResource()]; known {
				continue
			}
			t.add(b.row(r.GroupVersionResource()))
		}
		t.hears(side, s.Of(side).Result)
	}
	for asked := range t.absent(s.Custom) {
		if row := b.absent(asked); row != nil {
			t.add(*row)
		}
	}
	for i := range t.Rows {
		t.Rows[i].stored = b.stored[t.Rows[i].GroupResource()]
	}
	return t
}

func newTable() *Table {
	return &Table{index: map[schema.GroupVersionResource]int{}, within: map[schema.GroupVersion][]int{}}
}

func (t *Table) add(row Row) {
	t.index[row.GroupVersionResource()] = len(t.Rows)
	if t.within[row.GroupVersion] == nil {
		t.versions = append(t.versions, row.GroupVersion)
	}
	t.within[row.GroupVersion] = append(t.within[row.GroupVersion], len(t.Rows))
	t.Rows = append(t.Rows, row)
}

// hears remembers what a server announces and does not list.
func (t *Table) hears(side pair.Side, result *discovery.Result) {
	for _, gv := range slices.SortedFunc(maps.Keys(result.Failed), func(a, b schema.GroupVersion) int {
		return cmp.Compare(a.String(), b.String())
	}) {
		t.silent = append(t.silent, silence{gv, side, result.Failed[gv]})
	}
}

// Versions are the group versions of all rows, in their order.
func (t *Table) Versions() []schema.GroupVersion { return t.versions }

// Within are the rows of a group version, in their order.
func (t *Table) Within(gv schema.GroupVersion) []*Row {
	rows := make([]*Row, 0, len(t.within[gv]))
	for _, i := range t.within[gv] {
		rows = append(rows, &t.Rows[i])
	}
	return rows
}

type builder struct {
	plan    *plan.Runtime
	sources Sources
	stored  map[schema.GroupResource]*pair.Resource
	lists   map[pair.Side]*lists
	servers map[pair.Side]*negotiate.Server
}

// find is the resource as the side serves it; nil when it does not.
func (b *builder) find(side pair.Side, gvr schema.GroupVersionResource) *discovery.Resource {
	return b.lists[side].served[gvr]
}

// failure is why not all versions of the groups are known on the side; nil when they are.
func (b *builder) failure(side pair.Side, groups ...string) error {
	return b.lists[side].failure(groups)
}

// converted is the resource of the side that objects of asked are converted to and from; nil where there is none.
// Errors: the side does not say what would decide it.
func (b *builder) converted(side pair.Side, asked *discovery.Resource) (*discovery.Resource, error) {
	if b.sources.Equivalents == nil {
		return nil, nil
	}
	gvk := asked.WithKind(asked.Kind)
	answer, err := b.servers[side].Negotiate(gvk, b.sources.Equivalents(gvk))
	if err != nil || answer.Verdict != negotiate.Convert {
		return nil, err
	}
	found := b.find(side, answer.As.GroupVersion().WithResource(answer.Resource.Name))
	if found == nil || found.Namespaced != asked.Namespaced {
		return nil, nil
	}
	return found, nil
}

// serves reports whether the side serves the objects in any version of the groups.
func (b *builder) serves(side pair.Side, name string, groups ...string) bool {
	return slices.ContainsFunc(groups, func(group string) bool {
		return b.lists[side].named[schema.GroupResource{Group: group, Resource: name}]
	})
}

func (b *builder) row(gvr schema.GroupVersionResource) Row {
	at := map[pair.Side]*discovery.Resource{}
	for _, side := range pair.Sides() {
		if found := b.find(side, gvr); found != nil {
			at[side] = found
		}
	}
	named := schema.GroupResource{Group: gvr.Group, Resource: gvr.Resource}
	if as, ok := seenAs[named]; ok {
		named = as
	}
	stored := b.stored[named]
	switch {
	case stored != nil && stored.VisibleToBoth():
		return b.oneStore(at, stored)
	case stored != nil:
		return b.apart(at, stored.Owner, stored.Name, stored.Groups, "the plan")
	case builtIn[named]:
		return b.oneSide(at, "it is kept in no store")
	case b.sources.Legacy.Extensions[gvr.GroupVersion()] || b.sources.Modern.Extensions[gvr.GroupVersion()]:
		return b.extension(at, gvr)
	}
	custom := &b.plan.CustomResources
	if custom.VisibleToBoth() {
		return b.oneStore(at, custom)
	}
	return b.apart(at, pair.OwnerSplit, gvr.Resource, []string{gvr.Group}, "custom resources lie in the store of "+
		"their side")
}

// seenAs are resources that are other ones under another name.
var seenAs = map[schema.GroupResource]schema.GroupResource{
	{Resource: "bindings"}: {Resource: "pods"}, // a binding is a write to its pod
	// only to scale them
	{Group: "extensions", Resource: "replicationcontrollers"}: {Resource: "replicationcontrollers"},
}

// builtIn are the resources that some version of Kubernetes compiles in.
var builtIn = func() map[schema.GroupResource]bool {
	known := map[schema.GroupResource]bool{}
	for _, r := range kubever.AllAPIResources() {
		known[r.GroupResource()] = true
	}
	return known
}()

// oneStore routes a resource of which both sides see the same objects.
func (b *builder) oneStore(at map[pair.Side]*discovery.Resource, stored *pair.Resource) Row {
	route := stored.Route()
	row := Row{Way: Owner, Read: route.Read, Write: route.Write,
		Why: fmt.Sprintf("both sides see the same objects: they are read through the %s side and written through the "+
			"%s side", route.Read, route.Write)}
	if route.Read == route.Write {
		row.Why = fmt.Sprintf("both sides see the same objects, and the %s side reads and writes all of them",
			route.Write)
	}
	if at[row.Read] == nil {
		row.Way, row.Read = Other, row.Read.Other()
		row.Why = fmt.Sprintf("both sides see the same objects, and only the %s side serves this version", row.Read)
	}
	switch {
	case at[row.Write] != nil:
	case stored.WrittenBy(row.Write.Other()):
		row.Write = row.Write.Other()
		row.Why += ", which may write them, too"
	default:
		as, err := b.converted(row.Write, at[row.Read])
		if err != nil || as == nil {
			row.Why += fmt.Sprintf("; the %s side, which alone may write them, does not serve it: it is read only",
				row.Write)
			row.Write = ""
			break
		}
		row.convert(row.Write, as)
		row.Why += fmt.Sprintf("; what is written is converted to %s for the %s side, which alone may write them",
			as.GroupVersion, row.Write)
		at[row.Write], row.shown = as, at[row.Read]
	}
	if stored.Name == "pods" && stored.ServesKind("", "Pod") &&
		kubever.Behaves(kubever.BehaviourKubeletRedirectsStreams, b.plan.Kubelet.Minor) {
		row.Stream = pair.Legacy
		row.Why += "; exec, attach and port-forward go through the legacy side, because kubelets of this version " +
			"redirect them"
	}
	row.show(at)
	return row
}

// apart routes a resource of which each side sees objects that the other does not see.
func (b *builder) apart(at map[pair.Side]*discovery.Resource, owner pair.Owner, name string, groups []string,
	says string) Row {
	if owner == pair.OwnerLegacy || owner == pair.OwnerModern {
		switch side := pair.Side(owner); {
		case at[side] != nil:
			return b.one(at, side, fmt.Sprintf("%s has it on the %s side", says, side))
		case b.failure(side, groups...) != nil:
			return b.silent(at, side, groups)
		default:
			return b.oneConverted(at, side, fmt.Sprintf("%s has it on the %s side", says, side))
		}
	}
	for _, side := range pair.Sides() {
		if b.failure(side, groups...) != nil {
			return b.silent(at, side, groups)
		}
	}
	has := slices.DeleteFunc(pair.Sides(), func(side pair.Side) bool { return !b.serves(side, name, groups...) })
	if len(has) == 1 {
		return b.one(at, has[0], fmt.Sprintf("only the %s side has it", has[0]))
	}
	row := Row{Way: Both, Why: "each side has objects of its own, and both serve this version"}
	for _, side := range pair.Sides() {
		if at[side] != nil {
			continue
		}
		as, err := b.converted(side, at[side.Other()])
		if err != nil {
			return b.nothing(at, Unknown, err.Error())
		}
		if as == nil {
			return b.nothing(at, None, fmt.Sprintf("each side has objects of its own, and only the %s side serves "+
				"this version: half of them would be missing; /sides/%s serves that half", side.Other(), side.Other()))
		}
		row.convert(side, as)
		row.Why = fmt.Sprintf("each side has objects of its own; those of the %s side are converted from and to %s",
			side, as.GroupVersion)
		row.shown = at[side.Other()]
		at = map[pair.Side]*discovery.Resource{side: as, side.Other(): row.shown}
		break
	}
	if at[pair.Legacy].Kind != at[pair.Modern].Kind || at[pair.Legacy].Namespaced != at[pair.Modern].Namespaced {
		return b.nothing(at, None, "the two sides serve different things under this name; /sides/legacy and "+
			"/sides/modern serve each")
	}
	row.show(at)
	return row
}

// oneConverted routes a resource that the side has in other versions than the asked one.
func (b *builder) oneConverted(at map[pair.Side]*discovery.Resource, side pair.Side, why string) Row {
	asked := at[side.Other()]
	as, err := b.converted(side, asked)
	switch {
	case err != nil:
		return b.nothing(at, Unknown, err.Error())
	case as == nil:
		return b.nothing(at, None, why+", which does not serve this version")
	}
	row := Row{Way: Converted, Read: side, Write: side, shown: asked,
		Why: fmt.Sprintf("%s, where it is converted from and to %s", why, as.GroupVersion)}
	row.convert(side, as)
	row.show(map[pair.Side]*discovery.Resource{side: as})
	return row
}

func (r *Row) convert(side pair.Side, as *discovery.Resource) {
	r.As = map[pair.Side]schema.GroupVersionResource{side: as.GroupVersionResource()}
}

// oneSide routes what only API servers themselves know: the modern side is queried, or the one that serves it.
func (b *builder) oneSide(at map[pair.Side]*discovery.Resource, why string) Row {
	if at[pair.Modern] != nil {
		return b.one(at, pair.Modern, why)
	}
	if group := at[pair.Legacy].Group; b.failure(pair.Modern, group) != nil {
		return b.silent(at, pair.Modern, []string{group})
	}
	return b.one(at, pair.Legacy, why+", and only the legacy side serves this version")
}

// extension routes what extension API servers serve. What each of two has is not known.
func (b *builder) extension(at map[pair.Side]*discovery.Resource, gvr schema.GroupVersionResource) Row {
	for _, side := range pair.Sides() {
		// A server that is silent may have custom resources, or be another than the one that answers.
		if at[side] == nil && b.failure(side, gvr.Group) != nil {
			return b.silent(at, side, []string{gvr.Group})
		}
	}
	for side := range at {
		if at[side.Other()] != nil && !b.sources.Of(side).Extensions[gvr.GroupVersion()] {
			return b.nothing(at, None, fmt.Sprintf("an extension API server serves it on the %s side and custom "+
				"resources do on the %s side; /sides/legacy and /sides/modern serve each", side.Other(), side))
		}
	}
	return b.oneSide(at, "an extension API server has it")
}

func (b *builder) one(at map[pair.Side]*discovery.Resource, side pair.Side, why string) Row {
	row := Row{Way: Owner, Read: side, Write: side, Why: why}
	row.show(at)
	return row
}

// silent is the row while discovery of the groups failed on a side.
func (b *builder) silent(at map[pair.Side]*discovery.Resource, side pair.Side, groups []string) Row {
	return b.nothing(at, Unknown, fmt.Sprintf("discovery of this group failed on the %s side: %v", side,
		b.failure(side, groups...)))
}

func (b *builder) nothing(at map[pair.Side]*discovery.Resource, way Way, why string) Row {
	row := Row{Way: way, Why: why, Resource: *cmp.Or(at[pair.Modern], at[pair.Legacy])}
	row.Verbs, row.Subresources = nil, nil
	return row
}

// show makes the resource of the row: what works of it.
func (r *Row) show(at map[pair.Side]*discovery.Resource) {
	if r.Way == Both {
		legacy, modern := at[pair.Legacy], at[pair.Modern]
		r.Resource = *cmp.Or(r.shown, modern)
		r.StorageVersionHash = ""
		r.Verbs = shared(modern.Verbs, legacy.Verbs)
		other := legacy
		if r.shown == legacy {
			other = modern
		}
		subresources := r.Resource.Subresources
		r.Subresources = nil
		for _, sub := range subresources {
			i := slices.IndexFunc(other.Subresources, func(s discovery.Subresource) bool { return s.Name == sub.Name })
			if i >= 0 && other.Subresources[i].Kind.Kind == sub.Kind.Kind {
				sub.Verbs = shared(sub.Verbs, other.Subresources[i].Verbs)
				r.Subresources = append(r.Subresources, sub)
			}
		}
		return
	}
	r.Resource = *cmp.Or(r.shown, at[r.Read])
	r.Verbs = at[r.Read].Verbs
	r.Verbs = slices.DeleteFunc(slices.Clone(r.Verbs), func(verb string) bool { return !slices.Contains(reads, verb) })
	r.Subresources = nil
	if r.Write == "" {
		return
	}
	for _, verb := range at[r.Write].Verbs {
		if !slices.Contains(reads, verb) {
			r.Verbs = append(r.Verbs, verb)
		}
	}
	slices.Sort(r.Verbs)
	r.Subresources = at[r.Write].Subresources
	if r.As[r.Write] != (schema.GroupVersionResource{}) { // the kinds are those of the asked version
		r.Subresources = slices.Clone(r.shown.Subresources)
		r.Subresources = slices.DeleteFunc(r.Subresources, func(sub discovery.Subresource) bool {
			return !slices.ContainsFunc(at[r.Write].Subresources, func(s discovery.Subresource) bool {
				return s.Name == sub.Name
			})
		})
	}
}

// shared is what stands in both lists. A list that a server leaves out says nothing.
func shared(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return !slices.Contains(b, s) })
}
