package convert

import (
	"fmt"
	"maps"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsfuzzer "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/fuzzer"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	admissionregistrationfuzzer "k8s.io/kubernetes/pkg/apis/admissionregistration/fuzzer"
	appsfuzzer "k8s.io/kubernetes/pkg/apis/apps/fuzzer"
	autoscalingfuzzer "k8s.io/kubernetes/pkg/apis/autoscaling/fuzzer"
	batchfuzzer "k8s.io/kubernetes/pkg/apis/batch/fuzzer"
	certificatesfuzzer "k8s.io/kubernetes/pkg/apis/certificates/fuzzer"
	corefuzzer "k8s.io/kubernetes/pkg/apis/core/fuzzer"
	discoveryfuzzer "k8s.io/kubernetes/pkg/apis/discovery/fuzzer"
	extensionsfuzzer "k8s.io/kubernetes/pkg/apis/extensions/fuzzer"
	flowcontrolfuzzer "k8s.io/kubernetes/pkg/apis/flowcontrol/fuzzer"
	networkingfuzzer "k8s.io/kubernetes/pkg/apis/networking/fuzzer"
	policyfuzzer "k8s.io/kubernetes/pkg/apis/policy/fuzzer"
	rbacfuzzer "k8s.io/kubernetes/pkg/apis/rbac/fuzzer"
	resourcefuzzer "k8s.io/kubernetes/pkg/apis/resource/fuzzer"
	schedulingfuzzer "k8s.io/kubernetes/pkg/apis/scheduling/fuzzer"
	storagefuzzer "k8s.io/kubernetes/pkg/apis/storage/fuzzer"
	"sigs.k8s.io/randfill"
)

// fuzzers fill internal types with what the groups allow.
var fuzzers = fuzzer.MergeFuzzerFuncs(
	fuzzer.FuzzerFuncs(rawExtensions), metafuzzer.Funcs, apiextensionsfuzzer.Funcs, admissionregistrationfuzzer.Funcs,
	appsfuzzer.Funcs,
	autoscalingfuzzer.Funcs, batchfuzzer.Funcs, certificatesfuzzer.Funcs, corefuzzer.Funcs, discoveryfuzzer.Funcs,
	extensionsfuzzer.Funcs,
	flowcontrolfuzzer.Funcs, networkingfuzzer.Funcs, policyfuzzer.Funcs, rbacfuzzer.Funcs, resourcefuzzer.Funcs,
	schedulingfuzzer.Funcs,
	storagefuzzer.Funcs,
)

// rawExtensions are what others put into objects: here always the same object.
func rawExtensions(serializer.CodecFactory) []any {
	const some = `{"apiVersion":"unknown.group/unknown","kind":"Something","someKey":"someValue"}`
	return []any{
		func(object *runtime.Object, _ randfill.Continue) {
			*object = &runtime.Unknown{Raw: []byte(some), ContentType: runtime.ContentTypeJSON}
		},
		func(raw *runtime.RawExtension, _ randfill.Continue) { raw.Raw = []byte(some) },
	}
}

// specimens makes objects of every native kind: Kubernetes' own fuzzers fill the internal type, which is converted.
type specimens struct {
	c    *Converter
	fill *randfill.Filler
}

func newSpecimens(t testing.TB, seed int64) *specimens {
	t.Helper()
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return &specimens{c, fuzzer.FuzzerFor(fuzzers, rand.NewSource(seed), serializer.NewCodecFactory(c.scheme))}
}

// of returns an object of a kind as a client would see it.
func (s *specimens) of(t testing.TB, gvk schema.GroupVersionKind) map[string]any {
	t.Helper()
	internal := reflect.New(s.c.hubs[gvk]).Interface().(runtime.Object)
	s.fill.Fill(internal)
	typed, err := s.c.scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.c.scheme.Convert(internal, typed, nil); err != nil {
		t.Fatalf("converting a specimen to %s: %v", kindName(gvk), err)
	}
	typed.GetObjectKind().SetGroupVersionKind(gvk)
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// nativePairs calls f for two versions of every kind that Kubernetes converts.
func (s *specimens) nativePairs(f func(from, to schema.GroupVersionKind)) {
	var kinds []schema.GroupVersionKind
	for _, spokes := range s.c.spokes {
		kinds = append(kinds, spokes...)
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	for _, from := range kinds {
		for _, to := range s.c.spokes[s.c.hubs[from]] {
			if from != to {
				f(from, to)
			}
		}
	}
}

// TestReadersReadAlike: what is read of an object is what Kubernetes' own converter reads of it, and what is not read
// left to that.
func TestReadersReadAlike(t *testing.T) {
	s := newSpecimens(t, 7)
	read := 0
	for gvk := range s.c.hubs {
		for n := range 20 {
			object := s.of(t, gvk)
			if n%2 == 1 {
				disturb(rand.New(rand.NewSource(int64(n))), object)
			}
			typed, err := s.c.scheme.New(gvk)
			if err != nil {
				t.Fatal(err)
			}
			ours, theirs := reflect.New(reflect.TypeOf(typed).Elem()), reflect.New(reflect.TypeOf(typed).Elem())
			if readerOf(ours.Type().Elem())(object, ours.Elem(), &unknown{}) != nil {
				continue
			}
			read++
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, theirs.Interface()); err != nil {
				t.Errorf("%s: read, and Kubernetes does not: %v", kindName(gvk), err)
				continue
			}
			if diff := cmp.Diff(theirs.Interface(), ours.Interface()); diff != "" {
				t.Errorf("%s: read by Kubernetes, and by readers:\n%s", kindName(gvk), diff)
			}
		}
	}
	if want := len(s.c.hubs) * 10; read < want {
		t.Errorf("%d objects were read, want at least the %d that are whole", read, want)
	}
}

// TestWritersWriteAlike: what is written of a Go value is what Kubernetes' own converter writes of it.
func TestWritersWriteAlike(t *testing.T) {
	s := newSpecimens(t, 11)
	written := 0
	for gvk := range s.c.hubs {
		for range 10 {
			typed, err := s.c.decode(s.of(t, gvk), gvk)
			if err != nil {
				t.Fatal(err)
			}
			theirs, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
			if err != nil {
				t.Fatal(err)
			}
			ours, err := writerOf(reflect.TypeOf(typed).Elem())(reflect.ValueOf(typed).Elem())
			if err != nil {
				continue
			}
			written++
			if diff := cmp.Diff(any(theirs), ours); diff != "" {
				t.Errorf("%s: written by Kubernetes, and by writers:\n%s", kindName(gvk), diff)
			}
		}
	}
	if want := len(s.c.hubs) * 9; written < want {
		t.Errorf("%d objects were written, want at least %d", written, want)
	}
}

// TestGuidedWritingIsWritingAndComparing: what is written beside the input, and what is noted meanwhile, is what is
// found of the whole when it is written.
func TestGuidedWritingIsWritingAndComparing(t *testing.T) {
	s := newSpecimens(t, 17)
	chance := rand.New(rand.NewSource(17))
	compared, displaced, added := 0, 0, 0
	for _, kinds := range s.c.spokes {
		for _, from := range kinds {
			for _, to := range kinds {
				for n := range 6 {
					in := s.of(t, from)
					if n%3 > 0 {
						thinned(chance, in)
					}
					if n%3 > 1 {
						thinned(chance, in)
					}
					source, err := s.c.decode(in, from)
					if err != nil {
						t.Fatal(err)
					}
					target, err := s.c.throughTypes(source, to, s.c.hubs[from])
					if err != nil {
						continue
					}
					r := route{source: s.c.shapes.of(from), target: s.c.shapes.of(to)}
					want, whole := mustWrite(t, target), &walk{}
					whole.compare(in, want, r.source, r.target)
					beside := &walk{}
					got, err := beside.written(in, target, r.source, r.target)
					if err != nil {
						t.Fatal(err)
					}
					diff := cmp.Diff(want, got)
					diff += cmp.Diff(noted(whole), noted(beside))
					whole.take()
					beside.take()
					if diff += cmp.Diff(want, got); diff != "" {
						t.Fatalf("%s to %s: compared afterwards, and meanwhile:\n%s",
							kindName(from), kindName(to), diff)
					}
					compared++
					displaced += map[bool]int{true: 1}[whole.displaced]
					added += len(whole.void) + len(whole.empty) + len(whole.derived)
				}
			}
		}
	}
	if compared < 1000 || displaced < 50 || added < 300 {
		t.Errorf("%d objects were compared, %d of them changed, with %d additions: too few", compared, displaced, added)
	}
}

// noted is what a walk found, in an order of its own.
func noted(w *walk) map[string]any {
	found := map[string]any{"displaced": w.displaced, "hollow": w.hollow, "respelled": w.respelled, "depth": w.depth}
	for name, list := range map[string]additions{"void": w.void, "empty": w.empty, "derived": w.derived} {
		var words []string
		for _, a := range list {
			words = append(words, fmt.Sprintf("%s in %v", a.key, a.object))
		}
		slices.Sort(words)
		found[name] = words
	}
	return found
}

func mustWrite(t *testing.T, object runtime.Object) map[string]any {
	t.Helper()
	out, err := unstructuredOf(object)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestSamenessIsThatOfReflect: two objects are the same as reflect.DeepEqual says, and different when one differs.
func TestSamenessIsThatOfReflect(t *testing.T) {
	s := newSpecimens(t, 13)
	same, different := 0, 0
	for gvk := range s.c.hubs {
		for n := range 20 {
			object := s.of(t, gvk)
			a, err := s.c.decode(object, gvk)
			if err != nil {
				t.Fatal(err)
			}
			if n%2 == 1 {
				thinned(rand.New(rand.NewSource(int64(n))), object)
			}
			b, err := s.c.decode(object, gvk)
			if err != nil {
				t.Fatal(err)
			}
			left, right := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
			want := reflect.DeepEqual(a, b)
			if got := samenessOf(left.Type())(left, right); got != want {
				t.Errorf("%s: the same: %t, want %t\n%s", kindName(gvk), got, want, cmp.Diff(a, b))
			}
			if want {
				same++
			} else {
				different++
			}
		}
	}
	if same < 500 || different < 500 {
		t.Errorf("%d were the same and %d different, want hundreds of both", same, different)
	}
}

// thinned takes some fields out of an object.
func thinned(chance *rand.Rand, object map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if chance.Intn(30) == 0 && name != "apiVersion" && name != "kind" {
			delete(object, name)
		}
		switch inner := object[name].(type) {
		case map[string]any:
			thinned(chance, inner)
		case []any:
			for _, element := range inner {
				if fields, ok := element.(map[string]any); ok {
					thinned(chance, fields)
				}
			}
		}
	}
}

// disturb puts some values of other kinds into an object, and nothing into others.
func disturb(chance *rand.Rand, object map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		switch chance.Intn(40) {
		case 0:
			object[name] = nil
		case 1:
			object[name] = map[string]any{"a": nil}
		case 2:
			object[name] = []any{nil, "a"}
		case 3:
			object[name] = int64(1) << 40
		case 4:
			object[name] = 1.5
		case 5:
			object[name] = ""
		case 6:
			object[name] = true
		}
		switch inner := object[name].(type) {
		case map[string]any:
			disturb(chance, inner)
		case []any:
			for i, element := range inner {
				if fields, ok := element.(map[string]any); ok {
					disturb(chance, fields)
				} else if chance.Intn(40) == 0 {
					inner[i] = nil
				}
			}
		}
	}
}

// TestRelabelling: an object whose fields have their place in both versions is changed by Kubernetes' own functions in
// nothing but the name of its version.
func TestRelabelling(t *testing.T) {
	s := newSpecimens(t, 1)
	pairs := 0
	s.nativePairs(func(from, to schema.GroupVersionKind) {
		r, err := s.c.route(from, to)
		if err != nil {
			t.Fatal(err)
		}
		if !r.relabels {
			return
		}
		pairs++
		for range 10 {
			in := common(s.of(t, from), r.source, r.target).(map[string]any)
			if rewritten(in) {
				continue
			}
			relabelled, _, ok, err := r.relabel(in, apart, &forms{})
			if err != nil || !ok {
				t.Fatalf("%s to %s: relabelled is %v, %v", kindName(from), kindName(to), ok, err)
			}
			converted, _, err := r.passage(in, &forms{})
			if err != nil {
				t.Fatal(err)
			}
			relabelled, converted = normal(t, s.c, relabelled), normal(t, s.c, converted)
			failed := false
			for _, m := range []missing{between(relabelled, converted, r.target),
				between(converted, relabelled, r.target)} {
				for _, d := range m.found {
					t.Errorf("%s to %s is not only a matter of names: %s: %v and %v", kindName(from), kindName(to),
						d.at, d.value, d.now)
					failed = true
				}
			}
			if failed {
				return
			}
		}
	})
	if pairs < 100 {
		t.Errorf("%d pairs, want at least 100", pairs)
	}
}

// common is the part of a value that has a place in both shapes.
func common(value any, source, target *shape) any {
	switch value := value.(type) {
	case map[string]any:
		if source.value() {
			return value
		}
		out := map[string]any{}
		for key, v := range value {
			if a, b := source.at(key), target.at(key); b != nil && a.value() == b.value() && a.list == b.list {
				out[key] = common(v, a, b)
			}
		}
		return out
	case []any:
		out := make([]any, len(value))
		for i, v := range value {
			out[i] = common(v, source.ofElements(), target.ofElements())
		}
		return out
	default:
		return value
	}
}

func between(a, b map[string]any, s *shape) missing {
	m := missing{}
	m.compare(a, b, s)
	return m
}

// TestPodTemplatesAreCopied: Kubernetes' functions change nothing in a pod template, the fields that repeat others
// aside.
func TestPodTemplatesAreCopied(t *testing.T) {
	s := newSpecimens(t, 3)
	template := kind("", "v1", "PodTemplate")
	for range 200 {
		in := s.of(t, template)
		out, err := s.c.throughHub(in, template, template, s.c.hubs[template])
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []missing{between(in, out, s.c.shapes.of(template)),
			between(out, in, s.c.shapes.of(template))} {
			for _, d := range m.found {
				t.Errorf("%s: %v and %v", d.at, d.value, d.now)
			}
		}
	}
	for _, kinds := range [][2]schema.GroupVersionKind{
		{kind("extensions", "v1beta1", "Deployment"), kind("apps", "v1", "Deployment")},
		{kind("apps", "v1beta1", "StatefulSet"), kind("apps", "v1", "StatefulSet")},
	} {
		if r, err := s.c.route(kinds[0], kinds[1]); err != nil || r.template.String() != "spec.template" {
			t.Errorf("%s to %s: the pod template is found at %q, %v", kindName(kinds[0]), kindName(kinds[1]),
				r.template, err)
		}
	}
}

// TestSchemasAreCopied: a CRD whose schemas are copied past Kubernetes' functions is what they make of it with them.
func TestSchemasAreCopied(t *testing.T) {
	s := newSpecimens(t, 5)
	v1, v1beta1 := kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
		kind("apiextensions.k8s.io", "v1beta1", "CustomResourceDefinition")
	copied := 0
	for _, kinds := range [][2]schema.GroupVersionKind{{v1, v1beta1}, {v1beta1, v1}} {
		r, err := s.c.route(kinds[0], kinds[1])
		if err != nil || r.schema == nil {
			t.Fatalf("%v, schemas are like %v", err, r.schema)
		}
		through := *r
		through.schema = nil
		for range 150 {
			in := s.of(t, kinds[0])
			_, ofCRD := cutSchemas(in)
			copied += len(ofCRD.places)
			before := runtime.DeepCopyJSON(in)
			got, lost, err := r.convert(in, apart, &forms{})
			want, alsoLost, alsoErr := through.convert(in, apart, &forms{})
			if err != nil || alsoErr != nil {
				t.Fatalf("%v and %v", err, alsoErr)
			}
			if !reflect.DeepEqual(in, before) {
				t.Fatal("the input was changed")
			}
			for _, m := range []missing{between(got, want, r.target), between(want, got, r.target)} {
				for _, d := range m.found {
					t.Errorf("%s to %s: %s: %v and %v", r.from.Version, r.to.Version, d.at, d.value, d.now)
				}
			}
			if diff := cmp.Diff(alsoLost, lost); diff != "" {
				t.Errorf("%s to %s: lost through Kubernetes' types, and with copies:\n%s",
					r.from.Version, r.to.Version, diff)
			}
		}
	}
	if copied < 100 {
		t.Errorf("%d schemas were copied, want more than 100", copied)
	}
}

// TestSchemasOfNoVersion: what no version knows in a schema is lost by its place, in each of the versions that share
// the schema; a value of another kind is refused.
func TestSchemasOfNoVersion(t *testing.T) {
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	crd := func(schema map[string]any) *unstructured.Unstructured {
		version := func(name string) any {
			return map[string]any{"name": name, "served": true, "storage": name == "v1",
				"schema": map[string]any{"openAPIV3Schema": schema}}
		}
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": "xs.g.example"},
			"spec": map[string]any{"group": "g.example", "scope": "Cluster",
				"names":    map[string]any{"plural": "xs", "kind": "X"},
				"versions": []any{version("v1"), version("v2")}},
		}}
	}
	list := func(item map[string]any) map[string]any {
		return map[string]any{"type": "object", "properties": map[string]any{
			"list": map[string]any{"type": "array", "items": item}},
			"dependencies": map[string]any{"a": []any{"b"}}}
	}
	to := kind("apiextensions.k8s.io", "v1beta1", "CustomResourceDefinition")
	out, losses, err := c.Convert(crd(list(map[string]any{"type": "string", "minLenght": int64(1)})), to)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, loss := range losses {
		paths = append(paths, loss.Path)
	}
	const item = "].schema.openAPIV3Schema.properties.list.items.minLenght"
	if want := []string{"spec.versions[0" + item, "spec.versions[1" + item}; !slices.Equal(paths, want) {
		t.Errorf("lost %q, want %q", paths, want)
	}
	shared, _, _ := unstructured.NestedMap(out.Object, "spec", "validation", "openAPIV3Schema")
	if want := list(map[string]any{"type": "string"}); !reflect.DeepEqual(shared, want) {
		t.Errorf("the schema of all versions is %v, want %v", shared, want)
	}
	_, _, err = c.Convert(crd(list(map[string]any{"type": "string", "minLength": "one"})), to)
	const wrong = "schema.openAPIV3Schema.properties.list.items.minLength: want a whole number"
	if err == nil || !strings.Contains(err.Error(), wrong) {
		t.Errorf("a length in words: %v", err)
	}
}

// TestRoundTrips: what goes to another version and back is what it was, or the report names each difference.
func TestRoundTrips(t *testing.T) {
	s := newSpecimens(t, 2)
	s.nativePairs(func(from, to schema.GroupVersionKind) {
		for range 5 {
			in := s.of(t, from)
			checkRoundTrip(t, s.c, in, to)
		}
	})
}

func checkRoundTrip(t *testing.T, c *Converter, in map[string]any, to schema.GroupVersionKind) {
	t.Helper()
	source := &unstructured.Unstructured{Object: in}
	from := source.GroupVersionKind()
	before := source.DeepCopy()
	out, losses, err := c.Convert(source, to)
	if err != nil {
		t.Errorf("%s to %s: %v", kindName(from), kindName(to), err)
		return
	}
	if !reflect.DeepEqual(before.Object, in) {
		t.Errorf("%s to %s changed its input:\n%s", kindName(from), kindName(to), cmp.Diff(before.Object, in))
	}
	again, _, err := c.Convert(out, from)
	if err != nil {
		t.Errorf("%s to %s and back: %v", kindName(from), kindName(to), err)
		return
	}
	was, is := normal(t, c, in), normal(t, c, again.Object)
	m := between(was, is, c.shapes.of(from))
	for _, d := range m.found {
		if !reported(losses, d.at.String()) {
			t.Errorf("%s to %s and back: %s is %v, was %v, and the report does not say so: %v", kindName(from),
				kindName(to), d.at, d.now, d.value, losses)
		}
	}
	for _, loss := range losses {
		if len(m.found) == 0 {
			t.Errorf("%s to %s: %s is reported lost (%s) but comes back", kindName(from), kindName(to), loss.Path,
				loss.Meaning)
		}
	}
	invented := between(is, was, c.shapes.of(from))
	for _, d := range invented.found {
		if !reported(losses, d.at.String()) {
			t.Errorf("%s to %s and back: %s is %v, was %v", kindName(from), kindName(to), d.at, d.value, d.now)
		}
	}
}

// normal writes an object as Go's types do, so that fields which they always write are in it.
func normal(t *testing.T, c *Converter, object map[string]any) map[string]any {
	t.Helper()
	gvk := (&unstructured.Unstructured{Object: object}).GroupVersionKind()
	if !c.scheme.Recognizes(gvk) {
		return object
	}
	typed, err := c.scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, typed); err != nil {
		t.Fatal(err)
	}
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func reported(losses []Loss, path string) bool {
	for _, loss := range losses {
		if strings.HasPrefix(path, loss.Path) || strings.HasPrefix(loss.Path, path) {
			return true
		}
	}
	return false
}

// TestRoundTripsOfRemovedVersions: the same for the versions that Kubernetes 1.36 no longer has, or does not have yet.
// Their objects are made of those of the version next to them.
func TestRoundTripsOfRemovedVersions(t *testing.T) {
	s := newSpecimens(t, 4)
	tried := 0
	for _, edge := range slices.Concat(removed, newer) {
		var native schema.GroupVersionKind
		for _, equivalent := range s.c.Equivalents(edge.from) {
			if _, ok := s.c.hubs[equivalent]; ok {
				native = equivalent
			}
		}
		if native.Empty() {
			continue // PodSecurityPolicy, classic resource claims: no Go type is left
		}
		for range 5 {
			specimen := &unstructured.Unstructured{Object: s.of(t, native)}
			old, _, err := s.c.Convert(specimen, edge.from)
			if err != nil {
				t.Errorf("%s to %s: %v", kindName(native), kindName(edge.from), err)
				continue
			}
			for _, to := range s.c.Equivalents(edge.from) {
				checkRoundTrip(t, s.c, old.Object, to)
				tried++
			}
		}
	}
	if tried < 200 {
		t.Errorf("%d round trips", tried)
	}
}
