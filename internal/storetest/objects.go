// Package storetest holds stores for tests: objects in the encodings of API servers, a map with stores as it wants
// them, and a pager that polices its caller.
package storetest

import (
	"encoding/json"

	"google.golang.org/protobuf/encoding/protowire"
	cbor "k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

// Object is what tests store, in whichever encoding.
type Object struct {
	APIVersion, Kind, Name, Namespace, UID string
	Owners                                 [][4]string // apiVersion, kind, name, uid
	Annotations                            map[string]string
	Raw                                    []byte // protobuf: further fields of the message
}

// Field appends a length-delimited field to a message.
func Field(b []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
}

// Protobuf is the object as API servers store built-in resources.
func (o Object) Protobuf() []byte {
	meta := Field(nil, 1, []byte(o.Name))
	meta = Field(meta, 3, []byte(o.Namespace))
	meta = Field(meta, 5, []byte(o.UID))
	meta = protowire.AppendVarint(protowire.AppendTag(meta, 7, protowire.VarintType), 3)
	for _, entry := range mapEntries(o.Annotations) {
		meta = Field(meta, 12, entry)
	}
	for _, owner := range o.Owners {
		ref := Field(nil, 1, []byte(owner[1]))
		ref = Field(ref, 3, []byte(owner[2]))
		ref = Field(ref, 4, []byte(owner[3]))
		ref = Field(ref, 5, []byte(owner[0]))
		meta = Field(meta, 13, ref)
	}
	body := append(Field(nil, 1, meta), o.Raw...)
	unknown := Field(nil, 1, Field(Field(nil, 1, []byte(o.APIVersion)), 2, []byte(o.Kind)))
	unknown = Field(unknown, 2, body)
	unknown = Field(Field(unknown, 3, nil), 4, nil)
	return append([]byte("k8s\x00"), unknown...)
}

func (o Object) tree() map[string]any {
	owners := []any{}
	for _, owner := range o.Owners {
		owners = append(owners, map[string]any{"apiVersion": owner[0], "kind": owner[1], "name": owner[2],
			"uid": owner[3]})
	}
	return map[string]any{"apiVersion": o.APIVersion, "kind": o.Kind, "spec": map[string]any{"a": []any{1, "}\"", nil}},
		"metadata": map[string]any{
			"name": o.Name, "namespace": o.Namespace, "uid": o.UID, "generation": 3, "ownerReferences": owners,
			"annotations": o.Annotations,
		}}
}

// JSON is the object as API servers store custom resources, and all with the JSON media type.
func (o Object) JSON() []byte {
	data, err := json.Marshal(o.tree())
	if err != nil {
		panic(err)
	}
	return data
}

// CBOR is the object as API servers of 1.32 and later store custom resources behind a gate.
func (o Object) CBOR() []byte {
	data, err := cbor.Marshal(o.tree())
	if err != nil {
		panic(err)
	}
	return append([]byte{0xd9, 0xd9, 0xf7}, data...)
}

// mapEntries writes a map as protobuf does.
func mapEntries(values map[string]string) [][]byte {
	entries := make([][]byte, 0, len(values))
	for key, value := range values {
		entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), key)
		entries = append(entries, protowire.AppendString(protowire.AppendTag(entry, 2, protowire.BytesType), value))
	}
	return entries
}
