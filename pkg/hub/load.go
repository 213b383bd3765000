package hub

import (
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/internal/yamltext"
)

// File is a named text.
type File struct {
	Name string
	Data []byte
}

// Load compiles all rules files among the files with the CRDs among them. Every CRD may have one rules file.
// Errors: every problem of every file, joined; no rules at all. Safe for concurrent use.
func Load(files []File) ([]*Converter, error) {
	var rules []*Rules
	var problems []error
	definitions := map[string]*Definition{}
	for _, file := range files {
		if isRules(file.Data) {
			r, err := Parse(file.Name, file.Data)
			if err != nil {
				problems = append(problems, err)
				continue
			}
			rules = append(rules, r)
			continue
		}
		found, err := ParseDefinitions(file.Name, file.Data)
		if err != nil {
			problems = append(problems, err)
		}
		for _, d := range found {
			if definitions[d.Name] != nil {
				problems = append(problems, fmt.Errorf("%s: the CRD %s is in another file too", file.Name, d.Name))
			}
			definitions[d.Name] = d
		}
	}
	if len(rules) == 0 && len(problems) == 0 {
		problems = append(problems, fmt.Errorf("no rules: want files with kind: %s, and the CRDs that they are of",
			Kind))
	}
	var converters []*Converter
	of := map[string]string{}
	for _, r := range rules {
		switch d := definitions[r.Spec.CRD]; {
		case of[r.Spec.CRD] != "":
			problems = append(problems, fmt.Errorf("%s: %s has rules in %s", r.name, r.Spec.CRD, of[r.Spec.CRD]))
		case d == nil:
			problems = append(problems, fmt.Errorf("%s: spec.crd: %q: no file has this CRD", r.name, r.Spec.CRD))
		default:
			c, err := New(r, d)
			problems = append(problems, err)
			converters = append(converters, c)
		}
		of[r.Spec.CRD] = r.name
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return converters, nil
}

// isRules reports whether a file means to be a rules file: its only document says so, or says nothing else that is
// known.
func isRules(data []byte) bool {
	var header struct {
		Kind string `json:"kind"`
	}
	// Of a broken file, or one with several documents, the parser that it means says more.
	return yamltext.BoundAliases(data) == nil && yaml.Unmarshal(data, &header) == nil && header.Kind == Kind
}
