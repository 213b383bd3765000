package adopt

import (
	"fmt"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Args takes the words of a component apart as its own parser does at the minor: --name=value, --name value, --switch,
// -v=2 and -v 2, underscores for dashes. Order and repetition stay; a switch without a value gets "true". The notes say
// which words no argument was made of, and which arguments the release of that minor does not know; these are kept, for
// a vendor's build may know them.
func (p *Process) Args(minor kubever.Minor) ([]spec.Arg, []Note) {
	var args []spec.Arg
	var notes []Note
	note := func(format string, values ...any) {
		notes = append(notes, Note{Place: p.Place, Text: fmt.Sprintf(format, values...)})
	}
	known := len(kubever.Flags(p.Component, minor)) > 0 // of etcd and kubelet nothing is known
	for i := 0; i < len(p.Words); i++ {
		word := p.Words[i]
		if word == "--" {
			if i+1 < len(p.Words) {
				note("words after -- are no arguments of %s and are left out: %s", p.Component,
					strings.Join(p.Words[i+1:], " "))
			}
			break
		}
		name, ok := argName(word)
		if !ok {
			note("%q is no argument of %s and is left out", word, p.Component)
			continue
		}
		name, value, hasValue := strings.Cut(name, "=")
		arg := spec.Arg{Name: canonical(p.Component, name, minor), Value: value}
		if short, ok := verbosity(word); ok {
			arg, hasValue = spec.Arg{Name: "v", Value: short}, short != ""
		}
		fact := kubever.Flag(p.Component, arg.Name)
		switch {
		case hasValue:
		case isSwitch(fact, minor):
			arg.Value = "true"
		case i+1 < len(p.Words) && !looksLikeArg(p.Words[i+1]):
			i++
			arg.Value = p.Words[i]
		case known && fact.In(minor):
			note("--%s has no value", arg.Name)
		default:
			arg.Value = "true"
		}
		if known && !fact.In(minor) {
			note("%s %s does not know --%s; it is kept, because this build may know it", p.Component, minor, arg.Name)
			notes[len(notes)-1].Kept = true
		}
		if p.printed != nil && isDefault(fact, minor, arg.Value) {
			continue
		}
		args = append(args, arg)
	}
	return args, notes
}

// argName takes the dashes from a word; false when it is none of -n and --name.
func argName(word string) (string, bool) {
	name, ok := strings.CutPrefix(word, "--")
	if !ok {
		name, ok = strings.CutPrefix(word, "-")
	}
	return name, ok && name != "" && name[0] != '=' && name[0] != '-'
}

// looksLikeArg reports whether a word starts the next argument; a negative number is a value.
func looksLikeArg(word string) bool {
	name, ok := argName(word)
	return ok && (name[0] < '0' || name[0] > '9')
}

// verbosity reads -v=2, -v2 and -v, the only short form in use; the value is "" when it stands in the next word.
func verbosity(word string) (string, bool) {
	rest, ok := strings.CutPrefix(word, "-v")
	if !ok {
		return "", false
	}
	value := strings.TrimPrefix(rest, "=")
	return value, strings.Trim(value, "0123456789") == ""
}

// canonical is the name of a flag with dashes for underscores, unless the minor knows it with underscores only.
func canonical(component, name string, minor kubever.Minor) string {
	if f := kubever.FlagGiven(component, name, minor); f.In(minor) {
		return f.Name
	}
	return kubever.FlagName(name)
}

// isSwitch reports whether the flag is a boolean: given without a value, it does not take the next word.
func isSwitch(fact kubever.FlagFact, minor kubever.Minor) bool {
	for _, m := range append([]kubever.Minor{minor}, kubever.Minors()...) {
		if value, ok := fact.Default(m); ok {
			return value == "true" || value == "false"
		}
	}
	return false
}
