package kubever

import "sync"

var requiredTable = sync.OnceValue(decodeRequired)

func decodeRequired() map[typedField]Ranges {
	required := map[typedField]Ranges{}
	for _, r := range readTable("required.tsv", 3) {
		required[typedField{r.text(0), r.text(1)}] = r.ranges(2)
	}
	return required
}

// Required returns the minors whose API description requires a field of a type:
// Required("networking.v1.HTTPIngressPath", "pathType") is 1.22-1.37. kubectl up to 1.24 validates by it. Servers
// require other fields, too, and fill in some of these.
func Required(typeName, field string) Ranges { return requiredTable()[typedField{typeName, field}] }
