package pair

import "slices"

// Route is through which side's API server the objects of a resource are reached. Both fields are "" where each side
// has objects of its own: those are reached through their own side. A controller that watches in order to write does
// both through Write.
type Route struct{ Read, Write Side }

// Route answers for the objects that both sides see. They are written through the side that may write them; where both
// may, through the modern side, which knows the fields of either version and checks every precondition, unless the
// legacy side alone reads all that is stored. They are read through the modern side, whose lists have pages, where it
// reads all that is stored: one object that a server cannot decode fails its lists, or closes its watches.
func (r *Resource) Route() Route {
	if !r.VisibleToBoth() {
		return Route{}
	}
	write := Modern
	if !r.WrittenBy(Modern) || r.WrittenBy(Legacy) && !r.readsAll(Modern) && r.readsAll(Legacy) {
		write = Legacy
	}
	for _, read := range []Side{Modern, Legacy} {
		if r.readsAll(read) {
			return Route{Read: read, Write: write}
		}
	}
	return Route{Read: write, Write: write}
}

// readsAll reports whether the side reads every version in which objects may be stored: what the legacy side stored,
// since it was there first, and what the modern side stores where it may write.
func (r *Resource) readsAll(side Side) bool {
	view := r.View(side)
	return view.readsStored(&r.Legacy) && (!r.WrittenBy(Modern) || view.readsStored(&r.Modern))
}

// readsStored reports whether the side reads what another one stores. What has no version, such as custom resources,
// every side reads.
func (v *View) readsStored(writer *View) bool {
	return writer.StoredAs == "" || v.Reads(writer.StoredAs)
}

// Reads reports whether the side reads objects that are stored in the group/version, in lists and in watches.
func (v *View) Reads(apiVersion string) bool {
	return slices.Contains(v.Decodes, apiVersion) && !slices.Contains(v.WatchBreaks, apiVersion)
}

// VisibleToBoth reports whether both sides see the same objects of the resource: those of one store.
func (r *Resource) VisibleToBoth() bool {
	return r.Legacy.Store != "" && r.Legacy.Store == r.Modern.Store
}

// Poisons reports whether an object that one side writes in the group/version makes the lists of the other side fail,
// which looks at the same keys and cannot decode it.
func (r *Resource) Poisons(writer Side, apiVersion string) bool {
	return r.VisibleToBoth() && !slices.Contains(r.View(writer.Other()).Decodes, apiVersion)
}
