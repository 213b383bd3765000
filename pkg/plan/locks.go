package plan

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// lockKinds are the kinds of lock in the order in which the modern side prefers them. Endpoints come last: the
// endpoints controller of old versions deletes those that belong to no service, locks among them.
var lockKinds = []string{"leases", "configmaps", "configmapsleases", "endpointsleases", "endpoints"}

// election is how a component elects its leader: the flags that say so, and the objects.
type election struct {
	args  []Arg
	locks []pair.Lock
}

// runningElection is the election of a component that is left as the spec has it.
func runningElection(side pair.Side, component string, minor kubever.Minor, args []spec.Arg) election {
	if elect, ok := lastValue(args, "leader-elect"); ok && elect == "false" {
		return election{}
	}
	facts := kubever.LeaderLocks(component, minor)
	kind, name, namespace := facts.Default, facts.Object, metav1.NamespaceSystem
	if value, ok := lastValue(args, "leader-elect-resource-lock"); ok {
		kind = value
	}
	if value, ok := lastValue(args, facts.NameFlagName); ok && facts.NameFlag {
		name = value
	}
	if value, ok := lastValue(args, facts.NamespaceFlagName); ok && facts.NamespaceFlag {
		namespace = value
	}
	return election{locks: locksOf(side, component, kind, namespace, name)}
}

func locksOf(side pair.Side, component, kind, namespace, name string) []pair.Lock {
	var locks []pair.Lock
	for _, key := range kubever.LockKeys(kind) {
		locks = append(locks, pair.Lock{Side: side, Component: component, Resource: key, Namespace: namespace,
			Name: name})
	}
	return locks
}

// distinctElection makes a component of the modern side elect on an object that no component of the legacy side elects
// on: by name where its version can be given one, by kind where it cannot, by store where the kinds lie apart anyway;
// false where none of it works.
func distinctElection(component string, minor kubever.Minor, legacy []pair.Lock, rows []Resource) (election, bool) {
	facts := kubever.LeaderLocks(component, minor)
	if facts.NameFlag {
		kind := preferredLock(facts)
		name := facts.Object + "-modern"
		e := election{locks: locksOf(pair.Modern, component, kind, metav1.NamespaceSystem, name)}
		if kind != facts.Default {
			e.args = append(e.args, Arg{Name: "leader-elect-resource-lock", Value: kind, Origin: FromPlan,
				Why: "an endpoints lock may be deleted by the legacy side's endpoints controller"})
		}
		e.args = append(e.args, Arg{Name: facts.NameFlagName, Value: name, Origin: FromPlan,
			Why: "another lock name: with the legacy side's name only one of the two would ever lead"})
		return e, true
	}
	for _, kind := range lockKinds {
		if kind != facts.Default && !slices.Contains(facts.Settable, kind) {
			continue
		}
		locks := locksOf(pair.Modern, component, kind, metav1.NamespaceSystem, facts.Object)
		if contended(locks, legacy, rows) || !stored(locks, rows) {
			continue
		}
		e := election{locks: locks}
		if kind != facts.Default {
			e.args = []Arg{{Name: "leader-elect-resource-lock", Value: kind, Origin: FromPlan,
				Why: "its lock cannot be renamed in this version; the legacy side's lock is an object of another kind"}}
		}
		return e, true
	}
	return election{}, false
}

// preferredLock is the kind of a lock that can be given a name of its own.
func preferredLock(facts kubever.Locks) string {
	if slices.Contains(facts.Settable, lockKinds[0]) {
		return lockKinds[0]
	}
	return facts.Default
}

// electsIn reports whether the modern side's controller manager elects on an object of the key, as its version and the
// spec have it.
func (p *placement) electsIn(key string) bool {
	manager := p.file.Spec.Modern.ControllerManager
	if manager == nil {
		return false
	}
	facts := kubever.LeaderLocks(kubever.ControllerManager, p.modern)
	kind := facts.Default
	if electsByItself(manager.ExtraArgs) {
		if elect, _ := lastValue(manager.ExtraArgs, "leader-elect"); elect == "false" {
			return false
		}
		if value, ok := lastValue(manager.ExtraArgs, "leader-elect-resource-lock"); ok {
			kind = value
		}
	} else if facts.NameFlag {
		kind = preferredLock(facts)
	}
	return slices.Contains(kubever.LockKeys(kind), key)
}

// contended reports whether two locks are one object in one store.
func contended(locks, others []pair.Lock, rows []Resource) bool {
	for _, a := range locks {
		for _, b := range others {
			row := rowOf(rows, a.Resource)
			if a.Resource == b.Resource && a.Namespace == b.Namespace && a.Name == b.Name && row != nil &&
				row.VisibleToBoth() {
				return true
			}
		}
	}
	return false
}

// stored reports whether the modern side has the resources of all the locks.
func stored(locks []pair.Lock, rows []Resource) bool {
	for _, l := range locks {
		if row := rowOf(rows, l.Resource); row == nil || row.Modern.Store == "" {
			return false
		}
	}
	return len(locks) > 0
}
