package kubever

import (
	"slices"
	"strings"
	"sync"
)

// GateFact is what is known about one feature gate. The zero GateFact is in no version.
type GateFact struct {
	Name   string
	Source string

	states []during[GateState]
	first  []during[GateState] // in the first patch releases, where it is another
	since  map[Minor]int       // the patch release that ends what first and lateIn say
	only   map[string]Ranges   // component -> minors, for gates that not every component registers
	lateIn Ranges
}

// GateState is a feature gate at one minor.
// Stage is ALPHA, BETA, GA or DEPRECATED. Locked: setting it to anything but its default is refused at start.
type GateState struct {
	Stage   string
	Default bool
	Locked  bool
}

// At returns the gate's state at the minor; false when the minor does not know the gate and refuses its name.
func (g GateFact) At(m Minor) (GateState, bool) { return at(g.states, m) }

// Works reports whether releases of the minor do what the gate is for unless they are told otherwise: it is on by
// default, or was when the last minor had it that did.
func (g GateFact) Works(m Minor) bool {
	for ; m >= Oldest; m-- {
		if state, known := g.At(m); known {
			return state.Default
		}
	}
	return false
}

// In is At for one release: the first patch releases of some minors have another state than the later ones, or do not
// know the gate. Where the tables do not name the patch release that changed it, that counts as the one after .0. A
// version without a patch counts as the last.
func (g GateFact) In(v Version) (GateState, bool) {
	if v.HasPatch && v.Patch < max(1, g.since[v.Minor]) {
		if g.lateIn.Has(v.Minor) {
			return GateState{}, false
		}
		if state, ok := at(g.first, v.Minor); ok {
			return state, true
		}
	}
	return g.At(v.Minor)
}

// ChangedIn returns the patch release of the minor with which the gate came to its state, or was added, where the first
// releases differ; false where they do not.
func (g GateFact) ChangedIn(m Minor) (patch int, changed bool) {
	_, differs := at(g.first, m)
	return g.since[m], differs || g.lateIn.Has(m)
}

// KnownTo reports whether the component accepts the gate's name in --feature-gates at the minor.
func (g GateFact) KnownTo(component string, m Minor) bool {
	if _, known := g.At(m); !known {
		return false
	}
	for _, minors := range g.only {
		if minors.Has(m) {
			return g.only[component].Has(m)
		}
	}
	return true
}

var gateTable = sync.OnceValue(decodeGates)

func decodeGates() map[string]GateFact {
	rows := readTable("gates.tsv", 3)
	gates := make(map[string]GateFact, len(rows))
	for _, r := range rows {
		gates[r.text(0)] = GateFact{
			Name: r.text(0), lateIn: r.ranges(1), Source: "feature gate registries of each minor, see Release",
			states: gateStates(r, 2),
		}
	}
	for _, r := range readTable("gates-first.tsv", 3) {
		gate, ok := gates[r.text(0)]
		if !ok {
			r.fail("no gate %s", r.text(0))
		}
		gate.first, gate.since = gateStates(r, 1), r.patches(2)
		gates[gate.Name] = gate
	}
	for _, r := range readTable("gates-only.tsv", 3) {
		gate, ok := gates[r.text(0)]
		if !ok {
			r.fail("no gate %s", r.text(0))
		}
		if gate.only == nil {
			gate.only = make(map[string]Ranges)
			gates[gate.Name] = gate
		}
		gate.only[r.text(1)] = r.ranges(2)
	}
	return gates
}

func gateStates(r row, column int) []during[GateState] {
	return timeline(r, column, func(s string) GateState {
		stage, rest, _ := strings.Cut(s, ",")
		onOff, locked, _ := strings.Cut(rest, ",")
		if (onOff != "on" && onOff != "off") || (locked != "" && locked != "locked") ||
			!slices.Contains([]string{"ALPHA", "BETA", "GA", "DEPRECATED"}, stage) {
			r.fail("%q: want STAGE,on|off[,locked]", s)
		}
		return GateState{Stage: stage, Default: onOff == "on", Locked: locked == "locked"}
	})
}

// Gate finds a feature gate by name; the zero GateFact when no minor has it.
func Gate(name string) GateFact { return gateTable()[name] }

// Gates lists the feature gates that some component knows at the minor, by name.
func Gates(m Minor) []GateFact {
	var gates []GateFact
	for _, g := range gateTable() {
		if _, ok := g.At(m); ok {
			gates = append(gates, g)
		}
	}
	slices.SortFunc(gates, func(a, b GateFact) int { return strings.Compare(a.Name, b.Name) })
	return gates
}
