package render

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// YAML is built as a tree and printed by the library, so that no value, whatever it contains, can become anything but a
// value; the tree keeps the order in which people write manifests, and the reason of every argument as a comment.

// field is one entry of a mapping. A field without a value is left out.
type field struct {
	name  string
	value *yaml.Node
}

func object(fields ...field) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, f := range fields {
		if f.value != nil {
			node.Content = append(node.Content, text(f.name), f.value)
		}
	}
	return node
}

// list is a sequence of the nodes, nil when there is none.
func list(nodes ...*yaml.Node) *yaml.Node {
	if len(nodes) == 0 {
		return nil
	}
	return &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: nodes}
}

// listOf is the sequence of what becomes of each item; an item of which nothing becomes is left out.
func listOf[T any](items []T, node func(T) *yaml.Node) *yaml.Node {
	var nodes []*yaml.Node
	for _, item := range items {
		if n := node(item); n != nil {
			nodes = append(nodes, n)
		}
	}
	return list(nodes...)
}

func number(n int) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(n)}
}

func boolean(b bool) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(b)}
}

// plainText is what every YAML reader, of 1.1 or of 1.2, takes for a string without quotes, unless it is one of words.
var plainText = regexp.MustCompile(`^(--[A-Za-z]|/|[A-Za-z])[A-Za-z0-9_./=,:;*+-]*$`)

// words are read as a boolean or as nothing by one version of YAML or the other, in any case.
var words = map[string]bool{"true": true, "false": true, "yes": true, "no": true, "on": true, "off": true, "y": true,
	"n": true, "null": true}

// text is a string, in double quotes unless every reader takes it for one without.
func text(s string) *yaml.Node {
	node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	if !plainText.MatchString(s) || words[strings.ToLower(s)] || strings.HasSuffix(s, ":") {
		node.Style = yaml.DoubleQuotedStyle
	}
	return node
}

// optional is text, left out when it is empty.
func optional(s string) *yaml.Node {
	if s == "" {
		return nil
	}
	return text(s)
}

// commented puts a comment of one line above a node.
func commented(node *yaml.Node, comment string) {
	if line := oneLine(comment); line != "" {
		node.HeadComment = "# " + line
	}
}

// oneLine is the text with every run of white space and of what does not print as one blank: a comment must not end
// where its text wants it to.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
}

// document prints a tree below a comment, one line of it for each line of the text.
func document(comment string, root *yaml.Node) ([]byte, error) {
	var out bytes.Buffer
	for line := range strings.Lines(comment) {
		out.WriteString("# " + oneLine(line) + "\n")
	}
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	if err := encoder.Encode(root); err != nil {
		return nil, err
	}
	if err := encoder.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
