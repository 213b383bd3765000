package stream

import (
	"bytes"
	"errors"
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
			missing := errForeign
			if isBroken(source.Object) {
				missing = errNoKind
			}
			return nil, syntaxError(part, "%w: %s is missing", missing, field)
		}
	}
	if metadata, ok := source.Object["metadata"]; ok && metadata != nil {
		if _, ok := metadata.(map[string]any); !ok {
			return nil, syntaxError(part, "metadata: want an object")
		}
	}
	return source, nil
}

// Objects that do not say what they are.
var (
	errNoKind  = errors.New("no object of Kubernetes")
	errForeign = fmt.Errorf("%w", errNoKind) // and nothing else makes them one
)

// isBroken reports whether an object without apiVersion or kind was meant as one of Kubernetes: values of charts may
// name either, Chart.yaml names an apiVersion.
func isBroken(object map[string]any) bool {
	named := object["apiVersion"] != nil || object["kind"] != nil
	_, described := object["metadata"].(map[string]any)
	_, specified := object["spec"].(map[string]any)
	return named && (described || specified)
}

func syntaxError(part manifest.Part, format string, args ...any) error {
	return &manifest.SyntaxError{Document: part.Document, Line: part.Line, Err: fmt.Errorf(format, args...)}
}

// foreign reports whether a part that cannot be read as an object is a file of another kind: values and metadata of
// charts, a kustomization, a template, a list.
func foreign(part manifest.Part, object map[string]any, err error) bool {
	if object != nil {
		version, _ := object["apiVersion"].(string)
		group, _, _ := strings.Cut(version, "/")
		return strings.HasSuffix(group, "kustomize.config.k8s.io")
	}
	if errors.Is(err, manifest.ErrNoObject) || bytes.Contains(part.Text, []byte("{{")) {
		return true
	}
	return errors.Is(err, errForeign)
}

// complete gives an item of a list the kind that its list names, unless it names its own.
func (s *sourceObject) complete() {
	kind, ok := strings.CutSuffix(s.part.ListKind, "List")
	if ok && kind != "" && s.Object["kind"] == nil {
		s.Object["apiVersion"], s.Object["kind"] = s.part.ListVersion, kind
	}
}
