package kubever

import (
	"slices"
	"strings"
	"sync"
)

// ConflictClass groups controllers by what they destroy when two of them, or one without its view, act on the same objects.
type ConflictClass string

// The conflict classes.
const (
	ClassAnything ConflictClass = "A" // deletes or rewrites anything that it can list
	ClassPods     ConflictClass = "B" // creates and deletes pods and their owners
	ClassNodes    ConflictClass = "C" // writes nodes, evicts from them
	ClassVolumes  ConflictClass = "D" // binds, attaches, recycles and deletes volumes
	ClassServices ConflictClass = "E" // writes what services resolve to
	ClassIdentity ConflictClass = "F" // issues and cleans tokens, certificates and roles
	ClassStatus   ConflictClass = "G" // computes status
)

// Controller is one control loop of kube-controller-manager.
// Shape: {Name: statefulset-controller, Class: B}; at 1.6 its NameIn is "statefuleset", at 1.15 "statefulset".
// Name is what 1.28 and later call it; loops that ended before are named in the same manner: node-controller (1.6-1.9, then
// node-ipam-controller and node-lifecycle-controller), certificatesigningrequest-controller (1.6).
type Controller struct {
	Name   string
	Class  ConflictClass
	Cloud  bool // does nothing unless --cloud-provider names a provider that is built in
	Source string

	ServiceAccount string // its account in kube-system with --use-service-account-credentials; "" for none

	names   []during[string]
	aliases []during[string]
	offIn   Ranges
	gates   []during[gateRule]
}

// gateRule: gates that must all be on. If hides, the name is refused as unknown while one of them is off.
type gateRule struct {
	gates []string
	hides bool
}

var controllerTable = sync.OnceValue(func() []Controller {
	var controllers []Controller
	for _, r := range readTable("controllers.tsv", 8) {
		controllers = append(controllers, Controller{
			Name: r.text(0), Class: ConflictClass(r.text(1)), Cloud: r.yes(6), ServiceAccount: r.text(7),
			names: timeline(r, 2, verbatim), aliases: timeline(r, 3, verbatim), offIn: r.ranges(4),
			gates: timeline(r, 5, func(s string) gateRule {
				list, hides := strings.CutPrefix(s, "!")
				return gateRule{gates: strings.Split(list, ","), hides: hides}
			}),
			Source: "cmd/kube-controller-manager/app and names of each minor, see Release",
		})
	}
	return controllers
})

// Controllers lists the controllers whose names --controllers takes at the minor, by Name.
func Controllers(m Minor) []Controller {
	return slices.DeleteFunc(slices.Clone(controllerTable()), func(c Controller) bool {
		_, ok := c.NameIn(m)
		return !ok
	})
}

// ControllerByName finds a controller by its canonical name or any name or alias that any minor used: "statefuleset",
// "garbagecollector", "svm".
func ControllerByName(name string) (Controller, bool) {
	named := func(spans []during[string]) bool {
		return slices.ContainsFunc(spans, func(span during[string]) bool { return span.value == name })
	}
	for _, c := range controllerTable() {
		if c.Name == name || named(c.names) || named(c.aliases) {
			return c, true
		}
	}
	return Controller{}, false
}

// NameIn returns the name that --controllers takes at the minor; false when the minor has no such controller, or refuses its
// name because the feature gates that bring it are off by default. Any unknown name stops the controller manager at start.
func (c Controller) NameIn(m Minor) (string, bool) {
	name, ok := at(c.names, m)
	if rule, gated := at(c.gates, m); gated && rule.hides && !rule.on(m) {
		return "", false
	}
	return name, ok
}

// AliasesIn lists the other names that --controllers takes for it at the minor: the old names, since 1.28.
func (c Controller) AliasesIn(m Minor) []string {
	if _, ok := c.NameIn(m); !ok {
		return nil
	}
	if alias, ok := at(c.aliases, m); ok {
		return []string{alias}
	}
	return nil
}

// GatesIn lists the feature gates that must be on for the controller to run at the minor.
func (c Controller) GatesIn(m Minor) []string {
	rule, _ := at(c.gates, m)
	return slices.Clone(rule.gates)
}

// DefaultOn reports whether the controller runs at the minor with --controllers=* and default feature gates. Cloud
// controllers do only with a --cloud-provider, too.
func (c Controller) DefaultOn(m Minor) bool {
	if _, ok := c.NameIn(m); !ok || c.offIn.Has(m) {
		return false
	}
	rule, gated := at(c.gates, m)
	return !gated || rule.on(m)
}

// on reports whether all gates are on by default at the minor.
func (g gateRule) on(m Minor) bool {
	for _, name := range g.gates {
		if state, ok := Gate(name).At(m); !ok || !state.Default {
			return false
		}
	}
	return true
}
