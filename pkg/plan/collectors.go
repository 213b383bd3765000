package plan

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/gc"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// CollectorDanger is an owner reference by which a side's garbage collector, were it on, would delete objects of the
// other side.
type CollectorDanger struct {
	Dependent string // key of the resource whose objects would be deleted
	Name      string // plural of that resource
	Owner     string // kind of the owner; "" for a custom resource, whose kind is not known beforehand
	Reference string // the owner's apiVersion as the reference has it; "" for a custom resource
	// Seen is what the collector sees of the owner: gc.UnservedVersion, whose 404 it takes for the owner's absence,
	// gc.Absent, or gc.ClusterOwner, which exists.
	Seen gc.Sight
	// ThirdParty: the owner is the object of a ThirdPartyResource of the other side.
	ThirdParty bool
}

// String says what would happen, as a clause.
func (d CollectorDanger) String() string {
	switch {
	case d.ThirdParty:
		return fmt.Sprintf("it would delete %s that objects of the other side's ThirdPartyResources own: where this "+
			"side has a CRD of one of their kinds, it sees the %s and looks up an owner that is in the other store",
			d.Name, d.Name)
	case d.Custom():
		return fmt.Sprintf("it would delete %s that the other side's custom resources own: where both sides have a "+
			"CRD of one kind, it sees the %s and looks up an owner that is in the other store", d.Name, d.Name)
	case d.Seen == gc.ClusterOwner:
		return fmt.Sprintf("it looks up the %s that owns %s in a namespace, and deletes the dependents that do not "+
			"have it there", d.Owner,
			d.Name)
	case d.Seen == gc.UnservedVersion:
		return fmt.Sprintf("it would delete %s that the other side's %s owns: its API server answers 404 to %s, and "+
			"it takes that for an absent owner", d.Name, d.Owner, d.Reference)
	default:
		return fmt.Sprintf("it would delete %s that the other side's %s owns: it sees the %s and looks up a %s of "+
			"%s, which is in the other store", d.Name, d.Owner, d.Name, d.Owner, d.Reference)
	}
}

// Custom reports whether the owner is a custom resource, whose CRD both sides may have.
func (d CollectorDanger) Custom() bool { return d.Owner == "" }

// CollectorDangers lists what a side's garbage collector would delete of the other side's, whether it runs or not; what
// hurts most comes first. Empty: it leaves alone everything whose owner it cannot see.
//
// A collector reads an object's owner references and asks its own API server for each owner. When the object is visible
// to both sides and the owner only to the other, what happens depends on the collector's version and on whether its API
// server serves the owner's kind and version. The references are those that the other side's running controllers and
// the kubelets write, and those that clients write for custom resources.
func (p *Plan) CollectorDangers(side pair.Side) []CollectorDanger {
	minors := map[pair.Side]kubever.Minor{pair.Legacy: p.Legacy.Version.Minor, pair.Modern: p.Modern.Version.Minor}
	return collectorDangers(side, minors, p.KubeletMinors(), p.Resources, p.Controllers, p.CustomResources)
}

func collectorDangers(side pair.Side, minors map[pair.Side]kubever.Minor, kubelets []kubever.Minor, rows []Resource,
	controllers []Controller, custom pair.Resource) []CollectorDanger {
	other := side.Other()
	var running []string
	for _, c := range controllers {
		if c.Side == other && c.On {
			running = append(running, c.ID)
		}
	}
	minor := minors[side]
	collector := kubever.GarbageCollectorIn(minor)
	var dangers []CollectorDanger
	for _, ref := range referencesOf(minors[other], kubelets, running) {
		dependent, owner := rowOf(rows, ref.Dependent), rowOfKind(rows, ref.Owner)
		if dependent == nil || !dependent.VisibleToBoth() {
			continue
		}
		seen := sightOf(side, minor, ref, dependent, owner)
		if collector.Outcome(seen) == gc.Deleted {
			dangers = append(dangers, CollectorDanger{
				Dependent: dependent.Key, Name: dependent.Name, Owner: ref.Owner.Kind, Reference: ref.APIVersion,
				Seen: seen,
			})
		}
	}
	thirdParty := meetsThirdParty(side, minor, rows)
	if custom.Owner == pair.OwnerSplit || thirdParty {
		if d, ok := customDanger(collector, rows); ok {
			d.ThirdParty = thirdParty && custom.Owner != pair.OwnerSplit
			dangers = append(dangers, d)
		}
	}
	slices.SortStableFunc(dangers, func(a, b CollectorDanger) int { return weight(a) - weight(b) })
	return dangers
}

// sightOf is what a side's garbage collector sees of an owner that the other side has.
func sightOf(side pair.Side, minor kubever.Minor, ref kubever.OwnerReference, dependent, owner *Resource) gc.Sight {
	r := gc.Reference{
		KnownKind:       kubever.GarbageCollectorKnows(ref.Owner, minor),
		ServedVersion:   kubever.ServesGVK(ref.OwnerGVK(), minor),
		OwnerNamespaced: owner == nil || owner.Namespaced, Namespaced: dependent.Namespaced, Owner: gc.Missing,
	}
	if owner != nil {
		if view := owner.View(side); len(view.Serves) == 0 && view.Store == "" {
			r.KnownKind = false // its version never had it, or the plan keeps its API server from serving it
		}
		if owner.VisibleToBoth() {
			r.Owner = gc.Present
		}
	}
	return r.Sight()
}

// weight puts what hurts most first, so that the reason given is the one that matters.
func weight(d CollectorDanger) int {
	switch {
	case d.Custom():
		return 2
	case d.Dependent == "pods":
		return 0
	}
	return 1
}

// meetsThirdParty reports whether a side can have a CRD of the kind of a ThirdPartyResource of the other side, as when
// an operator that was written for these moves. The objects of the two are at different keys, whatever the layout, and
// only the side of the ThirdPartyResource reads its own. A collector that knows compiled-in kinds alone leaves both be.
func meetsThirdParty(side pair.Side, minor kubever.Minor, rows []Resource) bool {
	if !kubever.Behaves(kubever.BehaviourCRDServed, minor) || kubever.GarbageCollectorIn(minor).KnowsUnserved {
		return false
	}
	definitions := rowOf(rows, "thirdpartyresources")
	if definitions == nil {
		return false
	}
	there := definitions.View(side.Other())
	return len(there.Serves) > 0 && there.Store != ""
}

// customDanger is what a collector deletes for custom resources that are in the other side's store. Which kinds have a
// definition on both sides is not known beforehand, nor what their controllers create; pods stand for it where they are
// visible.
func customDanger(collector gc.Collector, rows []Resource) (CollectorDanger, bool) {
	if collector.Outcome(gc.Absent) != gc.Deleted {
		return CollectorDanger{}, false
	}
	dependent := rowOf(rows, "pods")
	if dependent == nil || !dependent.VisibleToBoth() {
		at := slices.IndexFunc(rows, func(r Resource) bool { return r.Namespaced && r.VisibleToBoth() })
		if at < 0 {
			return CollectorDanger{}, false
		}
		dependent = &rows[at]
	}
	return CollectorDanger{Dependent: dependent.Key, Name: dependent.Name, Seen: gc.Absent}, true
}

// referencesOf are the owner references that a side's running controllers and the kubelets write.
func referencesOf(m kubever.Minor, kubelets []kubever.Minor, running []string) []kubever.OwnerReference {
	const byKubelet = "kubelet"
	var refs []kubever.OwnerReference
	for _, ref := range kubever.OwnerReferences(m) {
		if ref.Controller != byKubelet && slices.Contains(running, ref.Controller) {
			refs = append(refs, ref)
		}
	}
	for _, kubelet := range kubelets {
		for _, ref := range kubever.OwnerReferences(kubelet) {
			if ref.Controller == byKubelet && !slices.Contains(refs, ref) {
				refs = append(refs, ref)
			}
		}
	}
	return refs
}

func rowOfKind(rows []Resource, kind schema.GroupKind) *Resource {
	for i := range rows {
		if rows[i].ServesKind(kind.Group, kind.Kind) {
			return &rows[i]
		}
	}
	return nil
}
