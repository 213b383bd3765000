// Package yamltext writes values as YAML with the field names of their JSON, whatever their strings hold.
package yamltext

import (
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// Marshal writes a value as YAML, fields sorted by name. It differs from that of sigs.k8s.io/yaml, which reads the
// value's JSON as YAML on the way, where JSON leaves in strings what YAML reads otherwise: control characters, which it
// refuses, and the line breaks of Unicode, which it folds into spaces. Errors are those of encoding/json.
func Marshal(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML([]byte(escaped(string(text))))
}

// escaped spells as \uXXXX what JSON may hold as it is and YAML may not. Outside of strings JSON has nothing of it.
func escaped(text string) string {
	if strings.IndexFunc(text, foreign) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if foreign(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// foreign reports whether a YAML reader refuses the character, drops it, or takes it for a line break.
func foreign(r rune) bool {
	return r >= 0x7f && r <= 0x9f || r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == '\ufffe' || r == '\uffff'
}
