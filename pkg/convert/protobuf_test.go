package convert

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// asStored encodes an object of upstream's types as an API server stores it.
func asStored(t *testing.T, object runtime.Object, gvk schema.GroupVersionKind) []byte {
	t.Helper()
	object.GetObjectKind().SetGroupVersionKind(gvk)
	var out bytes.Buffer
	if err := protobuf.NewSerializer(nil, nil).Encode(object, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func oldDeployment() *extensionsv1beta1.Deployment {
	replicas := int32(3)
	labels := map[string]string{"app": "web"}
	return &extensionsv1beta1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Labels: labels},
		Spec: extensionsv1beta1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			RollbackTo: &extensionsv1beta1.RollbackConfig{Revision: 7},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web:1"}}}},
		},
	}
}

// What a server has stored in an old version comes out in the new one, in bytes that upstream's decoder reads.
func TestProtobufIsConvertedAsItIsStored(t *testing.T) {
	c := newConverter(t)
	stored := asStored(t, oldDeployment(), kind("extensions", "v1beta1", "Deployment"))
	converted, losses, err := c.ConvertProtobuf(stored, kind("apps", "v1", "Deployment"))
	if err != nil || len(losses) > 0 {
		t.Fatalf("ConvertProtobuf: losses %v, %v", losses, err)
	}
	scheme := runtime.NewScheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	object, gvk, err := protobuf.NewSerializer(scheme, scheme).Decode(converted, nil, nil)
	if err != nil || *gvk != kind("apps", "v1", "Deployment") {
		t.Fatalf("upstream reads %v, %v", gvk, err)
	}
	old, got := oldDeployment(), object.(*appsv1.Deployment)
	if *got.Spec.Replicas != 3 || got.Annotations["deprecated.deployment.rollback.to"] != "7" {
		t.Errorf("converted to %d replicas, annotations %v", *got.Spec.Replicas, got.Annotations)
	}
	if diff := cmp.Diff(old.Spec.Template, got.Spec.Template); diff != "" {
		t.Errorf("template (-stored +converted):\n%s", diff)
	}

	back, _, err := c.ConvertProtobuf(converted, kind("extensions", "v1beta1", "Deployment"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := c.DecodeProtobuf(stored)
	if err != nil {
		t.Fatal(err)
	}
	after, err := c.DecodeProtobuf(back)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before.Object, after.Object); diff != "" {
		t.Errorf("there and back (-before +after):\n%s", diff)
	}
}

func TestProtobufThatIsNoneIsRefused(t *testing.T) {
	c := newConverter(t)
	to := kind("apps", "v1", "Deployment")
	stored := asStored(t, oldDeployment(), kind("extensions", "v1beta1", "Deployment"))
	for name, data := range map[string][]byte{
		"nothing":      nil,
		"JSON":         []byte(`{"apiVersion":"apps/v1"}`),
		"the magic":    []byte("k8s\x00"),
		"cut":          stored[:len(stored)-9],
		"noise":        append([]byte("k8s\x00"), bytes.Repeat([]byte{0xff}, 64)...),
		"unknown kind": asStored(t, oldDeployment(), kind("example.com", "v1", "Deployment")),
	} {
		if _, _, err := c.ConvertProtobuf(data, to); err == nil {
			t.Errorf("%s: converted", name)
		}
	}
	_, _, err := c.ConvertProtobuf(stored, kind("example.com", "v1", "Deployment"))
	if _, ok := errors.AsType[*UnsupportedError](err); !ok {
		t.Errorf("to a kind that nobody knows: %v, want an UnsupportedError", err)
	}
}
