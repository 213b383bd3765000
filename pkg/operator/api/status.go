package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/finding"
)

// Status is what the operator saw of a control plane, and how far it came.
type Status struct {
	// of the spec that this status is about
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// in one word; the conditions say more
	Phase Phase `json:"phase,omitempty"`
	// digest of the plan that the spec leads to; an approval begins with it
	Plan string `json:"plan,omitempty"`
	// digest of the plan by which the components run; empty while none does
	Runs string `json:"runs,omitempty"`
	// the last transition, and how far it came
	Transition *TransitionStatus `json:"transition,omitempty"`
	// Findings are the worst findings about the plan; Summary counts them all.
	Findings []PlanFinding   `json:"findings,omitempty"`
	Summary  finding.Summary `json:"summary,omitzero"`
	// Components are those that the operator runs, and those that run elsewhere.
	Components []ComponentStatus `json:"components,omitempty"`
	// the backups of the stores; absent without spec.backup
	Backup *BackupStatus `json:"backup,omitempty"`
	// Ready, Progressing, Degraded, Safe, BackedUp
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// the transitions before, the last one first
	History []PastTransition `json:"history,omitempty"`
}

// Phase is what the control plane is doing, in one word.
type Phase string

// Phases of a control plane.
const (
	Pending     Phase = "Pending"     // the operator has not looked yet
	Refused     Phase = "Refused"     // the spec leads to no plan, or to one with findings; what runs is left alone
	Waiting     Phase = "Waiting"     // for an approval
	Paused      Phase = "Paused"      // spec.paused
	Progressing Phase = "Progressing" // a transition goes on
	GoingBack   Phase = "GoingBack"   // a transition is undone
	Running     Phase = "Running"     // what runs is what the spec says, and it is ready
	Degraded    Phase = "Degraded"    // something is not ready, or cannot be read
	Deleting    Phase = "Deleting"
)

// Phases lists the phases.
var Phases = []string{string(Pending), string(Refused), string(Waiting), string(Paused), string(Progressing),
	string(GoingBack), string(Running), string(Degraded), string(Deleting)}

// Types of the conditions.
const (
	// ConditionReady is true when every component is there and ready.
	ConditionReady = "Ready"
	// ConditionProgressing is true while a transition goes on or is undone.
	ConditionProgressing = "Progressing"
	// ConditionDegraded is true when the operator cannot go on, or something that ran does not.
	ConditionDegraded = "Degraded"
	// ConditionSafe is true when the plan has no finding that is an error and is not accepted.
	ConditionSafe = "Safe"
	// ConditionBackedUp is true when the last backup was read to its end, and is not too old; absent without
	// spec.backup.
	ConditionBackedUp = "BackedUp"
)

// BackupStatus is what was saved of the stores.
type BackupStatus struct {
	Last *BackupMade  `json:"last,omitempty"` // that was read to its end
	Next *metav1.Time `json:"next,omitempty"` // when the next one is to be made
	// Failed is the last attempt, where that failed.
	Failed *BackupFailed `json:"failed,omitempty"`
	// names of the backups that there were when the last one was made, the newest one first
	Kept []string `json:"kept,omitempty"`
}

// BackupMade is a backup.
type BackupMade struct {
	Name   string       `json:"name"` // what the annotation kubefusion.dev/restore takes
	At     metav1.Time  `json:"at"`
	Stores []StoreSaved `json:"stores,omitempty"`
	// Findings counts what etcd check finds in it.
	Findings finding.Summary `json:"findings,omitzero"`
}

// StoreSaved is the snapshot of a store.
type StoreSaved struct {
	Name     string `json:"name"`
	Revision int64  `json:"revision,omitempty"`
	Keys     int64  `json:"keys,omitempty"`
	Bytes    int64  `json:"bytes,omitempty"` // of the file
}

// BackupFailed is an attempt that made no backup.
type BackupFailed struct {
	At    metav1.Time `json:"at"`
	Error string      `json:"error"`
}

// TransitionStatus is how far a transition came.
type TransitionStatus struct {
	From  string `json:"from"`           // what ran before
	To    string `json:"to"`             // what runs after
	Plan  string `json:"plan,omitempty"` // digest of the plan to which it leads
	Back  bool   `json:"back,omitempty"` // it is undone
	Steps int    `json:"steps"`
	Done  int    `json:"done"`           // steps, from the first
	Step  string `json:"step,omitempty"` // the one that is carried out
	// Error is why it does not go on, or why it went back.
	Error string      `json:"error,omitempty"`
	Since metav1.Time `json:"since,omitzero"`
}

// PastTransition is a transition that ended.
type PastTransition struct {
	From  string      `json:"from"`
	To    string      `json:"to"`
	Plan  string      `json:"plan,omitempty"` // digest of the plan that ran after it
	Ended metav1.Time `json:"ended"`
	// Error is why it went back; empty where it came to its end.
	Error string `json:"error,omitempty"`
}

// PlanFinding is a finding as fusionctl check prints it.
type PlanFinding struct {
	Rule     string `json:"rule"`
	Severity string `json:"severity"`
	Subject  string `json:"subject"`
	Message  string `json:"message"`
	Fix      string `json:"fix,omitempty"`
}

// ComponentStatus is a component of the control plane, on each of its hosts or as pods.
type ComponentStatus struct {
	Name    string `json:"name"`
	Host    string `json:"host"` // of spec.hosts, or hosted
	Side    string `json:"side,omitempty"`
	Version string `json:"version,omitempty"` // that runs
	Image   string `json:"image,omitempty"`
	// Existing says that it runs elsewhere, and the operator leaves it alone.
	Existing bool `json:"existing,omitempty"`
	Wanted   int  `json:"wanted,omitempty"` // pods
	Ready    int  `json:"ready,omitempty"`  // pods
}
