// Package browse arranges the facts about versions for people: for each thing that a component has, the minors that
// have it and what it is in each.
package browse

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Kinds are the kinds of facts, in the order in which they are printed.
func Kinds() []string {
	return []string{"flags", "resources", "controllers", "gates", "admission", "locks", "startup", "behaviours", "etcd",
		"faults"}
}

// KindsOf lists the kinds of facts that a component has; nil for an unknown component.
func KindsOf(component string) []string {
	switch component {
	case kubever.APIServer:
		return []string{"flags", "resources", "gates", "admission", "startup", "behaviours", "etcd", "faults"}
	case kubever.ControllerManager:
		return []string{"flags", "controllers", "gates", "locks", "faults"}
	case kubever.Scheduler:
		return []string{"flags", "gates", "locks", "faults"}
	}
	return nil
}

// Facts are those of one component, or with Minors a summary of the minors; what was not asked for is absent. Minors
// within are ranges such as "1.6-1.9,1.12".
type Facts struct {
	Component   string         `json:"component,omitempty"`
	Minors      []Minor        `json:"minors,omitempty"`
	Flags       []Flag         `json:"flags,omitempty"`
	Resources   []Resource     `json:"resources,omitempty"`
	Controllers []Controller   `json:"controllers,omitempty"`
	Gates       []Gate         `json:"gates,omitempty"`
	Admission   []Plugin       `json:"admission,omitempty"`
	Locks       []Lock         `json:"locks,omitempty"`
	Startup     []StartupWrite `json:"startup,omitempty"`
	Behaviours  []Behaviour    `json:"behaviours,omitempty"`
	Etcd        []Etcd         `json:"etcd,omitempty"`
	Faults      []Fault        `json:"faults,omitempty"`
}

// Of returns the facts of some kinds about a component in the minors given, in order; "" for a summary of the minors.
func Of(component string, kinds []string, minors []kubever.Minor) Facts {
	facts := Facts{Component: component}
	if component == "" {
		facts.Minors = minorRows(minors)
		return facts
	}
	for _, kind := range kinds {
		switch kind {
		case "flags":
			facts.Flags = flagRows(component, minors)
		case "resources":
			facts.Resources = resourceRows(minors)
		case "controllers":
			facts.Controllers = controllerRows(minors)
		case "gates":
			facts.Gates = gateRows(component, minors)
		case "admission":
			facts.Admission = admissionRows(minors)
		case "locks":
			facts.Locks = lockRows(component, minors)
		case "startup":
			facts.Startup = startupRows(minors)
		case "behaviours":
			facts.Behaviours = behaviourRows(minors)
		case "etcd":
			facts.Etcd = etcdRows(minors)
		case "faults":
			facts.Faults = faultRows(component, minors)
		}
	}
	return facts
}

// Minor counts what a minor has.
type Minor struct {
	Minor       string `json:"minor"`
	Release     string `json:"release"` // whose source was read
	Flags       int    `json:"flags"`   // of kube-apiserver
	Resources   int    `json:"resources"`
	Controllers int    `json:"controllers"`
}

// Value is what holds in some minors.
type Value struct {
	Minors string `json:"minors"`
	Value  string `json:"value"`
}

// Flag is a flag of a component.
type Flag struct {
	Name       string  `json:"name"`
	Minors     string  `json:"minors"`
	NotInFirst string  `json:"notInFirst,omitempty"` // those of the minors whose .0 release refuses it
	Deprecated string  `json:"deprecated,omitempty"`
	Defaults   []Value `json:"defaults,omitempty"`
}

// Resource is what API servers keep under one key.
type Resource struct {
	Key         string   `json:"key"`
	Resource    string   `json:"resource"`
	Groups      []string `json:"groups"`
	Namespaced  bool     `json:"namespaced"`
	Stored      []Value  `json:"stored"`
	OnByDefault string   `json:"onByDefault"`
}

// Controller is a control loop of kube-controller-manager.
type Controller struct {
	Name           string   `json:"name"`
	Names          []Value  `json:"names"` // as --controllers takes it
	OnByDefault    string   `json:"onByDefault"`
	Class          string   `json:"class"`
	ServiceAccount string   `json:"serviceAccount,omitempty"`
	Reads          []string `json:"reads,omitempty"`
	Writes         []string `json:"writes,omitempty"`
	Deletes        []string `json:"deletes,omitempty"`
}

// Gate is a feature gate.
type Gate struct {
	Name   string  `json:"name"`
	States []Value `json:"states"`
}

// Plugin is an admission plugin.
type Plugin struct {
	Plugin      string `json:"plugin"`
	Minors      string `json:"minors"`
	OnByDefault string `json:"onByDefault"`
}

// Lock is what a component elects its leader on.
type Lock struct {
	Minors   string   `json:"minors"`
	Default  string   `json:"default"`
	Settable []string `json:"settable,omitempty"`
	NameFlag string   `json:"nameFlag,omitempty"`
	Object   string   `json:"object"`
}

// StartupWrite is what an API server writes when it starts.
type StartupWrite struct {
	Hook         string  `json:"hook"`
	Key          string  `json:"key"`
	Minors       string  `json:"minors"`
	Objects      string  `json:"objects"`
	OnlyWithRBAC bool    `json:"onlyWithRBAC,omitempty"`
	TurnedOffBy  []Value `json:"turnedOffBy,omitempty"`
}

// Behaviour is what some minors do.
type Behaviour struct {
	Name    string   `json:"name"`
	Minors  string   `json:"minors"`
	Since   []string `json:"since,omitempty"` // releases before which their minor does not do it yet
	Meaning string   `json:"meaning"`
	Source  string   `json:"source"`
}

// Etcd is how API servers work on members of an etcd minor.
type Etcd struct {
	Etcd    string `json:"etcd"`
	Run     string `json:"run"`     // minors that were run on it
	Between string `json:"between"` // minors that were not, but neighbours on both sides were
	Fails   string `json:"fails"`
	// FailsFrom is the first release on which they fail, 3.6.16; "" for the first of the minor.
	FailsFrom string `json:"failsFrom,omitempty"`
	// CertificateUsers: API servers can use it when it asks for users.
	CertificateUsers bool   `json:"certificateUsers"`
	Source           string `json:"source"`
}

// Fault is one of the first releases of some minors.
type Fault struct {
	MendedIn   []string `json:"mendedIn"`             // releases: those before them of the same minor have it
	Controller string   `json:"controller,omitempty"` // that has it; "" for the component itself
	Gate       string   `json:"gate,omitempty"`       // feature gate without which it is not there
	Happens    string   `json:"happens"`
	Source     string   `json:"source"`
}

// minorsWhere prints those of the minors for which a predicate holds, "never" for none.
func minorsWhere(minors []kubever.Minor, holds func(kubever.Minor) bool) string {
	holding := slices.DeleteFunc(slices.Clone(minors), func(m kubever.Minor) bool { return !holds(m) })
	return kubever.Spans(holding).String()
}

// valuesOver groups consecutive minors in which something has one value; minors without a value are left out.
func valuesOver(minors []kubever.Minor, valueAt func(kubever.Minor) (string, bool)) []Value {
	var values []Value
	var current kubever.Range
	for _, m := range minors {
		v, ok := valueAt(m)
		if !ok {
			continue
		}
		if last := len(values) - 1; last >= 0 && current.To == m-1 && values[last].Value == v {
			current.To = m
			values[last].Minors = current.String()
		} else {
			current = kubever.Range{From: m, To: m}
			values = append(values, Value{Minors: current.String(), Value: v})
		}
	}
	return values
}

func minorRows(minors []kubever.Minor) []Minor {
	var rows []Minor
	for _, m := range minors {
		stored := 0
		for _, r := range kubever.Resources() {
			if r.In(m) {
				stored++
			}
		}
		rows = append(rows, Minor{
			Minor: m.String(), Release: kubever.Release(m), Flags: len(kubever.Flags(kubever.APIServer, m)),
			Resources: stored, Controllers: len(kubever.Controllers(m)),
		})
	}
	return rows
}

func flagRows(component string, minors []kubever.Minor) []Flag {
	names := namesOver(minors, func(m kubever.Minor) []kubever.FlagFact { return kubever.Flags(component, m) },
		func(f kubever.FlagFact) string { return f.Name })
	var rows []Flag
	for _, name := range names {
		flag := kubever.Flag(component, name)
		row := Flag{Name: name, Minors: minorsWhere(minors, flag.In), Defaults: valuesOver(minors, flag.Default)}
		if deprecated := minorsWhere(minors, flag.DeprecatedIn); deprecated != "never" {
			row.Deprecated = deprecated
		}
		if late := minorsWhere(minors, flag.NotInDotZero); late != "never" {
			row.NotInFirst = late
		}
		rows = append(rows, row)
	}
	return rows
}

// namesOver lists the names of what exists in one of the minors, sorted.
func namesOver[T any](minors []kubever.Minor, list func(kubever.Minor) []T, name func(T) string) []string {
	var names []string
	for _, m := range minors {
		for _, item := range list(m) {
			names = append(names, name(item))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func resourceRows(minors []kubever.Minor) []Resource {
	var rows []Resource
	for _, r := range kubever.Resources() {
		if !slices.ContainsFunc(minors, r.In) {
			continue
		}
		rows = append(rows, Resource{
			Key: r.Key, Resource: r.Name, Groups: r.Groups(), Namespaced: r.Namespaced,
			Stored: valuesOver(minors, func(m kubever.Minor) (string, bool) {
				gvk, ok := r.StoredAs(m)
				return gvk.GroupVersion().String(), ok
			}),
			OnByDefault: minorsWhere(minors, r.OnByDefault),
		})
	}
	return rows
}

func etcdRows(minors []kubever.Minor) []Etcd {
	var rows []Etcd
	for _, s := range kubever.EtcdServers() {
		used := func(use kubever.EtcdUse) string {
			return minorsWhere(minors, func(m kubever.Minor) bool {
				return kubever.EtcdUseOf(m, s.Minor.String()) == use
			})
		}
		row := Etcd{Etcd: s.Minor.String(), Run: used(kubever.EtcdRun), Between: used(kubever.EtcdBetween),
			Fails: used(kubever.EtcdFails), CertificateUsers: s.CertificateUsers, Source: s.Source}
		if slices.ContainsFunc(minors, s.Fails.Has) {
			row.FailsFrom = s.FailsFrom()
		}
		rows = append(rows, row)
	}
	return rows
}

func controllerRows(minors []kubever.Minor) []Controller {
	names := namesOver(minors, kubever.Controllers, func(c kubever.Controller) string { return c.Name })
	var rows []Controller
	for _, name := range names {
		c, _ := kubever.ControllerByName(name)
		if len(minors) == 1 { // what it touches at that minor, not ever
			at := kubever.Controllers(minors[0])
			c = at[slices.IndexFunc(at, func(c kubever.Controller) bool { return c.Name == name })]
		}
		rows = append(rows, Controller{
			Name: name, Names: valuesOver(minors, c.NameIn), OnByDefault: minorsWhere(minors, c.DefaultOn),
			Class: string(c.Class), ServiceAccount: c.ServiceAccount, Reads: c.Reads, Writes: c.Writes,
			Deletes: c.Deletes,
		})
	}
	return rows
}

func gateRows(component string, minors []kubever.Minor) []Gate {
	names := namesOver(minors, kubever.Gates, func(g kubever.GateFact) string { return g.Name })
	var rows []Gate
	for _, name := range names {
		gate := kubever.Gate(name)
		states := valuesOver(minors, func(m kubever.Minor) (string, bool) {
			state, _ := gate.At(m)
			return describeGate(state) + describeFirst(gate, m), gate.KnownTo(component, m)
		})
		if states != nil {
			rows = append(rows, Gate{Name: name, States: states})
		}
	}
	return rows
}

// describeFirst says what the first releases of a minor have instead, "" where they do not differ.
func describeFirst(gate kubever.GateFact, m kubever.Minor) string {
	patch, changed := gate.ChangedIn(m)
	if !changed {
		return ""
	}
	first, known := gate.In(kubever.Version{Minor: m, HasPatch: true})
	if known {
		return " (before " + release(m, patch) + ": " + describeGate(first) + ")"
	}
	return " (from " + release(m, patch) + " on)"
}

func release(m kubever.Minor, patch int) string { return fmt.Sprintf("%s.%d", m, patch) }

func describeGate(state kubever.GateState) string {
	words := []string{state.Stage, "off"}
	if state.Default {
		words[1] = "on"
	}
	if state.Locked {
		words = append(words, "locked")
	}
	return strings.Join(words, " ")
}

func admissionRows(minors []kubever.Minor) []Plugin {
	known, on := make(map[kubever.Minor][]string), make(map[kubever.Minor][]string)
	for _, m := range minors {
		known[m], on[m] = kubever.AdmissionPlugins(m), kubever.AdmissionDefaultOn(m)
	}
	var rows []Plugin
	for _, plugin := range namesOver(minors, func(m kubever.Minor) []string { return known[m] }, strings.Clone) {
		rows = append(rows, Plugin{
			Plugin:      plugin,
			Minors:      minorsWhere(minors, func(m kubever.Minor) bool { return slices.Contains(known[m], plugin) }),
			OnByDefault: minorsWhere(minors, func(m kubever.Minor) bool { return slices.Contains(on[m], plugin) }),
		})
	}
	return rows
}

func lockRows(component string, minors []kubever.Minor) []Lock {
	var rows []Lock
	var previous kubever.Locks
	var span kubever.Range
	for _, m := range minors {
		locks := kubever.LeaderLocks(component, m)
		if len(rows) > 0 && m == span.To+1 && reflect.DeepEqual(locks, previous) {
			span.To = m
			rows[len(rows)-1].Minors = span.String()
			continue
		}
		span, previous = kubever.Range{From: m, To: m}, locks
		rows = append(rows, Lock{
			Minors: span.String(), Default: locks.Default, Settable: locks.Settable, NameFlag: locks.NameFlagName,
			Object: locks.Object,
		})
	}
	return rows
}

func startupRows(minors []kubever.Minor) []StartupWrite {
	type identity struct{ hook, key, minors string }
	var rows []StartupWrite
	index := make(map[identity]int)
	off := make(map[identity]map[kubever.Minor]string)
	for _, m := range minors {
		for _, w := range kubever.StartupWrites(m) {
			id := identity{w.Hook, w.Resource, minorsWhere(minors, w.Minors.Has)}
			if _, seen := index[id]; !seen {
				index[id], off[id] = len(rows), make(map[kubever.Minor]string)
				rows = append(rows, StartupWrite{Hook: id.hook, Key: id.key, Minors: id.minors, Objects: w.Objects,
					OnlyWithRBAC: w.OnlyWithRBAC})
			}
			if w.OffFlag != "" {
				off[id][m] = "--" + w.OffFlag + "=" + w.OffValue
			}
		}
	}
	for id, i := range index {
		rows[i].TurnedOffBy = valuesOver(minors, func(m kubever.Minor) (string, bool) {
			v, ok := off[id][m]
			return v, ok
		})
	}
	return rows
}

func behaviourRows(minors []kubever.Minor) []Behaviour {
	var rows []Behaviour
	for _, b := range kubever.BehaviourFacts() {
		if in := minorsWhere(minors, b.Minors.Has); in != "never" {
			row := Behaviour{Name: b.Name, Minors: in, Meaning: b.Meaning, Source: b.Source}
			for _, m := range minors {
				if patch := b.Since(m); patch > 0 {
					row.Since = append(row.Since, release(m, patch))
				}
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func faultRows(component string, minors []kubever.Minor) []Fault {
	var rows []Fault
	for _, f := range kubever.AllPatchFaults(component) {
		row := Fault{Controller: f.Controller, Gate: f.Gate, Happens: f.Happens, Source: f.Source}
		for _, m := range minors {
			if patch, had := f.MendedIn(m); had {
				row.MendedIn = append(row.MendedIn, release(m, patch))
			}
		}
		if row.MendedIn != nil {
			rows = append(rows, row)
		}
	}
	return rows
}
