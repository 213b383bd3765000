package gc

import "fmt"

// Rule is the ID of the rule that reports a collector which sees an owner of this kind so, and deletes the dependents,
// by the key of their resource.
func (s Sight) Rule(dependents, ownerKind string) string {
	switch {
	case s == ClusterOwner && dependents == "pods" && ownerKind == "Node":
		return "FUS062"
	case s != Absent:
		return "FUS061"
	}
	return "FUS060"
}

// Mistaken and MirrorPods are why rules FUS061 and FUS062 exist, wherever they are reported.
const (
	Mistaken = "Garbage collectors of old versions take an owner for absent that may exist: those of 1.6 to 1.9 when " +
		"they get a 404 for an API version that is not served, those of 1.6 to 1.8 when they look up a " +
		"cluster-scoped owner in the dependent's namespace, those of 1.6 to 1.8 and of 1.11 to 1.19 when they look " +
		"up a namespaced owner of a dependent that is in no namespace."
	MirrorPods = "Since 1.17 kubelets set their node as the owner of mirror pods. Garbage collectors before 1.9 look " +
		"up the node in the pod's namespace, do not find it and delete the mirror pod."
)

// Key distinguishes in the keys of findings why an owner is not found.
func (s Sight) Key() string { return s.words().key }

// Why says what the collector does that does not find the owner; its subject is the collector or its side.
func (s Sight) Why() string { return s.words().why }

func (s Sight) words() (w struct{ key, why string }) {
	switch s {
	case UnknownKind:
		w.key, w.why = "unknown kind", "does not know that kind, and takes that for an absent owner"
	case UnservedVersion:
		w.key = "unserved version"
		w.why = "knows that kind but not in this version, and takes the 404 for an absent owner"
	case Absent:
		w.key, w.why = "absent owner", "serves that kind and does not find the owner"
	case ClusterOwner:
		w.key, w.why = "cluster-scoped owner", "looks up the cluster-scoped owner in the namespace of the object"
	case NamespacedOwner:
		w.key, w.why = "namespaced owner", "looks up a namespaced owner, and the object is in no namespace"
	}
	return w
}

// TurnOff is the fix that turns off the garbage collector of a side, whose version calls it name. In --controllers the
// first entry that names a controller decides, and without a * nothing else runs: there -NAME changes nothing.
func TurnOff(side, name string) string {
	return fmt.Sprintf("take %[2]s out of --controllers of the controller manager of the %[1]s side or, where that "+
		"has a * or is not set, add -%[2]s to it: *,-%[2]s", side, name)
}
