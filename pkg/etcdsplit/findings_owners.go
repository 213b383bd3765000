package etcdsplit

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/finding"
)

// sight is what a side's garbage collector makes of an owner.
type sight int

const (
	seesOwner       sight = iota // or cannot tell: nothing is deleted
	unknownKind                  // it has no such kind
	unservedVersion              // it knows the kind, but not in this version
	absentOwner                  // it serves kind and version, and finds no such object
	clusterOwner                 // it looks for a cluster-scoped owner in the dependent's namespace
)

// verdict is the sight of one kind of reference on one side, as far as it does not depend on the owner's UID.
type verdict struct {
	fixed  sight      // when lookup is nil
	lookup *storeScan // where the owner is looked for by UID
}

// findDangling reports the objects that a side's garbage collector deletes, or would delete if it ran, because it does not
// find any of their owners; and token secrets whose service account is gone.
func (r *reporter) findDangling(ctx context.Context) {
	uids := map[string]*uidSet{}
	for _, store := range r.stores {
		if len(r.stores) > 1 {
			uids[store.Name] = store.index.uids() // the index is needed no more
		} else {
			store.uids.sort()
			uids[store.Name] = &store.uids
		}
	}
	for _, store := range r.stores {
		for _, side := range Sides() {
			r.findDanglingOn(ctx, store, side, uids)
		}
	}
}

// dangling counts the objects of one dependent resource that share an owner's kind and a sight.
type dangling struct {
	kind  uint16
	sight sight
}

func (r *reporter) findDanglingOn(ctx context.Context, store *storeScan, side SideName, uids map[string]*uidSet) {
	verdicts := make([]*verdict, len(r.kinds))
	for i := range r.kinds {
		verdicts[i] = r.verdict(store, side, &r.kinds[i])
	}
	found := map[dangling]*counted{}
	// References of one object stand behind each other: the object is deleted when no owner holds it.
	held, first := false, dangling{}
	fresh := true
	for _, chunk := range store.total.references {
		for i := range chunk {
			ref := &chunk[i]
			seen := seesOwner
			if v := verdicts[ref.kind]; v != nil {
				seen = v.see(ref.uid, uids)
			}
			if fresh {
				held, first = false, dangling{ref.kind, seen}
			}
			held = held || r.m.ControlPlane(side).Collector.outcome(seen) != Deleted && !r.kinds[ref.kind].Token || seen == seesOwner
			fresh = !ref.more
			if ref.more || held {
				continue
			}
			r.addDangling(found, store, first, ref)
		}
	}
	r.reportDangling(ctx, store, side, found)
}

func (r *reporter) addDangling(found map[dangling]*counted, store *storeScan, d dangling, ref *reference) {
	c, ok := found[d]
	if !ok {
		c = &counted{}
		found[d] = c
	}
	c.keys++
	if ref.names == 0 {
		return
	}
	line := store.total.names[ref.names-1:]
	if end := bytes.IndexByte(line, '\n'); end >= 0 {
		line = line[:end]
	}
	key, owner, _ := strings.Cut(string(line), "\x00")
	c.samples.add(key + " (owner " + owner + ")")
}

func (v *verdict) see(uid uint64, uids map[string]*uidSet) sight {
	if v.lookup == nil {
		return v.fixed
	}
	if uids[v.lookup.Name].has(uid) {
		return v.fixed
	}
	return absentOwner
}

// verdict decides what the side sees of a kind of reference in the store; nil when it does not look at the dependents.
func (r *reporter) verdict(store *storeScan, side SideName, kind *referenceKind) *verdict {
	dependents := store.total.resources[kind.Dependent]
	if dependents == nil || dependents.row == nil || dependents.row.Side(side).Store != store.Name {
		return nil
	}
	if kind.Token {
		return r.tokenVerdict(side)
	}
	group, version := splitAPIVersion(kind.APIVersion)
	home, namespaced, served, known := r.ownerKind(side, group, version, kind.Kind)
	if !known {
		return &verdict{fixed: unknownKind}
	}
	if !served {
		return &verdict{fixed: unservedVersion}
	}
	lookup := r.store(home)
	if lookup == nil || len(lookup.incomplete) > 0 {
		return nil // what was not read cannot be missed
	}
	if !namespaced && kind.Namespaced {
		return &verdict{fixed: clusterOwner, lookup: lookup}
	}
	return &verdict{fixed: seesOwner, lookup: lookup}
}

func (r *reporter) tokenVerdict(side SideName) *verdict {
	accounts := r.m.Row(Key{Form: FormObject, Resource: "serviceaccounts"})
	if accounts == nil {
		return nil
	}
	lookup := r.store(accounts.Side(side).Store)
	if lookup == nil || len(lookup.incomplete) > 0 {
		return nil
	}
	return &verdict{fixed: seesOwner, lookup: lookup}
}

// ownerKind finds where a side keeps the objects of a kind, and whether it serves the version of it.
func (r *reporter) ownerKind(side SideName, group, version, kind string) (store string, namespaced, served, known bool) {
	apiVersion := joinAPIVersion(group, version)
	for i := range r.m.Resources {
		row := &r.m.Resources[i]
		on := row.Side(side)
		if !row.ServesKind(group, kind) || on.Store == "" || len(on.Serves) == 0 {
			continue
		}
		// The mapper knows the kind of a group when it serves any version of that group.
		if slices.ContainsFunc(on.Serves, func(gv string) bool { g, _ := splitAPIVersion(gv); return g == group }) {
			return on.Store, row.Namespaced, slices.Contains(on.Serves, apiVersion), true
		}
	}
	crds := r.store(r.m.ControlPlane(side).Store)
	if crds == nil || len(r.m.ControlPlane(side).CRDFields) == 0 {
		return "", false, false, false
	}
	for _, c := range crds.total.facts.crds {
		if c.Spec.Group == group && c.Spec.Names.Kind == kind {
			return crds.Name, c.Spec.Scope != "Cluster", c.serves(version), true
		}
	}
	return "", false, false, false
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

func (r *reporter) reportDangling(ctx context.Context, store *storeScan, side SideName, found map[dangling]*counted) {
	keys := make([]dangling, 0, len(found))
	for d := range found {
		keys = append(keys, d)
	}
	slices.SortFunc(keys, func(a, b dangling) int { return int(a.kind) - int(b.kind) + (int(a.sight)-int(b.sight))<<20 })
	for _, d := range keys {
		kind, c := &r.kinds[d.kind], found[d]
		if kind.Token {
			r.add(store.Name, kind.Dependent, finding.Finding{Rule: "FUS100", Severity: finding.Warning, Related: c.samples,
				Message: fmt.Sprintf("%s of service accounts that the %s side does not have: it refuses these tokens, and its token controller deletes them", plural(c.keys, "token secret"), side),
				Fix:     "keep secrets and serviceaccounts in one store for both sides"})
			continue
		}
		r.addDanglingFinding(store, side, d.sight, kind, c)
	}
}

func (r *reporter) addDanglingFinding(store *storeScan, side SideName, seen sight, kind *referenceKind, c *counted) {
	plane := r.m.ControlPlane(side)
	outcome := plane.Collector.outcome(seen)
	if outcome != Deleted {
		return
	}
	why := map[sight]string{
		unknownKind:     "does not know that kind, and takes that for an absent owner",
		absentOwner:     "serves that kind and does not find the owner",
		unservedVersion: "knows that kind but not in this version, and takes the 404 for an absent owner",
		clusterOwner:    "looks for the cluster-scoped owner in the namespace of the object",
	}[seen]
	f := finding.Finding{Rule: "FUS060", Severity: finding.Error, Related: c.samples}
	switch {
	case seen == clusterOwner && kind.Kind == "Node":
		f.Rule = "FUS062"
	case seen != absentOwner:
		f.Rule = "FUS061"
	}
	objects := plural(c.keys, strings.TrimSuffix(PlainName(kind.Dependent), "s"))
	if plane.Collector.Runs {
		f.Message = fmt.Sprintf("the garbage collector of the %s side (%s) deletes %s owned by %s %s: it %s", side, plane.Version, objects, kind.APIVersion, kind.Kind, why)
		f.Fix = fmt.Sprintf("switch the garbage collector of the %s side off before it runs again (--controllers=...,-garbagecollector), or let both sides see these owners", side)
	} else {
		f.Severity = finding.Info
		f.Message = fmt.Sprintf("the garbage collector of the %s side (%s), which is off, would delete %s owned by %s %s: it %s", side, plane.Version, objects, kind.APIVersion, kind.Kind, why)
		f.Fix = "keep it off"
	}
	r.add(store.Name, kind.Dependent, f)
}

func (c *Collector) outcome(seen sight) Outcome {
	switch seen {
	case unknownKind:
		return c.UnknownKind
	case unservedVersion:
		return c.UnservedVersion
	case absentOwner:
		return c.AbsentOwner
	case clusterOwner:
		return c.ClusterOwner
	}
	return Safe
}
