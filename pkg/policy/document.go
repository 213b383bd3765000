package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
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

// find returns the last member of the key, which is the one that counts, and whether there is one.
func find(all []member, key string) (member, bool) {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].key == key {
			return all[i], true
		}
	}
	return member{}, false
}

// findFold is find whatever the case of the key, as the server reads apiVersion and kind.
func findFold(all []member, key string) (member, bool) {
	for i := len(all) - 1; i >= 0; i-- {
		if strings.EqualFold(all[i].key, key) {
			return all[i], true
		}
	}
	return member{}, false
}
