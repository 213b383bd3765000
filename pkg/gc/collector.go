// Package gc says what the garbage collector of an API server's version does with an object, given what it sees of the
// object's owners. What each version does is a row of a table in pkg/kubever; this package says what is seen, and which
// column answers.
package gc

// Outcome is what a garbage collector does with an object all of whose owners it sees in one way.
type Outcome string

// The two outcomes.
const (
	Safe    Outcome = "safe"
	Deleted Outcome = "deleted"
)

// Sight is what a garbage collector sees of an owner that an object refers to.
type Sight int

// Everything that can be seen, the one that a collector meets first standing first among the last five.
const (
	Undecided       Sight = iota // what it would see cannot be told, since something was not read
	Found                        // the owner
	UnknownKind                  // its API server has no such group and kind, in any version
	UnservedVersion              // the kind is known, but not in the version that the reference names
	// kind and version are served, and there is no such object, or it is in another namespace or has another UID
	Absent
	// the owner exists and is cluster-scoped, and is looked for in the namespace of the object
	ClusterOwner
	// the owner's kind is namespaced and the object is in no namespace, so that the lookup names none
	NamespacedOwner
)

// Presence says whether a side has the owner, by UID.
type Presence int

// What may be known of it.
const (
	Unsure Presence = iota
	Missing
	Present
)

// Reference is an owner reference as the garbage collector of one side meets it.
type Reference struct {
	// the side knows the owner's group and kind: serves it in some version, or see Collector.KnowsUnserved
	KnownKind       bool
	ServedVersion   bool     // it serves the kind in the version that the reference names
	OwnerNamespaced bool     // the owner's kind is namespaced
	Namespaced      bool     // the object with the reference is in a namespace
	Owner           Presence // whether the side has the owner; for a namespaced one, in the namespace of the object
}

// Sight is what the collector sees. It maps the kind before it asks for the owner, so that what precedes the lookup is
// told whatever is known of the owner. Source: attemptToDeleteItem and getObject of pkg/controller/garbagecollector,
// kubernetes 1.6 to 1.36.
func (r Reference) Sight() Sight {
	switch {
	case !r.KnownKind:
		return UnknownKind
	case !r.ServedVersion:
		return UnservedVersion
	case r.OwnerNamespaced && !r.Namespaced:
		return NamespacedOwner
	case r.Owner == Missing:
		return Absent
	case r.Owner == Unsure:
		return Undecided
	case !r.OwnerNamespaced && r.Namespaced:
		return ClusterOwner
	}
	return Found
}

// Collector says whether a side runs the garbage collector, and what that does with an object all of whose owners are
// out of its sight: an Outcome for each Sight of this kind. An empty Outcome counts as Safe.
type Collector struct {
	Runs            bool    `json:"runs"`
	UnknownKind     Outcome `json:"unknownKind,omitempty"`
	UnservedVersion Outcome `json:"unservedVersion,omitempty"`
	AbsentOwner     Outcome `json:"absentOwner,omitempty"`
	ClusterOwner    Outcome `json:"clusterOwner,omitempty"`
	NamespacedOwner Outcome `json:"namespacedOwner,omitempty"`
	// KnowsUnserved: it knows every kind that the version has, whether its API server serves it or not.
	KnowsUnserved bool `json:"knowsUnserved,omitempty"`
}

// Joint is fusionctl's own collector, of `fusionctl controllers`: it looks for an owner through both API servers, in
// every group and version of its kind, and for a cluster-scoped one outside of the object's namespace. It deletes for
// want of an owner that is absent, and for nothing else: a kind that neither side serves may have objects in a store.
func Joint() Collector { return Collector{Runs: true, AbsentOwner: Deleted} }

// Outcome is what the collector does with an object when it sees all of its owners so. An object stays when one of its
// owners is found, or is seen in a way that is Safe.
func (c *Collector) Outcome(seen Sight) Outcome {
	outcome := Safe
	switch seen {
	case UnknownKind:
		outcome = c.UnknownKind
	case UnservedVersion:
		outcome = c.UnservedVersion
	case Absent:
		outcome = c.AbsentOwner
	case ClusterOwner:
		outcome = c.ClusterOwner
	case NamespacedOwner:
		outcome = c.NamespacedOwner
	}
	if outcome != Deleted {
		return Safe
	}
	return outcome
}

// Deletes reports whether there is anything at all for which the collector deletes an object.
func (c *Collector) Deletes() bool {
	for _, seen := range []Sight{UnknownKind, UnservedVersion, Absent, ClusterOwner, NamespacedOwner} {
		if c.Outcome(seen) == Deleted {
			return true
		}
	}
	return false
}
