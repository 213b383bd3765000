// Package crdfile finds the CustomResourceDefinitions of a file: one document or several, in YAML or JSON, each a CRD
// or a list of objects. Everything in fusionctl that reads CRDs from files reads them through it.
package crdfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kubefusion/fusionctl/internal/yamltext"
)

// Kind of what is read.
const Kind = "CustomResourceDefinition"

// limitDepth is how deep lists within lists are read.
const limitDepth = 8

// Read calls each with every CRD of the text, as JSON, in the order of the text. Objects of other kinds and empty
// documents are skipped.
// Errors: each's own and what cannot be read, with the number of the document and of the item, from 1 on. A document
// that is no object, and one whose kind or items have another type than those of an object, cannot be read.
func Read(text []byte, each func(crd []byte) error) error {
	if err := yamltext.BoundAliases(text); err != nil {
		return err
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for n := 1; ; n++ {
		var document documentText
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = read(document, each)
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
	}
}

// documentText is a document as the decoder found it: YAML documents reach it as JSON.
type documentText []byte

// UnmarshalJSON keeps the text.
func (t *documentText) UnmarshalJSON(data []byte) error {
	*t = bytes.Clone(data)
	return nil
}

func read(text []byte, each func([]byte) error) error {
	var document any
	if len(text) == 0 || bytes.Equal(text, []byte("null")) {
		return nil
	}
	if err := utiljson.Unmarshal(text, &document); err != nil {
		return err
	}
	return visit(document, text, 0, each)
}

// visit reads an object; text is its JSON, nil where it has none of its own.
func visit(document any, text []byte, depth int, each func([]byte) error) error {
	object, ok := document.(map[string]any)
	if !ok {
		return errors.New("want an object")
	}
	kind, ok := object["kind"].(string)
	if _, given := object["kind"]; given && !ok {
		return errors.New("kind: want a string")
	}
	switch kind {
	case "List", Kind + "List":
		items, ok := object["items"].([]any)
		if !ok && object["items"] != nil {
			return errors.New("items: want a list")
		}
		if depth == limitDepth {
			return fmt.Errorf("more than %d lists within each other", limitDepth)
		}
		for i, item := range items {
			if fields, ok := item.(map[string]any); ok && kind != "List" { // may leave out what the list says
				for field, value := range map[string]any{"kind": Kind, "apiVersion": object["apiVersion"]} {
					if fields[field] == nil {
						fields[field] = value
					} else if fields[field] != value {
						return fmt.Errorf("item %d: %s %v in a list of %v", i+1, field, fields[field], value)
					}
				}
			}
			if err := visit(item, nil, depth+1, each); err != nil {
				return fmt.Errorf("item %d: %w", i+1, err)
			}
		}
	case Kind:
		if text == nil {
			var err error
			if text, err = utiljson.Marshal(object); err != nil {
				return err
			}
		}
		return each(text)
	}
	return nil
}
