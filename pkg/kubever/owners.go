package kubever

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// OwnerReference is an ownerReference that a minor's controllers, or its kubelets, write into objects.
// Shape: at 1.6 {Dependent: pods, Owner: ReplicaSet.extensions, APIVersion: extensions/v1beta1, Controller: replicaset-controller}.
type OwnerReference struct {
	Dependent  string           // Key of the resource whose objects carry the reference
	Owner      schema.GroupKind // what they refer to
	APIVersion string           // as written in the reference: "apps/v1"
	Controller string           // canonical name of the controller that writes it, or "kubelet"
	Source     string
}

// OwnerGVK returns the owner's group, version and kind as the reference names them.
func (o OwnerReference) OwnerGVK() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(o.APIVersion, o.Owner.Kind)
}

type ownerRow struct {
	dependent, kind, controller string
	apiVersions                 []during[schema.GroupVersion]
}

var ownerTable = sync.OnceValue(decodeOwners)

func decodeOwners() []ownerRow {
	var owners []ownerRow
	for _, r := range readTable("owners.tsv", 4) {
		owners = append(owners, ownerRow{
			dependent: r.text(0), kind: r.text(1), controller: r.text(2),
			apiVersions: timeline(r, 3, func(s string) schema.GroupVersion { return r.parseGroupVersion(s) }),
		})
	}
	return owners
}

// OwnerReferences lists the references that the minor writes when the controllers named are on, by dependent and owner.
// Objects keep the references that older versions wrote: an upgrade does not rewrite them.
func OwnerReferences(m Minor) []OwnerReference {
	var references []OwnerReference
	for _, o := range ownerTable() {
		if gv, ok := at(o.apiVersions, m); ok {
			references = append(references, OwnerReference{
				Dependent: o.dependent, Owner: schema.GroupKind{Group: gv.Group, Kind: o.kind}, APIVersion: gv.String(),
				Controller: o.controller, Source: "controllerKind of each minor, see Release",
			})
		}
	}
	return references
}

// Outcome is what happens to an object.
type Outcome string

// The outcomes of garbage collection.
const (
	Safe    Outcome = "safe"
	Deleted Outcome = "deleted"
)

// GarbageCollection says what the garbage collector of a minor does with an object that refers to an owner which the
// collector's own API server cannot show.
type GarbageCollection struct {
	UnknownKind     Outcome // it does not know the owner's group and kind in any version
	UnservedVersion Outcome // it knows the kind, but not in the version that the reference names
	AbsentOwner     Outcome // it serves the kind in that version, and finds no such object or another UID
	ClusterOwner    Outcome // the object is in a namespace and its owner, which exists, is not
	NamespacedOwner Outcome // the object is in no namespace and the owner's kind is in one
	StaticMapper    bool    // it knows every kind that is compiled in, served or not
	Source          string
}

var garbageTable = sync.OnceValue(decodeGarbage)

func decodeGarbage() []during[GarbageCollection] {
	var behaviours []during[GarbageCollection]
	for _, r := range readTable("garbage.tsv", 6) {
		outcome := func(column int) Outcome {
			o := Outcome(r.text(column))
			if !slices.Contains([]Outcome{Safe, Deleted}, o) {
				r.fail("%q is no outcome", o)
			}
			return o
		}
		behaviours = append(behaviours, during[GarbageCollection]{r.ranges(0), GarbageCollection{
			UnknownKind: outcome(1), UnservedVersion: outcome(2), AbsentOwner: outcome(3), ClusterOwner: outcome(4), NamespacedOwner: outcome(5),
			Source: "pkg/controller/garbagecollector/operations.go and apimachinery/meta/priority.go; run: 1.6.13, 1.10.13, 1.15.12 beside 1.36.3",
		}})
	}
	return behaviours
}

// GarbageCollectionIn returns the behaviour of the minor's garbage collector.
func GarbageCollectionIn(m Minor) GarbageCollection {
	behaviour, _ := at(garbageTable(), m)
	behaviour.StaticMapper = Behaves(BehaviourGarbageStaticMapper, m)
	return behaviour
}

// AbsentOwner tells what the minor's garbage collector does with an object that refers to this owner when the owner is not
// in the collector's store. It knows built-in kinds only: custom resources count as unknown.
func AbsentOwner(owner schema.GroupVersionKind, m Minor) Outcome {
	behaviour := GarbageCollectionIn(m)
	switch {
	case !garbageCollectorKnows(owner.GroupKind(), m):
		return behaviour.UnknownKind
	case !ServesGVK(owner, m):
		return behaviour.UnservedVersion
	default:
		return behaviour.AbsentOwner
	}
}

// garbageCollectorKnows: from 1.7 on the collector knows what discovery shows; that of 1.6 what is compiled in.
func garbageCollectorKnows(gk schema.GroupKind, m Minor) bool {
	if !Behaves(BehaviourGarbageStaticMapper, m) {
		return ServesKind(gk, m)
	}
	for gvk, minors := range kindTable() {
		if gvk.GroupKind() == gk && minors.Has(m) {
			return true
		}
	}
	return false
}
