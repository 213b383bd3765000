package kubever

import (
	"slices"
	"strings"
	"sync"
)

// ConflictClass groups controllers by what they destroy when two of them, or one without its view, act on the same
// objects:
//
//	A  deletes or rewrites anything that it can list
//	B  creates and deletes pods and their owners
//	C  writes nodes, evicts from them
//	D  binds, attaches, recycles and deletes volumes
//	E  writes what services resolve to
//	F  issues and cleans tokens, certificates and roles
//	G  computes status
type ConflictClass string

// Controller is one control loop of kube-controller-manager. Shape: {Name: statefulset-controller, Class: B}; at 1.6
// its NameIn is "statefuleset", at 1.15 "statefulset". Name is what 1.28 and later call it; loops that ended before are
// named in the same manner: node-controller (1.6-1.9, then node-ipam-controller and node-lifecycle-controller),
// certificatesigningrequest-controller (1.6).
type Controller struct {
	Name   string
	Class  ConflictClass
	Cloud  bool // does nothing unless --cloud-provider names a provider that is built in
	Source string

	// Subject is the Key of the resource for whose objects it acts: replicasets for the replicaset controller, pods for
	// the pod garbage collector; "*" for any.
	Subject string

	// What the loop reads to decide, creates or updates (status and scale too), and deletes: Keys as in Resource.Key,
	// sorted; "*" for anything that it can list. Events, which all of them write, are left out. From Controllers they
	// hold for the minor; from ControllerByName for all minors together.
	Reads, Writes, Deletes []string

	// ServiceAccount is its account in kube-system with --use-service-account-credentials; "" when it acts as the
	// controller manager itself.
	ServiceAccount string

	names   []during[string]
	aliases []during[string]
	offIn   Ranges
	gates   []during[gateRule]

	reads, writes, deletes []access
}

// access is a Key and the minors in which the controller touches it; nil for all.
type access struct {
	key    string
	minors Ranges
}

// gateRule: gates that must all be on. If hides, the name is refused as unknown while one of them is off.
type gateRule struct {
	gates []string
	hides bool
}

var controllerTable = sync.OnceValue(decodeControllers)

func decodeControllers() []Controller {
	var controllers []Controller
	for _, r := range readTable("controllers.tsv", 8) {
		controllers = append(controllers, Controller{
			Name: r.text(0), Class: ConflictClass(r.text(1)), Cloud: r.yes(6), ServiceAccount: r.text(7),
			names: timeline(r, 2, verbatim), aliases: timeline(r, 3, verbatim), offIn: r.ranges(4),
			gates: timeline(r, 5, func(s string) gateRule {
				list, hides := strings.CutPrefix(s, "!")
				return gateRule{gates: strings.Split(list, ","), hides: hides}
			}),
			Source: "cmd/kube-controller-manager/app, names and controller_policy.go of each minor, see Release",
		})
	}
	for _, r := range readTable("access.tsv", 5) {
		i := slices.IndexFunc(controllers, func(c Controller) bool { return c.Name == r.text(0) })
		if i < 0 {
			r.fail("no controller %s", r.text(0))
		}
		c := &controllers[i]
		c.Subject = r.text(1)
		c.reads, c.writes, c.deletes = r.accesses(2), r.accesses(3), r.accesses(4)
		c.Reads, c.Writes, c.Deletes = keys(c.reads, Minors()...), keys(c.writes, Minors()...),
			keys(c.deletes, Minors()...)
	}
	return controllers
}

// accesses reads a column of blank-separated keys, each alone or as key=minors.
func (r row) accesses(column int) []access {
	var accesses []access
	for _, word := range r.words(column) {
		key, minors, _ := strings.Cut(word, "=")
		accesses = append(accesses, access{key: key, minors: r.parseRanges(minors)})
	}
	return accesses
}

// keys lists the keys that are touched in one of the minors, sorted.
func keys(accesses []access, minors ...Minor) []string {
	var list []string
	for _, a := range accesses {
		if a.minors == nil || slices.ContainsFunc(minors, a.minors.Has) {
			list = append(list, a.key)
		}
	}
	slices.Sort(list)
	return list
}

// Controllers lists the controllers whose names --controllers takes at the minor, by Name.
func Controllers(m Minor) []Controller { return slices.Clone(controllersIn(m)) }

var controllersIn = remembered(func(m Minor) []Controller {
	var controllers []Controller
	for _, c := range controllerTable() {
		if _, ok := c.NameIn(m); ok {
			c.Reads, c.Writes, c.Deletes = keys(c.reads, m), keys(c.writes, m), keys(c.deletes, m)
			controllers = append(controllers, c)
		}
	}
	return controllers
})

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

// NameIn returns the name that --controllers takes at the minor; false when the minor has no such controller, or
// refuses its name because the feature gates that bring it are off by default. Any unknown name stops the controller
// manager at start.
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
