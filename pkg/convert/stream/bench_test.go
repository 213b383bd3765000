package stream_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/manifest"
	"github.com/kubefusion/fusionctl/pkg/convert/stream"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// workload is a Deployment as a person writes it, of a version and with or without a selector.
const workload = `{"apiVersion":%q,"kind":"Deployment","metadata":{"name":"web-%d","namespace":"shop",` +
	`"labels":{"app":"web"}},"spec":{"replicas":3,%s"template":{"metadata":{"labels":{"app":"web"}},"spec":{` +
	`"containers":[{"name":"web","image":"r.example.com/web:1","args":["--port=8080"],"env":[{"name":"A","value":"1"}],` +
	`"ports":[{"name":"http","containerPort":8080}],"resources":{"requests":{"cpu":"100m","memory":"128Mi"}},` +
	`"readinessProbe":{"httpGet":{"path":"/","port":"http"}},"volumeMounts":[{"name":"t","mountPath":"/tmp"}]}],` +
	`"volumes":[{"name":"t","emptyDir":{}}]}}}}` + "\n"

// BenchmarkValidated tells what a Deployment costs that is converted and validated, beside decoding and encoding it
// alone.
func BenchmarkValidated(b *testing.B) {
	c, err := convert.New()
	if err != nil {
		b.Fatal(err)
	}
	for _, test := range []struct{ name, version, selector string }{
		{"current", "apps/v1", `"selector":{"matchLabels":{"app":"web"}},`},
		{"converted", "extensions/v1beta1", `"selector":{"matchLabels":{"app":"web"}},`},
		{"completed", "extensions/v1beta1", ""},
	} {
		var text bytes.Buffer
		for i := range 1000 {
			fmt.Fprintf(&text, workload, test.version, i, test.selector)
		}
		for _, minor := range []kubever.Minor{15, 36} {
			s := stream.New(c, stream.Options{Choose: stream.ForMinor(c, minor), Minor: minor, Format: stream.Same})
			b.Run(test.name+" for "+minor.String(), func(b *testing.B) {
				alone, converted := time.Hour, time.Hour
				for b.Loop() {
					start := processorTime(b)
					readAndWrite(b, text.Bytes())
					middle := processorTime(b)
					err := s.Convert(context.Background(), "", bytes.NewReader(text.Bytes()),
						func(r stream.Result) error {
							return r.Err
						})
					if err != nil {
						b.Fatal(err)
					}
					alone, converted = min(alone, middle-start), min(converted, processorTime(b)-middle)
				}
				b.ReportMetric(float64(converted.Microseconds())/1000, "µs/object")
				b.ReportMetric(float64(converted)/float64(alone), "times")
			})
		}
	}
}

// processorTime is what the process has used, whatever else the machine does.
func processorTime(tb testing.TB) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// readAndWrite does with a text what has to be done to convert nothing.
func readAndWrite(tb testing.TB, text []byte) {
	for part, err := range manifest.Parts(bytes.NewReader(text)) {
		if err != nil {
			tb.Fatal(err)
		}
		if !part.Object {
			continue
		}
		object, err := part.Decode()
		if err == nil && object != nil {
			_, err = object.Rewrite(object.Value)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
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

// BenchmarkCheck judges 10,000 objects in 500 files, and reports how long that takes beside decoding them alone, on one
// processor, in the same run: in time that passes, and in time of processors.
func BenchmarkCheck(b *testing.B) {
	c, err := convert.New()
	if err != nil {
		b.Fatal(err)
	}
	const files, objectsOfFile = 500, 20
	texts := tree(files, objectsOfFile)
	alone, judged, aloneUsed, judgedUsed := time.Hour, time.Hour, time.Hour, time.Hour
	for b.Loop() {
		start, used := time.Now(), processorTime(b)
		for _, text := range texts {
			for part, err := range manifest.Parts(strings.NewReader(text)) {
				if err == nil && part.Object {
					_, err = part.Decode()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		}
		middle, usedThen := time.Now(), processorTime(b)
		count := 0
		check := stream.NewCheck(c, kubever.Newest, func(stream.Verdict) error { count++; return nil })
		problems, err := check.Files(b.Context(), func(yield func(stream.File, error) bool) {
			for i, text := range texts {
				open := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
				if !yield(stream.File{Name: fmt.Sprint(i), Open: open}, nil) {
					return
				}
			}
		})
		if err != nil || len(problems) > 0 || count != files*objectsOfFile {
			b.Fatal(count, problems, err)
		}
		alone, judged = min(alone, middle.Sub(start)), min(judged, time.Since(middle))
		aloneUsed, judgedUsed = min(aloneUsed, usedThen-used), min(judgedUsed, processorTime(b)-usedThen)
	}
	b.ReportMetric(judged.Seconds(), "s")
	b.ReportMetric(float64(judged)/float64(alone), "times")
	b.ReportMetric(float64(judgedUsed)/float64(aloneUsed), "processor-times")
}
