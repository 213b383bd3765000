package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// What is said of one body is bounded, as at API servers: names in it are as long as clients make them, and are said of
// each field below them.
const (
	limitTwice      = 100
	limitTwiceBytes = 256     // of one
	limitSaidBytes  = 4 << 10 // together
)

// saidTwice lists the fields that a valid text of JSON has more than once in one object, each once and in the words of
// API servers.
// sigs.k8s.io/json, which these have the words from, makes each name whole before it can be cut: of the bodies that are
// taken here, a hundred names of 16 MiB.
func saidTwice(text []byte) (twice []string) {
	type frame struct {
		seen  map[string]bool // nil in a list, true for what was said
		key   string
		index int
		value bool // of the key is next
	}
	var stack []*frame
	path := func() string {
		var b []byte
		for _, f := range stack {
			if f.seen == nil {
				b = fmt.Appendf(b, "[%d]", f.index)
			} else {
				b = append(append(b, '.'), f.key[:min(len(f.key), limitTwiceBytes+1)]...)
			}
			if len(b) > limitTwiceBytes+1 {
				break
			}
		}
		return short(strings.TrimPrefix(string(b), "."))
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	for found := 0; found < limitTwice; {
		token, err := decoder.Token()
		if err != nil { // the end
			break
		}
		if delim, ok := token.(json.Delim); ok && (delim == '}' || delim == ']') {
			stack = stack[:len(stack)-1]
			continue
		}
		if len(stack) > 0 {
			switch top := stack[len(stack)-1]; {
			case top.seen == nil:
				top.index++
			case top.value:
				top.value = false
			default:
				top.key, _ = token.(string)
				top.value = true
				said, again := top.seen[top.key]
				if again && !said {
					found++
					if text := fmt.Sprintf("duplicate field %q", path()); !slices.Contains(twice, text) {
						twice = append(twice, text)
					}
				}
				top.seen[top.key] = again
				continue
			}
		}
		switch token {
		case json.Delim('{'):
			stack = append(stack, &frame{seen: map[string]bool{}})
		case json.Delim('['):
			stack = append(stack, &frame{index: -1})
		}
	}
	return twice
}

// short is a text, or its beginning.
func short(text string) string {
	if len(text) <= limitTwiceBytes {
		return text
	}
	return strings.ToValidUTF8(text[:limitTwiceBytes], "") + "..."
}

// once is a text of JSON with the last value alone of what it says twice.
func once(text []byte) ([]byte, error) {
	var value any
	if err := utiljson.Unmarshal(text, &value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

// judgeTwice is what an API server of the side's version says of fields that a body has more than once, where it says
// something: it is sent the last value alone.
func (g *Gateway) judgeTwice(w http.ResponseWriter, r *http.Request, c *exchange, name pair.Side) error {
	if len(c.twice) == 0 || r.Method == http.MethodDelete || !g.at(name).behaves(kubever.BehaviourFieldsValidated) {
		return nil
	}
	said, bytes := 0, 0
	for ; said < len(c.twice) && bytes < limitSaidBytes; said++ {
		bytes += len(c.twice[said])
	}
	switch r.URL.Query().Get("fieldValidation") {
	case metav1.FieldValidationStrict:
		return badRequest("strict decoding error: %s", strings.Join(c.twice[:said], ", "))
	case "", metav1.FieldValidationWarn:
		for _, text := range c.twice[:said] {
			if warning, err := utilnet.NewWarningHeader(299, "fusionctl", text); err == nil {
				w.Header().Add("Warning", warning)
			}
		}
	}
	return nil // the side refuses other values itself
}

// examined are the fields by which the gateway decides about a request, below those in which they are.
var examined = map[string][]string{
	"":              {"apiVersion", "kind", "metadata", "preconditions", "dryRun"},
	"metadata":      {"name", "generateName", "namespace", "uid", "resourceVersion", "annotations"},
	"preconditions": {"uid", "resourceVersion"},
}

// heedsCase refuses a field that the gateway examines in another case, where the side takes it for the same one.
func (g *Gateway) heedsCase(body []byte, name pair.Side) error {
	if !g.at(name).behaves(kubever.BehaviourJSONCaseIgnored) {
		return nil
	}
	var whole, inner map[string]json.RawMessage
	if json.Unmarshal(body, &whole) != nil { // a JSON patch, whose paths are exact
		return nil
	}
	for at := range examined {
		object := whole
		if at != "" {
			if inner = nil; json.Unmarshal(whole[at], &inner) != nil {
				continue // the side says what is wrong
			}
			object = inner
		}
		if field := otherCase(object, at); field != "" {
			return badRequest("%s is of version %s, which may take %q for another field by its case: write it as it "+
				"is named", called(name), g.at(name).minor(), strings.TrimPrefix(at+"."+field, "."))
		}
	}
	return nil
}

// otherCase is a field that is one of those that are examined but for its case.
func otherCase(object map[string]json.RawMessage, at string) string {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		for _, known := range examined[at] {
			if name != known && strings.EqualFold(name, known) {
				return name
			}
		}
	}
	return ""
}

// strictly is what the strict reader of YAML says of a body that the other one reads.
func strictly(err error) (twice []string) {
	if err == nil {
		return nil
	}
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "line ") {
			twice = append(twice, strings.Clone(short(line)))
		}
		if len(twice) == limitTwice {
			break
		}
	}
	if len(twice) == 0 {
		twice = []string{short(strings.Join(strings.Fields(err.Error()), " "))}
	}
	return twice
}
