package manifest

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// plainYAML reads the YAML that most manifests are written in, at a fraction of what the library costs: block mappings
// and lists, scalars and flow collections on one line, literal blocks. It returns false for everything that it leaves
// to the library: anchors, tags, merges, scalars of several lines, duplicates, and each mistake. FuzzPlainYAML holds it
// against the library.
func plainYAML(text []byte) (value any, ok bool) {
	p := plainReader{text: text}
	return p.read()
}

// plainNodes reads the nodes of such a text, as far as an editor of its lines needs them: their kinds, their styles,
// where they start, what scalars on one line say, and what is in collections that are no flow.
func plainNodes(text []byte) (*yaml.Node, bool) {
	p := plainReader{text: text, nodes: true, line: 1}
	_, ok := p.read()
	return p.made, ok
}

func (p *plainReader) read() (value any, ok bool) {
	if len(p.text) > nodesLimit || !plainText(p.text) {
		return nil, false
	}
	p.nextLine()
	if p.done {
		return nil, false
	}
	value, ok = p.node(p.column, 0)
	return value, ok && p.done && !p.failed
}

// plainText reports whether a text has none of the characters that YAML refuses, breaks lines at or skips, but for the
// line feed, and nothing that stands for more than it says at the start of a line.
func plainText(text []byte) bool {
	for i := 0; i < len(text); {
		b := text[i]
		switch {
		case b == '\n':
			rest := text[i+1:]
			if len(rest) > 0 && (rest[0] == '%' || bytes.HasPrefix(rest, []byte("---")) ||
				bytes.HasPrefix(rest, []byte("..."))) {
				return false
			}
			i++
		case b < ' ' || b == 0x7f:
			return false
		case b < utf8.RuneSelf:
			i++
		default:
			r, size := utf8.DecodeRune(text[i:])
			if r == utf8.RuneError || r < 0xa0 || r == '\u2028' || r == '\u2029' || r >= 0xfe00 {
				return false
			}
			i += size
		}
	}
	return len(text) > 0 && text[0] != '%' && !bytes.HasPrefix(text, []byte("---")) &&
		!bytes.HasPrefix(text, []byte("..."))
}

// plainReader stands at the first character of the content of a line.
type plainReader struct {
	text   []byte
	start  int // of the line
	at     int
	end    int // of the line, without its line feed
	column int // of the content that the line starts with
	maps   int // so far
	done   bool
	failed bool // the library reads the text instead

	nodes   bool       // they are wanted
	made    *yaml.Node // of what was read last
	line    int        // of what a node was made of last
	counted int        // where its lines were counted
}

// makes makes the node of what starts somewhere, if it is wanted: nodes are made in the order of their starts.
func (p *plainReader) makes(start int, kind yaml.Kind, style yaml.Style, value string) *yaml.Node {
	if !p.nodes {
		return nil
	}
	p.line += bytes.Count(p.text[p.counted:start], []byte("\n"))
	p.counted = start
	column := start - bytes.LastIndexByte(p.text[:start], '\n')
	p.made = &yaml.Node{Kind: kind, Style: style, Value: value, Line: p.line, Column: column}
	return p.made
}

// holds adds the node that was made last to a collection, behind others.
func (p *plainReader) holds(collection *yaml.Node, others ...*yaml.Node) {
	if p.nodes {
		collection.Content = append(append(collection.Content, others...), p.made)
	}
}

// makesValue makes the node of a scalar without lines of its own that was read.
func (p *plainReader) makesValue(start int, value any) {
	switch b := p.text[start]; {
	case !p.nodes:
	case b == '"':
		p.makes(start, yaml.ScalarNode, yaml.DoubleQuotedStyle, value.(string))
	case b == '\'':
		p.makes(start, yaml.ScalarNode, yaml.SingleQuotedStyle, value.(string))
	default:
		p.makes(start, yaml.ScalarNode, 0, string(bytes.TrimRight(p.text[start:p.at], " ")))
	}
}

// plainDepth bounds what is nested; nameLimit is below the 1024 characters after which a name is none to YAML.
const (
	plainDepth = 60
	nameLimit  = 256
)

func (p *plainReader) fail() (any, bool) {
	p.failed, p.done = true, true
	return nil, false
}

// nextLine goes to the next line that is neither blank nor a comment, from the end of the one at hand.
func (p *plainReader) nextLine() {
	next := p.end
	if next > 0 || p.at > 0 {
		next++
	}
	for {
		if next >= len(p.text) {
			p.done, p.column = true, -1
			return
		}
		p.start, p.end = next, len(p.text)
		if n := bytes.IndexByte(p.text[next:], '\n'); n >= 0 {
			p.end = next + n
		}
		p.at = p.start
		for p.at < p.end && p.text[p.at] == ' ' {
			p.at++
		}
		if p.at < p.end && p.text[p.at] != '#' {
			p.column = p.at - p.start
			return
		}
		next = p.end + 1
	}
}

// node reads what starts at hand, at a column.
func (p *plainReader) node(column, depth int) (any, bool) {
	if p.dash() {
		return p.list(column, depth)
	}
	if name, ok := p.name(); ok {
		return p.mapping(column, depth, name)
	}
	return p.fail()
}

// dash reports whether an item of a list starts at hand.
func (p *plainReader) dash() bool {
	return p.text[p.at] == '-' && (p.at+1 == p.end || p.text[p.at+1] == ' ')
}

// object is a new object. What has too many is left to the library, which says so.
func (p *plainReader) object() (map[string]any, bool) {
	if p.maps++; p.maps > mapsLimit {
		p.fail()
		return nil, false
	}
	return make(map[string]any, 4), true
}

// mapping reads the fields at a column; the name of the first was read.
func (p *plainReader) mapping(column, depth int, name string) (any, bool) {
	if depth > plainDepth {
		return p.fail()
	}
	object, ok := p.object()
	if !ok {
		return nil, false
	}
	key := p.made
	var node *yaml.Node
	if p.nodes {
		node = &yaml.Node{Kind: yaml.MappingNode, Line: key.Line, Column: key.Column}
	}
	for {
		if _, twice := object[name]; twice {
			return p.fail()
		}
		key = p.made
		value, ok := p.value(column, depth, false)
		if !ok {
			return nil, false
		}
		object[name] = value
		p.holds(node, key)
		switch {
		case p.column < column:
			p.made = node
			return object, true
		case p.column > column || p.dash():
			return p.fail()
		}
		if name, ok = p.name(); !ok {
			return p.fail()
		}
	}
}

// list reads the items whose dashes are at a column.
func (p *plainReader) list(column, depth int) (any, bool) {
	if depth > plainDepth {
		return p.fail()
	}
	list := []any{}
	node := p.makes(p.at, yaml.SequenceNode, 0, "")
	for {
		p.at++
		value, ok := p.value(column, depth, true)
		if !ok {
			return nil, false
		}
		list = append(list, value)
		p.holds(node)
		switch {
		case p.column < column || p.column == column && !p.dash():
			p.made = node
			return list, true
		case p.column > column:
			return p.fail()
		}
	}
}

// value reads what follows a name or a dash, whose column is that of the mapping or the list, up to the start of a
// line's content.
func (p *plainReader) value(column, depth int, item bool) (any, bool) {
	p.spaces()
	if p.at == p.end || p.text[p.at] == '#' {
		empty := p.at
		p.nextLine()
		switch {
		case p.column > column, !item && p.column == column && p.dash():
			return p.node(p.column, depth+1)
		default:
			p.makes(empty, yaml.ScalarNode, 0, "")
			return nil, !p.failed
		}
	}
	if item {
		here := p.at - p.start
		if p.dash() {
			return p.node(here, depth+1)
		}
		if name, ok := p.name(); ok {
			return p.mapping(here, depth+1, name)
		}
	}
	var value any
	ok := true
	start := p.at
	switch b := p.text[p.at]; b {
	case '"', '\'':
		value, ok = p.quoted()
	case '{', '[':
		return p.inOneLine(b)
	case '|':
		p.makes(start, yaml.ScalarNode, yaml.LiteralStyle, "")
		return p.literal(column)
	default:
		value, ok = p.plain()
	}
	if ok {
		p.makesValue(start, value)
	}
	if !ok || !p.lineEnds() {
		return p.fail()
	}
	p.nextLine()
	return value, true
}

// inOneLine reads a collection in brackets, and what follows on its line.
func (p *plainReader) inOneLine(bracket byte) (any, bool) {
	kind := yaml.MappingNode
	if bracket == '[' {
		kind = yaml.SequenceNode
	}
	node := p.makes(p.at, kind, yaml.FlowStyle, "")
	value, ok := p.flow(0)
	if !ok || !p.lineEnds() {
		return p.fail()
	}
	p.made = node
	p.nextLine()
	return value, true
}

func (p *plainReader) spaces() {
	for p.at < p.end && p.text[p.at] == ' ' {
		p.at++
	}
}

// lineEnds reports whether only a comment follows on the line.
func (p *plainReader) lineEnds() bool {
	before := p.at
	p.spaces()
	return p.at == p.end || p.text[p.at] == '#' && p.at > before
}

// name reads the name of a field and its colon; nothing where none is at hand.
func (p *plainReader) name() (string, bool) {
	start := p.at
	name, ok := p.word()
	if !ok || p.at == p.end || p.text[p.at] != ':' || p.at-start > nameLimit ||
		p.at+1 < p.end && p.text[p.at+1] != ' ' {
		p.at = start
		return "", false
	}
	p.makesValue(start, name)
	p.at++
	return name, true
}

// word reads a name: quoted, or of letters that mean nothing to YAML.
func (p *plainReader) word() (string, bool) {
	if p.at == p.end {
		return "", false
	}
	start := p.at
	switch b := p.text[p.at]; {
	case b == '"', b == '\'':
		value, ok := p.quoted()
		name, _ := value.(string)
		return name, ok
	case b == '-' || !ordinary[b]:
		return "", false
	}
	for p.at < p.end && ordinary[p.text[p.at]] {
		p.at++
	}
	name := string(p.text[start:p.at])
	if b := name[0]; len(name) > len("false") && b != '.' && (b < '0' || b > '9') {
		return name, true
	}
	switch value, ok := resolved(name); value := value.(type) {
	case string:
		return name, ok
	case bool:
		return strconv.FormatBool(value), ok
	}
	return "", false // a number as a name is left to the library
}

// ordinary are letters that mean nothing to YAML, wherever they stand; a dash does in front of a space.
var ordinary = func() (table [256]bool) {
	for _, b := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-") {
		table[b] = true
	}
	return table
}()

// quoted reads a scalar in quotes that ends on its line.
func (p *plainReader) quoted() (any, bool) {
	quote := p.text[p.at]
	start := p.at + 1
	var escaped []byte
	for i := start; i < p.end; i++ {
		switch b := p.text[i]; {
		case b == quote && quote == '\'' && i+1 < p.end && p.text[i+1] == quote:
			escaped = append(append(escaped, p.text[start:i]...), quote)
			i++
			start = i + 1
		case b == quote:
			p.at = i + 1
			if escaped == nil {
				return string(p.text[start:i]), true
			}
			return string(append(escaped, p.text[start:i]...)), true
		case b == '\\' && quote == '"':
			i++
			if i == p.end {
				return nil, false
			}
			escape := strings.IndexByte(`nt"\`, p.text[i])
			if escape < 0 {
				return nil, false
			}
			escaped = append(append(escaped, p.text[start:i-1]...), "\n\t\"\\"[escape])
			start = i + 1
		}
	}
	return nil, false
}

// literal reads a block scalar that keeps its line feeds, below a mapping or a list at a column.
func (p *plainReader) literal(column int) (any, bool) {
	p.at++
	strip := p.at < p.end && p.text[p.at] == '-'
	if strip {
		p.at++
	}
	p.spaces()
	if p.at != p.end || p.end == len(p.text) {
		return p.fail()
	}
	var content []byte
	indent, next := -1, p.end+1
	for next < len(p.text) {
		length := bytes.IndexByte(p.text[next:], '\n')
		if length < 0 {
			return p.fail()
		}
		line := p.text[next : next+length]
		blank := len(line) - len(bytes.TrimLeft(line, " "))
		switch {
		case blank == length && blank > max(indent, 0), blank < length && indent < 0 && blank <= column:
			return p.fail()
		case blank < length && indent < 0:
			indent = blank
		}
		if blank < length {
			if blank < indent {
				break
			}
			content = append(content, line[indent:]...)
		}
		content = append(content, '\n')
		next += length + 1
	}
	if indent < 0 {
		return p.fail()
	}
	content = bytes.TrimRight(content, "\n")
	if !strip {
		content = append(content, '\n')
	}
	p.end = next - 1
	p.nextLine()
	return string(content), true
}

// plain reads a scalar without quotes that ends on its line.
func (p *plainReader) plain() (any, bool) {
	if b := p.text[p.at]; strings.IndexByte("?:,[]{}#&*!|>'\"%@`", b) >= 0 || p.dash() {
		return nil, false
	}
	line := p.text[p.at:p.end]
	if i := bytes.Index(line, []byte(" #")); i >= 0 {
		line = line[:i]
	}
	p.at += len(line)
	line = bytes.TrimRight(line, " ")
	if line[len(line)-1] == ':' || bytes.Contains(line, []byte(": ")) {
		return nil, false
	}
	return resolved(string(line))
}

// flow reads a collection in brackets that ends on its line.
func (p *plainReader) flow(depth int) (any, bool) {
	if depth > plainDepth/2 {
		return nil, false
	}
	if p.text[p.at] == '[' {
		p.at++
		list := []any{}
		for {
			p.spaces()
			if len(list) == 0 && p.ends(']') {
				return list, true
			}
			value, ok := p.inFlow(depth)
			if !ok {
				return nil, false
			}
			list = append(list, value)
			if p.ends(']') {
				return list, true
			}
			if !p.ends(',') {
				return nil, false
			}
		}
	}
	p.at++
	object, ok := p.object()
	if !ok {
		return nil, false
	}
	for {
		p.spaces()
		if len(object) == 0 && p.ends('}') {
			return object, true
		}
		name, ok := p.name()
		if _, twice := object[name]; !ok || twice {
			return nil, false
		}
		p.spaces()
		if object[name], ok = p.inFlow(depth); !ok {
			return nil, false
		}
		if p.ends('}') {
			return object, true
		}
		if !p.ends(',') {
			return nil, false
		}
	}
}

// ends reads a character, behind spaces.
func (p *plainReader) ends(b byte) bool {
	p.spaces()
	if p.at == p.end || p.text[p.at] != b {
		return false
	}
	p.at++
	return true
}

// inFlow reads a value in brackets.
func (p *plainReader) inFlow(depth int) (any, bool) {
	if p.at == p.end {
		return nil, false
	}
	switch p.text[p.at] {
	case '"', '\'':
		return p.quoted()
	case '{', '[':
		return p.flow(depth + 1)
	}
	start := p.at
	for p.at < p.end && (ordinary[p.text[p.at]] ||
		p.text[p.at] == ':' && p.at > start && p.at+1 < p.end && ordinary[p.text[p.at+1]]) {
		p.at++
	}
	if p.at == start || p.at == start+1 && p.text[start] == '-' {
		return nil, false
	}
	return resolved(string(p.text[start:p.at]))
}

// resolved is what a scalar without quotes says.
func resolved(text string) (any, bool) {
	switch b := text[0]; {
	case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z':
		if len(text) > len("false") {
			return text, true
		}
		if value, ok := words[text]; ok {
			return value, true
		}
		return text, true
	case b == '/', b == '_', b == '$', b == '(':
		return text, true
	case b >= '0' && b <= '9' && strings.ContainsAny(text, "ghijklmnpqrsuvwyzGHIJKLMNPQRSUVWYZ/"):
		return text, true // nothing in a number or a time but Z, which is text, too
	case b >= '1' && b <= '9' && len(text) < 18 && strings.Trim(text, "0123456789") == "":
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil
	}
	node := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
	node.Tag = node.ShortTag()
	value, err := (&yamlDecoder{}).scalar(node)
	return value, err == nil
}

// words are scalars that are no strings.
var words = func() map[string]any {
	words := map[string]any{"null": nil, "Null": nil, "NULL": nil}
	for _, word := range []string{"true", "True", "TRUE"} {
		words[word] = true
	}
	for _, word := range []string{"false", "False", "FALSE"} {
		words[word] = false
	}
	for word, value := range oldBools {
		words[word] = value
	}
	return words
}()
