package cli

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/spelling"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

type versionsRequest struct {
	component string // "" for a summary of the minors
	minor     string // "" for all minors
	facts     string
	output    string
}

func newVersionsCmd(streams Streams) *cobra.Command {
	var request versionsRequest
	cmd := &cobra.Command{
		Use:   "versions [COMPONENT] [--minor MINOR]",
		Short: "Browse the facts about each Kubernetes version",
		Long: `versions prints the facts that plans and findings rest on, for Kubernetes 1.6 to 1.36.

Without a component it lists the minors, and the release of each whose source was read. With one it lists what that
component has: kube-apiserver its flags, API resources with their etcd keys and stored versions, feature gates,
admission plugins, writes at start and behaviours; kube-controller-manager its flags, feature gates, controllers and
leader-election locks; kube-scheduler its flags, feature gates and locks. --facts picks one kind of fact, --minor one
version.

A vendor's version counts as its minor.

Exit codes: 0 printed, 1 could not print, 2 bad usage or an unknown version.`,
		Example: `  fusionctl versions
  fusionctl versions kube-controller-manager --facts controllers --minor 1.6
  fusionctl versions kube-apiserver --facts resources --minor 1.36 -o json`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: kubever.Components(),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				request.component = args[0]
			}
			return runVersions(request, streams)
		},
	}
	cmd.Flags().StringVar(&request.minor, "minor", "", "only this version, such as 1.15 (default all)")
	enumFlag(cmd, &request.facts, "facts", "", "kind of fact", append([]string{"all"}, factNames...)...)
	enumFlag(cmd, &request.output, "output", "o", "format", "table", "json", "yaml")
	return cmd
}

// factNames are the kinds of facts, in the order in which they are printed.
var factNames = []string{"flags", "resources", "controllers", "gates", "admission", "locks", "startup", "behaviours"}

// factsOf says which kinds of facts a component has.
var factsOf = map[string][]string{
	kubever.APIServer:         {"flags", "resources", "gates", "admission", "startup", "behaviours"},
	kubever.ControllerManager: {"flags", "controllers", "gates", "locks"},
	kubever.Scheduler:         {"flags", "gates", "locks"},
}

func runVersions(request versionsRequest, streams Streams) error {
	minors := kubever.Minors()
	if request.minor != "" {
		version, err := parseVersionFlag("minor", request.minor)
		if err != nil {
			return err
		}
		minors = []kubever.Minor{version.Minor}
	}
	if components := kubever.Components(); request.component != "" && !slices.Contains(components, request.component) {
		return unknownComponent(request.component, components)
	}
	if request.facts != "all" && !slices.Contains(factsOf[request.component], request.facts) {
		if request.component == "" {
			return usagef("--facts %s: name a component, one of %s", request.facts,
				strings.Join(kubever.Components(), ", "))
		}
		return usagef("--facts %s: %s has %s", request.facts, request.component,
			strings.Join(factsOf[request.component], ", "))
	}
	report := newVersionsReport(request, minors)
	if printed, err := printDocument(streams.Out, request.output, report); printed {
		return err
	}
	return report.printTables(streams.Out)
}

func unknownComponent(name string, components []string) error {
	message := fmt.Sprintf("%q: want one of %s", name, strings.Join(components, ", "))
	if near, ok := spelling.Nearest(name, components); ok {
		message += fmt.Sprintf("; did you mean %q?", near)
	}
	return usagef("%s", message)
}

// versionsReport is the answer; a part that was not asked for is absent. Minors are ranges such as "1.6-1.9,1.12".
type versionsReport struct {
	Schema      string          `json:"schema"`
	Component   string          `json:"component,omitempty"`
	Minors      []minorRow      `json:"minors,omitempty"`
	Flags       []flagRow       `json:"flags,omitempty"`
	Resources   []resourceRow   `json:"resources,omitempty"`
	Controllers []controllerRow `json:"controllers,omitempty"`
	Gates       []gateRow       `json:"gates,omitempty"`
	Admission   []admissionRow  `json:"admission,omitempty"`
	Locks       []lockRow       `json:"locks,omitempty"`
	Startup     []startupRow    `json:"startup,omitempty"`
	Behaviours  []behaviourRow  `json:"behaviours,omitempty"`
}

type minorRow struct {
	Minor       string `json:"minor"`
	Release     string `json:"release"` // whose source was read
	Flags       int    `json:"flags"`   // of kube-apiserver
	Resources   int    `json:"resources"`
	Controllers int    `json:"controllers"`
}

// value is what holds in some minors.
type value struct {
	Minors string `json:"minors"`
	Value  string `json:"value"`
}

type flagRow struct {
	Name       string  `json:"name"`
	Minors     string  `json:"minors"`
	Deprecated string  `json:"deprecated,omitempty"`
	Defaults   []value `json:"defaults,omitempty"`
}

type resourceRow struct {
	Key         string   `json:"key"`
	Resource    string   `json:"resource"`
	Groups      []string `json:"groups"`
	Namespaced  bool     `json:"namespaced"`
	Stored      []value  `json:"stored"`
	OnByDefault string   `json:"onByDefault"`
}

type controllerRow struct {
	Name           string   `json:"name"`
	Names          []value  `json:"names"` // as --controllers takes it
	OnByDefault    string   `json:"onByDefault"`
	Class          string   `json:"class"`
	ServiceAccount string   `json:"serviceAccount,omitempty"`
	Reads          []string `json:"reads,omitempty"`
	Writes         []string `json:"writes,omitempty"`
	Deletes        []string `json:"deletes,omitempty"`
}

type gateRow struct {
	Name   string  `json:"name"`
	States []value `json:"states"`
}

type admissionRow struct {
	Plugin      string `json:"plugin"`
	Minors      string `json:"minors"`
	OnByDefault string `json:"onByDefault"`
}

type lockRow struct {
	Minors   string   `json:"minors"`
	Default  string   `json:"default"`
	Settable []string `json:"settable,omitempty"`
	NameFlag string   `json:"nameFlag,omitempty"`
	Object   string   `json:"object"`
}

type startupRow struct {
	Hook         string  `json:"hook"`
	Key          string  `json:"key"`
	Minors       string  `json:"minors"`
	Objects      string  `json:"objects"`
	OnlyWithRBAC bool    `json:"onlyWithRBAC,omitempty"`
	TurnedOffBy  []value `json:"turnedOffBy,omitempty"`
}

type behaviourRow struct {
	Name    string `json:"name"`
	Minors  string `json:"minors"`
	Meaning string `json:"meaning"`
	Source  string `json:"source"`
}

func newVersionsReport(request versionsRequest, minors []kubever.Minor) versionsReport {
	report := versionsReport{Schema: "fusionctl/versions/v1", Component: request.component}
	if request.component == "" {
		report.Minors = minorRows(minors)
		return report
	}
	wanted := factsOf[request.component]
	if request.facts != "all" {
		wanted = []string{request.facts}
	}
	for _, facts := range wanted {
		switch facts {
		case "flags":
			report.Flags = flagRows(request.component, minors)
		case "resources":
			report.Resources = resourceRows(minors)
		case "controllers":
			report.Controllers = controllerRows(minors)
		case "gates":
			report.Gates = gateRows(request.component, minors)
		case "admission":
			report.Admission = admissionRows(minors)
		case "locks":
			report.Locks = lockRows(request.component, minors)
		case "startup":
			report.Startup = startupRows(minors)
		case "behaviours":
			report.Behaviours = behaviourRows(minors)
		}
	}
	return report
}

// minorsWhere prints those of the minors for which a predicate holds, "never" for none.
func minorsWhere(minors []kubever.Minor, holds func(kubever.Minor) bool) string {
	holding := slices.DeleteFunc(slices.Clone(minors), func(m kubever.Minor) bool { return !holds(m) })
	return kubever.Spans(holding).String()
}

// valuesOver groups consecutive minors in which something has one value; minors without a value are left out.
func valuesOver(minors []kubever.Minor, valueAt func(kubever.Minor) (string, bool)) []value {
	var values []value
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
			values = append(values, value{Minors: current.String(), Value: v})
		}
	}
	return values
}

func minorRows(minors []kubever.Minor) []minorRow {
	var rows []minorRow
	for _, m := range minors {
		stored := 0
		for _, r := range kubever.Resources() {
			if r.In(m) {
				stored++
			}
		}
		rows = append(rows, minorRow{
			Minor: m.String(), Release: kubever.Release(m), Flags: len(kubever.Flags(kubever.APIServer, m)),
			Resources: stored, Controllers: len(kubever.Controllers(m)),
		})
	}
	return rows
}

func flagRows(component string, minors []kubever.Minor) []flagRow {
	names := namesOver(minors, func(m kubever.Minor) []kubever.FlagFact { return kubever.Flags(component, m) },
		func(f kubever.FlagFact) string { return f.Name })
	var rows []flagRow
	for _, name := range names {
		flag := kubever.Flag(component, name)
		row := flagRow{Name: name, Minors: minorsWhere(minors, flag.In), Defaults: valuesOver(minors, flag.Default)}
		if deprecated := minorsWhere(minors, flag.DeprecatedIn); deprecated != "never" {
			row.Deprecated = deprecated
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

func resourceRows(minors []kubever.Minor) []resourceRow {
	var rows []resourceRow
	for _, r := range kubever.Resources() {
		if !slices.ContainsFunc(minors, r.In) {
			continue
		}
		rows = append(rows, resourceRow{
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

func controllerRows(minors []kubever.Minor) []controllerRow {
	names := namesOver(minors, kubever.Controllers, func(c kubever.Controller) string { return c.Name })
	var rows []controllerRow
	for _, name := range names {
		c, _ := kubever.ControllerByName(name)
		if len(minors) == 1 { // what it touches at that minor, not ever
			at := kubever.Controllers(minors[0])
			c = at[slices.IndexFunc(at, func(c kubever.Controller) bool { return c.Name == name })]
		}
		rows = append(rows, controllerRow{
			Name: name, Names: valuesOver(minors, c.NameIn), OnByDefault: minorsWhere(minors, c.DefaultOn),
			Class: string(c.Class), ServiceAccount: c.ServiceAccount, Reads: c.Reads, Writes: c.Writes,
			Deletes: c.Deletes,
		})
	}
	return rows
}

func gateRows(component string, minors []kubever.Minor) []gateRow {
	names := namesOver(minors, kubever.Gates, func(g kubever.GateFact) string { return g.Name })
	var rows []gateRow
	for _, name := range names {
		gate := kubever.Gate(name)
		states := valuesOver(minors, func(m kubever.Minor) (string, bool) {
			state, _ := gate.At(m)
			return describeGate(state), gate.KnownTo(component, m)
		})
		if states != nil {
			rows = append(rows, gateRow{Name: name, States: states})
		}
	}
	return rows
}

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

func admissionRows(minors []kubever.Minor) []admissionRow {
	known, on := make(map[kubever.Minor][]string), make(map[kubever.Minor][]string)
	for _, m := range minors {
		known[m], on[m] = kubever.AdmissionPlugins(m), kubever.AdmissionDefaultOn(m)
	}
	var rows []admissionRow
	for _, plugin := range namesOver(minors, func(m kubever.Minor) []string { return known[m] }, strings.Clone) {
		rows = append(rows, admissionRow{
			Plugin:      plugin,
			Minors:      minorsWhere(minors, func(m kubever.Minor) bool { return slices.Contains(known[m], plugin) }),
			OnByDefault: minorsWhere(minors, func(m kubever.Minor) bool { return slices.Contains(on[m], plugin) }),
		})
	}
	return rows
}

func lockRows(component string, minors []kubever.Minor) []lockRow {
	var rows []lockRow
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
		rows = append(rows, lockRow{
			Minors: span.String(), Default: locks.Default, Settable: locks.Settable, NameFlag: locks.NameFlagName,
			Object: locks.Object,
		})
	}
	return rows
}

func startupRows(minors []kubever.Minor) []startupRow {
	type identity struct{ hook, key, minors string }
	var rows []startupRow
	index := make(map[identity]int)
	off := make(map[identity]map[kubever.Minor]string)
	for _, m := range minors {
		for _, w := range kubever.StartupWrites(m) {
			id := identity{w.Hook, w.Resource, minorsWhere(minors, w.Minors.Has)}
			if _, seen := index[id]; !seen {
				index[id], off[id] = len(rows), make(map[kubever.Minor]string)
				rows = append(rows, startupRow{Hook: id.hook, Key: id.key, Minors: id.minors, Objects: w.Objects,
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

func behaviourRows(minors []kubever.Minor) []behaviourRow {
	var rows []behaviourRow
	for _, b := range kubever.BehaviourFacts() {
		if in := minorsWhere(minors, b.Minors.Has); in != "never" {
			rows = append(rows, behaviourRow{Name: b.Name, Minors: in, Meaning: b.Meaning, Source: b.Source})
		}
	}
	return rows
}

// part is one table of the answer.
type part struct {
	title, header string
	lines         []string
}

// printTables prints each part that is present, with titles if there are several.
func (r versionsReport) printTables(w io.Writer) error {
	parts := []part{
		{"MINORS", "MINOR\tREAD FROM\tAPISERVER FLAGS\tRESOURCES\tCONTROLLERS", lines(r.Minors, minorRow.line)},
		{"FLAGS", "FLAG\tMINORS\tDEPRECATED\tDEFAULT", lines(r.Flags, flagRow.line)},
		{"RESOURCES", "ETCD KEY\tRESOURCE\tGROUPS\tSTORED AS\tON BY DEFAULT", lines(r.Resources, resourceRow.line)},
		{"CONTROLLERS", "CONTROLLER\tNAME IN --controllers\tON BY DEFAULT\tREADS\tWRITES\tDELETES",
			lines(r.Controllers, controllerRow.line)},
		{"FEATURE GATES", "GATE\tSTATE", lines(r.Gates, gateRow.line)},
		{"ADMISSION PLUGINS", "PLUGIN\tMINORS\tON BY DEFAULT", lines(r.Admission, admissionRow.line)},
		{"LEADER ELECTION LOCKS", "MINORS\tDEFAULT\tSETTABLE\tNAME FLAG\tOBJECT", lines(r.Locks, lockRow.line)},
		{"WRITES AT START", "ETCD KEY\tMINORS\tOBJECTS\tHOOK\tTURNED OFF BY", lines(r.Startup, startupRow.line)},
		{"BEHAVIOURS", "BEHAVIOUR\tMINORS\tMEANING", lines(r.Behaviours, behaviourRow.line)},
	}
	parts = slices.DeleteFunc(parts, func(p part) bool { return len(p.lines) == 0 })
	for i, part := range parts {
		if i > 0 {
			visible.Fprintln(w)
		}
		if len(parts) > 1 {
			visible.Fprintln(w, part.title)
		}
		err := printTable(w, func(table io.Writer) {
			for _, line := range append([]string{part.header}, part.lines...) {
				visible.Fprintln(table, line)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func lines[T any](rows []T, line func(T) string) []string {
	var lines []string
	for _, row := range rows {
		lines = append(lines, line(row))
	}
	return lines
}

// cells joins the cells of a line; an empty one shows as a dash.
func cells(cells ...string) string {
	for i, cell := range cells {
		if cell == "" {
			cells[i] = "-"
		}
	}
	return joined(cells)
}

// history prints a single value alone, several with their minors.
func history(values []value) string {
	if len(values) == 1 {
		return values[0].Value
	}
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = v.Minors + ": " + v.Value
	}
	return strings.Join(words, "; ")
}

func (r minorRow) line() string {
	return fmt.Sprintf("%s\t%s\t%d\t%d\t%d", r.Minor, r.Release, r.Flags, r.Resources, r.Controllers)
}

func (r flagRow) line() string { return cells(r.Name, r.Minors, r.Deprecated, history(r.Defaults)) }

func (r resourceRow) line() string {
	groups := make([]string, len(r.Groups))
	for i, group := range r.Groups {
		if groups[i] = group; group == "" {
			groups[i] = "core"
		}
	}
	return cells(r.Key, r.Resource, strings.Join(groups, ","), history(r.Stored), r.OnByDefault)
}

func (r controllerRow) line() string {
	return cells(r.Name, history(r.Names), r.OnByDefault,
		strings.Join(r.Reads, ","), strings.Join(r.Writes, ","), strings.Join(r.Deletes, ","))
}

func (r gateRow) line() string { return cells(r.Name, history(r.States)) }

func (r admissionRow) line() string { return cells(r.Plugin, r.Minors, r.OnByDefault) }

func (r lockRow) line() string {
	return cells(r.Minors, r.Default, strings.Join(r.Settable, ","), r.NameFlag, r.Object)
}

func (r startupRow) line() string {
	objects := r.Objects
	if r.OnlyWithRBAC {
		objects += " (with RBAC only)"
	}
	return cells(r.Key, r.Minors, objects, r.Hook, history(r.TurnedOffBy))
}

func (r behaviourRow) line() string { return cells(r.Name, r.Minors, r.Meaning) }
