package plan

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// CollectorDanger is an owner reference by which a side's garbage collector, were it on, would delete objects of the other side.
type CollectorDanger struct {
	Dependent string // key of the resource whose objects would be deleted
	Name      string // plural of that resource
	Owner     string // kind of the owner
	Reference string // the owner's apiVersion as the reference has it
	// Misled says that the collector's API server does not serve the owner in the reference's version: this collector takes its
	// 404 for the owner's absence.
	Misled bool
	// Scope says that the owner exists, and that the collector looks for it in a namespace although it is in none.
	Scope bool
}

// String says what would happen, as a clause.
func (d CollectorDanger) String() string {
	switch {
	case d.Scope:
		return fmt.Sprintf("it looks for the %s that owns %s in a namespace and deletes what it does not find", d.Owner, d.Name)
	case d.Misled:
		return fmt.Sprintf("it would delete %s that the other side's %s owns: its API server answers 404 to %s, and it takes that for an absent owner", d.Name, d.Owner, d.Reference)
	default:
		return fmt.Sprintf("it would delete %s that the other side's %s owns: it sees the %s and looks for a %s of %s, which is in the other store", d.Name, d.Owner, d.Name, d.Owner, d.Reference)
	}
}

// CollectorDangers lists what a side's garbage collector would delete of the other side's, whether it runs or not; what hurts most
// comes first. Empty: it leaves alone everything whose owner it cannot see.
//
// A collector reads an object's owner references and asks its own API server for each owner. When the object is visible to both
// sides and the owner only to the other, what happens depends on the collector's version and on whether its API server serves
// the owner's kind and version. The references are those that the other side's running controllers and the kubelets write.
func (p *Plan) CollectorDangers(side pair.Side) []CollectorDanger {
	other := side.Other()
	var running []string
	for _, c := range p.Controllers {
		if c.Side == other && c.On {
			running = append(running, c.ID)
		}
	}
	minor := p.Side(side).Version.Minor
	gc := kubever.GarbageCollectionIn(minor)
	var dangers []CollectorDanger
	for _, ref := range referencesOf(p.Side(other).Version.Minor, p.Kubelet.Minor, running) {
		dependent, owner := p.Resource(ref.Dependent), rowOfKind(p.Resources, ref.Owner)
		if dependent == nil || !dependent.VisibleToBoth() {
			continue
		}
		danger := CollectorDanger{Dependent: dependent.Key, Name: dependent.Name, Owner: ref.Owner.Kind, Reference: ref.APIVersion}
		if owner != nil && owner.VisibleToBoth() {
			if danger.Scope = gc.ClusterOwner == kubever.Deleted && !owner.Namespaced && dependent.Namespaced; danger.Scope {
				dangers = append(dangers, danger)
			}
			continue
		}
		outcome := kubever.AbsentOwner(ref.OwnerGVK(), minor)
		if owner != nil && len(owner.View(side).Serves) == 0 && owner.View(side).Store == "" {
			outcome = gc.UnknownKind // its version never had it, or the plan keeps its API server from serving it
		}
		if outcome == kubever.Deleted {
			danger.Misled = !kubever.ServesGVK(ref.OwnerGVK(), minor)
			dangers = append(dangers, danger)
		}
	}
	slices.SortStableFunc(dangers, func(a, b CollectorDanger) int { return weight(a) - weight(b) })
	return dangers
}

// weight puts what hurts most first, so that the reason given is the one that matters.
func weight(d CollectorDanger) int {
	if d.Dependent == "pods" {
		return 0
	}
	return 1
}

// referencesOf are the owner references that a side's running controllers and the kubelets write.
func referencesOf(m, kubelet kubever.Minor, running []string) []kubever.OwnerReference {
	const byKubelet = "kubelet"
	var refs []kubever.OwnerReference
	for _, ref := range kubever.OwnerReferences(m) {
		if ref.Controller != byKubelet && slices.Contains(running, ref.Controller) {
			refs = append(refs, ref)
		}
	}
	for _, ref := range kubever.OwnerReferences(kubelet) {
		if ref.Controller == byKubelet {
			refs = append(refs, ref)
		}
	}
	return refs
}

func rowOf(rows []Resource, key string) *Resource {
	for i := range rows { // a row is too large to be copied for each comparison
		if rows[i].Key == key {
			return &rows[i]
		}
	}
	return nil
}

func rowOfKind(rows []Resource, kind schema.GroupKind) *Resource {
	for i := range rows {
		if rows[i].ServesKind(kind.Group, kind.Kind) {
			return &rows[i]
		}
	}
	return nil
}
