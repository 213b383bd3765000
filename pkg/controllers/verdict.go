package controllers

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/gc"
)

// ownerState is what is known of an owner after every side that could hold it was read. The zero value is undecided.
type ownerState struct {
	seen    gc.Sight
	waiting bool // it was found, is being deleted, and waits until its dependents are deleted
}

// joint is this collector.
var joint = gc.Joint()

// gone: each side that could hold the owner returned that it does not, or has another object of that name.
func (s ownerState) gone() bool { return joint.Outcome(s.seen) == gc.Deleted }

// there: a side has the owner.
func (s ownerState) there() bool { return s.seen == gc.Found || s.seen == gc.ClusterOwner }

// holds: the owner keeps its dependents.
func (s ownerState) holds() bool { return s.there() && !s.waiting }

// undecided: the owner may be there.
func (s ownerState) undecided() bool { return !s.gone() && !s.there() }

// subject is an object about which to decide, as it was just read.
type subject struct {
	owners     []metav1.OwnerReference
	states     []ownerState // of owners, in the same order
	finalizers []string
	deleting   bool
	// dependents says that some object refers to this one as its owner, dependentsDeleting that one of these is itself
	// waiting for its dependents.
	dependents, dependentsDeleting bool
}

// action is what to do with an object.
type action int

const (
	keep    action = iota // it has an owner, or never had one, or is being deleted
	doubt                 // an owner is undecided: requeue
	trim                  // it has an owner, and references to absent ones
	collect               // it has no live owner
)

// verdict is what to do with an object, and how.
type verdict struct {
	action action
	policy metav1.DeletionPropagation // of collect
	owners []metav1.OwnerReference    // of trim: the references that stay
	// unblock: blockOwnerDeletion of the object's own references is removed first, since it and its dependents wait for
	// each other.
	unblock bool
}

// judge decides. It is the only place that decides about a deletion: an object is collected when it has owners and not
// one of them is, or may be, there, except for owners that wait for their dependents to go.
func judge(s subject) verdict {
	if s.deleting || len(s.owners) == 0 {
		return verdict{action: keep}
	}
	if len(s.states) != len(s.owners) || slices.ContainsFunc(s.states, ownerState.undecided) {
		return verdict{action: doubt}
	}
	if slices.ContainsFunc(s.states, ownerState.holds) {
		var stay []metav1.OwnerReference
		for i, owner := range s.owners {
			if s.states[i].holds() {
				stay = append(stay, owner)
			}
		}
		if len(stay) == len(s.owners) {
			return verdict{action: keep}
		}
		return verdict{action: trim, owners: stay}
	}
	if slices.ContainsFunc(s.states, ownerState.there) && s.dependents { // each of them waits
		return verdict{action: collect, policy: metav1.DeletePropagationForeground, unblock: s.dependentsDeleting}
	}
	return verdict{action: collect, policy: policyOf(s.finalizers)}
}

// policyOf keeps an earlier choice: a finalizer of the object itself takes precedence over how its owner was deleted.
func policyOf(finalizers []string) metav1.DeletionPropagation {
	switch {
	case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		return metav1.DeletePropagationOrphan
	case slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
		return metav1.DeletePropagationForeground
	default:
		return metav1.DeletePropagationBackground
	}
}
