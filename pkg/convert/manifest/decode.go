package manifest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"

	"github.com/kubefusion/fusionctl/internal/jsontext"
	"github.com/kubefusion/fusionctl/internal/yamltext"
)

// ErrNoObject says that a text is well formed and no object: a list, a word.
var ErrNoObject = errors.New("want an object")

// Duplicate is a field that an object gives twice; the last one counts, as for kubectl.
type Duplicate struct {
	Line  int // of the last one
	Field string
}

// Object is an object and the text that it stood in.
type Object struct {
	Part
	Duplicates []Duplicate
	Value      map[string]any // whole numbers are int64, others float64
	node       *yaml.Node     // the mapping, where decodeNodes read it
}

// Decode reads the object of a part; nil for a part that holds nothing but null.
// Errors: *SyntaxError with the line of what cannot be read.
func (p Part) Decode() (*Object, error) {
	switch p.Format {
	case JSON:
		return p.decodeJSON()
	case YAML:
		return p.decodeYAML()
	default:
		return nil, &SyntaxError{p.Document, p.Line, errors.New("protobuf is decoded by the kinds it names")}
	}
}

// decodeJSON reads what most JSON says without the library, which is asked for the rest.
func (p Part) decodeJSON() (*Object, error) {
	if value, ok := jsontext.Object(p.Text, mapsLimit); ok {
		return p.object(value)
	}
	if mapsIn(p.Text) > mapsLimit {
		return nil, &SyntaxError{p.Document, p.Line, errManyMaps}
	}
	var value map[string]any
	strict, err := kjson.UnmarshalStrict(p.Text, &value, kjson.DisallowDuplicateFields)
	if err != nil {
		line := p.Line
		if found, offset := kjson.SyntaxErrorOffset(err); found {
			line += bytes.Count(p.Text[:min(int(offset), len(p.Text))], []byte("\n"))
		}
		return nil, &SyntaxError{p.Document, line, err}
	}
	object, err := p.object(value)
	if len(strict) > 0 && object != nil {
		object.Duplicates = duplicatesOf(p.Text, p.Line)
	}
	return object, err
}

// mapsIn is how many objects JSON has within it.
func mapsIn(text []byte) (count int) {
	inside, escaping := false, false
	for _, c := range text {
		switch {
		case escaping:
			escaping = false
		case inside:
			escaping, inside = c == '\\', c != '"'
		case c == '"':
			inside = true
		case c == '{':
			count++
		}
	}
	return count
}

// duplicatesOf finds the fields that a well-formed object gives twice.
func duplicatesOf(text []byte, line int) (duplicates []Duplicate) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	type level struct {
		names map[string]bool // nil in a list
		value bool            // a value comes next, not a name
	}
	var levels []level
	for {
		token, err := decoder.Token()
		if err != nil {
			return duplicates
		}
		switch token {
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:len(levels)-1]
			continue
		}
		if len(levels) > 0 {
			here := &levels[len(levels)-1]
			if name, ok := token.(string); ok && here.names != nil && !here.value {
				if here.names[name] {
					at := line + bytes.Count(text[:decoder.InputOffset()], []byte("\n"))
					duplicates = append(duplicates, Duplicate{at, name})
				}
				here.names[name], here.value = true, true
				continue
			}
			here.value = false
		}
		switch token {
		case json.Delim('{'):
			levels = append(levels, level{names: map[string]bool{}})
		case json.Delim('['):
			levels = append(levels, level{})
		}
	}
}

func (p Part) object(value map[string]any) (*Object, error) {
	if value == nil {
		return nil, nil
	}
	return &Object{Part: p, Value: value}, nil
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// decodeYAML reads what the lines of most manifests say without the library, which is asked for the rest.
func (p Part) decodeYAML() (*Object, error) {
	value, ok := plainYAML(p.Text)
	if list, isList := value.([]any); ok && p.Item > 0 {
		if ok = isList && len(list) == 1; ok {
			value = list[0]
		}
	}
	if object, isObject := value.(map[string]any); ok && isObject {
		return p.object(object)
	}
	return p.decodeNodes()
}

// decodeNodes reads the nodes of a YAML document, which know their lines, and what they say.
func (p Part) decodeNodes() (*Object, error) {
	var document yaml.Node
	err := yaml.Unmarshal(p.Text, &document)
	if err == nil {
		err = yamltext.BoundAliasesOf(&document)
	}
	if err == nil && otherBreaks(p.Text) {
		err = alone(p.Text)
	}
	if err != nil {
		line, text := p.Line, err.Error()
		if found := yamlLine.FindStringSubmatch(text); found != nil {
			if n, err := strconv.Atoi(found[1]); err == nil {
				line += n - 1
			}
			text = text[len(found[0]):]
		}
		return nil, &SyntaxError{p.Document, line, errors.New(text)}
	}
	if len(document.Content) == 0 {
		return nil, nil
	}
	node := document.Content[0]
	if p.Item > 0 {
		if node.Kind != yaml.SequenceNode || len(node.Content) != 1 {
			return nil, &SyntaxError{p.Document, p.Line, errors.New("want an item of a list")}
		}
		node = node.Content[0]
	}
	d := yamlDecoder{part: p}
	value, err := d.value(node, 0)
	if err != nil {
		return nil, err
	}
	switch value := value.(type) {
	case nil:
		if p.Item > 0 {
			return nil, d.fail(node, "%w", errItem)
		}
		return nil, nil
	case map[string]any:
		object, err := p.object(value)
		object.Duplicates, object.node = d.duplicates, node
		return object, err
	default:
		return nil, d.fail(node, "%w, found %s", ErrNoObject, describe(node))
	}
}

// alone looks for a second document in the text of a part, whose lines are not those that Parts counts.
func alone(text []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var first, second yaml.Node
	if err := decoder.Decode(&first); err != nil {
		return err
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return errors.New("another document follows on a line that does not end with a line feed")
	}
	return nil
}

func describe(node *yaml.Node) string {
	switch node.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "an object"
	default:
		text := node.Value
		if len(text) > 40 {
			text = text[:40] + "..."
		}
		return strconv.Quote(text)
	}
}

// yamlDecoder makes of nodes what kubectl makes of them: YAML 1.1, in which yes is true, and names of fields as
// strings.
type yamlDecoder struct {
	part  Part
	nodes int // visited, aliases each time: a few lines can stand for billions
	maps  int

	duplicates []Duplicate
}

const (
	depthLimit = 200
	nodesLimit = 4 << 20
	// mapsLimit is above what an object has that servers take, of 3 MiB: an Ingress has one in 25 bytes. An empty one
	// is two bytes, and a structure of ten kilobytes while an object goes from version to version.
	mapsLimit = 150_000
)

var errManyMaps = fmt.Errorf("more than %d objects within one", mapsLimit)

func (d *yamlDecoder) fail(node *yaml.Node, format string, args ...any) error {
	return &SyntaxError{d.part.Document, d.part.Line + node.Line - 1, fmt.Errorf(format, args...)}
}

func (d *yamlDecoder) value(node *yaml.Node, depth int) (any, error) {
	if d.nodes++; d.nodes > nodesLimit || depth > depthLimit {
		return nil, d.fail(node, "more than %d values or %d levels", nodesLimit, depthLimit)
	}
	switch node.Kind {
	case yaml.AliasNode:
		return d.value(node.Alias, depth+1)
	case yaml.SequenceNode:
		list := make([]any, len(node.Content))
		for i, child := range node.Content {
			var err error
			if list[i], err = d.value(child, depth+1); err != nil {
				return nil, err
			}
		}
		return list, nil
	case yaml.MappingNode:
		return d.mapping(node, depth)
	default:
		return d.scalar(node)
	}
}

func (d *yamlDecoder) mapping(node *yaml.Node, depth int) (any, error) {
	if d.maps++; d.maps > mapsLimit {
		return nil, d.fail(node, "%w", errManyMaps)
	}
	object := make(map[string]any, len(node.Content)/2)
	var merged map[string]bool // what came of merges, which is given once more without being given twice
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if key.Kind == yaml.ScalarNode && key.Tag == "!!merge" {
			if merged == nil {
				merged = map[string]bool{}
			}
			if err := d.merge(object, merged, value, depth); err != nil {
				return nil, err
			}
			continue
		}
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			return nil, d.fail(key, "want the name of a field, found %s", describe(key))
		}
		name, ok := fieldName(key)
		if !ok {
			return nil, d.fail(key, "%s is not the name of a field: write it in quotes", key.Value)
		}
		if _, twice := object[name]; twice && !merged[name] {
			d.duplicates = append(d.duplicates, Duplicate{d.part.Line + key.Line - 1, name})
		}
		var err error
		if object[name], err = d.value(value, depth+1); err != nil {
			return nil, err
		}
	}
	return object, nil
}

// merge writes the fields of an object, or of several, over those that are there: Kubernetes reads << in its order
// among the fields. Of several the first one counts.
func (d *yamlDecoder) merge(object map[string]any, merged map[string]bool, source *yaml.Node, depth int) error {
	sources := []*yaml.Node{source}
	if source.Kind == yaml.SequenceNode {
		sources = source.Content
	}
	for _, source := range slices.Backward(sources) {
		value, err := d.value(source, depth+1)
		if err != nil {
			return err
		}
		fields, ok := value.(map[string]any)
		if !ok {
			return d.fail(source, "<<: want an object")
		}
		for name, v := range fields {
			object[name], merged[name] = v, true
		}
	}
	return nil
}

// bytesOf are the bytes of a binary scalar, as text: what is no UTF-8 is replaced, as it is in JSON.
func bytesOf(node *yaml.Node) (string, error) {
	data, err := base64.StdEncoding.DecodeString(node.Value)
	return string([]rune(string(data))), err
}

// fieldName is the name of a field as Kubernetes reads it: a plain y is true, and 010 is 8, as a name too. It is false
// for null and for what is no number of 64 bits, which Kubernetes refuses.
func fieldName(key *yaml.Node) (string, bool) {
	switch key.ShortTag() {
	case "!!null":
		return "", false
	case "!!bool":
		var b bool
		err := key.Decode(&b)
		return strconv.FormatBool(b), err == nil
	case "!!int":
		var i int64
		err := key.Decode(&i)
		return strconv.FormatInt(i, 10), err == nil
	case "!!float":
		var f float64
		err := key.Decode(&f)
		name := strconv.FormatFloat(f, 'g', -1, 32)
		if special, ok := notInJSON[name]; ok {
			name = special
		}
		return name, err == nil
	case "!!binary":
		name, err := bytesOf(key)
		return name, err == nil
	case "!!str":
		if b, ok := oldBools[key.Value]; ok && key.Style == 0 {
			return strconv.FormatBool(b), true
		}
	}
	return key.Value, true
}

// notInJSON are the names of what is no number there.
var notInJSON = map[string]string{"+Inf": ".inf", "-Inf": "-.inf", "NaN": ".nan"}

func (d *yamlDecoder) scalar(node *yaml.Node) (any, error) {
	if node.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 &&
		node.Tag == "!!str" {
		return node.Value, nil
	}
	switch node.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!bool":
		var b bool
		err := node.Decode(&b)
		return b, err
	case "!!int":
		var i int64
		if err := node.Decode(&i); err != nil {
			var f float64
			if node.Decode(&f) != nil {
				return nil, d.fail(node, "%q is not a number", node.Value)
			}
			return f, nil
		}
		return i, nil
	case "!!float":
		var f float64
		if err := node.Decode(&f); err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			return nil, d.fail(node, "%q is not a number that JSON can say", node.Value)
		}
		return f, nil
	case "!!binary":
		text, err := bytesOf(node)
		if err != nil {
			return nil, d.fail(node, "!!binary: %w", err)
		}
		return text, nil
	case "!!str":
		if b, ok := oldBools[node.Value]; ok && node.Style == 0 {
			return b, nil
		}
	}
	return node.Value, nil
}

// oldBools are the words that YAML 1.1, which Kubernetes reads, takes for true and false besides those two.
var oldBools = map[string]bool{
	"y": true, "Y": true, "yes": true, "Yes": true, "YES": true, "on": true, "On": true, "ON": true,
	"n": false, "N": false, "no": false, "No": false, "NO": false, "off": false, "Off": false, "OFF": false,
}
