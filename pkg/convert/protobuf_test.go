package convert

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// A field of a newer version, or a vendor's, has no name by which it could be written; one of an older version has.
func TestProtobufFieldsOfOtherVersionsAreNotLostInSilence(t *testing.T) {
	c := newConverter(t)
	message := func(object interface{ Marshal() ([]byte, error) }, apiVersion, kind string, more ...byte) []byte {
		raw, err := object.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		wrapped := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind},
			Raw: append(raw, more...)}
		data, err := wrapped.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte("k8s\x00"), data...)
	}
	text := func(number protowire.Number, value string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), value)
	}
	in := func(number protowire.Number, inner []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), inner)
	}

	// The template of a Deployment is the field 3 of its spec, which is the field 2; field 2 of that its own.
	vendors := message(oldDeployment(), "extensions/v1beta1", "Deployment", in(2, in(3, in(2, text(999, "gold"))))...)
	_, _, err := c.ConvertProtobuf(vendors, kind("apps", "v1", "Deployment"))
	if _, ok := errors.AsType[*UnsupportedError](err); !ok ||
		!strings.Contains(err.Error(), "spec.template.spec.#999 ") {
		t.Errorf("a vendor's field: %v, want an UnsupportedError that names it", err)
	}
	empty := message(oldDeployment(), "extensions/v1beta1", "Deployment", in(2, in(3, in(2, text(999, ""))))...)
	if _, losses, err := c.ConvertProtobuf(empty, kind("apps", "v1", "Deployment")); err != nil || len(losses) > 0 {
		t.Errorf("a vendor's field that holds nothing: losses %v, %v", losses, err)
	}

	// metadata.clusterName was the field 15 of metadata until 1.23.
	old := message(oldDeployment(), "extensions/v1beta1", "Deployment", in(1, text(15, "blue"))...)
	object, err := c.DecodeProtobuf(old)
	if err != nil {
		t.Fatal(err)
	}
	if name, _, _ := unstructured.NestedString(object.Object, "metadata", "clusterName"); name != "blue" {
		t.Errorf("clusterName = %q, want blue", name)
	}
	_, losses, err := c.ConvertProtobuf(old, kind("apps", "v1", "Deployment"))
	if err != nil || len(losses) != 1 || losses[0].Path != "metadata.clusterName" {
		t.Errorf("losses %v, %v, want metadata.clusterName", losses, err)
	}
	same, losses, err := c.ConvertProtobuf(old, kind("extensions", "v1beta1", "Deployment"))
	if err != nil || len(losses) > 0 || !bytes.Equal(same, old) {
		t.Errorf("in its own version: %d bytes of %d, losses %v, %v", len(same), len(old), losses, err)
	}

	// Schemas of definitions are values, lists and objects under one name.
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "boats.example"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Default: &apiextensionsv1.JSON{Raw: []byte(`{"a":[1]}`)},
					Items: &apiextensionsv1.JSONSchemaPropsOrArray{
						Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}},
					AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true},
					Properties: map[string]apiextensionsv1.JSONSchemaProps{"p": {
						AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{
							Schema: &apiextensionsv1.JSONSchemaProps{Type: "integer"}}}},
				}}}}}}
	data := message(definition, "apiextensions.k8s.io/v1", "CustomResourceDefinition")
	if object, err = c.DecodeProtobuf(data); err != nil {
		t.Fatal(err)
	}
	want, err := runtime.DefaultUnstructuredConverter.ToUnstructured(definition)
	if err != nil {
		t.Fatal(err)
	}
	object.SetGroupVersionKind(schema.GroupVersionKind{})
	delete(object.Object, "apiVersion")
	delete(object.Object, "kind")
	if diff := cmp.Diff(want, object.Object); diff != "" {
		t.Errorf("a definition (-want +got):\n%s", diff)
	}
}
