package validate

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// refusedWord is a word in a schema of a CRD of v1beta1 because of which servers refuse the CRD.
type refusedWord struct {
	behaviour kubever.Behaviour // of those servers
	refuses   func(s schemaAt) []string
}

// schemaAt is a schema within a CRD.
type schemaAt struct {
	words  map[string]any
	at     *schemaPlace
	root   bool
	status bool // the CRD has the status subresource, where the schema counts
}

// refusedWords are what servers of v1beta1 refuse and those of v1 accept.
var refusedWords = []refusedWord{
	{kubever.BehaviourCRDAdditionalRefused, func(s schemaAt) []string {
		if other, ok := s.words["additionalProperties"]; ok && other != true {
			return []string{"additionalProperties"}
		}
		return nil
	}},
	{kubever.BehaviourCRDDefaultsRefused, func(s schemaAt) []string {
		if s.words["default"] != nil {
			return []string{"default"}
		}
		return nil
	}},
	{kubever.BehaviourCRDRootRefused, func(s schemaAt) (refused []string) {
		if !s.root || !s.status {
			return nil
		}
		for _, word := range slices.Sorted(maps.Keys(s.words)) {
			if word != "properties" && word != "required" && word != "description" && !empty(s.words[word]) {
				refused = append(refused, word)
			}
		}
		return refused
	}},
}

func empty(value any) bool { return value == nil || value == "" || value == false }

// wordsRefused finds the words of the schemas of a CRD of v1beta1 that servers of the minor refuse, in no order.
func wordsRefused(crd map[string]any, minor kubever.Minor, found func(s schemaAt, word, at string)) {
	var active []refusedWord
	for _, word := range refusedWords {
		if kubever.Behaves(word.behaviour, minor) {
			active = append(active, word)
		}
	}
	if len(active) == 0 {
		return
	}
	schemasOf(crd, func(s schemaAt) {
		for _, a := range active {
			for _, word := range a.refuses(s) {
				found(s, word, s.at.String()+"."+word)
			}
		}
	})
}

// withoutRefused drops from the schemas of a CRD of v1beta1 what servers of the minor refuse it for. Read is what they
// read of it: what they drop as a whole they do not refuse.
func withoutRefused(crd, read map[string]any, minor kubever.Minor) (losses []convert.Loss) {
	wordsRefused(heeded(crd, read), minor, func(s schemaAt, word, at string) {
		losses = append(losses, convert.Loss{Path: at, Value: s.words[word], Meaning: minor.String() + " refuses it"})
		delete(s.words, word)
	})
	slices.SortFunc(losses, func(a, b convert.Loss) int { return cmp.Compare(a.Path, b.Path) })
	return losses
}

// heeded is a CRD without the schemas that are not read. Those that are read it shares.
func heeded(crd, read map[string]any) map[string]any {
	spec, readSpec := maps.Clone(fields(crd["spec"])), fields(read["spec"])
	if readSpec["validation"] == nil {
		delete(spec, "validation")
	}
	readVersions := objectsIn(readSpec, "versions")
	var kept []any
	for i, version := range objectsIn(spec, "versions") {
		version = maps.Clone(version)
		if i >= len(readVersions) || readVersions[i]["schema"] == nil {
			delete(version, "schema")
		}
		kept = append(kept, version)
	}
	if kept != nil {
		spec["versions"] = kept
	}
	return map[string]any{"spec": spec}
}

// schemaPlace is where a schema stands. It costs little until it is printed.
type schemaPlace struct {
	parent *schemaPlace
	name   string // of a field, or of a list when it has an index
	index  int    // -1 for none
}

func (p *schemaPlace) String() string {
	if p == nil {
		return ""
	}
	text := p.parent.String()
	if text != "" {
		text += "."
	}
	text += p.name
	if p.index >= 0 {
		text += "[" + strconv.Itoa(p.index) + "]"
	}
	return text
}

// schemasOf visits the schemas of a CRD of v1beta1, each before those inside of it.
func schemasOf(crd map[string]any, visit func(s schemaAt)) {
	spec := fields(crd["spec"])
	hasStatus := func(subresources any) bool { return fields(subresources)["status"] != nil }
	versions, _ := spec["versions"].([]any)
	status := hasStatus(spec["subresources"])
	for _, version := range versions {
		status = status || hasStatus(fields(version)["subresources"])
	}
	walkSchema(schemaAt{fields(fields(spec["validation"])["openAPIV3Schema"]),
		&schemaPlace{nil, "spec.validation.openAPIV3Schema", -1}, true, status}, visit)
	for i, version := range versions {
		at := &schemaPlace{&schemaPlace{nil, "spec.versions", i}, "schema.openAPIV3Schema", -1}
		walkSchema(schemaAt{fields(fields(fields(version)["schema"])["openAPIV3Schema"]), at, true,
			hasStatus(spec["subresources"]) || hasStatus(fields(version)["subresources"])}, visit)
	}
}

func fields(value any) map[string]any {
	object, _ := value.(map[string]any)
	return object
}

func walkSchema(s schemaAt, visit func(s schemaAt)) {
	if s.words == nil {
		return
	}
	visit(s)
	for word, value := range s.words {
		switch word {
		case "properties", "patternProperties", "definitions", "dependencies":
			named := &schemaPlace{s.at, word, -1}
			for name, schema := range fields(value) {
				walkSchema(schemaAt{words: fields(schema), at: &schemaPlace{named, name, -1}}, visit)
			}
		case "items", "additionalProperties", "additionalItems", "not", "allOf", "anyOf", "oneOf":
			if one := fields(value); one != nil {
				walkSchema(schemaAt{words: one, at: &schemaPlace{s.at, word, -1}}, visit)
			}
			list, _ := value.([]any)
			for i, element := range list {
				walkSchema(schemaAt{words: fields(element), at: &schemaPlace{s.at, word, i}}, visit)
			}
		}
	}
}
