package spec

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Places are the lines of a spec file at which its values stand, so that what follows from one of them can name it.
// The zero Places knows none.
type Places struct{ values []placed }

// placed is one scalar.
type placed struct {
	field string // its path
	value string
	line  int
}

// ParsePlaces reads them from the text of a file that Load has accepted; of another text there may be none.
func ParsePlaces(data []byte) Places {
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil || len(document.Content) == 0 {
		return Places{}
	}
	var p Places
	p.read("", document.Content[0], map[*yaml.Node]bool{})
	return p
}

// read adds the scalars of a node; what an alias stands for is read where it is written.
func (p *Places) read(field string, node *yaml.Node, seen map[*yaml.Node]bool) {
	if seen[node] {
		return
	}
	seen[node] = true
	switch node.Kind {
	case yaml.ScalarNode:
		p.values = append(p.values, placed{field, node.Value, node.Line})
	case yaml.SequenceNode:
		for i, item := range node.Content {
			p.read(fmt.Sprintf("%s[%d]", field, i), item, seen)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			p.read(strings.TrimPrefix(field+"."+node.Content[i].Value, "."), node.Content[i+1], seen)
		}
	}
}

// lists are where a spec has arguments: of a side, and of a side on one host.
var lists = regexp.MustCompile(
	`^spec\.(?:hosts\[\d+\]\.)?(legacy|modern)\.(\w+)(?:\.(?:extraArgs|changeArgs))?\[\d+\]\.name$`)

// Argument is the line of an argument of a side's component, which the field names (apiServer, controllerManager,
// scheduler); 0 when the spec has none. Of several the last one counts, as for the component.
func (p Places) Argument(side, field, flag string) int {
	line := 0
	for _, v := range p.values {
		if match := lists.FindStringSubmatch(v.field); match != nil && match[1] == side && match[2] == field &&
			strings.ReplaceAll(v.value, "_", "-") == flag {
			line = v.line
		}
	}
	return line
}

// Value is the first line whose value is the one given, or has it among others that commas separate; 0 for none.
func (p Places) Value(value string) int {
	for _, v := range p.values {
		for item := range strings.SplitSeq(v.value, ",") {
			if item == value && !strings.HasSuffix(v.field, ".reason") {
				return v.line
			}
		}
	}
	return 0
}

// File is the line that names a file, or else the one with the longest path of a directory around it; 0 for none.
func (p Places) File(file string) int {
	if line := p.Value(file); line > 0 {
		return line
	}
	line, longest := 0, len("/")
	for _, v := range p.values {
		if directory := path.Clean(v.value); path.IsAbs(v.value) && len(directory) > longest &&
			strings.HasPrefix(file, directory+"/") {
			line, longest = v.line, len(directory)
		}
	}
	return line
}

// Named is the line of the item of a list of the spec that has a name, such as a store; 0 for none.
func (p Places) Named(list, name string) int {
	for _, v := range p.values {
		if rest, ok := strings.CutPrefix(v.field, "spec."+list+"["); ok && strings.HasSuffix(rest, "].name") &&
			strings.Count(rest, ".") == 1 && v.value == name {
			return v.line
		}
	}
	return 0
}
