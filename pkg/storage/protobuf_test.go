package storage

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
)

func TestWalkProtoReadsFieldsOfEveryType(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 300)
	fields := []ProtoField{
		{Number: 1, Type: protowire.BytesType, Bytes: []byte("name"), Raw: []byte("\x0a\x04name")},
		{Number: 2, Type: protowire.BytesType, Bytes: []byte{}, Raw: []byte{2<<3 | 2, 0}},
		{Number: 3, Type: protowire.BytesType, Bytes: long, Raw: append([]byte{3<<3 | 2, 0xac, 0x02}, long...)},
		{Number: 4, Type: protowire.VarintType, Varint: 5, Raw: []byte{4 << 3, 5}},
		{Number: 5, Type: protowire.VarintType, Varint: 300, Raw: []byte{5 << 3, 0xac, 0x02}},
		{Number: 6, Type: protowire.Fixed32Type, Varint: 7, Raw: []byte{6<<3 | 5, 7, 0, 0, 0}},
		{Number: 7, Type: protowire.Fixed64Type, Varint: 8, Raw: []byte{7<<3 | 1, 8, 0, 0, 0, 0, 0, 0, 0}},
		{Number: 8, Type: protowire.StartGroupType, Raw: []byte{8<<3 | 3, 1 << 3, 1, 8<<3 | 4}},
		{Number: 100, Type: protowire.VarintType, Varint: 1, Raw: []byte{0xa0, 0x06, 1}},
	}
	var message []byte
	for _, f := range fields {
		message = append(message, f.Raw...)
	}
	var read []ProtoField
	w := WalkProto(message)
	for w.Next() {
		read = append(read, w.ProtoField)
	}
	if w.Err() != nil {
		t.Error(w.Err())
	}
	if diff := cmp.Diff(fields, read); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}

	whole := map[int]bool{0: true} // lengths at which a field ends
	for end, i := 0, 0; i < len(fields); i++ {
		end += len(fields[i].Raw)
		whole[end] = true
	}
	for length := range message {
		w := WalkProto(message[:length])
		for w.Next() {
		}
		if damaged := w.Err() != nil; damaged == whole[length] {
			t.Errorf("the first %d bytes: %v, want an error exactly where a field is cut", length, w.Err())
		}
		if w.Next() {
			t.Errorf("the first %d bytes: a walk goes on after its end", length)
		}
	}
	if allocations := testing.AllocsPerRun(10, func() {
		for w := WalkProto(message); w.Next(); {
		}
	}); allocations > 0 {
		t.Errorf("a walk allocates %v times", allocations)
	}
}
