package convert

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
)

// Loss is one thing that the target version cannot say.
// Shape: {Path: spec.rollbackTo, Value: {revision: 2}, Meaning: "apps/v1 Deployment has no such field"}.
type Loss struct {
	Path    string `json:"path"`            // spec.metrics[0].name, metadata.annotations["a.b/c"]
	Value   any    `json:"value,omitempty"` // what the input says there; nil for a default that changes
	Meaning string `json:"meaning"`         // why it is lost and, where known, what that does
}

// path is where a walk stands; it is printed only when there is something to say.
type path []any // string for a field, int for an element

func (p path) String() string {
	text := make([]byte, 0, 64)
	for _, part := range p {
		switch part := part.(type) {
		case int:
			text = append(strconv.AppendInt(append(text, '['), int64(part), 10), ']')
		case string:
			switch {
			case isSpecial(part):
				text = append(strconv.AppendQuote(append(text, '['), part), ']')
				continue
			case len(text) > 0:
				text = append(text, '.')
			}
			text = append(text, part...)
		}
	}
	return string(text)
}

// isSpecial reports whether a name is put in quotes in a path.
func isSpecial(name string) bool {
	for i := range len(name) {
		switch name[i] {
		case '.', '/', '[', ']', '"':
			return true
		}
	}
	return false
}

const (
	// limitPathBytes bounds the paths of all values of an object, each of which may be that of a loss: names on the way
	// to a thousand values are as long as a client makes them. A CRD of a megabyte has some 15 MiB.
	limitPathBytes = 64 << 20
	// partBytes is what a part of a path takes beside its text.
	partBytes = 16
)

// pathBytes adds to a sum what the paths of all that is in a value take, whose own takes so many. It stops beyond the
// limit.
func pathBytes(value any, own, sum int64) int64 {
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			at := own + int64(len(name)) + partBytes
			if sum += at; sum > limitPathBytes {
				break
			}
			sum = pathBytes(inner, at, sum)
		}
	case []any:
		for _, inner := range value {
			if sum += own + partBytes; sum > limitPathBytes {
				break
			}
			sum = pathBytes(inner, own+partBytes, sum)
		}
	}
	return sum
}

func (p path) clone() path { return slices.Clone(p) }

// isEmpty reports whether a value says nothing that leaving it out would not say: null, "", 0, false, and what is made
// of nothing else.
func isEmpty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return value == ""
	case bool:
		return !value
	case int64:
		return value == 0
	case float64:
		return value == 0
	case map[string]any:
		for _, v := range value {
			if !isEmpty(v) {
				return false
			}
		}
		return true
	case []any:
		return len(value) == 0
	default:
		return false
	}
}

// sameValue reports whether two spellings of one field are the same to Kubernetes: 1024Mi and 1Gi, a time in two zones.
func sameValue(a, b any, s *shape) bool {
	if reflect.DeepEqual(a, b) || sameNumber(a, b) || sameJSON(a, b) {
		return true
	}
	if s == nil || s.goType == nil || !s.value() || s.goType.Kind() == reflect.Interface {
		return false
	}
	left, right := reflect.New(s.goType).Interface(), reflect.New(s.goType).Interface()
	return decodeValue(a, left) && decodeValue(b, right) && equality.Semantic.DeepEqual(left, right)
}

// sameNumber: YAML read as JSON makes floating point of every number.
func sameNumber(a, b any) bool {
	switch a := a.(type) {
	case int64:
		f, ok := b.(float64)
		return ok && float64(a) == f
	case float64:
		i, ok := b.(int64)
		return ok && float64(i) == a
	}
	return false
}

// sameJSON: autoscalers keep in annotations what their version has no field for.
func sameJSON(a, b any) bool {
	left, ok := decodedJSON(a)
	if !ok {
		return false
	}
	right, ok := decodedJSON(b)
	return ok && sameObject(left, right, nil)
}

func decodedJSON(value any) (map[string]any, bool) {
	text, ok := value.(string)
	if !ok || !strings.HasPrefix(text, "{") || tooMany(text) {
		return nil, false
	}
	var object map[string]any
	err := json.Unmarshal([]byte(text), &object)
	return object, err == nil
}

func decodeValue(value, into any) bool {
	text, err := json.Marshal(value)
	return err == nil && json.Unmarshal(text, into) == nil
}

// missing lists what of the input is not in an object of the same kind, in the order of the paths: whole parts where
// nothing of a part is there.
type missing struct {
	at    path
	found []difference
	part  bool // of an object: what it names as its kind counts
	bytes int64
}

// lose notes what is at the place, unless the paths of what was found before are too long: more says nothing more.
func (m *missing) lose(d difference) {
	for _, part := range m.at {
		name, _ := part.(string)
		m.bytes += int64(len(name)) + partBytes
	}
	if m.bytes <= limitPathBytes || len(m.found) == 0 {
		d.at = m.at.clone()
		m.found = append(m.found, d)
	}
}

type difference struct {
	at    path
	value any
	known bool   // the source version has the field
	now   any    // what stands there instead, nil for nothing
	in    *shape // what does not have it, where that was looked at
	why   string // what becomes of it, where servers have the field and its value decides
}

func (m *missing) compare(in, out any, s *shape) {
	switch in := in.(type) {
	case map[string]any:
		other, ok := out.(map[string]any)
		if s.value() && !sameValue(in, out, s) || !ok {
			m.add(in, out, s)
			return
		}
		if s.value() {
			return
		}
		for _, key := range sortedKeys(in) {
			if !m.part && len(m.at) == 0 && (key == "apiVersion" || key == "kind") {
				continue
			}
			m.at = append(m.at, key)
			value, ok := other[key]
			if field := s.at(key); ok {
				m.compare(in[key], value, field)
			} else if !isEmpty(in[key]) || m.tells(in[key], field, s.optionalAt(key)) {
				m.lose(difference{value: in[key], known: s == nil || field != nil})
			}
			m.at = m.at[:len(m.at)-1]
		}
	case []any:
		other, ok := out.([]any)
		if !ok || len(other) != len(in) {
			m.add(in, out, s)
			return
		}
		before := len(m.found)
		for i := range in {
			m.at = append(m.at, i)
			m.compare(in[i], other[i], s.ofElements())
			m.at = m.at[:len(m.at)-1]
		}
		if len(m.found) > before && s != nil && reordered(in, other, s.ofElements()) {
			m.found = m.found[:before]
		}
	default:
		if !sameValue(in, out, s) {
			m.add(in, out, s)
		}
	}
}

// tells reports whether an empty value says something that leaving it out would not: {}, as in emptyDir, and what is
// not known to be read into a Go value that is the same without it. A custom resource may tell false from nothing.
func (m *missing) tells(value any, field *shape, optional bool) bool {
	switch value.(type) {
	case nil:
		return false
	case map[string]any:
		return true
	default:
		return !m.part && (optional || field == nil)
	}
}

// reordered reports whether two lists of objects hold the same objects. Conversions that gather a list from several
// fields change its order; they do so only where the order means nothing, as among the metrics of an autoscaler.
func reordered(a, b []any, element *shape) bool {
	if element == nil || element.fields == nil {
		return false
	}
	// after[j] is the first of b behind the j-th that nothing of a was found for yet; both count from 1.
	after := make([]int, len(b)+1)
	for j := range after {
		after[j] = j + 1
	}
	tries := reorderTries * (len(a) + 100)
	for _, left := range a {
		before, at := 0, after[0]
		for ; at <= len(b) && !sameObject(left, b[at-1], element); before, at = at, after[at] {
			if tries--; tries < 0 {
				return false
			}
		}
		if at > len(b) {
			return false
		}
		after[before] = after[at]
	}
	return true
}

// reorderTries bounds how far apart the elements of lists may be that are taken for the same ones in another order: of
// very many that all change their places, what moved is named.
const reorderTries = 2

// sameObject reports whether each part of an object has what the other has.
func sameObject(a, b any, s *shape) bool {
	m := missing{part: true}
	m.compare(a, b, s)
	m.compare(b, a, s)
	return len(m.found) == 0
}

func (m *missing) add(in, out any, s *shape) {
	if isEmpty(in) && isEmpty(out) {
		return
	}
	m.lose(difference{value: in, known: true, now: out})
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
