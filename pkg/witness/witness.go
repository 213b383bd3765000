// Package witness tells a store that has forgotten, or is another one, from a store in which objects were deleted. What
// a store shows of itself is remembered outside of it, and held against what it shows later. Both look alike to a
// reader of one object: it is absent.
package witness

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Sight is what a store shows of itself at one moment, directly or through an API server.
type Sight struct {
	At       time.Time `json:"at"`
	Cluster  string    `json:"cluster,omitempty"`  // the id of the etcd cluster; "" where it cannot be seen
	Revision int64     `json:"revision,omitempty"` // its newest; 0 where it cannot be seen
	// Objects are some that are there for long, by path: "namespaces/kube-system". One that was looked for and is
	// absent is the zero Object; one that was not looked for is missing.
	Objects map[string]Object `json:"objects,omitempty"`
}

// Object is an object as it is stored.
type Object struct {
	UID      string `json:"uid"`
	Revision int64  `json:"revision,omitempty"` // at which it was last written
}

// KubeSystem is the path of the namespace that no API server lets a client delete: another UID is another store.
const KubeSystem = "namespaces/kube-system"

const (
	// fastestWrites is more writes in a second than an etcd takes for long, and slackWrites what may come on top of
	// them. A revision that grows faster was set: restores for Kubernetes are told to raise it by a thousand million.
	fastestWrites = 10_000
	slackWrites   = 1_000_000
)

// Changes says in what the store that is seen now is not the one that was seen before; nothing for the same one.
func (before *Sight) Changes(now *Sight) []string {
	var why []string
	say := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	if before.Cluster != "" && now.Cluster != "" && before.Cluster != now.Cluster {
		say("its etcd cluster has the id %s, and had %s", now.Cluster, before.Cluster)
	}
	if before.Revision != 0 && now.Revision != 0 {
		grown, elapsed := now.Revision-before.Revision, max(0, now.At.Sub(before.At))
		switch {
		case grown < 0:
			say("its newest revision is %d, and was %d", now.Revision, before.Revision)
		case before.At.IsZero(): // how long ago that was is not known
		case grown > slackWrites+fastestWrites*int64(elapsed/time.Second):
			say("its revision went from %d to %d within %s, faster than an etcd writes: it was set, as a restore does",
				before.Revision, now.Revision, elapsed.Round(time.Second))
		}
	}
	asked, gone := 0, []string(nil)
	for _, path := range slices.Sorted(maps.Keys(before.Objects)) {
		was := before.Objects[path]
		is, looked := now.Objects[path]
		if !looked {
			continue
		}
		asked++
		switch {
		case is.UID != was.UID && path == KubeSystem:
			say("%s is another object: its UID is %q, and was %q", path, is.UID, was.UID)
		case is.UID != was.UID:
			gone = append(gone, path)
		case is.Revision < was.Revision:
			say("%s was written at revision %d, and is as it was at %d", path, was.Revision, is.Revision)
		}
	}
	if 2*len(gone) > asked {
		say("%d of %d objects that were there for long are gone, or others have their names: %q", len(gone), asked,
			gone)
	}
	return why
}

// Merge is what to remember after a look that found no changes: the newest of both, without what is gone.
func (before *Sight) Merge(now *Sight) Sight {
	merged := Sight{At: now.At, Cluster: now.Cluster, Revision: max(before.Revision, now.Revision),
		Objects: map[string]Object{}}
	if merged.Cluster == "" {
		merged.Cluster = before.Cluster
	}
	for _, objects := range []map[string]Object{before.Objects, now.Objects} {
		for path, object := range objects {
			merged.Objects[path] = object
		}
	}
	for path, was := range before.Objects {
		if is, looked := now.Objects[path]; looked && is.UID != was.UID {
			delete(merged.Objects, path)
		}
	}
	return merged
}

// Limit is when too many owners vanish at once: more than Share percent of those of a kind, and at least Least, within
// Within.
type Limit struct {
	Share  int
	Least  int
	Within time.Duration
}

// Vanishings counts owners that vanish, by kind.
type Vanishings struct {
	Limit Limit
	gone  map[string][]vanishing
}

// vanishing is one owner that is gone.
type vanishing struct {
	at        time.Time
	namespace string
}

// Add notes that an owner of the kind, in a namespace or in none, is gone, of which so many are left. It says what is
// wrong when too many are, and in which namespaces they were; "" when not.
func (v *Vanishings) Add(kind, namespace string, left int, now time.Time) string {
	if v.gone == nil {
		v.gone = map[string][]vanishing{}
	}
	old, _ := slices.BinarySearchFunc(v.gone[kind], now.Add(-v.Limit.Within), func(was vanishing, limit time.Time) int {
		return cmp.Or(was.at.Compare(limit), -1) // what is as old as the limit is too old
	})
	recent := append(v.gone[kind][old:], vanishing{now, namespace})
	v.gone[kind] = recent
	if all := len(recent) + left; len(recent) >= v.Limit.Least && 100*len(recent) > v.Limit.Share*all {
		return fmt.Sprintf("%d of %d %s that own something vanished within %s%s", len(recent), all, kind,
			v.Limit.Within, namespacesOf(recent))
	}
	return ""
}

// mostNamespaces is how many namespaces a reason names.
const mostNamespaces = 5

// namespacesOf says in which namespaces owners vanished, those with the most of them first. A person sees whether it is
// one tenant's doing.
func namespacesOf(gone []vanishing) string {
	count := map[string]int{}
	for _, was := range gone {
		if was.namespace != "" {
			count[was.namespace]++
		}
	}
	if len(count) == 0 {
		return ""
	}
	names := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	var said []string
	for _, name := range names[:min(len(names), mostNamespaces)] {
		said = append(said, fmt.Sprintf("%d in namespace %.63q", count[name], name))
	}
	if more := len(names) - len(said); more > 0 {
		said = append(said, fmt.Sprintf("and others in %d more", more))
	}
	return ": " + strings.Join(said, ", ")
}

// Forget begins anew.
func (v *Vanishings) Forget() { v.gone = nil }

// Memory is what is remembered of the stores of a pair.
type Memory struct {
	Schema string `json:"schema"`
	Pair   string `json:"pair"`
	// Stores are what was last seen of each, by who sees which: "modern side, store core".
	Stores map[string]Sight `json:"stores"`
	// Kinds are those whose objects own others, and that a side may stop to serve: "modern side, Gadget.example.com".
	Kinds []string `json:"kinds,omitempty"`
	Stop  *Stop    `json:"stop,omitempty"` // nil while nothing is wrong
}

// Stop is why nothing is deleted any more until the stop is acknowledged.
type Stop struct {
	ID    string    `json:"id"`
	Since time.Time `json:"since"`
	Why   []string  `json:"why"`
}

// Acknowledgement is a person's word that deletions may go on.
type Acknowledgement struct {
	Schema string    `json:"schema"`
	Stop   string    `json:"stop"` // the ID of the one that is meant; another goes on
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Why    string    `json:"why,omitempty"`
}

// The schemas of the two.
const (
	MemorySchema          = "fusionctl/witness/v1"
	AcknowledgementSchema = "fusionctl/acknowledgement/v1"
)
