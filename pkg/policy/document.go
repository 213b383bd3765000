package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"sigs.k8s.io/yaml"
)

// member is a key of a JSON object with its value and the places of both.
type member struct {
	key            string
	value          json.RawMessage
	keyAt, valueAt int // byte offsets in the line
}

// column is the 1-based byte column of the key.
func (m member) column() int { return m.keyAt + 1 }

// members reads the JSON object that begins at the offset of the line. It returns the offset behind the object, so that
// the caller sees what follows.
func members(line []byte, offset int) ([]member, int, error) {
	decoder := json.NewDecoder(bytes.NewReader(line[offset:]))
	at := func() int { return offset + int(decoder.InputOffset()) }
	token, err := decoder.Token()
	if err != nil {
		return nil, 0, unexpectedEnd(err)
	}
	if token != json.Delim('{') {
		return nil, 0, errors.New("not a JSON object")
	}
	var all []member
	for decoder.More() {
		var m member
		m.keyAt = at() + skip(line[at():], " \t\r\n,")
		token, err := decoder.Token()
		if err != nil {
			return nil, 0, unexpectedEnd(err)
		}
		m.key, _ = token.(string) // keys are strings, or Token fails
		m.valueAt = at() + skip(line[at():], " \t\r\n:")
		if err := decoder.Decode(&m.value); err != nil {
			return nil, 0, unexpectedEnd(err)
		}
		all = append(all, m)
	}
	if _, err := decoder.Token(); err != nil {
		return nil, 0, unexpectedEnd(err)
	}
	return all, at(), nil
}

// unexpectedEnd makes an object that stops in its middle look the same whatever the decoder was doing.
func unexpectedEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func skip(text []byte, bytes string) int {
	n := 0
	for n < len(text) && strings.IndexByte(bytes, text[n]) >= 0 {
		n++
	}
	return n
}

// membersOf reads the fields of a line as the server does: as JSON, or else as YAML, of which no field has a place in
// the line. There are none in a line of another encoding.
func membersOf(line []byte) (all []member, isJSON bool) {
	all, _, err := members(line, skip(line, " \t\r\n"))
	if err == nil {
		return all, true
	}
	asJSON, err := yaml.YAMLToJSON(line)
	if err != nil {
		return nil, false
	}
	all, _, _ = members(asJSON, 0)
	return all, false
}

// inside lists the members of all objects that are values of the key, in their order: the server merges them. A null is
// none to it.
func inside(all []member, key string) []member {
	var merged []member
	for _, m := range all {
		if m.key != key {
			continue
		}
		inner, _, _ := members(m.value, 0)
		for i := range inner {
			inner[i].keyAt += m.valueAt
			inner[i].valueAt += m.valueAt
		}
		merged = append(merged, inner...)
	}
	return merged
}

func (m member) isNull() bool { return string(m.value) == "null" }

// find returns the member of the key that counts, and whether there is one: the last that is not null, which leaves a
// value as it is.
func find(all []member, key string) (member, bool) {
	return findBy(all, func(m member) bool { return m.key == key })
}

// findFold is find whatever the case of the key, as the server reads apiVersion and kind.
func findFold(all []member, key string) (member, bool) {
	return findBy(all, func(m member) bool { return strings.EqualFold(m.key, key) })
}

func findBy(all []member, is func(member) bool) (found member, ok bool) {
	for _, m := range all {
		if is(m) && (!ok || !m.isNull() || found.isNull()) {
			found, ok = m, true
		}
	}
	return found, ok
}
