package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/manifest"
)

// inputFiles lists files as they were given, and those of directories that hold manifests, by name.
func inputFiles(names []string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, name := range names {
			info, err := os.Stat(name)
			if name == "-" || err != nil || !info.IsDir() {
				if !yield(name, nil) { // opening it says what is wrong
					return
				}
				continue
			}
			found := false
			err = filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
				hidden := strings.HasPrefix(entry.Name(), ".") && path != name
				switch {
				case err != nil:
					return err
				case hidden && entry.IsDir():
					return fs.SkipDir
				case hidden || entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
					return nil
				}
				found = true
				if !yield(path, nil) {
					return fs.SkipAll
				}
				return nil
			})
			if err == nil && !found {
				err = fmt.Errorf("%s: no .yaml, .yml or .json file in it", name)
			}
			if err != nil {
				yield(name, badInput(err, ""))
				return
			}
		}
	}
}

// sourceObject is an object, and the text that it stood in.
type sourceObject struct {
	unstructured.Unstructured
	text *manifest.Object // nil for what a server stored
	part manifest.Part
}

// decodeSource reads the object of a part; nil for one that holds nothing.
// Errors: *manifest.SyntaxError for what is no object of Kubernetes.
func decodeSource(converter *convert.Converter, part manifest.Part) (*sourceObject, error) {
	if part.Format == manifest.Protobuf {
		u, err := converter.DecodeProtobuf(part.Text)
		if err != nil {
			return nil, err
		}
		return &sourceObject{Unstructured: *u, part: part}, nil
	}
	text, err := part.Decode()
	if text == nil || err != nil {
		return nil, err
	}
	source := &sourceObject{Unstructured: unstructured.Unstructured{Object: maps.Clone(text.Value)}, text: text, part: part}
	source.complete()
	for _, field := range []string{"apiVersion", "kind"} {
		if value, ok := source.Object[field].(string); !ok || value == "" {
			return nil, &manifest.SyntaxError{Document: part.Document, Line: part.Line, Err: fmt.Errorf("no object of Kubernetes: %s is missing", field)}
		}
	}
	if metadata, ok := source.Object["metadata"]; ok && metadata != nil {
		if _, ok := metadata.(map[string]any); !ok {
			return nil, &manifest.SyntaxError{Document: part.Document, Line: part.Line, Err: errors.New("metadata: want an object")}
		}
	}
	return source, nil
}

// complete gives an item of a list the kind that its list names, unless it names its own.
func (s *sourceObject) complete() {
	kind, ok := strings.CutSuffix(s.part.ListKind, "List")
	if ok && kind != "" && s.Object["kind"] == nil {
		s.Object["apiVersion"], s.Object["kind"] = s.part.ListVersion, kind
	}
}

// convertObject converts an object, or each object of a List.
func (k *conversion) convertObject(in *unstructured.Unstructured, to schema.GroupVersionKind) (*unstructured.Unstructured, []convert.Loss, error) {
	items, ok := in.Object["items"].([]any)
	if in.GetKind() != "List" || !ok {
		return k.converter.Convert(in, to)
	}
	out := &unstructured.Unstructured{Object: maps.Clone(in.Object)}
	converted := make([]any, len(items))
	var losses []convert.Loss
	for i, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			return nil, nil, fmt.Errorf("items[%d]: want an object", i)
		}
		u := &unstructured.Unstructured{Object: object}
		target, err := k.target(u.GroupVersionKind())
		if err != nil {
			return nil, nil, fmt.Errorf("items[%d]: %w", i, err)
		}
		result, lost, err := k.convertObject(u, target)
		if err != nil {
			return nil, nil, fmt.Errorf("items[%d]: %w", i, err)
		}
		converted[i] = result.Object
		for _, loss := range lost {
			loss.Path = fmt.Sprintf("items[%d].%s", i, loss.Path)
			losses = append(losses, loss)
		}
	}
	out.Object["items"] = converted
	return out, losses, nil
}

var (
	yamlVersionLine = regexp.MustCompile(`(?m)^(apiVersion:[ \t]*)\S+`)
	jsonVersionWord = regexp.MustCompile(`("apiVersion"\s*:\s*)"[^"]*"`)
)

// frame gives the text around the items of a list of one kind the version that its items get.
func (k *conversion) frame(part manifest.Part) ([]byte, error) {
	kind, ok := strings.CutSuffix(part.ListKind, "List")
	if !ok || kind == "" || !bytes.Contains(part.Text, []byte("apiVersion")) {
		return part.Text, nil
	}
	to, err := k.choose(schema.FromAPIVersionAndKind(part.ListVersion, kind))
	if err != nil {
		return nil, err
	}
	version := to.GroupVersion().String()
	if bytes.HasPrefix(bytes.TrimSpace(part.Text), []byte("{")) {
		if at := jsonVersionWord.FindSubmatchIndex(part.Text); at != nil {
			return slices.Concat(part.Text[:at[3]], []byte(`"`+version+`"`), part.Text[at[1]:]), nil
		}
		return part.Text, nil
	}
	return yamlVersionLine.ReplaceAll(part.Text, []byte("${1}"+version)), nil
}

// objectWriter writes objects: in the text that they came in, or one after the other as YAML or JSON.
type objectWriter struct {
	w      io.Writer
	format string // same, yaml, json
	err    error
	last   byte   // the last byte that was written
	comma  []byte // text between the items of a JSON list that waits for the next one
	items  int    // written, of the current list
	first  []byte // the first object as JSON: alone it stands for itself
	count  int
}

func newObjectWriter(w io.Writer, format string) *objectWriter {
	return &objectWriter{w: w, format: format, last: '\n'}
}

func (o *objectWriter) write(text []byte) {
	if o.err == nil && len(text) > 0 {
		_, o.err = o.w.Write(text)
		o.last = text[len(text)-1]
	}
}

// begin starts the next file.
func (o *objectWriter) begin() {
	if o.format != "same" || o.count == 0 {
		return
	}
	if o.last != '\n' {
		o.write([]byte("\n"))
	}
	o.write([]byte("---\n"))
}

// between writes what stood between objects. A comma waits until an object follows, for one may be left out.
func (o *objectWriter) between(text []byte) error {
	if o.format != "same" {
		return o.err
	}
	switch word := bytes.TrimSpace(text); {
	case string(word) == ",":
		o.comma = text
		return o.err
	case bytes.HasPrefix(word, []byte("{")):
		o.items = 0
	}
	o.comma = nil
	o.write(text)
	return o.err
}

// object writes an object; text is how it reads in its own file, nil for what has none.
func (o *objectWriter) object(object *unstructured.Unstructured, text []byte) error {
	o.count++
	switch {
	case o.format == "yaml":
		return o.yaml(object)
	case o.format == "json" || text == nil:
		return o.json(object)
	}
	if o.items > 0 {
		o.write(o.comma)
	}
	o.comma = nil
	o.items++
	o.write(text)
	return o.err
}

func (o *objectWriter) yaml(result *unstructured.Unstructured) error {
	text, err := yaml.Marshal(result.Object)
	if err != nil {
		return err
	}
	if o.count > 1 {
		o.write([]byte("---\n"))
	}
	o.write(text)
	return o.err
}

// json writes one object as itself, several as a List.
func (o *objectWriter) json(result *unstructured.Unstructured) error {
	prefix := "    "
	if o.count == 1 {
		prefix = ""
	}
	text, err := indented(result.Object, prefix)
	if err != nil {
		return err
	}
	switch o.count {
	case 1:
		o.first = []byte(text)
	case 2:
		o.write([]byte("{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"List\",\n  \"items\": [\n    "))
		o.write(bytes.ReplaceAll(o.first, []byte("\n"), []byte("\n    ")))
		o.first = nil
		fallthrough
	default:
		o.write([]byte(",\n    " + text))
	}
	return o.err
}

// close ends what json began.
func (o *objectWriter) close() error {
	switch {
	case o.first != nil:
		o.write(append(o.first, '\n'))
	case o.format == "json" && o.count > 1:
		o.write([]byte("\n  ]\n}\n"))
	}
	return o.err
}
