package spec

import (
	"encoding"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/internal/spelling"
	"go.yaml.in/yaml/v3"
)

// decoder fills a File from nodes. It exists because no decoder of ours to hand reports every problem with its path and line.
type decoder struct {
	*problems
	fieldsLeft int          // negative: the limit has been reported
	aliases    []*yaml.Node // being expanded, outermost first
}

// value decodes the node into the target. anyScalar lets a string take the text of a number or boolean: an argument's value
// is its text, and 1.10 must not become 1.1.
func (d *decoder) value(node *yaml.Node, target reflect.Value, path string, anyScalar bool) {
	if path != "" {
		d.lines.at[path] = node.Line
	}
	node, leave := d.enter(node, path)
	if node == nil {
		return
	}
	defer leave()
	if isNull(node) {
		d.null(node, target, path)
		return
	}
	if text, ok := target.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if node.Kind != yaml.ScalarNode {
			d.mismatch(node, path, "a text")
		} else if err := text.UnmarshalText([]byte(node.Value)); err != nil {
			d.wrong(node, path, "%v", err)
		}
		return
	}
	switch target.Kind() {
	case reflect.Pointer:
		target.Set(reflect.New(target.Type().Elem()))
		d.value(node, target.Elem(), path, anyScalar)
	case reflect.Struct:
		d.mapping(node, target, path)
	case reflect.Slice:
		d.sequence(node, target, path)
	case reflect.String:
		d.text(node, target, path, anyScalar)
	case reflect.Int:
		d.number(node, target, path)
	case reflect.Bool:
		d.boolean(node, target, path)
	default:
		panic("spec: internal error: no decoding of " + target.Type().String())
	}
}

// enter follows an alias to what it stands for and counts the node. It returns nil after reporting that there is no end to it.
func (d *decoder) enter(node *yaml.Node, path string) (*yaml.Node, func()) {
	if !d.spend(node, path, 1) {
		return nil, nil
	}
	if node.Kind != yaml.AliasNode {
		return node, func() {}
	}
	if slices.Contains(d.aliases, node.Alias) {
		d.wrong(node, path, "the anchor %q contains itself", shorten(node.Value))
		return nil, nil
	}
	d.aliases = append(d.aliases, node.Alias)
	return node.Alias, func() { d.aliases = d.aliases[:len(d.aliases)-1] }
}

// spend counts fields against the limit, and reports once that it is reached.
func (d *decoder) spend(node *yaml.Node, path string, fields int) bool {
	if d.fieldsLeft < 0 {
		d.lines.damage(path)
		return false
	}
	if d.fieldsLeft -= fields; d.fieldsLeft < 0 {
		d.wrong(node, path, "more than %d fields, each use of an anchor counted; write out less", limitFields)
		return false
	}
	return true
}

// wrong reports a problem with the text of a field, which is thereby not to be judged further.
func (d *decoder) wrong(node *yaml.Node, path, format string, args ...any) {
	d.lines.damage(path)
	d.addAt(node.Line, path, format, args...)
}

// mismatch reports a value of the wrong type.
func (d *decoder) mismatch(node *yaml.Node, path, want string) {
	d.wrong(node, path, "%s: want %s", describe(node), want)
}

// null decides what a key without a value means: a field that was not written, except where presence itself says something.
func (d *decoder) null(node *yaml.Node, target reflect.Value, path string) {
	if target.Kind() == reflect.Pointer || target.Kind() == reflect.Struct && !isText(target) {
		d.wrong(node, path, "has no value; write {} to have it with its defaults, or leave it out")
	}
}

func isText(target reflect.Value) bool {
	_, ok := target.Addr().Interface().(encoding.TextUnmarshaler)
	return ok
}

func (d *decoder) text(node *yaml.Node, target reflect.Value, path string, anyScalar bool) {
	switch {
	case node.Kind != yaml.ScalarNode, node.ShortTag() != "!!str" && !anyScalar:
		d.mismatch(node, path, "a text")
	default:
		target.SetString(node.Value)
	}
}

func (d *decoder) number(node *yaml.Node, target reflect.Value, path string) {
	if node.Kind == yaml.ScalarNode && node.ShortTag() == "!!int" {
		if n, err := strconv.ParseInt(node.Value, 10, 32); err == nil {
			target.SetInt(n)
			return
		}
	}
	want := "a whole number"
	if _, err := strconv.Atoi(node.Value); err == nil && node.ShortTag() == "!!str" {
		want += " without quotes"
	}
	d.mismatch(node, path, want)
}

func (d *decoder) boolean(node *yaml.Node, target reflect.Value, path string) {
	if node.Kind == yaml.ScalarNode && node.ShortTag() == "!!bool" {
		target.SetBool(strings.EqualFold(node.Value, "true"))
		return
	}
	d.mismatch(node, path, "true or false")
}

// sequence decodes a list. An empty one is the same as none.
func (d *decoder) sequence(node *yaml.Node, target reflect.Value, path string) {
	if node.Kind != yaml.SequenceNode {
		d.mismatch(node, path, "a list")
		return
	}
	if len(node.Content) == 0 {
		return
	}
	target.Set(reflect.MakeSlice(target.Type(), len(node.Content), len(node.Content)))
	for i, item := range node.Content {
		itemPath := path + "[" + strconv.Itoa(i) + "]"
		if isNull(item) {
			d.lines.at[itemPath] = item.Line
			d.wrong(item, itemPath, "has no value")
			continue
		}
		d.value(item, target.Index(i), itemPath, false)
	}
}

// mapping decodes a struct from its fields.
func (d *decoder) mapping(node *yaml.Node, target reflect.Value, path string) {
	if node.Kind != yaml.MappingNode {
		d.mismatch(node, path, "a mapping")
		return
	}
	fields := fieldsOf(target.Type())
	written := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if isMerge(key) {
			continue
		}
		if key.Kind != yaml.ScalarNode {
			d.addAt(key.Line, path, "%s: want the name of a field", describe(key))
			continue
		}
		if line, ok := written[key.Value]; ok {
			d.wrong(key, join(path, shorten(key.Value)), "is written twice, first in line %d", line)
			continue
		}
		written[key.Value] = key.Line
		d.field(key, value, target, fields, path)
	}
	d.merged(node, target, fields, path, written)
}

// merged fills what the mapping itself does not write from the mappings that it merges with "<<", the earliest first.
func (d *decoder) merged(node *yaml.Node, target reflect.Value, fields []field, path string, written map[string]int) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if !isMerge(node.Content[i]) {
			continue
		}
		sources := []*yaml.Node{node.Content[i+1]}
		if sources[0].Kind == yaml.SequenceNode {
			sources = sources[0].Content
		}
		for _, source := range sources {
			d.merge(source, target, fields, path, written)
		}
	}
}

func (d *decoder) merge(source *yaml.Node, target reflect.Value, fields []field, path string, written map[string]int) {
	mapping, leave := d.enter(source, path)
	if mapping == nil {
		return
	}
	defer leave()
	if !d.spend(source, path, len(mapping.Content)) {
		return
	}
	if mapping.Kind != yaml.MappingNode {
		d.addAt(source.Line, path, "%s: << merges mappings only", describe(mapping))
		return
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key := mapping.Content[i]
		if _, ok := written[key.Value]; ok || isMerge(key) || key.Kind != yaml.ScalarNode {
			continue
		}
		written[key.Value] = key.Line
		d.field(key, mapping.Content[i+1], target, fields, path)
	}
	d.merged(mapping, target, fields, path, written)
}

func isMerge(key *yaml.Node) bool { return key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge" }

func (d *decoder) field(key, value *yaml.Node, target reflect.Value, fields []field, path string) {
	i := slices.IndexFunc(fields, func(f field) bool { return f.name == key.Value })
	if i < 0 {
		d.unknown(key, target.Type(), fields, path)
		return
	}
	d.value(value, target.FieldByIndex(fields[i].index), join(path, key.Value), fields[i].anyScalar)
	d.lines.at[join(path, key.Value)] = key.Line
}

// unknown reports a field that does not exist, and what was probably meant.
func (d *decoder) unknown(key *yaml.Node, structure reflect.Type, fields []field, path string) {
	if why, ok := inexpressible[structure][key.Value]; ok {
		d.addAt(key.Line, path, "unknown field %q: %s", key.Value, why)
		return
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	if near, ok := spelling.Nearest(key.Value, names); ok {
		d.lines.damage(join(path, near)) // it is missing only in the letter
		d.addAt(key.Line, path, "unknown field %q; did you mean %q?", shorten(key.Value), near)
		return
	}
	for _, f := range fields {
		inner := structure.FieldByIndex(f.index).Type
		for inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && slices.ContainsFunc(fieldsOf(inner), func(g field) bool { return g.name == key.Value }) {
			d.addAt(key.Line, path, "unknown field %q; it belongs under %s", key.Value, f.name)
			return
		}
	}
	d.addAt(key.Line, path, "unknown field %q; known are %s", shorten(key.Value), strings.Join(names, ", "))
}

// inexpressible explains the fields that a user of RBAC expects in a rule and that the language of ABAC has no word for.
var inexpressible = map[reflect.Type]map[string]string{
	reflect.TypeFor[Access](): {
		"verbs":           "ABAC does not tell verbs apart; readOnly: true allows get, list and watch, otherwise every verb is allowed",
		"resourceNames":   "ABAC does not tell names apart; a rule is about all objects of a resource in its namespaces",
		"nonResourceURLs": "it is called nonResourcePaths, as in ABAC",
	},
}

// field is one field of a struct as it is written.
type field struct {
	name      string
	index     []int // for reflect's FieldByIndex
	anyScalar bool
	omitEmpty bool
}

// fieldsOf lists the fields in the order of the struct; those of an embedded struct stand in its place.
func fieldsOf(structure reflect.Type) []field {
	var fields []field
	for i := range structure.NumField() {
		f := structure.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			for _, inner := range fieldsOf(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				fields = append(fields, inner)
			}
			continue
		}
		fields = append(fields, field{
			name:      name,
			index:     []int{i},
			anyScalar: f.Tag.Get("scalar") == "any",
			omitEmpty: options == "omitempty",
		})
	}
	return fields
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
