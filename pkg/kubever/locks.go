package kubever

import (
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Locks says how the replicas of a component elect a leader at a minor. Two components that hold locks of different
// kinds, names, namespaces or stores do not see each other and both run. Shape: at 1.15 {Default: endpoints, Settable:
// [endpoints configmaps leases], Object: kube-controller-manager}.
type Locks struct {
	Default       string   // lock kind without flags
	Settable      []string // lock kinds that KindFlag takes; nil without it
	KindFlag      bool     // --leader-elect-resource-lock exists
	NameFlag      bool     // a flag renames the lock object
	NameFlagName  string   // "leader-elect-resource-name", or the scheduler's older "lock-object-name"; "" without
	NamespaceFlag bool     // a flag moves the lock object to another namespace
	Object        string   // name of the lock object without flags, in kube-system
	Source        string

	NamespaceFlagName string // as NameFlagName
}

var lockTable = sync.OnceValue(decodeLocks)

func decodeLocks() []during[[]string] {
	var kinds []during[[]string]
	for _, r := range readTable("locks.tsv", 2) {
		kinds = append(kinds, during[[]string]{r.ranges(0), r.words(1)})
	}
	return kinds
}

// LeaderLocks returns how ControllerManager or Scheduler elects at the minor.
func LeaderLocks(component string, m Minor) Locks {
	locks := Locks{
		Default: "endpoints", // 1.6 has no flag and no other kind
		Object:  component,
		Source:  "leader-election flags of each minor; resourcelock/interface.go of client-go, see Release",
	}
	if kind, ok := Flag(component, "leader-elect-resource-lock").Default(m); ok {
		settable, _ := at(lockTable(), m)
		locks.KindFlag, locks.Default, locks.Settable = true, kind, slices.Clone(settable)
	}
	locks.NameFlagName = firstFlag(component, m, "leader-elect-resource-name", "lock-object-name")
	locks.NamespaceFlagName = firstFlag(component, m, "leader-elect-resource-namespace", "lock-object-namespace")
	locks.NameFlag, locks.NamespaceFlag = locks.NameFlagName != "", locks.NamespaceFlagName != ""
	return locks
}

// firstFlag returns the first of the flags that the component accepts at the minor.
func firstFlag(component string, m Minor, names ...string) string {
	for _, name := range names {
		if Flag(component, name).In(m) {
			return name
		}
	}
	return ""
}

// LockKeys lists the Keys of the resources in which a lock of the kind is held: endpointsleases is held in both of
// them.
func LockKeys(kind string) []string {
	switch kind {
	case "endpoints":
		return []string{"services/endpoints"}
	case "configmaps":
		return []string{"configmaps"}
	case "leases":
		return []string{"leases"}
	case "endpointsleases":
		return []string{"services/endpoints", "leases"}
	case "configmapsleases":
		return []string{"configmaps", "leases"}
	}
	return nil
}

// EndpointReconcilers says how the API servers of a minor agree on the addresses of service default/kubernetes.
// Types is empty before 1.9: there is no flag, the behaviour is that of master-count.
type EndpointReconcilers struct {
	Types   []string // values of --endpoint-reconciler-type, by name
	Default string
	Source  string
}

var reconcilerTable = sync.OnceValue(decodeReconcilers)

func decodeReconcilers() []during[string] {
	var types []during[string]
	for _, r := range readTable("reconcilers.tsv", 2) {
		types = append(types, during[string]{r.ranges(1), r.text(0)})
	}
	return types
}

// EndpointReconcilersIn returns the endpoint reconcilers of the minor.
func EndpointReconcilersIn(m Minor) EndpointReconcilers {
	reconcilers := EndpointReconcilers{Default: "master-count",
		Source: "reconcilers.AllTypes of each minor, see Release"}
	for _, span := range reconcilerTable() {
		if span.minors.Has(m) {
			reconcilers.Types = append(reconcilers.Types, span.value)
		}
	}
	if kind, ok := Flag(APIServer, "endpoint-reconciler-type").Default(m); ok {
		reconcilers.Default = kind
	}
	return reconcilers
}

// Allocators says where the API server of a minor records allocated ClusterIPs. Two servers which share services and do
// not read the same record allocate one address twice. Node ports are in ranges/servicenodeports in every minor, and
// each completes that.
type Allocators struct {
	Bitmap  bool // writes ranges/serviceips by default
	Objects bool // writes IPAddress objects by default
	// KeepBitmap is the value of --feature-gates that makes the server write the bitmap too, where that is not the
	// default and not refused; "" otherwise.
	KeepBitmap string
	// EndBitmap is the value that makes a server that writes both leave the bitmap alone; "" where there is none.
	EndBitmap string
	// FromObjects: an address is allocated when its IPAddress can be created, also where the bitmap is what proposes
	// it; otherwise the bitmap alone says what is free. What a version writes and what it allocates from are two facts.
	FromObjects bool
	// CompletesBitmap: the repair loop adds to the bitmap what Services have and it lacks, at the start of a server,
	// before that is ready, and every three minutes; otherwise it creates IPAddress objects, and leaves the bitmap as
	// it is, also where one is written.
	CompletesBitmap bool
	Source          string
}

// With is how the server allocates that is started with the value of --feature-gates.
func (a Allocators) With(gates string) Allocators {
	for gate := range strings.SplitSeq(gates, ",") {
		switch {
		case sameSetting(gate, a.KeepBitmap):
			a.Bitmap = true
		case sameSetting(gate, a.EndBitmap):
			a.Bitmap = false
		}
	}
	return a
}

// sameSetting reports whether a setting of a gate says the same as another, however it is spelled: A=1 is A=true.
func sameSetting(gate, want string) bool {
	name, value, _ := strings.Cut(gate, "=")
	wantName, wantValue, known := strings.Cut(want, "=")
	is, err := strconv.ParseBool(strings.TrimSpace(value))
	wanted, _ := strconv.ParseBool(wantValue)
	return known && err == nil && strings.TrimSpace(name) == wantName && is == wanted
}

var allocatorTable = sync.OnceValue(decodeAllocators)

func decodeAllocators() []during[Allocators] {
	var allocators []during[Allocators]
	for _, r := range readTable("allocators.tsv", 7) {
		allocators = append(allocators, during[Allocators]{r.ranges(0), Allocators{
			Bitmap: r.yes(1), Objects: r.yes(2), KeepBitmap: r.text(3), EndBitmap: r.text(4),
			FromObjects: r.text(5) == "objects", CompletesBitmap: r.text(6) == "bitmap",
			Source: "kube_features.go and registry/core/rest/storage_core.go of each minor; run: 1.36.3",
		}})
	}
	return allocators
}

// AllocatorsIn returns the cluster IP allocators of the minor.
func AllocatorsIn(m Minor) Allocators {
	allocators, _ := at(allocatorTable(), m)
	return allocators
}
