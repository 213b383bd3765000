package kubever

import (
	"io/fs"
	"strings"
	"testing"
	"time"
)

// decoders decode every table anew.
var decoders = map[string]func(){
	"access.tsv":          func() { decodeControllers() },
	"admission-order.tsv": func() { decodeAdmissionOrder() },
	"admission.tsv":       func() { decodeAdmission() },
	"allocators.tsv":      func() { decodeAllocators() },
	"api.tsv":             func() { decodeAPI() },
	"authorization.tsv":   func() { decodeAuthorization() },
	"annotations.tsv":     func() { decodeAnnotations() },
	"behaviours.tsv":      func() { decodeBehaviours() },
	"controllers.tsv":     func() { decodeControllers() },
	"api-deprecated.tsv":  func() { decodeDeprecated() },
	"crd-fields.tsv":      func() { decodeCRDFields() },
	"deprecations.tsv":    func() { decodeFlags() },
	"field-gates.tsv":     func() { decodeFieldGates() },
	"fields.tsv":          func() { decodeFields() },
	"flags.tsv":           func() { decodeFlags() },
	"flag-aliases.tsv":    func() { decodeAliases() },
	"garbage.tsv":         func() { decodeGarbage() },
	"gates-first.tsv":     func() { decodeGates() },
	"gates-only.tsv":      func() { decodeGates() },
	"gates.tsv":           func() { decodeGates() },
	"implied.tsv":         func() { decodeImplied() },
	"kinds.tsv":           func() { decodeKinds() },
	"labels.tsv":          func() { decodeNodeLabels() },
	"locks.tsv":           func() { decodeLocks() },
	"moved.tsv":           func() { decodeMoved() },
	"handover.tsv":        func() { handOverTable() },
	"owners.tsv":          func() { decodeOwners() },
	"reconcilers.tsv":     func() { decodeReconcilers() },
	"releases.tsv":        func() { decodeReleases() },
	"resources.tsv":       func() { decodeResources() },
	"short-names.tsv":     func() { decodeShortNames() },
	"startup.tsv":         func() { decodeStartupWrites() },
	"values.tsv":          func() { decodeValues() },
}

func TestEveryTableDecodes(t *testing.T) {
	files, err := fs.Glob(tables, "tables/*.tsv")
	if err != nil || len(files) == 0 {
		t.Fatalf("no embedded tables: %v", err)
	}
	for _, file := range files {
		name := strings.TrimPrefix(file, "tables/")
		decode, ok := decoders[name]
		if !ok {
			t.Errorf("%s is embedded and nothing reads it", name)
			continue
		}
		decode() // a malformed table panics with its line
		text, _ := tables.ReadFile(file)
		if header := string(text); !strings.HasPrefix(header, "# ") || !strings.Contains(header, "\n# source: ") {
			t.Errorf("%s does not name its columns and its source", name)
		}
	}
	for typeName, rows := range fieldTable() {
		for _, r := range rows { // parsed when asked for
			if len(timeline(r, 2, verbatim)) == 0 {
				t.Errorf("%s.%s has no minors", typeName, r.text(1))
			}
		}
	}
	for _, m := range Minors() {
		if Release(m) == "" {
			t.Errorf("no release was read for %s", m)
		}
	}
}

func TestMalformedTablesPanicWithTheirLine(t *testing.T) {
	for text, want := range map[string]string{
		"a\t6-9":                 "x.tsv:1: the last line does not end",
		"# head\na\t6-9\tmore\n": "x.tsv:2: want 2 columns, found 3",
		"a\t9-6\n":               "x.tsv:1: minors \"9-6\" do not ascend",
		"a\t6-9,10\n":            "x.tsv:1: minors \"6-9,10\" do not ascend", // touching spans are one span
		"a\t5-9\n":               "x.tsv:1: \"5\" is not a minor from 6 to 36",
		"a\tsix\n":               "x.tsv:1: \"six\" is not a minor from 6 to 36",
	} {
		got := panicOf(func() {
			for _, r := range splitTable("x.tsv", text, 2) {
				r.ranges(1)
			}
		})
		if got != "kubever: internal error: "+want {
			t.Errorf("%q: panic %q, want %q", text, got, want)
		}
	}
	r := row{table: "x.tsv", line: 7, fields: []string{"maybe", "6-9=a 8=b", "6-9", "a/b/c"}}
	for want, read := range map[string]func(){
		`column 1: want yes or -, found "maybe"`: func() { r.yes(0) },
		`"8=b": a minor has two values`:          func() { timeline(r, 1, verbatim) },
		`"6-9": want minors=value`:               func() { timeline(r, 2, verbatim) },
		`"a/b/c" is not a group and version`:     func() { r.groupVersion(3) },
	} {
		if got := panicOf(read); got != "kubever: internal error: x.tsv:7: "+want {
			t.Errorf("panic %q, want %q with its line", got, want)
		}
	}
}

func panicOf(f func()) (message string) {
	defer func() { message, _ = recover().(string) }()
	f()
	return ""
}

// A verb has 100 ms for everything; the tables, all of them, may take a small part of it.
func BenchmarkDecodeEveryTable(b *testing.B) {
	const bound = 40 * time.Millisecond
	for b.Loop() {
		for _, decode := range decoders {
			decode()
		}
	}
	if took := b.Elapsed() / time.Duration(b.N); took > bound {
		b.Errorf("decoding every table takes %v, want less than %v", took, bound)
	}
}

func TestFieldsPerMinor(t *testing.T) {
	for _, tc := range []struct {
		typeName, field, want string
	}{
		{"v1.PodSpec", "topologySpreadConstraints", "1.16-1.36"},
		{"v1.PodSpec", "containers", "1.6-1.36"},
		{"v1.Container", "startupProbe", "1.16-1.36"},
		{"v1.VolumeProjection", "serviceAccountToken", "1.11-1.36"},
		{"v1.NodeSelectorTerm", "matchFields", "1.11-1.36"},
		{"v1.PodSpec", "noSuchField", "never"},
		{"v1.NoSuchType", "containers", "never"},
	} {
		if got := Field(tc.typeName, tc.field).String(); got != tc.want {
			t.Errorf("Field(%s, %s) = %s, want %s", tc.typeName, tc.field, got, tc.want)
		}
	}
	if got := FieldType("v1.Container", "startupProbe", 16); got != "v1.Probe" {
		t.Errorf("FieldType(v1.Container, startupProbe, 1.16) = %q, want v1.Probe", got)
	}
	if got := FieldType("v1.Container", "startupProbe", 15); got != "" {
		t.Errorf("FieldType(v1.Container, startupProbe, 1.15) = %q, want nothing", got)
	}
	if got := Fields("v1.PodList", 6); strings.Join(got, " ") != "apiVersion items kind metadata" {
		t.Errorf("Fields(v1.PodList, 1.6) = %v", got)
	}
	for given, want := range map[string]string{"[]v1.Container": "v1.Container", "map[string][]string": "string",
		"v1.Probe": "v1.Probe"} {
		if got := ElementType(given); got != want {
			t.Errorf("ElementType(%s) = %s, want %s", given, got, want)
		}
	}
}

// Every type that a field has must be described at the same minor, or pod specs could not be walked down.
func TestFieldTypesAreDescribed(t *testing.T) {
	for _, m := range Minors() {
		for _, start := range []string{"v1.Pod", "v1.Service", "v1.Node"} {
			seen := map[string]bool{}
			var walk func(string)
			walk = func(typeName string) {
				if seen[typeName] {
					return
				}
				seen[typeName] = true
				for _, field := range Fields(typeName, m) {
					walk(ElementType(FieldType(typeName, field, m)))
				}
			}
			walk(start)
			if len(seen) < 10 {
				t.Errorf("%s of %s reaches only %d types", start, m, len(seen))
			}
		}
	}
}

// Every value that came late is of a field that some minor describes.
func TestLateValuesAreOfFields(t *testing.T) {
	for at := range valueTable() {
		if len(Field(at.typeName, at.field)) == 0 {
			t.Errorf("values.tsv: no minor has %s.%s", at.typeName, at.field)
		}
	}
	if sctp := LateValues("v1.ServicePort", "protocol")["SCTP"]; sctp.Has(18) || !sctp.Has(19) {
		t.Errorf("SCTP is accepted by %v, want 1.19 and later", sctp)
	}
}

// Every gate of a field is one, and is off by default in some minor that has the field.
func TestFieldGatesDisableFields(t *testing.T) {
	for at := range fieldGateTable() {
		var disabled []Minor
		for _, m := range Minors() {
			if gate, off := DisabledField(at.typeName, at.field, m); off && FieldType(at.typeName, at.field, m) != "" {
				disabled = append(disabled, m)
				if gate.Source == "" {
					t.Errorf("field-gates.tsv: %s.%s has no source", at.typeName, at.field)
				}
			}
		}
		if len(disabled) == 0 {
			t.Errorf("field-gates.tsv: no minor has %s.%s and its gate off", at.typeName, at.field)
		}
	}
	for m, want := range map[Minor]bool{32: false, 33: true, 36: true} {
		if _, off := DisabledField("v1.Lifecycle", "stopSignal", m); off != want {
			t.Errorf("the gate of stopSignal is off in %s: %t, want %t", m, off, want)
		}
	}
}
