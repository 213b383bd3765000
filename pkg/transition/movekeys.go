package transition

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// Moving are resources whose keys go to another store as a whole, while no API server that looks for them runs.
type Moving struct {
	Prefix    string      `json:"prefix"`
	From      plan.Store  `json:"from"`
	To        plan.Store  `json:"to"`
	Resources []MovingRow `json:"resources"`
}

// MovingRow is a resource of Moving.
type MovingRow struct {
	Key string `json:"key"`
	// Reads are the group/versions that all API servers read where it goes.
	Reads []string `json:"reads"`
}

func (m *Moving) validate() error {
	if m == nil || m.Prefix == "" || m.From.Name == m.To.Name || m.From.Name == "" || m.To.Name == "" ||
		len(m.Resources) == 0 {
		return errors.New("want resources, a prefix and two stores")
	}
	if slices.ContainsFunc(m.Resources, func(r MovingRow) bool { return r.Key == "" }) {
		return errors.New("want resources with keys")
	}
	return nil
}

func (m *Moving) names() string {
	var names []string
	for _, r := range m.Resources {
		names = append(names, r.Key)
	}
	return strings.Join(names, ", ")
}

// MovingOf are the keys that steps to another plan may move, with Facts.Prepare: those of resources that all API
// servers look for in one store before, and in one other store afterwards. Nil for none.
func MovingOf(from, to Setup) []Moving {
	if to.Target == render.Hosted || from.Plan == nil || to.Plan == nil {
		return nil
	}
	var list []Moving
	for _, m := range Moves(from, to) {
		was, is := from.Plan.Resource(m.Resource), to.Plan.Resource(m.Resource)
		out, into := to.Plan.Store(m.From), to.Plan.Store(m.To)
		if out == nil || into == nil { // refused
			continue
		}
		if was.Pseudo || !liesIn(&was.Resource, m.From) || !liesIn(&is.Resource, m.To) {
			continue
		}
		at := slices.IndexFunc(list, func(o Moving) bool { return o.From.Name == m.From && o.To.Name == m.To })
		if at < 0 {
			at = len(list)
			list = append(list, Moving{Prefix: to.Plan.Prefix, From: *out, To: *into})
		}
		row := MovingRow{Key: m.Resource, Reads: readsIn(&is.Resource, m.To)}
		if !slices.ContainsFunc(list[at].Resources, func(o MovingRow) bool { return o.Key == row.Key }) {
			list[at].Resources = append(list[at].Resources, row)
		}
	}
	return list
}

// liesIn reports whether a store is the only one in which API servers look for a resource.
func liesIn(r *pair.Resource, store string) bool {
	return !slices.ContainsFunc(pair.Sides(), func(side pair.Side) bool {
		of := r.View(side).Store
		return of != "" && of != store
	})
}

// readsIn are the versions that all sides read that look for a resource in a store.
func readsIn(r *pair.Resource, store string) (versions []string) {
	readers := r.Readers(store)
	for _, side := range readers {
		for _, v := range append([]string{r.View(side).StoredAs}, r.View(side).Decodes...) {
			if v != "" && !slices.Contains(versions, v) && !slices.ContainsFunc(readers, func(o pair.Side) bool {
				return !r.View(o).Reads(v)
			}) {
				versions = append(versions, v)
			}
		}
	}
	return versions
}

// back are the same keys, on their way back to what API servers of a plan read.
func (m *Moving) back(p *plan.Plan) *Moving {
	b := &Moving{Prefix: m.Prefix, From: m.To, To: m.From}
	for _, r := range m.Resources {
		b.Resources = append(b.Resources, MovingRow{r.Key, readsIn(&p.Resource(r.Key).Resource, m.From.Name)})
	}
	return b
}

// MayMoveCheck is that the keys can be moved.
func MayMoveCheck(m *Moving) Check {
	return Check{Kind: MayMove, Moving: m, Hint: "delete them through the API server that serves them, or write them " +
		"again through it in a version that both read"}
}

// Stays are those of moves whose keys are not moved by steps: there must be none.
func Stays(moves []Move, moving []Moving) []Move {
	return slices.DeleteFunc(slices.Clone(moves), func(m Move) bool {
		return slices.ContainsFunc(moving, func(o Moving) bool {
			return o.From.Name == m.From && o.To.Name == m.To && slices.ContainsFunc(o.Resources,
				func(r MovingRow) bool { return r.Key == m.Resource })
		})
	})
}

// moves are the keys that the steps move.
func (b *builder) movesKeys() []Moving {
	if !b.prepares {
		return nil
	}
	return MovingOf(b.from, b.to)
}

// mayMove are the checks before keys are moved, or moved back.
func (b *builder) mayMove(back bool) (checks []Check) {
	for _, m := range b.movesKeys() {
		if back {
			m = *m.back(b.from.Plan)
		}
		checks = append(checks, MayMoveCheck(&m))
	}
	return checks
}

// moveKeys moves them while no API server looks for them.
func (b *builder) moveKeys() {
	for _, m := range b.movesKeys() {
		do, undo := &Action{Kind: MoveKeys, Moving: &m}, &Action{Kind: MoveKeys, Moving: m.back(b.from.Plan)}
		b.add(Step{Phase: Stop, Host: b.to.Plan.Hosts[0].Name, Title: do.changes(), Do: do, Undo: undo})
	}
}

func (m *Moving) changes() string {
	return fmt.Sprintf("move %s from store %s to store %s", m.names(), m.From.Name, m.To.Name)
}

// unmoved is the check of stores with what steps move taken to be where another plan has it.
func unmoved(c Check, other *plan.Plan, moving []Moving) Check {
	m := *c.Map
	m.Resources = slices.Clone(m.Resources)
	for i := range m.Resources {
		for _, of := range moving {
			if slices.ContainsFunc(of.Resources, func(r MovingRow) bool { return r.Key == m.Resources[i].Key }) {
				m.Resources[i] = other.Resource(m.Resources[i].Key).Resource
			}
		}
	}
	c.Map = &m
	return c
}
