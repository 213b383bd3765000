package kubever

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/gc"
)

// OwnerReference is an ownerReference that a minor's controllers, or its kubelets, write into objects. Shape: at 1.6
// {Dependent: pods, Owner: ReplicaSet.extensions, APIVersion: extensions/v1beta1, Controller: replicaset-controller}.
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

var garbageTable = sync.OnceValue(decodeGarbage)

func decodeGarbage() []during[gc.Collector] {
	var collectors []during[gc.Collector]
	for _, r := range readTable("garbage.tsv", 6) {
		outcome := func(column int) gc.Outcome {
			o := gc.Outcome(r.text(column))
			if !slices.Contains([]gc.Outcome{gc.Safe, gc.Deleted}, o) {
				r.fail("%q is no outcome", o)
			}
			return o
		}
		collectors = append(collectors, during[gc.Collector]{r.ranges(0), gc.Collector{
			UnknownKind: outcome(1), UnservedVersion: outcome(2), AbsentOwner: outcome(3), ClusterOwner: outcome(4),
			NamespacedOwner: outcome(5),
		}})
	}
	return collectors
}

// GarbageCollectorIn returns the behaviour of the minor's garbage collector. Whether it runs is another question.
// Source: pkg/controller/garbagecollector/operations.go and apimachinery/meta/priority.go; run: 1.6.13, 1.10.13,
// 1.15.12 beside 1.36.3.
func GarbageCollectorIn(m Minor) gc.Collector {
	collector, _ := at(garbageTable(), m)
	collector.KnowsUnserved = Behaves(BehaviourGarbageStaticMapper, m)
	return collector
}

// GarbageCollectorName is what --controllers calls the garbage collector of the minor: for an unknown one, its name
// since 1.28.
func GarbageCollectorName(m Minor) string {
	fact, _ := ControllerByName("garbage-collector-controller")
	if name, known := fact.NameIn(m); known {
		return name
	}
	return fact.Name
}

// GarbageCollectorKnows reports whether the minor's garbage collector knows the kind in some version: from 1.7 on what
// discovery shows, in 1.6 what is compiled in. Custom resources are not known here.
func GarbageCollectorKnows(gk schema.GroupKind, m Minor) bool {
	if !Behaves(BehaviourGarbageStaticMapper, m) {
		return servesKind(gk, m)
	}
	for gvk, minors := range kindTable() {
		if gvk.GroupKind() == gk && minors.Has(m) {
			return true
		}
	}
	return false
}
