package objects_test

import (
	"bytes"
	encodingjson "encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cbor "k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
)

// store encodes an object as an API server would.
func store(t *testing.T, asJSON bool, gv schema.GroupVersion, object runtime.Object) []byte {
	t.Helper()
	var encoder runtime.Encoder = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	if asJSON {
		encoder = json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme,
			json.SerializerOptions{})
	}
	data, err := runtime.Encode(scheme.Codecs.EncoderForVersion(encoder, gv), object)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func modernPod() *corev1.Pod {
	policy := corev1.PreemptLowerPriority
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default",
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}},
		Spec: corev1.PodSpec{
			PreemptionPolicy:          &policy,
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1}},
			Containers: []corev1.Container{{Name: "a"},
				{Name: "b", StartupProbe: &corev1.Probe{
					ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 1}}}}},
			Volumes: []corev1.Volume{{Name: "v",
				VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
					VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}}}}},
		},
	}
}

func TestFindSeesFieldsInBothEncodings(t *testing.T) {
	paths := []string{
		"metadata.managedFields", "spec.preemptionPolicy", "spec.topologySpreadConstraints",
		"spec.containers[].startupProbe",
		"spec.volumes[].ephemeral", "spec.schedulingGates", "spec.hostname", "spec.enableServiceLinks",
		"spec.initContainers[].startupProbe", "spec.noSuchField", "spec.containers[].resources.claims",
	}
	side := &pair.View{Drops: paths}
	want := []string{"metadata.managedFields", "spec.containers[].startupProbe", "spec.preemptionPolicy",
		"spec.topologySpreadConstraints", "spec.volumes[].ephemeral"}
	for _, asJSON := range []bool{false, true} {
		e, err := storage.ReadEnvelope(store(t, asJSON, corev1.SchemeGroupVersion, modernPod()))
		if err != nil {
			t.Fatal(err)
		}
		var finder objects.Finder
		for range 2 { // the second time from what the first one prepared
			var got []string
			if err := finder.Find(&e, side, func(path string, _ bool) { got = append(got, path) }); err != nil {
				t.Fatal(err)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s: Find = %q, want %q", e.Encoding, got, want)
			}
		}
	}
}

// TestFindTellsWhatALossMeans looks at values that say nothing, at empty ones that say something, and at those that say
// what a version without the field does anyway.
func TestFindTellsWhatALossMeans(t *testing.T) {
	no, yes, none, ten := false, true, "", int32(10800)
	side := func(implied map[string]string, drops ...string) *pair.View {
		return &pair.View{Drops: drops, Implied: implied}
	}
	pod := func(change func(*corev1.PodSpec)) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}}
		change(&p.Spec)
		return p
	}
	service := func(change func(*corev1.ServiceSpec)) *corev1.Service {
		s := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.7"}}
		change(&s.Spec)
		return s
	}
	links := side(map[string]string{"spec.enableServiceLinks": "true"}, "spec.enableServiceLinks")
	affinity := side(map[string]string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds": "10800"},
		"spec.sessionAffinityConfig")
	addresses := side(map[string]string{"spec.clusterIPs": pair.OneElement}, "spec.clusterIPs")
	for name, test := range map[string]struct {
		object runtime.Object
		side   *pair.View
		want   string
	}{
		"a flag that is off": {pod(func(s *corev1.PodSpec) { s.EnableServiceLinks = &no }), links, "lost"},
		"a flag as it is anyway": {pod(func(s *corev1.PodSpec) {
			s.EnableServiceLinks = &yes
		}), links, "implied"},
		"a flag that is not set": {pod(func(*corev1.PodSpec) {}), links, ""},
		"a number that is 0 by itself": {pod(func(*corev1.PodSpec) {}),
			side(nil, "spec.containers[].resources.claims", "spec.hostNetwork"), ""},
		"an empty text": {pod(func(s *corev1.PodSpec) {
			s.RuntimeClassName = &none
		}), side(nil, "spec.runtimeClassName"), "lost"},
		"an empty struct": {pod(func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{
				{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
		}),
			side(nil, "spec.volumes[].ephemeral"), "lost"},
		"a struct as it is anyway": {service(func(s *corev1.ServiceSpec) {
			s.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &ten}}
		}), affinity, "implied"},
		"a struct that is another": {service(func(s *corev1.ServiceSpec) {
			s.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32)}}
		}), affinity, "lost"},
		"a list of one": {service(func(s *corev1.ServiceSpec) {
			s.ClusterIPs = []string{"10.96.0.7"}
		}), addresses, "implied"},
		"a list of two": {service(func(s *corev1.ServiceSpec) {
			s.ClusterIPs = []string{"10.96.0.7", "fd00::7"}
		}), addresses, "lost"},
		"a list of none": {service(func(s *corev1.ServiceSpec) { s.ClusterIPs = []string{} }), addresses, ""},
		"one of two says": {pod(func(s *corev1.PodSpec) {
			s.Containers = []corev1.Container{{TTY: true}, {}}
		}), side(nil, "spec.containers[].tty"), "lost"},
		"a struct of empty texts": {&corev1.Event{}, side(nil, "source", "eventTime"), ""},
	} {
		for _, asJSON := range []bool{false, true} {
			e, err := storage.ReadEnvelope(store(t, asJSON, corev1.SchemeGroupVersion, test.object))
			if err != nil {
				t.Fatal(err)
			}
			var finder objects.Finder
			got := ""
			if err := finder.Find(&e, test.side, func(_ string, implied bool) {
				if got = "lost"; implied {
					got = "implied"
				}
			}); err != nil || got != test.want {
				t.Errorf("%s in %s: Find says %q, %v; want %q", name, e.Encoding, got, err, test.want)
			}
		}
	}
}

func TestFindReportsDamage(t *testing.T) {
	value := store(t, false, corev1.SchemeGroupVersion, modernPod())
	e, err := storage.ReadEnvelope(value)
	if err != nil {
		t.Fatal(err)
	}
	e.Body = e.Body[:len(e.Body)-3]
	var finder objects.Finder
	if err := finder.Find(&e, &pair.View{Drops: []string{"spec.hostname"}}, func(string, bool) {}); !errors.Is(
		err, storage.ErrUnreadable) {
		t.Errorf("Find in a damaged object = %v, want %v", err, storage.ErrUnreadable)
	}
}

func TestDecode(t *testing.T) {
	for name, test := range map[string]struct {
		value []byte
		says  string // the kind, or part of the error
		fails bool
	}{
		"pod":         {store(t, false, corev1.SchemeGroupVersion, modernPod()), "Pod", false},
		"pod in JSON": {store(t, true, corev1.SchemeGroupVersion, modernPod()), "Pod", false},
		"old ingress": {store(t, false, extensionsv1beta1.SchemeGroupVersion,
			&extensionsv1beta1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "web"}}), "Ingress", false},
		"custom resource": {[]byte(`{"apiVersion":"kubeflow.org/v1","kind":"Notebook","metadata":{"name":"a"}}`),
			"Notebook", false},
		"empty":     {nil, "empty", true},
		"encrypted": {[]byte("k8s:enc:aescbc:v1:key1:xx"), `encrypted by provider "aescbc" with key "key1"`, true},
		"damaged": {store(t, false, corev1.SchemeGroupVersion, modernPod())[:60],
			"not the value of a Kubernetes object", true},
	} {
		object, err := objects.Decode(test.value)
		switch {
		case test.fails && (err == nil || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%s: Decode = %v, want an error that says %q", name, err, test.says)
		case !test.fails && (err != nil || object["kind"] != test.says):
			t.Errorf("%s: Decode = %v, %v; want a %s", name, object["kind"], err, test.says)
		}
	}
}

// TestDecodeReadsWhatRealServersStored decodes every value that servers 1.10 and 1.36 wrote, with a name for every
// field.
func TestDecodeReadsWhatRealServersStored(t *testing.T) {
	realValues(t, func(key string, value []byte) {
		if object, err := objects.Decode(value); err != nil || object["kind"] == "" || objects.Nameless(object) {
			t.Errorf("%s: Decode = %v, %v", key, object["kind"], err)
		}
	})
}

// TestFindInProtobufFindsWhatIsInJSON looks for every field that a side drops, in every value that real servers wrote:
// in protobuf, in the JSON of the same object, and in its CBOR.
func TestFindInProtobufFindsWhatIsInJSON(t *testing.T) {
	m := splitMap(t)
	classifier := storage.NewClassifier(m)
	var finder objects.Finder
	objectsWithFields := 0
	realValues(t, func(key string, value []byte) {
		object, err := objects.Decode(value)
		if err != nil {
			t.Fatal(err)
		}
		asCBOR, err := cbor.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		for _, side := range dropping(m, classifier.Classify(key).Resource) {
			want := find(t, &finder, toJSON(t, object), side)
			if len(want) > 0 {
				objectsWithFields++
			}
			for encoding, value := range map[string][]byte{"stored": value,
				"CBOR": append([]byte("\xd9\xd9\xf7"), asCBOR...)} {
				if got := find(t, &finder, value, side); !slices.Equal(got, want) {
					t.Errorf("%s: in the value, %s, Find = %q; in its JSON %q", key, encoding, got, want)
				}
			}
		}
	})
	if objectsWithFields < 10 {
		t.Errorf("only %d objects have fields that are dropped", objectsWithFields)
	}
}

func find(t testing.TB, finder *objects.Finder, value []byte, side *pair.View) (found []string) {
	t.Helper()
	e, err := storage.ReadEnvelope(value)
	if err == nil {
		err = finder.Find(&e, side, func(path string, implied bool) {
			found = append(found, fmt.Sprintf("%s implied=%v", path, implied))
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	return found
}

func toJSON(t testing.TB, object map[string]any) []byte {
	t.Helper()
	data, err := encodingjson.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestFindDoesNotLookIntoListsOfLists: no API type has them.
func TestFindDoesNotLookIntoListsOfLists(t *testing.T) {
	if err := findInNestedLists(t, 40); !errors.Is(err, storage.ErrUnreadable) {
		t.Errorf("Find in 40 nested lists = %v, want %v", err, storage.ErrUnreadable)
	}
}

// BenchmarkFindInNestedLists: to scan each level anew would take the square of their depth.
func BenchmarkFindInNestedLists(b *testing.B) {
	for b.Loop() {
		if err := findInNestedLists(b, 40_000); !errors.Is(err, storage.ErrUnreadable) {
			b.Fatalf("Find = %v, want %v", err, storage.ErrUnreadable)
		}
	}
	if took := b.Elapsed() / time.Duration(b.N); took > 50*time.Millisecond {
		b.Errorf("40,000 nested lists take %s, want a few milliseconds", took)
	}
}

func findInNestedLists(t testing.TB, depth int) error {
	t.Helper()
	nested := strings.Repeat("[", depth) + strings.Repeat("]", depth)
	e, err := storage.ReadEnvelope([]byte(`{"apiVersion":"v1","kind":"Pod","spec":` + nested + `}`))
	if err != nil {
		t.Fatal(err)
	}
	var finder objects.Finder
	return finder.Find(&e, &pair.View{Drops: []string{"spec.hostname"}}, func(string, bool) {})
}

// TestValuesThatAreBombs: two bytes of a stored value are an element, of many times as much.
func TestValuesThatAreBombs(t *testing.T) {
	pod := func(elements int) []byte {
		return store(t, false, corev1.SchemeGroupVersion, &corev1.Pod{Spec: corev1.PodSpec{
			ImagePullSecrets: make([]corev1.LocalObjectReference, elements)}})
	}
	if _, err := objects.Decode(pod(1000)); err != nil {
		t.Error(err)
	}
	if _, err := objects.Decode(pod(500_000)); !errors.Is(err, storage.ErrUnreadable) ||
		!strings.Contains(err.Error(), "takes more than 512 MiB") {
		t.Errorf("half a million elements: %v", err)
	}
	const good, slow = "12345678901n", "1e-100000000" // of one length
	quantity := store(t, false, corev1.SchemeGroupVersion, &corev1.Pod{Spec: corev1.PodSpec{
		Overhead: corev1.ResourceList{"cpu": resource.MustParse(good)}}})
	if _, err := objects.Decode(bytes.Replace(quantity, []byte(good), []byte(slow), 1)); !errors.Is(err,
		storage.ErrUnreadable) || !strings.Contains(err.Error(), "exponent") {
		t.Errorf("a quantity that takes a minute: %v", err)
	}
	large := &corev1.ConfigMap{Data: map[string]string{"a": strings.Repeat("text, of many lines\n", 60_000)}}
	if _, err := objects.Decode(store(t, false, corev1.SchemeGroupVersion, large)); err != nil {
		t.Errorf("a large text: %v", err)
	}
}
