package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// The controllers that are decided about by themselves, by the name they have since 1.28.
const (
	garbageCollector = "garbage-collector-controller"
	namespaceControl = "namespace-controller"
	rootCAPublisher  = "root-ca-certificate-publisher-controller"
	daemonSetControl = "daemonset-controller"
)

// leftToLegacy are controllers of the modern side that stay off whichever side owns their objects.
var leftToLegacy = map[string]string{
	"certificatesigningrequest-approving-controller": "it approves certificate requests of " +
		"kubelets, which send them to the legacy API server",
	"certificatesigningrequest-signing-controller": "it needs the private key of the cluster's CA, " +
		"which stays with the legacy side",
	"clusterrole-aggregation-controller": "the modern API server authorizes by ABAC alone and consults " +
		"no cluster roles",
	"legacy-serviceaccount-token-cleaner-controller": "it takes tokens that are used only " +
		"through the legacy API server for unused and invalidates them",
	"storage-version-migrator-controller": "it rewrites every object of a resource in this version's " +
		"format, including resources that both sides read",
}

// decideControllers decides which controllers each controller manager runs. A garbage collector is judged by what the
// other side's controllers create, so the collectors come last; the legacy side's is changed only when it must be.
//
// Errors: what is handed over to controllers that are off.
func (p *placement) decideControllers(rows []Resource) ([]Controller, error) {
	if p.retired() {
		return p.onlyControllers(), nil
	}
	controllers, err := p.handOverControllers(slices.Concat(p.legacyControllers(), p.modernControllers(rows)))
	if err != nil {
		return nil, err
	}
	for _, side := range []pair.Side{pair.Modern, pair.Legacy} {
		controllers = p.decideCollector(side, rows, controllers)
	}
	return controllers, nil
}

// decideCollector returns the controllers with the garbage collector of a side as it is to run beside the others.
func (p *placement) decideCollector(side pair.Side, rows []Resource, controllers []Controller) []Controller {
	decided := slices.Clone(controllers)
	if c := controllerOf(decided, side, garbageCollector); c != nil {
		dangers := p.collectorDangers(side, rows, controllers)
		if side == pair.Modern {
			*c = p.decideModernCollector(*c, dangers)
		} else {
			*c = p.decideLegacyCollector(*c, dangers)
		}
	}
	return decided
}

func (p *placement) collectorDangers(side pair.Side, rows []Resource, controllers []Controller) []CollectorDanger {
	minors := map[pair.Side]kubever.Minor{pair.Legacy: p.legacy, pair.Modern: p.modern}
	return collectorDangers(side, minors, kubeletMinors(p.file.Spec.Kubelet), rows, controllers, p.customResources())
}

// legacyControllers are those of the legacy controller manager as its defaults and the spec's --controllers have them.
func (p *placement) legacyControllers() []Controller {
	var controllers []Controller
	manager := p.file.Spec.Legacy.ControllerManager
	list, given := []string{"*"}, false
	if manager != nil {
		var value string
		if value, given = lastValue(manager.ExtraArgs, "controllers"); given {
			list = splitList(value)
		}
	}
	for _, fact := range kubever.Controllers(p.legacy) {
		c := asController(pair.Legacy, fact, p.legacy)
		c.On, c.Why = enabled(fact, p.legacy, list), "its version runs it by default"
		if given {
			c.Why = listWhy(c.On)
		}
		if fact.Name == garbageCollector && c.On && manager != nil && collectorOff(manager.ExtraArgs) {
			c.On, c.Why = false, collectorOffWhy
		}
		if !c.On && slices.Contains(list, "*") && !fact.DefaultOn(p.legacy) {
			c.Why = "its version does not run it by default"
		}
		if manager == nil {
			// A legacy controller manager that the plan does not render has its defaults, as far as the plan knows.
			c.Why += "; its controller manager is not part of the spec"
		}
		controllers = append(controllers, c)
	}
	return controllers
}

// listWhy is the reason where a list of the spec decides.
func listWhy(on bool) string {
	if on {
		return "the spec's --controllers enables it"
	}
	return "the spec's --controllers leaves it off"
}

const collectorOffWhy = "the spec sets --enable-garbage-collector=false"

// collectorOff reports whether the arguments turn the garbage collector off by the flag of its own.
func collectorOff(args []spec.Arg) bool {
	value, ok := lastValue(args, "enable-garbage-collector")
	return ok && value == "false"
}

// asController starts a decision: off, without a reason.
func asController(side pair.Side, fact kubever.Controller, m kubever.Minor) Controller {
	name, _ := fact.NameIn(m)
	return Controller{Side: side, Name: name, ID: fact.Name}
}

// CollectorOn reports whether a controller manager of the minor runs its garbage collector with a value of
// --controllers and of --enable-garbage-collector; "" stands for a flag that is not given.
func CollectorOn(m kubever.Minor, controllers, collector string) bool {
	fact, _ := kubever.ControllerByName(garbageCollector)
	list := splitList(controllers)
	if len(list) == 0 {
		list = []string{"*"}
	}
	return collector != "false" && enabled(fact, m, list)
}

// enabled follows the controller manager's own reading of --controllers: the first entry that names the controller
// decides, then the star, then what its version does by default.
func enabled(fact kubever.Controller, m kubever.Minor, list []string) bool {
	name, _ := fact.NameIn(m)
	names := append(fact.AliasesIn(m), name)
	star := false
	for _, entry := range list {
		switch {
		case slices.Contains(names, entry):
			return true
		case slices.Contains(names, strings.TrimPrefix(entry, "-")) && strings.HasPrefix(entry, "-"):
			return false
		case entry == "*":
			star = true
		}
	}
	return star && fact.DefaultOn(m)
}

// modernControllers decides about every controller of the modern controller manager but the garbage collector.
func (p *placement) modernControllers(rows []Resource) []Controller {
	manager := p.file.Spec.Modern.ControllerManager
	if manager == nil {
		return nil
	}
	given, ok := lastValue(manager.ExtraArgs, "controllers")
	var controllers []Controller
	for _, fact := range kubever.Controllers(p.modern) {
		c := asController(pair.Modern, fact, p.modern)
		if ok {
			c.On = enabled(fact, p.modern, splitList(given))
			c.Why = listWhy(c.On)
			if fact.Name == garbageCollector && c.On && collectorOff(manager.ExtraArgs) {
				c.On, c.Why = false, collectorOffWhy
			}
		} else {
			c.On, c.Why = p.decide(fact, rows)
		}
		controllers = append(controllers, c)
	}
	return controllers
}

// decide says whether a controller of the modern side may run: it must act for objects that are the modern side's own,
// or write only such objects, and it must see all that it reads.
func (p *placement) decide(fact kubever.Controller, rows []Resource) (on bool, why string) {
	if why, ok := leftToLegacy[fact.Name]; ok {
		return false, why
	}
	switch fact.Name {
	case garbageCollector:
		return false, ""
	case namespaceControl:
		return decideNamespaces(rows)
	case rootCAPublisher:
		return p.decideRootCA(rows)
	}
	if !fact.DefaultOn(p.modern) {
		return false, fmt.Sprintf("%s does not run it by default", p.modern)
	}
	subject := rowOf(rows, fact.Subject)
	if subject == nil || subject.Modern.Store == "" {
		return false, fmt.Sprintf("the modern API server does not serve %s here", subjectName(fact, subject))
	}
	if known, _ := kubever.ResourceByKey(fact.Subject); !known.OnByDefault(p.modern) {
		return false, fmt.Sprintf("%s does not serve %s by default", p.modern, subject.Name)
	}
	own := subject.Owner == pair.OwnerModern || subject.Owner == pair.OwnerSplit
	for _, key := range slices.Concat(fact.Writes, fact.Deletes) {
		written := rowOf(rows, key)
		switch {
		case key == "*":
			return false, "it writes objects of every kind, including the legacy side's"
		case key == "events" || written == nil || written.Modern.Store == "":
			continue
		case written.Owner == pair.OwnerLegacy:
			return false, fmt.Sprintf("it writes %s, which only the legacy side may write", written.Name)
		case written.Owner == pair.OwnerShared && !own:
			return false, fmt.Sprintf("%s are %s: the legacy side's controllers do this for all of them", subject.Name,
				subject.Owner)
		}
	}
	if fact.Name == daemonSetControl && daemonPodsUnplaced(p.legacy, p.modern) {
		if !p.placesDaemonPods() {
			return false, fmt.Sprintf("it pins pods to nodes by a field that the scheduler of %s does not know: it "+
				"would find no node for them; with spec.pods and failurePolicy Fail admission places them", p.legacy)
		}
		return true, fmt.Sprintf("acts for the modern side's own %s; admission places their pods, which the scheduler "+
			"of %s could not", subject.Name, p.legacy)
	}
	if own {
		return true, fmt.Sprintf("acts for the modern side's own %s", subject.Name)
	}
	return true, fmt.Sprintf("reads %s, which both sides share, and writes only the modern side's own objects",
		subject.Name)
}

// daemonPodsUnplaced reports whether the modern side leaves it to a scheduler to place pods of DaemonSets by a field
// that the legacy one does not know.
func daemonPodsUnplaced(legacy, modern kubever.Minor) bool {
	return kubever.Behaves(kubever.BehaviourDaemonPodsByAffinity, modern) &&
		!kubever.Behaves(kubever.BehaviourDaemonPodsByAffinity, legacy)
}

// placesDaemonPods reports whether admission of the modern API server binds these pods: each of them has to be seen.
func (p *placement) placesDaemonPods() bool {
	pods := p.file.Spec.Pods
	return pods != nil && pods.Admission.FailurePolicy == spec.FailurePolicyFail &&
		daemonPodsUnplaced(p.legacy, p.modern)
}

func subjectName(fact kubever.Controller, subject *Resource) string {
	if subject != nil {
		return subject.Name
	}
	return fact.Subject
}

// decideNamespaces keeps the namespace controller off while anything in a namespace is shared: it would delete all that
// it can list in a namespace that ends, and declare it empty while the other side still has objects there that it
// cannot list.
func decideNamespaces(rows []Resource) (bool, string) {
	for i := range rows {
		if rows[i].Namespaced && rows[i].VisibleToBoth() {
			return false, "the legacy side finalizes namespaces: this one would delete shared objects and declare a " +
				"namespace empty without having seen the legacy side's own objects"
		}
	}
	return true, "no namespaced resource is shared"
}

// decideRootCA runs the publisher of kube-root-ca.crt when pods created through the modern API server mount that config
// map and no controller on the legacy side publishes it.
func (p *placement) decideRootCA(rows []Resource) (bool, string) {
	configMaps := rowOf(rows, "configmaps")
	switch {
	case !kubever.Behaves(kubever.BehaviourTokenVolumeProjected, p.modern):
		return false, fmt.Sprintf("pods created through %s do not mount kube-root-ca.crt", p.modern)
	case configMaps == nil || !configMaps.VisibleToBoth():
		return true, "pods created through the modern API server mount kube-root-ca.crt"
	case kubever.Behaves(kubever.BehaviourRootCAPublished, p.legacy):
		return false, "the legacy side publishes kube-root-ca.crt"
	case configMaps.Owner == pair.OwnerLegacy:
		return false, "only the legacy side may write config maps"
	default:
		return true, fmt.Sprintf("pods created through the modern API server mount kube-root-ca.crt, which %s does "+
			"not publish", p.legacy)
	}
}

// safeCollector is why a collector may stay on.
const safeCollector = "every owner that it cannot see is of a kind or version that its API server does not serve, " +
	"and this version ignores such references"

// decideModernCollector turns the modern side's garbage collector on when it cannot harm the legacy side's objects.
func (p *placement) decideModernCollector(c Controller, dangers []CollectorDanger) Controller {
	args := p.file.Spec.Modern.ControllerManager.ExtraArgs
	_, given := lastValue(args, "controllers")
	switch {
	case given:
	case collectorOff(args):
		c.Why = collectorOffWhy
	case len(dangers) == 0:
		c.On, c.Why = true, safeCollector
	default:
		c.On, c.Why = false, dangers[0].String()
	}
	return c
}

// decideLegacyCollector turns the legacy side's garbage collector off only when it would delete the modern side's
// objects.
func (p *placement) decideLegacyCollector(c Controller, dangers []CollectorDanger) Controller {
	switch {
	case !c.On, len(dangers) == 0:
	case p.file.Spec.Legacy.ControllerManager == nil:
		c.Why = dangers[0].String() + "; its controller manager is not part of the spec, so the plan cannot turn it off"
	default:
		c.On, c.Why = false, dangers[0].String()
	}
	return c
}

// controllersValue is --controllers of the modern side: the names of what runs, without a star, so that nothing else
// does.
func controllersValue(controllers []Controller) string {
	var names []string
	for _, c := range controllers {
		if c.Side == pair.Modern && c.On {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// splitList reads a comma-separated flag value.
func splitList(value string) []string {
	var items []string
	for item := range strings.SplitSeq(value, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}
