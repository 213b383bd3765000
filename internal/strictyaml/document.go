// Package strictyaml decodes a file that people write: unknown fields, fields written twice and values of another type
// are problems, all of them reported with the line, the path of the field and what was probably meant.
package strictyaml

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

// Format is a kind of file.
type Format struct {
	Noun             string // what one file is called: "spec"
	APIVersion, Kind string // that a file has to start with
	LimitBytes       int    // of the text
	LimitFields      int    // that are read, each use of an anchor counted again
	// Explain gives the reason why a field that one may expect in a struct does not exist.
	Explain map[reflect.Type]map[string]string
}

// Decode fills a struct, which into points to, from the one document of a YAML or JSON text.
// It returns what is wrong, with the lines of all fields, and whether the text is of this format at all.
func (f Format) Decode(name string, data []byte, into any) (*Problems, bool) {
	ps := &Problems{Lines: Lines{name: name, at: map[string]int{}, damaged: map[string]bool{},
		around: map[string]bool{}}}
	if len(data) > f.LimitBytes {
		ps.AddAt(0, "", "is %d bytes long; a %s may have %d", len(data), f.Noun, f.LimitBytes)
		return ps, false
	}
	root := f.document(ps, data)
	if root == nil || !f.is(ps, root) {
		return ps, false
	}
	d := &decoder{Problems: ps, format: f, fieldsLeft: f.LimitFields}
	d.value(root, reflect.ValueOf(into).Elem(), "", false)
	return ps, true
}

// document returns the one document of the text, nil after reporting that there is none.
func (f Format) document(ps *Problems, data []byte) *yaml.Node {
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
			ps.AddAt(min(line, last), "", "%s", message)
			return nil
		}
		if len(node.Content) == 0 || isNull(node.Content[0]) {
			continue // a separator or comments without content
		}
		switch content := node.Content[0]; {
		case root == nil:
			root = content
		default:
			ps.AddAt(content.Line, "", "a second document starts here; want one %s in a file", f.Noun)
			return nil
		}
	}
	if root == nil {
		ps.AddAt(1, "", "is empty; want apiVersion: %s and kind: %s", f.APIVersion, f.Kind)
	}
	return root
}

// syntaxError takes an error of the YAML library apart: "yaml: line 3: found character that cannot start any token" is
// a problem of line 3. Its parser, unlike its scanner, counts lines from 0.
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

// is reports whether the document says that it is of this format. For anything else a list of unknown fields would be
// noise.
func (f Format) is(ps *Problems, root *yaml.Node) bool {
	if root.Kind != yaml.MappingNode {
		ps.AddAt(root.Line, "", "want a mapping with apiVersion: %s and kind: %s, got %s", f.APIVersion, f.Kind,
			describe(root))
		return false
	}
	ok := true
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		for _, header := range []struct{ name, want string }{{"apiVersion", f.APIVersion}, {"kind", f.Kind}} {
			if key.Value == header.name && (value.Kind != yaml.ScalarNode || value.Value != header.want) {
				ps.AddAt(value.Line, header.name, "%s: want %s", describe(value), header.want)
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
		return strconv.Quote(Shorten(node.Value))
	}
	return Shorten(node.Value)
}

// Shorten keeps a message readable when a certificate is pasted where a name belongs.
func Shorten(s string) string {
	const limitRunes = 80
	if runes := []rune(s); len(runes) > limitRunes {
		return string(runes[:limitRunes]) + "..."
	}
	return s
}

func isNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null"
}
