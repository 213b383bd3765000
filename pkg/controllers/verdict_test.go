package controllers

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/gc"
)

func TestJudge(t *testing.T) {
	absent, present, unknown := ownerState{seen: gc.Absent}, ownerState{seen: gc.Found}, ownerState{}
	waiting := ownerState{seen: gc.Found, waiting: true}
	refs := func(n int) []metav1.OwnerReference {
		return []metav1.OwnerReference{{UID: "a"}, {UID: "b"}, {UID: "c"}}[:n]
	}
	for name, test := range map[string]struct {
		subject subject
		want    verdict
	}{
		"never owned": {subject{}, verdict{action: keep}},
		"being deleted": {subject{deleting: true, owners: refs(1), states: []ownerState{absent}},
			verdict{action: keep}},
		"owner there": {subject{owners: refs(1), states: []ownerState{present}},
			verdict{action: keep}},
		"owner gone": {subject{owners: refs(1), states: []ownerState{absent}},
			verdict{action: collect, policy: metav1.DeletePropagationBackground}},
		"both gone": {subject{owners: refs(2), states: []ownerState{absent, absent}},
			verdict{action: collect, policy: metav1.DeletePropagationBackground}},
		"one gone, one there": {subject{owners: refs(2), states: []ownerState{absent, present}},
			verdict{action: trim, owners: refs(2)[1:]}},
		"one gone, one unknown": {subject{owners: refs(2), states: []ownerState{absent, unknown}},
			verdict{action: doubt}},
		"one there, one unknown": {subject{owners: refs(2), states: []ownerState{present, unknown}},
			verdict{action: doubt}},
		"one gone, one of a kind that no side serves": {subject{owners: refs(2),
			states: []ownerState{absent, {seen: gc.UnknownKind}}}, verdict{action: doubt}},
		"one gone, one in no namespace that could be told": {subject{owners: refs(2),
			states: []ownerState{absent, {seen: gc.NamespacedOwner}}}, verdict{action: doubt}},
		"one gone, one cluster-scoped": {
			subject{owners: refs(2), states: []ownerState{absent, {seen: gc.ClusterOwner}}},
			verdict{action: trim, owners: refs(2)[1:]}},
		"one gone, one never asked for": {subject{owners: refs(2), states: []ownerState{absent}},
			verdict{action: doubt}},
		"owner waits": {subject{owners: refs(1), states: []ownerState{waiting}},
			verdict{action: collect, policy: metav1.DeletePropagationBackground}},
		"owner waits, has dependents": {subject{owners: refs(1), states: []ownerState{waiting}, dependents: true},
			verdict{action: collect, policy: metav1.DeletePropagationForeground}},
		"a ring": {subject{owners: refs(1), states: []ownerState{waiting}, dependents: true,
			dependentsDeleting: true},
			verdict{action: collect, policy: metav1.DeletePropagationForeground, unblock: true}},
		"owner waits, another stays": {subject{owners: refs(2), states: []ownerState{waiting, present},
			dependents: true}, verdict{action: trim, owners: refs(2)[1:]}},
		"orphan finalizer of its own": {subject{owners: refs(1), states: []ownerState{absent},
			finalizers: []string{metav1.FinalizerOrphanDependents}},
			verdict{action: collect, policy: metav1.DeletePropagationOrphan}},
		"foreground finalizer of its own": {subject{owners: refs(1), states: []ownerState{absent},
			finalizers: []string{metav1.FinalizerDeleteDependents}},
			verdict{action: collect, policy: metav1.DeletePropagationForeground}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, judge(test.subject), cmp.AllowUnexported(verdict{})); diff != "" {
				t.Errorf("judge(%+v), -want +got:\n%s", test.subject, diff)
			}
		})
	}
}

// FuzzJudgeNeverCollectsWhileAnOwnerMayExist reads a subject from bytes: one for each owner, then flags.
func FuzzJudgeNeverCollectsWhileAnOwnerMayExist(f *testing.F) {
	f.Add([]byte{1, 1}, byte(0), byte(0))
	f.Add([]byte{1, 0}, byte(0), byte(0))
	f.Add([]byte{3, 2, 1}, byte(6), byte(1))
	f.Fuzz(func(t *testing.T, states []byte, flags, missing byte) {
		s := subject{deleting: flags&1 != 0, dependents: flags&2 != 0, dependentsDeleting: flags&4 != 0}
		if flags&8 != 0 {
			s.finalizers = append(s.finalizers, metav1.FinalizerOrphanDependents)
		}
		for _, b := range states {
			s.owners = append(s.owners, metav1.OwnerReference{})
			s.states = append(s.states, ownerState{seen: gc.Sight(b % 7), waiting: b&64 != 0})
		}
		s.states = s.states[:len(s.states)-min(int(missing), len(s.states))]
		v := judge(s)
		mayExist := len(s.states) < len(s.owners) || slices.ContainsFunc(s.states, func(state ownerState) bool {
			isThere := state.seen == gc.Found || state.seen == gc.ClusterOwner
			return state.seen != gc.Absent && !(isThere && state.waiting)
		})
		if v.action == collect && (mayExist || len(s.owners) == 0 || s.deleting) {
			t.Errorf("judge(%+v) collects", s)
		}
		if v.action == trim {
			present := 0
			for _, state := range s.states {
				if !state.waiting && (state.seen == gc.Found || state.seen == gc.ClusterOwner) {
					present++
				}
			}
			if len(v.owners) != present || present == 0 || slices.ContainsFunc(s.states, ownerState.undecided) ||
				len(s.states) < len(s.owners) {
				t.Errorf("judge(%+v) keeps %d references, want the %d of owners that are there, and none in doubt", s,
					len(v.owners), present)
			}
		}
	})
}
