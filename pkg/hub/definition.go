package hub

import (
	"errors"
	"fmt"
	"slices"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/internal/crdfile"
)

// Definition is what conversion needs of a CustomResourceDefinition, of apiextensions.k8s.io/v1 or v1beta1.
type Definition struct {
	Name       string // plural.group
	Group      string
	Kind       string
	Namespaced bool
	Schemas    map[string]*Schema // by version, each with one
	Storage    string             // the version that is stored
}

// crd is the wire form; v1beta1 may say once for all versions what v1 says for each.
type crd struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Group string `json:"group"`
		Scope string `json:"scope"`
		Names struct {
			Kind string `json:"kind"`
		} `json:"names"`
		Version               string       `json:"version"`
		Versions              []crdVersion `json:"versions"`
		Validation            *crdSchema   `json:"validation"`
		PreserveUnknownFields *bool        `json:"preserveUnknownFields"`
	} `json:"spec"`
}

type crdVersion struct {
	Name    string     `json:"name"`
	Storage bool       `json:"storage"`
	Schema  *crdSchema `json:"schema"`
}

type crdSchema struct {
	Schema map[string]any `json:"openAPIV3Schema"`
}

const (
	crdV1      = "apiextensions.k8s.io/v1"
	crdV1beta1 = "apiextensions.k8s.io/v1beta1"
)

// ParseDefinitions reads the CRDs of a YAML or JSON text: documents, or a List of them. Documents of other kinds are
// left out. Errors name the text and the CRD. Safe for concurrent use.
func ParseDefinitions(name string, data []byte) ([]*Definition, error) {
	var definitions []*Definition
	err := crdfile.Read(data, func(text []byte) error {
		var c crd
		if err := utiljson.Unmarshal(text, &c); err != nil {
			return err
		}
		d, err := newDefinition(c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Metadata.Name, err)
		}
		definitions = append(definitions, d)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return definitions, nil
}

func newDefinition(c crd) (*Definition, error) {
	preserve := c.APIVersion == crdV1beta1 // its default
	switch {
	case c.APIVersion != crdV1 && c.APIVersion != crdV1beta1:
		return nil, fmt.Errorf("apiVersion %q: want %s or %s", c.APIVersion, crdV1, crdV1beta1)
	case c.Metadata.Name == "" || c.Spec.Group == "" || c.Spec.Names.Kind == "":
		return nil, errors.New("want metadata.name, spec.group and spec.names.kind")
	}
	if c.Spec.PreserveUnknownFields != nil {
		preserve = *c.Spec.PreserveUnknownFields
	}
	versions := c.Spec.Versions
	if len(versions) == 0 && c.Spec.Version != "" {
		versions = []crdVersion{{Name: c.Spec.Version, Storage: true}}
	}
	d := &Definition{Name: c.Metadata.Name, Group: c.Spec.Group, Kind: c.Spec.Names.Kind,
		Namespaced: c.Spec.Scope != "Cluster", Schemas: map[string]*Schema{}}
	for _, version := range versions {
		own := version.Schema
		if own == nil || own.Schema == nil {
			own = c.Spec.Validation
		}
		if own == nil || own.Schema == nil {
			d.Schemas[version.Name] = nil
			continue
		}
		s, err := newSchema(own.Schema, preserve)
		if err != nil {
			return nil, fmt.Errorf("version %s: %w", version.Name, err)
		}
		d.Schemas[version.Name] = s
		if version.Storage {
			d.Storage = version.Name
		}
	}
	return d, nil
}

// Versions lists the names of the versions, sorted.
func (d *Definition) Versions() []string {
	names := make([]string, 0, len(d.Schemas))
	for name := range d.Schemas {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
