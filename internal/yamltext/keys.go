package yamltext

import (
	"fmt"

	yamlv3 "go.yaml.in/yaml/v3"
)

// limitKeys bounds the keys of one mapping: the library compares each with each.
const limitKeys = 10_000

// BoundKeysOf reads the mappings of a document before anything makes values of them: the library says of each two keys
// that are the same that they are, and a megabyte of one key becomes gigabytes.
// Errors: a key that a mapping has twice; more than 10,000 of one.
func BoundKeysOf(document *yamlv3.Node) error {
	if document.Kind == yamlv3.MappingNode {
		if keys := len(document.Content) / 2; keys > limitKeys {
			return fmt.Errorf("line %d: %d keys; at most %d", document.Line, keys, limitKeys)
		}
		type key struct {
			kind  yamlv3.Kind
			value string
		}
		lines := map[key]int{}
		for i := 0; i+1 < len(document.Content); i += 2 {
			node := document.Content[i]
			is := key{node.Kind, node.Value}
			if line, there := lines[is]; there {
				return fmt.Errorf("line %d: mapping key %q already defined at line %d", node.Line, node.Value, line)
			}
			lines[is] = node.Line
		}
	}
	for _, child := range document.Content {
		if err := BoundKeysOf(child); err != nil {
			return err
		}
	}
	return nil
}
