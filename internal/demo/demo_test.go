package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/kubefusion/fusionctl/internal/plantest"
)

// decode reads a value as an API server would: with the decoder of k8s.io/apimachinery, or as JSON.
func decode(t *testing.T, value []byte) (metav1.Object, string) {
	t.Helper()
	if bytes.HasPrefix(value, []byte("{")) {
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(value); err != nil {
			t.Fatal(err)
		}
		return o, o.GetAPIVersion()
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, appsv1beta1.AddToScheme, autoscalingv1.AddToScheme, batchv1.AddToScheme,
		coordinationv1.AddToScheme, corev1.AddToScheme,
		discoveryv1.AddToScheme, extensionsv1beta1.AddToScheme, flowcontrolv1.AddToScheme, networkingv1.AddToScheme,
		schedulingv1.AddToScheme,
		storagev1beta1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	o, gvk, err := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode(value, nil, nil)
	if err != nil {
		t.Fatalf("%v in %q", err, value)
	}
	object, ok := o.(metav1.Object)
	if !ok {
		t.Fatalf("%T is no object", o)
	}
	return object, gvk.GroupVersion().String()
}

// TestFillWritesWhatAnAPIServerReads decodes every value with Kubernetes' own decoder, and compares it with its key.
func TestFillWritesWhatAnAPIServerReads(t *testing.T) {
	p := plantest.Example(t, "vendor-1.6-1.36.yaml")
	contents, err := Fill(p, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	uids := map[string]string{}
	versions := map[string]bool{}
	for store, values := range contents {
		for key, value := range values {
			o, version := decode(t, value)
			versions[store+" "+version] = true
			if strings.Contains(key, "/ranges/") {
				continue
			}
			if want := objectKey("", o); !strings.HasSuffix(key, want) {
				t.Errorf("%s: %s holds %q", store, key, want)
			}
			if other, taken := uids[string(o.GetUID())]; taken || o.GetUID() == "" {
				t.Errorf("%s: UID %q is that of %s", key, o.GetUID(), other)
			}
			uids[string(o.GetUID())] = key
		}
	}
	for _, want := range []string{"core v1", "core extensions/v1beta1", "core apps/v1beta1", "modern apps/v1",
		"modern apiextensions.k8s.io/v1beta1", "modern kubeflow.org/v1"} {
		if !versions[want] {
			t.Errorf("nothing is stored as %s", want)
		}
	}
	for store, values := range contents {
		for key, value := range values {
			o, _ := decode(t, value)
			for _, owner := range o.GetOwnerReferences() {
				if uids[string(owner.UID)] == "" {
					t.Errorf("%s: %s is owned by %s %s, which nobody has", store, key, owner.Kind, owner.Name)
				}
			}
		}
	}
}

func TestFillRefusesAPairThatItIsNotWrittenFor(t *testing.T) {
	_, err := Fill(plantest.Example(t, "split-1.15-1.36.yaml"), time.Now())
	if err == nil ||
		!strings.Contains(err.Error(), `deployments: the legacy side stores "apps/v1", not *v1beta1.Deployment`) {
		t.Errorf("Fill of a legacy 1.15 = %v, want an error about Deployments", err)
	}
}

func TestViolationsAreNewKeys(t *testing.T) {
	p := plantest.Example(t, "vendor-1.6-1.36.yaml")
	contents, err := Fill(p, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	violations, err := Violations(p, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if len(violations) != 3 {
		t.Errorf("%d violations, want 3", len(violations))
	}
	for _, v := range violations {
		if _, taken := contents[v.Store][v.Key]; taken || p.Store(v.Store) == nil {
			t.Errorf("%s: %s of store %q is there already, or the store is not", v.Title, v.Key, v.Store)
		}
		if o, _ := decode(t, v.Value); !strings.HasSuffix(v.Key, objectKey("", o)) {
			t.Errorf("%s: %s holds %s", v.Title, v.Key, objectKey("", o))
		}
	}
}
