package manifest

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kubefusion/fusionctl/internal/jsontext"
	"github.com/kubefusion/fusionctl/internal/yamltext"
)

// Rewrite returns the text of the object with another value: a YAML text keeps its comments, its order and its layout
// wherever the value is the same, a JSON text its indentation. The object's own value must be what it was when it was
// decoded, for YAML.
func (o *Object) Rewrite(value map[string]any) ([]byte, error) {
	if o.Format == JSON {
		return o.rewriteJSON(value)
	}
	if equal(o.Value, value) {
		return o.Text, nil
	}
	if edited, err := o.editYAML(value); err == nil {
		return edited, nil
	}
	text, err := o.renderYAML(value)
	if separates, _ := separator(o.Text); separates { // from the document before
		text = append([]byte("---\n"), text...)
	}
	if hasCarriageReturns(o.Text) {
		text = withCarriageReturns(text)
	}
	return text, err
}

// hasCarriageReturns reports whether the lines of a text end with them.
func hasCarriageReturns(text []byte) bool {
	first := bytes.IndexByte(text, '\n')
	return first > 0 && text[first-1] == '\r'
}

func withCarriageReturns(text []byte) []byte {
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	return bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
}

func (o *Object) rewriteJSON(value map[string]any) ([]byte, error) {
	prefix, indent := jsonLayout(o.Text)
	if indent == "" {
		prefix = ""
	}
	return jsontext.Marshal(value, prefix, indent, len(o.Text))
}

// jsonLayout finds what the lines of an object start with, and by how much its fields are indented; "" for an object on
// one line.
func jsonLayout(text []byte) (prefix, indent string) {
	text = bytes.TrimRight(text, "\n")
	_, second, several := bytes.Cut(text, []byte("\n"))
	if !several {
		return "", ""
	}
	prefix = spaceBefore(text[bytes.LastIndexByte(text, '\n')+1:])
	return prefix, strings.TrimPrefix(spaceBefore(second), prefix)
}

// spaceBefore is the space that a line starts with; other lines may follow.
func spaceBefore(line []byte) string {
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// renderYAML writes the whole object anew, as an item of its list where it stood in one.
func (o *Object) renderYAML(value map[string]any) ([]byte, error) {
	text, err := yamltext.Marshal(value)
	if err != nil || o.Item == 0 {
		return text, err
	}
	dash := strings.Index(string(o.Text), "-")
	if dash < 0 {
		return nil, errors.New("want an item of a list")
	}
	indent := strings.Repeat(" ", dash)
	lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
	for i, line := range lines {
		if i == 0 {
			lines[i] = indent + "- " + line
		} else {
			lines[i] = indent + "  " + line
		}
	}
	return []byte(strings.Join(lines, "") + "\n"), nil
}

// errNotInPlace says that a change cannot be made in the lines of a part, only by writing the part anew.
var errNotInPlace = errors.New("the change cannot be made in place")

// editYAML changes only the lines of what differs. What it yields is read again, and refused when it does not say the
// value.
func (o *Object) editYAML(value map[string]any) ([]byte, error) {
	if otherBreaks(o.Text) || len(o.Duplicates) > 0 {
		return nil, errNotInPlace
	}
	if node, ok := o.plainNode(); ok {
		if text, err := o.edit(node, value); err == nil {
			return text, nil
		}
	}
	node := o.node
	if node == nil {
		read, err := o.decodeNodes()
		if err != nil || read == nil {
			return nil, cmp.Or(err, errNotInPlace)
		}
		node = read.node
	}
	return o.edit(node, value)
}

// plainNode is the mapping, read without the library where decodeNodes has not read it.
func (o *Object) plainNode() (*yaml.Node, bool) {
	if o.node != nil {
		return nil, false
	}
	node, ok := plainNodes(o.Text)
	if ok && o.Item > 0 {
		if len(node.Content) != 1 {
			return nil, false
		}
		node = node.Content[0]
	}
	return node, ok
}

func (o *Object) edit(node *yaml.Node, value map[string]any) ([]byte, error) {
	e := editor{lines: strings.SplitAfter(string(o.Text), "\n")}
	if err := e.mapping(node, o.Value, value); err != nil {
		return nil, err
	}
	p := o.Part
	p.Text = e.apply()
	if hasCarriageReturns(o.Text) {
		p.Text = withCarriageReturns(p.Text)
	}
	again, err := p.decodeYAML()
	if err != nil {
		return nil, err
	}
	if again == nil || !equal(again.Value, value) {
		return nil, errNotInPlace
	}
	return p.Text, nil
}

// otherBreaks reports whether the parser of YAML finds lines in the text that do not end with "\n", so that its numbers
// of lines are not those of the text: a lone carriage return, NEL, the separators of lines and paragraphs, or a text in
// UTF-16.
func otherBreaks(text []byte) bool {
	if bytes.HasPrefix(text, []byte("\xfe\xff")) || bytes.HasPrefix(text, []byte("\xff\xfe")) ||
		bytes.ContainsAny(text, "\u0085\u2028\u2029") {
		return true
	}
	return bytes.Count(text, []byte("\r")) != bytes.Count(text, []byte("\r\n"))
}

// equal compares values; a whole number may be of either type that decoding makes.
func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		other, ok := b.(map[string]any)
		if !ok || len(a) != len(other) {
			return false
		}
		for name, value := range a {
			if v, ok := other[name]; !ok || !equal(value, v) {
				return false
			}
		}
		return true
	case []any:
		other, ok := b.([]any)
		return ok && slices.EqualFunc(a, other, equal)
	case int64:
		if f, ok := b.(float64); ok {
			return float64(a) == f
		}
	case float64:
		if i, ok := b.(int64); ok {
			return float64(i) == a
		}
	}
	return a == b
}

// editor gathers changes of lines.
type editor struct {
	lines []string
	edits []edit
}

// edit replaces lines.
type edit struct {
	from, to int // 0-based, to is not included
	text     string
}

func (e *editor) replace(from, to int, text string) { e.edits = append(e.edits, edit{from, to, text}) }

// apply makes the changes. Of two at one line the later one stands further down.
func (e *editor) apply() []byte {
	slices.SortStableFunc(e.edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	var text []byte
	next := 0 // of the lines
	through := func(line int) {
		for ; next < line; next++ {
			text = append(text, e.lines[next]...)
		}
	}
	for _, change := range e.edits {
		through(change.from)
		if len(text) > 0 && change.text != "" && text[len(text)-1] != '\n' {
			text = append(text, '\n')
		}
		text = append(text, change.text...)
		next = max(next, change.to)
	}
	through(len(e.lines))
	return text
}

// mapping changes an object that stands on lines of its own.
func (e *editor) mapping(node *yaml.Node, was, is map[string]any) error {
	if node.Kind != yaml.MappingNode || node.Style&yaml.FlowStyle != 0 || node.Anchor != "" || len(node.Content) == 0 {
		return errNotInPlace
	}
	column := node.Content[0].Column - 1
	end := 0
	here := map[string]bool{}
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			return errNotInPlace
		}
		name, ok := fieldName(key)
		if !ok {
			return errNotInPlace
		}
		here[name] = true
		from := key.Line - 1
		if key.Column-1 != column || column > len(e.lines[from]) { // behind the question mark of an explicit key
			return errNotInPlace
		}
		end = e.end(from, column, value)
		now, stays := is[name]
		switch {
		case stays && equal(was[name], now):
		case !stays:
			if !e.startsLine(from, column) {
				return errNotInPlace
			}
			e.replace(e.withComments(from, column), end, "")
		default:
			if err := e.entry(key, value, was[name], now, from, end, column); err != nil {
				return err
			}
		}
	}
	added := map[string]any{}
	for name, value := range is {
		if !here[name] {
			added[name] = value
		}
	}
	if len(added) == 0 {
		return nil
	}
	text, err := render(added, column)
	if err != nil {
		return err
	}
	e.replace(end, end, text)
	return nil
}

// entry changes the value of a field: inside of it, as a word on its line, or by writing the field anew.
func (e *editor) entry(key, value *yaml.Node, was, is any, from, end, column int) error {
	mark := len(e.edits)
	switch now := is.(type) {
	case map[string]any:
		if before, ok := was.(map[string]any); ok && len(now) > 0 && e.mapping(value, before, now) == nil {
			return nil
		}
	case []any:
		if before, ok := was.([]any); ok && e.sequence(value, before, now) == nil {
			return nil
		}
	default:
		if e.word(value, is, from) {
			return nil
		}
	}
	e.edits = e.edits[:mark]
	if value.Anchor != "" {
		return errNotInPlace
	}
	name, _ := fieldName(key)
	text, err := render(map[string]any{name: is}, column)
	if err != nil {
		return err
	}
	if !e.startsLine(from, column) { // behind the dash of an item
		text = e.lines[from][:column] + strings.TrimLeft(text, " ")
	}
	e.replace(from, end, text)
	return nil
}

func (e *editor) sequence(node *yaml.Node, was, is []any) error {
	if node.Kind != yaml.SequenceNode || node.Style&yaml.FlowStyle != 0 || len(was) != len(is) ||
		len(node.Content) != len(is) {
		return errNotInPlace
	}
	for i, item := range node.Content {
		if equal(was[i], is[i]) {
			continue
		}
		before, ok := was[i].(map[string]any)
		now, alsoOK := is[i].(map[string]any)
		if !ok || !alsoOK {
			return errNotInPlace
		}
		if err := e.mapping(item, before, now); err != nil {
			return err
		}
	}
	return nil
}

// word replaces a value on the line of its key, and leaves what follows: a comment.
func (e *editor) word(value *yaml.Node, is any, line int) bool {
	if value.Kind != yaml.ScalarNode || value.Line-1 != line || value.Anchor != "" {
		return false
	}
	text := value.Value
	switch value.Style {
	case 0:
	case yaml.DoubleQuotedStyle:
		text = `"` + text + `"`
	case yaml.SingleQuotedStyle:
		text = "'" + text + "'"
	default:
		return false
	}
	column := value.Column - 1
	if text == "" || column > len(e.lines[line]) || !strings.HasPrefix(e.lines[line][column:], text) {
		return false
	}
	word, err := yamltext.Marshal(is)
	if err != nil || bytes.Count(word, []byte("\n")) != 1 {
		return false
	}
	e.replace(line, line+1, e.lines[line][:column]+strings.TrimSuffix(string(word), "\n")+
		e.lines[line][column+len(text):])
	return true
}

// end finds the line behind an entry: behind all that is indented more than its key, and the dashes of a list right
// below the key.
func (e *editor) end(from, column int, value *yaml.Node) int {
	end := from + 1
	for i := end; i < len(e.lines); i++ {
		line := strings.TrimRight(e.lines[i], "\r\n")
		word := strings.TrimLeft(line, " ")
		switch indent := len(line) - len(word); {
		case word == "":
			continue
		case indent > column, indent == column && value.Kind == yaml.SequenceNode && startsItem(word):
			end = i + 1
		default:
			return end
		}
	}
	return end
}

// startsLine reports whether the key at the column is the first on its line.
func (e *editor) startsLine(line, column int) bool {
	return column <= len(e.lines[line]) && strings.TrimLeft(e.lines[line][:column], " ") == ""
}

// withComments moves a start up over the comments that stand right above.
func (e *editor) withComments(from, column int) int {
	for from > 0 {
		line := e.lines[from-1]
		if word := strings.TrimLeft(line, " "); len(line)-len(word) != column || !strings.HasPrefix(word, "#") {
			return from
		}
		from--
	}
	return from
}

// render writes fields as YAML, indented.
func render(fields map[string]any, column int) (string, error) {
	text, err := yamltext.Marshal(fields)
	if err != nil {
		return "", err
	}
	indent := strings.Repeat(" ", column)
	lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
	for i, line := range lines {
		if line != "\n" {
			lines[i] = indent + line
		}
	}
	return strings.Join(lines, "") + "\n", nil
}
