package convert

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/kubefusion/fusionctl/internal/quantity"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
)

// ProtobufBytes is an upper estimate of what decoding a message takes, as values of Go and of JSON: an element of a
// list may be two bytes, and a structure of a kilobyte. Errors: messages are nested too deeply to be decoded.
func ProtobufBytes(data []byte) (int64, error) {
	return storage.DecodedProtoBytes(bytes.TrimPrefix(data, []byte("k8s\x00")))
}

// limitDecodedBytes bounds what a message takes decoded: far more than one that a server stores.
const limitDecodedBytes = 512 << 20

// DecodeProtobuf reads an object as servers store and send it: the bytes k8s\0, then the kind and the message. Fields
// that older versions had are there under their names. Errors: *UnsupportedError for a kind that has no Go type in
// Kubernetes 1.36, whose message could not be told from another's, and for a field without a known name.
func (c *Converter) DecodeProtobuf(data []byte) (*unstructured.Unstructured, error) {
	switch size, err := ProtobufBytes(data); {
	case err != nil:
		return nil, fmt.Errorf("decoding protobuf: %w", err)
	case size > limitDecodedBytes:
		return nil, fmt.Errorf("decoding protobuf: takes more than %d MiB", limitDecodedBytes>>20)
	}
	if err := c.boundQuantities(data); err != nil {
		return nil, fmt.Errorf("decoding protobuf: %w", err)
	}
	object, gvk, err := protobuf.NewSerializer(c.scheme, c.scheme).Decode(data, nil, nil)
	switch {
	case runtime.IsNotRegisteredError(err) && gvk != nil:
		return nil, &UnsupportedError{*gvk, *gvk,
			"Kubernetes 1.36 has no message of this kind any more: let a server that has it write JSON"}
	case err != nil:
		return nil, fmt.Errorf("decoding protobuf: %w", err)
	}
	object.GetObjectKind().SetGroupVersionKind(*gvk)
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	if err := complete(fields, object, data); err != nil {
		if _, ok := errors.AsType[*objects.NamelessError](err); ok {
			return nil, &UnsupportedError{From: *gvk, Reason: err.Error() + " to Kubernetes 1.36, and that would be " +
				"lost: write JSON"}
		}
		return nil, fmt.Errorf("decoding protobuf: %w", err)
	}
	return &unstructured.Unstructured{Object: fields}, nil
}

// complete adds what the type of an object does not have of its message.
func complete(fields map[string]any, object runtime.Object, data []byte) error {
	var wrapped runtime.Unknown
	if err := wrapped.Unmarshal(bytes.TrimPrefix(data, []byte("k8s\x00"))); err != nil {
		return err
	}
	return objects.Complete(fields, reflect.TypeOf(object), wrapped.Raw)
}

// boundQuantities refuses a message with a quantity that takes minutes to decode. What cannot be read passes.
func (c *Converter) boundQuantities(data []byte) error {
	var wrapped runtime.Unknown
	if wrapped.Unmarshal(bytes.TrimPrefix(data, []byte("k8s\x00"))) != nil {
		return nil
	}
	typed, err := c.scheme.New(schema.FromAPIVersionAndKind(wrapped.APIVersion, wrapped.Kind))
	if err != nil {
		return nil //nolint:nilerr // the decoder says so
	}
	return quantity.InMessage(wrapped.Raw, reflect.TypeOf(typed))
}

// EncodeProtobuf writes an object as servers store and send it.
// Errors: as DecodeProtobuf; *ContentError when the object is not what its kind requires.
func (c *Converter) EncodeProtobuf(object *unstructured.Unstructured) ([]byte, error) {
	gvk := object.GroupVersionKind()
	if !c.scheme.Recognizes(gvk) {
		return nil, &UnsupportedError{gvk, gvk, "Kubernetes 1.36 has no message of this kind"}
	}
	typed, err := c.decode(object.Object, gvk)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := protobuf.NewSerializer(c.scheme, c.scheme).Encode(typed, &out); err != nil {
		return nil, fmt.Errorf("encoding protobuf: %w", err)
	}
	return out.Bytes(), nil
}

// ConvertProtobuf converts an object from bytes to bytes, which stay as they are in the version that they are in.
// Errors: as DecodeProtobuf and Convert.
func (c *Converter) ConvertProtobuf(data []byte, to schema.GroupVersionKind) ([]byte, []Loss, error) {
	if len(data) == 0 {
		return nil, nil, errors.New("decoding protobuf: no bytes")
	}
	object, err := c.DecodeProtobuf(data)
	if err != nil {
		return nil, nil, err
	}
	if object.GroupVersionKind() == to {
		return data, nil, nil
	}
	losses, err := c.ConvertInPlace(object, to)
	if err != nil {
		return nil, nil, err
	}
	out, err := c.EncodeProtobuf(object)
	return out, losses, err
}
