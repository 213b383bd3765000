package adopt

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Processes as other programs describe them in YAML and JSON: the configuration of an OCI runtime, what containerd
// prints of a container, an operating system's objects that have a pod within, job files. They have in common that a
// program and its arguments are written down word by word.

// limitDescribed is how deep a description is looked for in a document.
const limitDescribed = 16

// described finds the processes of a document that is no object of Kubernetes, and reads those of components.
func (r *reader) described(name string, node *yaml.Node, above []*yaml.Node) {
	if len(above) > limitDescribed {
		return
	}
	if node.Kind == yaml.MappingNode {
		if containers := child(child(node, "spec"), "containers"); containers != nil {
			r.object(name, node, 0)
			return
		}
		if r.describedProcess(name, node, above) {
			return
		}
	}
	for i, inner := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 0 {
			continue // a key
		}
		r.described(name, inner, append(slices.Clone(above), node))
	}
}

// aliased is what a node stands for. Aliases are bounded before a document is read.
func aliased(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// child is the value of a key, whatever its case; nil for none, and of what is no mapping.
func child(node *yaml.Node, keys ...string) *yaml.Node {
	if node == nil || node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if slices.ContainsFunc(keys, func(key string) bool { return strings.EqualFold(node.Content[i].Value, key) }) {
			return aliased(node.Content[i+1])
		}
	}
	return nil
}

// wordsOf are those of a list of scalars, nil for another node.
func wordsOf(node *yaml.Node) []string {
	if node == nil || node.Kind != yaml.SequenceNode {
		return nil
	}
	var words []string
	for _, word := range node.Content {
		if word.Kind != yaml.ScalarNode {
			return nil
		}
		words = append(words, word.Value)
	}
	return words
}

// describedNames are what descriptions call the program and its arguments, in the order in which they are put together.
var describedNames = [][]string{{"entrypoint", "executable", "program", "path"}, {"command", "cmd", "exec"},
	{"args", "argv", "arguments"}}

// describedWords are the program and the arguments of a description. A text that is all there is may be the whole line.
func describedWords(node *yaml.Node) []string {
	var words []string
	parts, text := 0, ""
	for _, names := range describedNames {
		part := child(node, names...)
		switch {
		case part == nil:
			continue
		case part.Kind == yaml.ScalarNode:
			text = part.Value
			words = append(words, text)
		default:
			words = append(words, wordsOf(part)...)
		}
		parts++
	}
	if parts > 1 || text == "" {
		return words
	}
	words, err := splitWords(text)
	if err != nil {
		return nil
	}
	return words
}

// describedProcess reads one that starts a component: a list of words, with the program among them or beside.
func (r *reader) describedProcess(name string, node *yaml.Node, above []*yaml.Node) bool {
	words := describedWords(node)
	if len(words) < 2 || !slices.ContainsFunc(words, isOption) {
		return false
	}
	place := fmt.Sprintf("%s:%d", name, node.Line)
	var env []spec.EnvVar
	environment := map[string]string{}
	if variables := child(node, "env", "environment"); variables != nil {
		for _, pair := range variablesOf(variables) {
			key, value, _ := strings.Cut(pair, "=")
			environment[key] = value
			if key != "PATH" && key != "HOME" && key != "HOSTNAME" && !ofService.MatchString(key) {
				env = append(env, spec.EnvVar{Name: key, Value: value})
			}
		}
	}
	line, ok := r.commandLine(place, words, environment)
	if !ok {
		return false
	}
	p := Process{Component: line.component, Name: line.component, Place: place, Command: line.command,
		Words: line.words, Env: withVariables(env, line.env), broken: line.broken, asks: line.asks}
	if directory := child(node, "cwd", "workingDir", "working_dir", "workdir"); directory != nil {
		r.workIn(&p, inDirectory(directory.Value, line.directory))
	}
	above = append(slices.Clone(above), node)
	for i := len(above) - 1; i >= 0; i-- { // an image and mounts are of the container around the process
		if image := child(above[i], "image"); image != nil && image.Kind == yaml.ScalarNode && p.Image == "" {
			p.Image = image.Value
		}
		if mounts := child(above[i], "mounts"); mounts != nil && len(p.Mounts) == 0 {
			p.Mounts = describedMounts(mounts)
		}
	}
	r.note(place, "%s is read from its command line here; what else stands beside it is left out", p.Component)
	r.start(p)
	return true
}

// variablesOf are the variables of an environment: a mapping, a list of KEY=VALUE or one of names with values.
func variablesOf(node *yaml.Node) []string {
	if node.Kind != yaml.SequenceNode {
		return pairsOf(node)
	}
	var list []string
	for _, item := range node.Content {
		name, value := child(item, "name", "key"), child(item, "value")
		switch {
		case item.Kind == yaml.ScalarNode:
			list = append(list, item.Value)
		case name != nil && value != nil:
			list = append(list, name.Value+"="+value.Value)
		}
	}
	return list
}

// describedMounts are the paths of the host among the mounts of an OCI runtime.
func describedMounts(list *yaml.Node) []spec.Mount {
	var mounts []spec.Mount
	if list.Kind != yaml.SequenceNode {
		return nil
	}
	for i, m := range list.Content {
		from, to, kind := child(m, "source"), child(m, "destination", "target"), child(m, "type")
		if from == nil || to == nil || !path.IsAbs(from.Value) || !path.IsAbs(to.Value) ||
			kind != nil && kind.Value != "bind" && kind.Value != "none" {
			continue
		}
		readOnly := slices.Contains(wordsOf(child(m, "options")), "ro")
		if flag := child(m, "readOnly", "read_only"); flag != nil && flag.Value == "true" {
			readOnly = true
		}
		mounts = append(mounts, bind(i, from.Value, to.Value, readOnly))
	}
	return mounts
}
