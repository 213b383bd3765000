package plan

import (
	"fmt"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// closures are the sets of resources that must be located together, because a controller, the scheduler or a kubelet
// decides about one by reading another. In the split layout they are what the two sides share.
var closures = []struct {
	name string // as in "pods and nodes"
	keys []string
}{
	{"pods and nodes", []string{"controllers", "leases", "minions", "pods", "podtemplates", "runtimeclasses"}},
	{"volumes and claims", []string{"csidrivers", "csinodes", "csistoragecapacities", "persistentvolumeclaims",
		"persistentvolumes", "storageclasses", "volumeattachments"}},
	{"services and their addresses", []string{"endpointslices", "ipaddresses", "networkpolicies", "servicecidrs",
		"services/endpoints", "services/specs"}},
	{"identities and the objects that pods mount", []string{"configmaps", "secrets", "serviceaccounts"}},
	{"namespaces and the objects counted in them", []string{"events", "limitranges", "namespaces", "resourcequotas"}},
}

// closureOf names the closure set of a key, "" for none.
func closureOf(key string) string {
	for _, c := range closures {
		if slices.Contains(c.keys, key) {
			return c.name
		}
	}
	return ""
}

// placement decides owner and locations of every resource.
type placement struct {
	file           *spec.File
	legacy, modern kubever.Minor
	legacyStore    string
	modernStore    string
	moved          map[string]string // what the legacy API server's own overrides locate elsewhere: key -> store
	// what the modern API server must not serve, because it would write it at start
	poison []kubever.StartupWrite
}

// place lists every resource that either version compiles in, by key.
func (p *placement) place() ([]Resource, error) {
	var rows []Resource
	for _, fact := range kubever.Resources() {
		if !fact.In(p.legacy) && !fact.In(p.modern) {
			continue
		}
		row, err := p.row(fact)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	rows, err := p.handOver(p.followServices(rows))
	if err != nil || !p.retired() {
		return rows, err
	}
	return withoutLegacy(rows), nil
}

// row decides about one resource.
func (p *placement) row(fact kubever.Resource) (Resource, error) {
	row := Resource{Pseudo: fact.Pseudo(), Resource: pair.Resource{
		Key:        fact.Key,
		Name:       fact.Name,
		Kind:       fact.Kind,
		Groups:     fact.Groups(),
		Namespaced: fact.Namespaced,
		Legacy:     sideOf(fact, p.legacy),
		Modern:     sideOf(fact, p.modern),
	}}
	inLegacy, inModern := fact.In(p.legacy), fact.In(p.modern)
	if inLegacy {
		row.Legacy.Store = p.legacyStore
		if store, ok := p.moved[fact.Key]; ok {
			row.Legacy.Store = store
		}
	}
	if inModern {
		row.Modern.Store = p.modernStore
	}
	if slices.ContainsFunc(p.poison, func(w kubever.StartupWrite) bool {
		return w.Resource == fact.Key && w.OffFlag == "runtime-config"
	}) {
		row.Why = fmt.Sprintf("not served by the modern side: %s would write it at start, as %s, which %s cannot "+
			"decode", p.modern, row.Modern.StoredAs, p.legacy)
		row.Modern = pair.View{}
		row.Owner = pair.OwnerLegacy
		return row, nil
	}
	owner, why := p.owner(fact, &row)
	if entry, ok := p.named(fact); ok {
		wanted := p.file.Spec.Owners[entry].Owner
		if err := p.admits(fact, wanted, owner); err != nil {
			return Resource{}, p.file.Errorf(fmt.Sprintf("spec.owners[%d]", entry), "%v", err)
		}
		owner, why = wanted, "set by spec.owners"
	}
	row.Owner, row.Why = owner, why
	p.locate(fact, &row)
	return row, nil
}

// sideOf is what a version knows about a resource.
func sideOf(fact kubever.Resource, m kubever.Minor) pair.View {
	if !fact.In(m) {
		return pair.View{}
	}
	var side pair.View
	if stored, ok := fact.StoredAs(m); ok {
		side.StoredAs = stored.GroupVersion().String()
	}
	for _, gv := range fact.Served(m) {
		side.Serves = append(side.Serves, gv.String())
	}
	for _, gv := range fact.GroupVersions() {
		gvk := gv.WithKind(fact.Kind)
		switch {
		case !kubever.CanDecode(gvk, m):
		case !kubever.CanWatch(gvk, fact, m):
			side.Decodes = append(side.Decodes, gv.String())
			side.WatchBreaks = append(side.WatchBreaks, gv.String())
		default:
			side.Decodes = append(side.Decodes, gv.String())
		}
	}
	return side
}

// reads reports whether the reader can list and watch what the writer stores.
func reads(reader, writer *pair.View) bool {
	return reader.Reads(writer.StoredAs)
}

// owner is the layout's default for a resource, and why.
func (p *placement) owner(fact kubever.Resource, row *Resource) (pair.Owner, string) {
	inLegacy, inModern := fact.In(p.legacy), fact.In(p.modern)
	switch {
	case !inLegacy:
		return pair.OwnerModern, fmt.Sprintf("%s does not have it", p.legacy)
	case !inModern:
		return pair.OwnerLegacy, fmt.Sprintf("%s does not have it", p.modern)
	case fact.Pseudo():
		return p.pseudoOwner(fact)
	case !fact.Overridable():
		if p.legacyStore == p.modernStore {
			return pair.OwnerShared, "both versions keep it in their default store, which is one"
		}
		return pair.OwnerSplit, "every version keeps it in its default store, whatever the overrides say"
	}
	closure := closureOf(fact.Key)
	if p.file.Spec.Layout == spec.LayoutSplit && closure == "" {
		return pair.OwnerSplit, "each side has its own"
	}
	together := "the layout keeps everything in one store"
	if p.file.Spec.Layout == spec.LayoutSplit {
		together = "is in the closure set of " + closure
	}
	legacyReads, modernReads := reads(&row.Legacy, &row.Modern), reads(&row.Modern, &row.Legacy)
	if p.file.Spec.Layout == spec.LayoutSplit && !legacyReads && p.modernKubeletsWrite(fact.Key) {
		return pair.OwnerSplit, fmt.Sprintf("kubelets that are connected to %s write it, as %s, which %s cannot decode",
			p.modern, row.Modern.StoredAs, p.legacy)
	}
	switch {
	case legacyReads && modernReads:
		return pair.OwnerShared, fmt.Sprintf("%s; each version decodes what the other stores", together)
	case modernReads && (p.file.Spec.Layout == spec.LayoutShared || !p.startupWrites(fact.Key) &&
		!p.electsIn(fact.Key)):
		return pair.OwnerLegacy, fmt.Sprintf("%s; %s cannot decode the %s that %s stores, so only the legacy side "+
			"may write",
			together, p.legacy, row.Modern.StoredAs, p.modern)
	case p.file.Spec.Layout == spec.LayoutShared:
		return pair.OwnerLegacy, fmt.Sprintf("%s; neither version decodes what the other stores", together)
	case modernReads && !p.startupWrites(fact.Key):
		return pair.OwnerSplit, fmt.Sprintf("the controller manager of %s uses it for its lock, as %s, which %s "+
			"cannot decode",
			p.modern, row.Modern.StoredAs, p.legacy)
	case modernReads:
		return pair.OwnerSplit, fmt.Sprintf("%s writes it at start, as %s, which %s cannot decode", p.modern,
			row.Modern.StoredAs, p.legacy)
	default:
		return pair.OwnerSplit, fmt.Sprintf("%s cannot decode the %s that %s stores", p.modern, row.Legacy.StoredAs,
			p.legacy)
	}
}

// pseudoOwner decides about what is stored and is no API resource; followServices corrects what depends on another row.
func (p *placement) pseudoOwner(fact kubever.Resource) (pair.Owner, string) {
	if fact.Follows() != "" {
		return pair.OwnerShared, "lies where " + fact.Follows() + " lie"
	}
	if p.legacyStore == p.modernStore {
		return pair.OwnerShared, "both versions keep it in their default store, which is one"
	}
	return pair.OwnerSplit, "each API server keeps its own"
}

// reconcilerFlag turns off what the modern API server would write about its own address; every plan sets it where it
// exists.
const reconcilerFlag = "endpoint-reconciler-type"

// startupWrites reports whether the modern API server writes the resource by itself when it starts as the plan starts
// it.
func (p *placement) startupWrites(key string) bool {
	for _, w := range kubever.StartupWrites(p.modern) {
		if w.Resource == key && !w.OnlyWithRBAC && w.OffFlag != reconcilerFlag {
			return true
		}
	}
	return false
}

// admits refuses an owner of the spec that no configuration can bring about.
func (p *placement) admits(fact kubever.Resource, wanted, layout pair.Owner) error {
	switch {
	case !fact.Overridable() && wanted != layout:
		return fmt.Errorf("%s: %s: no override moves it in any version; in this layout its owner is %s", fact.Key,
			wanted, layout)
	case wanted == pair.OwnerSplit && p.legacyStore == p.modernStore:
		return fmt.Errorf("%s: %s: both sides keep it in store %q", fact.Key, wanted, p.legacyStore)
	case wanted != pair.OwnerModern && !fact.In(p.legacy):
		return fmt.Errorf("%s: %s: %s does not have it; its owner can only be modern", fact.Key, wanted, p.legacy)
	case wanted != pair.OwnerLegacy && !fact.In(p.modern):
		return fmt.Errorf("%s: %s: %s does not have it; its owner can only be legacy", fact.Key, wanted, p.modern)
	}
	return nil
}

// locate moves the modern side's row to the legacy side's store when both must look at the same objects, and names the
// overrides.
func (p *placement) locate(fact kubever.Resource, row *Resource) {
	if row.Owner == pair.OwnerSplit || row.Legacy.Store == "" || row.Modern.Store == "" ||
		row.Modern.Store == row.Legacy.Store {
		return
	}
	row.Modern.Store = row.Legacy.Store
	row.Overrides = overrideNames(fact, p.modern)
}

// overrideNames are the GROUP/RESOURCE entries for a resource: one for each group under which the version may choose to
// keep it. Only the group that it chooses has an effect; --runtime-config can flip that choice, and an entry too many
// does no harm.
func overrideNames(fact kubever.Resource, m kubever.Minor) []string {
	if !fact.Overridable() {
		return nil
	}
	var names []string
	for _, group := range fact.CohabitingGroups(m) {
		names = append(names, group+"/"+fact.OverrideName())
	}
	return names
}

// followServices returns the rows with the owner and the places of the services for the ranges of the allocators.
func (p *placement) followServices(rows []Resource) []Resource {
	followed := slices.Clone(rows)
	for i := range followed {
		row := &followed[i]
		fact, _ := kubever.ResourceByKey(row.Key)
		if fact.Follows() == "" {
			continue
		}
		leader := rowOf(rows, fact.Follows())
		if leader == nil {
			continue
		}
		row.Owner = leader.Owner
		row.Why = "lies where " + leader.Name + " lie"
		if row.Legacy.Store != "" {
			row.Legacy.Store = leader.Legacy.Store
		}
		if row.Modern.Store != "" {
			row.Modern.Store = leader.Modern.Store
		}
	}
	return followed
}

// named finds what the spec says of a resource's owner: the last entry that names it. A star stands for what both
// versions have, since only there is an owner to choose.
func (p *placement) named(fact kubever.Resource) (entry int, ok bool) {
	both := fact.In(p.legacy) && fact.In(p.modern) && fact.Overridable()
	for i := len(p.file.Spec.Owners) - 1; i >= 0; i-- {
		for _, pattern := range p.file.Spec.Owners[i].Resources {
			one := spec.Owning{Resources: []string{pattern}}
			if one.Names(fact) && (both || spec.SplitResource(pattern).Resource != "*") {
				return i, true
			}
		}
	}
	return 0, false
}
