package kubever

import (
	"slices"
	"strings"
	"sync"
)

// HandOver is a set of resources that go from one control plane to another together: controllers act for all of them.
type HandOver struct {
	Subjects    []string // keys of what is named, all or none
	Keys        []string // in the order in which they are moved, what is owned before its owners
	Controllers []string // that act for them, by the name they have since 1.28
	// References are keys of what refers to them by name and acts for them: it goes with them, or there is none.
	References []string
	Ended      []string // keys among Keys of which every object must have ended before it goes
	Aggregated []string // API groups that these controllers read, and that servers behind the API servers serve
	// Programs act for them, that run in the cluster and that no plan starts or stops: "ingress controllers". Where
	// there are some, there are no Controllers.
	Programs string
	// Copied: the other control plane gets copies as roles, and the objects stay, because API servers themselves
	// authorize by them.
	Copied bool
	// Kept: the other control plane gets them, too, and they stay: API servers of both act for them.
	Kept bool
	// Defines: these are definitions, and what they define goes with them.
	Defines bool
}

var handOverTable = sync.OnceValue(func() []HandOver {
	var sets []HandOver
	for _, r := range readTable("handover.tsv", 8) {
		sets = append(sets, HandOver{Subjects: r.words(0), Keys: r.words(1), Controllers: r.words(2),
			References: r.words(3), Ended: r.words(4), Aggregated: r.words(5),
			Programs: strings.ReplaceAll(strings.Join(r.words(6), " "), "-", " "),
			Copied:   r.text(7) == "roles", Kept: r.text(7) == "copies", Defines: r.text(7) == "definitions"})
	}
	return sets
})

// HandOvers lists the sets that can be handed over.
func HandOvers() []HandOver { return handOverTable() }

// ByNamespace reports whether objects of single namespaces can go without the others: only what acts for them looks at
// them.
func (h *HandOver) ByNamespace() bool { return !h.Copied && !h.Kept && !h.Defines }

// HandOverOf returns the set in which the resource of a key goes; false when it is in none.
func HandOverOf(key string) (HandOver, bool) {
	sets := handOverTable()
	at := slices.IndexFunc(sets, func(h HandOver) bool { return slices.Contains(h.Keys, key) })
	if at < 0 {
		return HandOver{}, false
	}
	return sets[at], true
}
