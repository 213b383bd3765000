package plan

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// collectorVerdict says whether the garbage collector of one side may run: it must not be able to delete an object whose owner
// lives where it cannot look. One sentence says why, with the case that decides.
//
// A collector reads an object's owner references and asks its own API server for each owner. When the object is visible to both
// sides and the owner only to the other, what happens depends on the collector's version and on whether its API server serves
// the owner's kind and version.
func collectorVerdict(side etcdsplit.SideName, minor kubever.Minor, refs []kubever.OwnerReference, rows []Resource) (safe bool, why string) {
	gc := kubever.GarbageCollectionIn(minor)
	refs = slices.Clone(refs)
	slices.SortStableFunc(refs, func(a, b kubever.OwnerReference) int { return weight(a) - weight(b) })
	for _, ref := range refs {
		dependent, owner := rowOf(rows, ref.Dependent), rowOfKind(rows, ref.Owner)
		if dependent == nil || !visibleToBoth(dependent) {
			continue
		}
		if owner != nil && visibleToBoth(owner) {
			if gc.ClusterOwner == kubever.Deleted && !owner.Namespaced && dependent.Namespaced {
				return false, fmt.Sprintf("%s looks for the %s that owns %s in a namespace and deletes what it does not find", minor, ref.Owner.Kind, dependent.Name)
			}
			continue
		}
		outcome := kubever.AbsentOwner(ref.OwnerGVK(), minor)
		if owner != nil && owner.Side(side).Store == "" && len(owner.Side(side).Decodes) == 0 {
			outcome = gc.UnknownKind // the plan keeps this API server from serving it, or its version never heard of it
		}
		if outcome == kubever.Deleted {
			return false, fmt.Sprintf("it would delete %s that the other side's %s owns: it sees the %s and looks for %s %s, which it cannot find",
				dependent.Name, ref.Owner.Kind, dependent.Name, ref.APIVersion, ref.Owner.Kind)
		}
	}
	return true, "every owner that it could miss is of a kind or version that its API server does not serve, and this version leaves such objects alone"
}

// weight puts what hurts most first, so that the reason given is the one that matters.
func weight(ref kubever.OwnerReference) int {
	if ref.Dependent == "pods" {
		return 0
	}
	return 1
}

// referencesOf are the owner references that a side's controllers and the kubelets write: those of the controllers that run.
func (p *placement) referencesOf(m kubever.Minor, runs func(controller string) bool) []kubever.OwnerReference {
	const kubelet = "kubelet"
	var refs []kubever.OwnerReference
	for _, ref := range kubever.OwnerReferences(m) {
		if ref.Controller != kubelet && runs(ref.Controller) {
			refs = append(refs, ref)
		}
	}
	for _, ref := range kubever.OwnerReferences(p.file.Spec.Kubelet.Version.Minor) {
		if ref.Controller == kubelet {
			refs = append(refs, ref)
		}
	}
	return refs
}

// visibleToBoth reports whether both sides look at the same objects of the resource.
func visibleToBoth(row *Resource) bool {
	return row.Legacy.Store != "" && row.Legacy.Store == row.Modern.Store
}

func rowOf(rows []Resource, key string) *Resource {
	if i := slices.IndexFunc(rows, func(r Resource) bool { return r.Key == key }); i >= 0 {
		return &rows[i]
	}
	return nil
}

func rowOfKind(rows []Resource, kind schema.GroupKind) *Resource {
	if i := slices.IndexFunc(rows, func(r Resource) bool { return r.ServesKind(kind.Group, kind.Kind) }); i >= 0 {
		return &rows[i]
	}
	return nil
}
