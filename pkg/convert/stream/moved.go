package stream

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/internal/yamltext"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// ParseMoved reads a file of kinds that moved, for Check.Moved.
// Shape: pluto's versions.yaml, {"deprecated-versions": [{"version": "cert-manager.io/v1alpha2", "kind": "Issuer",
// "deprecated-in": "v1.4", "removed-in": "v1.6", "replacement-api": "cert-manager.io/v1", "component": "cm"}]}.
// Errors: what is no YAML of this shape, with fields of no other name; a row without version and component.
func ParseMoved(text []byte) ([]kubever.Moved, error) {
	var file struct {
		Rows []struct {
			Version     string `json:"version"`
			Kind        string `json:"kind"`
			Deprecated  string `json:"deprecated-in"`
			Removed     string `json:"removed-in"`
			Replacement string `json:"replacement-api"`
			Available   string `json:"replacement-available-in"`
			Component   string `json:"component"`
			Source      string `json:"source"`
		} `json:"deprecated-versions"`
		Targets map[string]string `json:"target-versions"`
	}
	if err := yamltext.BoundAliases(text); err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, err
	}
	var moved []kubever.Moved
	for i, row := range file.Rows {
		gv, err := schema.ParseGroupVersion(row.Version)
		if err != nil || gv.Version == "" || row.Component == "" {
			return nil, fmt.Errorf("deprecated-versions[%d]: want version and component", i)
		}
		if row.Component == "k8s" {
			row.Component = "kubernetes"
		}
		moved = append(moved, kubever.Moved{
			GroupVersion: gv, Kind: row.Kind, Project: row.Component,
			Deprecated: strings.TrimPrefix(row.Deprecated, "v"),
			Removed:    strings.TrimPrefix(row.Removed, "v"), Replacement: row.Replacement, Source: row.Source,
		})
	}
	return moved, nil
}
