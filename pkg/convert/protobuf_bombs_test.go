package convert

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// message is a field of a message that is a message or a text.
func message(number protowire.Number, data []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), data)
}

// stored is an object as it is stored.
func stored(apiVersion, kind string, object []byte) []byte {
	meta := append(message(1, []byte(apiVersion)), message(2, []byte(kind))...)
	return slices.Concat([]byte("k8s\x00"), message(1, meta), message(2, object))
}

// nested is a CRD whose schema holds itself.
func nested(levels int) []byte {
	const not = 28 // of JSONSchemaProps
	var backwards []byte
	for range levels {
		head := protowire.AppendVarint(protowire.AppendTag(nil, not, protowire.BytesType), uint64(len(backwards)))
		slices.Reverse(head)
		backwards = append(backwards, head...)
	}
	slices.Reverse(backwards)
	return stored("apiextensions.k8s.io/v1", "CustomResourceDefinition",
		message(2, message(7, message(4, message(1, backwards)))))
}

// TestMessagesThatAreBombs: a message within itself ended the process, whatever recovered; two bytes were a kilobyte.
func TestMessagesThatAreBombs(t *testing.T) {
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.DecodeProtobuf(nested(500)); err != nil {
		t.Errorf("a deep schema: %v", err)
	}
	if _, err := c.DecodeProtobuf(nested(2_500_000)); err == nil || !strings.Contains(err.Error(), "nested") {
		t.Errorf("a schema without a bottom: %v", err)
	}
	containers := bytes.Repeat(message(2, nil), 1<<20)
	pod := stored("v1", "Pod", message(2, containers))
	if size, err := ProtobufBytes(pod); err != nil || size < int64(len(pod))*1000 {
		t.Errorf("a pod of a million containers takes %d bytes, %v", size, err)
	}
	if _, err := c.DecodeProtobuf(pod); err == nil || !strings.Contains(err.Error(), "takes more than 512 MiB") {
		t.Errorf("a pod of a million containers: %v", err)
	}
	if size, err := ProtobufBytes([]byte("k8s\x00\xff\xff")); err != nil || size > 4096 {
		t.Errorf("what is no message takes %d bytes, %v", size, err)
	}
}

// TestQuantitiesThatAreBombs: to parse twelve bytes took a minute, in a message, in a text, and in one that the readers
// leave to Kubernetes' converter.
func TestQuantitiesThatAreBombs(t *testing.T) {
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	const bomb = "1e-100000000"
	claim := func(more string) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim",
			"metadata": map[string]any{"name": "a", "labels": map[string]any{"commit": bomb}, "generation": more},
			"spec":     map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": bomb}}}}
	}
	for name, object := range map[string]map[string]any{"read": claim(""), "left to the converter": claim("x")} {
		if name == "read" {
			delete(object["metadata"].(map[string]any), "generation")
		}
		_, err := c.EncodeProtobuf(&unstructured.Unstructured{Object: object})
		const want = `spec.resources.requests.storage: quantity "1e-100000000": its exponent is beyond 1000`
		if wrong := (*ContentError)(nil); !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	hpa := func(annotation, text string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "autoscaling/v1",
			"kind": "HorizontalPodAutoscaler", "metadata": map[string]any{"name": "a", "annotations": map[string]any{
				"autoscaling.alpha.kubernetes.io/" + annotation: text}},
			"spec": map[string]any{"maxReplicas": int64(3), "scaleTargetRef": map[string]any{"kind": "Deployment",
				"name": "a", "apiVersion": "apps/v1"}}}}
	}
	for annotation, text := range map[string]string{
		"metrics":            `[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"` + bomb + `"}}]`,
		"current-metrics":    `[{"type":"Pods","pods":{"metricName":"m","currentAverageValue":` + bomb + `}}]`,
		"scale-up-tolerance": bomb} {
		out, _, err := c.Convert(hpa(annotation, text), schema.GroupVersionKind{Group: "autoscaling", Version: "v2",
			Kind: "HorizontalPodAutoscaler"})
		if err != nil || out.GetAnnotations()["autoscaling.alpha.kubernetes.io/"+annotation] != text {
			t.Errorf("the annotation %s: %v, want it beside the fields", annotation, err)
		}
	}
	entry := slices.Concat(message(1, []byte("storage")), message(2, message(1, []byte(bomb))))
	_, err = c.DecodeProtobuf(stored("v1", "PersistentVolumeClaim", message(2, message(2, message(2, entry)))))
	if err == nil || !strings.Contains(err.Error(), "exponent") {
		t.Errorf("a message: %v", err)
	}
}
