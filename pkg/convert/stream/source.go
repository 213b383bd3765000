package stream

import (
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/manifest"
)

// sourceObject is an object, and the text that it stood in.
type sourceObject struct {
	unstructured.Unstructured
	text *manifest.Object // nil for what a server stored
	part manifest.Part
}

// decode reads the object of a part; nil for one that holds nothing.
// Errors: *manifest.SyntaxError for what is no object of Kubernetes.
func decode(converter *convert.Converter, part manifest.Part) (*sourceObject, error) {
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
	source := &sourceObject{text: text, part: part}
	source.Object = maps.Clone(text.Value)
	source.complete()
	for _, field := range []string{"apiVersion", "kind"} {
		if value, ok := source.Object[field].(string); !ok || value == "" {
			return nil, syntaxError(part, "no object of Kubernetes: %s is missing", field)
		}
	}
	if metadata, ok := source.Object["metadata"]; ok && metadata != nil {
		if _, ok := metadata.(map[string]any); !ok {
			return nil, syntaxError(part, "metadata: want an object")
		}
	}
	return source, nil
}

func syntaxError(part manifest.Part, format string, args ...any) error {
	return &manifest.SyntaxError{Document: part.Document, Line: part.Line, Err: fmt.Errorf(format, args...)}
}

// complete gives an item of a list the kind that its list names, unless it names its own.
func (s *sourceObject) complete() {
	kind, ok := strings.CutSuffix(s.part.ListKind, "List")
	if ok && kind != "" && s.Object["kind"] == nil {
		s.Object["apiVersion"], s.Object["kind"] = s.part.ListVersion, kind
	}
}
