package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/kubefusion/fusionctl/internal/spelling"
)

// specFields are the fields of a rule, as a line spells them.
var specFields = []string{"user", "group", "readonly", "apiGroup", "resource", "namespace", "nonResourcePath"}

// repaired is what a line should have been: it says what the line says, in words that the server understands. What a
// line says may be wrong, too; for that, findings suggest something else.
type repaired struct {
	lines []string // what to write instead
	rules []Rule   // those of the lines that are rules
}

func (r *repaired) addRule(rule Rule) {
	r.rules = append(r.rules, rule)
	r.lines = append(r.lines, rule.String())
}

// fix is the repair as the fix of a finding.
func (r *repaired) fix() string {
	if r == nil {
		return ""
	}
	return strings.Join(r.lines, "\n")
}

// repairObject rewrites one JSON object as a rule that says what it tries to say: with its version, with every field
// where it belongs and spelled as the server spells it. Fields that are like none of the server's are dropped. What the
// server reads is before what it ignores.
func repairObject(all []member) (Rule, bool) {
	values := map[string]json.RawMessage{}
	take := func(from []member) {
		taken := map[string]json.RawMessage{}
		for _, m := range from {
			name, ok := fieldNamed(m.key)
			if ok && !m.isNull() && (m.key == name || taken[name] == nil) {
				taken[name] = m.value
			}
		}
		for name, value := range taken {
			if values[name] == nil {
				values[name] = value
			}
		}
	}
	take(inside(all, "spec"))
	for _, m := range all {
		if !strings.EqualFold(m.key, "spec") || m.isNull() {
			continue
		}
		inner, _, err := members(m.value, 0)
		if err != nil {
			return Rule{}, false
		}
		if m.key != "spec" {
			take(inner)
		}
	}
	take(all) // fields beside the spec are ignored by the server, and meant to be in it
	rule, ok := ruleFromValues(values)
	if !ok || rule.User == "" && rule.Group == "" {
		return Rule{}, false
	}
	return rule, true
}

// fieldNamed finds the field of a rule that a key names or tries to name.
func fieldNamed(key string) (string, bool) {
	switch strings.ToLower(key) {
	case "apiversion", "kind", "spec", "metadata":
		return "", false
	}
	return spelling.Nearest(key, specFields)
}

// ruleFromValues reads the fields of a rule with their types bent into shape: 7 for "7", "true" for true.
func ruleFromValues(values map[string]json.RawMessage) (Rule, bool) {
	var rule Rule
	text := map[string]*string{
		"user": &rule.User, "group": &rule.Group, "apiGroup": &rule.APIGroup,
		"resource": &rule.Resource, "namespace": &rule.Namespace, "nonResourcePath": &rule.NonResourcePath,
	}
	for name, raw := range values {
		var value any
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		if decoder.Decode(&value) != nil {
			return Rule{}, false
		}
		switch value := value.(type) {
		case nil:
		case string:
			if name == "readonly" {
				rule.Readonly = strings.EqualFold(value, "true")
				if !rule.Readonly && !strings.EqualFold(value, "false") {
					return Rule{}, false
				}
				continue
			}
			*text[name] = value
		case json.Number:
			if name == "readonly" {
				return Rule{}, false
			}
			*text[name] = value.String()
		case bool:
			if name != "readonly" {
				return Rule{}, false
			}
			rule.Readonly = value
		default:
			return Rule{}, false
		}
	}
	switch { // the server lets a "*" drop the other condition; the narrower reading is the one that was meant
	case rule.User == "*" && rule.Group == "*", rule.User == "" && rule.Group == "*", rule.User == "*" &&
		rule.Group == "":
		rule.User, rule.Group = "", GroupAuthenticated
	case rule.User == "*":
		rule.User = ""
	case rule.Group == "*":
		rule.Group = ""
	}
	return rule, true
}

// repairText takes a line, or several that belong together, apart: objects and arrays of objects become lines of their
// own, and comments, too. It returns nil when something else is left over.
func repairText(text []byte) *repaired {
	out := &repaired{}
	for {
		text = bytes.TrimSpace(text)
		switch {
		case len(text) == 0:
			return out
		case text[0] == '#':
			out.lines = append(out.lines, string(text))
			return out
		case bytes.HasPrefix(text, []byte("//")):
			out.lines = append(out.lines, "#"+string(text[2:]))
			return out
		case text[0] == ',' || text[0] == ';':
			text = text[1:]
			continue
		}
		objects, rest, err := firstValue(text)
		if err != nil {
			return nil
		}
		for _, object := range objects {
			all, _, err := members(object, 0)
			if err != nil {
				return nil
			}
			rule, ok := repairObject(all)
			if !ok {
				return nil
			}
			out.addRule(rule)
		}
		text = rest
	}
}

// firstValue reads the JSON object, or array of objects, at the start of the text, and what follows it.
func firstValue(text []byte) (objects []json.RawMessage, rest []byte, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	var value json.RawMessage
	if err := decoder.Decode(&value); err != nil {
		return nil, nil, unexpectedEnd(err)
	}
	rest = text[decoder.InputOffset():]
	if value[0] != '[' {
		return []json.RawMessage{value}, rest, nil
	}
	if err := json.Unmarshal(value, &objects); err != nil {
		return nil, nil, err
	}
	return objects, rest, nil
}

// isIncomplete reports whether the text is the start of a JSON object or array that goes on after its end.
func isIncomplete(text []byte) bool {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || text[0] != '{' && text[0] != '[' {
		return false
	}
	_, _, err := firstValue(text)
	return errors.Is(err, io.ErrUnexpectedEOF)
}

// isComplete reports whether the text is a JSON object or array, and nothing behind it.
func isComplete(text []byte) bool {
	_, rest, err := firstValue(bytes.TrimSpace(text))
	return err == nil && len(bytes.TrimSpace(rest)) == 0
}
