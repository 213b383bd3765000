package kubever

import (
	"slices"
	"strings"
	"sync"
)

// StartupWrite is something that an API server writes by itself, as a privileged user whom no authorization stops.
// Shape: {Hook: scheduling/bootstrap-system-priority-classes, Resource: priorityclasses, OffFlag: runtime-config,
// OffValue: scheduling.k8s.io/v1=false}.
type StartupWrite struct {
	Hook         string // the post-start hook, or what does it
	Resource     string // Key
	Minors       Ranges
	Continuous   bool     // goes on while the server runs
	OnlyWithRBAC bool     // only with RBAC in --authorization-mode
	OffFlag      string   // flag of kube-apiserver that turns it off at the minor, without dashes; "" if none does
	OffValue     string   // its value; for runtime-config and feature-gates to be joined with others by commas
	Objects      string   // what it writes, in words
	Keys         []string // what it creates, below the prefix; "*" at the end stands for any rest
	Source       string
}

// LabelAutoManaged is the label of APIServices that API servers write by themselves. Source:
// staging/src/k8s.io/kube-aggregator/pkg/controllers/autoregister of every version from 1.7 on.
const LabelAutoManaged = "kube-aggregator.kubernetes.io/automanaged"

var startupTable = sync.OnceValue(decodeStartupWrites)

func decodeStartupWrites() []StartupWrite {
	var writes []StartupWrite
	for _, r := range readTable("startup.tsv", 9) {
		writes = append(writes, StartupWrite{
			Hook: r.text(0), Resource: r.text(1), Minors: r.ranges(2), Continuous: r.yes(3), OnlyWithRBAC: r.yes(4),
			OffFlag: r.text(5), OffValue: r.text(6), Objects: r.text(7), Keys: r.words(8),
			Source: "post-start hooks of each minor, see Release; run: what a fresh 1.36.3 wrote",
		})
	}
	return writes
}

// StartupWrites lists what the API server of the minor writes with default flags, and with RBAC where that is a
// condition. Turning an API group off by runtime-config makes its resources unavailable, too.
func StartupWrites(m Minor) []StartupWrite { return slices.Clone(startupWritesOf(m)) }

var startupWritesOf = remembered(func(m Minor) []StartupWrite {
	var writes []StartupWrite
	for _, w := range startupTable() {
		if !w.Minors.Has(m) {
			continue
		}
		if w.OffFlag == "runtime-config" {
			w.OffValue = disabledGroup(w.OffValue, m)
		}
		writes = append(writes, w)
	}
	return writes
})

// disabledGroup returns the value of --runtime-config that turns off every version of the group that the minor serves
// by default: a hook is left out only with its whole group.
func disabledGroup(group string, m Minor) string {
	var versions []string
	seen := make(map[string]bool)
	for _, a := range apiTable() {
		if version := a.Version; a.Group == group && a.DefaultOn.Has(m) && !seen[version] {
			seen[version] = true
			versions = append(versions, group+"/"+version+"=false")
		}
	}
	return strings.Join(versions, ",")
}
