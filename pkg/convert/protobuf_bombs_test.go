package convert

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
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
