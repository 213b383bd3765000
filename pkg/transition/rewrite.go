package transition

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// Rewrite is what may be stored in versions that API servers of a plan do not read, and in which versions it is written
// again. API servers write all objects in one version each: those of the other plan cannot do it.
type Rewrite struct {
	Prefix    string       `json:"prefix"`
	Version   string       `json:"version"` // of the side that has to read them, for people
	Stores    []plan.Store `json:"stores"`
	Resources []Rewritten  `json:"resources"`
	// Bitmaps are records of ClusterIPs that the other plan does not write, and these API servers allocate from: they
	// get what Services in their store have.
	Bitmaps []Bitmap `json:"bitmaps,omitempty"`
}

// Bitmap is what an allocator has recorded: of RangeAllocations those of Services in the same store.
type Bitmap struct {
	Key   string `json:"key"`
	Store string `json:"store"` // the name
}

// Rewritten is a resource that is written again.
type Rewritten struct {
	Key   string `json:"key"`
	Kind  string `json:"kind"`
	Store string `json:"store"` // the name
	// Reads are the group/versions that all API servers of the plan read there, in lists and watches; To are those of
	// them that the other plan reads, too, the one that is stored first.
	Reads []string `json:"reads"`
	To    []string `json:"to"`
}

func (r *Rewrite) validate() error {
	if r == nil || r.Prefix == "" || r.Version == "" || len(r.Resources)+len(r.Bitmaps) == 0 {
		return errors.New("want resources to be written again, a prefix and a version")
	}
	named := func(store string) bool {
		return slices.ContainsFunc(r.Stores, func(s plan.Store) bool { return s.Name == store })
	}
	for _, row := range r.Resources {
		if row.Key == "" || row.Kind == "" || !named(row.Store) {
			return fmt.Errorf("resource %q of kind %q: want one in a store that is named", row.Key, row.Kind)
		}
	}
	for _, b := range r.Bitmaps {
		if b.Key == "" || !named(b.Store) {
			return fmt.Errorf("bitmap %q: want one in a store that is named", b.Key)
		}
	}
	return nil
}

// changes says what is written.
func (r *Rewrite) changes() string {
	const bitmaps = "record in bitmaps the addresses that services have"
	again := "write objects again that " + r.Version + " does not read"
	switch {
	case len(r.Bitmaps) == 0:
		return again
	case len(r.Resources) == 0:
		return bitmaps
	}
	return again + ", and " + bitmaps
}

// rewriteOf is what the API servers of one plan do not read of what those of the other may have stored; nil for
// nothing.
func rewriteOf(reads, wrote *plan.Plan) *Rewrite {
	r := &Rewrite{Prefix: reads.Prefix, Version: readerOf(reads, wrote)}
	for _, side := range pair.Sides() {
		if side == pair.Modern || reads.Legacy.Version.Minor != wrote.Legacy.Version.Minor && !reads.Legacy.Retired {
			r.unread(reads, wrote, side)
		}
	}
	r.Bitmaps = bitmapsOf(reads, wrote)
	for _, b := range r.Bitmaps {
		r.store(reads, b.Store)
	}
	if len(r.Resources)+len(r.Bitmaps) == 0 {
		return nil
	}
	return r
}

// readerOf is the version of the side that is to read what another version of it has stored.
func readerOf(reads, wrote *plan.Plan) string {
	if reads.Legacy.Version.Minor != wrote.Legacy.Version.Minor && !reads.Legacy.Retired && !wrote.Legacy.Retired {
		return reads.Legacy.Version.String()
	}
	return reads.Modern.Version.String()
}

// unread adds what API servers of a side may not read.
func (r *Rewrite) unread(reads, wrote *plan.Plan, side pair.Side) {
	for i := range reads.Resources {
		row := &reads.Resources[i]
		store, other := row.View(side).Store, wrote.Resource(row.Key)
		if store == "" || row.Pseudo || row.Kind == "" || other == nil || other.View(side).Store != store ||
			side == pair.Legacy && len(row.View(side).Serves) == 0 || // which reads none, nor do its controllers
			slices.ContainsFunc(r.Resources, func(o Rewritten) bool { return o.Key == row.Key && o.Store == store }) {
			continue
		}
		add := Rewritten{Key: row.Key, Kind: row.Kind, Store: store}
		readers := row.Readers(store)
		for _, v := range append([]string{row.View(side).StoredAs}, row.View(side).Decodes...) {
			if v == "" || slices.Contains(add.Reads, v) || slices.ContainsFunc(readers, func(o pair.Side) bool {
				return !row.View(o).Reads(v)
			}) {
				continue
			}
			add.Reads = append(add.Reads, v)
			if other.View(side).Reads(v) {
				add.To = append(add.To, v)
			}
		}
		if len(add.To) == 0 && side == pair.Legacy { // the way back writes them again, too
			add.To = add.Reads
		}
		if slices.ContainsFunc(other.View(side).Decodes, func(v string) bool {
			return !slices.Contains(add.Reads, v)
		}) {
			r.Resources = append(r.Resources, add)
			r.store(reads, store)
		}
	}
}

// rewriteForLegacy is what the legacy side of a plan does not read of what the modern side, alone, has stored in its
// place: controllers of 1.36 store EndpointSlices as discovery.k8s.io/v1, of which 1.20 knows v1beta1. It is nil for
// nothing.
func rewriteForLegacy(reads, alone *plan.Plan) *Rewrite {
	r := &Rewrite{Prefix: reads.Prefix, Version: reads.Legacy.Version.String()}
	for i := range reads.Resources {
		row := &reads.Resources[i]
		store, other := row.Legacy.Store, alone.Resource(row.Key)
		if store == "" || row.Pseudo || row.Kind == "" || other == nil || other.Modern.Store != store ||
			len(row.Legacy.Serves) == 0 || other.Modern.StoredAs == "" || row.Legacy.Reads(other.Modern.StoredAs) {
			continue
		}
		add := Rewritten{Key: row.Key, Kind: row.Kind, Store: store}
		for _, v := range append([]string{row.Legacy.StoredAs}, row.Legacy.Decodes...) {
			if row.Legacy.Reads(v) && row.Modern.Reads(v) && !slices.Contains(add.Reads, v) {
				add.Reads = append(add.Reads, v)
			}
		}
		if add.To = add.Reads; len(add.To) > 0 {
			r.Resources = append(r.Resources, add)
			r.store(reads, store)
		}
	}
	if len(r.Resources) == 0 {
		return nil
	}
	return r
}

func (r *Rewrite) store(p *plan.Plan, name string) {
	if !slices.ContainsFunc(r.Stores, func(s plan.Store) bool { return s.Name == name }) {
		r.Stores = append(r.Stores, *p.Store(name))
	}
}

// bitmapsOf are the records of ClusterIPs from which API servers of a plan allocate, and which those of the other plan
// did not write. Node ports are in a bitmap that every version writes.
func bitmapsOf(reads, wrote *plan.Plan) []Bitmap {
	services := wrote.Resource("services/specs")
	if services == nil || wrote.Modern.Facts.Allocates != pair.AllocatesAddresses || len(starting(reads, wrote)) == 0 {
		return nil
	}
	var bitmaps []Bitmap
	for i := range reads.Resources {
		row := &reads.Resources[i]
		if !slices.Contains(clusterIPs, row.Key) {
			continue
		}
		for _, side := range row.Readers(services.Modern.Store) {
			b := Bitmap{row.Key, services.Modern.Store}
			if side == pair.Legacy && len(wrote.Modern.Facts.ServiceCIDRs) > 0 {
				continue // from which the modern side does not allocate
			}
			if reads.Side(side).Facts.Allocates != pair.AllocatesAddresses && !slices.Contains(bitmaps, b) {
				bitmaps = append(bitmaps, b)
			}
		}
	}
	return bitmaps
}

// clusterIPs are the keys of the bitmaps of ClusterIPs.
var clusterIPs = []string{"ranges/serviceips", "ranges/secondaryserviceips"}

// Rewrites returns what a transition may have to write again so that TO reads it.
func Rewrites(from, to Setup) *Rewrite {
	if from.Plan == nil || to.Plan == nil {
		return nil
	}
	return rewriteOf(to.Plan, from.Plan)
}

// readable is the gate before API servers of a plan read what those of the other have stored: they read all of it, or,
// where objects may be written again, all that is left can be.
func (b *builder) readable(reads, wrote *plan.Plan) Check {
	c := storesCheck(reads, wrote)
	if r := rewriteOf(reads, wrote); b.prepares && r != nil {
		c.Kind, c.Rewrite = MayRewrite, r
		c.Hint = "objects that cannot be decoded: delete them, or write them again without what is named, through " +
			"the " + string(b.changing()) + " API server; of the rest fusionctl explain RULE says more"
	}
	return c
}

// rewrite writes objects again while no API server of the side that changes runs. What is left then is none that these
// read.
func (b *builder) rewrite(reads, wrote *plan.Plan) *Action {
	r := rewriteOf(reads, wrote)
	if !b.prepares || r == nil {
		return nil
	}
	return &Action{Kind: RewriteObjects, Rewrite: r, After: []Check{storesCheck(reads, wrote)}}
}
