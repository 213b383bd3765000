package etcdv3

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec below
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// pageBytes is the largest answer of a page that is accepted, unless it is one value.
	pageBytes = 16 << 20
	// valueBytes is the largest message beside pages. Members refuse requests of more than --max-request-bytes, and
	// warn when that is above 10 MiB.
	valueBytes = 64 << 20
	// mostFields is how many events, members or errors one answer has: the members put what a thousand revisions have
	// changed into one, each of --max-txn-ops (128) at most unless it says otherwise.
	mostFields = 1 << 20
	// fieldsBeside are those of the answer of a page beside its keys.
	fieldsBeside = 16
)

// bounded reads messages of a limited number of fields: two bytes of a message are an empty key, and 200 of memory, by
// which an answer of 16 MiB takes 1.6 GiB.
type bounded struct {
	encoding.CodecV2
	most int
}

func limitFields(most int) grpc.CallOption {
	return grpc.ForceCodecV2(bounded{encoding.GetCodecV2("proto"), most})
}

// Unmarshal decodes a message unless it has too many fields.
func (b bounded) Unmarshal(data mem.BufferSlice, v any) error {
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	fields := 0
	for rest := whole.ReadOnlyData(); len(rest) > 0; fields++ {
		_, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			break // decoding says what is wrong
		}
		rest = rest[n:]
		if fields > b.most {
			return fmt.Errorf("the answer has more than the %d entries that it may have", b.most)
		}
	}
	return b.CodecV2.Unmarshal(mem.BufferSlice{whole}, v)
}
