package transition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Schema heads a file of steps, as `fusionctl transition plan --out` writes it.
const Schema = "fusionctl/transition/v1"

// document is a transition in a file.
type document struct {
	Schema string `json:"schema"`
	*Transition
}

// Marshal writes a file of steps. Shape: one line of JSON.
func (t *Transition) Marshal() ([]byte, error) {
	data, err := json.Marshal(document{Schema, t})
	return append(data, '\n'), err
}

// Parse reads what Marshal writes, and validates it. Errors: another schema; a field that this fusionctl does
// not know, which a newer one may have meant something by; those of Validate.
func Parse(data []byte) (*Transition, error) {
	var head struct {
		Schema string `json:"schema"`
	}
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&head); err != nil || head.Schema != Schema {
		return nil, errors.New("is no file of steps")
	}
	t := &Transition{}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&document{Transition: t}); err != nil {
		return nil, fmt.Errorf("reading the steps: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("reading the steps: trailing data")
	}
	if err := t.Validate(); err != nil {
		return nil, err
	}
	return t, nil
}
