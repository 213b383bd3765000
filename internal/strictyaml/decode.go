package strictyaml

import (
	"encoding"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/internal/spelling"
	"go.yaml.in/yaml/v3"
)

// decoder fills a struct from nodes. It exists because no decoder of ours to hand reports every problem with its path
// and line.
type decoder struct {
	*Problems
	format     Format
	fieldsLeft int          // negative: the limit has been reported
	aliases    []*yaml.Node // being expanded, outermost first
}

// value decodes the node into the target. anyScalar lets a string take the text of a number or boolean: an argument's
// value is its text, and 1.10 must not become 1.1.
func (d *decoder) value(node *yaml.Node, target reflect.Value, path string, anyScalar bool) {
	if path != "" {
		d.Lines.at[path] = node.Line
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
	case reflect.Interface:
		d.anything(node, target, path)
	default:
		panic("strictyaml: internal error: no decoding of " + target.Type().String())
	}
}

// enter follows an alias to what it stands for and counts the node. It returns nil after reporting that there is no end
// to it.
func (d *decoder) enter(node *yaml.Node, path string) (*yaml.Node, func()) {
	const fieldBytes = 256 // a text that is used again counts as one more field for each
	fields := 1
	if node.Kind == yaml.AliasNode {
		fields += len(node.Alias.Value) / fieldBytes
	} else if len(d.aliases) > 0 {
		fields += len(node.Value) / fieldBytes
	}
	if !d.spend(node, path, fields) {
		return nil, nil
	}
	if node.Kind != yaml.AliasNode {
		return node, func() {}
	}
	if slices.Contains(d.aliases, node.Alias) {
		d.wrong(node, path, "the anchor %q contains itself", Shorten(node.Value))
		return nil, nil
	}
	d.aliases = append(d.aliases, node.Alias)
	return node.Alias, func() { d.aliases = d.aliases[:len(d.aliases)-1] }
}

// spend counts fields against the limit, and reports once that it is reached.
func (d *decoder) spend(node *yaml.Node, path string, fields int) bool {
	if d.fieldsLeft < 0 {
		d.Lines.damage(path)
		return false
	}
	if d.fieldsLeft -= fields; d.fieldsLeft < 0 {
		d.wrong(node, path, "more than %d fields, each use of an anchor counted; write out less", d.format.LimitFields)
		return false
	}
	return true
}

// wrong reports a problem with the text of a field, which is thereby not to be judged further.
func (d *decoder) wrong(node *yaml.Node, path, format string, args ...any) {
	d.Lines.damage(path)
	d.AddAt(node.Line, path, format, args...)
}

// mismatch reports a value of the wrong type.
func (d *decoder) mismatch(node *yaml.Node, path, want string) {
	d.wrong(node, path, "%s: want %s", describe(node), want)
}

// null decides what a key without a value means: a field that was not written, except where presence itself says
// something.
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

// anything decodes whatever JSON can say: nil, bool, int64, float64, string, []any, map[string]any.
func (d *decoder) anything(node *yaml.Node, target reflect.Value, path string) {
	value, ok := d.json(node, path)
	if ok && value != nil {
		target.Set(reflect.ValueOf(value))
	}
}

func (d *decoder) json(node *yaml.Node, path string) (any, bool) {
	node, leave := d.enter(node, path)
	if node == nil {
		return nil, false
	}
	defer leave()
	switch node.Kind {
	case yaml.MappingNode:
		object := make(map[string]any, len(node.Content)/2)
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i]
			if _, twice := object[key.Value]; twice || key.Kind != yaml.ScalarNode || isMerge(key) {
				d.wrong(key, path, "%s: want the name of a field, once", describe(key))
				return nil, false
			}
			value, ok := d.json(node.Content[i+1], Join(path, key.Value))
			if !ok {
				return nil, false
			}
			object[key.Value] = value
		}
		return object, true
	case yaml.SequenceNode:
		list := make([]any, len(node.Content))
		for i, item := range node.Content {
			value, ok := d.json(item, path+"["+strconv.Itoa(i)+"]")
			if !ok {
				return nil, false
			}
			list[i] = value
		}
		return list, true
	}
	return d.scalar(node, path)
}

func (d *decoder) scalar(node *yaml.Node, path string) (any, bool) {
	var value any
	switch tag := node.ShortTag(); tag {
	case "!!null":
		return nil, true
	case "!!int":
		var n int64
		if err := node.Decode(&n); err == nil {
			return n, true
		}
	case "!!str", "!!timestamp", "!!binary":
		return node.Value, true
	default:
		if err := node.Decode(&value); err == nil {
			return value, true
		}
	}
	d.mismatch(node, path, "what JSON can express")
	return nil, false
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
			d.Lines.at[itemPath] = item.Line
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
	fields := FieldsOf(target.Type())
	written := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if isMerge(key) {
			continue
		}
		if key.Kind != yaml.ScalarNode {
			d.AddAt(key.Line, path, "%s: want the name of a field", describe(key))
			continue
		}
		if line, ok := written[key.Value]; ok {
			d.wrong(key, Join(path, Shorten(key.Value)), "is written twice, first in line %d", line)
			continue
		}
		written[key.Value] = key.Line
		d.field(key, value, target, fields, path)
	}
	d.merged(node, target, fields, path, written)
}

// merged fills what the mapping itself does not write from the mappings that it merges with "<<", the earliest first.
func (d *decoder) merged(node *yaml.Node, target reflect.Value, fields []Field, path string, written map[string]int) {
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

func (d *decoder) merge(source *yaml.Node, target reflect.Value, fields []Field, path string, written map[string]int) {
	mapping, leave := d.enter(source, path)
	if mapping == nil {
		return
	}
	defer leave()
	if !d.spend(source, path, len(mapping.Content)) {
		return
	}
	if mapping.Kind != yaml.MappingNode {
		d.AddAt(source.Line, path, "%s: << merges mappings only", describe(mapping))
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

func (d *decoder) field(key, value *yaml.Node, target reflect.Value, fields []Field, path string) {
	i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == key.Value })
	if i < 0 {
		d.unknown(key, target.Type(), fields, path)
		return
	}
	d.value(value, target.FieldByIndex(fields[i].Index), Join(path, key.Value), fields[i].AnyScalar)
	d.Lines.at[Join(path, key.Value)] = key.Line
}

// unknown reports a field that does not exist, and what was probably meant.
func (d *decoder) unknown(key *yaml.Node, structure reflect.Type, fields []Field, path string) {
	if why, ok := d.format.Explain[structure][key.Value]; ok {
		d.AddAt(key.Line, path, "unknown field %q: %s", key.Value, why)
		return
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	if near, ok := spelling.Nearest(key.Value, names); ok {
		d.Lines.damage(Join(path, near)) // it is missing only in the letter
		d.AddAt(key.Line, path, "unknown field %q; did you mean %q?", Shorten(key.Value), near)
		return
	}
	for _, f := range fields {
		inner := structure.FieldByIndex(f.Index).Type
		for inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && slices.ContainsFunc(FieldsOf(inner), func(g Field) bool {
			return g.Name == key.Value
		}) {
			d.AddAt(key.Line, path, "unknown field %q; it belongs under %s", key.Value, f.Name)
			return
		}
	}
	d.AddAt(key.Line, path, "unknown field %q; known are %s", Shorten(key.Value), strings.Join(names, ", "))
}

// Field is one field of a struct as it is written.
type Field struct {
	Name      string
	Index     []int // for reflect's FieldByIndex
	AnyScalar bool  // tagged scalar:"any": a text that takes a number or boolean as it is written
	OmitEmpty bool
}

// FieldsOf lists the exported fields in the order of the struct; those of an embedded struct stand in its place.
func FieldsOf(structure reflect.Type) []Field {
	var fields []Field
	for i := range structure.NumField() {
		f := structure.Field(i)
		if !f.IsExported() {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			for _, inner := range FieldsOf(f.Type) {
				inner.Index = append([]int{i}, inner.Index...)
				fields = append(fields, inner)
			}
			continue
		}
		fields = append(fields, Field{
			Name:      name,
			Index:     []int{i},
			AnyScalar: f.Tag.Get("scalar") == "any",
			OmitEmpty: options == "omitempty",
		})
	}
	return fields
}

// Join appends a name to a field path.
func Join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
