package kubever

import "sync"

var valueTable = sync.OnceValue(decodeValues)

type typedField struct{ typeName, field string }

func decodeValues() map[typedField]map[string]Ranges {
	values := map[typedField]map[string]Ranges{}
	for _, r := range readTable("values.tsv", 5) {
		at := typedField{r.text(0), r.text(1)}
		if values[at] == nil {
			values[at] = map[string]Ranges{}
		}
		values[at][r.text(2)] = r.ranges(3)
	}
	return values
}

// LateValues are the values of a field that came after the field itself, each with the minors whose servers accept it
// without a feature gate: LateValues("v1.ServicePort", "protocol") has SCTP, from 1.19 on. Nil for most fields. The map
// is not to be changed.
func LateValues(typeName, field string) map[string]Ranges {
	return valueTable()[typedField{typeName, field}]
}
