package spec

import (
	"bytes"
	"encoding"
	"reflect"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/kubefusion/fusionctl/internal/strictyaml"
	"github.com/kubefusion/fusionctl/internal/visible"
)

// Marshal prints the file as YAML, fields in the order of the types. Load reads the same File from it, once the
// defaults are filled; empty lists and empty fields are left out where they mean the same.
func Marshal(f *File) ([]byte, error) { return MarshalWithComments(f, nil) }

// MarshalWithComments prints the file as Marshal does, and before each field whose path is a key of comments that text,
// without "#" and of any number of lines; what YAML does not allow in it is shown by its number. A comment on a field
// that is left out because it is empty makes the field appear.
// Shape: {"spec.access": "Fill in what users may do through the modern API server."}
func MarshalWithComments(f *File, comments map[string]string) ([]byte, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	node := (&printer{comments: comments}).node(reflect.ValueOf(f).Elem(), "")
	if err := encoder.Encode(node); err != nil {
		return nil, err
	}
	if err := encoder.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

type printer struct {
	comments map[string]string
}

// onOneLine lists the small types that read best as {name: cp-1, address: 10.0.0.11}.
var onOneLine = map[reflect.Type]bool{
	reflect.TypeFor[Metadata]():      true,
	reflect.TypeFor[Host]():          true,
	reflect.TypeFor[Kubelet]():       true,
	reflect.TypeFor[ModernKubelet](): true,
	reflect.TypeFor[TLS]():           true,
	reflect.TypeFor[Arg]():           true,
	reflect.TypeFor[Mount]():         true,
	reflect.TypeFor[Change]():        true,
	reflect.TypeFor[EnvVar]():        true,
	reflect.TypeFor[Subject]():       true,
	reflect.TypeFor[ModernService](): true,
	reflect.TypeFor[ModernNode]():    true,
	reflect.TypeFor[Admission]():     true,
	reflect.TypeFor[[]string]():      true,
}

func (p *printer) node(value reflect.Value, path string) *yaml.Node {
	if text, ok := value.Interface().(encoding.TextMarshaler); ok {
		if value.IsZero() {
			return scalar("!!str", "")
		}
		if printed, err := text.MarshalText(); err == nil {
			return scalar("!!str", string(printed))
		}
	}
	switch value.Kind() {
	case reflect.Pointer:
		if value.IsNil() {
			return &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
		}
		return p.node(value.Elem(), path)
	case reflect.String:
		return scalar("!!str", value.String())
	case reflect.Int:
		return scalar("!!int", strconv.FormatInt(value.Int(), 10))
	case reflect.Bool:
		return scalar("!!bool", strconv.FormatBool(value.Bool()))
	case reflect.Slice:
		return p.sequence(value, path)
	case reflect.Struct:
		return p.mapping(value, path)
	}
	panic("spec: internal error: no printing of " + value.Type().String())
}

func scalar(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

func (p *printer) sequence(list reflect.Value, path string) *yaml.Node {
	node := &yaml.Node{Kind: yaml.SequenceNode}
	if list.Len() == 0 || onOneLine[list.Type()] {
		node.Style = yaml.FlowStyle
	}
	for i := range list.Len() {
		itemPath := index(path, i)
		item := p.node(list.Index(i), itemPath)
		item.HeadComment = visible.Text(p.comments[itemPath])
		node.Content = append(node.Content, item)
	}
	return node
}

func (p *printer) mapping(structure reflect.Value, path string) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range strictyaml.FieldsOf(structure.Type()) {
		value, fieldPath := structure.FieldByIndex(f.Index), strictyaml.Join(path, f.Name)
		comment, commented := p.comments[fieldPath]
		absent := f.OmitEmpty && isEmpty(value) || value.Kind() == reflect.Pointer && value.IsNil()
		if absent && !commented {
			continue
		}
		key := scalar("!!str", f.Name)
		key.HeadComment = visible.Text(comment)
		node.Content = append(node.Content, key, p.node(value, fieldPath))
	}
	host, ok := structure.Interface().(Host)
	if len(node.Content) == 0 || onOneLine[structure.Type()] && (!ok || host.Legacy == nil) {
		node.Style = yaml.FlowStyle
	}
	return node
}

// isEmpty is what omitempty means by it: a pointer to an empty struct is not.
func isEmpty(value reflect.Value) bool {
	if value.Kind() == reflect.Slice {
		return value.Len() == 0
	}
	return value.IsZero()
}
