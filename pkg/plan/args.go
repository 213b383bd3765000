package plan

import (
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// argList collects the arguments that the plan wants a component of one version to have.
type argList struct {
	component string
	minor     kubever.Minor
	args      []wantedArg
}

// wantedArg is an argument of the plan's own. A needed one is changed even where the component runs already.
type wantedArg struct {
	Arg
	needed bool
}

// set adds --name=value when the version has the flag, and reports whether it has. A flag that a version lacks is one
// whose behaviour it lacks, or has without being told; where that is not so the caller asks for the result.
func (l *argList) set(name, value, why string) bool {
	if !kubever.Flag(l.component, name).In(l.minor) {
		return false
	}
	l.args = append(l.args, wantedArg{Arg: Arg{Name: name, Value: value, Why: why, Origin: FromPlan}})
	return true
}

// need is set of an argument that the plan insists on.
func (l *argList) need(name, value, why string) bool {
	if !l.set(name, value, why) {
		return false
	}
	l.args[len(l.args)-1].needed = true
	return true
}

// first sets the first of several spellings of one flag that the version has.
func (l *argList) first(names []string, value, why string) bool {
	for _, name := range names {
		if l.set(name, value, why) {
			return true
		}
	}
	return false
}

// with merges the arguments of the spec into the plan's: one that the spec names replaces the plan's own of that name,
// except for the needed ones and for lists of settings, which are joined; the others follow in the spec's order.
func (l *argList) with(extra []spec.Arg) []Arg {
	fromSpec := map[string][]spec.Arg{}
	for _, arg := range extra {
		name := kubever.FlagName(arg.Name)
		fromSpec[name] = append(fromSpec[name], arg)
	}
	var merged []Arg
	placed := map[string]bool{}
	for _, arg := range l.args {
		given, ok := fromSpec[arg.Name]
		switch {
		case !ok:
			merged = append(merged, arg.Arg)
		case arg.needed && given[len(given)-1].Value != arg.Value:
			changed := arg.Arg
			changed.Origin = FromBoth
			merged = append(merged, changed)
			placed[arg.Name] = true
		case joined[arg.Name] && !placed[arg.Name]:
			merged = append(merged, join(arg.Arg, given))
			placed[arg.Name] = true
		case !placed[arg.Name]:
			for _, g := range given {
				merged = append(merged, Arg{Name: g.Name, Value: g.Value, Why: "from the spec", Origin: FromSpec})
			}
			placed[arg.Name] = true
		}
	}
	for _, arg := range extra {
		if !placed[kubever.FlagName(arg.Name)] {
			merged = append(merged, Arg{Name: arg.Name, Value: arg.Value, Why: "from the spec", Origin: FromSpec})
		}
	}
	return merged
}

// joined are the flags whose value is a list of settings that have nothing to do with each other: what the plan needs
// there stays when the spec adds something else.
var joined = map[string]bool{"feature-gates": true, "runtime-config": true}

// join adds the plan's settings to those that the spec gives. Where both set one thing the spec's stands.
func join(arg Arg, given []spec.Arg) Arg {
	var list []string
	for _, g := range given {
		list = append(list, splitList(g.Value)...)
	}
	said, added := len(list), false
	for _, entry := range splitList(arg.Value) {
		if !slices.ContainsFunc(list[:said], func(other string) bool {
			return settingName(other) == settingName(entry)
		}) {
			list, added = append(list, entry), true
		}
	}
	if !added {
		return Arg{Name: given[0].Name, Value: strings.Join(list, ","), Why: "from the spec", Origin: FromSpec}
	}
	return Arg{Name: given[0].Name, Value: strings.Join(list, ","), Why: "from the spec; " + arg.Why, Origin: FromBoth}
}

// settingName is what an entry is about: the gate of Gate=true, the API of batch/v2alpha1=true.
func settingName(entry string) string {
	name, _, _ := strings.Cut(entry, "=")
	return strings.TrimSpace(name)
}

// whyChanged is why an argument is another that the spec wants changed.
const whyChanged = "the spec's changeArgs"

// onto keeps the arguments of a component that runs already, in their order, and changes only what the spec says is to
// be changed, and what the plan needs.
func (l *argList) onto(running []spec.Arg, changes []spec.Change) []Arg {
	before := map[string][]string{}
	for _, arg := range running {
		name := kubever.FlagName(arg.Name)
		before[name] = append(before[name], arg.Value)
	}
	var kept []Arg
	placed := map[string]bool{}
	for _, arg := range replaced(running, changes) {
		name := kubever.FlagName(arg.Name)
		was := strings.Join(before[name], " ")
		changed := Arg{Name: arg.Name, Value: arg.Value, Why: "runs with it", Origin: FromSpec}
		isChanged := slices.ContainsFunc(changes, func(c spec.Change) bool { return kubever.FlagName(c.Name) == name })
		if isChanged && !slices.Contains(before[name], arg.Value) {
			changed.Why, changed.Was, changed.Origin = whyChanged, was, FromBoth
			if len(before[name]) == 0 {
				changed.Origin = FromPlan
			}
		}
		for _, want := range l.args {
			if want.needed && want.Name == kubever.Meant(l.component, arg.Name, l.minor) {
				placed[want.Name] = true
				if want.Value != arg.Value {
					changed = Arg{Name: arg.Name, Value: want.Value, Was: was, Why: want.Why, Origin: FromBoth}
				}
			}
		}
		kept = append(kept, changed)
	}
	for _, want := range l.args {
		if want.needed && !placed[want.Name] {
			kept = append(kept, want.Arg)
		}
	}
	return kept
}

// lastValue is the value that counts of an argument given in the spec: the last one.
func lastValue(args []spec.Arg, name string) (string, bool) {
	if i := lastIndex(args, name); i >= 0 {
		return args[i].Value, true
	}
	return "", false
}

// lastIndex is where the argument stands whose value counts; -1 for nowhere.
func lastIndex(args []spec.Arg, name string) int {
	for i := len(args) - 1; i >= 0; i-- {
		if kubever.FlagName(args[i].Name) == name {
			return i
		}
	}
	return -1
}
