package live

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// leaderAnnotation is the record of a lock that is held in endpoints or a config map.
const leaderAnnotation = "control-plane.alpha.kubernetes.io/leader"

// lockKinds are the keys of resources in which locks are held.
var lockKinds = []string{"configmaps", "leases", "services/endpoints"}

// nodeLeases is the namespace of leases that are heartbeats of kubelets, not locks.
const nodeLeases = "kube-node-lease"

// record is what a holder writes.
type record struct {
	Holder  string    `json:"holderIdentity"`
	Seconds int       `json:"leaseDurationSeconds"`
	Renewed time.Time `json:"renewTime"`
}

// heldLock is a lock object with a holder.
type heldLock struct {
	record
	resource  string // key
	namespace string
	name      string
	seen      []pair.Side
}

// until is when the lock is free unless its holder renews it.
func (l *heldLock) until() time.Time { return l.Renewed.Add(time.Duration(l.Seconds) * time.Second) }

func (l *heldLock) title() string { return title(l.namespace, l.name) }

func (l *heldLock) String() string {
	whose := "that both sides see"
	if len(l.seen) == 1 {
		whose = fmt.Sprintf("of the %s side", l.seen[0])
	}
	return fmt.Sprintf("in %s %s by %s", strings.TrimPrefix(l.resource, "services/"), whose, l.Holder)
}

// meetLock notes the record of a lock object.
func (c *checker) meetLock(in *collection, o *object) {
	if !slices.Contains(lockKinds, in.name) || o.Metadata.Namespace == nodeLeases {
		return
	}
	l := heldLock{resource: in.name, namespace: o.Metadata.Namespace, name: o.Metadata.Name, seen: in.seen}
	text := []byte(o.Spec)
	if in.name != "leases" {
		text = []byte(o.Metadata.Annotations[leaderAnnotation])
	}
	if len(text) == 0 || utiljson.Unmarshal(text, &l.record) != nil || l.Holder == "" || l.Renewed.IsZero() {
		return
	}
	c.locks = append(c.locks, l)
}

// judgeLocks reports names under which two holders lead at once, and locks of the plan without a holder.
func (c *checker) judgeLocks() {
	byName := map[string][]heldLock{}
	for _, l := range c.locks {
		if l.until().After(c.now) {
			byName[l.title()] = append(byName[l.title()], l)
		}
	}
	for name, held := range byName {
		slices.SortFunc(held, func(a, b heldLock) int {
			return cmp.Or(cmp.Compare(a.resource, b.resource), cmp.Compare(a.seen[0], b.seen[0]))
		})
		if distinct := slices.ContainsFunc(held, func(l heldLock) bool {
			return l.Holder != held[0].Holder
		}); distinct && !c.planned(held) {
			c.add(c.twoLeaders(name, held))
		}
	}
	c.unheldLocks()
	c.judgeJoint()
}

// planned reports whether each of the locks is one on which a component of the plan elects.
func (c *checker) planned(held []heldLock) bool {
	locks := slices.Concat(c.plan.Legacy.Locks, c.plan.Modern.Locks)
	return !slices.ContainsFunc(held, func(l heldLock) bool { return !slices.ContainsFunc(locks, l.isFor) })
}

// isFor reports whether the object is the one on which the component elects.
func (l *heldLock) isFor(of pair.Lock) bool {
	return of.Resource == l.resource && of.Namespace == l.namespace && of.Name == l.name &&
		slices.Contains(l.seen, of.Side)
}

func (c *checker) twoLeaders(name string, held []heldLock) finding.Finding {
	var holders []string
	for i := range held {
		holders = append(holders, held[i].String())
	}
	f := finding.Finding{Rule: "FUS065", Severity: finding.Warning, Subject: "lock " + name, Related: holders,
		Message: fmt.Sprintf("has two holders: %s. Neither sees the other's lock, and both act as the leader",
			strings.Join(holders, "; ")),
		Fix: "run it on one side, or elect on one object that both sides see; give one that acts for its side's " +
			"objects alone another lock name"}
	if slices.ContainsFunc(slices.Concat(c.plan.Legacy.Locks, c.plan.Modern.Locks), func(l pair.Lock) bool {
		return title(l.Namespace, l.Name) == name
	}) {
		f.Severity = finding.Error // a component of the control plane
	}
	return f
}

// longUnheld is how long a lock must not have been renewed before it is reported as without a holder: clocks differ.
const longUnheld = 5 * time.Minute

// unheldLocks reports components of the plan that do not lead where they should: they do not run, or elect on something
// else.
func (c *checker) unheldLocks() {
	for _, of := range slices.Concat(c.plan.Legacy.Locks, c.plan.Modern.Locks) {
		if c.failed[place{of.Side, of.Resource}] || len(c.plan.ComponentsOf(of.Side, of.Component)) == 0 {
			continue
		}
		if slices.ContainsFunc(c.locks, func(l heldLock) bool {
			return l.isFor(of) && l.until().Add(longUnheld).After(c.now)
		}) {
			continue
		}
		c.add(finding.Finding{Rule: Differs, Severity: finding.Warning,
			Subject: fmt.Sprintf("%s of the %s side", of.Component, of.Side),
			Message: fmt.Sprintf("its lock, %s %s, has no holder: it does not run, or elects on another object than "+
				"planned", strings.TrimPrefix(of.Resource, "services/"), title(of.Namespace, of.Name)),
			Fix: "start it with the arguments of the plan"})
	}
}

// jointLock is what fusionctl's own controllers elect on.
var jointLock = pair.Lock{Component: plan.JointControllers, Resource: "configmaps", Namespace: metav1.NamespaceSystem,
	Name: plan.JointControllers}

// jointLead reports whether fusionctl's own controllers hold their lock, and act.
func (c *checker) jointLead() bool {
	return slices.ContainsFunc(c.locks, func(l heldLock) bool {
		return l.resource == jointLock.Resource && l.title() == title(jointLock.Namespace, jointLock.Name) &&
			l.until().Add(longUnheld).After(c.now)
	})
}

// judgeJoint reports that no component does what the plan leaves to fusionctl controllers.
func (c *checker) judgeJoint() {
	runs := slices.ContainsFunc(c.plan.Components, func(of plan.Component) bool {
		elect, given := of.Arg("leader-elect")
		return of.Kind == plan.JointControllers && !(given && elect == "false")
	})
	if !runs || c.jointLead() || c.failed[place{pair.Legacy, jointLock.Resource}] {
		return
	}
	c.add(finding.Finding{Rule: Differs, Severity: finding.Warning, Subject: plan.JointControllers,
		Message: fmt.Sprintf("their lock, %s %s, has no holder: no component does what the plan leaves to them: %s",
			jointLock.Resource, title(jointLock.Namespace, jointLock.Name), strings.Join(c.plan.Joint.Why, "; ")),
		Fix: "start fusionctl controllers with the arguments of the plan"})
}
