package kubever

import (
	"slices"
	"sync"
)

// FieldGate is the feature gate that a field is behind.
type FieldGate struct {
	Name    string
	Refused bool // servers refuse objects with the field while the gate is off; otherwise they drop the field
	Source  string

	minors Ranges // in which the gate counts; nil for all
}

var fieldGateTable = sync.OnceValue(decodeFieldGates)

func decodeFieldGates() map[typedField][]FieldGate {
	gates := map[typedField][]FieldGate{}
	for _, r := range readTable("field-gates.tsv", 6) {
		at, what := typedField{r.text(0), r.text(1)}, r.text(4)
		if what != "dropped" && what != "refused" {
			r.fail("%q: want dropped or refused", what)
		}
		gate := FieldGate{Name: r.text(2), minors: r.ranges(3), Refused: what == "refused", Source: r.text(5)}
		if slices.ContainsFunc(gates[at], func(other FieldGate) bool {
			return other.Name == gate.Name &&
				(other.minors == nil || gate.minors == nil || overlap(other.minors, gate.minors))
		}) {
			r.fail("%s.%s has the gate already in some of these minors", at.typeName, at.field)
		}
		gates[at] = append(gates[at], gate)
	}
	return gates
}

// DisabledField returns the feature gate because of which the minor's servers, as they are by default, do nothing with
// a field that their API description has; false when there is none: DisabledField("v1.Lifecycle", "stopSignal", 36) is
// ContainerStopSignals.
func DisabledField(typeName, field string, m Minor) (FieldGate, bool) {
	for _, gate := range fieldGateTable()[typedField{typeName, field}] {
		if gate.minors != nil && !gate.minors.Has(m) {
			continue
		}
		if state, known := Gate(gate.Name).At(m); known && !state.Default {
			return gate, true
		}
	}
	return FieldGate{}, false
}
