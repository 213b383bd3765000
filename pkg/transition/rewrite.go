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
	Version   string       `json:"version"` // of the modern side that has to read them, for people
	Stores    []plan.Store `json:"stores"`
	Resources []Rewritten  `json:"resources"`
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
	if r == nil || r.Prefix == "" || r.Version == "" || len(r.Resources) == 0 {
		return errors.New("want resources to be written again, a prefix and a version")
	}
	for _, row := range r.Resources {
		if row.Key == "" || row.Kind == "" || !slices.ContainsFunc(r.Stores, func(s plan.Store) bool {
			return s.Name == row.Store
		}) {
			return fmt.Errorf("resource %q of kind %q: want one in a store that is named", row.Key, row.Kind)
		}
	}
	return nil
}

// rewriteOf is what the API servers of one plan do not read of what those of the other may have stored; nil for
// nothing.
func rewriteOf(reads, wrote *plan.Plan) *Rewrite {
	r := &Rewrite{Prefix: reads.Prefix, Version: reads.Modern.Version.String()}
	for i := range reads.Resources {
		row := &reads.Resources[i]
		store, other := row.Modern.Store, wrote.Resource(row.Key)
		if store == "" || row.Pseudo || row.Kind == "" || other == nil || other.Modern.Store != store {
			continue
		}
		readable := func(v string) bool {
			return row.Modern.Reads(v) && (row.Legacy.Store != store || row.Legacy.Reads(v))
		}
		add := Rewritten{Key: row.Key, Kind: row.Kind, Store: store}
		for _, v := range append([]string{row.Modern.StoredAs}, row.Modern.Decodes...) {
			if v == "" || slices.Contains(add.Reads, v) || !readable(v) {
				continue
			}
			add.Reads = append(add.Reads, v)
			if other.Modern.Reads(v) {
				add.To = append(add.To, v)
			}
		}
		if !slices.ContainsFunc(other.Modern.Decodes, func(v string) bool { return !slices.Contains(add.Reads, v) }) {
			continue
		}
		r.Resources = append(r.Resources, add)
		if !slices.ContainsFunc(r.Stores, func(s plan.Store) bool { return s.Name == store }) {
			r.Stores = append(r.Stores, *reads.Store(store))
		}
	}
	if len(r.Resources) == 0 {
		return nil
	}
	return r
}

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
			"the " + string(pair.Modern) + " API server; of the rest fusionctl explain RULE says more"
	}
	return c
}

// rewrite writes objects again while no API server of the modern side runs. What is left then is none that these read.
func (b *builder) rewrite(reads, wrote *plan.Plan) *Action {
	r := rewriteOf(reads, wrote)
	if !b.prepares || r == nil {
		return nil
	}
	return &Action{Kind: RewriteObjects, Rewrite: r, After: []Check{storesCheck(reads, wrote)}}
}
