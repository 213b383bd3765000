package storage

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// ProtoField is one field of a protobuf message of any type.
type ProtoField struct {
	Number protowire.Number
	Type   protowire.Type
	Varint uint64 // or the bits of a fixed number
	Bytes  []byte // of protowire.BytesType: a part of the message
	Raw    []byte // the whole field, with its tag
}

// ProtoWalk reads the fields of a message one after the other, without allocating:
//
//	w := storage.WalkProto(message)
//	for w.Next() {
//		... w.Number, w.Bytes
//	}
//	return w.Err()
//
// Groups, which no version of Kubernetes writes, are passed over as API servers do: as fields without a value.
type ProtoWalk struct {
	ProtoField
	rest    []byte
	damaged int // what protowire said, below 0
}

// WalkProto begins a walk at the start of a message.
func WalkProto(message []byte) ProtoWalk { return ProtoWalk{rest: message} }

// Next reads the next field; false at the end of the message, and where it is damaged. Small numbers and lengths, which
// are nearly all, are read at once.
func (w *ProtoWalk) Next() bool {
	data := w.rest
	if len(data) == 0 || w.damaged < 0 {
		return false
	}
	if len(data) > 1 && data[0] >= 8 && data[0] < 0x80 && data[1] < 0x80 {
		end := 2
		switch protowire.Type(data[0] & 7) {
		case protowire.VarintType:
			w.Varint, w.Bytes = uint64(data[1]), nil
		case protowire.BytesType:
			if end += int(data[1]); end > len(data) {
				return w.next()
			}
			w.Varint, w.Bytes = 0, data[2:end]
		default:
			return w.next()
		}
		w.Number, w.Type = protowire.Number(data[0]>>3), protowire.Type(data[0]&7)
		w.Raw, w.rest = data[:end], data[end:]
		return true
	}
	return w.next()
}

// next reads a field of any kind.
func (w *ProtoWalk) next() bool {
	var f ProtoField
	var tag, n int
	if f.Number, f.Type, tag = protowire.ConsumeTag(w.rest); tag < 0 {
		w.damaged = tag
		return false
	}
	switch value := w.rest[tag:]; f.Type {
	case protowire.VarintType:
		f.Varint, n = protowire.ConsumeVarint(value)
	case protowire.Fixed64Type:
		f.Varint, n = protowire.ConsumeFixed64(value)
	case protowire.Fixed32Type:
		var bits uint32
		bits, n = protowire.ConsumeFixed32(value)
		f.Varint = uint64(bits)
	case protowire.BytesType:
		f.Bytes, n = protowire.ConsumeBytes(value)
	default:
		n = protowire.ConsumeFieldValue(f.Number, f.Type, value)
	}
	if n < 0 {
		w.damaged = n
		return false
	}
	f.Raw, w.rest = w.rest[:tag+n], w.rest[tag+n:]
	w.ProtoField = f
	return true
}

// Err describes the damage at which a walk ended, if any. The words of protowire begin with a space that changes from
// build to build; these do not.
func (w *ProtoWalk) Err() error {
	if w.damaged == 0 {
		return nil
	}
	return errors.New(strings.TrimSpace(strings.TrimPrefix(protowire.ParseError(w.damaged).Error(), "proto:")))
}

// ProtoVarint returns the last value of a varint field of a message, 0 when it is absent.
func ProtoVarint(message []byte, field protowire.Number) (uint64, error) {
	var result uint64
	w := WalkProto(message)
	for w.Next() {
		if w.Number == field && w.Type == protowire.VarintType {
			result = w.Varint
		}
	}
	if err := w.Err(); err != nil {
		return 0, err
	}
	return result, nil
}

// ProtoBytes returns the last length-delimited field with the number; nil when absent or the message is damaged, which
// ReadMeta or the caller's own walk reports.
func ProtoBytes(message []byte, field protowire.Number) []byte {
	var found []byte
	w := WalkProto(message)
	for w.Next() {
		if w.Number == field {
			found = w.Bytes
		}
	}
	if w.damaged < 0 {
		return nil
	}
	return found
}

// limitNesting bounds messages within messages: those of CRDs hold themselves, and a decoder that calls itself for each
// ends the process at some millions of bytes. No schema that an API server accepts comes near it.
const limitNesting = 1000

// DecodedProtoBytes is an upper estimate of what decoding a message takes, as values of Go and of JSON: an element of a
// list may be two bytes, and a structure of a kilobyte. Errors: messages are nested too deeply to be decoded.
func DecodedProtoBytes(message []byte) (int64, error) {
	const each, scalar = 2 << 10, 64
	walks := []ProtoWalk{WalkProto(message)}
	size := int64(0)
	for len(walks) > 0 {
		walk := &walks[len(walks)-1]
		switch {
		case !walk.Next(): // its end, or a text that is no message
			walks = walks[:len(walks)-1]
		case walk.Type != protowire.BytesType:
			size += scalar
		default:
			if size += each + int64(len(walk.Bytes)); len(walks) == limitNesting {
				return 0, fmt.Errorf("messages are nested more than %d times", limitNesting)
			}
			walks = append(walks, WalkProto(walk.Bytes))
		}
	}
	return size, nil
}
