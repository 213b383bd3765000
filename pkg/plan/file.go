package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// FileSchema heads a plan in a file, as `fusionctl plan -o json` prints it.
const FileSchema = "fusionctl/plan/v1"

// document is a plan in a file.
type document struct {
	Schema string `json:"schema"`
	*Plan
}

// Format prints what of a plan a running component goes by. The components, their files and the policy have files of
// their own, and may hold secrets; of the API servers it has the arguments that decide what their answers are worth.
// Parse reads it.
func Format(p *Plan) ([]byte, error) {
	kept := *p
	kept.TokenKey, kept.Kubelets, kept.Unprovided, kept.AuditPolicyFile = nil, nil, nil, ""
	kept.Components, kept.Kubeconfigs, kept.Certificates, kept.Policy.Grants, kept.Accept = answering(p.Components),
		nil, nil, nil, nil
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	err := encoder.Encode(document{FileSchema, &kept})
	return out.Bytes(), err
}

// answering are the API servers, with nothing but the arguments that decide which resources they serve, and how fresh
// what they answer is.
func answering(components []Component) []Component {
	var servers []Component
	for _, c := range components {
		if c.Kind != kubever.APIServer {
			continue
		}
		server := Component{Host: c.Host, Side: c.Side, Kind: c.Kind, Name: c.Name, Version: c.Version}
		for _, a := range c.Args {
			if name := kubever.FlagName(a.Name); name == "runtime-config" || name == quorumReadFlag {
				server.Args = append(server.Args, a)
			}
		}
		servers = append(servers, server)
	}
	return servers
}

// Parse reads a plan as JSON: what Format prints, and what `fusionctl plan -o json` does. Errors: another schema; a
// field that this fusionctl does not know, which a newer one may have meant something by; a plan without versions,
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
		return nil, errors.New("reading a plan: trailing data")
	}
	switch {
	case d.Schema != FileSchema:
		return nil, fmt.Errorf("reading a plan: schema %q: want %s", d.Schema, FileSchema)
	case p.Legacy.Version.Minor == 0 || p.Modern.Version.Minor == 0 || len(p.Stores) == 0 || len(p.Resources) == 0:
		return nil, errors.New("reading a plan: it names no versions, no stores or no resources")
	}
	return p, nil
}
