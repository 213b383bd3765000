package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// FileSchema heads a plan in a file, as `fusionctl plan -o json` prints it.
const FileSchema = "fusionctl/plan/v1"

// document is a plan in a file.
type document struct {
	Schema string `json:"schema"`
	*Plan
}

// Format prints what of a plan a running component goes by: everything but the components, their files and the policy, which have files
// of their own and may hold what is nobody's business. Parse reads it.
func Format(p *Plan) ([]byte, error) {
	kept := *p
	kept.Components, kept.Kubeconfigs, kept.Certificates, kept.Policy.Grants, kept.Accept = nil, nil, nil, nil, nil
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	err := encoder.Encode(document{FileSchema, &kept})
	return out.Bytes(), err
}

// Parse reads a plan as JSON: what Format prints, and what `fusionctl plan -o json` does.
// Errors: another schema; a field that this fusionctl does not know, which a newer one may have meant something by; a plan without versions,
// stores or resources.
func Parse(data []byte) (*Plan, error) {
	p := &Plan{}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	d := document{Plan: p}
	if err := decoder.Decode(&d); err != nil {
		return nil, fmt.Errorf("reading a plan: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("reading a plan: something follows it")
	}
	switch {
	case d.Schema != FileSchema:
		return nil, fmt.Errorf("reading a plan: schema %q: want %s", d.Schema, FileSchema)
	case p.Legacy.Version.Minor == 0 || p.Modern.Version.Minor == 0 || len(p.Stores) == 0 || len(p.Resources) == 0:
		return nil, errors.New("reading a plan: it names no versions, no stores or no resources")
	}
	return p, nil
}
