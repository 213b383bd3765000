package storage

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/fxamacker/cbor/v2"
)

// Encoding is how a value is stored.
type Encoding string

// The encodings of values in a store of Kubernetes 1.6 to 1.36.
const (
	Protobuf Encoding = "protobuf" // k8s\0 and a runtime.Unknown
	// CRDs, custom resources, APIServices; everything under --storage-media-type=application/json
	JSON Encoding = "json"
	// self-described, 0xd9d9f7; custom resources behind an alpha gate of 1.32 and later
	CBOR      Encoding = "cbor"
	Encrypted Encoding = "encrypted" // k8s:enc:<provider>:<version>:<key>:
)

var (
	protobufMagic  = []byte("k8s\x00")
	cborMagic      = []byte{0xd9, 0xd9, 0xf7}
	encryptedMagic = []byte("k8s:enc:")
)

// ErrUnreadable is wrapped by every error about a value that is no object of Kubernetes.
var ErrUnreadable = errors.New("not the value of a Kubernetes object")

// Envelope is what is known about a value without decoding the object. Its slices are parts of the value.
type Envelope struct {
	Encoding   Encoding
	APIVersion []byte // "apps/v1"; nil when encrypted
	Kind       []byte // "Deployment"; nil when encrypted
	Provider   []byte // of Encrypted: "aescbc", "aesgcm", "secretbox", "kms"
	KeyName    []byte // of Encrypted: the name of the key, or of the KMS plugin, in the configuration
	Body       []byte // protobuf: the object's message; JSON and CBOR: the whole value
}

// ReadEnvelope reads how a value is stored and its type, in time that does not depend on the size of the
// value for protobuf, and without allocating for protobuf and JSON. Errors: ErrUnreadable, wrapped, when the value is
// empty, truncated, of another format, or names no type. Source: runtime/serializer/{protobuf,json,cbor} of
// apimachinery; value/transformer of apiserver.
func ReadEnvelope(value []byte) (e Envelope, err error) {
	err = e.Read(value)
	return e, err
}

// Read is ReadEnvelope into an existing envelope, replacing its contents, which are invalid after an error.
func (e *Envelope) Read(value []byte) error {
	*e = Envelope{}
	var err error
	switch {
	case bytes.HasPrefix(value, protobufMagic):
		err = e.readUnknown(value[len(protobufMagic):])
	case bytes.HasPrefix(value, encryptedMagic):
		return e.readEncrypted(value[len(encryptedMagic):])
	case bytes.HasPrefix(value, cborMagic):
		err = e.readCBOR(value)
	case len(value) == 0:
		return fmt.Errorf("%w: it is empty", ErrUnreadable)
	default:
		err = e.readJSON(value)
	}
	if err == nil && (len(e.APIVersion) == 0 || len(e.Kind) == 0) {
		err = fmt.Errorf("%w: it names no apiVersion or no kind", ErrUnreadable)
	}
	return err
}

// readUnknown reads a runtime.Unknown: typeMeta = 1 {apiVersion = 1, kind = 2}, raw = 2, contentEncoding = 3,
// contentType = 4.
func (e *Envelope) readUnknown(data []byte) error {
	e.Encoding = Protobuf
	var typeMeta, contentEncoding []byte
	w := WalkProto(data)
	for w.Next() {
		switch w.Number {
		case 1:
			typeMeta = w.Bytes
		case 2:
			e.Body = w.Bytes
		case 3:
			contentEncoding = w.Bytes
		}
	}
	if err := w.Err(); err != nil {
		return fmt.Errorf("%w: its envelope is damaged: %w", ErrUnreadable, err)
	}
	if len(contentEncoding) > 0 {
		return fmt.Errorf("%w: its content encoding %q is not known", ErrUnreadable, contentEncoding)
	}
	for w = WalkProto(typeMeta); w.Next(); {
		switch w.Number {
		case 1:
			e.APIVersion = w.Bytes
		case 2:
			e.Kind = w.Bytes
		}
	}
	if err := w.Err(); err != nil {
		return fmt.Errorf("%w: its type is damaged: %w", ErrUnreadable, err)
	}
	return nil
}

// readEncrypted reads <provider>:<version>:<key name>:<cipher text>; old providers have all of it, too.
func (e *Envelope) readEncrypted(data []byte) error {
	e.Encoding = Encrypted
	provider, rest, ok := bytes.Cut(data, []byte(":"))
	_, rest, ok2 := bytes.Cut(rest, []byte(":"))
	keyName, _, ok3 := bytes.Cut(rest, []byte(":"))
	if !ok || !ok2 || !ok3 || len(provider) == 0 {
		return fmt.Errorf("%w: its encryption header is cut off", ErrUnreadable)
	}
	e.Provider, e.KeyName = provider, keyName
	return nil
}

// cborMode reads CBOR as API servers write it: strings are byte strings there, keys too, and objects may be deep.
// Source: runtime/serializer/cbor/internal/modes of apimachinery.
var cborMode = sync.OnceValue(func() cbor.DecMode {
	mode, err := cbor.DecOptions{
		ByteStringToString: cbor.ByteStringToStringAllowed, FieldNameByteString: cbor.FieldNameByteStringAllowed,
		FieldNameMatching: cbor.FieldNameMatchingCaseSensitive, MaxNestedLevels: 10_000, MaxMapPairs: 1 << 21,
		MaxArrayElements: 1 << 21,
	}.DecMode()
	if err != nil {
		panic("storage: internal error: " + err.Error())
	}
	return mode
})

func (e *Envelope) readCBOR(value []byte) error {
	var typed struct {
		APIVersion string `cbor:"apiVersion"`
		Kind       string `cbor:"kind"`
	}
	if err := cborMode().Unmarshal(value, &typed); err != nil {
		return fmt.Errorf("%w: its CBOR is damaged: %w", ErrUnreadable, err)
	}
	*e = Envelope{Encoding: CBOR, APIVersion: []byte(typed.APIVersion), Kind: []byte(typed.Kind), Body: value}
	return nil
}

func (e *Envelope) readJSON(value []byte) error {
	e.Encoding, e.Body = JSON, value
	err := JSONMembers(value, func(key, member []byte) bool {
		switch string(key) {
		case "apiVersion":
			e.APIVersion = jsonString(member)
		case "kind":
			e.Kind = jsonString(member)
		}
		return e.APIVersion == nil || e.Kind == nil
	})
	// The members behind the type are not read, so a value that was cut off is noticed by its last byte.
	if end := bytes.TrimRight(value, " \t\r\n"); err == nil && (len(end) == 0 || end[len(end)-1] != '}') {
		err = errJSON
	}
	if err != nil && bytes.HasPrefix(bytes.TrimLeft(value, " \t\r\n"), []byte("{")) {
		return fmt.Errorf("%w: its JSON is cut off or invalid", ErrUnreadable)
	}
	if err != nil {
		// no more of it: the value may be a secret
		return fmt.Errorf("%w: it starts with %q", ErrUnreadable, value[:min(len(value), 4)])
	}
	return nil
}
