package kubever

import "sync"

var shortNameTable = sync.OnceValue(decodeShortNames)

func decodeShortNames() map[string]string {
	names := map[string]string{}
	for _, r := range readTable("short-names.tsv", 2) {
		for _, short := range r.words(1) {
			if names[short] != "" {
				r.fail("%q is short for %s, too", short, names[short])
			}
			names[short] = r.text(0)
		}
	}
	return names
}

// ResourceOfShortName returns the resource that a short name stands for, in whatever groups: pods for po. false: it is
// none.
func ResourceOfShortName(short string) (string, bool) {
	resource, ok := shortNameTable()[short]
	return resource, ok
}
