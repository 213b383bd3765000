// Package yamltext writes values as YAML with the field names of their JSON, whatever their strings hold.
package yamltext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v2"
)

// Marshal writes a value as YAML, fields sorted by name. It writes what sigs.k8s.io/yaml does, which reads the value's
// JSON as YAML on the way: there control characters and keys of more than 1024 characters are refused, and U+0085 is a
// line break. Errors are those of encoding/json.
func Marshal(value any) ([]byte, error) {
	if text, ok := appendPlain(nil, value, 0); ok {
		return append(text, '\n'), nil
	}
	return marshal(value)
}

// marshal lets the library write.
func marshal(value any) ([]byte, error) {
	if isTree(value) {
		return yaml.Marshal(value)
	}
	return marshalJSON(value)
}

// isTree reports whether a value is what its JSON would be read as, without numbers of more than one spelling.
func isTree(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			if !utf8.ValidString(name) || !isTree(inner) {
				return false
			}
		}
		return value != nil
	case []any:
		return value != nil && !slices.ContainsFunc(value, func(inner any) bool { return !isTree(inner) })
	case string:
		return utf8.ValidString(value)
	case nil, bool, int64:
		return true
	default:
		return false
	}
}

// marshalJSON writes what the JSON of a value is.
func marshalJSON(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, fmt.Errorf("reading its JSON: %w", err)
	}
	return yaml.Marshal(numbers(tree))
}

// numbers makes the numbers of JSON those of YAML, in place where it can.
func numbers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name := range v {
			v[name] = numbers(v[name])
		}
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case json.Number:
		if i, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return i
		}
		if u, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return u
		}
		f, _ := v.Float64() // encoding/json wrote it
		return f
	}
	return value
}
