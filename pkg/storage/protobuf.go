package storage

import (
	"errors"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// nextField reads the field at the start of a message: its number, its value when that is length-delimited, and how
// many bytes it takes; fewer than 0 when it is damaged. Small numbers and lengths, which are nearly all, are read at
// once.
func nextField(data []byte) (number protowire.Number, value []byte, n int) {
	if len(data) > 1 && data[0] < 0x80 && data[0]&7 == byte(protowire.BytesType) && data[0] >= 8 {
		if length := int(data[1]); length < 0x80 {
			if end := 2 + length; end <= len(data) {
				return protowire.Number(data[0] >> 3), data[2:end], end
			}
		}
	}
	number, wireType, tag := protowire.ConsumeTag(data)
	if tag < 0 {
		return 0, nil, tag
	}
	if wireType == protowire.BytesType {
		value, n = protowire.ConsumeBytes(data[tag:])
	} else {
		n = protowire.ConsumeFieldValue(number, wireType, data[tag:])
	}
	if n < 0 {
		return 0, nil, n
	}
	return number, value, tag + n
}

// parseError describes a damaged message. The package's own errors begin with a space that changes from build to
// build.
func parseError(n int) error {
	return errors.New(strings.TrimSpace(strings.TrimPrefix(protowire.ParseError(n).Error(), "proto:")))
}

// ProtoFields calls visit with every field of a message, until visit returns false; the value of a field that is not
// length-delimited is nil. It allocates nothing.
func ProtoFields(data []byte, visit func(number protowire.Number, value []byte) bool) error {
	for len(data) > 0 {
		number, value, n := nextField(data)
		if n < 0 {
			return parseError(n)
		}
		data = data[n:]
		if !visit(number, value) {
			return nil
		}
	}
	return nil
}

// ProtoVarint returns the last value of a varint field of a message, 0 when it is absent.
func ProtoVarint(data []byte, field protowire.Number) (uint64, error) {
	var result uint64
	for len(data) > 0 {
		number, wireType, n := protowire.ConsumeTag(data)
		if n < 0 {
			return 0, parseError(n)
		}
		data = data[n:]
		if number == field && wireType == protowire.VarintType {
			if result, n = protowire.ConsumeVarint(data); n < 0 {
				return 0, parseError(n)
			}
		} else if n = protowire.ConsumeFieldValue(number, wireType, data); n < 0 {
			return 0, parseError(n)
		}
		data = data[n:]
	}
	return result, nil
}

// ProtoBytes returns the last length-delimited field with the number; nil when absent or the message is damaged, which
// ReadMeta or the caller's own walk reports.
func ProtoBytes(data []byte, field protowire.Number) []byte {
	var found []byte
	if ProtoFields(data, func(number protowire.Number, value []byte) bool {
		if number == field {
			found = value
		}
		return true
	}) != nil {
		return nil
	}
	return found
}
