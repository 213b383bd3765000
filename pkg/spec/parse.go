package spec

import (
	"reflect"

	"github.com/kubefusion/fusionctl/internal/strictyaml"
)

// Lines tells where the fields of a File stand in its text, so that a problem found later can still name its line.
type Lines = strictyaml.Lines

// Load reads a spec file: it decodes, fills the defaults and validates. This is the entry for everything that uses a
// spec. Errors: every problem is reported, joined, in the order of the lines; each starts with NAME:LINE and the field
// path. Safe for concurrent use.
func Load(name string, data []byte) (*File, error) {
	file, ps := parse(name, data)
	if file != nil {
		file.Default()
		validate(file, ps)
	}
	if err := ps.Err(); err != nil {
		return nil, err
	}
	return file, nil
}

// Parse decodes the text of a spec file, YAML or JSON, without filling defaults or judging values. Nothing is let
// through that a File cannot hold: unknown fields, duplicate keys, wrong types, a second document. Errors: every
// problem is reported, joined, each with NAME:LINE and the field path. The File is then what could be read, and the
// Lines know which of it to distrust; the File is nil when the text is not YAML or not a spec file at all. Safe for
// concurrent use.
func Parse(name string, data []byte) (*File, Lines, error) {
	file, ps := parse(name, data)
	return file, ps.Lines, ps.Err()
}

func parse(name string, data []byte) (*File, *strictyaml.Problems) {
	file := &File{}
	ps, ok := format.Decode(name, data, file)
	if !ok {
		return nil, ps
	}
	file.lines = ps.Lines
	return file, ps
}

// Errorf is a problem with a field that shows only later, in what follows from the file: it starts with NAME:LINE and
// the field path, or with the path alone when the file was made by a program.
func (f *File) Errorf(path, format string, args ...any) error {
	return f.lines.Errorf(path, format, args...)
}

// format is what a spec file has to be. Its bounds are far above what a control plane needs and keep hostile input
// cheap.
var format = strictyaml.Format{
	Noun: "spec", APIVersion: APIVersion, Kind: Kind, LimitBytes: 1 << 20, LimitFields: 50_000,
	// What a user of RBAC expects in a rule and the language of ABAC has no word for.
	Explain: map[reflect.Type]map[string]string{
		reflect.TypeFor[Access](): {
			"verbs": "ABAC does not distinguish verbs; readOnly: true allows get, list and watch, " +
				"otherwise every verb is allowed",
			"resourceNames": "ABAC does not distinguish names; a rule is about all objects of a resource in its " +
				"namespaces",
			"nonResourceURLs": "it is called nonResourcePaths, as in ABAC",
		},
	},
}
