package yamltext

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	yamlv3 "go.yaml.in/yaml/v3"
)

// limitAliasBytes bounds what aliases add to a text. Parsers count values alone, and write a long one out each time.
const limitAliasBytes = 8 << 20

// mayAlias reports whether a text can have aliases at all: most have none, and are not read twice.
func mayAlias(text []byte) bool {
	return bytes.IndexByte(text, '&') >= 0 && bytes.IndexByte(text, '*') >= 0
}

// BoundAliases reads the documents of a text before anything makes values of them: by aliases a few bytes become
// gigabytes. Errors: aliases that add more than 8 MiB, or refer to what they stand in; a text with what may be aliases
// that is neither YAML nor JSON.
func BoundAliases(text []byte) error {
	if !mayAlias(text) {
		return nil
	}
	decoder := yamlv3.NewDecoder(bytes.NewReader(text))
	for {
		var document yamlv3.Node
		err := decoder.Decode(&document)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err == nil:
			err = BoundAliasesOf(&document)
		case isJSON(text): // of one value behind the other
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func isJSON(text []byte) bool {
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// BoundAliasesOf is BoundAliases for a document that was read.
func BoundAliasesOf(document *yamlv3.Node) error {
	added, err := sizes{}.of(document)
	if err == nil && added.aliases > limitAliasBytes {
		err = fmt.Errorf("its aliases make more than %d bytes of it", limitAliasBytes)
	}
	return err
}

// size is about what a value takes with what its aliases stand for, and how much of that is due to these.
type size struct{ whole, aliases int64 }

// sizes are those of anchors.
type sizes map[*yamlv3.Node]size

func (s sizes) of(node *yamlv3.Node) (size, error) {
	const most, mark = 1 << 40, 64 // of a value, at least
	if node.Kind == yamlv3.AliasNode {
		anchored, known := s[node.Alias] // an anchor stands before its aliases
		if !known {
			return size{}, fmt.Errorf("line %d: the anchor &%s contains itself", node.Line, node.Value)
		}
		return size{anchored.whole, anchored.whole}, nil
	}
	sum := size{whole: int64(len(node.Value)) + mark}
	for _, child := range node.Content {
		added, err := s.of(child)
		if err != nil {
			return size{}, err
		}
		sum.whole, sum.aliases = min(sum.whole+added.whole, most), min(sum.aliases+added.aliases, most)
	}
	if node.Anchor != "" {
		s[node] = sum
	}
	return sum, nil
}
