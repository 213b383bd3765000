package stream

import (
	"bytes"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubefusion/fusionctl/internal/jsontext"
	"github.com/kubefusion/fusionctl/internal/yamltext"
)

// The formats of a Writer.
const (
	Same = "same" // as the objects came in
	YAML = "yaml"
	JSON = "json"
)

// Writer writes objects: in the text that they came in, or one after the other as YAML or JSON. Text in another format
// than they came in is the same objects, without comments and order.
type Writer struct {
	w      io.Writer
	format string
	err    error
	last   byte   // the last byte that was written
	comma  []byte // text between the items of a JSON list that waits for the next one
	items  int    // written, of the current list
	first  []byte // the first object as JSON: alone it stands for itself
	count  int
}

// NewWriter writes in the format: Same, YAML or JSON.
func NewWriter(w io.Writer, format string) *Writer {
	return &Writer{w: w, format: format, last: '\n'}
}

func (o *Writer) write(text []byte) {
	if o.err == nil && len(text) > 0 {
		_, o.err = o.w.Write(text)
		o.last = text[len(text)-1]
	}
}

// Begin starts the next file.
func (o *Writer) Begin() {
	if o.format != Same || o.count == 0 {
		return
	}
	if o.last != '\n' {
		o.write([]byte("\n"))
	}
	o.write([]byte("---\n"))
}

// Between writes what stood between objects. A comma waits until an object follows, for one may be left out.
func (o *Writer) Between(text []byte) error {
	if o.format != Same {
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

// Object writes an object; text is how it reads in its own file, nil for what has none.
func (o *Writer) Object(object *unstructured.Unstructured, text []byte) error {
	o.count++
	switch {
	case o.format == YAML:
		return o.yaml(object)
	case o.format == JSON || text == nil:
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

func (o *Writer) yaml(result *unstructured.Unstructured) error {
	text, err := yamltext.Marshal(result.Object)
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
func (o *Writer) json(result *unstructured.Unstructured) error {
	prefix := "    "
	if o.count == 1 {
		prefix = ""
	}
	text, err := jsontext.Marshal(result.Object, prefix, "  ", 1<<10)
	if err != nil {
		return err
	}
	switch o.count {
	case 1:
		o.first = text
	case 2:
		o.write([]byte("{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"List\",\n  \"items\": [\n    "))
		o.write(bytes.ReplaceAll(o.first, []byte("\n"), []byte("\n    ")))
		o.first = nil
		fallthrough
	default:
		o.write([]byte(",\n    "))
		o.write(text)
	}
	return o.err
}

// Close ends what was begun.
func (o *Writer) Close() error {
	switch {
	case o.first != nil:
		o.write(append(o.first, '\n'))
	case o.format == JSON && o.count > 1:
		o.write([]byte("\n  ]\n}\n"))
	}
	return o.err
}
