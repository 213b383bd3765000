package scan

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/keyindex"
	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/gc"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// verdict is what one side's garbage collector sees of one kind of reference; whether it has the owner depends on the
// owner's UID.
type verdict struct {
	gc.Reference
	lookup   *storeScan // where the owner is looked for by UID; nil when what is seen does not depend on it
	resource string     // of the owner, in that store
	number   uint16     // of that resource
	exists   bool       // does some object of it
}

// findDangling reports the objects that a side's garbage collector deletes, or would delete if it ran, because it does
// not find any of their owners; and token secrets whose service account was deleted.
func (r *reporter) findDangling(ctx context.Context) {
	uids := map[string]*keyindex.UIDSet{}
	for _, store := range r.stores {
		if r.compare {
			uids[store.Name] = store.index.UIDs() // the index is no longer used
		} else {
			uids[store.Name] = &store.uids
		}
	}
	for _, store := range r.stores {
		d := danglingIn{reporter: r, store: store, uids: uids, verdicts: map[pair.Side][]*verdict{},
			found: map[dangling]*counted{}}
		for _, side := range pair.Sides() {
			d.verdicts[side] = make([]*verdict, len(r.kinds))
			for i := range r.kinds {
				d.verdicts[side][i] = r.verdict(store, side, &r.kinds[i])
			}
			d.count(side)
		}
		d.name(ctx)
		d.report()
	}
}

// dangling is what dangling objects have in common: the side that does not find their owners, the kind of the reference
// to the first owner, and why that owner is not found.
type dangling struct {
	side  pair.Side
	kind  uint16
	sight gc.Sight
}

// danglingIn looks for dangling objects in one store.
type danglingIn struct {
	*reporter
	store    *storeScan
	uids     map[string]*keyindex.UIDSet
	verdicts map[pair.Side][]*verdict // by kind
	found    map[dangling]*counted
	// owners that were looked up again, for the dependents of one resource, which often share one
	owners map[keyIn]ownerNow
}

// count counts the objects that a side deletes.
func (d *danglingIn) count(side pair.Side) {
	tokens := slices.ContainsFunc(d.kinds, func(k referenceKind) bool { return k.Token })
	if c := d.m.ControlPlane(side).Collector; !tokens && !c.Deletes() {
		return
	}
	var o owned
	for _, part := range d.store.total.references.Parts {
		for i := range part {
			if group, dangles := d.see(&o, side, part[i]); dangles {
				if d.found[group] == nil {
					d.found[group] = &counted{}
				}
				d.found[group].keys++
			}
		}
	}
}

// owned is what was seen of the references of one object up to now.
type owned struct {
	begun, held bool
	first       dangling
}

// see adds the next reference of an object. With the last one it returns whether the object dangles: none of its owners
// is found.
func (d *danglingIn) see(o *owned, side pair.Side, ref reference) (group dangling, dangles bool) {
	seen := gc.Undecided
	if v := d.verdicts[side][ref.kind]; v != nil {
		seen = v.see(ref, d.uids)
	}
	if !o.begun {
		*o = owned{begun: true, first: dangling{side, ref.kind, seen}}
	}
	lost := d.m.ControlPlane(side).Collector.Outcome(seen) == gc.Deleted
	if d.kinds[ref.kind].Token {
		lost = seen == gc.Absent // the token controller asks for the account, not the garbage collector
	}
	o.held = o.held || !lost
	o.begun = ref.more
	return o.first, !ref.more && !o.held
}

func (v *verdict) see(ref reference, uids map[string]*keyindex.UIDSet) gc.Sight {
	r := v.Reference
	if v.lookup != nil {
		namespace := ref.namespace
		if !v.OwnerNamespaced {
			namespace = 0
		}
		r.Owner = gc.Missing
		if v.exists && uids[v.lookup.Name].Has(keyindex.Placed(ref.uid, v.number, namespace)) {
			r.Owner = gc.Present
		}
	}
	return r.Sight()
}

// verdict decides what the side sees of a kind of reference in the store; nil when it does not look at the dependents.
func (r *reporter) verdict(store *storeScan, side pair.Side, kind *referenceKind) *verdict {
	dependents := store.total.resources[kind.Dependent]
	if dependents == nil || dependents.row == nil || dependents.row.View(side).Store != store.Name {
		return nil
	}
	if kind.Token {
		return r.tokenVerdict(side)
	}
	owner, known := r.ownerKindOf(side, kind)
	v := &verdict{resource: owner.resource, Reference: gc.Reference{
		KnownKind: known, ServedVersion: owner.served, OwnerNamespaced: owner.namespaced, Namespaced: kind.Namespaced,
	}}
	if v.Sight() != gc.Undecided {
		return v // whether the owner exists or not
	}
	if !r.lookIn(v, owner.store) {
		return nil
	}
	return v
}

// lookIn makes the verdict depend on whether the store holds the owner, and reports whether that can be told: what was
// not read, or cannot be read because it is encrypted or damaged, cannot be missed.
func (r *reporter) lookIn(v *verdict, store string) bool {
	v.lookup = r.whole(store)
	if v.lookup == nil {
		return false
	}
	v.number, v.exists = r.numbers[v.resource]
	return v.lookup.legible(v.resource)
}

// legible reports whether all objects of the resource in the store were read, so that one which was not seen is not
// there.
func (s *storeScan) legible(resource string) bool {
	t := s.total.resources[resource]
	return len(s.incomplete) == 0 && (t == nil || len(t.encrypted)+len(t.unreadable) == 0)
}

// whole returns the scan of the store, nil when it was not read to its end.
func (s *scan) whole(name string) *storeScan {
	if store := s.store(name); store != nil && len(store.incomplete) == 0 {
		return store
	}
	return nil
}

func (r *reporter) tokenVerdict(side pair.Side) *verdict {
	accounts := storage.RowOf(r.m, storage.Key{Form: storage.FormObject, Resource: "serviceaccounts"})
	if accounts == nil {
		return nil
	}
	v := verdict{resource: accounts.Key, Reference: gc.Reference{KnownKind: true, ServedVersion: true,
		OwnerNamespaced: true, Namespaced: true}}
	if !r.lookIn(&v, accounts.View(side).Store) {
		return nil
	}
	return &v
}

// ownerKind is where a side keeps the objects of a kind, and whether it serves the version of it.
type ownerKind struct {
	resource   string
	namespaced bool
	store      string
	served     bool
}

func (r *reporter) ownerKindOf(side pair.Side, kind *referenceKind) (owner ownerKind, known bool) {
	group, version := splitAPIVersion(kind.APIVersion)
	return r.ownerKind(side, group, version, kind.Kind)
}

func (r *reporter) ownerKind(side pair.Side, group, version, kind string) (owner ownerKind, known bool) {
	apiVersion := joinAPIVersion(group, version)
	for i := range r.m.Resources {
		row := &r.m.Resources[i]
		on := row.View(side)
		if !row.ServesKind(group, kind) || on.Store == "" {
			continue
		}
		known := on.Serves
		if r.m.ControlPlane(side).Collector.KnowsUnserved {
			known = on.Decodes
		}
		// The mapper knows the kind of a group when it knows any version of that group.
		if slices.ContainsFunc(known, func(gv string) bool { g, _ := splitAPIVersion(gv); return g == group }) {
			return ownerKind{row.Key, row.Namespaced, on.Store, slices.Contains(on.Serves, apiVersion)}, true
		}
	}
	crds := r.store(r.m.ControlPlane(side).Store)
	if crds == nil || len(r.m.ControlPlane(side).CRDFields) == 0 {
		return ownerKind{}, false
	}
	for _, name := range sortedKeys(crds.total.facts.crds) {
		c := crds.total.facts.crds[name]
		// Of two with one kind the API server serves the one whose names it has accepted.
		if c.Spec.Group == group && c.Spec.Names.Kind == kind && (!known || c.accepted()) {
			owner, known = ownerKind{name, c.Spec.Scope != "Cluster", crds.Name, c.serves(version)}, true
		}
	}
	return owner, known
}

// accepted reports whether an API server has accepted the names of the CRD.
func (c *crd) accepted() bool {
	for _, condition := range c.Status.Conditions {
		if condition.Type == "NamesAccepted" {
			return condition.Status == "True"
		}
	}
	return false
}

func (c *crd) serves(version string) bool {
	if len(c.Spec.Versions) == 0 {
		return c.Spec.Version == version
	}
	for _, v := range c.Spec.Versions {
		if v.Name == version {
			return v.Served
		}
	}
	return false
}

func splitAPIVersion(apiVersion string) (group, version string) {
	if group, version, ok := strings.Cut(apiVersion, "/"); ok {
		return group, version
	}
	return "", apiVersion
}

func joinAPIVersion(group, version string) string {
	if group == "" {
		return version
	}
	return group + "/" + version
}

func (d *danglingIn) report() {
	groups := make([]dangling, 0, len(d.found))
	for group := range d.found {
		groups = append(groups, group)
	}
	slices.SortFunc(groups, func(a, b dangling) int {
		return cmp.Or(cmp.Compare(a.side, b.side), cmp.Compare(a.kind, b.kind), cmp.Compare(a.sight, b.sight))
	})
	for _, group := range groups {
		kind, c := &d.kinds[group.kind], d.found[group]
		if !kind.Token {
			d.addDanglingFinding(d.store, group.side, group.sight, kind, c)
			continue
		}
		d.add(d.store.Name, kind.Dependent, finding.Finding{Rule: "FUS100", Severity: finding.Warning,
			Key: string(group.side), Count: c.count(), Related: c.samples,
			Message: fmt.Sprintf("%s of service accounts that the %s side does not have: it refuses these tokens, "+
				"and its token controller deletes the secrets", prose.Counted(c.keys, "token secret"), group.side),
			Fix: "keep secrets and serviceaccounts in one store for both sides"})
	}
}

func (r *reporter) addDanglingFinding(store *storeScan, side pair.Side, seen gc.Sight, kind *referenceKind,
	c *counted) {
	plane := r.m.ControlPlane(side)
	owner, _ := r.ownerKindOf(side, kind)
	why := seen.Why()
	if seen == gc.Absent {
		if owner.namespaced {
			why += " in the object's namespace"
		}
		why += " in store " + owner.store
	}
	f := finding.Finding{Rule: seen.Rule(kind.Dependent, kind.Kind), Severity: finding.Error, Count: c.count(),
		Related: c.samples,
		Key:     finding.Key(string(side), kind.APIVersion+" "+kind.Kind, seen.Key())}
	objects := prose.Counted(c.keys, strings.TrimSuffix(storage.PlainName(kind.Dependent), "s"))
	if plane.Collector.Runs {
		f.Message = fmt.Sprintf("the garbage collector of the %s side (%s) deletes %s owned by %s %s: it %s", side,
			plane.Version, objects, kind.APIVersion, kind.Kind, why)
		version, _ := kubever.Parse(plane.Version)
		f.Fix = fmt.Sprintf("%s; or set owner shared for the resource of these owners",
			gc.TurnOff(string(side), kubever.GarbageCollectorName(version.Minor)))
	} else {
		f.Severity = finding.Info
		f.Message = fmt.Sprintf("the garbage collector of the %s side (%s), which is off, would delete %s owned by "+
			"%s %s: it %s", side, plane.Version, objects, kind.APIVersion, kind.Kind, why)
		f.Fix = "keep the garbage collector off"
		if seen == gc.Absent {
			f.Fix += "; fusionctl controllers delete those whose owner is on neither side"
		}
	}
	r.add(store.Name, kind.Dependent, f)
}
