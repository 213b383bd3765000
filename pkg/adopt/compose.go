package adopt

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kubefusion/fusionctl/pkg/spec"
)

// composed is one service of a docker-compose file.
type composed struct {
	line        int
	Image       string    `yaml:"image"`
	Entrypoint  yaml.Node `yaml:"entrypoint"`
	Command     yaml.Node `yaml:"command"`
	Environment yaml.Node `yaml:"environment"`
	EnvFile     yaml.Node `yaml:"env_file"`
	WorkingDir  string    `yaml:"working_dir"`
	Volumes     []yaml.Node
}

// UnmarshalYAML decodes a service and keeps its line.
func (c *composed) UnmarshalYAML(node *yaml.Node) error {
	type plain composed
	err := node.Decode((*plain)(c))
	c.line = node.Line
	return err
}

// compose reads the services of a docker-compose file, and reports whether the text is one. Variables come from the
// file .env beside it.
func (r *reader) compose(name string, text []byte) bool {
	var document yaml.Node
	if yaml.Unmarshal(text, &document) != nil || unreadable(&document) != "" || len(document.Content) == 0 {
		return false
	}
	if !composeName.MatchString(path.Base(name)) && !isComposed(document.Content[0]) {
		return false
	}
	var file struct {
		Services map[string]composed `yaml:"services"`
	}
	if document.Decode(&file) != nil || len(file.Services) == 0 {
		if document.Decode(&file.Services) != nil { // version 1 has the services at the top
			return false
		}
	}
	variables := map[string]string{}
	if _, text, ok := r.textOf("/" + path.Join(path.Dir(name), ".env")); ok {
		parseEnvironmentFile(text, variables, true)
	}
	for _, service := range slices.Sorted(maps.Keys(file.Services)) {
		c := file.Services[service]
		r.composedService(fmt.Sprintf("%s:%d", name, c.line), service, &c, variables)
	}
	return true
}

// isComposed reports whether a document of another name has services with a command and an image.
func isComposed(document *yaml.Node) bool {
	services := child(document, "services")
	if services == nil || services.Kind != yaml.MappingNode {
		return false
	}
	return slices.ContainsFunc(services.Content, func(service *yaml.Node) bool {
		return child(service, "image") != nil && child(service, "command", "entrypoint") != nil
	})
}

// composeName is how docker-compose files are called.
var composeName = regexp.MustCompile(`^(docker-)?compose[-.\w]*\.ya?ml$`)

func (r *reader) composedService(place, name string, c *composed, variables map[string]string) {
	fill := func(text string) string { return interpolate(text, variables, r.made) }
	words := slices.Concat(composedWords(&c.Entrypoint), composedWords(&c.Command))
	for i, word := range words {
		words[i] = fill(word)
	}
	image := fill(c.Image)
	environment := map[string]string{}
	for _, pair := range pairsOf(&c.Environment) {
		key, value, _ := strings.Cut(pair, "=")
		environment[key] = fill(value)
	}
	if r.ignored(place) {
		return
	}
	line, ok := r.commandLine(place, words, environment)
	if !ok {
		var component string
		component, ok = namedFor(image, name)
		line = wrapped(component, words)
	}
	if !ok {
		return
	}
	p := Process{Component: line.component, Name: name, Place: place, Image: image, Command: line.command,
		Words: line.words, broken: line.broken, asks: line.asks}
	for _, key := range slices.Sorted(maps.Keys(environment)) {
		p.Env = append(p.Env, spec.EnvVar{Name: key, Value: environment[key]})
	}
	p.Env = withVariables(p.Env, line.env)
	r.workIn(&p, inDirectory(fill(c.WorkingDir), line.directory))
	if c.EnvFile.Kind != 0 {
		r.note(place, "the variables of env_file are left out; a spec holds plain values")
	}
	for _, word := range append([]string{image}, words...) {
		if variable.MatchString(word) {
			p.unfilled = word
		}
	}
	for i := range c.Volumes {
		from, to, readOnly := composedVolume(&c.Volumes[i])
		if from, to = fill(from), fill(to); !path.IsAbs(from) || !path.IsAbs(to) {
			r.note(place, "volume %q is no absolute path of the host and is left out", from)
			continue
		}
		p.Mounts = append(p.Mounts, bind(i, from, to, readOnly))
	}
	r.start(p)
}

// composedWords are those of a command, which is a text or a list.
func composedWords(node *yaml.Node) []string {
	var list []string
	if node.Kind == yaml.SequenceNode && node.Decode(&list) == nil {
		return list
	}
	words, err := splitWords(node.Value)
	if err != nil {
		return strings.Fields(node.Value)
	}
	return words
}

// pairsOf are the variables of an environment, a list of KEY=VALUE or a mapping.
func pairsOf(node *yaml.Node) []string {
	var list []string
	if node.Kind == yaml.SequenceNode && node.Decode(&list) == nil {
		return list
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		list = append(list, node.Content[i].Value+"="+node.Content[i+1].Value)
	}
	return list
}

// composedVolume is FROM:TO[:OPTIONS], or a mapping.
func composedVolume(node *yaml.Node) (from, to string, readOnly bool) {
	if node.Kind == yaml.MappingNode {
		var long struct {
			Source   string `yaml:"source"`
			Target   string `yaml:"target"`
			ReadOnly bool   `yaml:"read_only"`
		}
		_ = node.Decode(&long) // what is no such mapping has no path, and is named
		return long.Source, long.Target, long.ReadOnly
	}
	from, rest, _ := strings.Cut(node.Value, ":")
	to, options, _ := strings.Cut(rest, ":")
	return from, to, slices.Contains(strings.Split(options, ","), "ro")
}

// composeVariable is a dollar sign of a docker-compose file: $$, $NAME, ${NAME}, ${NAME:-WORD}.
var composeVariable = regexp.MustCompile(`\$(\$|[A-Za-z_]\w*|\{[A-Za-z_]\w*(:?-[^}]*)?\})`)

// interpolate fills in variables as docker-compose does. What is not set stays, to be named.
func interpolate(text string, variables map[string]string, m *made) string {
	return composeVariable.ReplaceAllStringFunc(text, func(found string) string {
		name, fallback, hasFallback := strings.Cut(strings.Trim(found[1:], "{}"), "-")
		name = strings.TrimSuffix(name, ":")
		switch value, ok := variables[name]; {
		case name == "$":
			return "$"
		case ok && value != "" && !m.take(len(value)):
			return ""
		case ok && value != "":
			return value
		case hasFallback:
			return fallback
		}
		return found
	})
}
