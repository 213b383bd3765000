package adopt

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// What a process is started with besides its arguments: the directory that its relative paths are below, and variables
// that its command line sets.

// within makes the paths among the arguments absolute that are relative to the directory the process is started in, ""
// for one that is not known, and returns the flags that have them. The paths of a spec are absolute.
func (p *Process) within(directory string) []string {
	if !path.IsAbs(directory) || len(kubever.Flags(p.Component, kubever.Oldest)) == 0 {
		return nil
	}
	if len(p.Command) > 0 && strings.Contains(p.Command[0], "/") && !path.IsAbs(p.Command[0]) {
		p.Command = slices.Clone(p.Command)
		p.Command[0] = path.Join(directory, p.Command[0])
	}
	var flags []string
	words := slices.Clone(p.Words)
	for i, word := range words {
		name, ok := argName(word)
		if !ok {
			continue
		}
		name, value, given := strings.Cut(name, "=")
		if !kubever.HasPath(name) {
			continue
		}
		switch {
		case given && isRelative(value):
			words[i] = strings.TrimSuffix(word, value) + path.Join(directory, value)
		case !given && i+1 < len(words) && isRelative(words[i+1]) && !looksLikeArg(words[i+1]):
			words[i+1] = path.Join(directory, words[i+1])
		default:
			continue
		}
		flags = append(flags, "--"+kubever.FlagName(name))
	}
	p.Words = words
	return flags
}

// isRelative reports whether a value is a path that does not start at the root: neither standard output nor a place
// that something is still to be put into.
func isRelative(value string) bool {
	return value != "" && value != "-" && !path.IsAbs(value) && strings.IndexByte("$%{<@", value[0]) < 0
}

// workIn makes relative paths absolute, and says which.
func (r *reader) workIn(p *Process, directory string) {
	if flags := p.within(directory); len(flags) > 0 {
		slices.Sort(flags)
		r.note(p.Place, "%s is started in %s; the spec has its relative paths below it: %s", p.Component, directory,
			strings.Join(slices.Compact(flags), " "))
	}
}

// assignment is NAME=VALUE, as env and a shell read it.
var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// envVariables are those that env NAME=VALUE... sets for the program behind it, and what is left of the words without
// env, where it does nothing else.
func envVariables(before []string) (variables []spec.EnvVar, rest []string) {
	for i := 0; i < len(before); i++ {
		if path.Base(before[i]) != "env" {
			rest = append(rest, before[i])
			continue
		}
		from := i
		for i+1 < len(before) && (assignment.MatchString(before[i+1]) || before[i+1] == "--") {
			i++
			if name, value, ok := strings.Cut(before[i], "="); ok {
				variables = append(variables, spec.EnvVar{Name: name, Value: value})
			}
		}
		if i+1 < len(before) && strings.HasPrefix(before[i+1], "-") { // env -i, env -u NAME
			rest = append(rest, before[from])
		}
	}
	return variables, rest
}

// runtimeVariables are those that the options of a container runtime set in a container: -e NAME=VALUE of docker and
// podman, --set-env=NAME=VALUE of rkt.
func runtimeVariables(words []string) []spec.EnvVar {
	var variables []spec.EnvVar
	for i, word := range words {
		name, value, given := strings.Cut(word, "=")
		switch {
		case !slices.Contains([]string{"-e", "--env", "--set-env", "--environment"}, name):
			continue
		case !given && i+1 < len(words):
			value = words[i+1]
		}
		if assignment.MatchString(value) {
			name, value, _ := strings.Cut(value, "=")
			variables = append(variables, spec.EnvVar{Name: name, Value: value})
		}
	}
	return variables
}

// runtimeDirectory is where the options of a container runtime start the program, "" where they leave that to the
// image.
func runtimeDirectory(words []string) string {
	return runtimeOption(words, "-w", "--workdir", "--working-dir")
}

// runtimeOption is the value of an option of a container runtime, "" for none.
func runtimeOption(words []string, names ...string) string {
	for i, word := range words {
		name, value, given := strings.Cut(word, "=")
		switch {
		case !slices.Contains(names, name):
		case given:
			return value
		case i+1 < len(words):
			return words[i+1]
		}
	}
	return ""
}

// withVariables adds variables to others of which the later ones win, in the order of their names.
func withVariables(variables, more []spec.EnvVar) []spec.EnvVar {
	for _, v := range more {
		at := slices.IndexFunc(variables, func(w spec.EnvVar) bool { return w.Name == v.Name })
		if at < 0 {
			variables = append(variables, v)
		} else {
			variables[at].Value = v.Value
		}
	}
	return variables
}

// inDirectory is where a process is that goes from one directory to another, "" where that cannot be told.
func inDirectory(from, to string) string {
	switch {
	case to == "":
		return from
	case path.IsAbs(to):
		return path.Clean(to)
	case from == "":
		return ""
	}
	return path.Join(from, to)
}
