package adopt

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// commandLine is a command line taken apart.
type commandLine struct {
	component string
	command   []string      // up to the program, such as [/hyperkube, apiserver]
	words     []string      // what follows
	image     string        // of the container runtime that runs the program, "" for none
	broken    string        // why the words are not all there
	asks      []asked       // what only the machine can tell
	before    []string      // what stands in front of the program and starts it: flock, go-runner, docker run
	env       []spec.EnvVar // that the command line sets
	directory string        // in which it starts the program, "" where it does not say
}

var programs = []string{kubever.APIServer, kubever.ControllerManager, kubever.Scheduler, Etcd, Kubelet}

// fusionctl is the program of its own controllers.
const fusionctl = "fusionctl"

// servers are the words by which a hyperkube knows the components, besides their full names.
var servers = map[string]string{
	"apiserver":          kubever.APIServer,
	"controller-manager": kubever.ControllerManager,
	"scheduler":          kubever.Scheduler,
}

// commandLine finds the component that the words start, directly, through a shell or through another program.
func (r *reader) commandLine(place string, words []string, environment map[string]string) (commandLine, bool) {
	if script, arguments, ok := shellCommand(words); ok {
		return r.shell(place, script, arguments, environment)
	}
	line, ok := locate(words)
	if !ok {
		line, ok = r.locateWithin(words)
	}
	r.noteWrapper(place, line)
	return line, ok
}

// locateWithin finds the program of a component in a word that describes a command in JSON: what waits for something
// and then starts a program may take it in that form.
func (r *reader) locateWithin(words []string) (commandLine, bool) {
	for i, word := range words {
		var document yaml.Node
		if !strings.HasPrefix(word, "{") && !strings.HasPrefix(word, "[") ||
			yaml.Unmarshal([]byte(word), &document) != nil || unreadable(&document) != "" ||
			len(document.Content) == 0 {
			continue
		}
		inner := describedWords(document.Content[0])
		if document.Content[0].Kind == yaml.SequenceNode {
			inner = wordsOf(document.Content[0])
		}
		if line, ok := locate(inner); ok && slices.ContainsFunc(inner, isOption) {
			line.before = append(slices.Clone(words[:i]), line.before...)
			return line, true
		}
	}
	return commandLine{}, false
}

// noteWrapper names what started the program and is left out. Of a container runtime there is a note of its own.
func (r *reader) noteWrapper(place string, line commandLine) {
	before := strings.Join(line.before, " ")
	if before != "" && before != "exec" && line.image == "" {
		r.note(place, "what starts %s is left out: %s", line.component, before)
	}
}

// ofFusionctl are the components that are verbs of fusionctl.
var ofFusionctl = map[string]string{"controllers": Controllers, "gateway": Gateway}

// locate finds the program of a component among the words: first where no option stands before it that may have it as
// its value, as in docker run --name kube-apiserver IMAGE kube-apiserver ..., then anywhere.
func locate(words []string) (commandLine, bool) {
	words = ctrProgram(rktProgram(words))
	for i, word := range words[:max(0, len(words)-1)] {
		if component := ofFusionctl[words[i+1]]; path.Base(word) == fusionctl && component != "" {
			return commandLine{component: component, command: words[i : i+2], words: words[i+2:]}, true
		}
	}
	runtime := slices.IndexFunc(words, isRuntime)
	for _, anywhere := range []bool{false, true} {
		for i, word := range words {
			if i > 0 && !anywhere && takesValue(words[i-1]) {
				continue
			}
			if component := componentAt(words, i); component != "" {
				program := command(words[:i+1])
				return commandLine{component: component, command: program, words: words[i+1:]}.startedBy(
					words[:i+1-len(program)]), true
			}
			if component, ok := imageOfComponent(word); ok && runtime >= 0 && runtime <= i &&
				!strings.HasPrefix(word, "-") {
				if i+1 < len(words) && componentAt(words, i+1) == component {
					continue // it is named behind the image
				}
				// the program is the image's entrypoint
				return commandLine{component: component, words: words[i+1:]}.startedBy(words[:i+1]), true
			}
		}
	}
	return commandLine{}, false
}

// startedBy reads what stands in front of the program.
func (c commandLine) startedBy(before []string) commandLine {
	c.image = runtimeImage(before)
	if c.image != "" {
		c.env, c.directory = runtimeVariables(before), runtimeDirectory(before)
		if entry := runtimeOption(before, "--entrypoint"); entry != "" && (len(c.command) == 0 ||
			path.Base(entry) != path.Base(c.command[0])) {
			c.command = append([]string{entry}, c.command...)
		}
	}
	var variables []spec.EnvVar
	variables, c.before = envVariables(before)
	c.env = withVariables(c.env, variables)
	return c
}

// rktProgram puts the program of rkt run [OPTION...] IMAGE --exec=PROGRAM -- ARGUMENT... where other runtimes have it.
func rktProgram(words []string) []string {
	end := slices.Index(words, "--")
	if end < 0 || !slices.ContainsFunc(words[:end], func(word string) bool { return path.Base(word) == "rkt" }) {
		return words
	}
	for i, word := range words[:end] {
		switch program, given := strings.CutPrefix(word, "--exec="); {
		case given:
			return slices.Concat(words[:i], []string{program}, words[end+1:])
		case word == "--exec" && i+1 < end:
			return slices.Concat(words[:i], words[i+1:i+2], words[end+1:])
		}
	}
	return words
}

// ctrProgram leaves out the ID of ctr run [OPTION...] IMAGE ID PROGRAM [ARGUMENT...], which other runtimes have as an
// option.
func ctrProgram(words []string) []string {
	start := slices.IndexFunc(words, func(word string) bool { return path.Base(word) == "ctr" })
	if start < 0 {
		return words
	}
	run := slices.Index(words[start:], "run")
	for i := start + run + 1; run > 0 && i+2 < len(words); i++ {
		switch word := words[i]; {
		case !strings.HasPrefix(word, "-"):
			return slices.Concat(words[:i+1], words[i+2:])
		case !slices.Contains(flagsOfCtr, word) && (takesValue(word) || len(word) == 2):
			i++
		}
	}
	return words
}

// flagsOfCtr are the options of ctr run without a value, besides those that other runtimes have.
var flagsOfCtr = []string{"-d", "-t", "--net-host", "--null-io", "--no-pivot", "--read-only", "--cgroup-ns", "--cni"}

// startsExisting are the verbs by which a program starts, or follows, a container that exists already.
var startsExisting = map[string][]string{
	"docker":  {"start", "restart", "attach", "logs", "wait", "up"},
	"podman":  {"start", "restart", "attach", "logs", "wait", "up"},
	"nerdctl": {"start", "restart", "attach", "logs", "wait", "up"}, "docker-compose": {"start", "restart", "up"},
	"runc": {"run", "start"}, "crun": {"run", "start"}, "machinectl": {"start"}, "crictl": {"start"},
}

// startedAgain is the name of the container that words start without saying what it runs: docker start NAME, runc run
// NAME; "" for other words.
func startedAgain(words []string) string {
	at := slices.IndexFunc(words, func(word string) bool { return startsExisting[path.Base(word)] != nil })
	if at < 0 || strings.HasPrefix(words[len(words)-1], "-") {
		return ""
	}
	verbs := startsExisting[path.Base(words[at])]
	for _, word := range words[at+1 : max(at+1, len(words)-1)] {
		switch {
		case slices.Contains(verbs, word):
			return words[len(words)-1]
		case slices.Contains([]string{"run", "create", "exec"}, word):
			return ""
		}
	}
	return ""
}

// takesValue reports whether the word after this one may be its value.
func takesValue(word string) bool {
	return strings.HasPrefix(word, "--") && !strings.Contains(word, "=") &&
		!slices.Contains([]string{"--rm", "--privileged", "--init", "--detach", "--tty", "--interactive", "--"}, word)
}

// programPattern is what people append to the name of a program: kube-apiserver-v1.6.13, kube-apiserver.sh.
var programPattern = regexp.MustCompile(`([-_.]v?1\.[0-9]+[-+._0-9A-Za-z]*|\.sh)$`)

// componentAt names the component that the word at i starts, "" for none.
func componentAt(words []string, i int) string {
	if strings.HasPrefix(words[i], "-") {
		return ""
	}
	base := programName(words[i])
	if slices.Contains(programs, base) {
		return base
	}
	if i == 0 || isHyperkube(words[i-1]) {
		return servers[base]
	}
	return ""
}

// isHyperkube knows a program that is all components, also with a version in its name.
func isHyperkube(word string) bool { return programName(word) == "hyperkube" }

// programName is the name of a program without what people append to it.
func programName(word string) string {
	const limitName = 255 // of a file: what is longer is not searched, and names none
	base := path.Base(word)
	if len(base) > limitName {
		return ""
	}
	return programPattern.ReplaceAllString(base, "")
}

// command is what has to be kept in front of the arguments: the program alone, with its hyperkube. What else stood
// there (a shell's exec, env, nice, a container runtime) was about starting it here.
func command(words []string) []string {
	last := len(words) - 1
	if last > 0 && isHyperkube(words[last-1]) {
		return words[last-1:]
	}
	return words[last:]
}

// runtimeImage is the last of the words when a container runtime is among them: docker run [OPTION...] IMAGE; ""
// otherwise.
func runtimeImage(words []string) string {
	if !slices.ContainsFunc(words, isRuntime) || strings.HasPrefix(words[len(words)-1], "-") {
		return ""
	}
	return words[len(words)-1]
}

// isRuntime knows the programs of container runtimes.
func isRuntime(word string) bool {
	return slices.Contains([]string{"docker", "podman", "nerdctl", "rkt", "ctr"}, path.Base(word))
}

// wrapped takes a command line apart whose program has a name of its own, such as a vendor's start script: what comes
// before the first argument is the program.
func wrapped(component string, words []string) commandLine {
	first := slices.IndexFunc(words, func(word string) bool { return strings.HasPrefix(word, "--") })
	if first < 0 {
		first = len(words)
	}
	return commandLine{component: component, command: words[:first], words: words[first:]}
}

// namedFor returns the component that an image or one of the names is named for.
func namedFor(image string, names ...string) (string, bool) {
	if component, ok := imageOfComponent(image); ok {
		return component, true
	}
	for _, name := range names {
		if slices.Contains(programs, name) {
			return name, true
		}
	}
	return "", false
}

// imageOfComponent knows kube-apiserver:v1.31.0 and kube-apiserver-amd64:v1.6.13 of any registry.
func imageOfComponent(image string) (string, bool) {
	name := path.Base(image)
	name, _, _ = strings.Cut(name, "@")
	name, _, _ = strings.Cut(name, ":")
	for _, arch := range []string{"-amd64", "-arm64", "-arm", "-ppc64le", "-s390x"} {
		name = strings.TrimSuffix(name, arch)
	}
	return name, slices.Contains(programs, name)
}
