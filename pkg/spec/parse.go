package spec

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds on a file. They are far above what a control plane needs and keep hostile input cheap.
const (
	limitBytes    = 1 << 20 // of the text
	limitFields   = 50_000  // that are read, each use of an anchor counted again
	limitProblems = 100     // reported
)

// Load reads a spec file: it decodes, fills the defaults and validates. This is the entry for everything that uses a spec.
// Errors: every problem is reported, joined, in the order of the lines; each starts with NAME:LINE and the field path.
// Safe for concurrent use.
func Load(name string, data []byte) (*File, error) {
	file, ps := parse(name, data)
	if file != nil {
		file.Default()
		validate(file, ps)
	}
	if err := ps.err(); err != nil {
		return nil, err
	}
	return file, nil
}

// Parse decodes the text of a spec file, YAML or JSON, without filling defaults or judging values. Nothing is let through that
// a File cannot hold: unknown fields, duplicate keys, wrong types, a second document.
// Errors: every problem is reported, joined, each with NAME:LINE and the field path. The File is then what could be read, and
// the Lines know which of it to distrust; the File is nil when the text is not YAML or not a spec file at all.
// Safe for concurrent use.
func Parse(name string, data []byte) (*File, Lines, error) {
	file, ps := parse(name, data)
	return file, ps.lines, ps.err()
}

func parse(name string, data []byte) (*File, *problems) {
	ps := &problems{lines: Lines{name: name, at: map[string]int{}, damaged: map[string]bool{}, around: map[string]bool{}}}
	if len(data) > limitBytes {
		ps.addAt(0, "", "is %d bytes long; a spec may have %d", len(data), limitBytes)
		return nil, ps
	}
	root := document(ps, data)
	if root == nil || !isSpec(ps, root) {
		return nil, ps
	}
	file := &File{}
	d := &decoder{problems: ps, fieldsLeft: limitFields}
	d.value(root, reflect.ValueOf(file).Elem(), "", false)
	return file, ps
}

// document returns the one document of the text, nil after reporting that there is none.
func document(ps *problems, data []byte) *yaml.Node {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var root *yaml.Node
	for {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			line, message := syntaxError(err)
			last := 1 + bytes.Count(bytes.TrimRight(data, "\r\n"), []byte("\n"))
			ps.addAt(min(line, last), "", "%s", message)
			return nil
		}
		if len(node.Content) == 0 || isNull(node.Content[0]) {
			continue // a separator or comments without content
		}
		switch content := node.Content[0]; {
		case root == nil:
			root = content
		default:
			ps.addAt(content.Line, "", "a second document starts here; want one spec in a file")
			return nil
		}
	}
	if root == nil {
		ps.addAt(1, "", "is empty; want apiVersion: %s and kind: %s", APIVersion, Kind)
	}
	return root
}

// syntaxError takes an error of the YAML library apart: "yaml: line 3: found character that cannot start any token" is a problem
// of line 3. Its parser, unlike its scanner, counts lines from 0.
func syntaxError(err error) (line int, message string) {
	message = strings.TrimPrefix(err.Error(), "yaml: ")
	line = 1
	if rest, ok := strings.CutPrefix(message, "line "); ok {
		if number, text, ok := strings.Cut(rest, ": "); ok {
			if n, err := strconv.Atoi(number); err == nil {
				line, message = n, text
			}
			if slices.Contains(parserMessages, message) {
				line++
			}
		}
	}
	return line, "not YAML: " + message
}

var parserMessages = []string{
	"did not find expected <document start>",
	"did not find expected node content",
	"did not find expected key",
	"did not find expected '-' indicator",
	"did not find expected ',' or ']'",
	"did not find expected ',' or '}'",
}

// isSpec reports whether the document says that it is a spec file. For anything else a list of unknown fields would be noise.
func isSpec(ps *problems, root *yaml.Node) bool {
	if root.Kind != yaml.MappingNode {
		ps.addAt(root.Line, "", "want a mapping with apiVersion: %s and kind: %s, got %s", APIVersion, Kind, describe(root))
		return false
	}
	ok := true
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		for _, header := range []struct{ name, want string }{{"apiVersion", APIVersion}, {"kind", Kind}} {
			if key.Value == header.name && (value.Kind != yaml.ScalarNode || value.Value != header.want) {
				ps.addAt(value.Line, header.name, "%s: want %s", describe(value), header.want)
				ok = false
			}
		}
	}
	return ok
}

// describe says in a few words what a node is; a text in quotes, other scalars without.
func describe(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		return "a mapping"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	case node.Kind == yaml.AliasNode:
		return describe(node.Alias)
	case isNull(node):
		return "nothing"
	case node.ShortTag() == "!!str":
		return strconv.Quote(shorten(node.Value))
	}
	return shorten(node.Value)
}

// shorten keeps a message readable when somebody pastes a certificate where a name belongs.
func shorten(s string) string {
	const limitRunes = 80
	if runes := []rune(s); len(runes) > limitRunes {
		return string(runes[:limitRunes]) + "..."
	}
	return s
}

func isNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null"
}
