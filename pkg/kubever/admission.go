package kubever

import (
	"slices"
	"strings"
	"sync"
)

type admissionFact struct {
	name              string
	minors, defaultOn Ranges
}

var admissionTable = sync.OnceValue(decodeAdmission)

func decodeAdmission() []admissionFact {
	var plugins []admissionFact
	for _, r := range readTable("admission.tsv", 3) {
		plugins = append(plugins, admissionFact{name: r.text(0), minors: r.ranges(1), defaultOn: r.ranges(2)})
	}
	return plugins
}

var admissionOrderTable = sync.OnceValue(decodeAdmissionOrder)

func decodeAdmissionOrder() []during[[]string] {
	var orders []during[[]string]
	for _, r := range readTable("admission-order.tsv", 2) {
		orders = append(orders, during[[]string]{r.ranges(0), r.words(1)})
	}
	return orders
}

// AdmissionPlugins lists the admission plugins that the API server knows at the minor: from 1.10 on in the order in
// which the server runs them; before that by name, because there --admission-control decides the order.
func AdmissionPlugins(m Minor) []string {
	return admissionNames(m, func(p admissionFact) bool { return p.minors.Has(m) })
}

// AdmissionDefaultOn lists the plugins that run at the minor when no admission flag is given, in the same order. Before
// 1.10 there are none: the default of --admission-control was AlwaysAdmit alone.
func AdmissionDefaultOn(m Minor) []string {
	return admissionNames(m, func(p admissionFact) bool { return p.defaultOn.Has(m) })
}

// admissionNames lists the names of the matching plugins in the server's order.
func admissionNames(m Minor, match func(admissionFact) bool) []string {
	var names []string
	for _, plugin := range admissionTable() {
		if match(plugin) {
			names = append(names, plugin.name)
		}
	}
	order, known := at(admissionOrderTable(), m)
	slices.SortFunc(names, func(a, b string) int {
		if known {
			return slices.Index(order, a) - slices.Index(order, b)
		}
		return strings.Compare(a, b)
	})
	return names
}

var authorizationTable = sync.OnceValue(decodeAuthorization)

func decodeAuthorization() map[string]Ranges {
	modes := make(map[string]Ranges)
	for _, r := range readTable("authorization.tsv", 2) {
		modes[r.text(0)] = r.ranges(1)
	}
	return modes
}

// AuthorizationModes lists the values that --authorization-mode takes at the minor, by name.
func AuthorizationModes(m Minor) []string {
	var modes []string
	for mode, minors := range authorizationTable() {
		if minors.Has(m) {
			modes = append(modes, mode)
		}
	}
	slices.Sort(modes)
	return modes
}
