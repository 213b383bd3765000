package stream_test

import (
	"bytes"
	"context"
	"fmt"
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

// BenchmarkCheck judges the objects of a tree of files in YAML.
func BenchmarkCheck(b *testing.B) {
	c, err := convert.New()
	if err != nil {
		b.Fatal(err)
	}
	var text bytes.Buffer
	for i := range 1000 {
		fmt.Fprintf(&text, "---\napiVersion: extensions/v1beta1\nkind: Deployment\nmetadata:\n  name: n%d\nspec:\n"+
			"  replicas: 2\n  selector:\n    matchLabels:\n      app: a\n  template:\n    metadata:\n"+
			"      labels:\n        app: a\n    spec:\n      containers:\n      - name: a\n        image: a:1\n", i)
	}
	for b.Loop() {
		check := stream.NewCheck(c, kubever.Newest, func(stream.Verdict) error { return nil })
		if problems, err := check.Text(context.Background(), "", bytes.NewReader(text.Bytes())); err != nil ||
			len(problems) > 0 {
			b.Fatal(problems, err)
		}
	}
}
