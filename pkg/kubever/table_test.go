package kubever

import (
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// decoders decode every table anew.
var decoders = map[string]func(){
	"access.tsv":               func() { decodeControllers() },
	"admission-order.tsv":      func() { decodeAdmissionOrder() },
	"admission.tsv":            func() { decodeAdmission() },
	"allocators.tsv":           func() { decodeAllocators() },
	"api.tsv":                  func() { decodeAPI() },
	"api-by-name.tsv":          func() { decodeByName() },
	"authorization.tsv":        func() { decodeAuthorization() },
	"annotations.tsv":          func() { decodeAnnotations() },
	"behaviours.tsv":           func() { decodeBehaviours() },
	"controllers.tsv":          func() { decodeControllers() },
	"api-deprecated.tsv":       func() { decodeDeprecated() },
	"crd-fields.tsv":           func() { decodeCRDFields() },
	"deprecations.tsv":         func() { decodeFlags() },
	"encryption-providers.tsv": func() { encryptionTable() },
	"etcd-servers.tsv":         func() { etcdServerTable() },
	"etcd.tsv":                 func() { etcdTable() },
	"field-gates.tsv":          func() { decodeFieldGates() },
	"fields.tsv":               func() { decodeFields() },
	"flags.tsv":                func() { decodeFlags() },
	"flag-aliases.tsv":         func() { decodeAliases() },
	"flag-values.tsv":          func() { decodeFlags() },
	"garbage.tsv":              func() { decodeGarbage() },
	"gates-first.tsv":          func() { decodeGates() },
	"gates-only.tsv":           func() { decodeGates() },
	"gates.tsv":                func() { decodeGates() },
	"implied.tsv":              func() { decodeImplied() },
	"kinds.tsv":                func() { decodeKinds() },
	"labels.tsv":               func() { decodeNodeLabels() },
	"locks.tsv":                func() { decodeLocks() },
	"moved.tsv":                func() { decodeMoved() },
	"handover.tsv":             func() { handOverTable() },
	"owners.tsv":               func() { decodeOwners() },
	"patches.tsv":              func() { decodePatches() },
	"reconcilers.tsv":          func() { decodeReconcilers() },
	"releases.tsv":             func() { decodeReleases() },
	"required.tsv":             func() { decodeRequired() },
	"resources.tsv":            func() { decodeResources() },
	"short-names.tsv":          func() { decodeShortNames() },
	"startup.tsv":              func() { decodeStartupWrites() },
	"values.tsv":               func() { decodeValues() },
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
		"a\t5-9\n":               "x.tsv:1: \"5\" is not a minor from 6 to 37",
		"a\tsix\n":               "x.tsv:1: \"six\" is not a minor from 6 to 37",
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
		{"v1.PodSpec", "topologySpreadConstraints", "1.16-1.37"},
		{"v1.PodSpec", "containers", "1.6-1.37"},
		{"v1.Container", "startupProbe", "1.16-1.37"},
		{"v1.VolumeProjection", "serviceAccountToken", "1.11-1.37"},
		{"v1.NodeSelectorTerm", "matchFields", "1.11-1.37"},
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

// Every required field is one that its minors know.
func TestRequiredFieldsAreKnown(t *testing.T) {
	for at, minors := range requiredTable() {
		for _, m := range Minors() {
			if minors.Has(m) && FieldType(at.typeName, at.field, m) == "" {
				t.Errorf("required.tsv: %s has no field %s.%s", m, at.typeName, at.field)
			}
		}
	}
	if rules := Required("rbac.v1.Role", "rules"); !rules.Has(10) || rules.Has(15) {
		t.Errorf("rules of a Role are required in %v, want up to 1.14", rules)
	}
}

// Every gate of a field is one, and is off by default in some minor that has the field.
func TestFieldGatesDisableFields(t *testing.T) {
	for at, gates := range fieldGateTable() {
		disabled := map[string]bool{}
		for _, m := range Minors() {
			if gate, off := DisabledField(at.typeName, at.field, m); off && FieldType(at.typeName, at.field, m) != "" {
				disabled[gate.Name] = true
				if gate.Source == "" {
					t.Errorf("field-gates.tsv: %s.%s has no source", at.typeName, at.field)
				}
			}
		}
		for _, gate := range gates {
			if !disabled[gate.Name] {
				t.Errorf("field-gates.tsv: no minor has %s.%s and its gate %s off", at.typeName, at.field, gate.Name)
			}
		}
	}
	for m, want := range map[Minor]bool{32: false, 33: true, 36: true} {
		if _, off := DisabledField("v1.Lifecycle", "stopSignal", m); off != want {
			t.Errorf("the gate of stopSignal is off in %s: %t, want %t", m, off, want)
		}
	}
}

// What the sources of releases drop or forbid while a feature gate is off is in the table, or named here as something
// else. test/convertdiff reads the sources.
func TestFieldGatesAreThoseOfTheSources(t *testing.T) {
	text, err := os.ReadFile("testdata/disabled-fields.tsv")
	if err != nil {
		t.Fatal(err)
	}
	byName, byType, byGate := map[string][]typedField{}, map[typedField][]FieldGate{}, map[string]bool{}
	for at, gates := range fieldGateTable() {
		byType[at] = gates
		for _, gate := range gates {
			byGate[gate.Name] = true
			name := gate.Name + " " + strings.ToLower(at.field)
			byName[name] = append(byName[name], at)
		}
	}
	known := func(gate, what, where, field string, minor Minor) bool {
		if what == "marked" {
			at := typedField{where, field}
			if FieldType(where, field, minor) == "" { // another version of the group is served
				return true
			}
			return slices.ContainsFunc(byType[at], func(g FieldGate) bool { return g.Name == gate })
		}
		if field == "." { // the place is a parameter
			return byGate[gate]
		}
		return slices.ContainsFunc(byName[gate+" "+strings.ToLower(field)], func(at typedField) bool {
			_, off := DisabledField(at.typeName, at.field, minor)
			return off || FieldType(at.typeName, at.field, minor) == ""
		})
	}
	used, lines := map[string]bool{}, 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		lines++
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		gate, what, where, field := columns[0], columns[1], columns[2], columns[3]
		_, function, _ := strings.Cut(where, ".go:")
		if strings.Contains(function, "Status") || strings.HasSuffix(where, "Status") || // servers fill it in
			slices.Contains([]string{"DeviceRequestAllocationResult", "AllocationResult", "VolumeError", "PodCondition",
				"NodeRuntimeHandlerFeatures"}, where[strings.LastIndexByte(where, '.')+1:]) ||
			strings.Contains(function, "Update") { // the same as on creation, or about what is there
			continue
		}
		if why := otherwise[gate+" "+field]; why != "" {
			used[gate+" "+field] = true
			continue
		}
		for _, span := range (row{}).parseRanges(columns[4]) {
			for minor := span.From; minor <= span.To; minor++ {
				if !known(gate, what, where, field, minor) {
					t.Errorf("%s: %s %s while %s is off (%s), and field-gates.tsv does not say so", minor, field, what,
						gate, where)
				}
			}
		}
	}
	for name := range otherwise {
		if !used[name] {
			t.Errorf("no source has %q any more", name)
		}
	}
	if lines < 200 {
		t.Errorf("%d lines, want those of all releases", lines)
	}
}

// otherwise are conditions on feature gates in the sources that are no fields which are dropped or refused.
var otherwise = map[string]string{
	"AuthorizeWithSelectors FieldSelectorParsingErr":   "of an authorization request, not of an object",
	"AuthorizeWithSelectors FieldSelectorRequirements": "of an authorization request, not of an object",
	"AuthorizeWithSelectors LabelSelectorParsingErr":   "of an authorization request, not of an object",
	"AuthorizeWithSelectors LabelSelectorRequirements": "of an authorization request, not of an object",
	"ContainerRestartRules state":                      "in the status",
	"CoordinatedLeaderElection preferredStrategies":    "its kind is served with the gate alone",
	"CoordinatedLeaderElection strategy":               "LeaseCandidates need the gate anyway; Leases have rows",
	"CrossNamespaceVolumeDataSource DataSourceRef":     "when it names a namespace: pkg/convert looks",
	"CrossNamespaceVolumeDataSource namespace":         "all of dataSourceRef is dropped: pkg/convert looks",
	"DRAConsumableCapacity ConsumedCapacity":           "in the status",
	"DRAConsumableCapacity ShareID":                    "in the status",
	"DRAConsumableCapacity expression":                 "what an expression may call, not the field",
	"DRADeviceBindingConditions AllocationTimestamp":   "in the status",
	"DRAControlPlaneController DeallocationRequested":  "in the status",
	"DRAListTypeAttributes BoolValues":                 "bools in the versions",
	"DRAListTypeAttributes IntValues":                  "ints in the versions",
	"DRAListTypeAttributes StringValues":               "strings in the versions",
	"DRAListTypeAttributes VersionValues":              "versions in the versions",
	"DRAListTypeAttributes expression":                 "what an expression may call, not the field",
	"DynamicKubeletConfig Config":                      "in the status",
	"EndpointSliceNodeName Serving":                    "behind another gate, below the same return",
	"EndpointSliceNodeName Terminating":                "behind another gate, below the same return",
	"EndpointSliceTerminatingCondition Hints":          "behind another gate, below the same return",
	"EndpointSliceTerminatingCondition NodeName":       "behind another gate, below the same return",
	"HPAScaleToZero MinReplicasLowerBound":             "an option of the validation",
	"HugePages .":                                      "names of resources: values.tsv",
	"HugePages medium":                                 "one value: values.tsv",
	"LocalStorageCapacityIsolation .":                  "names of resources: values.tsv",
	"MixedProtocolLBService Conditions":                "in the status",
	"MixedProtocolLBService Ports":                     "in the status",
	"NodeDeclaredFeatures DeclaredFeatures":            "in the status",
	"PreferSameTrafficDistribution Hints":              "behind another gate, below the same return",
	"RecursiveReadOnlyMounts RuntimeHandlers":          "in the status",
	"SupplementalGroupsPolicy Features":                "in the status",
	"TopologyAwareHints Serving":                       "behind another gate, below the same return",
	"TopologyAwareHints Terminating":                   "behind another gate, below the same return",
	"UserNamespacesSupport RuntimeHandlers":            "in the status",
	"SidecarContainers RestartPolicy":                  "of init containers alone: pkg/convert looks",
	"SidecarContainers restartPolicy":                  "of init containers alone: pkg/convert looks",
}
