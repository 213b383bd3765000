// Package pair names what two control planes over one set of nodes have in common: the two sides, who owns a resource,
// where each side keeps it, and the ownership map that says so for every key. It is data: nothing here reads a store or
// a server.
package pair

// Owner says which side writes the objects of a resource.
type Owner string

// The four owners a resource may have.
const (
	OwnerLegacy Owner = "legacy" // only the legacy side writes it
	OwnerModern Owner = "modern" // only the modern side writes it
	OwnerShared Owner = "shared" // one location; both sides write, each its own objects
	OwnerSplit  Owner = "split"  // each side has its own objects in its own location
)

// Side is one of the two control planes.
type Side string

// The two sides.
const (
	Legacy Side = "legacy"
	Modern Side = "modern"
)

// Sides lists the two sides in the order in which they are printed.
func Sides() []Side { return []Side{Legacy, Modern} }

// Other is the side that is not this one.
func (s Side) Other() Side {
	if s == Legacy {
		return Modern
	}
	return Legacy
}
