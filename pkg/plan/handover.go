package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// handedSet is a set that the spec has handed over.
type handedSet struct {
	kubever.HandOver
	namespaces []string // of which alone, sorted; nil for all of them
	at, entry  string   // of the spec, for errors
}

// handOvers are the sets that the spec has handed over, in the order of the table.
func (p *placement) handOvers() (sets []handedSet) {
	for _, set := range kubever.HandOvers() {
		h, whole := handedSet{HandOver: set}, false
		for i, entry := range p.file.Spec.HandedOver {
			namespace, resource := spec.SplitHandOver(entry)
			if !spec.HandOverNames(resource, set) {
				continue
			}
			if h.entry == "" || namespace == "" && !whole {
				h.at, h.entry = fmt.Sprintf("spec.handedOver[%d]", i), entry
			}
			whole, h.namespaces = whole || namespace == "", append(h.namespaces, namespace)
		}
		slices.Sort(h.namespaces)
		if h.namespaces = slices.Compact(h.namespaces); whole {
			h.namespaces = nil
		}
		if h.entry != "" {
			sets = append(sets, h)
		}
	}
	return sets
}

// handOver returns the rows with marks of what the modern side has taken over: each side still has its own location,
// and the legacy one is empty, or has what single namespaces have not handed over.
func (p *placement) handOver(rows []Resource) ([]Resource, error) {
	marked := slices.Clone(rows)
	for _, set := range p.handOvers() {
		for _, key := range set.Keys {
			row := rowOf(marked, key)
			switch {
			case row == nil || row.Legacy.Store == "" || row.Modern.Store == "":
				continue
			case row.Owner != pair.OwnerSplit || row.Legacy.Store == row.Modern.Store:
				return nil, p.file.Errorf(set.at, "%q: %s are %s, in one location: only what each side has of its "+
					"own is handed over", set.entry, row.Name, row.Owner)
			}
			if set.Copied || set.Kept {
				row.Copied, row.Why = true, "each side has its own, the modern side copies of the legacy side's"
				continue
			}
			if len(set.namespaces) > 0 {
				row.HandedOverIn = set.namespaces
				row.Why += "; handed over: the modern side has those of both in " + strings.Join(set.namespaces, ", ")
				continue
			}
			row.HandedOver = true
			row.Why = "handed over: the modern side has those of both"
		}
	}
	return marked, nil
}

// handOverControllers returns the controllers with those off that acted on the legacy side for what is handed over;
// where that are single namespaces, they act for the others. The modern side must act for it.
func (p *placement) handOverControllers(controllers []Controller) ([]Controller, error) {
	left := slices.Clone(controllers)
	for _, set := range p.handOvers() {
		if why := Stays(set.HandOver, p.legacy, p.modern); why != "" {
			if strings.HasSuffix(set.entry, "/*") {
				why += "; name the other resources one by one"
			}
			return nil, p.file.Errorf(set.at, "%q: %s", set.entry, why)
		}
		if why := p.rollsStatefulSets(); why != "" && slices.Contains(set.Controllers, statefulSetControl) {
			return nil, p.file.Errorf(set.at, "%q: %s: it would replace the pods of every StatefulSet", set.entry, why)
		}
		for _, name := range set.Controllers {
			if c := controllerOf(left, pair.Modern, name); c == nil || !c.On {
				why := fmt.Sprintf("%s has none", p.modern)
				if c != nil {
					why = c.Why
				}
				return nil, p.file.Errorf(set.at, "%q: the modern side does not run its %s: %s", set.entry, name, why)
			}
			if c := controllerOf(left, pair.Legacy, name); c != nil && len(set.namespaces) == 0 {
				c.On, c.Why = false, "handed over to the modern side"
			}
		}
	}
	return left, nil
}

// Stays says why no object of a set can be handed over between sides of these versions; "" where they can.
func Stays(set kubever.HandOver, legacy, modern kubever.Minor) string {
	if !slices.Contains(set.Controllers, daemonSetControl) || !daemonPodsUnplaced(legacy, modern) {
		return ""
	}
	return fmt.Sprintf("%s stay, which go together: the scheduler of %s finds no node for pods that the modern "+
		"side's DaemonSets create, and admission, which binds the others, leaves those of kube-system alone",
		strings.Join(set.Keys, ", "), legacy)
}

// checkCopied refuses copies of roles where no roles allow what the legacy API servers do.
func (p *placement) checkCopied(components []Component) error {
	for _, set := range p.handOvers() {
		for k := range components {
			c := &components[k]
			if !set.Copied || c.Side != pair.Legacy || c.Kind != kubever.APIServer {
				continue
			}
			if file, ok := c.Arg("authorization-config"); ok {
				return p.file.Errorf(set.at, "%q: the legacy API server authorizes by %s, which is not read: what its "+
					"roles allow is not all", set.entry, file)
			}
			if slices.Contains(AuthorizationModes(c), alwaysAllow) {
				return p.file.Errorf(set.at, "%q: the legacy API server allows every request (--authorization-mode): "+
					"no roles allow the same", set.entry)
			}
		}
	}
	return nil
}

const statefulSetControl = "statefulset-controller"

// rollsStatefulSets says why the modern controllers take a StatefulSet that the legacy side wrote for one with another
// template; "" where they do not.
func (p *placement) rollsStatefulSets() string {
	modern := &p.file.Spec.Modern
	const compared, gate = kubever.BehaviourStatefulSetRevisionsCompared, "StatefulSetSemanticRevisionComparison"
	if !kubever.BehavesIn(compared, modern.Version) {
		return fmt.Sprintf("the controllers of %s do not know the revisions that older versions wrote; those of %s.%d "+
			"do", modern.Version, modern.Version.Minor, kubever.BehavesSince(compared, modern.Version.Minor))
	}
	if manager := modern.ControllerManager; manager != nil {
		gates, _ := lastValue(manager.ExtraArgs, "feature-gates")
		if _, known := kubever.Gate(gate).At(modern.Version.Minor); known && TurnsOff(gates, gate) {
			return fmt.Sprintf("--feature-gates of the modern controllers turns %s off, so that they do not know the "+
				"revisions that older versions wrote", gate)
		}
	}
	return ""
}

// TurnsOff reports whether the value of --feature-gates turns a gate off: of several entries the last counts.
func TurnsOff(list, gate string) (off bool) {
	for _, entry := range splitList(list) {
		if name, set, _ := strings.Cut(entry, "="); name == gate {
			on, err := strconv.ParseBool(set)
			off = err == nil && !on
		}
	}
	return off
}

// givenUp are the controllers that the legacy side runs by a list and is to run no longer.
func (p *placement) givenUp(controllers []Controller, args []spec.Arg, list []string) (names []string, whys []string) {
	for _, c := range controllers {
		fact, _ := kubever.ControllerByName(c.ID)
		if c.Side != pair.Legacy || c.On || !enabled(fact, p.legacy, list) ||
			c.ID == garbageCollector && collectorOff(args) {
			continue
		}
		noun := c.ID
		if noun == garbageCollector {
			noun = "garbage collector"
		}
		names, whys = append(names, c.ID), append(whys, "the "+noun+" is off: "+c.Why)
	}
	return names, whys
}

// legacyControllersValue is --controllers of the legacy side when the plan must turn some of its controllers off: the
// list that it has, with those taken out, and why. "" means that nothing has to change.
func (p *placement) legacyControllersValue(controllers []Controller, args []spec.Arg) (value, why string) {
	list := []string{"*"}
	if value, ok := lastValue(args, "controllers"); ok {
		list = splitList(value)
	}
	names, whys := p.givenUp(controllers, args, list)
	if len(names) == 0 {
		return "", ""
	}
	star := slices.Contains(list, "*")
	for _, name := range names {
		fact, _ := kubever.ControllerByName(name)
		here, _ := fact.NameIn(p.legacy)
		known := append(fact.AliasesIn(p.legacy), here)
		list = slices.DeleteFunc(list, func(entry string) bool { return slices.Contains(known, entry) })
		if star && fact.DefaultOn(p.legacy) {
			list = append(list, "-"+here)
		}
	}
	return strings.Join(list, ","), strings.Join(whys, "; ")
}
