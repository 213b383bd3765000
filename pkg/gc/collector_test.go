package gc_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/gc"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// TestSight goes through everything that a reference may be. The order of the questions is that of the collectors: one
// that has no mapping for the kind asks for no object.
func TestSight(t *testing.T) {
	seen := map[gc.Sight]int{}
	for bits := range 1 << 4 {
		for _, owner := range []gc.Presence{gc.Unsure, gc.Missing, gc.Present} {
			r := gc.Reference{KnownKind: bits&1 != 0, ServedVersion: bits&2 != 0, OwnerNamespaced: bits&4 != 0,
				Namespaced: bits&8 != 0, Owner: owner}
			want := gc.Found
			switch {
			case !r.KnownKind:
				want = gc.UnknownKind
			case !r.ServedVersion:
				want = gc.UnservedVersion
			case r.OwnerNamespaced && !r.Namespaced:
				want = gc.NamespacedOwner
			default:
				want = map[gc.Presence]gc.Sight{gc.Unsure: gc.Undecided, gc.Missing: gc.Absent,
					gc.Present: gc.Found}[owner]
				if want == gc.Found && r.Namespaced && !r.OwnerNamespaced {
					want = gc.ClusterOwner
				}
			}
			if got := r.Sight(); got != want {
				t.Errorf("%+v: Sight() = %d, want %d", r, got, want)
			}
			seen[want]++
		}
	}
	if len(seen) != 7 {
		t.Errorf("%d sights were seen, want all 7: %v", len(seen), seen)
	}
}

// The outcomes were read in the source of every range, and run: collectors of 1.6.13, 1.10.13, 1.15.12 and 1.36.3 on
// the same objects.
func TestOutcomesOfEveryMinor(t *testing.T) {
	deletes := map[gc.Sight]func(m kubever.Minor) bool{
		gc.Undecided:       func(kubever.Minor) bool { return false },
		gc.Found:           func(kubever.Minor) bool { return false },
		gc.UnknownKind:     func(kubever.Minor) bool { return false },
		gc.UnservedVersion: func(m kubever.Minor) bool { return m < 10 },
		gc.Absent:          func(kubever.Minor) bool { return true },
		gc.ClusterOwner:    func(m kubever.Minor) bool { return m < 9 },
		gc.NamespacedOwner: func(m kubever.Minor) bool { return m < 9 || m > 10 && m < 20 },
	}
	for _, minor := range kubever.Minors() {
		collector := kubever.GarbageCollectorIn(minor)
		for seen, deleted := range deletes {
			want := gc.Safe
			if deleted(minor) {
				want = gc.Deleted
			}
			if got := collector.Outcome(seen); got != want {
				t.Errorf("the collector of %s, seeing %d: %s, want %s", minor, seen, got, want)
			}
		}
		if !collector.Deletes() || collector.Runs {
			t.Errorf("the collector of %s: Deletes() = %t, want true; Runs = %t, want what a plan says", minor,
				collector.Deletes(), collector.Runs)
		}
	}
}

func TestNoOutcomeIsSafe(t *testing.T) {
	var c gc.Collector
	for seen := gc.Undecided; seen <= gc.NamespacedOwner; seen++ {
		if got := c.Outcome(seen); got != gc.Safe {
			t.Errorf("Outcome(%d) of a collector of which nothing is known = %q, want %q", seen, got, gc.Safe)
		}
	}
	if c.Deletes() {
		t.Error("a collector of which nothing is known deletes")
	}
}

// fusionctl's own collector deletes an object for want of an owner that is absent, and for nothing else.
func TestJointDeletesForAbsentOwnersAlone(t *testing.T) {
	joint := gc.Joint()
	for seen := gc.Undecided; seen <= gc.NamespacedOwner; seen++ {
		if deletes := joint.Outcome(seen) == gc.Deleted; deletes != (seen == gc.Absent) {
			t.Errorf("Outcome(%d) = %s", seen, joint.Outcome(seen))
		}
	}
}

// The text of rule FUS061 names the minors in which the table has a collector delete for each sight of that rule.
func TestMistakenNamesTheMinorsOfTheTable(t *testing.T) {
	for seen := gc.UnknownKind; seen <= gc.NamespacedOwner; seen++ {
		if seen.Rule("replicasets", "Deployment") != "FUS061" {
			continue
		}
		var ranges []string
		first, last := kubever.Minor(0), kubever.Minor(0)
		for _, m := range append(kubever.Minors(), 0) {
			collector := kubever.GarbageCollectorIn(m)
			switch deletes := collector.Outcome(seen) == gc.Deleted; {
			case deletes && first == 0:
				first, last = m, m
			case deletes:
				last = m
			case first != 0:
				ranges = append(ranges, fmt.Sprintf("of %s to %s", first, last))
				first = 0
			}
		}
		about := map[gc.Sight]string{gc.UnservedVersion: " when they get a 404 for an API version",
			gc.ClusterOwner:    " when they look up a cluster-scoped owner",
			gc.NamespacedOwner: " when they look up a namespaced owner"}[seen]
		if len(ranges) == 0 {
			continue // no version deletes for it
		}
		if want := strings.Join(ranges, " and ") + about; about == "" || !strings.Contains(gc.Mistaken, want) {
			t.Errorf("sight %d: the text lacks %q: %s", seen, want, gc.Mistaken)
		}
	}
}

// In a list of names without a * the entry -NAME changes nothing: the fix has to say what does.
func TestTurnOffSaysBothEdits(t *testing.T) {
	fix := gc.TurnOff("legacy", "garbagecollector")
	for _, want := range []string{"take garbagecollector out of --controllers", "legacy side",
		"or, where that has a * or is not set, add -garbagecollector"} {
		if !strings.Contains(fix, want) {
			t.Errorf("%q lacks %q", fix, want)
		}
	}
	for minor, want := range map[kubever.Minor]string{15: "garbagecollector", 27: "garbagecollector",
		28: "garbage-collector-controller", 36: "garbage-collector-controller"} {
		if got := kubever.GarbageCollectorName(minor); got != want {
			t.Errorf("the garbage collector of %s is called %s, want %s", minor, got, want)
		}
	}
}

// What a sight is called in findings, and by which rule it is reported: an owner that is found has neither.
func TestEverySightHasItsWords(t *testing.T) {
	keys := map[string]gc.Sight{}
	for seen := gc.UnknownKind; seen <= gc.NamespacedOwner; seen++ {
		if other, twice := keys[seen.Key()]; seen.Key() == "" || seen.Why() == "" || twice {
			t.Errorf("sight %d: key %q of %d too, why %q", seen, seen.Key(), other, seen.Why())
		}
		keys[seen.Key()] = seen
		want := "FUS061"
		if seen == gc.Absent {
			want = "FUS060"
		}
		if got := seen.Rule("replicasets", "Deployment"); got != want {
			t.Errorf("Rule(%d) = %s, want %s", seen, got, want)
		}
	}
	if got := gc.ClusterOwner.Rule("leases", "Node"); got != "FUS061" {
		t.Errorf("Rule of the lease of a node = %s, want FUS061", got)
	}
	if got := gc.ClusterOwner.Rule("pods", "Node"); got != "FUS062" {
		t.Errorf("Rule of a node that is not found = %s, want FUS062", got)
	}
	if gc.Found.Key() != "" || gc.Undecided.Why() != "" {
		t.Error("what is found or undecided has words of a finding")
	}
}
