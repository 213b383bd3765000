package objects_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
	"github.com/kubefusion/fusionctl/pkg/etcdsplit/objects"
	"github.com/kubefusion/fusionctl/pkg/etcdsplit/snapshot"
)

// store encodes an object as an API server would.
func store(t *testing.T, asJSON bool, gv schema.GroupVersion, object runtime.Object) []byte {
	t.Helper()
	var encoder runtime.Encoder = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	if asJSON {
		encoder = json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{})
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
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}},
		Spec: corev1.PodSpec{
			PreemptionPolicy:          &policy,
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1}},
			Containers:                []corev1.Container{{Name: "a"}, {Name: "b", StartupProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 1}}}}},
			Volumes:                   []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}}}}},
		},
	}
}

func TestFindSeesFieldsInBothEncodings(t *testing.T) {
	paths := []string{
		"metadata.managedFields", "spec.preemptionPolicy", "spec.topologySpreadConstraints", "spec.containers[].startupProbe", "spec.containers[].startupProbe.grpc",
		"spec.volumes[].ephemeral", "spec.schedulingGates", "spec.hostname", "spec.enableServiceLinks", "spec.initContainers[].startupProbe", "spec.noSuchField", "spec.containers[].resources.claims",
	}
	want := []string{"metadata.managedFields", "spec.containers[].startupProbe", "spec.containers[].startupProbe.grpc", "spec.preemptionPolicy", "spec.topologySpreadConstraints", "spec.volumes[].ephemeral"}
	for _, asJSON := range []bool{false, true} {
		e, err := etcdsplit.ReadEnvelope(store(t, asJSON, corev1.SchemeGroupVersion, modernPod()))
		if err != nil {
			t.Fatal(err)
		}
		var finder objects.Finder
		for range 2 { // the second time from what the first one prepared
			var got []string
			if err := finder.Find(&e, paths, func(path string) { got = append(got, path) }); err != nil {
				t.Fatal(err)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s: Find = %q, want %q", e.Encoding, got, want)
			}
		}
	}
}

func TestFindReportsDamage(t *testing.T) {
	value := store(t, false, corev1.SchemeGroupVersion, modernPod())
	e, err := etcdsplit.ReadEnvelope(value)
	if err != nil {
		t.Fatal(err)
	}
	e.Body = e.Body[:len(e.Body)-3]
	var finder objects.Finder
	if err := finder.Find(&e, []string{"spec.hostname"}, func(string) {}); !errors.Is(err, etcdsplit.ErrUnreadable) {
		t.Errorf("Find in a damaged object = %v, want %v", err, etcdsplit.ErrUnreadable)
	}
}

func TestDecode(t *testing.T) {
	for name, test := range map[string]struct {
		value []byte
		says  string // the kind, or part of the error
		fails bool
	}{
		"pod":             {store(t, false, corev1.SchemeGroupVersion, modernPod()), "Pod", false},
		"pod in JSON":     {store(t, true, corev1.SchemeGroupVersion, modernPod()), "Pod", false},
		"old ingress":     {store(t, false, extensionsv1beta1.SchemeGroupVersion, &extensionsv1beta1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "web"}}), "Ingress", false},
		"custom resource": {[]byte(`{"apiVersion":"kubeflow.org/v1","kind":"Notebook","metadata":{"name":"a"}}`), "Notebook", false},
		"empty":           {nil, "empty", true},
		"encrypted":       {[]byte("k8s:enc:aescbc:v1:key1:xx"), `encrypted by provider "aescbc" with key "key1"`, true},
		"damaged":         {store(t, false, corev1.SchemeGroupVersion, modernPod())[:60], "not the value of a Kubernetes object", true},
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

func TestDecodeSaysWhenATypeIsGone(t *testing.T) {
	typeMeta := append(append([]byte{0x0a, 24}, "settings.k8s.io/v1alpha1"...), append([]byte{0x12, 9}, "PodPreset"...)...)
	value := append([]byte("k8s\x00\x0a"), append([]byte{byte(len(typeMeta))}, typeMeta...)...)
	if _, err := objects.Decode(append(value, 0x12, 0)); err == nil || !strings.Contains(err.Error(), "its definition is gone from the newest version") {
		t.Errorf("Decode = %v, want it to say that the type is gone", err)
	}
}

// TestDecodeReadsWhatRealServersStored decodes every value that servers 1.10 and 1.36 wrote.
func TestDecodeReadsWhatRealServersStored(t *testing.T) {
	for _, name := range []string{"core", "modern"} {
		f, err := snapshot.Open("../snapshot/testdata/split-1.10-1.36-" + name + ".db")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := etcdsplit.Entries(t.Context(), etcdsplit.Store{Name: name, Walker: f}, etcdsplit.Request{}, func(e etcdsplit.Entry) error {
			if object, err := objects.Decode(e.Value); err != nil || object["kind"] == "" {
				t.Errorf("%s: Decode = %v, %v", e.Key, object["kind"], err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
