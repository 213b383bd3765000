package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Running is a process that a file of a host starts.
type Running struct {
	Name  string // of the pod or the unit
	Kind  string // etcd, or a component of kubever
	Place string // FILE:LINE
	Image string // "" for a process that is not a container
	Args  []spec.Arg
	Env   []spec.EnvVar
}

// Difference says how one component of the plan differs from what runs.
type Difference struct {
	Component string   `json:"component"`
	Host      string   `json:"host"`
	Place     string   `json:"place,omitempty"` // FILE:LINE of what runs
	State     State    `json:"state"`
	Changes   []Change `json:"changes"`
}

// State is the outcome for a component.
type State string

const (
	Same    State = "same"
	Changed State = "changed"
	New     State = "new"     // nothing starts it yet
	Missing State = "missing" // the spec says that it runs already, and nothing starts it
)

// Change is one argument, variable or image that is different.
type Change struct {
	What string   `json:"what"` // --FLAG, $VARIABLE or image
	Old  []string `json:"old"`  // values, one for each time that it is given; empty when it is added
	New  []string `json:"new"`  // empty when it is removed
	Why  string   `json:"why"`
}

// Entries compares two lists of values, of which one has three entries or more; false when they are no such lists, or
// differ in order alone.
func (c Change) Entries() (removed, added []string, ok bool) {
	const few = 3
	if len(c.Old) != 1 || len(c.New) != 1 {
		return nil, nil, false
	}
	before, after := strings.Split(c.Old[0], ","), strings.Split(c.New[0], ",")
	in := func(list []string) func(string) bool {
		return func(entry string) bool { return slices.Contains(list, entry) }
	}
	removed = slices.DeleteFunc(slices.Clone(before), in(after))
	added = slices.DeleteFunc(slices.Clone(after), in(before))
	return removed, added, max(len(before), len(after)) >= few && len(removed)+len(added) > 0
}

// MinorOf is the version whose flags a process is read with: that of the component of its name, or the legacy one.
func MinorOf(p *plan.Plan, process string) kubever.Minor {
	for i := range p.Components {
		if c := &p.Components[i]; c.Name == process && c.Side != "" {
			return p.Side(c.Side).Version.Minor
		}
	}
	return p.Legacy.Version.Minor
}

// Diff compares the components of a host with what its files start. Order does not count: the servers read flags by
// name. A process is a component's when it has its name. One of the legacy side may have another: it is then the only
// one of its kind that is no other component's. What is of no component is none of the plan's business and is left out.
func Diff(p *plan.Plan, host string, running []Running) []Difference {
	differences := []Difference{}
	taken := make([]bool, len(running))
	for i := range p.Components {
		c := &p.Components[i]
		if c.Host != host {
			continue
		}
		at := match(p, c, running)
		if at < 0 || taken[at] {
			d := Difference{Component: c.Name, Host: host, State: New, Changes: []Change{}}
			if runsAlready(p, c) {
				d.State = Missing
			}
			differences = append(differences, d)
			continue
		}
		taken[at] = true
		differences = append(differences, compare(p, c, &running[at]))
	}
	return differences
}

// match finds the process of a component, -1 for none.
func match(p *plan.Plan, c *plan.Component, running []Running) int {
	if i := slices.IndexFunc(running, func(r Running) bool { return r.Name == c.Name && r.Kind == c.Kind }); i >= 0 {
		return i
	}
	if c.Side != pair.Legacy {
		return -1
	}
	found := -1
	for i, r := range running {
		other := slices.ContainsFunc(p.Components, func(o plan.Component) bool {
			return o.Name == r.Name && o.Kind == r.Kind
		})
		if r.Kind != c.Kind || other {
			continue
		}
		if found >= 0 {
			return -1
		}
		found = i
	}
	return found
}

func compare(p *plan.Plan, c *plan.Component, r *Running) Difference {
	d := Difference{Component: c.Name, Host: c.Host, Place: r.Place, State: Same, Changes: []Change{}}
	if r.Image != "" && r.Image != c.Image {
		d.Changes = append(d.Changes, Change{What: "image", Old: []string{r.Image}, New: []string{c.Image},
			Why: "from the spec, or the default of the release"})
	}
	d.Changes = append(d.Changes, argChanges(p, c, r)...)
	d.Changes = append(d.Changes, envChanges(c, r)...)
	if len(d.Changes) > 0 {
		d.State = Changed
	}
	return d
}

// argChanges lists the flags that differ: those of what runs in its order, then those that are added in the plan's.
func argChanges(p *plan.Plan, c *plan.Component, r *Running) []Change {
	var changes []Change
	seen := map[string]bool{}
	for _, a := range r.Args {
		name := kubever.FlagName(a.Name)
		if seen[name] {
			continue
		}
		seen[name] = true
		before, after := runningValues(r.Args, name), plannedValues(c.Args, name)
		if slices.Equal(before, after) {
			continue
		}
		why := whyOf(c.Args, name)
		if len(after) == 0 {
			why = whyRemoved(p, c, name, before)
		}
		changes = append(changes, Change{What: "--" + name, Old: before, New: after, Why: why})
	}
	for _, a := range c.Args {
		if name := kubever.FlagName(a.Name); !seen[name] {
			seen[name] = true
			changes = append(changes, Change{What: "--" + name, Old: []string{}, New: plannedValues(c.Args, name),
				Why: whyOf(c.Args, name)})
		}
	}
	return changes
}

func runningValues(args []spec.Arg, name string) []string {
	values := []string{}
	for _, a := range args {
		if kubever.FlagName(a.Name) == name {
			values = append(values, a.Value)
		}
	}
	return values
}

func plannedValues(args []plan.Arg, name string) []string {
	values := []string{}
	for _, a := range args {
		if kubever.FlagName(a.Name) == name {
			values = append(values, a.Value)
		}
	}
	return values
}

func whyOf(args []plan.Arg, name string) string {
	for _, a := range args {
		if kubever.FlagName(a.Name) == name {
			return oneLine(a.Why)
		}
	}
	return ""
}

// whyRemoved says what a removal means: nothing, where the value is what the version does by itself.
func whyRemoved(p *plan.Plan, c *plan.Component, name string, values []string) string {
	if c.Side != "" {
		version := p.Side(c.Side).Version
		fact := kubever.Flag(c.Kind, name)
		if !fact.In(version.Minor) {
			return fmt.Sprintf("%s does not have it", version)
		}
		if value, ok := fact.Default(version.Minor); ok && len(values) > 0 && values[len(values)-1] == value {
			return fmt.Sprintf("the default of %s", version)
		}
	}
	return "not in the spec: add it to extraArgs to keep it"
}

func envChanges(c *plan.Component, r *Running) []Change {
	before, after := map[string]string{}, map[string]string{}
	var names []string
	for _, e := range r.Env {
		before[e.Name] = e.Value
		names = append(names, e.Name)
	}
	for _, e := range c.Env {
		after[e.Name] = e.Value
		names = append(names, e.Name)
	}
	slices.Sort(names)
	var changes []Change
	for _, name := range slices.Compact(names) {
		old, had := before[name]
		value, has := after[name]
		if had == has && old == value {
			continue
		}
		change := Change{What: "$" + name, Old: []string{}, New: []string{}, Why: "the spec's extraEnv"}
		if had {
			change.Old = append(change.Old, old)
		}
		if has {
			change.New = append(change.New, value)
		} else {
			change.Why = "not in the spec: add it to extraEnv to keep it"
		}
		changes = append(changes, change)
	}
	return changes
}
