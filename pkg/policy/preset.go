package policy

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/kubefusion/fusionctl/internal/spelling"
)

// Preset is what common software needs from a policy: the resources that its CustomResourceDefinitions bring, and those
// of Kubernetes that its installation writes besides.
type Preset struct {
	Name      string           `json:"name"`
	Title     string           `json:"title"`
	Source    string           `json:"source"`    // where the names were read
	Resources []PresetResource `json:"resources"` // sorted
	Also      []PresetResource `json:"also,omitempty"`
}

// PresetResource is one resource of a preset.
type PresetResource struct {
	APIGroup   string `json:"apiGroup"`
	Resource   string `json:"resource"`
	Namespaced bool   `json:"namespaced"`
}

//go:embed presets/presets.txt
var presetText string

var presetTable = sync.OnceValue(func() []Preset {
	presets, err := parsePresets(presetText)
	if err != nil {
		panic("policy: internal error: " + err.Error()) // the file is embedded and tested
	}
	return presets
})

// Presets lists all presets by name.
func Presets() []Preset { return slices.Clone(presetTable()) }

// PresetNamed finds a preset. The error of an unknown name lists the known ones, or the one that was probably meant.
func PresetNamed(name string) (Preset, error) {
	var names []string
	for _, p := range presetTable() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	if near, ok := spelling.Nearest(name, names); ok {
		return Preset{}, fmt.Errorf("preset %q: no such preset; did you mean %s?", name, near)
	}
	return Preset{}, fmt.Errorf("preset %q: want one of %s", name, strings.Join(names, ", "))
}

// APIGroups lists the groups that the software's own resources are in.
func (p Preset) APIGroups() []string {
	groups := map[string]bool{}
	for _, r := range p.Resources {
		groups[r.APIGroup] = true
	}
	return slices.Sorted(maps.Keys(groups))
}

// Grants allows the subjects everything in the software's own groups, in all namespaces, and to write what its
// installation writes besides.
func (p Preset) Grants(subjects []Subject) []Grant {
	grants := []Grant{{
		Subjects: subjects, APIGroups: p.APIGroups(), Resources: []string{"*"}, Namespaces: []string{"*"},
		Why: fmt.Sprintf("Preset %s: %s.", p.Name, p.Title),
	}}
	byGroup := map[string][]string{}
	for _, r := range p.Also {
		byGroup[r.APIGroup] = append(byGroup[r.APIGroup], r.Resource)
	}
	for _, group := range slices.Sorted(maps.Keys(byGroup)) {
		grants = append(grants, Grant{
			Subjects: subjects, APIGroups: []string{group}, Resources: byGroup[group], Namespaces: []string{"*"},
			Why: fmt.Sprintf("Preset %s: what its installation also writes.", p.Name),
		})
	}
	return grants
}

// parsePresets reads the embedded table; its comment describes the format.
func parsePresets(text string) ([]Preset, error) {
	var presets []Preset
	also := false
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if head, ok := strings.CutPrefix(line, "preset "); ok {
			name, title, found := strings.Cut(head, ": ")
			if !found {
				return nil, fmt.Errorf("presets.txt:%d: want \"preset NAME: TITLE\"", number)
			}
			presets = append(presets, Preset{Name: name, Title: title})
			also = false
			continue
		}
		if len(presets) == 0 {
			return nil, fmt.Errorf("presets.txt:%d: want a preset first", number)
		}
		preset := &presets[len(presets)-1]
		if source, ok := strings.CutPrefix(line, "from: "); ok {
			preset.Source = source
			continue
		}
		if line == "also" {
			also = true
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != 3 || (fields[2] != "Namespaced" && fields[2] != "Cluster") {
			return nil, fmt.Errorf("presets.txt:%d: want GROUP, RESOURCE, SCOPE", number)
		}
		resource := PresetResource{APIGroup: fields[0], Resource: fields[1], Namespaced: fields[2] == "Namespaced"}
		if also {
			preset.Also = append(preset.Also, resource)
		} else {
			preset.Resources = append(preset.Resources, resource)
		}
	}
	return presets, nil
}
