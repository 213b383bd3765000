package stream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// documents makes YAML documents as they are read, and counts them.
type documents struct {
	wanted, made int
	rest         []byte
}

func (d *documents) Read(p []byte) (int, error) {
	for len(d.rest) < len(p) && d.made < d.wanted {
		d.made++
		d.rest = fmt.Appendf(d.rest, "---\napiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {name: "+
			"n-%d}\n"+
			"spec: {minAvailable: 1, selector: {matchLabels: {app: a}}}\n", d.made)
	}
	if len(d.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, d.rest)
	d.rest = append(d.rest[:0], d.rest[n:]...)
	return n, nil
}

// Of a stream of 100,000 documents no more is read ahead than the workers and the buffer hold, and no more is kept.
func TestStreamsOfAnyLengthAreBounded(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	wanted := 100_000
	if testing.Short() {
		wanted = 10_000
	}
	const documentBytes = 130
	aheadLimit := 2*(1<<16)/documentBytes + 8*runtime.GOMAXPROCS(0)
	run := func(name string, through func(in io.Reader, emit func() error) error) {
		in := &documents{wanted: wanted}
		emitted, most := 0, uint64(0)
		var before runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		err := through(in, func() error {
			if emitted++; in.made-emitted > aheadLimit {
				return fmt.Errorf("%d documents were read and %d handed on", in.made, emitted)
			}
			if emitted%(wanted/4) == 0 {
				var now runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapAlloc)
			}
			return nil
		})
		if err != nil || emitted != wanted {
			t.Errorf("%s: %d documents of %d: %v", name, emitted, wanted, err)
		}
		if limit := before.HeapAlloc + 16<<20; most > limit { // the tables of fields are read meanwhile
			t.Errorf("%s: %d bytes are held, want at most %d", name, most, limit)
		}
	}
	s := New(c, Options{Choose: ForMinor(c, kubever.Newest), Minor: kubever.Newest, Format: Same})
	convertAll := func(in io.Reader, emit func() error) error {
		return s.Convert(t.Context(), "", in, func(r Result) error {
			if r.Object == nil {
				return r.Err
			}
			return emit()
		})
	}
	if err := convertAll(&documents{wanted: 10}, func() error { return nil }); err != nil { // the tables are read
		t.Fatal(err)
	}
	run("convert", convertAll)
	run("check", func(in io.Reader, emit func() error) error {
		check := NewCheck(c, kubever.Newest, func(Verdict) error { return emit() })
		problems, err := check.Text(t.Context(), "", in)
		if len(problems) > 0 {
			return problems[0]
		}
		return err
	})
}

// Nested deeper than anything that servers take is an error with its line, not a stack that overflows.
func TestDeeplyNestedInputIsRefused(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: "
	var block strings.Builder
	for i := range 3000 {
		block.WriteString("\n" + strings.Repeat(" ", i+1) + "a:")
	}
	for name, text := range map[string]string{
		"flow":       head + strings.Repeat("[", 100_000),
		"flow, shut": head + strings.Repeat("{a: ", 5_000) + "1" + strings.Repeat("}", 5_000),
		"block":      head + block.String(),
		"dashes":     head + "\n" + strings.Repeat("- ", 50_000) + "a\n",
		"JSON": `{"apiVersion":"v1","kind":"ConfigMap","data":` + strings.Repeat(`{"a":`, 100_000) + "1" +
			strings.Repeat("}", 100_001),
		"a list of lists": strings.Repeat(`{"apiVersion":"v1","kind":"List","items":[`, 20_000) +
			strings.Repeat("]}", 20_000),
	} {
		rows, problems, _ := checked(t, kubever.Newest, text, nil)
		if len(problems) != 1 || len(rows) > 0 || !strings.HasPrefix(problems[0], "f:") {
			t.Errorf("%s: judged %d, problems %.200v; want one problem", name, len(rows), problems)
		}
	}
}

// definition is a CRD with as many fields as it takes to have the size.
func definition(version string, bytes int) []byte {
	fields := map[string]any{}
	for i := range bytes / 440 {
		fields[fmt.Sprint("field", i)] = map[string]any{"type": "object", "description": strings.Repeat("d", 200),
			"properties": map[string]any{
				"list": map[string]any{"type": "array",
					"items": map[string]any{"type": "object", "properties": map[string]any{
						"word": map[string]any{"type": "string", "enum": []any{"a", "b"}},
						"n":    map[string]any{"type": "integer"}}}},
				"map": map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}}}}
	}
	schema := map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
		"spec": map[string]any{"type": "object", "properties": fields}}}}
	spec := map[string]any{"group": "example.com", "scope": "Namespaced", "names": map[string]any{
		"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"}}
	if version == "v1" {
		spec["versions"] = []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": schema}}
	} else {
		spec["version"], spec["validation"], spec["preserveUnknownFields"] = "v1", schema, false
	}
	return marshalled(
		map[string]any{"apiVersion": "apiextensions.k8s.io/" + version, "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": "foos.example.com"}, "spec": spec})
}

func marshalled(object map[string]any) []byte {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return text
}

// list is an object of which one list has as many elements as it takes to have the size.
func list(object, element string, bytes int) []byte {
	elements := make([]string, bytes/len(element))
	for i := range elements {
		elements[i] = strings.ReplaceAll(element, "%d", fmt.Sprint(i))
	}
	return []byte(strings.Replace(object, "@", strings.Join(elements, ","), 1))
}

// large are inputs that conversions walk through, by their size.
var large = []struct {
	name  string
	minor kubever.Minor
	limit float64 // times decoding and encoding; 0 where Kubernetes' own validation looks at each part
	text  func(bytes int) []byte
}{
	{"CRD of v1 for 1.36", 36, 0, func(n int) []byte { return definition("v1", n) }},
	{"CRD of v1beta1 for 1.36", 36, 0, func(n int) []byte { return definition("v1beta1", n) }},
	{"CRD of v1 for 1.15", 15, 0, func(n int) []byte { return definition("v1", n) }},
	{"CRD of v1 for 1.10", 10, 3.4, func(n int) []byte { return definition("v1", n) }},
	{"Ingress without path types", 36, 0, func(n int) []byte {
		return list(`{"apiVersion":"extensions/v1beta1","kind":"Ingress","metadata":{"name":"a"},"spec":{"rules":[{"host":"a.b",`+
			`"http":{"paths":[@]}}]}}`,
			`{"path":"/a/path/of/the/shop/%d","backend":{"serviceName":"a-service-of-the-shop","servicePort":80}}`, n)
	}},
	{"Ingress without path types, in YAML", 36, 0, func(n int) []byte {
		const path = "      - path: /%d\n        backend:\n          serviceName: s\n          servicePort: 80\n"
		var text bytes.Buffer
		text.WriteString("apiVersion: extensions/v1beta1\nkind: Ingress\nmetadata:\n  name: a\nspec:\n  rules:\n" +
			"  - host: a.b\n    http:\n      paths:\n")
		for i := range n / len(path) {
			fmt.Fprintf(&text, path, i)
		}
		return text.Bytes()
	}},
	{"custom resource", 36, 1.2, func(n int) []byte {
		return list(`{"apiVersion":"example.com/v1","kind":"Foo","metadata":{"name":"a"},"spec":{"list":[@]}}`,
			`{"name":"n%d","values":["a word","another"],"deep":{"er":{"still":"deeper than anything above"}}}`, n)
	}},
	{"Deployment with variables", 15, 0, func(n int) []byte {
		return list(
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"selector":{"matchLabels":`+
				`{"a":"a"}},"template":{"metadata":{"labels":{"a":"a"}},"spec":{"containers":[{"name":"a","image":"a","env":[@]}]}}}}`,
			`{"name":"N%d","value":"a value as people give it"}`, n)
	}},
}

// Of a CRD of v1beta1 with many versions, each of which needs what all share when it is judged as one of v1.
func TestManyVersionsAreLinear(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	s := New(c, Options{Choose: ForMinor(c, 15), Minor: 15, Format: Same})
	took := func(count int) time.Duration {
		versions := make([]string, count)
		for i := range versions {
			versions[i] = fmt.Sprintf(`{"name":"v%d","served":true,"storage":%t}`, i+1, i == 0)
		}
		text := `{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"CustomResourceDefinition",` +
			`"metadata":{"name":"xs.g.example"},"spec":{"group":"g.example","scope":"Namespaced","names":{` +
			`"plural":"xs","singular":"x","kind":"X","listKind":"XList"},"subresources":{"status":{}},` +
			`"versions":[` + strings.Join(versions, ",") + `]}}`
		best := time.Duration(math.MaxInt64) // without what a busy machine, and a collection of garbage, add
		for range 5 {
			start := usedTime(t)
			err := s.Convert(t.Context(), "", strings.NewReader(text), func(r Result) error { return r.Err })
			if err != nil {
				t.Fatal(err)
			}
			best = min(best, usedTime(t)-start)
		}
		return best
	}
	took(10) // what is kept of kinds is made
	const factor = 8
	// Kubernetes' own validation looks at all versions for each: 25 ms for 1,600.
	const upstream = 150 * time.Millisecond
	if a, b := took(200), took(factor*200); b > 3*factor*a+upstream {
		t.Errorf("200 versions take %v, %d take %v of processor time", a, factor*200, b)
	}
}

// No input costs more than in proportion to its size: eight times the input takes sixty-four times as long where
// something is done for each pair of its parts.
func TestLargeInputIsLinear(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	const factor = 8
	for _, test := range large {
		s := New(c, Options{Choose: ForMinor(c, test.minor), Minor: test.minor, Format: Same})
		took := func(text []byte, rounds int) time.Duration {
			best := time.Hour
			for range rounds {
				start := usedTime(t)
				if err := s.Convert(t.Context(), "", bytes.NewReader(text), func(r Result) error {
					return r.Err
				}); err != nil {
					t.Fatalf("%s: %v", test.name, err)
				}
				best = min(best, usedTime(t)-start)
			}
			return best
		}
		small, whole := test.text(100<<10), test.text(factor*100<<10)
		took(small, 1) // what is kept of kinds is made
		if a, b := took(small, 3), took(whole, 2); b > 3*factor*a {
			t.Errorf("%s: %d bytes take %v, %d bytes %v of processor time", test.name, len(small), a, len(whole), b)
		}
	}
}

// Objects of 3 MB, twice what servers store, are converted like others, and written whole.
func TestObjectsOfThreeMegabytes(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range large {
		text := test.text(3 << 20)
		s := New(c, Options{Choose: ForMinor(c, test.minor), Minor: test.minor, Format: Same})
		made := 0
		err := s.Convert(t.Context(), "", bytes.NewReader(text), func(r Result) error {
			if r.Err != nil || r.Object == nil {
				return r.Err
			}
			made++
			if len(r.Text) < len(text)/2 {
				t.Errorf("%s: %d bytes become %d", test.name, len(text), len(r.Text))
			}
			return nil
		})
		if err != nil || made != 1 {
			t.Errorf("%s: %d objects of %d bytes, want 1: %v", test.name, made, len(text), err)
		}
	}
}

// An object that no request takes is converted, and named as refused, by servers that have the limit alone.
func TestObjectsBeyondARequestAreNamed(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	const path = "      - {path: /%d, backend: {serviceName: s, servicePort: 80}}\n"
	for _, test := range []struct {
		minor kubever.Minor
		bytes int
		named bool
	}{
		{kubever.Library, 2 << 20, true}, // twice as large, as networking.k8s.io/v1 says it
		{kubever.Library, 1 << 20, false},
		{19, 4 << 20, true}, // serves it as it is
		{10, 4 << 20, false},
	} {
		var text strings.Builder
		text.WriteString("apiVersion: extensions/v1beta1\nkind: Ingress\nmetadata:\n  name: a\nspec:\n  rules:\n" +
			"  - host: a.b\n    http:\n      paths:\n")
		for i := range test.bytes / len(path) {
			fmt.Fprintf(&text, path, i)
		}
		s := New(c, Options{Choose: ForMinor(c, test.minor), Minor: test.minor, Format: Same})
		err := s.Convert(t.Context(), "", strings.NewReader(text.String()), func(r Result) error {
			if named := strings.Contains(r.Refused, "a request at most 3145728"); named != test.named {
				t.Errorf("%d bytes for %s: refused is %q", test.bytes, test.minor, r.Refused)
			}
			return r.Err
		})
		if err != nil {
			t.Errorf("%d bytes for %s: %v", test.bytes, test.minor, err)
		}
	}
}

// readAlone does with an object what has to be done to convert nothing: it is decoded and encoded as Kubernetes'
// clients do it.
func readAlone(tb testing.TB, text []byte) {
	var object unstructured.Unstructured
	var err error
	if text[0] == '{' {
		if err = object.UnmarshalJSON(text); err == nil {
			_, err = object.MarshalJSON()
		}
	} else if err = yaml.Unmarshal(text, &object.Object); err == nil {
		_, err = yaml.Marshal(object.Object)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// beside measures a conversion beside what it takes to convert nothing, in turn: the shortest times of processors.
func beside(tb testing.TB, c *convert.Converter, minor kubever.Minor, text []byte, rounds int) (
	converted, alone time.Duration) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as the command sets it
	s := New(c, Options{Choose: ForMinor(c, minor), Minor: minor, Format: Same})
	converted, alone = time.Hour, time.Hour
	for range rounds {
		start := usedTime(tb)
		readAlone(tb, text)
		middle := usedTime(tb)
		err := s.Convert(tb.Context(), "", bytes.NewReader(text), func(r Result) error { return r.Err })
		if err != nil {
			tb.Fatal(err)
		}
		alone, converted = min(alone, middle-start), min(converted, usedTime(tb)-middle)
	}
	return converted, alone
}

// Where Kubernetes' own validation has little to do, a conversion costs less than decoding and encoding, and one of
// CRDs twice that: kubectl, which decodes twice, takes as long. The bounds are wider, for machines that do other things
// meanwhile.
func TestConversionOfLargeInputCostsLittle(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range large {
		if test.limit == 0 {
			continue
		}
		text := test.text(820 << 10)
		beside(t, c, test.minor, text, 1) // what is kept of kinds is made
		least := math.Inf(1)
		for range 8 { // until one is not disturbed
			converted, alone := beside(t, c, test.minor, text, 5)
			if least = min(least, float64(converted)/float64(alone)); least <= test.limit {
				break
			}
		}
		if least > test.limit {
			t.Errorf("%s: takes %.2f times as much processor time as decoding and encoding; want at most %.1f",
				test.name, least, test.limit)
		}
	}
}

// BenchmarkLarge reports how many times as long as decoding and encoding alone a conversion with validation takes.
func BenchmarkLarge(b *testing.B) {
	c, err := convert.New()
	if err != nil {
		b.Fatal(err)
	}
	for _, test := range large {
		for _, bytesOfText := range []int{820 << 10, 3 << 20} {
			b.Run(fmt.Sprintf("%s/%dKiB", test.name, bytesOfText>>10), func(b *testing.B) {
				text := test.text(bytesOfText)
				converted, alone := time.Hour, time.Hour
				for b.Loop() {
					with, without := beside(b, c, test.minor, text, 1)
					converted, alone = min(converted, with), min(alone, without)
				}
				b.ReportMetric(float64(converted.Milliseconds()), "ms")
				b.ReportMetric(float64(converted)/float64(alone), "times")
			})
		}
	}
}

// usedTime is the processor time of this process, which other processes do not change.
func usedTime(tb testing.TB) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// TestListsWithinLists: each list puts its place before the paths of what it holds.
func TestListsWithinLists(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	s := New(c, Options{Choose: ToVersion(c, schema.GroupVersion{Group: "policy", Version: "v1"})})
	for depth, refused := range map[int]bool{1: false, 11: false, 12: true, 500: true} {
		object := map[string]any{"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget",
			"metadata": map[string]any{"name": "a"}, "spec": map[string]any{}}
		for range depth {
			object = map[string]any{"apiVersion": "v1", "kind": "List", "items": []any{object}}
		}
		list := &unstructured.Unstructured{Object: object}
		_, err := s.become(list, list.GroupVersionKind(), 0)
		if refused != (err != nil) || err != nil && !strings.Contains(err.Error(), "within more than 10 lists") {
			t.Errorf("%d deep: %v", depth, err)
		}
	}
}
