// Package gc says what the garbage collector of a control plane does with an object whose owners it does not find.
package gc

// Outcome is what a garbage collector does with an object whose owner it cannot see.
type Outcome string

// The two outcomes.
const (
	Safe    Outcome = "safe"
	Deleted Outcome = "deleted"
)

// Collector says whether a side runs the garbage collector, and what that does with an object all of whose owners are out
// of its sight. The five cases are mutually exclusive: the owner's kind is unknown to the side; the kind is known but not in the
// reference's version; kind and version are served and the object is absent, or in another namespace; the owner is
// cluster-scoped (and present) and the object is not; the owner's kind is namespaced and the object is in no namespace. An
// empty Outcome counts as Safe.
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
