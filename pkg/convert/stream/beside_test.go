package stream_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/manifest"
	"github.com/kubefusion/fusionctl/pkg/convert/stream"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// texts are files of one format, and how many times what Kubernetes' own programs take to decode and encode them their
// conversion to the newest release may take: as kubectl does it, without types, and as clients do it, with the types of
// k8s.io/api. The bounds are about one and a half times what was measured: other work on a machine disturbs the two
// unequally.
type texts struct {
	name           string
	texts          []string
	untyped, typed float64
}

// trees are what people convert, so many times a size: many small objects, and large ones, in YAML and in JSON.
func trees(tb testing.TB, size int) []texts {
	small, kept := tree(size, 20), current(tree(3*size, 20))
	large := func(text string) []string { return []string{text} }
	crd := definition("apiextensions.k8s.io/v1", size*32<<10)
	beta := definition("apiextensions.k8s.io/v1beta1", size*32<<10)
	paths := ingress(size * 160)
	return []texts{
		{"small/YAML", small, 1.5, 1.5},
		{"small/JSON", asJSON(tb, small), 2.7, 2.7},
		{"small, in versions of today/YAML", kept, 0.8, 0.8},
		{"small, in versions of today/JSON", asJSON(tb, kept), 2.3, 2.3},
		{"CRD of v1/YAML", asYAML(tb, large(crd)), 0.9, 0.9},
		{"CRD of v1/JSON", large(crd), 1, 0.9},
		{"CRD of v1beta1/YAML", asYAML(tb, large(beta)), 2.7, 2.7},
		{"CRD of v1beta1/JSON", large(beta), 2.3, 2},
		{"Ingress/YAML", asYAML(tb, large(paths)), 1.7, 1.8},
		{"Ingress/JSON", large(paths), 3, 3}, // 1.5 where nothing else runs: each path gets a field
	}
}

// asJSON writes files of YAML as kubectl writes JSON: indented.
func asJSON(tb testing.TB, texts []string) []string {
	return rewritten(tb, texts, func(out *bytes.Buffer, object map[string]any) error {
		text, err := json.MarshalIndent(object, "", "    ")
		out.Write(append(text, '\n'))
		return err
	})
}

// asYAML writes files of JSON as kubectl writes YAML.
func asYAML(tb testing.TB, texts []string) []string {
	return rewritten(tb, texts, func(out *bytes.Buffer, object map[string]any) error {
		text, err := sigsyaml.Marshal(object)
		out.WriteString("---\n")
		out.Write(text)
		return err
	})
}

func rewritten(tb testing.TB, texts []string, write func(*bytes.Buffer, map[string]any) error) []string {
	made := make([]string, len(texts))
	for i, text := range texts {
		var out bytes.Buffer
		err := eachAsKubectl(text, func(raw []byte) error {
			var object map[string]any
			if err := json.Unmarshal(raw, &object); err != nil {
				return err
			}
			return write(&out, object)
		})
		if err != nil {
			tb.Fatal(err)
		}
		made[i] = out.String()
	}
	return made
}

// eachAsKubectl splits a file as kubectl does (k8s.io/cli-runtime, pkg/resource, StreamVisitor).
func eachAsKubectl(text string, each func(raw []byte) error) error {
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var raw runtime.RawExtension
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if raw.Raw = bytes.TrimSpace(raw.Raw); len(raw.Raw) == 0 {
			continue
		}
		if err := each(raw.Raw); err != nil {
			return err
		}
	}
}

// untyped decodes and encodes files as kubectl does: into maps, and as its printers write them.
func untyped(texts []string) error {
	for _, text := range texts {
		isJSON := strings.HasPrefix(text, "{")
		indent := strings.HasPrefix(text, "{\n")
		err := eachAsKubectl(text, func(raw []byte) error {
			object, _, err := unstructured.UnstructuredJSONScheme.Decode(raw, nil, nil)
			switch {
			case err != nil:
			case !isJSON:
				_, err = sigsyaml.Marshal(object)
			case indent:
				_, err = json.MarshalIndent(object, "", "    ")
			default:
				err = unstructured.UnstructuredJSONScheme.Encode(object, io.Discard)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// types are those of k8s.io/api and of CRDs.
func types(tb testing.TB) *runtime.Scheme {
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensionsv1.AddToScheme, apiextensionsv1beta1.AddToScheme,
	} {
		if err := add(types); err != nil {
			tb.Fatal(err)
		}
	}
	return types
}

// typed decodes and encodes files with the serializers of the API machinery.
func typed(types *runtime.Scheme, texts []string) error {
	options := kjson.SerializerOptions{}
	inJSON := kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, types, types, options)
	options.Pretty = true
	indented := kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, types, types, options)
	inYAML := kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, types, types,
		kjson.SerializerOptions{Yaml: true})
	for _, text := range texts {
		codec := inYAML
		switch {
		case strings.HasPrefix(text, "{\n"):
			codec = indented
		case strings.HasPrefix(text, "{"):
			codec = inJSON
		}
		err := eachAsKubectl(text, func(raw []byte) error {
			object, _, err := inJSON.Decode(raw, nil, nil)
			if err == nil {
				err = codec.Encode(object, io.Discard)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// withTypes are the objects that have a type in k8s.io/api.
func withTypes(tb testing.TB, types *runtime.Scheme, all []string) []string {
	var kept []string
	for _, text := range all {
		for part, err := range manifest.Parts(strings.NewReader(text)) {
			if err != nil {
				tb.Fatal(err)
			}
			if !part.Object {
				continue
			}
			object, err := part.Decode()
			if err != nil {
				tb.Fatal(err)
			}
			version, _ := object.Value["apiVersion"].(string)
			kind, _ := object.Value["kind"].(string)
			if types.Recognizes(schema.FromAPIVersionAndKind(version, kind)) {
				kept = append(kept, string(part.Text))
			}
		}
	}
	return kept
}

// converts is what the command does with files.
func converts(tb testing.TB, c *convert.Converter, texts []string) error {
	minor := kubever.Library
	s := stream.New(c, stream.Options{Choose: stream.ForMinor(c, minor), Minor: minor, Format: stream.Same})
	files := func(yield func(stream.File, error) bool) {
		for _, text := range texts {
			open := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
			if !yield(stream.File{Name: "f", Open: open}, nil) {
				return
			}
		}
	}
	out := stream.NewWriter(io.Discard, stream.Same)
	if err := s.Files(tb.Context(), files, out, func(r stream.Result) error { return r.Err }); err != nil {
		return err
	}
	return out.Close()
}

// besides is what the command takes for files, and for those of their objects that have types, and what Kubernetes' own
// programs take to decode and encode them: the shortest times of processors.
type besides struct{ converted, untyped, ofTyped, typed time.Duration }

// besideKubernetes measures them in turn, as long as more is wanted.
func besideKubernetes(tb testing.TB, c *convert.Converter, all []string, more func() bool) besides {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as the command sets it
	types := types(tb)
	have := withTypes(tb, types, all)
	least := besides{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}
	used := func(least *time.Duration, do func() error) {
		start := processorTime(tb)
		if err := do(); err != nil {
			tb.Fatal(err)
		}
		*least = min(*least, processorTime(tb)-start)
	}
	for more() {
		used(&least.converted, func() error { return converts(tb, c, all) })
		used(&least.untyped, func() error { return untyped(all) })
		used(&least.ofTyped, func() error { return converts(tb, c, have) })
		used(&least.typed, func() error { return typed(types, have) })
	}
	return least
}

func (b besides) timesUntyped() float64 { return float64(b.converted) / float64(b.untyped) }
func (b besides) timesTyped() float64   { return float64(b.ofTyped) / float64(b.typed) }

// The command stays within bounds of what Kubernetes' own programs take to decode and encode the same bytes.
func TestConversionsCostLittleBesideKubernetes(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range trees(t, 8) {
		untyped, typed := math.Inf(1), math.Inf(1)
		for range 8 { // until one is not disturbed
			rounds := 0
			b := besideKubernetes(t, c, test.texts, func() bool { rounds++; return rounds <= 4 })
			untyped, typed = min(untyped, b.timesUntyped()), min(typed, b.timesTyped())
			if untyped <= test.untyped && typed <= test.typed {
				break
			}
		}
		t.Logf("%s: %.2f times kubectl's, %.2f times that of types", test.name, untyped, typed)
		if untyped > test.untyped || typed > test.typed {
			t.Errorf("%s: takes %.2f times the processor time of kubectl's decoder and encoder, want at most %.1f; "+
				"%.2f times that of those of types, want at most %.1f",
				test.name, untyped, test.untyped, typed, test.typed)
		}
	}
}

// BenchmarkBesideKubernetes tells what the command takes of processors, validation, defaults, losses and the layout of
// the text included, in times of what Kubernetes' own programs take to decode and encode the same bytes.
func BenchmarkBesideKubernetes(b *testing.B) {
	c, err := convert.New()
	if err != nil {
		b.Fatal(err)
	}
	for _, test := range trees(b, 25) {
		b.Run(test.name, func(b *testing.B) {
			least := besideKubernetes(b, c, test.texts, b.Loop)
			b.ReportMetric(least.converted.Seconds()*1000, "ms")
			b.ReportMetric(least.timesUntyped(), "times-kubectl's-codec")
			b.ReportMetric(least.timesTyped(), "times-typed-codec")
		})
	}
}
