package stream_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/stream"
	"github.com/kubefusion/fusionctl/pkg/convert/validate"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// workload is a Deployment as a person writes it, of a version and with or without a selector.
const workload = `{"apiVersion":%q,"kind":"Deployment","metadata":{"name":"web-%d","namespace":"shop",` +
	`"labels":{"app":"web"}},"spec":{"replicas":3,%s"template":{"metadata":{"labels":{"app":"web"}},"spec":{` +
	`"containers":[{"name":"web","image":"r.example.com/web:1","args":["--port=8080"],"env":[{"name":"A","value":"1"}],` +
	`"ports":[{"name":"http","containerPort":8080}],"resources":{"requests":{"cpu":"100m","memory":"128Mi"}},` +
	`"readinessProbe":{"httpGet":{"path":"/","port":"http"}},"volumeMounts":[{"name":"t","mountPath":"/tmp"}]}],` +
	`"volumes":[{"name":"t","emptyDir":{}}]}}}}` + "\n"

// costs are inputs of conversions, and how many times what decoding and encoding take their conversion may take beside
// validation. The bounds are wider than what was measured, for machines that do other things meanwhile.
func costs() []cost {
	deployments := func(version, selector string) []byte {
		var text bytes.Buffer
		for i := range 300 {
			fmt.Fprintf(&text, workload, version, i, selector)
		}
		return text.Bytes()
	}
	const selector = `"selector":{"matchLabels":{"app":"web"}},`
	return []cost{
		{"current", deployments("apps/v1", selector), 2.2, false},
		{"converted", deployments("extensions/v1beta1", selector), 3, false},
		{"completed", deployments("extensions/v1beta1", ""), 3.5, false},
		{"definition of v1", []byte(definition("apiextensions.k8s.io/v1", 820<<10)), 1, true},
		{"definition of v1beta1", []byte(definition("apiextensions.k8s.io/v1beta1", 820<<10)), 2.2, true},
		{"ingress without path types", []byte(ingress(4000)), 3, false},
	}
}

type cost struct {
	name  string
	text  []byte
	limit float64
	plain bool // definitions, of which little is validated
}

// spent is what one input takes of a processor.
type spent struct {
	alone     time.Duration // decoding and encoding the input, as kubectl does it
	converted time.Duration // as the command does it, with validation
	upstream  time.Duration // Kubernetes' validation functions, of results that were decoded before
}

func (s spent) times(of time.Duration) float64 { return float64(of) / float64(s.alone) }

// measured is the least of some rounds, of all three in turn. Of definitions that are plain little is handed to
// Kubernetes' functions: nothing is taken away for them.
func measured(tb testing.TB, c *convert.Converter, minor kubever.Minor, test cost, more func() bool) spent {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as the command sets it
	s := spent{time.Hour, time.Hour, time.Hour}
	if test.plain {
		s.upstream = 0
	}
	for more() {
		start := processorTime(tb)
		if err := untyped([]string{string(test.text)}); err != nil {
			tb.Fatal(err)
		}
		read := processorTime(tb)
		results := convertText(tb, c, minor, test.text)
		s.alone, s.converted = min(s.alone, read-start), min(s.converted, processorTime(tb)-read)
		if test.plain {
			continue
		}
		judged := judges(tb, c, results)
		start = processorTime(tb)
		for _, judge := range judged {
			judge()
		}
		s.upstream = min(s.upstream, processorTime(tb)-start)
	}
	return s
}

// BenchmarkValidated tells what objects cost that are converted and validated, in times of what kubectl takes to decode
// and encode them, in the same run: all of it, what Kubernetes' own validation functions take of that by themselves,
// and what the rest takes. Definitions are handed to these functions without what is plain in them.
func BenchmarkValidated(b *testing.B) {
	c, err := convert.New()
	if err != nil {
		b.Fatal(err)
	}
	for _, test := range costs() {
		for _, minor := range []kubever.Minor{10, 15, 36} {
			b.Run(test.name+" for "+minor.String(), func(b *testing.B) {
				s := measured(b, c, minor, test, b.Loop)
				b.ReportMetric(float64(s.alone.Microseconds())/1000, "codec-ms")
				b.ReportMetric(float64(s.converted.Microseconds())/1000, "convert-ms")
				b.ReportMetric(float64(s.upstream.Microseconds())/1000, "validation-ms")
				b.ReportMetric(s.times(s.converted), "times")
				b.ReportMetric(s.times(s.upstream), "times-validation")
				b.ReportMetric(s.times(s.converted-s.upstream), "times-the-rest")
			})
		}
	}
}

// Beside the validation by Kubernetes' own functions, whose cost is theirs, conversions stay within bounds.
func TestConversionsCostLittleBesideValidation(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range costs() {
		least := math.Inf(1)
		var last spent
		for range 8 { // until one is not disturbed
			rounds := 0
			last = measured(t, c, kubever.Library, test, func() bool { rounds++; return rounds <= 5 })
			if least = min(least, last.times(last.converted-last.upstream)); least <= test.limit {
				break
			}
		}
		t.Logf("%s: %.2f times, of these %.2f validation", test.name,
			last.times(last.converted), last.times(last.upstream))
		if least > test.limit {
			t.Errorf("%s: %.2f times what decoding and encoding take, without validation; want at most %.1f",
				test.name, least, test.limit)
		}
	}
}

func convertText(tb testing.TB, c *convert.Converter, minor kubever.Minor, text []byte) (
	objects []*unstructured.Unstructured) {
	s := stream.New(c, stream.Options{Choose: stream.ForMinor(c, minor), Minor: minor, Format: stream.Same})
	err := s.Convert(context.Background(), "", bytes.NewReader(text), func(r stream.Result) error {
		if r.Object != nil {
			objects = append(objects, r.Object)
		}
		return r.Err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return objects
}

// judges reads objects as Kubernetes' types, for what validates them.
func judges(tb testing.TB, c *convert.Converter, objects []*unstructured.Unstructured) (judges []func()) {
	for _, object := range objects {
		internal, native, err := c.Internal(object)
		if err != nil {
			tb.Fatal(err)
		}
		if native {
			version := object.GroupVersionKind().GroupVersion()
			judges = append(judges, func() { validate.Created(internal, version, true) })
		}
	}
	return judges
}

// definition is a CRD of at least so many bytes: three levels of fields, as pods within a custom resource have them.
func definition(version string, size int) string {
	leaf := `{"type":"string","description":"What this says is in the documentation of the project, at length.",` +
		`"maxLength":64,"pattern":"^[a-z]+$"}`
	var fields strings.Builder
	for i := 0; fields.Len() < size; i++ {
		fmt.Fprintf(&fields, `%s"f%d":{"type":"object","required":["a"],"properties":{"a":%s,"b":{"type":"array",`+
			`"items":{"type":"object","properties":{"c":%s,"n":{"type":"integer","minimum":0,"format":"int32"}}}}}}`,
			map[bool]string{true: ","}[i > 0], i, leaf, leaf)
	}
	schema := `{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{` +
		fields.String() + `}}}}}`
	head := `{"apiVersion":"` + version + `","kind":"CustomResourceDefinition","metadata":{"name":"xs.g.example"},` +
		`"spec":{"group":"g.example","scope":"Namespaced","names":{"plural":"xs","singular":"x","kind":"X",` +
		`"listKind":"XList"},`
	if version == "apiextensions.k8s.io/v1" {
		return head + `"versions":[{"name":"v1","served":true,"storage":true,"schema":` + schema + "}]}}\n"
	}
	return head + `"version":"v1","versions":[{"name":"v1","served":true,"storage":true}],"validation":` + schema +
		"}}\n"
}

// ingress has many paths, none of which says its type.
func ingress(paths int) string {
	var list strings.Builder
	for i := range paths {
		fmt.Fprintf(&list, `%s{"path":"/p%d","backend":{"serviceName":"s%d","servicePort":80}}`,
			map[bool]string{true: ","}[i > 0], i, i)
	}
	return `{"apiVersion":"extensions/v1beta1","kind":"Ingress","metadata":{"name":"a","namespace":"b"},"spec":{` +
		`"rules":[{"host":"a.example","http":{"paths":[` + list.String() + "]}}]}}\n"
}

// processorTime is what the process has used, whatever else the machine does.
func processorTime(tb testing.TB) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// tree is a directory of manifests as people keep them: ten kinds, most in versions that are gone.
func tree(files, objectsOfFile int) []string {
	const pod = `metadata: {labels: {app: web}}
spec:
  restartPolicy: Always
  containers:
  - name: web
    image: r.example.com/web:1
    args: ["--port=8080"]
    env:
    - {name: A, value: "1"}
    ports:
    - {name: http, containerPort: 8080}
    resources:
      requests: {cpu: 100m, memory: 128Mi}
    readinessProbe:
      httpGet: {path: /, port: http}
  volumes:
  - {name: t, emptyDir: {}}
`
	indented := func(text string, spaces int) string {
		return strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+strings.Repeat(" ", spaces))
	}
	workload := "replicas: 3\n  selector: {matchLabels: {app: web}}\n  template:\n    " + indented(pod, 4)
	kinds := [][3]string{
		{"extensions/v1beta1", "Deployment", "spec:\n  " + workload},
		{"apps/v1", "Deployment", "spec:\n  " + workload},
		{"apps/v1beta2", "StatefulSet", "spec:\n  serviceName: web\n  " + workload},
		{"v1", "ConfigMap", "data:\n  a: b\n  c: |\n    x=1\n    y=2"},
		{"v1", "Service", "spec:\n  ports:\n  - {name: http, port: 80, targetPort: http}\n  selector: {app: web}"},
		{"extensions/v1beta1", "Ingress", "spec:\n  rules:\n  - host: a.example.com\n    http:\n      paths:\n" +
			"      - path: /\n        backend: {serviceName: web, servicePort: 80}"},
		{"batch/v1beta1", "CronJob", "spec:\n  schedule: '* * * * *'\n  jobTemplate:\n    spec:\n      template:\n   " +
			"     " +
			indented(strings.Replace(pod, "Always", "Never", 1), 8)},
		{"rbac.authorization.k8s.io/v1beta1", "Role",
			"rules:\n- apiGroups: ['']\n  resources: [pods]\n  verbs: [get, list]"},
		{"policy/v1beta1", "PodDisruptionBudget", "spec:\n  minAvailable: 1\n  selector: {matchLabels: {app: web}}"},
		{"autoscaling/v2beta1", "HorizontalPodAutoscaler",
			"spec:\n  maxReplicas: 3\n  scaleTargetRef: {apiVersion: apps/v1, " +
				"kind: Deployment, name: web}\n  metrics:\n  - type: Resource\n    resource: {name: cpu, " +
				"targetAverageUtilization: 50}"},
	}
	texts := make([]string, files)
	for n := range files * objectsOfFile {
		kind := kinds[n%len(kinds)]
		texts[n/objectsOfFile] += fmt.Sprintf(
			"---\napiVersion: %s\nkind: %s\nmetadata:\n  name: n-%d\n  namespace: shop\n"+
				"  labels:\n    app: web\n%s\n", kind[0], kind[1], n, kind[2])
	}
	return texts
}

// stub is what pluto (github.com/fairwindsops/pluto, pkg/api) reads of an object to judge its version.
type stub struct {
	Kind       string `json:"kind" yaml:"kind"`
	APIVersion string `json:"apiVersion" yaml:"apiVersion"`
	Metadata   struct {
		Name      string `json:"name" yaml:"name"`
		Namespace string `json:"namespace" yaml:"namespace"`
	} `json:"metadata" yaml:"metadata"`
	Items []stub `json:"items" yaml:"items"`
}

// readStubs reads texts as pluto does, and returns how many objects they hold.
func readStubs(tb testing.TB, texts []string) (objects int) {
	for _, text := range texts {
		if json.Unmarshal([]byte(text), &stub{}) == nil {
			objects++
			continue
		}
		decoder := yaml.NewDecoder(strings.NewReader(text))
		for {
			err := decoder.Decode(&stub{})
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				tb.Fatal(err)
			}
			objects++
		}
	}
	return objects
}

// judge checks texts for the newest release.
func judge(tb testing.TB, c *convert.Converter, texts []string) (objects int) {
	check := stream.NewCheck(c, kubever.Newest, func(stream.Verdict) error { objects++; return nil })
	problems, err := check.Files(tb.Context(), func(yield func(stream.File, error) bool) {
		for i, text := range texts {
			open := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
			if !yield(stream.File{Name: fmt.Sprint(i), Open: open}, nil) {
				return
			}
		}
	})
	if err != nil || len(problems) > 0 {
		tb.Fatal(problems, err)
	}
	return objects
}

// besideStubs measures how long it takes to judge texts, and to read of them what pluto reads, in turn: the shortest
// times of processors.
func besideStubs(tb testing.TB, c *convert.Converter, texts []string, rounds int) (judged, stubs time.Duration) {
	judged, stubs = time.Hour, time.Hour
	for range rounds {
		start := processorTime(tb)
		read := readStubs(tb, texts)
		middle := processorTime(tb)
		if count := judge(tb, c, texts); count != read {
			tb.Fatalf("%d objects were judged, and %d are there", count, read)
		}
		stubs, judged = min(stubs, middle-start), min(judged, processorTime(tb)-middle)
	}
	return judged, stubs
}

// current keeps the objects of a tree that are in versions of today.
func current(texts []string) []string {
	kept := make([]string, len(texts))
	for i, text := range texts {
		for document := range strings.SplitSeq(text, "---\n") {
			if strings.HasPrefix(document, "apiVersion: v1\n") || strings.HasPrefix(document, "apiVersion: apps/v1\n") {
				kept[i] += "---\n" + document
			}
		}
	}
	return kept
}

// Judging objects, with their conversions and what is lost by them, costs twice what pluto takes to read their versions
// and names, and less than that where they are in versions of today. The bounds are wider, for machines that do other
// things meanwhile.
func TestCheckCostsWhatReadingVersionsDoes(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		texts []string
		limit float64
	}{
		{"most in versions that are gone", tree(20, 20), 4},
		{"all in versions of today", current(tree(60, 20)), 2.2},
	} {
		judge(t, c, test.texts) // what is kept of kinds is made
		judged, stubs := besideStubs(t, c, test.texts, 8)
		if ratio := float64(judged) / float64(stubs); ratio > test.limit {
			t.Errorf("%s: judging takes %v of processor time, %.2f times as long as reading versions and names; "+
				"want at most %.1f", test.name, judged, ratio, test.limit)
		}
	}
}

// BenchmarkCheck judges 10,000 objects in 500 files, and reports how long that takes beside reading what pluto reads of
// them, in the same run and in time of processors.
func BenchmarkCheck(b *testing.B) {
	c, err := convert.New()
	if err != nil {
		b.Fatal(err)
	}
	texts := tree(500, 20)
	for _, test := range []struct {
		name  string
		texts []string
	}{{"most in versions that are gone", texts}, {"all in versions of today", current(tree(1700, 20))}} {
		b.Run(test.name, func(b *testing.B) {
			judged, stubs := time.Hour, time.Hour
			for b.Loop() {
				once, of := besideStubs(b, c, test.texts, 1)
				judged, stubs = min(judged, once), min(stubs, of)
			}
			b.ReportMetric(float64(judged)/float64(stubs), "times-pluto's-reading")
			b.ReportMetric(judged.Seconds(), "processor-s")
		})
	}
}
